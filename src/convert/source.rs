//! A source is what is converted: samples by number, each with a key, the sizes of its fields, and their bytes on request.
//!
//! It has an order of its own and never another; it is read from and never written to.

use std::fs;
use std::path::{Path, PathBuf};

use super::folder::Folder;
use super::sample::Fields;
use crate::error::{Error, ErrorKind, Result};

/// What is converted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceKind {
    /// A folder of pictures: each folder in it is a class, as torchvision's `ImageFolder` has it. Without any folder, the
    /// pictures have no class.
    Folder(PathBuf),
}

impl SourceKind {
    /// What `path` is, by what stands there.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when there is nothing, [`ErrorKind::Unsupported`] for what is no source.
    pub fn of(path: &Path) -> Result<Self> {
        let found = fs::metadata(path)
            .map_err(|error| Error::io(format!("cannot read the source '{}'", path.display()), error))?;
        match found.is_dir() {
            true => Ok(Self::Folder(path.to_owned())),
            false => Err(Error::new(ErrorKind::Unsupported, format!("'{}' is no source", path.display()))
                .with_hint("a source is a folder of pictures")),
        }
    }

    /// The kind as one word.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Folder(_) => "folder",
        }
    }

    /// The paths that are read, for whoever must keep away from them.
    pub(super) fn paths(&self) -> Vec<&Path> {
        match self {
            Self::Folder(path) => vec![path],
        }
    }

    /// Lists the samples, on `threads` threads.
    pub(super) fn open(&self, threads: usize) -> Result<Box<dyn Source>> {
        match self {
            Self::Folder(path) => Ok(Box::new(Folder::open(path, threads)?)),
        }
    }
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
}
