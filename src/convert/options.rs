//! What a conversion is asked to do. Nothing is opened here; what cannot be meant is refused by `check`.

use serde::Serialize;

use super::picture::PictureOptions;
use crate::error::{Error, ErrorKind, Result};

/// How a source becomes shards.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvertOptions {
    /// Where a shard ends.
    pub limit: ShardLimit,
    /// Shuffles all samples by this seed; `None`, the default, keeps the order of the source.
    pub shuffle: Option<u64>,
    /// Orders all samples by their keys instead; `false` by default.
    pub sorted: bool,
    /// The share of samples that goes into a split `val`, from 0 (the default: no such split) to below 1.
    pub val_share: f64,
    /// Which samples go into `val`; 0 by default.
    pub split_seed: u64,
    /// What happens to names that are absolute, climb with `..`, or hold control characters or bytes that are not UTF-8.
    pub names: Names,
    /// What happens to a sample whose key another one has.
    pub duplicates: Duplicates,
    /// How many samples may be bad and left out; none by default.
    pub errors_max: ErrorBudget,
    /// Goes on where an earlier run of the same conversion ended; `false` by default.
    pub resume: bool,
    /// Which part of the shards is made; all by default.
    pub part: Part,
    /// What is done to pictures; nothing by default.
    pub picture: PictureOptions,
    /// Threads, at least 1.
    pub threads: usize,
}

/// Where a shard ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ShardLimit {
    /// After this many samples, at least 1.
    Samples(u64),
    /// Before it would have more bytes than this, headers and end included, as the samples are in the source.
    Bytes(u64),
}

/// What happens to names that are no fit keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Names {
    /// The sample is bad.
    #[default]
    Refuse,
    /// What does not fit is written as `%` and two hexadecimal digits; a slash at the start is dropped.
    Escape,
}

/// What happens to a sample whose key an earlier one has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Duplicates {
    /// Nothing is converted, and both are named.
    #[default]
    Refuse,
    /// It gets a key with a number: `a`, `a-2`, `a-3`.
    Rename,
    /// It is left out and listed.
    Drop,
}

/// How many samples may be bad.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ErrorBudget {
    /// As many as this.
    Count(u64),
    /// This share of all samples, 0 to 1.
    Share(f64),
}

/// One of several runs that share a conversion: part `number` of `of`, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Which one, from 1.
    pub number: usize,
    /// Of how many, at least 1.
    pub of: usize,
}

/// The size of a shard unless another is asked for.
const SHARD_BYTES: u64 = 1_000_000_000;

/// Parts that a conversion may be shared by.
const PARTS_MAX: usize = 1 << 20;

impl Default for ConvertOptions {
    fn default() -> Self {
        Self {
            limit: ShardLimit::Bytes(SHARD_BYTES),
            shuffle: None,
            sorted: false,
            val_share: 0.0,
            split_seed: 0,
            names: Names::default(),
            duplicates: Duplicates::default(),
            errors_max: ErrorBudget::Count(0),
            resume: false,
            part: Part { number: 1, of: 1 },
            picture: PictureOptions::default(),
            threads: 1,
        }
    }
}

impl ConvertOptions {
    /// Refuses options outside their range.
    pub(super) fn check(&self) -> Result<()> {
        let invalid = |message: String| Err(Error::new(ErrorKind::InvalidOption, message));
        if matches!(self.limit, ShardLimit::Samples(0) | ShardLimit::Bytes(0)) {
            return invalid("a shard has at least one sample and one byte, not 0".into());
        }
        if self.sorted && self.shuffle.is_some() {
            return invalid("samples cannot be both shuffled and sorted".into());
        }
        if !(0.0..1.0).contains(&self.val_share) {
            return invalid(format!("a share of {} for val is not from 0 to below 1", self.val_share));
        }
        if let ErrorBudget::Share(share) = self.errors_max
            && !(0.0..=1.0).contains(&share)
        {
            return invalid(format!("a share of {share} of bad samples is not from 0 to 1"));
        }
        let Part { number, of } = self.part;
        if !(1..=PARTS_MAX).contains(&of) || !(1..=of).contains(&number) {
            return invalid(format!("part {number} of {of} does not exist: parts are counted from 1"));
        }
        self.picture.check()?;
        if self.threads == 0 {
            return invalid("threads=0: a conversion needs at least one".into());
        }
        Ok(())
    }
}

impl ErrorBudget {
    /// How many of `samples` may be bad.
    pub(super) fn allowed(self, samples: usize) -> u64 {
        match self {
            Self::Count(count) => count,
            Self::Share(share) => (samples as f64 * share) as u64,
        }
    }
}

impl Part {
    /// Whether shard `number`, counted over all splits, is this part's.
    pub(super) fn has(self, number: usize) -> bool {
        number % self.of == self.number - 1
    }
}
