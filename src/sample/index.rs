//! Where every sample of a data set lies: keys, and for each field its extension, offset and size.
//!
//! It holds no data and opens no shard. Numbers lie side by side in a few long arrays, about fifty bytes for a sample of
//! two fields, so that the index of a million samples is a small thing.

mod builder;

use std::mem::size_of;
use std::ops::Range;
use std::sync::Arc;

use super::report::GroupReport;
use super::{FieldSelector, Grouping};
use crate::error::{Error, ErrorKind, Result};
use crate::shard::ShardIndex;

pub use builder::SampleIndexBuilder;

/// The samples of a data set, numbered in shard order.
///
/// Invariants: `key_ends`, `field_ends` have an entry a sample and rise within each shard; the `field_*` arrays have an
/// entry a field; `shards` and `shard_names` have an entry a shard, in order of their first samples; every number in
/// `field_exts` has a name.
#[derive(Debug, Default)]
pub struct SampleIndex {
    shards: Vec<ShardSpan>,
    shard_names: Vec<Arc<str>>,
    keys: Vec<u8>,
    /// End of the sample's key within its shard's part of `keys`.
    key_ends: Vec<u32>,
    /// End of the sample's fields within its shard's part of the field arrays.
    field_ends: Vec<u32>,
    field_exts: Vec<u32>,
    field_offsets: Vec<u64>,
    /// `SIZE_IS_LARGE` sends to `large_sizes`.
    field_sizes: Vec<u32>,
    /// Sizes of 4 GiB and above by number of the field, in rising order.
    large_sizes: Vec<(usize, u64)>,
    extensions: Vec<Arc<str>>,
    report: GroupReport,
    fingerprint: u64,
}

/// Where a shard's part of the arrays begins.
#[derive(Debug, Clone, Copy, Default)]
struct ShardSpan {
    sample: usize,
    key_byte: usize,
    field: usize,
}

const SIZE_IS_LARGE: u32 = u32::MAX;

impl SampleIndex {
    /// Groups the files of all shards, in order; each index is let go of as soon as its files are in. `shard_names` are the
    /// shards as the user named them, as many as there are indexes.
    ///
    /// # Errors
    /// [`ErrorKind::Grouping`] when a sample has a field twice, [`ErrorKind::Limit`] when a shard is too large to number,
    /// [`ErrorKind::InvalidOption`] when names and indexes differ in number.
    pub fn build(
        indexes: impl IntoIterator<Item = ShardIndex>,
        grouping: &Grouping,
        shard_names: impl IntoIterator<Item = impl Into<Arc<str>>>,
    ) -> Result<Self> {
        let unequal = || Error::new(ErrorKind::InvalidOption, "there must be as many shard names as shard indexes");
        let mut names = shard_names.into_iter();
        let mut builder = SampleIndexBuilder::new(grouping);
        for index in indexes {
            let name = names.next().ok_or_else(unequal)?.into();
            builder.push_shard(
                name,
                index.fingerprint(),
                index.iter().map(|file| (file.name, file.offset, file.size)),
            )?;
        }
        if names.next().is_some() {
            return Err(unequal());
        }
        Ok(builder.finish())
    }

    /// Number of samples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.key_ends.len()
    }

    /// Whether there are no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.key_ends.is_empty()
    }

    /// Number of samples of each shard.
    #[must_use]
    pub fn shard_lens(&self) -> Vec<usize> {
        (0..self.shards.len()).map(|shard| self.shard_samples(shard).len()).collect()
    }

    /// The numbers of the samples of a shard; empty for a shard that does not exist.
    #[must_use]
    pub fn shard_samples(&self, shard: usize) -> Range<usize> {
        let start = |shard: usize| self.shards.get(shard).map_or(self.len(), |span| span.sample);
        start(shard)..start(shard.saturating_add(1))
    }

    /// The shards as the user named them.
    #[must_use]
    pub fn shard_names(&self) -> &[Arc<str>] {
        &self.shard_names
    }

    /// The sample with this number, in the logarithm of the number of shards.
    ///
    /// # Panics
    /// When there is no such sample, as indexing a slice does.
    #[must_use]
    pub fn get(&self, sample: usize) -> SampleRef<'_> {
        assert!(sample < self.len(), "sample {sample} of an index of {}", self.len());
        SampleRef { index: self, sample, shard: self.shards.partition_point(|span| span.sample <= sample) - 1 }
    }

    /// All samples in order.
    pub fn iter(&self) -> impl Iterator<Item = SampleRef<'_>> {
        (0..self.shards.len()).flat_map(move |shard| {
            self.shard_samples(shard).map(move |sample| SampleRef { index: self, sample, shard })
        })
    }

    /// What grouping skipped or found odd.
    #[must_use]
    pub fn report(&self) -> &GroupReport {
        &self.report
    }

    /// Memory of the index in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let names = self.shard_names.iter().chain(&self.extensions);
        size_of::<Self>()
            + self.shards.capacity() * size_of::<ShardSpan>()
            + self.keys.capacity()
            + (self.key_ends.capacity() + self.field_ends.capacity()) * size_of::<u32>()
            + (self.field_exts.capacity() + self.field_sizes.capacity()) * size_of::<u32>()
            + self.field_offsets.capacity() * size_of::<u64>()
            + self.large_sizes.capacity() * size_of::<(usize, u64)>()
            + names.map(|name| name.len() + 2 * size_of::<usize>() + size_of::<Arc<str>>()).sum::<usize>()
    }

    /// Changes when names, offsets or sizes of members change, or the rule that groups them: a saved position belongs to
    /// one fingerprint. The paths of the shards do not count.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    fn key(&self, sample: usize, shard: usize) -> &[u8] {
        let span = self.shards[shard];
        &self.keys[part(&self.key_ends, sample, span.sample, span.key_byte)]
    }

    fn field_range(&self, sample: usize, shard: usize) -> Range<usize> {
        let span = self.shards[shard];
        part(&self.field_ends, sample, span.sample, span.field)
    }

    fn field(&self, field: usize) -> FieldRef<'_> {
        let size = match self.field_sizes[field] {
            SIZE_IS_LARGE => {
                let place = self.large_sizes.partition_point(|&(large, _)| large < field);
                self.large_sizes[place].1
            }
            size => size.into(),
        };
        let ext = &*self.extensions[self.field_exts[field] as usize];
        FieldRef { ext, offset: self.field_offsets[field], size }
    }
}

/// The part of an array that belongs to `sample`, from ends that count from its shard's `base`.
fn part(ends: &[u32], sample: usize, shard_sample: usize, base: usize) -> Range<usize> {
    let start = if sample == shard_sample { 0 } else { ends[sample - 1] as usize };
    base + start..base + ends[sample] as usize
}

/// One sample of an index.
#[derive(Debug, Clone, Copy)]
pub struct SampleRef<'a> {
    index: &'a SampleIndex,
    sample: usize,
    shard: usize,
}

/// One field of a sample in an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldRef<'a> {
    /// The extension in lower case.
    pub ext: &'a str,
    /// Byte offset of the data in the shard.
    pub offset: u64,
    /// Size of the data in bytes.
    pub size: u64,
}

impl FieldRef<'_> {
    /// The bytes of the field in its shard.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        // Building has checked the sum.
        self.offset..self.offset + self.size
    }
}

impl<'a> SampleRef<'a> {
    /// Its number in the data set.
    #[must_use]
    pub fn number(&self) -> usize {
        self.sample
    }

    /// The number of its shard.
    #[must_use]
    pub fn shard(&self) -> usize {
        self.shard
    }

    /// Its shard as the user named it.
    #[must_use]
    pub fn shard_name(&self) -> &'a Arc<str> {
        &self.index.shard_names[self.shard]
    }

    /// Its key, raw.
    #[must_use]
    pub fn key(&self) -> &'a [u8] {
        self.index.key(self.sample, self.shard)
    }

    /// Its fields in the order of their members.
    pub fn fields(&self) -> impl Iterator<Item = FieldRef<'a>> + use<'a> {
        let index = self.index;
        index.field_range(self.sample, self.shard).map(move |field| index.field(field))
    }

    /// The field that a selector means: the first of its alternatives that the sample has.
    #[must_use]
    pub fn field(&self, selector: &FieldSelector) -> Option<FieldRef<'a>> {
        selector.pick(|ext| self.fields().find(|field| field.ext == ext))
    }

    /// The bytes of the shard from its first field to its last, what lies between them included.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        let hull = |hull: Range<u64>, field: Range<u64>| hull.start.min(field.start)..hull.end.max(field.end);
        self.fields().map(|field| field.range()).reduce(hull).unwrap_or(0..0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Duplicates, Field, Sample, group_by_key};
    use crate::shard::{Member, MemberKind};
    use proptest::prelude::*;

    type File = (Vec<u8>, u64, u64);

    fn build(shards: &[Vec<File>], grouping: &Grouping) -> Result<SampleIndex> {
        let mut builder = SampleIndexBuilder::new(grouping);
        for (shard, files) in shards.iter().enumerate() {
            let files = files.iter().map(|(name, offset, size)| (name.as_slice(), *offset, *size));
            builder.push_shard(format!("{shard}.tar").into(), shard as u64, files)?;
        }
        Ok(builder.finish())
    }

    /// Files of 100 bytes, a kilobyte apart.
    fn files(names: &[&str]) -> Vec<File> {
        names.iter().zip(0..).map(|(name, place)| (name.as_bytes().to_vec(), 512 + 1024 * place, 100)).collect()
    }

    #[test]
    fn samples_are_numbered_in_shard_order() {
        let shards = [files(&["a.jpg", "a.cls", "b.jpg"]), files(&[]), files(&["b.cls", "b.JPG", "c.png", "nodot"])];
        let index = build(&shards, &Grouping::default()).unwrap();
        assert_eq!((index.len(), index.shard_lens()), (4, vec![2, 0, 2]));
        assert_eq!((index.shard_samples(2), index.shard_samples(9)), (2..4, 4..4));

        let sample = index.get(2);
        assert_eq!((sample.shard(), sample.key(), &**sample.shard_name()), (2, &b"b"[..], "2.tar"));
        let expected =
            [FieldRef { ext: "cls", offset: 512, size: 100 }, FieldRef { ext: "jpg", offset: 1536, size: 100 }];
        assert_eq!(sample.fields().collect::<Vec<_>>(), expected);
        assert_eq!(sample.range(), 512..1636);

        let selector = FieldSelector::parse("jpeg;jpg;png").unwrap();
        let exts: Vec<_> = index.iter().map(|sample| sample.field(&selector).map(|field| field.ext)).collect();
        assert_eq!(exts, [Some("jpg"), Some("jpg"), Some("jpg"), Some("png")]);
        let numbers: Vec<_> = index.iter().map(|sample| (sample.number(), sample.shard())).collect();
        assert_eq!(numbers, [(0, 0), (1, 0), (2, 2), (3, 2)]);
        assert_eq!((index.report().samples, index.report().without_extension), (4, 1));
        assert!(build(&[], &Grouping::default()).unwrap().is_empty());
    }

    #[test]
    fn a_key_may_come_again_in_another_shard() {
        let shards = [files(&["a.jpg"]), files(&["a.cls"])];
        let index = build(&shards, &Grouping::default()).unwrap();
        assert_eq!((index.len(), index.report().split_keys), (2, 0));
    }

    #[test]
    fn offsets_and_sizes_may_pass_4_gib() {
        let size = |size: u64| (format!("{size}.bin").into_bytes(), 1 << 40, size);
        let sizes = [0, u64::from(u32::MAX) - 1, u64::from(u32::MAX), 1 << 32, 7, 1 << 50];
        let index = build(&[sizes.map(size).to_vec()], &Grouping::default()).unwrap();
        let got: Vec<u64> = index.iter().flat_map(|sample| sample.fields()).map(|field| field.size).collect();
        assert_eq!(got, sizes);
        assert_eq!(index.get(5).range(), 1 << 40..(1 << 40) + (1 << 50));

        let error = build(&[vec![(b"a.bin".to_vec(), 2, u64::MAX)]], &Grouping::default()).unwrap_err();
        assert_eq!((error.kind(), error.place().offset), (ErrorKind::Limit, Some(2)));
    }

    #[test]
    fn a_field_given_twice_names_its_whole_place() {
        let shards = [files(&["a.jpg"]), files(&["b.jpg", "b.cls", "b.JPG"])];
        let error = build(&shards, &Grouping::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Grouping);
        let expected = "1.tar: sample 'b', field 'jpg': the field is given twice in one sample (at byte 2560)";
        assert_eq!(error.to_string(), expected);
        let grouping = Grouping { duplicates: Duplicates::KeepFirst, ..Grouping::default() };
        let index = build(&shards, &grouping).unwrap();
        assert_eq!((index.get(1).fields().count(), index.report().duplicate_fields), (2, 1));
    }

    #[test]
    fn the_fingerprint_follows_shards_and_rule() {
        let shards = [files(&["a.jpg"]), files(&["b.jpg"]), files(&["c.jpg"])];
        let fingerprint = |count: usize, grouping| build(&shards[..count], &grouping).unwrap().fingerprint();
        let rule = Grouping::default();
        assert_eq!(fingerprint(2, rule), fingerprint(2, rule));
        assert_ne!(fingerprint(2, rule), fingerprint(3, rule));
        assert_ne!(fingerprint(2, rule), fingerprint(2, Grouping { keep_appledouble: true, ..rule }));
    }

    #[test]
    fn a_sample_of_two_fields_takes_at_most_64_bytes() {
        let shard = |shard: usize| -> Vec<File> {
            let names =
                (0..10_000).flat_map(|sample| ["jpg", "cls"].map(|ext| format!("{shard:04}-{sample:07}.{ext}")));
            names.zip(0..).map(|(name, place)| (name.into_bytes(), place * 120_000, 110_000)).collect()
        };
        let shards: Vec<_> = (0..10).map(shard).collect();
        let index = build(&shards, &Grouping::default()).unwrap();
        assert_eq!(index.len(), 100_000);
        assert!(index.memory_bytes() <= 64 * index.len(), "{} bytes", index.memory_bytes());
    }

    proptest! {
        #[test]
        fn the_index_holds_what_the_stream_yields(
            shards in prop::collection::vec(prop::collection::vec("(a|b|__bad__)?[ab_./\n]{0,4}(.__bad__|.a)?", 0..30), 0..4)
        ) {
            let shards: Vec<Vec<File>> =
                shards.iter().map(|names| files(&names.iter().map(String::as_str).collect::<Vec<_>>())).collect();
            let grouping = Grouping { duplicates: Duplicates::KeepFirst, ..Grouping::default() };
            let index = build(&shards, &grouping).unwrap();
            let mut report = GroupReport::default();
            let mut streamed: Vec<Sample<(u64, u64)>> = Vec::new();
            for files in &shards {
                let members = files.iter().map(|(name, offset, size)| Ok(Member {
                    name: name.clone().into(), header_offset: 0, offset: *offset, size: *size, kind: MemberKind::File
                })).map(|member: Result<Member>| member.map(|member| { let value = (member.offset, member.size); (member, value) }));
                let mut groups = group_by_key(members, &grouping);
                streamed.extend(groups.by_ref().flatten());
                report.merge(&groups.report());
            }
            let indexed: Vec<_> = index.iter().map(|sample| Sample {
                key: crate::sample::Key::new(sample.key().to_vec()),
                fields: sample.fields().map(|field| Field { ext: field.ext.into(), value: (field.offset, field.size) }).collect(),
            }).collect();
            prop_assert_eq!(indexed, streamed);
            prop_assert_eq!(index.report(), &report);
            prop_assert!((0..index.len()).all(|number| index.get(number).key() == index.iter().nth(number).unwrap().key()));
        }
    }
}
