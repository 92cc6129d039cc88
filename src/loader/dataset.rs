//! A data set as the loader sees it: samples by number, the fields wanted of each, how they become values. Where the
//! samples lie is each source's business; order, batches and threads are other modules'.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::archives::Archives;
use super::field::FieldSpec;
use super::files::Files;
use super::joined::{Joined, Part};
use crate::decode::DecodeOptions;
use crate::sample::{Grouping, Key, SampleIndex};
use crate::shard::{Shard, ShardList, ShardOptions};
use crate::transform::Compose;
use crate::{Error, ErrorKind, Result};

/// How a data set is read; see each field for its default.
#[derive(Debug, Clone)]
pub struct DatasetOptions {
    /// Columns of a batch, in order. Default: one image (`jpg;jpeg;png;webp`) and its label (`cls`).
    pub fields: Vec<String>,
    /// What happens to images. Default: nothing; they stay u8 at their own size.
    pub transform: Compose,
    /// How images are decoded. Default: RGB, no EXIF rotation, damage refused.
    pub decode: DecodeOptions,
    /// How shards are read. Default: maps on local storage, strict.
    pub shards: ShardOptions,
    /// How members become samples. Default: webdataset's rule.
    pub grouping: Grouping,
    /// Whether samples are reached through an index or read in a stream. Default: [`Access::Auto`].
    pub access: Access,
    /// Folder that keeps indexes between runs. Default: none.
    pub index_cache: Option<PathBuf>,
    /// Threads that build indexes, 0 for all cores. Default 0.
    pub index_threads: usize,
}

impl Default for DatasetOptions {
    fn default() -> Self {
        Self {
            fields: vec!["jpg;jpeg;png;webp".into(), "cls".into()],
            transform: Compose::default(),
            decode: DecodeOptions::default(),
            shards: ShardOptions::default(),
            grouping: Grouping::default(),
            access: Access::default(),
            index_cache: None,
            index_threads: 0,
        }
    }
}

/// How samples are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Access {
    /// Through an index, unless a shard is compressed.
    #[default]
    Auto,
    /// Through an index; compressed shards are inflated in memory within the limit of the shard options.
    Indexed,
    /// In a stream: any shard, in sequence; no length, no exact shuffle.
    Stream,
}

/// Samples and what is wanted of them. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Dataset(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    source: Source,
    fields: Vec<FieldSpec>,
    options: DatasetOptions,
    warnings: Vec<String>,
}

/// Where samples lie.
#[derive(Debug)]
enum Source {
    Archives(Box<Archives>),
    Files(Files),
    Joined(Joined),
}

/// One sample's bytes, before anything is decoded.
#[derive(Debug, Clone)]
pub(crate) struct RawSample {
    /// Sample number in the data set.
    pub(crate) ordinal: u64,
    /// The shard's number, and its path as text for errors.
    pub(crate) shard_number: usize,
    pub(crate) url: Arc<str>,
    /// The shard, where the bytes are views of it.
    pub(crate) shard: Option<Shard>,
    pub(crate) key: Key,
    /// One entry a field spec: the extension found and the bytes; `None` for key and URL.
    pub(crate) fields: Vec<Option<RawField>>,
}

#[derive(Debug, Clone)]
pub(crate) struct RawField {
    pub(crate) extension: Arc<str>,
    pub(crate) bytes: Bytes,
    pub(crate) offset: u64,
}

impl Dataset {
    /// Opens the shards of `list`; builds or loads their index unless they are read in a stream.
    ///
    /// `progress` is told how many shards are indexed, and of how many.
    ///
    /// # Errors
    /// The first damage under strict options; [`ErrorKind::InvalidOption`] for a field that cannot be parsed.
    pub fn open(list: &ShardList, options: DatasetOptions, progress: &(dyn Fn(usize, usize) + Sync)) -> Result<Self> {
        let fields = options.fields.iter().map(|text| FieldSpec::parse(text)).collect::<Result<Vec<_>>>()?;
        if fields.is_empty() {
            return Err(Error::new(ErrorKind::InvalidOption, "no field is asked for").with_hint("name at least one"));
        }
        let mut warnings = Vec::new();
        let source = Source::Archives(Box::new(Archives::open(list, &options, progress, &mut warnings)?));
        Ok(Self(Arc::new(Inner { source, fields, options, warnings })))
    }

    /// Image files outside any archive, each with the number of its class, in the order given: an image folder. Samples
    /// have two fields, the image and its class; those of `options` are passed over. The files are opened when they are
    /// read, not here. Keys are paths relative to `root`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] where there are not as many classes as paths.
    pub fn of_files(root: &Path, paths: Vec<PathBuf>, classes: Vec<i64>, options: DatasetOptions) -> Result<Self> {
        let fields = Files::FIELDS.iter().map(|text| FieldSpec::parse(text)).collect::<Result<Vec<_>>>()?;
        let files = Files::new(root, paths, classes, options.shards)?;
        let options = DatasetOptions { fields: Files::FIELDS.map(str::to_owned).to_vec(), ..options };
        Ok(Self(Arc::new(Inner { source: Source::Files(files), fields, options, warnings: Vec::new() })))
    }

    /// Several data sets one after the other, each whole or only the samples with certain numbers, in that order. The
    /// options are those of the first.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] without any part, for a stream, for parts whose samples have other fields, transforms
    /// or decoding, and for a number that a part does not have.
    pub fn join(parts: Vec<(Self, Option<Vec<usize>>)>) -> Result<Self> {
        let Some((first, _)) = parts.first() else {
            return Err(Error::new(ErrorKind::InvalidOption, "there is no data set to join").with_hint("give one"));
        };
        let (fields, options) = (first.0.fields.clone(), first.0.options.clone());
        let parts =
            parts.into_iter().map(|(dataset, numbers)| Part::new(dataset, numbers)).collect::<Result<Vec<_>>>()?;
        let source = Source::Joined(Joined::new(parts)?);
        Ok(Self(Arc::new(Inner { source, fields, options, warnings: Vec::new() })))
    }

    /// Number of samples; `None` for a stream.
    #[must_use]
    pub fn len(&self) -> Option<usize> {
        match &self.0.source {
            Source::Archives(archives) => archives.index().map(SampleIndex::len),
            Source::Files(files) => Some(files.len()),
            Source::Joined(joined) => Some(joined.len()),
        }
    }

    /// Whether it is known to have no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Whether samples come in sequence only, so that there is no length and no sample by number.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        self.len().is_none()
    }

    /// The index of the shards; `None` for a stream, for files, and for joined data sets.
    #[must_use]
    pub fn index(&self) -> Option<&SampleIndex> {
        match &self.0.source {
            Source::Archives(archives) => archives.index(),
            Source::Files(_) | Source::Joined(_) => None,
        }
    }

    /// How many neighbouring samples lie together, in order: those of a shard, or of a part of one. Empty for a stream.
    #[must_use]
    pub fn shard_lens(&self) -> Vec<usize> {
        match &self.0.source {
            Source::Archives(archives) => archives.index().map(SampleIndex::shard_lens).unwrap_or_default(),
            Source::Files(files) => vec![files.len()],
            Source::Joined(joined) => joined.shard_lens(),
        }
    }

    /// Paths of the shards or files, in order.
    #[must_use]
    pub fn paths(&self) -> &[PathBuf] {
        match &self.0.source {
            Source::Archives(archives) => archives.paths(),
            Source::Files(files) => files.paths(),
            Source::Joined(joined) => joined.paths(),
        }
    }

    /// The fields asked for, in column order.
    #[must_use]
    pub fn fields(&self) -> &[FieldSpec] {
        &self.0.fields
    }

    /// The options it was opened with.
    #[must_use]
    pub fn options(&self) -> &DatasetOptions {
        &self.0.options
    }

    /// A number that changes when shards, members or sizes change, or which samples there are; 0 for a stream.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        match &self.0.source {
            Source::Archives(archives) => archives.index().map_or(0, SampleIndex::fingerprint),
            Source::Files(files) => files.fingerprint(),
            Source::Joined(joined) => joined.fingerprint(),
        }
    }

    /// The key of a sample; `None` where there is no such sample or no index.
    #[must_use]
    pub fn key(&self, ordinal: usize) -> Option<Key> {
        match &self.0.source {
            Source::Archives(archives) => archives.key(ordinal),
            Source::Files(files) => files.key(ordinal),
            Source::Joined(joined) => joined.key(ordinal),
        }
    }

    /// What was lost or looks odd in the shards, one sentence each. Of a stream this is known when it has been read: see
    /// [`Loader::notices`](super::Loader::notices).
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.0.warnings
    }

    /// Whether each sample is opened by itself, so that reading waits for storage again and again.
    pub(crate) fn opens_each_sample(&self) -> bool {
        match &self.0.source {
            Source::Archives(_) => false,
            Source::Files(_) => true,
            Source::Joined(joined) => joined.opens_each_sample(),
        }
    }

    /// The path of a shard as the system's bytes; empty for a number that does not exist.
    pub(crate) fn path_bytes(&self, shard: usize) -> Bytes {
        let path = self.paths().get(shard);
        path.map(|path| Bytes::copy_from_slice(path.as_os_str().as_encoded_bytes())).unwrap_or_default()
    }

    /// Asks storage for sample `ordinal` ahead of its turn, where that is possible.
    pub(crate) fn prefetch(&self, ordinal: usize) {
        match &self.0.source {
            Source::Archives(archives) => archives.prefetch(ordinal, &self.0.fields),
            Source::Files(_) => {}
            Source::Joined(joined) => joined.prefetch(ordinal),
        }
    }

    /// Reads the fields of sample `ordinal`; its pages are resident when this returns.
    ///
    /// `check` is asked whether the shard of that number must be compared with its file before the bytes are used.
    pub(crate) fn read(&self, ordinal: usize, mut check: impl FnMut(usize) -> bool) -> Result<RawSample> {
        self.read_checked(ordinal, &mut check)
    }

    pub(super) fn read_checked(&self, ordinal: usize, check: &mut dyn FnMut(usize) -> bool) -> Result<RawSample> {
        let read = match &self.0.source {
            Source::Archives(archives) => archives.read(ordinal, &self.0.fields, check),
            Source::Files(files) => files.read(ordinal),
            Source::Joined(joined) => joined.read(ordinal, check),
        };
        read.unwrap_or_else(|| {
            let have = self.len().map_or("no index".to_owned(), |len| format!("{len} samples"));
            Err(Error::new(ErrorKind::InvalidOption, format!("there is no sample {ordinal}: the data set has {have}")))
        })
    }
}

/// The error for a sample without a field that was asked for.
pub(crate) fn missing(spec: &FieldSpec, present: impl Iterator<Item = String>) -> Error {
    let present = present.collect::<Vec<_>>().join(", ");
    Error::new(ErrorKind::MissingField, format!("the sample has no field '{}', it has: {present}", spec.name()))
        .with_hint("name alternatives as in \"jpg;jpeg;png\", or leave such samples out with on_error=\"skip\"")
}

/// The value of `threads`, or the number of cores this process may use where it is 0.
pub(crate) fn thread_count(threads: usize) -> usize {
    match threads {
        0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        threads => threads,
    }
}

pub(crate) fn path_text(path: &Path) -> Arc<str> {
    path.to_string_lossy().into()
}
