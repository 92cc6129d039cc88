//! A source is what is converted: samples by number, each with a key, the sizes of its fields, and their bytes on request.
//!
//! It has an order of its own and never another; it is read from and never written to.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::extension::is_picture_file;
use super::folder::Folder;
use super::list::{List, ListOptions};
use super::parquet::{self, ParquetOptions};
use super::sample::Fields;
use super::tars::Tars;
use super::zip::Zip;
use crate::error::{Error, ErrorKind, Result};
use crate::shard::ShardList;
use crate::shard::list::SHARD_SUFFIXES;

/// What is converted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceKind {
    /// A folder of pictures: each folder in it is a class, as torchvision's `ImageFolder` has it. Without any folder, the
    /// pictures have no class.
    Folder(PathBuf),
    /// Shards.
    Shards {
        /// Their paths, in order.
        paths: Vec<PathBuf>,
        /// The folder that stands for them, where one does: nothing is written into it.
        folder: Option<PathBuf>,
    },
    /// A zip archive of pictures in folders that are classes.
    Zip(PathBuf),
    /// A list of pictures.
    List(ListOptions),
    /// Parquet files with a column of pictures.
    Parquet(ParquetOptions),
}

impl SourceKind {
    /// What `path` is, by what stands there: a folder with shards or Parquet files in it, a folder of pictures, a shard, a
    /// Parquet file, a pattern of either as [`ShardList`] takes it, a zip archive, or a list.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when there is nothing, [`ErrorKind::Unsupported`] for what is no source.
    pub fn of(path: &Path) -> Result<Self> {
        let Ok(found) = fs::metadata(path) else {
            let no_source = |error: Error| match error.kind() {
                ErrorKind::NotFound => Error::new(ErrorKind::NotFound, format!("no source at '{}'", path.display())),
                _ => error,
            };
            let paths = ShardList::from_patterns(&[path]).map_err(no_source)?.into_paths();
            return Ok(match paths.iter().all(|path| parquet::is_parquet(path)) {
                true => Self::Parquet(ParquetOptions { paths, ..ParquetOptions::default() }),
                false => Self::Shards { paths, folder: None },
            });
        };
        if found.is_dir() {
            let shards = ShardList::from_patterns(&[path]).map(ShardList::into_paths);
            if let Ok(paths) = shards {
                refuse_pictures_beside(path, &paths)?;
                return Ok(Self::Shards { paths, folder: Some(path.to_owned()) });
            }
            let paths = parquet::files_in(path);
            refuse_pictures_beside(path, &paths)?;
            return Ok(match paths.is_empty() {
                true => Self::Folder(path.to_owned()),
                false => {
                    Self::Parquet(ParquetOptions { paths, folder: Some(path.to_owned()), ..ParquetOptions::default() })
                }
            });
        }
        if !found.is_file() {
            let message = format!("'{}' is no regular file, and cannot be read more than once", path.display());
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if SHARD_SUFFIXES.iter().any(|suffix| name.ends_with(suffix)) {
            return Ok(Self::Shards { paths: vec![path.to_owned()], folder: None });
        }
        match name.rsplit('.').next() {
            Some("zip") => Ok(Self::Zip(path.to_owned())),
            Some("parquet") => {
                Ok(Self::Parquet(ParquetOptions { paths: vec![path.to_owned()], ..ParquetOptions::default() }))
            }
            Some("csv" | "tsv" | "jsonl") => {
                Ok(Self::List(ListOptions { path: path.to_owned(), ..ListOptions::default() }))
            }
            _ => Err(Error::new(ErrorKind::Unsupported, format!("'{}' is no source", path.display())).with_hint(
                "a source is a folder of pictures, shards or Parquet files, a pattern of shards, .parquet, .zip, .csv, .tsv or .jsonl",
            )),
        }
    }

    /// The kind as one word.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Folder(_) => "folder",
            Self::Shards { .. } => "shards",
            Self::Zip(_) => "zip",
            Self::List(_) => "list",
            Self::Parquet(_) => "parquet",
        }
    }

    /// The paths that are read, for whoever must keep away from them.
    pub(super) fn paths(&self) -> Vec<&Path> {
        match self {
            Self::Folder(path) | Self::Zip(path) => vec![path],
            Self::List(list) => std::iter::once(&list.path).chain(&list.root).map(PathBuf::as_path).collect(),
            Self::Shards { paths, folder } | Self::Parquet(ParquetOptions { paths, folder, .. }) => {
                paths.iter().chain(folder).map(PathBuf::as_path).collect()
            }
        }
    }

    /// Lists the samples, on `threads` threads.
    pub(super) fn open(&self, threads: usize) -> Result<Box<dyn Source>> {
        match self {
            Self::Folder(path) => Ok(Box::new(Folder::open(path, threads)?)),
            Self::Zip(path) => Ok(Box::new(Zip::open(path)?)),
            Self::List(list) => Ok(Box::new(List::open(list)?)),
            Self::Parquet(options) => parquet::open(options, threads),
            Self::Shards { paths, .. } => Ok(Box::new(Tars::open(paths.clone(), threads)?)),
        }
    }
}

/// Refuses a folder that could be read in two ways: whoever put one archive among pictures did not mean that alone.
fn refuse_pictures_beside(folder: &Path, files: &[PathBuf]) -> Result<()> {
    let Some(file) = files.first() else { return Ok(()) };
    let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
    let is_shown_picture = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        !name.as_bytes().starts_with(b".") && is_picture_file(name.as_bytes())
    };
    let has_pictures = entries(folder).any(|entry| {
        is_shown_picture(&entry)
            || entry.path().is_dir() && entries(&entry.path()).any(|below| is_shown_picture(&below))
    });
    if !has_pictures {
        return Ok(());
    }
    let message = format!("'{}' holds both '{}' and pictures", folder.display(), file.display());
    let ext = file.extension().unwrap_or_default().to_string_lossy();
    Err(Error::new(ErrorKind::Unsupported, message).with_hint(format!(
        "a pattern such as '{}' names the files alone; for the pictures move them elsewhere",
        folder.join(format!("*.{ext}")).display()
    )))
}

/// Samples by number.
pub(super) trait Source: Send + Sync {
    /// How many samples there are.
    fn len(&self) -> usize;

    /// Writes the sample's name, without an extension, to `name`, which is empty.
    fn name(&self, sample: usize, name: &mut Vec<u8>);

    /// Where the sample comes from, for people.
    fn origin(&self, sample: usize) -> String;

    /// Tells extension and size in bytes of each of the sample's fields.
    fn sizes(&self, sample: usize, tell: &mut dyn FnMut(&str, u64));

    /// Reads the sample's fields into `fields`, which is empty.
    ///
    /// # Errors
    /// Whatever keeps the sample from being read as it was when it was listed.
    fn read(&self, sample: usize, fields: &mut Fields) -> Result<()>;

    /// Changes when names, sizes or labels of samples do.
    fn fingerprint(&self) -> u128;

    /// The names of the classes, by number; empty where samples have none.
    fn classes(&self) -> &[String];

    /// What was passed over while listing, a sentence each.
    fn notes(&self) -> &[String];

    /// What is to be known before `bytes` of samples are read in an order that is not the source's, where it is slow.
    fn slow_when_shuffled(&self, _bytes: u64) -> Option<String> {
        None
    }
}
