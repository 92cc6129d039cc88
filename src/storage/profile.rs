//! What was found to suit a storage, kept in a file for each file system: `DataLoader(io="auto")` reads it. The folder is
//! the caller's to choose; nothing here looks for one.
//!
//! A profile is advice: one that cannot be read, or that is another file system's, is as good as none.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::method::Method;
use super::recommendation::Recommendation;
use crate::error::{Error, ErrorKind, Result};
use crate::shard::{Draft, IoMethod, Opener, filesystem_of};

/// Changes whenever profiles of before mean something else.
const VERSION: u32 = 1;

/// No profile is longer.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Reading threads beyond this are taken for nonsense.
const READERS_MAX: usize = 256;

/// Samples asked for ahead beyond this only hold memory: a reader takes them one by one.
const SAMPLES_AHEAD_MAX: usize = 128;

/// What suits the storage below a mount point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    version: u32,
    /// The folder that the file system is mounted at.
    pub mount: PathBuf,
    /// The file system's type, as `mount` spells it.
    pub filesystem: String,
    /// Seconds since 1970 when it was measured.
    pub measured_unix_s: u64,
    /// What suits it.
    pub recommended: Recommendation,
}

/// How a loader is asked to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Io {
    /// As the profile of the storage says, otherwise as [`IoMethod::Auto`].
    #[default]
    Auto,
    /// As [`IoMethod::Mmap`].
    Mmap,
    /// As [`IoMethod::Read`].
    Read,
    /// As [`IoMethod::Direct`].
    Direct,
    /// By io_uring past the page cache; needs the feature `io-uring`.
    Uring,
}

/// How a loader reads, as far as its options can say.
#[derive(Debug, Clone, Default)]
pub struct ChosenIo {
    /// For [`ShardOptions::io`](crate::shard::ShardOptions::io).
    pub method: IoMethod,
    /// For [`ShardOptions::opener`](crate::shard::ShardOptions::opener).
    pub opener: Option<Opener>,
    /// For the loader's `readers`; 0 for its own default.
    pub readers: usize,
    /// For the loader's `samples_ahead`; 0 for its own default.
    pub samples_ahead: usize,
    /// The profile that this follows, where it follows one.
    pub profile: Option<Profile>,
}

/// How shards at `paths` are read: as asked, or for [`Io::Auto`] as the profile in the folder `profiles` says.
///
/// Reads past the page cache are taken from a profile only for data that have no room in the cache: what has room comes
/// from there in later epochs.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for [`Io::Uring`] where this build or the kernel has none.
pub fn choose_io(io: Io, profiles: Option<&Path>, paths: &[PathBuf]) -> Result<ChosenIo> {
    let of = |method| ChosenIo { method, ..ChosenIo::default() };
    match io {
        Io::Mmap => Ok(of(IoMethod::Mmap)),
        Io::Read => Ok(of(IoMethod::Read)),
        Io::Direct => Ok(of(IoMethod::Direct)),
        Io::Uring => {
            super::uring::check(false)?;
            Ok(uring())
        }
        Io::Auto => {
            let found = profiles.zip(paths.first()).and_then(|(folder, path)| Profile::find(folder, path));
            Ok(found.map(|profile| follow(profile, paths)).unwrap_or_default())
        }
    }
}

fn uring() -> ChosenIo {
    // One reader has many requests under way; the method is what a loader's other decisions go by.
    ChosenIo { method: IoMethod::Read, opener: Some(super::uring::open_store), readers: 1, ..ChosenIo::default() }
}

impl ChosenIo {
    /// How a loader reads that does as recommended, whether the data have room in the cache or not.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for io_uring where this build or the kernel has none.
    pub fn recommended(found: &Recommendation) -> Result<Self> {
        let readers = found.threads.clamp(1, READERS_MAX);
        Ok(match found.method {
            Method::Uring | Method::UringRegistered => {
                super::uring::check(false)?;
                // What is asked for ahead is what is under way; other methods have a thread for each.
                Self { samples_ahead: found.samples_ahead.clamp(1, SAMPLES_AHEAD_MAX), ..uring() }
            }
            Method::Direct => Self { method: IoMethod::Direct, readers, ..Self::default() },
            Method::Pread => Self { method: IoMethod::Read, readers, ..Self::default() },
            Method::Mmap | Method::MmapPopulate => Self { method: IoMethod::Auto, readers, ..Self::default() },
        })
    }
}

fn follow(profile: Profile, paths: &[PathBuf]) -> ChosenIo {
    let method = profile.recommended.method;
    let is_possible = || paths.first().is_some_and(|path| method.check(path).is_ok());
    // The cache serves data that have room in it after the first epoch, as well as any method does.
    let suits = !method.is_direct() || !fit_in_cache(paths) && is_possible();
    let chosen =
        if suits { ChosenIo::recommended(&profile.recommended).unwrap_or_default() } else { ChosenIo::default() };
    ChosenIo { profile: Some(profile), ..chosen }
}

/// Whether the files have room in half of the machine's memory; memory that the kernel does not tell has none.
fn fit_in_cache(paths: &[PathBuf]) -> bool {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = total.and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0);
    let bytes: u64 = paths.iter().filter_map(|path| fs::metadata(path).ok()).map(|metadata| metadata.len()).sum();
    bytes <= kilobytes * 512
}

impl Profile {
    /// A profile of the storage that `path` lies on.
    ///
    /// # Errors
    /// Those of looking at the path.
    pub fn new(path: &Path, recommended: Recommendation) -> Result<Self> {
        let (mount, filesystem) = place_of(path)?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Self { version: VERSION, mount, filesystem, measured_unix_s: since.as_secs(), recommended })
    }

    /// Writes it into `folder`, which is made where it is missing, in place of an older one; returns the file's path.
    ///
    /// # Errors
    /// Those of making the folder and writing the file.
    pub fn save(&self, folder: &Path) -> Result<PathBuf> {
        let path = folder.join(file_name(&self.mount, &self.filesystem));
        let failed = |error| Error::io(format!("cannot write the profile '{}'", path.display()), error);
        fs::create_dir_all(folder).map_err(failed)?;
        let text = serde_json::to_vec_pretty(self).map_err(|error| failed(error.into()))?;
        let mut draft = Draft::create(&path).map_err(failed)?;
        draft.write_all(&text).and_then(|()| draft.finish()).map_err(failed)
    }

    /// The profile in `folder` of the storage that `path` lies on, if there is one that fits.
    #[must_use]
    pub fn find(folder: &Path, path: &Path) -> Option<Self> {
        let (mount, filesystem) = place_of(path).ok()?;
        let file = folder.join(file_name(&mount, &filesystem));
        let mut text = Vec::new();
        fs::File::open(&file).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut text).ok()?;
        let found: Result<Self, _> = serde_json::from_slice(&text);
        match found {
            Ok(found) if found.version == VERSION && (&found.mount, &found.filesystem) == (&mount, &filesystem) => {
                Some(found)
            }
            Ok(_) => None,
            Err(error) => {
                tracing::debug!(%error, file = %file.display(), "a storage profile cannot be read");
                None
            }
        }
    }
}

/// The mount point above `path` and the type of its file system.
fn place_of(path: &Path) -> Result<(PathBuf, String)> {
    let failed = |error| Error::io(format!("cannot look at '{}'", path.display()), error);
    let path = fs::canonicalize(path).map_err(failed)?;
    let device = fs::metadata(&path).map_err(failed)?.dev();
    let filesystem = filesystem_of(&path).map_err(failed)?.name.into_owned();
    let is_same = |above: &&Path| fs::metadata(above).is_ok_and(|metadata| metadata.dev() == device);
    let mount = path.ancestors().take_while(is_same).last();
    let mount = mount.ok_or_else(|| Error::new(ErrorKind::Io, format!("'{}' lies on no mount", path.display())))?;
    Ok((mount.to_owned(), filesystem))
}

/// A name for each mount point and type (FNV-1a of both): the file itself says which it is.
fn file_name(mount: &Path, filesystem: &str) -> String {
    let bytes = mount.as_os_str().as_encoded_bytes().iter().chain(b"\0").chain(filesystem.as_bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    format!("storage-{hash:016x}.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recommended(method: Method) -> Recommendation {
        Recommendation {
            method,
            threads: 6,
            block_bytes: 1 << 18,
            queue_depth: 1,
            samples_ahead: 6,
            mb_per_s: 512.5,
            samples_per_s: Some(4000.25),
        }
    }

    #[test]
    fn a_profile_is_found_for_every_path_of_its_storage() {
        let (data, profiles) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let shard = data.path().join("a.tar");
        fs::write(&shard, b"abc").unwrap();
        let folder = profiles.path().join("new");
        assert_eq!(Profile::find(&folder, &shard), None);
        let profile = Profile::new(&shard, recommended(Method::Pread)).unwrap();
        let file = profile.save(&folder).unwrap();
        profile.save(&folder).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        assert_eq!(Profile::find(&folder, &shard), Some(profile.clone()));
        assert_eq!(Profile::find(&folder, data.path()), Some(profile.clone()));
        assert_eq!(Profile::find(&folder, &data.path().join("missing")), None);
        assert!(data.path().canonicalize().unwrap().starts_with(&profile.mount));
        for text in [
            "{".to_owned(),
            fs::read_to_string(&file).unwrap().replace("\"version\": 1", "\"version\": 2"),
            fs::read_to_string(&file).unwrap().replace("\"mount\": \"", "\"mount\": \"/else"),
        ] {
            fs::write(&file, text).unwrap();
            assert_eq!(Profile::find(&folder, &shard), None);
        }
    }

    #[test]
    fn auto_follows_a_profile_and_others_do_as_they_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let shard = folder.path().join("a.tar");
        fs::write(&shard, b"abc").unwrap();
        let paths = [shard.clone()];
        let chosen = |io| {
            let chosen = choose_io(io, Some(folder.path()), &paths).unwrap();
            (chosen.method, chosen.readers, chosen.profile.is_some())
        };
        assert_eq!(chosen(Io::Auto), (IoMethod::Auto, 0, false));
        Profile::new(&shard, recommended(Method::Pread)).unwrap().save(folder.path()).unwrap();
        assert_eq!(chosen(Io::Auto), (IoMethod::Read, 6, true));
        assert_eq!(chosen(Io::Mmap), (IoMethod::Mmap, 0, false));
        assert_eq!(chosen(Io::Direct), (IoMethod::Direct, 0, false));
        Profile::new(&shard, recommended(Method::MmapPopulate)).unwrap().save(folder.path()).unwrap();
        assert_eq!(chosen(Io::Auto), (IoMethod::Auto, 6, true));
        // Three bytes have room in any cache.
        Profile::new(&shard, recommended(Method::Direct)).unwrap().save(folder.path()).unwrap();
        assert_eq!(chosen(Io::Auto), (IoMethod::Auto, 0, true));
        assert_eq!(choose_io(Io::Auto, None, &paths).unwrap().readers, 0);
    }

    #[test]
    fn what_is_recommended_is_handed_to_the_loader() {
        let chosen = |method| {
            let chosen = ChosenIo::recommended(&Recommendation { samples_ahead: 500, ..recommended(method) }).unwrap();
            (chosen.method, chosen.readers, chosen.samples_ahead, chosen.opener.is_some())
        };
        assert_eq!(chosen(Method::MmapPopulate), (IoMethod::Auto, 6, 0, false));
        assert_eq!(chosen(Method::Pread), (IoMethod::Read, 6, 0, false));
        assert_eq!(chosen(Method::Direct), (IoMethod::Direct, 6, 0, false));
        if choose_io(Io::Uring, None, &[]).is_ok() {
            assert_eq!(chosen(Method::Uring), (IoMethod::Read, 1, SAMPLES_AHEAD_MAX, true));
        }
    }

    #[test]
    fn uring_is_real_or_refused_with_its_feature() {
        match choose_io(Io::Uring, None, &[]) {
            Ok(chosen) => assert!(cfg!(feature = "io-uring") && chosen.opener.is_some()),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unsupported);
                assert!(cfg!(feature = "io-uring") || error.hint().is_some_and(|hint| hint.contains("io-uring")));
            }
        }
    }
}
