//! A store by memory map: views of the page cache without a copy, at the price that the file can change below.
//!
//! It does not make a changing file safe to decode: it makes the change an error instead of the end of the process.

mod guard;
mod chain;
mod table;

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use memmap2::{Advice, Mmap, MmapOptions};

use self::table::Watch;
use super::identity::{FileIdentity, shard_changed};
use super::store::{Store, check_range};
use crate::error::{Error, ErrorKind, Result};

/// A file mapped as a whole; the descriptor is closed again once the map stands.
///
/// Views given out by [`read`](Store::read) keep the map alive, also beyond the store's own life. A page that has
/// vanished because the file shrank reads as zeros, and [`check`](Store::check) tells afterwards: whoever uses
/// bytes of a map calls it after the use.
#[derive(Debug)]
pub struct MapStore {
    /// The whole file, owned by `mapping`.
    bytes: Bytes,
    mapping: Arc<Mapping>,
    path: PathBuf,
    identity: FileIdentity,
}

/// A map under the guard's watch.
///
/// Invariant: `watch` covers exactly the pages of `map`, and is dropped before them (fields drop in order), so the
/// guard never knows an address that has been given back to the system.
#[derive(Debug)]
struct Mapping {
    watch: Watch,
    map: Mmap,
}

/// What `Bytes` owns: one share of the mapping.
struct Owner(Arc<Mapping>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0.map
    }
}

impl MapStore {
    /// Maps the file at `path`.
    ///
    /// # Errors
    /// As [`FileIdentity::open`]; [`ErrorKind::Limit`] when so many maps are alive that the guard has no place for
    /// another, or the file is larger than the address space: read such a file instead.
    pub fn open(path: &Path) -> Result<Self> {
        let (file, identity) = FileIdentity::open(path)?;
        let len = usize::try_from(identity.size)
            .map_err(|_| Error::new(ErrorKind::Limit, "the shard is larger than the address space"))?;
        // SAFETY: the map is read-only, and every access goes through `Bytes` that own it. What the type system
        // cannot promise is that no one writes to the file: bytes may change between two looks at them. All users
        // of shard bytes treat them as untrusted input and check each value that they act on where they act on it;
        // nothing is transmuted from them. A file that shrinks faults inside the guard's watch, set up below before
        // any byte is looked at.
        let map = unsafe { MmapOptions::new().len(len).map(&file) }
            .map_err(|error| Error::io("cannot map the shard", error).with_hint("use positioned reads: io = read"))?;
        // SAFETY: the range is the live map above; it moves into `Mapping`, which ends the watch before the map.
        let watch = unsafe { guard::watch(map.as_ptr() as usize, len) }.ok_or_else(|| {
            Error::new(ErrorKind::Limit, "no place is left in the table of guarded maps")
                .with_hint("keep fewer shards open at once, or use positioned reads: io = read")
        })?;
        // Headers are read one by one, samples are asked for by `prefetch`: reading ahead of a touched page would
        // read what nobody asked for.
        let _ = map.advise(Advice::Random);
        let mapping = Arc::new(Mapping { watch, map });
        let bytes = Bytes::from_owner(Owner(mapping.clone()));
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Ok(Self { bytes, mapping, path, identity })
    }

    /// The same with pages read ahead of touched ones, which opening turns off.
    #[must_use]
    pub fn reading_ahead(self) -> Self {
        // Advice that is not taken changes the speed, never the bytes.
        let _ = self.mapping.map.advise(Advice::Sequential);
        self
    }

    fn check_pages(&self) -> Result<()> {
        if self.mapping.watch.has_faulted() {
            // Prefer the reason that the file itself shows.
            self.identity.check(&self.path)?;
            return Err(shard_changed("pages of the shard vanished while it was in use"));
        }
        Ok(())
    }

    /// Touches one byte of each page: what `MADV_POPULATE_READ` does, for kernels before 5.14.
    fn touch_pages(&self, range: Range<usize>) -> Result<()> {
        // Where the file has shrunk already, no page need be faulted to learn it.
        self.identity.check(&self.path)?;
        for page in self.bytes[range].chunks(guard::page_size()) {
            std::hint::black_box(page[0]);
        }
        self.check_pages()
    }

    /// The part of the map that `range`, which is in bounds, stands for.
    fn slice_of(range: &Range<u64>) -> Range<usize> {
        // Both ends are at most the map's length, which is a usize.
        range.start as usize..range.end as usize
    }
}

impl Store for MapStore {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, range: Range<u64>) -> Result<Bytes> {
        check_range(&range, self.len())?;
        self.check_pages()?;
        Ok(self.bytes.slice(Self::slice_of(&range)))
    }

    fn prefetch(&self, range: Range<u64>) {
        let range = range.start..range.end.min(self.len());
        if range.is_empty() {
            return;
        }
        let mut range = Self::slice_of(&range);
        while !range.is_empty() {
            let len = range.len().min(ADVICE_BYTES);
            // Advice that is not taken changes the speed, never the bytes.
            let _ = self.mapping.map.advise_range(Advice::WillNeed, range.start, len);
            range.start += len;
        }
    }

    fn populate(&self, range: Range<u64>) -> Result<()> {
        check_range(&range, self.len())?;
        if range.is_empty() {
            return Ok(());
        }
        self.check_pages()?;
        // Random access turns reading ahead off, so populating alone would wait for one page after the other.
        self.prefetch(range.clone());
        let slice = Self::slice_of(&range);
        match self.mapping.map.advise_range(Advice::PopulateRead, slice.start, slice.len()) {
            Ok(()) => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => self.touch_pages(slice),
            Err(error) if error.raw_os_error() == Some(libc::EFAULT) => {
                self.identity.check(&self.path)?;
                Err(shard_changed("pages of the shard cannot be read any more").at_offset(range.start).with_hint(
                    "the file looks unchanged, so the storage may have failed: see the kernel's log for read errors",
                ))
            }
            Err(error) => Err(io_error_at(range.start, error)),
        }
    }

    fn has_faulted(&self) -> bool {
        self.mapping.watch.has_faulted()
    }

    fn check(&self) -> Result<()> {
        guard::renew();
        self.check_pages()?;
        self.identity.check(&self.path)
    }

    fn identity(&self) -> Option<FileIdentity> {
        Some(self.identity)
    }
}

/// The kernel takes at most this much of one piece of advice to read ahead, whatever the device.
const ADVICE_BYTES: usize = 128 << 10;

fn io_error_at(offset: u64, error: io::Error) -> Error {
    Error::io("cannot bring the shard's pages into memory", error).at_offset(offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::read::ReadStore;
    use proptest::prelude::*;
    use std::fs::{self, File};

    #[test]
    fn an_empty_file_is_an_empty_store() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar");
        fs::write(&path, b"").unwrap();
        let store = MapStore::open(&path).unwrap();
        assert_eq!(store.read(0..0).unwrap(), b""[..]);
        store.prefetch(0..10);
        store.populate(0..0).unwrap();
        assert!(store.populate(0..1).is_err());
        store.check().unwrap();
    }

    #[test]
    fn a_view_outlives_its_store() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar");
        fs::write(&path, vec![9; 20_000]).unwrap();
        let view = MapStore::open(&path).unwrap().read(10_000..20_000).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(view, vec![9; 10_000]);
    }

    #[test]
    fn a_rewritten_file_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar");
        fs::write(&path, b"before").unwrap();
        let store = MapStore::open(&path).unwrap();
        store.check().unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(store.check().unwrap_err().kind(), ErrorKind::ShardChanged);
    }

    #[test]
    fn touching_pages_is_what_populating_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar");
        fs::write(&path, vec![9; 50_000]).unwrap();
        let store = MapStore::open(&path).unwrap();
        store.touch_pages(0..50_000).unwrap();
        store.touch_pages(49_999..50_000).unwrap();
        store.touch_pages(5..5).unwrap();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn maps_and_reads_give_the_same_bytes(
            bytes in proptest::collection::vec(any::<u8>(), 0..60_000),
            ranges in proptest::collection::vec((0_u64..70_000, 0_u64..70_000), 1..40),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("a.tar");
            fs::write(&path, &bytes).unwrap();
            let (map, read) = (MapStore::open(&path).unwrap(), ReadStore::open(&path).unwrap());
            prop_assert_eq!(map.len(), read.len());
            for (start, end) in ranges {
                map.prefetch(start..end);
                read.prefetch(start..end);
                prop_assert_eq!(map.populate(start..end).is_ok(), read.populate(start..end).is_ok());
                match (map.read(start..end), read.read(start..end)) {
                    (Ok(map), Ok(read)) => {
                        prop_assert_eq!(&map, &bytes[start as usize..end as usize]);
                        prop_assert_eq!(map, read);
                    }
                    (Err(map), Err(read)) => prop_assert_eq!(map.to_string(), read.to_string()),
                    (map, read) => prop_assert!(false, "{:?} and {:?} for {}..{}", map, read, start, end),
                }
            }
        }
    }
}
