//! Reads that bypass the page cache (`O_DIRECT`): for storage faster than the copy out of the cache, and for data that
//! should not push others out of it.
//!
//! It keeps no bytes and reads nothing ahead: how much is under way at once is for the number of its callers to say.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::filesystem::filesystem_of;
use super::identity::{FileIdentity, shard_changed};
use super::store::{Footprint, Store, check_range};
use crate::error::{Error, ErrorKind, Result};

/// Alignment of memory and offsets where the file system does not tell what it needs: a page suits all of them.
const ALIGNMENT_DEFAULT: u64 = 4096;

/// Alignments beyond this are taken for nonsense.
const ALIGNMENT_MAX: u64 = 1 << 20;

/// An open file whose reads bypass the page cache, and the alignment that they need.
#[derive(Debug)]
pub struct DirectFile {
    file: File,
    identity: FileIdentity,
    /// Of offsets, lengths and memory, in bytes; a power of two.
    alignment: u64,
}

impl DirectFile {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// As [`FileIdentity::open`]; [`ErrorKind::Unsupported`] where the file system has no direct reads, as tmpfs.
    pub fn open(path: &Path) -> Result<Self> {
        let (_, identity) = FileIdentity::open(path)?;
        let filesystem = filesystem_of(path).map_or_else(|_| "this file system".into(), |found| found.name);
        let refused = || {
            Error::new(ErrorKind::Unsupported, format!("direct reads are not possible on {filesystem}"))
                .with_hint("use another method: mmap or read")
        };
        // The kernel opens these and then reads through the cache, which they are.
        if matches!(&*filesystem, "tmpfs" | "ramfs" | "hugetlbfs") {
            return Err(refused());
        }
        let flags = libc::O_DIRECT | libc::O_NONBLOCK;
        let file = match File::options().read(true).custom_flags(flags).open(path) {
            Ok(file) => file,
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Err(refused().with_source(error)),
            Err(error) => return Err(Error::io("cannot open the shard for direct reads", error)),
        };
        let alignment = alignment_of(&file).ok_or_else(refused)?;
        Ok(Self { file, identity, alignment })
    }

    /// The open file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Which file it is.
    #[must_use]
    pub fn identity(&self) -> &FileIdentity {
        &self.identity
    }

    /// What offsets, lengths and memory must be multiples of, in bytes; a power of two.
    #[must_use]
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// The least aligned range that holds `range`; it may pass the file's end.
    #[must_use]
    pub fn around(&self, range: &Range<u64>) -> Range<u64> {
        let mask = self.alignment - 1;
        range.start & !mask..range.end.saturating_add(mask) & !mask
    }

    /// Reads `range` into `buffer`, which gets the aligned range around it; returns the place of `range` in the buffer.
    ///
    /// # Errors
    /// [`ErrorKind::ShardChanged`] when the file ends before `range` does, [`ErrorKind::Io`] when the system cannot read.
    pub fn read(&self, range: &Range<u64>, buffer: &mut AlignedBuffer) -> Result<Range<usize>> {
        let around = self.around(range);
        let wanted = (range.end - around.start) as usize;
        let memory = buffer.room(around.end - around.start, self.alignment)?;
        let mut have = 0;
        while have < wanted {
            let count = match rustix::io::pread(&self.file, &mut memory[have..], around.start + have as u64) {
                Ok(count) => count,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => {
                    let error = io::Error::from(error);
                    return Err(Error::io("cannot read the shard directly", error).at_offset(range.start));
                }
            };
            if have + count >= wanted {
                break;
            }
            // What is read next must be aligned too. Less than a block is only delivered at the file's end.
            let whole = count - count % self.alignment as usize;
            if whole == 0 {
                return Err(shrank(range.start));
            }
            have += whole;
        }
        let start = (range.start - around.start) as usize;
        Ok(start..wanted)
    }
}

fn shrank(offset: u64) -> Error {
    shard_changed("the shard shrank while it was in use").at_offset(offset)
}

/// What the kernel says that direct reads of the file must be aligned to; `None` where there are none.
#[cfg(target_os = "linux")]
fn alignment_of(file: &File) -> Option<u64> {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    let asked = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let told = match asked {
        Ok(found) if found.stx_mask & StatxFlags::DIOALIGN.bits() != 0 => {
            let (memory, offset) = (u64::from(found.stx_dio_mem_align), u64::from(found.stx_dio_offset_align));
            // Zero is the kernel's word for a file without direct reads.
            (memory > 0 && offset > 0).then(|| memory.max(offset))?
        }
        // Kernels before 6.1, and file systems that do not say.
        _ => ALIGNMENT_DEFAULT,
    };
    // Larger than needed is allowed, and a page is what the system works in.
    let alignment = told.max(ALIGNMENT_DEFAULT).next_power_of_two();
    (alignment <= ALIGNMENT_MAX).then_some(alignment)
}

#[cfg(not(target_os = "linux"))]
fn alignment_of(_file: &File) -> Option<u64> {
    None
}

/// Memory that begins at a multiple of a page, or of more, and is used again; its bytes are what the last read left.
#[derive(Debug, Default)]
pub struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
    alignment: usize,
}

impl AlignedBuffer {
    /// A part of the memory of `len_bytes` bytes that begins at a multiple of `alignment`, a power of two, and of a page.
    ///
    /// # Errors
    /// [`ErrorKind::Limit`] for more than there can be.
    pub fn room(&mut self, len_bytes: u64, alignment: u64) -> Result<&mut [u8]> {
        let slack = slack(alignment);
        let len = usize::try_from(len_bytes).ok().and_then(|len| Some((len, len.checked_add(slack)?)));
        let (len, with_slack) = len.filter(|(len, _)| *len <= isize::MAX as usize / 2).ok_or_else(|| {
            Error::new(ErrorKind::Limit, format!("{len_bytes} bytes do not fit into this machine's memory"))
        })?;
        if self.len < len || self.alignment < slack {
            self.memory = vec![0; with_slack];
            self.start = self.memory.as_ptr().align_offset(slack);
            (self.len, self.alignment) = (len, slack);
        }
        Ok(&mut self.memory[self.start..self.start + len])
    }

    /// Whether [`room`](Self::room) for these would give the memory that is there.
    #[must_use]
    pub fn has_room(&self, len_bytes: u64, alignment: u64) -> bool {
        len_bytes <= self.len as u64 && slack(alignment) <= self.alignment
    }

    /// The bytes at `range` of the aligned part, which own the memory; nothing for a range outside of it.
    #[must_use]
    pub fn into_bytes(self, range: Range<usize>) -> Bytes {
        let within = self.start + range.start.min(self.len)..self.start + range.end.min(self.len);
        match within.start < within.end {
            true => Bytes::from(self.memory).slice(within),
            false => Bytes::new(),
        }
    }
}

/// Bytes before the first multiple of the alignment in any memory, at most; what a file asks for never passes the limit.
fn slack(alignment: u64) -> usize {
    alignment.clamp(ALIGNMENT_DEFAULT, ALIGNMENT_MAX).next_power_of_two() as usize
}

/// A shard whose reads bypass the page cache.
#[derive(Debug)]
pub struct DirectStore {
    file: DirectFile,
    path: PathBuf,
}

impl DirectStore {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// As [`DirectFile::open`].
    pub fn open(path: &Path) -> Result<Self> {
        let file = DirectFile::open(path)?;
        Ok(Self { file, path: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()) })
    }
}

impl Store for DirectStore {
    fn len(&self) -> u64 {
        self.file.identity.size
    }

    fn read(&self, range: Range<u64>) -> Result<Bytes> {
        check_range(&range, self.len())?;
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let mut buffer = AlignedBuffer::default();
        let place = self.file.read(&range, &mut buffer)?;
        Ok(buffer.into_bytes(place))
    }

    /// Does nothing: bytes that bypass the cache have nowhere to wait.
    fn prefetch(&self, _range: Range<u64>) {}

    fn populate(&self, range: Range<u64>) -> Result<()> {
        check_range(&range, self.len())
    }

    fn check(&self) -> Result<()> {
        self.file.identity.check(&self.path)
    }

    fn identity(&self) -> Option<FileIdentity> {
        Some(self.file.identity)
    }

    fn footprint(&self) -> Footprint {
        Footprint { files: 1, memory_bytes: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::read::ReadStore;
    use proptest::prelude::*;
    use std::fs;

    /// A folder on a file system with direct reads, if there is one at hand: the system's temporary folder may be tmpfs.
    fn folder() -> Option<tempfile::TempDir> {
        let folders = [tempfile::tempdir(), tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR"))];
        folders.into_iter().flatten().find(|folder| {
            let path = folder.path().join("probe");
            fs::write(&path, b"probe").is_ok() && DirectFile::open(&path).is_ok()
        })
    }

    #[test]
    fn a_file_that_shrank_is_a_change() {
        let Some(folder) = folder() else { return };
        let path = folder.path().join("a.tar");
        fs::write(&path, vec![7; 20_000]).unwrap();
        let store = DirectStore::open(&path).unwrap();
        assert_eq!(store.read(19_990..20_000).unwrap(), [7; 10][..]);
        for len in [9_000, 8_192, 0] {
            File::options().write(true).open(&path).unwrap().set_len(len).unwrap();
            assert_eq!(store.read(8_000..20_000).unwrap_err().kind(), ErrorKind::ShardChanged, "{len}");
            assert_eq!(store.check().unwrap_err().kind(), ErrorKind::ShardChanged);
        }
    }

    #[test]
    fn a_file_system_in_memory_is_refused_with_its_name() {
        let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return };
        if filesystem_of(folder.path()).is_ok_and(|found| found.name != "tmpfs") {
            return;
        }
        let path = folder.path().join("a.tar");
        fs::write(&path, b"abc").unwrap();
        let error = DirectStore::open(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.message().contains("tmpfs"), "{error}");
    }

    #[test]
    fn a_buffer_is_aligned_and_used_again() {
        let mut buffer = AlignedBuffer::default();
        for (len, alignment) in [(5000, 512), (100, 4096), (4096, 65_536), (9000, 1), (9000, 16_384)] {
            let had_room = buffer.has_room(len, alignment);
            let before = buffer.memory.as_ptr();
            let room = buffer.room(len, alignment).unwrap();
            assert_eq!(room.len() as u64, len);
            assert_eq!(room.as_ptr().align_offset(alignment.max(4096) as usize), 0, "{alignment}");
            room.fill(3);
            assert_eq!(had_room, buffer.memory.as_ptr() == before, "{len} {alignment}");
        }
        assert!(buffer.room(u64::MAX, 1).is_err());
        assert_eq!(buffer.into_bytes(10..20), [3; 10][..]);
        assert_eq!(AlignedBuffer::default().into_bytes(3..9), b""[..]);
    }

    #[test]
    fn a_file_system_that_asks_for_more_than_a_page_gets_it() {
        let Some(folder) = folder() else { return };
        let path = folder.path().join("a.tar");
        let bytes: Vec<u8> = (0..100_000_u32).map(|at| (at * 31 / 7) as u8).collect();
        fs::write(&path, &bytes).unwrap();
        let file = DirectFile { alignment: 32_768, ..DirectFile::open(&path).unwrap() };
        assert_eq!(file.around(&(40_000..70_000)), 32_768..98_304);
        let mut buffer = AlignedBuffer::default();
        let place = file.read(&(40_000..70_000), &mut buffer).unwrap();
        assert_eq!(place, 7_232..37_232);
        let memory = buffer.room(65_536, 32_768).unwrap();
        assert_eq!(memory.as_ptr().align_offset(32_768), 0);
        assert!(memory[place] == bytes[40_000..70_000]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn direct_and_cached_reads_give_the_same_bytes(
            len in 0_usize..60_000,
            ranges in proptest::collection::vec((0_u64..70_000, 0_u64..70_000), 1..40),
        ) {
            let Some(folder) = folder() else { return Ok(()) };
            let path = folder.path().join("a.tar");
            fs::write(&path, (0..len).map(|at| (at * 31 / 7) as u8).collect::<Vec<_>>()).unwrap();
            let (direct, read) = (DirectStore::open(&path).unwrap(), ReadStore::open(&path).unwrap());
            for (start, end) in ranges {
                prop_assert_eq!(direct.populate(start..end).is_ok(), read.populate(start..end).is_ok());
                match (direct.read(start..end), read.read(start..end)) {
                    (Ok(direct), Ok(read)) => prop_assert_eq!(direct, read),
                    (Err(direct), Err(read)) => prop_assert_eq!(direct.to_string(), read.to_string()),
                    (direct, read) => prop_assert!(false, "{:?} and {:?} for {}..{}", direct, read, start, end),
                }
            }
        }
    }
}
