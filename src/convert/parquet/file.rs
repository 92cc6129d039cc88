//! One Parquet file: opened, its end read, its columns read from any place by many threads at once.
//!
//! It knows no rows; what the bytes of a column mean is the business of `column`.

use std::fs::File;
use std::io::{self, BufReader};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parquet::column::reader::{ColumnReader, get_column_reader};
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader, ParquetStatisticsPolicy,
};
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;

use super::column::Column;
use crate::convert::place::Place;
use crate::error::{Error, ErrorKind, Result};
use crate::shard::FileIdentity;

/// A file as it was when it was opened.
pub(super) struct Opened {
    pub(super) path: PathBuf,
    chunks: Arc<Chunks>,
    pub(super) metadata: ParquetMetaData,
    identity: FileIdentity,
}

impl Opened {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let failed = |error| Error::io(format!("cannot read '{}'", path.display()), error);
        let file = File::open(path).map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        let chunks = Chunks { file: Arc::new(file), bytes: found.len() };
        // Statistics of pictures are pictures, and of no use here.
        let options = ParquetMetaDataOptions::new()
            .with_column_stats_policy(ParquetStatisticsPolicy::SkipAll)
            .with_size_stats_policy(ParquetStatisticsPolicy::SkipAll);
        let read = || ParquetMetaDataReader::new().with_metadata_options(Some(options)).parse_and_finish(&chunks);
        let metadata = guarded(path, read)?;
        Ok(Self { path: path.to_owned(), chunks: Arc::new(chunks), metadata, identity: FileIdentity::of(&found) })
    }

    /// What must be the same in all files: names, types and levels of columns.
    pub(super) fn columns(&self) -> Vec<(String, parquet::basic::Type, i16, i16)> {
        let columns = self.metadata.file_metadata().schema_descr().columns().iter();
        columns
            .map(|column| {
                (column.path().string(), column.physical_type(), column.max_def_level(), column.max_rep_level())
            })
            .collect()
    }

    /// A reader of one column of a row group, at its first row.
    pub(super) fn column_reader(&self, group: usize, column: &Column) -> Result<ColumnReader> {
        self.guarded(|| {
            let group = self.metadata.row_group(group);
            let chunk = group.column(column.leaf);
            let rows = usize::try_from(group.num_rows())?;
            let pages = SerializedPageReader::new(self.chunks.clone(), chunk, rows, None)?;
            Ok(get_column_reader(chunk.column_descr_ptr(), Box::new(pages)))
        })
    }

    /// The bytes of the end of the file, which says where everything is.
    pub(super) fn end(&self) -> io::Result<Vec<u8>> {
        let Chunks { file, bytes } = &*self.chunks;
        const TAIL_BYTES: u64 = 8;
        let mut tail = [0; TAIL_BYTES as usize];
        file.read_exact_at(&mut tail, bytes.saturating_sub(TAIL_BYTES))?;
        let length = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]])) + TAIL_BYTES;
        let length = length.min(*bytes);
        let mut end = vec![0; length as usize];
        file.read_exact_at(&mut end, bytes - length)?;
        Ok(end)
    }

    /// Makes sure that the file is the one that was opened.
    pub(super) fn check(&self) -> Result<()> {
        let found = self.chunks.file.metadata();
        if found.is_ok_and(|found| FileIdentity::of(&found) == self.identity) {
            return Ok(());
        }
        let message = format!("'{}' changed while it was converted", self.path.display());
        Err(Error::new(ErrorKind::Io, message).with_hint("let nothing write to the source, then start again"))
    }

    /// Does what reads from the file; its errors get a name.
    pub(super) fn guarded<T>(&self, work: impl FnOnce() -> parquet::errors::Result<T>) -> Result<T> {
        guarded(&self.path, work)
    }

    pub(super) fn damaged(&self, what: &'static str) -> Error {
        Error::new(ErrorKind::Decode, format!("'{}' is damaged: {what}", self.path.display()))
    }
}

/// The outer edge of the reader of Parquet files: its errors get a name, and a panic over hostile bytes becomes one.
fn guarded<T>(path: &Path, work: impl FnOnce() -> parquet::errors::Result<T>) -> Result<T> {
    let damaged = || Error::new(ErrorKind::Decode, format!("'{}' is damaged or no Parquet file", path.display()));
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(ParquetError::External(error))) => Err(match error.downcast::<io::Error>() {
            Ok(error) if error.kind() == io::ErrorKind::UnexpectedEof => damaged().with_source(*error),
            Ok(error) => Error::io(format!("cannot read '{}'", path.display()), *error),
            Err(error) => damaged().with_source(ParquetError::External(error)),
        }),
        Ok(Err(error)) => Err(damaged().with_source(error)),
        Err(_) => Err(damaged().with_hint("the reader failed inside on this file: please report it")),
    }
}

/// A file that many threads read at places of their own.
struct Chunks {
    file: Arc<File>,
    bytes: u64,
}

/// Bytes that are read at a time where a reader goes on from a place: headers of pages.
const READ_BYTES: usize = 1 << 10;

impl Length for Chunks {
    fn len(&self) -> u64 {
        self.bytes
    }
}

impl ChunkReader for Chunks {
    type T = BufReader<Place<Arc<File>>>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        Ok(BufReader::with_capacity(READ_BYTES, Place { file: self.file.clone(), at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.bytes) {
            return Err(ParquetError::EOF("a part of the file lies behind its end".into()));
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, start)?;
        Ok(bytes.into())
    }
}
