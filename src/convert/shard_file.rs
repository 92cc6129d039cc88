//! A shard that is being written: samples are appended and hashed, and at the end it gets its name and its index beside it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, IoSlice, Write};
use std::path::{Path, PathBuf};

use twox_hash::XxHash3_128;

use super::journal::{self, ShardRecord};
use super::sample::Packed;
use crate::error::{Error, ErrorKind, Result};
use crate::sample::split_name;
use crate::shard::writer::END;
use crate::shard::{Draft, Shard, ShardIndex, ShardOptions};

/// A shard under a hidden name.
pub(super) struct ShardFile {
    path: PathBuf,
    draft: Draft,
    hash: XxHash3_128,
    samples: u64,
    bytes: u64,
}

/// Parts that are handed to the system at a time.
const PARTS_MAX: usize = 1024;

impl ShardFile {
    /// Begins the shard that will be at `path`.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when it cannot be created.
    pub(super) fn create(path: PathBuf) -> Result<Self> {
        let draft = Draft::create(&path).map_err(|error| failed(&path, "begin", error))?;
        Ok(Self { path, draft, hash: XxHash3_128::new(), samples: 0, bytes: 0 })
    }

    /// Appends samples.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when writing fails; the shard is then to be given up.
    pub(super) fn append(&mut self, samples: &[Packed]) -> Result<()> {
        let mut parts = Vec::with_capacity(samples.len() * 6);
        samples.iter().for_each(|sample| sample.slices(&mut parts));
        parts.iter().for_each(|part| self.hash.write(part));
        self.samples += samples.len() as u64;
        self.bytes += samples.iter().map(Packed::len_bytes).sum::<u64>();
        write_all(&mut self.draft, &mut parts).map_err(|error| failed(&self.path, "write", error))
    }

    /// Ends the archive, gives it its name, reads its headers back, and writes its index beside it.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when any of that fails, [`ErrorKind::BadHeader`] when other members are read than were written.
    pub(super) fn finish(self) -> Result<ShardRecord> {
        let Self { path, mut draft, mut hash, samples, bytes } = self;
        draft.write_all(&END).map_err(|error| failed(&path, "write", error))?;
        hash.write(&END);
        let (hash, bytes) = (hash.finish_128(), bytes + END.len() as u64);
        draft.finish().map_err(|error| failed(&path, "complete", error))?;
        let shard = Shard::open(&path, &ShardOptions::default())?;
        let index = ShardIndex::build(&shard)?;
        if shard.len() != bytes {
            let message = format!("{bytes} bytes were written, but the shard has {}", shard.len());
            return Err(Error::new(ErrorKind::BadHeader, message).in_shard(shard.name().clone()));
        }
        index.write_beside(&path)?;
        let mut fields: BTreeMap<String, u64> = BTreeMap::new();
        for member in index.iter() {
            if let Some((_, ext)) = split_name(member.name) {
                *fields.entry(String::from_utf8_lossy(ext).into_owned()).or_default() += 1;
            }
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(ShardRecord {
            shard: name,
            samples,
            bytes,
            hash: format!("{hash:032x}"),
            fields,
            left_out: Vec::new(),
            boot: journal::boot(),
            pictures: None,
        })
    }
}

/// Writes the index beside a shard unless one lies there that fits.
///
/// # Errors
/// Those of reading the shard's headers and of writing.
pub(super) fn ensure_index(path: &Path) -> Result<()> {
    if ShardIndex::read_beside(path).is_ok() {
        return Ok(());
    }
    ShardIndex::build(&Shard::open(path, &ShardOptions::default())?)?.write_beside(path)
}

/// Whether a file is there and has so many bytes.
pub(super) fn has_bytes(path: &Path, bytes: u64) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == bytes)
}

/// Writes all parts, many at a time.
fn write_all(draft: &mut Draft, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
    for group in parts.chunks_mut(PARTS_MAX) {
        let mut rest = group;
        // A write of no bytes counts as one that failed, so there must be something in front.
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            match draft.write_vectored(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => IoSlice::advance_slices(&mut rest, count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

fn failed(path: &Path, what: &str, error: io::Error) -> Error {
    let is_full =
        matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge);
    let failed = Error::io(format!("cannot {what} the shard"), error).in_shard(path.to_string_lossy());
    if is_full {
        failed.with_hint("make room, then run the same command with --resume: complete shards are kept")
    } else {
        failed
    }
}
