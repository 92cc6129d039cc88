//! A data set as the loader sees it: shards, the fields wanted of each sample, how they become values. Order, batches
//! and threads are other modules' business.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::field::FieldSpec;
use super::losses::passed_over;
use super::process::PerProcess;
use crate::decode::DecodeOptions;
use crate::sample::{Grouping, Key, SampleIndex, SampleIndexBuilder};
use crate::shard::{Compression, FileIdentity, IndexCache, Shard, ShardList, ShardOptions, ShardSet, each_index};
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

/// The shards of a data set and what is wanted of their samples. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Dataset(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    paths: Vec<PathBuf>,
    fields: Vec<FieldSpec>,
    options: DatasetOptions,
    shards: PerProcess<ShardSet>,
    /// Which files the index was built from; empty for a stream.
    identities: Vec<FileIdentity>,
    index: Option<SampleIndex>,
    warnings: Vec<String>,
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
        let paths = list.paths().to_vec();
        let streamed = match options.access {
            Access::Indexed => false,
            Access::Stream => true,
            Access::Auto => any_compressed(&paths)?,
        };
        // Looked at before the index is built: a file that changes from then on is another one.
        let identities = if streamed { Vec::new() } else { identities_of(&paths)? };
        let mut warnings = Vec::new();
        let index = if streamed { None } else { Some(Self::index_of(&paths, &options, progress, &mut warnings)?) };
        let shards = PerProcess::new(ShardSet::new(paths.clone(), options.shards).expecting(&identities));
        Ok(Self(Arc::new(Inner { paths, fields, options, shards, identities, index, warnings })))
    }

    fn index_of(
        paths: &[PathBuf],
        options: &DatasetOptions,
        progress: &(dyn Fn(usize, usize) + Sync),
        warnings: &mut Vec<String>,
    ) -> Result<SampleIndex> {
        let cache = options.index_cache.as_ref().map(IndexCache::at);
        let threads = thread_count(options.index_threads);
        let mut builder = SampleIndexBuilder::new(&options.grouping);
        let mut shards = paths.iter();
        each_index(paths, &options.shards, cache.as_ref(), threads, progress, |index| {
            let Some(path) = shards.next() else { return Ok(()) };
            let files = index.iter().map(|file| (file.name, file.offset, file.size));
            builder.push_shard(path_text(path), index.fingerprint(), files)?;
            warnings.extend(passed_over(path, index.report()));
            Ok(())
        })?;
        warnings.extend(cache.as_ref().and_then(IndexCache::unkept));
        let index = builder.finish();
        warnings.extend(index.report().warnings());
        Ok(index)
    }

    /// Number of samples; `None` for a stream.
    #[must_use]
    pub fn len(&self) -> Option<usize> {
        self.0.index.as_ref().map(SampleIndex::len)
    }

    /// Whether it is known to have no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// The index, unless the data set is a stream.
    #[must_use]
    pub fn index(&self) -> Option<&SampleIndex> {
        self.0.index.as_ref()
    }

    /// Paths of the shards, in order.
    #[must_use]
    pub fn paths(&self) -> &[PathBuf] {
        &self.0.paths
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

    /// A number that changes when shards, members or sizes change; 0 for a stream.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.0.index.as_ref().map_or(0, SampleIndex::fingerprint)
    }

    /// The key of a sample; `None` where there is no such sample or no index.
    #[must_use]
    pub fn key(&self, ordinal: usize) -> Option<Key> {
        let index = self.0.index.as_ref().filter(|index| ordinal < index.len())?;
        Some(Key::new(index.get(ordinal).key().to_vec()))
    }

    /// What was lost or looks odd in the shards, one sentence each. Of a stream this is known when it has been read: see
    /// [`Loader::notices`](super::Loader::notices).
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.0.warnings
    }

    /// The path of a shard as the system's bytes; empty for a number that does not exist.
    pub(crate) fn path_bytes(&self, shard: usize) -> Bytes {
        self.0
            .paths
            .get(shard)
            .map(|path| Bytes::copy_from_slice(path.as_os_str().as_encoded_bytes()))
            .unwrap_or_default()
    }

    fn shards(&self) -> &ShardSet {
        let Inner { shards, paths, options, identities, .. } = &*self.0;
        shards.get(|| ShardSet::new(paths.clone(), options.shards).expecting(identities))
    }

    /// Asks storage for sample `ordinal` ahead of its turn.
    pub(crate) fn prefetch(&self, ordinal: usize) {
        let Some(index) = self.0.index.as_ref().filter(|index| ordinal < index.len()) else { return };
        let sample = index.get(ordinal);
        let wanted = self.wanted(&sample).filter_map(|field| field.map(|(_, range)| range));
        if let (Some(span), Ok(shard)) = (span_of(wanted), self.shards().get(sample.shard())) {
            shard.prefetch(span);
        }
    }

    /// Reads the fields of sample `ordinal`; its pages are resident when this returns.
    ///
    /// `check` is asked whether the shard must be compared with its file before the bytes are used.
    pub(crate) fn read(&self, ordinal: usize, check: impl FnOnce(usize) -> bool) -> Result<RawSample> {
        let index = self.0.index.as_ref().filter(|index| ordinal < index.len()).ok_or_else(|| {
            let have = self.len().map_or("no index".to_owned(), |len| format!("{len} samples"));
            Error::new(ErrorKind::InvalidOption, format!("there is no sample {ordinal}: the data set has {have}"))
        })?;
        let sample = index.get(ordinal);
        let url = path_text(&self.0.paths[sample.shard()]);
        let key = Key::new(sample.key().to_vec());
        self.read_fields(ordinal, &sample, &url, &key, check).map_err(|error| error.at_key(&key).in_shard(url))
    }

    fn read_fields(
        &self,
        ordinal: usize,
        sample: &crate::sample::SampleRef<'_>,
        url: &Arc<str>,
        key: &Key,
        check: impl FnOnce(usize) -> bool,
    ) -> Result<RawSample> {
        let wanted: Vec<Option<(Arc<str>, Range<u64>)>> = self.wanted(sample).collect();
        if let Some((spec, _)) = self.0.fields.iter().zip(&wanted).find(|(f, w)| f.selector().is_some() && w.is_none())
        {
            return Err(missing(spec, sample.fields().map(|field| field.ext.to_owned())));
        }
        let shard = self.shards().get(sample.shard())?;
        if check(sample.shard()) {
            shard.check()?;
        }
        let ranges = || wanted.iter().flatten().map(|(_, range)| range.clone());
        let whole = match span_of(ranges()) {
            Some(span) if is_dense(&span, ranges()) => {
                shard.populate(span.clone())?;
                Some((span.start, shard.read(span)?))
            }
            _ => None,
        };
        let footprint = shard.footprint();
        let is_inflated = footprint.memory_bytes > 0;
        let mut fields = Vec::with_capacity(wanted.len());
        for field in wanted {
            fields.push(match field {
                None => None,
                Some((extension, range)) => {
                    let offset = range.start;
                    let bytes = match &whole {
                        Some((start, all)) => all.slice((range.start - start) as usize..(range.end - start) as usize),
                        None => {
                            shard.populate(range.clone())?;
                            shard.read(range)?
                        }
                    };
                    // A view would keep a whole inflated shard in memory until the sample is done.
                    let bytes = if is_inflated { Bytes::copy_from_slice(&bytes) } else { bytes };
                    Some(RawField { extension, bytes, offset })
                }
            });
        }
        // Only a map must be asked again whether its pages are still there; an open file would only be held.
        let shard = (footprint.files == 0 && !is_inflated).then_some(shard);
        let shard_number = sample.shard();
        Ok(RawSample { ordinal: ordinal as u64, shard_number, url: Arc::clone(url), shard, key: key.clone(), fields })
    }

    /// For each field asked for, the extension and byte range that the sample has for it.
    fn wanted<'a>(
        &'a self,
        sample: &'a crate::sample::SampleRef<'_>,
    ) -> impl Iterator<Item = Option<(Arc<str>, Range<u64>)>> + 'a {
        self.0.fields.iter().map(|spec| {
            let field = sample.field(spec.selector()?)?;
            Some((Arc::from(field.ext), field.offset..field.offset.checked_add(field.size)?))
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

fn identities_of(paths: &[PathBuf]) -> Result<Vec<FileIdentity>> {
    let of = |path: &PathBuf| {
        FileIdentity::of_path(path)
            .map_err(|error| Error::io("cannot look at the shard", error).in_shard(path_text(path)))
    };
    paths.iter().map(of).collect()
}

fn any_compressed(paths: &[PathBuf]) -> Result<bool> {
    for path in paths {
        if Compression::of_path(path)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(crate) fn path_text(path: &Path) -> Arc<str> {
    path.to_string_lossy().into()
}

fn span_of(ranges: impl Iterator<Item = Range<u64>>) -> Option<Range<u64>> {
    ranges.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end))
}

/// Headers between two fields are cheap to read along; a large field that nobody asked for is not.
const GAP_BYTES_MAX: u64 = 64 << 10;

fn is_dense(span: &Range<u64>, ranges: impl Iterator<Item = Range<u64>>) -> bool {
    let wanted: u64 = ranges.map(|range| range.end - range.start).sum();
    (span.end - span.start).saturating_sub(wanted) <= GAP_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_fields_are_read_at_once_and_distant_ones_are_not() {
        let near = [0..1000, 1512..1520];
        let far = [0..1000, 5_000_000..5_000_010];
        assert!(is_dense(&span_of(near.iter().cloned()).unwrap(), near.iter().cloned()));
        assert!(!is_dense(&span_of(far.iter().cloned()).unwrap(), far.iter().cloned()));
        assert_eq!(span_of(std::iter::empty()), None);
    }
}
