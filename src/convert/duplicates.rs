//! Two samples with one key: found by sorting hashes of all keys, certain by comparing the keys themselves.

use std::collections::HashMap;

use super::options::{Duplicates, Names};
use super::plan::planned_key;
use super::source::Source;
use crate::error::{Error, ErrorKind, Result};

/// What is done about samples whose key an earlier one has.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    /// Samples that get a number behind their key, and the number, in order.
    renamed: Vec<(u32, u32)>,
    /// Samples that are left out, and the one that has the key, in order.
    pub(super) dropped: Vec<(u32, u32)>,
}

impl Resolved {
    /// The number behind the key of a sample, if it gets one.
    pub(super) fn number(&self, sample: u32) -> Option<u32> {
        let place = self.renamed.binary_search_by_key(&sample, |&(renamed, _)| renamed).ok()?;
        Some(self.renamed[place].1)
    }

    /// How many samples get a number.
    pub(super) fn renamed(&self) -> usize {
        self.renamed.len()
    }
}

/// Hashes of keys and their samples. They are short, as there may be very many, so two keys may well have one hash.
pub(super) type Hashes = Vec<(u32, u32)>;

/// The hash that keys are sorted by.
pub(super) fn hash(key: &str) -> u32 {
    twox_hash::XxHash3_128::oneshot(key.as_bytes()) as u32
}

/// The key of a sample whose number, if it got one, was `number`.
pub(super) fn numbered(key: &str, number: u32) -> String {
    format!("{key}-{number}")
}

/// Looks for keys given twice.
///
/// # Errors
/// [`ErrorKind::Grouping`] that names both, where duplicates are refused.
pub(super) fn resolve(source: &dyn Source, mut hashes: Hashes, names: Names, rule: Duplicates) -> Result<Resolved> {
    hashes.sort_unstable();
    let key_of = |sample: u32| planned_key(source, sample, names).unwrap_or_default();
    let mut doubles: Vec<(u32, u32)> = Vec::new();
    for same in hashes.chunk_by(|a, b| a.0 == b.0).filter(|same| same.len() > 1) {
        let mut first_of: HashMap<String, u32> = HashMap::new();
        for &(_, sample) in same {
            let first = *first_of.entry(key_of(sample)).or_insert(sample);
            if first != sample {
                doubles.push((sample, first));
            }
        }
    }
    doubles.sort_unstable();
    let mut resolved = Resolved::default();
    match (rule, doubles.first()) {
        (_, None) => {}
        (Duplicates::Refuse, Some(&(sample, first))) => {
            let (one, other) = (source.origin(first as usize), source.origin(sample as usize));
            let more = match doubles.len() - 1 {
                0 => String::new(),
                more => format!(", and {more} more samples have a key twice"),
            };
            let message = format!("'{one}' and '{other}' would both have the key '{}'{more}", key_of(sample));
            return Err(Error::new(ErrorKind::Grouping, message)
                .with_hint("rename one, or choose --duplicates rename or --duplicates drop"));
        }
        (Duplicates::Drop, Some(_)) => resolved.dropped = doubles,
        (Duplicates::Rename, Some(_)) => resolved.renamed = rename(&hashes, &doubles, &key_of),
    }
    Ok(resolved)
}

/// Numbers further samples of a key from 2 on, past numbers that other samples have in their own keys.
fn rename(hashes: &Hashes, doubles: &[(u32, u32)], key_of: &dyn Fn(u32) -> String) -> Vec<(u32, u32)> {
    let is_taken = |key: &str| {
        let wanted = hash(key);
        let start = hashes.partition_point(|&(hash, _)| hash < wanted);
        let alike = hashes[start..].iter().take_while(|&&(hash, _)| hash == wanted);
        alike.map(|&(_, sample)| key_of(sample)).any(|other| other == key)
    };
    let mut last: HashMap<u32, u32> = HashMap::new();
    let number = |&(sample, first): &(u32, u32)| {
        let key = key_of(sample);
        let number = last.entry(first).or_insert(1);
        *number += 1;
        while is_taken(&numbered(&key, *number)) {
            *number += 1;
        }
        (sample, *number)
    };
    doubles.iter().map(number).collect()
}
