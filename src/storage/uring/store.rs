//! A shard's store by io_uring: `prefetch` begins to read, `read` takes the bytes when they are there. So one reader of a
//! loader has as many requests under way as it asks for ahead.
//!
//! It holds bytes that were asked for and not yet taken, a bounded number of requests, and nothing else.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::ring::{Completion, Ring};
use crate::error::Result;
use crate::shard::direct::{AlignedBuffer, DirectFile};
use crate::shard::store::check_range;
use crate::shard::{FileIdentity, Footprint, Store};

/// Requests that a store has under way or waiting to be taken, at most.
const DEPTH: usize = 32;

/// Bytes of a request that is made ahead at most: larger ranges are read when they are asked for.
const AHEAD_BYTES_MAX: u64 = 16 << 20;

/// A file read by io_uring past the page cache.
pub(super) struct UringStore {
    path: PathBuf,
    ahead: Mutex<Ahead>,
    file: DirectFile,
}

/// What was asked for ahead.
///
/// Invariant: `asked` has an entry for each slot that is under way or holds bytes nobody took; other slots are free.
struct Ahead {
    ring: Ring,
    asked: Vec<Option<Asked>>,
    clock: u64,
}

struct Asked {
    range: Range<u64>,
    /// The bytes read, or why not; `None` while it is under way.
    result: Option<io::Result<usize>>,
    /// When it was asked for, to give way to newer requests.
    since: u64,
}

impl UringStore {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// As [`DirectFile::open`]; [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) where the kernel refuses io_uring.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = DirectFile::open(path)?;
        let ring = Ring::new(DEPTH, 0, file.alignment(), false)?;
        let asked = (0..DEPTH).map(|_| None).collect();
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Ok(Self { path, ahead: Mutex::new(Ahead { ring, asked, clock: 0 }), file })
    }

    fn lock(&self) -> MutexGuard<'_, Ahead> {
        // A panic under the lock cannot leave a buffer that the kernel writes to unknown: the ring counts for itself.
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The buffer that `range` was read into ahead, if it was asked for; waits for it.
    fn taken(&self, range: &Range<u64>) -> Result<Option<AlignedBuffer>> {
        let mut ahead = self.lock();
        let found = ahead.asked.iter().position(|asked| asked.as_ref().is_some_and(|asked| asked.range == *range));
        let Some(slot) = found else { return Ok(None) };
        while ahead.asked[slot].as_ref().is_some_and(|asked| asked.result.is_none()) {
            let Some(completion) = ahead.ring.take(true)? else { break };
            ahead.settle(completion);
        }
        let result = ahead.asked[slot].take().and_then(|asked| asked.result);
        let around = self.file.around(range);
        let wanted = (range.end - around.start) as usize;
        match result {
            Some(Ok(bytes)) if bytes >= wanted => Ok(Some(ahead.ring.buffer_of(slot))),
            // Read once more, by whoever asked: a real fault shows again, and then with its own words.
            _ => Ok(None),
        }
    }
}

impl Ahead {
    fn settle(&mut self, (slot, result): Completion) {
        if let Some(Some(asked)) = self.asked.get_mut(slot) {
            asked.result = Some(result);
        }
    }

    /// A free slot; where there is none, that of the oldest request that is over and was not taken.
    fn free_slot(&mut self) -> Result<Option<usize>> {
        while let Some(completion) = self.ring.take(false)? {
            self.settle(completion);
        }
        if let Some(slot) = self.asked.iter().position(Option::is_none) {
            return Ok(Some(slot));
        }
        let over = self.asked.iter().enumerate().filter_map(|(slot, asked)| {
            let asked = asked.as_ref()?;
            asked.result.is_some().then_some((asked.since, slot))
        });
        let oldest = over.min().map(|(_, slot)| slot);
        if let Some(slot) = oldest {
            self.asked[slot] = None;
        }
        Ok(oldest)
    }
}

impl Store for UringStore {
    fn len(&self) -> u64 {
        self.file.identity().size
    }

    fn read(&self, range: Range<u64>) -> Result<Bytes> {
        check_range(&range, self.len())?;
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        if let Some(buffer) = self.taken(&range)? {
            let start = (range.start - self.file.around(&range).start) as usize;
            return Ok(buffer.into_bytes(start..start + (range.end - range.start) as usize));
        }
        let mut buffer = AlignedBuffer::default();
        let place = self.file.read(&range, &mut buffer)?;
        Ok(buffer.into_bytes(place))
    }

    /// Begins to read `range`, unless too much is under way already.
    fn prefetch(&self, range: Range<u64>) {
        let range = range.start..range.end.min(self.len());
        if range.is_empty() || range.end - range.start > AHEAD_BYTES_MAX {
            return;
        }
        let mut ahead = self.lock();
        if ahead.asked.iter().flatten().any(|asked| asked.range == range) {
            return;
        }
        // Whatever fails here is read when it is asked for, and told then.
        let Ok(Some(slot)) = ahead.free_slot() else { return };
        if ahead.ring.start(slot, &self.file, &range).is_ok() {
            ahead.clock += 1;
            let since = ahead.clock;
            ahead.asked[slot] = Some(Asked { range, result: None, since });
        }
    }

    /// Only starts the transfer: nothing can fault later, because [`read`](Store::read) itself waits for the bytes.
    fn populate(&self, range: Range<u64>) -> Result<()> {
        check_range(&range, self.len())
    }

    fn check(&self) -> Result<()> {
        self.file.identity().check(&self.path)
    }

    fn identity(&self) -> Option<FileIdentity> {
        Some(*self.file.identity())
    }

    fn footprint(&self) -> Footprint {
        Footprint { files: 2, memory_bytes: 0 }
    }
}

impl fmt::Debug for UringStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UringStore").field("path", &self.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use proptest::prelude::*;
    use std::fs::{self, File};

    fn folder() -> Option<tempfile::TempDir> {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).ok()?;
        let path = folder.path().join("probe");
        fs::write(&path, b"probe").ok()?;
        UringStore::open(&path).ok().map(|_| folder)
    }

    #[test]
    fn a_file_that_shrank_is_a_change_whether_asked_for_ahead_or_not() {
        let Some(folder) = folder() else { return };
        let path = folder.path().join("a.tar");
        fs::write(&path, vec![7; 40_000]).unwrap();
        let store = UringStore::open(&path).unwrap();
        store.prefetch(0..100);
        assert_eq!(store.read(0..100).unwrap(), [7; 100][..]);
        File::options().write(true).open(&path).unwrap().set_len(9_000).unwrap();
        store.prefetch(20_000..30_000);
        for range in [20_000..30_000, 5_000..20_000] {
            assert_eq!(store.read(range).unwrap_err().kind(), ErrorKind::ShardChanged);
        }
        assert_eq!(store.check().unwrap_err().kind(), ErrorKind::ShardChanged);
    }

    #[test]
    fn what_is_under_way_does_not_outlive_its_store() {
        let Some(folder) = folder() else { return };
        let path = folder.path().join("a.tar");
        fs::write(&path, vec![7; 4_000_000]).unwrap();
        let store = UringStore::open(&path).unwrap();
        for number in 0..200_u64 {
            store.prefetch(number * 10_000..number * 10_000 + 50_000);
        }
        assert!(store.lock().asked.iter().flatten().count() <= DEPTH);
        drop(store);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn bytes_are_the_files_in_any_order_of_asking(
            len in 1_u64..200_000,
            steps in proptest::collection::vec((any::<bool>(), 0_u64..200_000, 0_u64..60_000), 1..80),
        ) {
            let Some(folder) = folder() else { return Ok(()) };
            let path = folder.path().join("a.tar");
            let bytes: Vec<u8> = (0..len).map(|at| (at * 31 / 7) as u8).collect();
            fs::write(&path, &bytes).unwrap();
            let store = UringStore::open(&path).unwrap();
            let mut later = Vec::new();
            for (is_read, start, size) in steps {
                let range = start.min(len)..start.saturating_add(size).min(len);
                store.prefetch(range.clone());
                if is_read {
                    prop_assert_eq!(store.read(range.clone()).unwrap(), &bytes[range.start as usize..range.end as usize]);
                } else {
                    later.push(range);
                }
            }
            for range in later {
                prop_assert_eq!(store.read(range.clone()).unwrap(), &bytes[range.start as usize..range.end as usize]);
            }
            prop_assert!(store.read(0..len + 1).is_err());
        }
    }
}
