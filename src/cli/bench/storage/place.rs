//! Where the shards lie: file systems by name, and what they do not allow to be sure of. It looks, and measures nothing.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::Serialize;

use crate::shard::filesystem_of;

/// The storage that is measured, and what cannot be known about it.
#[derive(Debug, Serialize)]
pub(super) struct Place {
    /// Types as `mount` spells them, with commas where there are several.
    pub(super) filesystem: String,
    network: bool,
    /// File systems that the shards lie on.
    pub(super) mounts: usize,
    /// What these file systems do not allow to be sure of, one sentence each.
    pub(super) notes: Vec<String>,
}

impl Place {
    /// The storage that `paths`, at least one, lie on.
    pub(super) fn of<'a>(paths: impl Iterator<Item = &'a Path>) -> Self {
        let (mut kinds, mut devices): (Vec<(String, bool)>, _) = (Vec::new(), HashSet::new());
        for path in paths {
            let kind = match filesystem_of(path) {
                Ok(found) => (found.name.into_owned(), found.is_network),
                Err(_) => ("unknown".to_owned(), true),
            };
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
            devices.insert(std::fs::metadata(path).map(|metadata| metadata.dev()).ok());
        }
        Self::named(&kinds, devices.len())
    }

    /// Of file systems by name, and whether their bytes come over a network or from another process.
    fn named(kinds: &[(String, bool)], mounts: usize) -> Self {
        let names: Vec<&str> = kinds.iter().map(|(name, _)| name.as_str()).collect();
        let filesystem = names.join(", ");
        let mut notes = Vec::new();
        if mounts > 1 {
            notes.push(format!(
                "the shards lie on {mounts} file systems ({filesystem}): figures are of all together, and no profile is kept"
            ));
        }
        for (name, is_network) in kinds {
            notes.extend(note(name, *is_network));
        }
        Self { network: kinds.iter().any(|(_, is_network)| *is_network), filesystem, mounts, notes }
    }
}

/// What cannot be guaranteed on a file system.
fn note(name: &str, is_network: bool) -> Option<String> {
    match name {
        "tmpfs" | "ramfs" => Some(format!("{name} is memory: there is no storage below it, and nothing is ever cold")),
        "overlay" => Some("overlay: files lie on another file system, whose own cache is measured".to_owned()),
        "zfs" => Some("zfs caches on its own (ARC): evicted pages may still come from memory".to_owned()),
        _ if is_network => Some(format!(
            "{name}: only this machine's cache is emptied; a server or a process behind it may have its own, so cold \
             means cold here"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_guaranteed_is_told_by_name() {
        let check = |name: &str, is_network, part: Option<&str>| {
            let place = Place::named(&[(name.to_owned(), is_network)], 1);
            assert_eq!((place.filesystem.as_str(), place.network), (name, is_network));
            match part {
                Some(part) => {
                    let [note] = place.notes.as_slice() else { panic!("{name}: {:?}", place.notes) };
                    assert!(note.starts_with(name) && note.contains(part), "{note}");
                }
                None => assert_eq!(place.notes, [] as [String; 0], "{name}"),
            }
        };
        check("ext4", false, None);
        check("tmpfs", false, Some("nothing is ever cold"));
        check("overlay", false, Some("on another file system"));
        check("zfs", false, Some("may still come from memory"));
        check("nfs", true, Some("cold means cold here"));
        check("fuse", true, Some("a process behind it"));
        check("0x000000ab", true, Some("cold means cold here"));
    }

    #[test]
    fn several_file_systems_are_all_named() {
        let kinds = [("ext4".to_owned(), false), ("nfs".to_owned(), true)];
        let place = Place::named(&kinds, 3);
        assert!(place.network && place.notes.len() == 2, "{place:?}");
        assert!(place.notes[0].contains("3 file systems (ext4, nfs)"), "{}", place.notes[0]);
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Place::of([folder.path(), folder.path()].into_iter()).mounts, 1);
    }
}
