//! Samples in tar archives: reached through an index, or, without one, left to a stream. It reads bytes of samples by
//! number; what is wanted of them, and what becomes of it, it is told.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use super::dataset::{Access, DatasetOptions, RawField, RawSample, missing, path_text, thread_count};
use super::field::FieldSpec;
use super::losses::passed_over;
use super::process::PerProcess;
use crate::sample::{Key, SampleIndex, SampleIndexBuilder, SampleRef};
use crate::shard::{Compression, FileIdentity, IndexCache, ShardList, ShardOptions, ShardSet, each_index};
use crate::{Error, Result};

/// The shards of a data set and, unless they are streamed, their index.
#[derive(Debug)]
pub(crate) struct Archives {
    paths: Vec<PathBuf>,
    options: ShardOptions,
    shards: PerProcess<ShardSet>,
    /// Which files the index was built from; empty for a stream.
    identities: Vec<FileIdentity>,
    index: Option<SampleIndex>,
}

impl Archives {
    /// Opens the shards of `list`; builds or loads their index unless they are streamed. What looks odd goes to
    /// `warnings`.
    ///
    /// # Errors
    /// The first damage under strict options.
    pub(crate) fn open(
        list: &ShardList,
        options: &DatasetOptions,
        progress: &(dyn Fn(usize, usize) + Sync),
        warnings: &mut Vec<String>,
    ) -> Result<Self> {
        let paths = list.paths().to_vec();
        let streamed = match options.access {
            Access::Indexed => false,
            Access::Stream => true,
            Access::Auto => any_compressed(&paths)?,
        };
        // Looked at before the index is built: a file that changes from then on is another one.
        let identities = if streamed { Vec::new() } else { identities_of(&paths)? };
        let index = if streamed { None } else { Some(index_of(&paths, options, progress, warnings)?) };
        let shards = PerProcess::new(ShardSet::new(paths.clone(), options.shards).expecting(&identities));
        Ok(Self { paths, options: options.shards, shards, identities, index })
    }

    pub(crate) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    pub(crate) fn key(&self, ordinal: usize) -> Option<Key> {
        let index = self.index.as_ref().filter(|index| ordinal < index.len())?;
        Some(Key::new(index.get(ordinal).key().to_vec()))
    }

    pub(crate) fn index(&self) -> Option<&SampleIndex> {
        self.index.as_ref()
    }

    fn shards(&self) -> &ShardSet {
        let Self { shards, paths, options, identities, .. } = self;
        shards.get(|| ShardSet::new(paths.clone(), *options).expecting(identities))
    }

    /// Asks storage for the `fields` of sample `ordinal` ahead of its turn.
    pub(crate) fn prefetch(&self, ordinal: usize, fields: &[FieldSpec]) {
        let Some(index) = self.index.as_ref().filter(|index| ordinal < index.len()) else { return };
        let sample = index.get(ordinal);
        let wanted = wanted(&sample, fields).filter_map(|field| field.map(|(_, range)| range));
        if let (Some(span), Ok(shard)) = (span_of(wanted), self.shards().get(sample.shard())) {
            shard.prefetch(span);
        }
    }

    /// Reads the `fields` of sample `ordinal`; its pages are resident when this returns. `None` where there is no such
    /// sample.
    ///
    /// `check` is asked whether the shard must be compared with its file before the bytes are used.
    pub(crate) fn read(
        &self,
        ordinal: usize,
        fields: &[FieldSpec],
        check: &mut dyn FnMut(usize) -> bool,
    ) -> Option<Result<RawSample>> {
        let index = self.index.as_ref().filter(|index| ordinal < index.len())?;
        let sample = index.get(ordinal);
        let url = path_text(&self.paths[sample.shard()]);
        let key = Key::new(sample.key().to_vec());
        let raw = self.read_fields(&sample, fields, &url, &key, check);
        Some(raw.map_err(|error| error.at_key(&key).in_shard(url)))
    }

    fn read_fields(
        &self,
        sample: &SampleRef<'_>,
        specs: &[FieldSpec],
        url: &Arc<str>,
        key: &Key,
        check: &mut dyn FnMut(usize) -> bool,
    ) -> Result<RawSample> {
        let wanted: Vec<Option<(Arc<str>, Range<u64>)>> = wanted(sample, specs).collect();
        if let Some((spec, _)) = specs.iter().zip(&wanted).find(|(f, w)| f.selector().is_some() && w.is_none()) {
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
        let ordinal = sample.number() as u64;
        Ok(RawSample { ordinal, shard_number, url: Arc::clone(url), shard, key: key.clone(), fields })
    }
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

/// For each field asked for, the extension and byte range that the sample has for it.
fn wanted<'a>(
    sample: &'a SampleRef<'_>,
    fields: &'a [FieldSpec],
) -> impl Iterator<Item = Option<(Arc<str>, Range<u64>)>> + 'a {
    fields.iter().map(|spec| {
        let field = sample.field(spec.selector()?)?;
        Some((Arc::from(field.ext), field.offset..field.offset.checked_add(field.size)?))
    })
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
