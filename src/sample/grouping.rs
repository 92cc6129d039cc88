//! The rule by which members form samples, apart from what is grouped.
//!
//! It sees names and sizes only, says where samples begin and which fields count, and keeps the books.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

use super::extension::Extensions;
use super::name::{Escaped, KeySplit, is_appledouble, is_metadata, split_name_at};
use super::permutation::mix64;
use super::report::GroupReport;
use crate::error::{Error, ErrorKind, Result};

/// How many keys of one shard are remembered to notice one that comes back; later ones go unnoticed.
const KEYS_REMEMBERED_MAX: usize = 1 << 24;
/// Names that a sample has of its own, which no member may take.
const RESERVED: [&str; 2] = ["__key__", "__url__"];
/// A field with this name that is not empty drops its sample.
const BAD: &str = "__bad__";

/// How members form samples. The default is webdataset's rule, but without macOS's book-keeping files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Grouping {
    /// Keep `._name` and `__MACOSX/` files, which webdataset takes for samples; `false` by default: skipped and counted.
    pub keep_appledouble: bool,
    /// Which dot ends the key; the first by default.
    pub key_split: KeySplit,
    /// What a field given twice in one sample leads to; an error by default.
    pub duplicates: Duplicates,
}

/// What a field given twice in one sample leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Duplicates {
    /// An error that names key and field; who goes on after it finds the first value in the sample.
    #[default]
    Error,
    /// The first value stays, the others are counted.
    KeepFirst,
}

/// The rule at work: says where samples begin and which fields count, and keeps the books.
///
/// The caller asks, member by member: [`split`](Self::split), then unless it [`continues`](Self::continues)
/// [`close`](Self::close) and [`open`](Self::open), then [`add_field`](Self::add_field).
#[derive(Debug)]
pub(super) struct Grouper {
    rule: Grouping,
    pub(super) extensions: Extensions,
    pub(super) report: GroupReport,
    /// The key of the open sample.
    key: Vec<u8>,
    is_open: bool,
    is_bad: bool,
    /// The extensions of the open sample.
    fields: Vec<u32>,
    /// Hashes of the keys that the shard had so far.
    seen: HashSet<u64, BuildHasherDefault<Ready>>,
}

impl Grouper {
    pub(super) fn new(rule: Grouping) -> Self {
        Self {
            rule,
            extensions: Extensions::default(),
            report: GroupReport::default(),
            key: Vec::new(),
            is_open: false,
            is_bad: false,
            fields: Vec::new(),
            seen: HashSet::default(),
        }
    }

    /// Key and extension of a file that takes part in grouping; others are counted and do not end the open sample.
    pub(super) fn split<'a>(&mut self, name: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        if is_metadata(name) {
            self.report.metadata += 1;
            return None;
        }
        if !self.rule.keep_appledouble && is_appledouble(name) {
            self.report.appledouble += 1;
            return None;
        }
        let parts = split_name_at(name, self.rule.key_split);
        self.report.without_extension += u64::from(parts.is_none());
        parts
    }

    /// Whether a member with this key belongs to the open sample.
    pub(super) fn continues(&self, key: &[u8]) -> bool {
        self.is_open && self.key == key
    }

    /// Opens a sample; an open one must have been closed.
    pub(super) fn open(&mut self, key: &[u8]) {
        self.is_open = true;
        self.is_bad = false;
        self.fields.clear();
        self.key.clear();
        self.key.extend_from_slice(key);
        if self.seen.len() < KEYS_REMEMBERED_MAX && !self.seen.insert(hash(key)) {
            self.report.add_split_key(key);
        }
    }

    /// Adds a field to the open sample: the number of its extension, or `None` if the sample has it already.
    pub(super) fn add_field(&mut self, ext: &[u8], size: u64) -> Result<Option<u32>> {
        let number = self.extensions.number(ext)?;
        let name = &**self.extensions.name(number);
        if self.fields.contains(&number) || RESERVED.contains(&name) {
            self.report.duplicate_fields += 1;
            return match self.rule.duplicates {
                Duplicates::KeepFirst => Ok(None),
                Duplicates::Error => Err(Error::new(ErrorKind::Grouping, "the field is given twice in one sample")
                    .at_key(Escaped(&self.key))
                    .in_field(name)
                    .with_hint("upper and lower case are one extension; rename the file, or keep the first of each")),
            };
        }
        self.is_bad |= name == BAD && size > 0;
        self.fields.push(number);
        Ok(Some(number))
    }

    /// Closes the open sample; whether it is to be kept: one without a field is none.
    pub(super) fn close(&mut self) -> bool {
        if !std::mem::take(&mut self.is_open) {
            return false;
        }
        if self.fields.is_empty() {
            // All that it had were names that no member may take; they are counted already.
            return false;
        }
        if self.is_bad {
            self.report.bad_samples += 1;
            return false;
        }
        self.report.samples += 1;
        self.report.fields += self.fields.len() as u64;
        self.fields.iter().for_each(|&number| self.extensions.count(number));
        true
    }

    /// Gives the open sample up because reading failed inside it.
    pub(super) fn cut(&mut self) {
        self.report.cut_samples += u64::from(std::mem::take(&mut self.is_open));
    }

    /// Forgets the keys of a shard; the next one may have them again.
    pub(super) fn end_shard(&mut self) {
        self.seen.clear();
    }

    /// The books as they stand, with the extensions of all samples closed so far.
    pub(super) fn report(&self) -> GroupReport {
        let mut report = self.report.clone();
        self.extensions
            .iter()
            .filter(|&(_, count)| count > 0)
            .for_each(|(ext, count)| report.add_extension(ext, count));
        report
    }
}

/// A hash of a key: enough to notice that it comes back, which only makes a warning.
fn hash(key: &[u8]) -> u64 {
    key.chunks(8).fold(key.len() as u64, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix64(hash ^ u64::from_le_bytes(word))
    })
}

/// A hasher for words that are hashes already.
#[derive(Debug, Default)]
pub(super) struct Ready(u64);

impl Hasher for Ready {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = hash(bytes);
    }
    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
    fn finish(&self) -> u64 {
        self.0
    }
}
