//! A store is where a shard's bytes come from: a memory map, positioned reads, or plain memory.
//!
//! It knows nothing of tar; and it is no cache: it keeps no bytes beyond those the caller holds.

use std::fmt::Debug;
use std::ops::Range;
use std::path::Path;

use bytes::Bytes;

use super::direct::DirectStore;
use super::filesystem::filesystem_of;
use super::identity::FileIdentity;
use super::read::ReadStore;
use crate::error::{Error, ErrorKind, Result};

/// How a shard on disk is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum IoMethod {
    /// A map on local file systems, positioned reads on network and FUSE ones.
    #[default]
    Auto,
    /// A memory map: no copy, pages shared with every other process.
    Mmap,
    /// Positioned reads: for storage that must not be mapped.
    Read,
    /// Positioned reads that bypass the page cache, where the file system has them.
    Direct,
}

/// A source of immutable bytes of a known length.
pub trait Store: Send + Sync + Debug {
    /// The length in bytes, as at opening.
    fn len(&self) -> u64;

    /// Whether there are no bytes at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of `range`; a view without a copy where the store can.
    ///
    /// # Errors
    /// [`ErrorKind::Truncated`] when the range passes the end, [`ErrorKind::Io`] when the system cannot read.
    fn read(&self, range: Range<u64>) -> Result<Bytes>;

    /// Asks for `range` to be brought near; returns at once and never fails.
    fn prefetch(&self, range: Range<u64>);

    /// Brings `range` into memory: it is resident when this returns.
    ///
    /// # Errors
    /// [`ErrorKind::ShardChanged`] when the file has shrunk under the range, [`ErrorKind::Io`] otherwise.
    fn populate(&self, range: Range<u64>) -> Result<()>;

    /// Makes sure that what is behind the store is still what was opened.
    ///
    /// # Errors
    /// [`ErrorKind::ShardChanged`] when size, modification time or inode differ from those at opening.
    fn check(&self) -> Result<()>;

    /// Whether bytes handed out before may have been lost under the reader's hands, and read as zeros since.
    fn has_faulted(&self) -> bool {
        false
    }

    /// Which file this is; `None` for bytes that no file is behind.
    fn identity(&self) -> Option<FileIdentity> {
        None
    }

    /// What the store takes from the system for as long as it lives.
    fn footprint(&self) -> Footprint {
        Footprint::default()
    }
}

/// What an open store takes from the system; address space and page cache are free and not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Footprint {
    /// File descriptors.
    pub files: usize,
    /// Anonymous memory in bytes.
    pub memory_bytes: u64,
}

/// Opens the file at `path` with the method asked for.
///
/// A map that would be one too many for the guard's table becomes reads; under [`IoMethod::Auto`] any map that the
/// system refuses does.
pub(super) fn open(path: &Path, method: IoMethod) -> Result<Box<dyn Store>> {
    if method == IoMethod::Read || (method == IoMethod::Auto && is_network(path)) {
        return Ok(Box::new(ReadStore::open(path)?));
    }
    if method == IoMethod::Direct {
        return Ok(Box::new(DirectStore::open(path)?));
    }
    map(path, method)
}

#[cfg(target_os = "linux")]
fn map(path: &Path, method: IoMethod) -> Result<Box<dyn Store>> {
    match super::map::MapStore::open(path) {
        Ok(store) => Ok(Box::new(store)),
        Err(error) if error.kind() == ErrorKind::Limit || method == IoMethod::Auto => {
            tracing::debug!(%error, path = %path.display(), "reading instead of mapping");
            Ok(Box::new(ReadStore::open(path)?))
        }
        Err(error) => Err(error),
    }
}

#[cfg(not(target_os = "linux"))]
fn map(_path: &Path, _method: IoMethod) -> Result<Box<dyn Store>> {
    // A file that shrinks would end the process: the guard that prevents it is made for Linux.
    Err(Error::new(ErrorKind::Unsupported, "shards are mapped on Linux only").with_hint("use io = read"))
}

/// Whether `path` should be read rather than mapped; opening it will tell what is wrong with a path that cannot be asked.
fn is_network(path: &Path) -> bool {
    filesystem_of(path).is_ok_and(|filesystem| filesystem.is_network)
}

/// A store over bytes that are in memory already: inflated shards, tests.
#[derive(Clone)]
pub struct MemoryStore {
    bytes: Bytes,
    /// The file that the bytes were made of.
    identity: Option<FileIdentity>,
}

impl MemoryStore {
    /// Serves `bytes`.
    #[must_use]
    pub fn new(bytes: Bytes) -> Self {
        Self { bytes, identity: None }
    }

    /// Serves `bytes` that were made of the file with `identity`.
    pub(super) fn made_of(identity: Option<FileIdentity>, bytes: Bytes) -> Self {
        Self { bytes, identity }
    }
}

impl Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore").field("len", &self.bytes.len()).finish()
    }
}

impl Store for MemoryStore {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, range: Range<u64>) -> Result<Bytes> {
        check_range(&range, self.len())?;
        // In range of a slice, so both ends fit a usize.
        Ok(self.bytes.slice(range.start as usize..range.end as usize))
    }

    fn prefetch(&self, _range: Range<u64>) {}

    fn populate(&self, range: Range<u64>) -> Result<()> {
        check_range(&range, self.len())
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn identity(&self) -> Option<FileIdentity> {
        self.identity
    }

    fn footprint(&self) -> Footprint {
        Footprint { files: 0, memory_bytes: self.len() }
    }
}

/// Refuses a range that runs backwards or passes the end of a store of `len` bytes.
pub(crate) fn check_range(range: &Range<u64>, len: u64) -> Result<()> {
    if range.start <= range.end && range.end <= len {
        return Ok(());
    }
    let Range { start, end } = range;
    let message = format!("bytes {start}..{end} were asked for, but the shard has {len}");
    Err(Error::new(ErrorKind::Truncated, message).at_offset(*start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_past_the_end_is_an_error() {
        let store = MemoryStore::new(Bytes::from_static(b"0123456789"));
        let check = |range: Range<u64>, expected: Option<&[u8]>| match (store.read(range.clone()), expected) {
            (Ok(bytes), Some(expected)) => assert_eq!(bytes, expected),
            (Err(error), None) => assert_eq!(error.kind(), ErrorKind::Truncated),
            (result, _) => panic!("{range:?}: {result:?}"),
        };
        check(0..10, Some(b"0123456789"));
        check(3..3, Some(b""));
        check(10..10, Some(b""));
        check(9..11, None);
        check(u64::MAX - 1..u64::MAX, None);
        #[expect(clippy::reversed_empty_ranges, reason = "the case under test")]
        check(5..4, None);
    }
}
