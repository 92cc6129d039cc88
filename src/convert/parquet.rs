//! Parquet files with a column of pictures as a source, as the Hugging Face Hub has them: which files, and what their columns
//! mean.
//!
//! How they are read stands in `rows`, in builds with the feature `parquet`; others say that they cannot.

#[cfg(feature = "parquet")]
mod column;
#[cfg(feature = "parquet")]
mod file;
#[cfg(feature = "parquet")]
mod meaning;
#[cfg(feature = "parquet")]
mod waiting;
#[cfg(feature = "parquet")]
mod rows;

use std::fs;
use std::path::{Path, PathBuf};

use super::source::Source;
use crate::error::Result;
#[cfg(not(feature = "parquet"))]
use crate::error::{Error, ErrorKind};

/// Which files, and what their columns mean.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ParquetOptions {
    /// The files, in order; all with the same columns.
    pub paths: Vec<PathBuf>,
    /// The folder that stands for them, where one does: nothing is written into it.
    pub folder: Option<PathBuf>,
    /// The column of pictures; the only one that holds pictures by its type, unless given: bytes in a group with a path, or
    /// bytes alone.
    pub image_column: Option<String>,
    /// The column of labels; the first of `label`, `cls`, `class`, `target`, unless given; there need be none.
    pub label_column: Option<String>,
}

/// Lists the rows, of which each is a sample.
#[cfg(feature = "parquet")]
pub(super) fn open(options: &ParquetOptions, threads: usize) -> Result<Box<dyn Source>> {
    Ok(Box::new(rows::Rows::open(options, threads)?))
}

#[cfg(not(feature = "parquet"))]
pub(super) fn open(_: &ParquetOptions, _: usize) -> Result<Box<dyn Source>> {
    Err(Error::new(ErrorKind::Unsupported, "this build reads no Parquet files")
        .with_hint("build it with --features parquet, or use the command of the Python package"))
}

/// Whether a file is a Parquet file by its name.
pub(super) fn is_parquet(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("parquet"))
}

/// The Parquet files in a folder, in byte order of their names, hidden ones left out.
pub(super) fn files_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<_> = entries
        .flatten()
        .map(|entry| entry.file_name())
        .filter(|name| is_parquet(Path::new(name)) && !name.as_encoded_bytes().starts_with(b"."))
        .collect();
    names.sort_unstable();
    names.into_iter().map(|name| folder.join(name)).filter(|path| path.is_file()).collect()
}
