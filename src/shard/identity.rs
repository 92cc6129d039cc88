//! What makes a file the same file from one look to the next: size, modification time, inode.
//!
//! It compares facts that the file system keeps, never contents.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
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

    /// Opens a regular file for reading, and tells which one it was; waits for nobody who should write to it.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when there is none, [`ErrorKind::Unsupported`] for folders, pipes and devices,
    /// [`ErrorKind::Io`] when it cannot be opened.
    pub fn open(path: &Path) -> Result<(File, Self)> {
        let cannot_open = |error| Error::io("cannot open the shard", error);
        // Asked first, because opening a device may do something to it.
        refuse_other_than_file(&fs::metadata(path).map_err(cannot_open)?)?;
        let file = open_at_once(path).map_err(cannot_open)?;
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

    /// The identity of the file that `metadata` tells of.
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            size: metadata.size(),
            mtime_s: metadata.mtime(),
            mtime_ns: metadata.mtime_nsec(),
            inode: metadata.ino(),
        }
    }
}

/// An error of the kind [`ErrorKind::ShardChanged`] with the advice that fits all of them.
pub(crate) fn shard_changed(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::ShardChanged, message)
        .with_hint("write a new shard under another name and rename it, then start again to read the new one")
}

fn refuse_other_than_file(metadata: &Metadata) -> Result<()> {
    if metadata.is_file() {
        return Ok(());
    }
    refuse_folder(metadata)?;
    Err(Error::new(ErrorKind::Unsupported, "the shard is a pipe or device, not a regular file")
        .with_hint("a pipe can be read in a stream: access=\"stream\""))
}

/// Refuses what no bytes can be read from in any way.
pub(super) fn refuse_folder(metadata: &Metadata) -> Result<()> {
    match metadata.is_dir() {
        true => Err(Error::new(ErrorKind::Unsupported, "the shard is a folder, not a regular file")),
        false => Ok(()),
    }
}

/// Opens what `path` names for reading without waiting: neither for the writer of a named pipe, nor in later reads of
/// one. On a regular file this changes nothing.
pub(super) fn open_at_once(path: &Path) -> io::Result<File> {
    match File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path) {
        // Another process must first give up its lease on the file: that is a wait with an end.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => File::open(path),
        opened => opened,
    }
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
    fn nobody_waits_for_the_writer_of_a_pipe() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let error = FileIdentity::open(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.hint().is_some_and(|hint| hint.contains("stream")));
        // Put in the place of a file after it was looked at, it is opened without a wait too.
        open_at_once(&path).unwrap();
    }

    #[test]
    fn a_folder_is_no_shard() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(FileIdentity::open(folder.path()).unwrap_err().kind(), ErrorKind::Unsupported);
    }
}
