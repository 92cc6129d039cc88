//! What makes a file the same file from one look to the next: size, modification time, inode.
//!
//! It compares facts that the file system keeps, never contents.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};

/// Size, modification time and inode of a file at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileIdentity {
    /// Size in bytes.
    pub size: u64,
    /// Whole seconds of the modification time since 1970.
    pub mtime_s: i64,
    /// Nanoseconds of the modification time within its second.
    pub mtime_ns: i64,
    /// Number of the inode on its file system.
    pub inode: u64,
}

impl FileIdentity {
    /// The identity of the file that `path` names now, links followed.
    ///
    /// # Errors
    /// Those of `stat(2)`.
    pub fn of_path(path: &Path) -> io::Result<Self> {
        fs::metadata(path).map(|metadata| Self::of(&metadata))
    }

    /// Opens a regular file for reading, and tells which one it was.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when there is none, [`ErrorKind::Unsupported`] for folders, pipes and devices,
    /// [`ErrorKind::Io`] when it cannot be opened.
    pub fn open(path: &Path) -> Result<(File, Self)> {
        let cannot_open = |error| Error::io("cannot open the shard", error);
        // Asked first, because opening a named pipe waits for its writer.
        refuse_other_than_file(&fs::metadata(path).map_err(cannot_open)?)?;
        let file = File::open(path).map_err(cannot_open)?;
        let metadata = file.metadata().map_err(cannot_open)?;
        refuse_other_than_file(&metadata)?;
        Ok((file, Self::of(&metadata)))
    }

    /// Makes sure that `path` still names the file whose identity this is.
    ///
    /// # Errors
    /// [`ErrorKind::ShardChanged`] when it does not, [`ErrorKind::Io`] when the system cannot tell.
    pub fn check(&self, path: &Path) -> Result<()> {
        let now = match Self::of_path(path) {
            Ok(now) => now,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(shard_changed("the shard was removed while it was in use"));
            }
            Err(error) => return Err(Error::io("cannot look at the shard again", error)),
        };
        match self.difference(&now) {
            None => Ok(()),
            Some(difference) => Err(shard_changed(difference)),
        }
    }

    /// What tells `now` from this identity, as a sentence, if anything does.
    #[must_use]
    pub fn difference(&self, now: &Self) -> Option<String> {
        if self.size != now.size {
            let verb = if now.size < self.size { "shrank" } else { "grew" };
            let (before, after) = (self.size, now.size);
            return Some(format!("the shard {verb} from {before} to {after} bytes while it was in use"));
        }
        if self.inode != now.inode {
            return Some("the shard was replaced by another file while it was in use".into());
        }
        if (self.mtime_s, self.mtime_ns) != (now.mtime_s, now.mtime_ns) {
            return Some("the shard was rewritten while it was in use: its modification time differs".into());
        }
        None
    }

    fn of(metadata: &Metadata) -> Self {
        Self {
            size: metadata.size(),
            mtime_s: metadata.mtime(),
            mtime_ns: metadata.mtime_nsec(),
            inode: metadata.ino(),
        }
    }
}

/// An error of the kind [`ErrorKind::ShardChanged`] with the advice that fits all of them.
pub(super) fn shard_changed(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::ShardChanged, message)
        .with_hint("write a new shard under another name and rename it, then start again to read the new one")
}

fn refuse_other_than_file(metadata: &Metadata) -> Result<()> {
    if metadata.is_file() {
        return Ok(());
    }
    let what = if metadata.is_dir() { "a folder" } else { "a pipe or device" };
    Err(Error::new(ErrorKind::Unsupported, format!("the shard is {what}, not a regular file")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_what_differs() {
        let before = FileIdentity { size: 10, mtime_s: 1, mtime_ns: 2, inode: 3 };
        let check = |now: FileIdentity, word: &str| {
            let difference = before.difference(&now).unwrap_or_default();
            assert!(difference.contains(word), "{difference:?} lacks {word:?}");
        };
        assert_eq!(before.difference(&before), None);
        check(FileIdentity { size: 4, ..before }, "shrank from 10 to 4 bytes");
        check(FileIdentity { size: 11, ..before }, "grew from 10 to 11 bytes");
        check(FileIdentity { inode: 4, ..before }, "replaced");
        check(FileIdentity { mtime_ns: 3, ..before }, "rewritten");
        check(FileIdentity { mtime_s: 0, ..before }, "rewritten");
    }

    #[test]
    fn a_removed_file_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar");
        fs::write(&path, b"abc").unwrap();
        let (_, identity) = FileIdentity::open(&path).unwrap();
        identity.check(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(identity.check(&path).unwrap_err().kind(), ErrorKind::ShardChanged);
    }

    #[test]
    fn a_folder_is_no_shard() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(FileIdentity::open(folder.path()).unwrap_err().kind(), ErrorKind::Unsupported);
    }
}
