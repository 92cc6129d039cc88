//! Two samples with one key: found by sorting hashes of all keys, certain by comparing the keys themselves.

use std::collections::{HashMap, HashSet};

use super::options::{Duplicates, Names};
use super::plan::planned_key;
use super::source::Source;
use crate::error::{Error, ErrorKind, Result};

/// What is done about samples whose key an earlier one has.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    /// New keys by sample.
    pub(super) renamed: HashMap<u32, String>,
    /// Samples that are left out, and the one that has the key, in order.
    pub(super) dropped: Vec<(u32, u32)>,
}

/// Looks for keys given twice among `hashes`, pairs of a key's hash and its sample.
///
/// # Errors
/// [`ErrorKind::Grouping`] that names both, where duplicates are refused.
pub(super) fn resolve(
    source: &dyn Source,
    mut hashes: Vec<(u64, u32)>,
    names: Names,
    rule: Duplicates,
) -> Result<Resolved> {
    hashes.sort_unstable();
    let key_of = |sample: u32| planned_key(source, sample, names).unwrap_or_default();
    let mut doubles: Vec<(u32, u32, String)> = Vec::new();
    for same in hashes.chunk_by(|a, b| a.0 == b.0).filter(|same| same.len() > 1) {
        let mut first_of: HashMap<String, u32> = HashMap::new();
        for &(_, sample) in same {
            let key = key_of(sample);
            match first_of.get(&key) {
                Some(&first) => doubles.push((sample, first, key)),
                None => drop(first_of.insert(key, sample)),
            }
        }
    }
    doubles.sort_unstable();
    let mut resolved = Resolved::default();
    match (rule, doubles.first()) {
        (_, None) => {}
        (Duplicates::Refuse, Some((sample, first, key))) => {
            let (one, other) = (source.origin(*first as usize), source.origin(*sample as usize));
            let more = match doubles.len() - 1 {
                0 => String::new(),
                more => format!(", and {more} more samples have a key twice"),
            };
            let message = format!("'{one}' and '{other}' would both have the key '{key}'{more}");
            return Err(Error::new(ErrorKind::Grouping, message)
                .with_hint("rename one, or choose --duplicates rename or --duplicates drop"));
        }
        (Duplicates::Drop, Some(_)) => {
            resolved.dropped = doubles.into_iter().map(|(sample, first, _)| (sample, first)).collect();
        }
        (Duplicates::Rename, Some(_)) => rename(&hashes, doubles, &mut resolved),
    }
    Ok(resolved)
}

/// Numbers further samples of a key from 2 on, past numbers that other samples have.
fn rename(hashes: &[(u64, u32)], doubles: Vec<(u32, u32, String)>, resolved: &mut Resolved) {
    let is_taken = |key: &str| hashes.binary_search_by_key(&hash(key), |&(hash, _)| hash).is_ok();
    let mut given: HashSet<String> = HashSet::new();
    let mut last: HashMap<String, u64> = HashMap::new();
    for (sample, _, key) in doubles {
        let number = last.entry(key.clone()).or_insert(1);
        let name = loop {
            *number += 1;
            let name = format!("{key}-{number}");
            if !is_taken(&name) && given.insert(name.clone()) {
                break name;
            }
        };
        resolved.renamed.insert(sample, name);
    }
}

/// The hash that keys are sorted by.
pub(super) fn hash(key: &str) -> u64 {
    twox_hash::XxHash3_128::oneshot(key.as_bytes()) as u64
}
