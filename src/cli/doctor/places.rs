//! The file systems under the paths that matter: what they are, whether shards on them are mapped or read, how full they
//! are. Their speed is not measured.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;

use crate::cli::folders;
use crate::cli::output::bytes_text;
use crate::cli::system::System;
use crate::shard::filesystem_of;

/// A path and the file system it lies on.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Place {
    path: PathBuf,
    /// Why it was looked at: `given`, `current`, `cache`, `temporary`.
    role: &'static str,
    #[serde(rename = "type")]
    kind: Option<String>,
    network: Option<bool>,
    /// How shards on it are read by default: `mmap` or `read`.
    io: Option<&'static str>,
    mount: Option<PathBuf>,
    total_bytes: Option<u64>,
    free_bytes: Option<u64>,
    /// Why nothing is known of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

/// Looks at the given paths, the current folder, the cache folder and the one for temporary files.
pub(super) fn look(system: &System, given: &[PathBuf], cache: &Path) -> Vec<Place> {
    let mounts = mounts(system);
    let given = given.iter().map(|path| Place::look("given", path, path, &mounts));
    let current = env::current_dir().into_iter().map(|path| Place::look("current", &path, &path, &mounts));
    // The cache folder is made when it is first needed.
    let made = folders::existing(cache).unwrap_or(cache);
    let cache = Place::look("cache", cache, made, &mounts);
    let temporary = env::temp_dir();
    given.chain(current).chain([cache, Place::look("temporary", &temporary, &temporary, &mounts)]).collect()
}

impl Place {
    /// Tells of `path` what holds for `existing`, itself or the nearest folder above it.
    fn look(role: &'static str, path: &Path, existing: &Path, mounts: &[PathBuf]) -> Self {
        let place = Self { path: path.to_owned(), role, ..Self::default() };
        match Self::facts(existing, mounts) {
            Ok(facts) => Self { path: place.path, role, ..facts },
            Err(error) => Self { error: Some(format!("{error:#}")), ..place },
        }
    }

    fn facts(path: &Path, mounts: &[PathBuf]) -> anyhow::Result<Self> {
        let filesystem = filesystem_of(path).context("cannot look at the path")?;
        let space = rustix::fs::statvfs(path).context("cannot look at the path")?;
        let absolute = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Ok(Self {
            kind: Some(filesystem.name.into_owned()),
            network: Some(filesystem.is_network),
            io: Some(if filesystem.is_network { "read" } else { "mmap" }),
            mount: mounts
                .iter()
                .filter(|mount| absolute.starts_with(mount))
                .max_by_key(|mount| mount.as_os_str().len())
                .cloned(),
            total_bytes: space.f_blocks.checked_mul(space.f_frsize),
            free_bytes: space.f_bavail.checked_mul(space.f_frsize),
            ..Self::default()
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, role, kind, io, mount, total_bytes, free_bytes, error, .. } = self;
        write!(f, "{} ({role}): ", path.display())?;
        if let Some(error) = error {
            return f.write_str(error);
        }
        write!(f, "{}", kind.as_deref().unwrap_or("unknown"))?;
        if let Some(mount) = mount {
            write!(f, " at {}", mount.display())?;
        }
        write!(f, ", shards by {}", io.unwrap_or("unknown"))?;
        match (free_bytes, total_bytes) {
            (Some(free), Some(total)) => write!(f, ", {} of {} free", bytes_text(*free), bytes_text(*total)),
            _ => Ok(()),
        }
    }
}

/// Mount points, from the fifth word of each line; the kernel writes blanks in them as octal escapes.
fn mounts(system: &System) -> Vec<PathBuf> {
    let text = system.text("proc/self/mountinfo").unwrap_or_default();
    text.lines().filter_map(|line| line.split(' ').nth(4)).map(|mount| unescaped(mount).into()).collect()
}

fn unescaped(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::system::fake;

    #[test]
    fn mount_points_are_unescaped() {
        let (_folder, system) = fake::machine(&[(
            "proc/self/mountinfo",
            "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 22 0:44 / /mnt/my\\040data rw shared:1 - nfs4 srv:/d rw\n",
        )]);
        assert_eq!(mounts(&system), [PathBuf::from("/"), PathBuf::from("/mnt/my data")]);
    }

    #[test]
    fn a_path_that_is_not_there_says_so() {
        let (folder, system) = fake::machine(&[]);
        let missing = folder.path().join("missing");
        let places = look(&system, std::slice::from_ref(&missing), &missing.join("cache"));
        assert!(places[0].error.as_deref().unwrap().starts_with("cannot look at the path"));
        let cache = places.iter().find(|place| place.role == "cache").unwrap();
        assert!(cache.error.is_none() && cache.total_bytes.is_some(), "{cache:?}");
    }
}
