//! Which sample goes where: splits, their order, and where each shard begins and ends. A function of the source and the
//! options; it reads no sample and writes nothing.

use std::ops::Range;

use serde::Serialize;
use twox_hash::XxHash3_128;

use super::duplicates::{self, Hashes, Resolved};
use super::key::key_of;
use super::options::{ConvertOptions, Names, ShardLimit};
use super::picture::PictureOptions;
use super::sample::member_bytes;
use super::source::{Source, SourceKind};
use crate::error::{Error, ErrorKind, Result};
use crate::sample::{EpochPlan, Shuffle, Split};

/// What a conversion does, shard by shard.
pub(super) struct Plan {
    /// Sample numbers of all splits, one split behind the other.
    order: Vec<u32>,
    pub(super) shards: Vec<PlannedShard>,
    pub(super) splits: Vec<&'static str>,
    pub(super) resolved: Resolved,
    names: Names,
    /// Samples whose names are no fit keys.
    pub(super) unfit: u64,
    /// Bytes of all shards, as the samples are in the source.
    pub(super) bytes: u64,
    /// Bytes of the largest shard, counted in the same way.
    pub(super) shard_bytes_max: u64,
    /// Tells this plan from any other.
    pub(super) fingerprint: String,
}

/// One shard: a stretch of the order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedShard {
    pub(super) split: usize,
    pub(super) start: usize,
    pub(super) end: usize,
    /// Its file name.
    pub(super) name: String,
}

/// What the fingerprint depends on besides the source.
#[derive(Serialize)]
struct Choices<'a> {
    version: u32,
    source: &'a str,
    limit: ShardLimit,
    shuffle: Option<u64>,
    sorted: bool,
    val_share: f64,
    split_seed: u64,
    names: Names,
    duplicates: super::options::Duplicates,
    picture: &'a PictureOptions,
}

/// Changes whenever the same source and options make other bytes.
const VERSION: u32 = 2;

/// Keeps the draw of a split apart from that of an order.
const SPLIT_EPOCH: u64 = u64::MAX;

/// Two blocks of zeros at a shard's end.
const END_BYTES: u64 = 1024;

impl Plan {
    /// Plans the conversion of `source`.
    ///
    /// # Errors
    /// [`ErrorKind::Grouping`] for keys given twice, where that is refused; [`ErrorKind::Limit`] for more than
    /// 4,294,967,295 samples; [`ErrorKind::InvalidOption`] for the first name that is no fit key, where the budget of bad
    /// samples has no room for all of them.
    pub(super) fn new(source: &dyn Source, kind: &SourceKind, options: &ConvertOptions) -> Result<Self> {
        let count = source.len();
        if u32::try_from(count).is_err() {
            return Err(Error::new(ErrorKind::Limit, format!("{count} samples are more than a data set can have")));
        }
        let mut plan = Self {
            order: Vec::new(),
            shards: Vec::new(),
            splits: Vec::new(),
            resolved: Resolved::default(),
            names: options.names,
            unfit: 0,
            bytes: 0,
            shard_bytes_max: 0,
            fingerprint: fingerprint(source, kind, options)?,
        };
        let hashes = plan.hash_keys(source, options)?;
        plan.resolved = duplicates::resolve(source, hashes, options.names, options.duplicates)?;
        plan.arrange(source, options)?;
        plan.cut(source, options);
        Ok(plan)
    }

    /// The sample at `position` of the order.
    pub(super) fn sample(&self, position: usize) -> u32 {
        self.order[position]
    }

    /// The key of a sample.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] for a name that is no fit key.
    pub(super) fn key(&self, source: &dyn Source, sample: u32) -> Result<String> {
        let key = planned_key(source, sample, self.names)?;
        Ok(match self.resolved.number(sample) {
            Some(number) => duplicates::numbered(&key, number),
            None => key,
        })
    }

    /// Samples that are to be converted.
    pub(super) fn samples(&self) -> usize {
        self.order.len()
    }

    fn hash_keys(&mut self, source: &dyn Source, options: &ConvertOptions) -> Result<Hashes> {
        let mut hashes = Hashes::with_capacity(source.len());
        let allowed = options.errors_max.allowed(source.len());
        for sample in 0..source.len() as u32 {
            match planned_key(source, sample, options.names) {
                Ok(key) => hashes.push((duplicates::hash(&key), sample)),
                Err(error) => {
                    self.unfit += 1;
                    if self.unfit > allowed {
                        return Err(error);
                    }
                }
            }
        }
        Ok(hashes)
    }

    /// Orders the samples, `val` behind `train`.
    fn arrange(&mut self, source: &dyn Source, options: &ConvertOptions) -> Result<()> {
        let count = source.len();
        let dropped = &self.resolved.dropped;
        let is_out = |sample: u32| dropped.binary_search_by_key(&sample, |&(dropped, _)| dropped).is_ok();
        let global = |seed, epoch| EpochPlan::new(&[count], Shuffle::Global, seed, epoch, Split::whole());
        let val_count = (count as f64 * options.val_share).round() as usize;
        let mut is_val = vec![false; if val_count == 0 { 0 } else { count }];
        if val_count > 0 {
            let draw = global(options.split_seed, SPLIT_EPOCH)?;
            (0..val_count).for_each(|position| is_val[draw.at(position)] = true);
        }
        let order = match options.shuffle {
            Some(seed) => global(seed, 0)?,
            None => EpochPlan::new(&[count], Shuffle::None, 0, 0, Split::whole())?,
        };
        self.splits = if val_count > 0 { vec!["train", "val"] } else { vec!["train"] };
        self.order.reserve_exact(count - dropped.len());
        for val in [false, true] {
            let of_split =
                |&sample: &u32| is_val.get(sample as usize).copied().unwrap_or(false) == val && !is_out(sample);
            let start = self.order.len();
            self.order.extend(order.iter().map(|sample| sample as u32).filter(of_split));
            if options.sorted {
                sort_by_key(source, self.names, &mut self.order[start..]);
            }
            if !val {
                self.shards = vec![PlannedShard::new(&self.splits, 0, 0, 0..self.order.len())];
            } else if val_count > 0 {
                self.shards.push(PlannedShard::new(&self.splits, 1, 0, start..self.order.len()));
            }
        }
        Ok(())
    }

    /// Cuts each split into shards.
    fn cut(&mut self, source: &dyn Source, options: &ConvertOptions) {
        let splits = std::mem::take(&mut self.shards);
        for PlannedShard { split, start: split_start, end: split_end, .. } in splits {
            let (mut number, mut start, mut bytes) = (0, split_start, END_BYTES);
            for position in split_start..split_end {
                let sample_bytes = self.sample_bytes(source, self.order[position]);
                let is_full = match options.limit {
                    ShardLimit::Samples(max) => (position - start) as u64 >= max,
                    ShardLimit::Bytes(max) => position > start && bytes.saturating_add(sample_bytes) > max,
                };
                if is_full {
                    self.push_shard(split, number, start..position, bytes);
                    (number, start, bytes) = (number + 1, position, END_BYTES);
                }
                bytes = bytes.saturating_add(sample_bytes);
            }
            if start < split_end {
                self.push_shard(split, number, start..split_end, bytes);
            }
        }
    }

    fn push_shard(&mut self, split: usize, number: usize, samples: Range<usize>, bytes: u64) {
        self.shards.push(PlannedShard::new(&self.splits, split, number, samples));
        self.bytes = self.bytes.saturating_add(bytes);
        self.shard_bytes_max = self.shard_bytes_max.max(bytes);
    }

    /// What a sample takes in a shard as it is in the source.
    pub(super) fn sample_bytes(&self, source: &dyn Source, sample: u32) -> u64 {
        let Ok(key) = self.key(source, sample) else { return 0 };
        let mut bytes = 0_u64;
        source.sizes(sample as usize, &mut |ext, size| bytes = bytes.saturating_add(member_bytes(&key, ext, size)));
        bytes
    }
}

impl PlannedShard {
    fn new(splits: &[&'static str], split: usize, number: usize, samples: Range<usize>) -> Self {
        let name = format!("{}-{number:06}.tar", splits[split]);
        Self { split, start: samples.start, end: samples.end, name }
    }
}

/// Orders samples by their keys. Keys are made anew for each comparison: all of them would not fit into memory.
fn sort_by_key(source: &dyn Source, names: Names, samples: &mut [u32]) {
    // A sample without a fit key is left out when its turn comes, wherever that is.
    let key_of = |sample: u32| planned_key(source, sample, names).unwrap_or_default();
    samples.sort_unstable_by(|&a, &b| key_of(a).cmp(&key_of(b)).then(a.cmp(&b)));
}

/// The key of a sample by its name.
pub(super) fn planned_key(source: &dyn Source, sample: u32, names: Names) -> Result<String> {
    let mut name = Vec::with_capacity(64);
    source.name(sample as usize, &mut name);
    key_of(&name, names).map_err(|error| match error.place().shard {
        None => error.in_shard(source.origin(sample as usize)),
        Some(_) => error,
    })
}

fn fingerprint(source: &dyn Source, kind: &SourceKind, options: &ConvertOptions) -> Result<String> {
    let &ConvertOptions { limit, shuffle, sorted, val_share, split_seed, names, duplicates, ref picture, .. } = options;
    let source_word = kind.as_str();
    let version = VERSION;
    let choices = Choices {
        version,
        source: source_word,
        limit,
        shuffle,
        sorted,
        val_share,
        split_seed,
        names,
        duplicates,
        picture,
    };
    let text = serde_json::to_vec(&choices).map_err(|error| {
        Error::new(ErrorKind::InvalidOption, "the options cannot be written down").with_source(error)
    })?;
    let mut hash = XxHash3_128::new();
    hash.write(&text);
    hash.write(&source.fingerprint().to_le_bytes());
    Ok(format!("{:032x}", hash.finish_128()))
}
