//! The index that lies beside a shard, `a.tar.index` for `a.tar`: it travels with the shard, and readers need not walk its
//! headers.
//!
//! It is believed only while it fits: the shard has the length that it says, is no younger, and has the headers that it says in
//! several places. Whatever does not fit means that the index is built again.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::cache::checksum;
use super::draft::Draft;
use super::index::ShardIndex;
use super::tar::header::{BLOCK, Header};
use crate::error::{Error, Result};

/// What such a file begins with; the last byte is the version of the format and of the rules that read an archive.
const MAGIC: &[u8; 8] = b"brimbes\x01";

/// The largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Headers that are looked at, spread over the shard, besides the last one.
const PROBES: usize = 16;

/// How much younger a shard may be than its index: both may have been copied at once, in any order.
const AGE_SLACK: Duration = Duration::from_secs(2);

/// The path of the index that belongs to a shard.
#[must_use]
pub fn index_beside(shard: &Path) -> PathBuf {
    let mut name = OsString::from(shard.as_os_str());
    name.push(".index");
    name.into()
}

/// Why an index beside a shard is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// There is none.
    Missing,
    /// It is no such file, or damaged.
    Unreadable,
    /// It is an older shard's.
    Stale,
}

impl ShardIndex {
    /// Writes the index beside the shard that it was built of.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) when it cannot be written.
    pub fn write_beside(&self, shard: &Path) -> Result<()> {
        let path = index_beside(shard);
        let failed = |error| Error::io(format!("cannot write the index '{}'", path.display()), error);
        let bytes = fs::metadata(shard).map_err(failed)?.len();
        let body = postcard::to_stdvec(&(bytes, self)).map_err(|error| failed(std::io::Error::other(error)))?;
        let written = Draft::create(&path).and_then(|mut draft| {
            draft.write_all(MAGIC)?;
            draft.write_all(&checksum(&body).to_le_bytes())?;
            draft.write_all(&body)?;
            draft.finish()
        });
        written.map(drop).map_err(failed)
    }

    /// The index beside a shard, if it fits.
    pub(crate) fn read_beside(shard: &Path) -> Result<Self, Unfit> {
        let path = index_beside(shard);
        let found = fs::metadata(&path).map_err(|_| Unfit::Missing)?;
        if !found.is_file() || found.len() > FILE_BYTES_MAX {
            return Err(Unfit::Unreadable);
        }
        let bytes = fs::read(&path).map_err(|_| Unfit::Unreadable)?;
        let (sum, body) =
            bytes.strip_prefix(MAGIC).and_then(|rest| rest.split_first_chunk()).ok_or(Unfit::Unreadable)?;
        if u32::from_le_bytes(*sum) != checksum(body) {
            return Err(Unfit::Unreadable);
        }
        let (length, index): (u64, Self) = postcard::from_bytes(body).map_err(|_| Unfit::Unreadable)?;
        if !index.is_sound() {
            return Err(Unfit::Unreadable);
        }
        let times = (fs::metadata(shard).and_then(|found| found.modified()), found.modified());
        let is_younger = match times {
            (Ok(shard), Ok(index)) => shard > index + AGE_SLACK,
            _ => false,
        };
        if is_younger || !index.fits(shard, length).unwrap_or(false) {
            return Err(Unfit::Stale);
        }
        Ok(index)
    }

    /// Whether the shard has `length` bytes and, where it is looked at, the headers that the index says.
    fn fits(&self, shard: &Path, length: u64) -> std::io::Result<bool> {
        let file = File::open(shard)?;
        if file.metadata()?.len() != length {
            return Ok(false);
        }
        let step = self.len().div_ceil(PROBES).max(1);
        for number in (0..self.len()).step_by(step).chain(self.len().checked_sub(1)) {
            let member = self.member(number);
            let Some(at) = member.offset.checked_sub(BLOCK as u64) else { return Ok(false) };
            let mut block = [0; BLOCK];
            file.read_exact_at(&mut block, at)?;
            let Some(header) = Header::parse(&block) else { return Ok(false) };
            // A long name or a size over 8 GiB stands in a header before this one.
            let mut name = Vec::new();
            header.push_name(&mut name);
            let same_name = name == member.name || header.name_is_full();
            let same_size = header.size().is_ok_and(|size| size == member.size || size == 0);
            if !same_name || !same_size {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
