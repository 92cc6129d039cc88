//! Builds an index from the members of shards, one shard after the other.
//!
//! It opens nothing: whoever has scanned a shard hands its files over.

use std::sync::Arc;

use super::{SIZE_IS_LARGE, SampleIndex, ShardSpan};
use crate::error::{Error, ErrorKind, Result};
use crate::sample::grouping::{Grouper, Grouping};
use crate::sample::permutation::derive_key;

/// Builds a [`SampleIndex`] shard by shard.
#[derive(Debug)]
pub struct SampleIndexBuilder {
    index: SampleIndex,
    grouper: Grouper,
}

impl SampleIndexBuilder {
    /// An empty index under a rule.
    #[must_use]
    pub fn new(grouping: &Grouping) -> Self {
        let Grouping { keep_appledouble, key_split, duplicates } = *grouping;
        let rule = [keep_appledouble.into(), key_split as u64, duplicates as u64];
        let index = SampleIndex { fingerprint: derive_key(&rule), ..SampleIndex::default() };
        Self { index, grouper: Grouper::new(*grouping) }
    }

    /// Adds a shard: its regular files in order, each as name, offset and size of its data in bytes, and a `fingerprint`
    /// that changes when any of them does. Nothing may be added after an error.
    ///
    /// # Errors
    /// [`ErrorKind::Grouping`] when a sample has a field twice, [`ErrorKind::Limit`] when a shard has over 4 GiB of keys
    /// or a member reaches beyond the largest offset.
    pub fn push_shard<'a>(
        &mut self,
        name: Arc<str>,
        fingerprint: u64,
        files: impl Iterator<Item = (&'a [u8], u64, u64)>,
    ) -> Result<()> {
        let index = &mut self.index;
        index.fingerprint = derive_key(&[index.fingerprint, fingerprint]);
        let span =
            ShardSpan { sample: index.key_ends.len(), key_byte: index.keys.len(), field: index.field_exts.len() };
        index.shards.push(span);
        index.shard_names.push(name.clone());
        self.push_files(span, files).map_err(|error| error.in_shard(name))
    }

    fn push_files<'a>(&mut self, span: ShardSpan, files: impl Iterator<Item = (&'a [u8], u64, u64)>) -> Result<()> {
        for (name, offset, size) in files {
            let Some((key, ext)) = self.grouper.split(name) else { continue };
            if !self.grouper.continues(key) {
                self.close_sample(span)?;
                self.grouper.open(key);
                self.index.keys.extend_from_slice(key);
            }
            let Some(ext) = self.grouper.add_field(ext, size).map_err(|error| error.at_offset(offset))? else {
                continue;
            };
            if offset.checked_add(size).is_none() {
                return Err(
                    Error::new(ErrorKind::Limit, "a member reaches beyond the largest offset").at_offset(offset)
                );
            }
            self.push_field(ext, offset, size);
        }
        self.close_sample(span)?;
        self.grouper.end_shard();
        Ok(())
    }

    fn push_field(&mut self, ext: u32, offset: u64, size: u64) {
        let index = &mut self.index;
        let short = u32::try_from(size).unwrap_or(SIZE_IS_LARGE);
        if short == SIZE_IS_LARGE {
            index.large_sizes.push((index.field_sizes.len(), size));
        }
        index.field_exts.push(ext);
        index.field_offsets.push(offset);
        index.field_sizes.push(short);
    }

    /// Ends the open sample: marks where it ends, or takes back what it had written if it is to be dropped.
    fn close_sample(&mut self, span: ShardSpan) -> Result<()> {
        let index = &mut self.index;
        if self.grouper.close() {
            let end = |length: usize, base: usize| {
                u32::try_from(length - base)
                    .map_err(|_| Error::new(ErrorKind::Limit, "a shard has over 4 GiB of keys or 4,294,967,295 fields"))
            };
            index.key_ends.push(end(index.keys.len(), span.key_byte)?);
            index.field_ends.push(end(index.field_exts.len(), span.field)?);
            return Ok(());
        }
        let end = |ends: &[u32], base: usize| {
            if ends.len() == span.sample { base } else { base + ends[ends.len() - 1] as usize }
        };
        let fields = end(&index.field_ends, span.field);
        index.keys.truncate(end(&index.key_ends, span.key_byte));
        index.field_exts.truncate(fields);
        index.field_offsets.truncate(fields);
        index.field_sizes.truncate(fields);
        index.large_sizes.truncate(index.large_sizes.partition_point(|&(field, _)| field < fields));
        Ok(())
    }

    /// The finished index, without memory to spare.
    #[must_use]
    pub fn finish(self) -> SampleIndex {
        let Self { mut index, grouper } = self;
        index.report = grouper.report();
        index.extensions = grouper.extensions.into_names();
        index.shards.shrink_to_fit();
        index.shard_names.shrink_to_fit();
        index.keys.shrink_to_fit();
        index.key_ends.shrink_to_fit();
        index.field_ends.shrink_to_fit();
        index.field_exts.shrink_to_fit();
        index.field_offsets.shrink_to_fit();
        index.field_sizes.shrink_to_fit();
        index.large_sizes.shrink_to_fit();
        index.extensions.shrink_to_fit();
        index
    }
}
