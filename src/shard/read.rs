//! A store by positioned reads: the map's twin, for storage that must not be mapped.
//!
//! It holds one file descriptor for as long as it lives, and it keeps no bytes: each read is a copy of its own.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::identity::{FileIdentity, shard_changed};
use super::store::{Footprint, Store, check_range};
use crate::error::{Error, ErrorKind, Result};

/// A file read by `pread(2)`.
#[derive(Debug)]
pub struct ReadStore {
    file: File,
    path: PathBuf,
    identity: FileIdentity,
}

impl ReadStore {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// As [`FileIdentity::open`].
    pub fn open(path: &Path) -> Result<Self> {
        let (file, identity) = FileIdentity::open(path)?;
        // Headers are read one by one and samples as a whole: reading ahead of either would read what nobody asked for.
        advise(&file, 0..identity.size, Advice::Random);
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Ok(Self { file, path, identity })
    }
}

impl Store for ReadStore {
    fn len(&self) -> u64 {
        self.identity.size
    }

    fn read(&self, range: Range<u64>) -> Result<Bytes> {
        check_range(&range, self.len())?;
        let len = usize::try_from(range.end - range.start).map_err(|_| {
            Error::new(ErrorKind::Limit, "the range is larger than this machine's memory").at_offset(range.start)
        })?;
        let mut bytes = vec![0; len];
        match self.file.read_exact_at(&mut bytes, range.start) {
            Ok(()) => Ok(bytes.into()),
            // The range lay inside the file when it was opened.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(shard_changed("the shard shrank while it was in use").at_offset(range.start))
            }
            Err(error) => Err(Error::io("cannot read the shard", error).at_offset(range.start)),
        }
    }

    fn prefetch(&self, range: Range<u64>) {
        advise(&self.file, range.start..range.end.min(self.len()), Advice::WillNeed);
    }

    /// Only starts the transfer: nothing can fault later, because [`read`](Store::read) itself waits for the bytes.
    fn populate(&self, range: Range<u64>) -> Result<()> {
        check_range(&range, self.len())?;
        self.prefetch(range);
        Ok(())
    }

    fn check(&self) -> Result<()> {
        self.identity.check(&self.path)
    }

    fn identity(&self) -> Option<FileIdentity> {
        Some(self.identity)
    }

    fn footprint(&self) -> Footprint {
        Footprint { files: 1, memory_bytes: 0 }
    }
}

#[derive(Clone, Copy)]
enum Advice {
    Random,
    WillNeed,
}

/// The kernel takes at most this much of one piece of advice to read ahead, whatever the device.
const ADVICE_BYTES: u64 = 128 << 10;

#[cfg(target_os = "linux")]
fn advise(file: &File, range: Range<u64>, advice: Advice) {
    use std::num::NonZeroU64;
    // Advice that is not taken changes the speed, never the bytes: errors are of no interest.
    match advice {
        Advice::Random => {
            let _ = rustix::fs::fadvise(file, range.start, None, rustix::fs::Advice::Random);
        }
        Advice::WillNeed => {
            let mut start = range.start;
            while let Some(len) = NonZeroU64::new(range.end.saturating_sub(start).min(ADVICE_BYTES)) {
                let _ = rustix::fs::fadvise(file, start, Some(len), rustix::fs::Advice::WillNeed);
                start += len.get();
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn advise(_file: &File, _range: Range<u64>, _advice: Advice) {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_read_behind_the_new_end_of_a_shrunken_file_is_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar");
        fs::write(&path, vec![7; 10_000]).unwrap();
        let store = ReadStore::open(&path).unwrap();
        assert_eq!(store.read(9_990..10_000).unwrap(), [7; 10][..]);
        store.check().unwrap();

        File::options().write(true).open(&path).unwrap().set_len(100).unwrap();
        assert_eq!(store.read(0..100).unwrap(), [7; 100][..]);
        assert_eq!(store.read(90..101).unwrap_err().kind(), ErrorKind::ShardChanged);
        assert_eq!(store.check().unwrap_err().kind(), ErrorKind::ShardChanged);
    }

    #[test]
    fn a_range_is_checked_before_anything_is_allocated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar");
        fs::write(&path, b"abc").unwrap();
        let store = ReadStore::open(&path).unwrap();
        assert_eq!(store.read(0..1 << 60).unwrap_err().kind(), ErrorKind::Truncated);
        store.prefetch(0..u64::MAX);
        store.prefetch(u64::MAX..u64::MAX);
        assert!(store.populate(0..4).is_err());
        assert_eq!(store.read(3..3).unwrap(), b""[..]);
    }
}
