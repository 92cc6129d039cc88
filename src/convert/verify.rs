//! What is wrong with shards: each is walked by its headers, and on request read whole, compared and decoded.
//!
//! It changes nothing; [`repair`](mod@super::repair) writes better ones.

mod archive;
mod beside;
mod census;
mod finding;
mod hashes;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use super::crew::each;
use super::extension::is_picture_field;
use crate::error::{Error, Result};
use crate::sample::FieldSelector;
use crate::shard::Compression;

pub(super) use archive::Checked;
use archive::{FieldSet, check_shard};
pub use census::Census;
pub(super) use census::decode_whole;
pub use finding::{Finding, FindingKind};
pub(super) use hashes::hash_file;

use finding::Findings;

/// What is looked at besides headers.
#[derive(Debug, Clone, Default)]
pub struct VerifyOptions {
    /// The fields that each sample must have; those that more than half of the samples have, unless given.
    pub fields: Vec<FieldSelector>,
    /// Compares the shards with the `dataset.json` beside them.
    pub hash: bool,
    /// Decodes every image whole, and counts what images there are.
    pub decode: bool,
    /// Keeps every finding; of many alike in one shard the first 20, unless asked for.
    pub all_findings: bool,
    /// Threads, at least 1.
    pub threads: usize,
}

/// What was found.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Verification {
    /// Shards that were looked at.
    pub shards: usize,
    /// Samples in them.
    pub samples: u64,
    /// Bytes of the shards.
    pub bytes: u64,
    /// Number of fields by extension.
    pub fields: BTreeMap<String, u64>,
    /// How many findings of each kind there are.
    pub counts: BTreeMap<FindingKind, u64>,
    /// The findings, in the order of shards and offsets; of many alike the first ones, unless all were asked for.
    pub findings: Vec<Finding>,
    /// What images there are, where they were decoded.
    pub census: Option<Census>,
}

/// Looks at the shards at `paths`. `progress` is told, from many threads, how much of how much is done.
///
/// # Errors
/// That of a `dataset.json` that is asked for and cannot be read. What is wrong with a shard is a finding.
pub fn verify(
    paths: &[PathBuf],
    options: &VerifyOptions,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Verification> {
    let mut verification = Verification { shards: paths.len(), ..Verification::default() };
    let checked = check_all(paths, options.threads, options.all_findings, progress);
    let expected = Expected::of(&checked, &options.fields);
    let mut findings = Findings::new(options.all_findings);
    for (path, shard) in paths.iter().zip(&checked) {
        verification.samples += shard.samples;
        verification.bytes += shard.bytes;
        shard.fields.iter().for_each(|(ext, count)| *verification.fields.entry(ext.clone()).or_default() += count);
        findings.extend(&shard.findings);
        expected.find_missing(path, shard, &mut findings);
    }
    find_shared_keys(paths, &checked, &mut findings);
    drop(checked);
    if options.hash {
        hashes::compare(paths, options.threads, progress, &mut findings)?;
    }
    if options.decode {
        verification.census = Some(census::take(paths, options.threads, progress, &mut findings)?);
    }
    (verification.findings, verification.counts) = findings.finish();
    Ok(verification)
}

/// Walks along the headers of all shards. Compressed ones are inflated into memory for it: one at a time.
pub(super) fn check_all(
    paths: &[PathBuf],
    threads: usize,
    keeps_all: bool,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Vec<Checked> {
    let inflating = Mutex::new(());
    let check = |path: &PathBuf| {
        let is_packed = Compression::of_path(path).is_ok_and(|compression| compression.is_some());
        let _alone = is_packed.then(|| inflating.lock().unwrap_or_else(PoisonError::into_inner));
        check_shard(path, keeps_all)
    };
    each(paths, threads, check, progress)
}

/// The fields that samples must have.
pub(super) struct Expected<'a> {
    given: &'a [FieldSelector],
    /// Where none are given: what most samples have.
    usual: Vec<Usual>,
}

/// A field that most samples have.
struct Usual {
    ext: String,
    /// Whether a picture of another format does not stand for it.
    is_exact: bool,
}

impl<'a> Expected<'a> {
    pub(super) fn of(checked: &[Checked], given: &'a [FieldSelector]) -> Self {
        let usual = if given.is_empty() { Self::usual_of(checked) } else { Vec::new() };
        Self { given, usual }
    }

    fn usual_of(checked: &[Checked]) -> Vec<Usual> {
        let samples: u64 = checked.iter().map(|shard| shard.samples).sum();
        let is_most = |count: u64| count * 2 > samples;
        /// How many samples have a field of a family, and how many have each of its extensions.
        type Counts<'a> = (u64, BTreeMap<&'a str, u64>);
        let mut families: BTreeMap<Cow<'_, str>, Counts<'_>> = BTreeMap::new();
        for set in checked.iter().flat_map(|shard| &shard.sets) {
            let names: HashSet<Cow<'_, str>> = set.extensions.iter().map(|ext| family(ext)).collect();
            names.into_iter().for_each(|name| families.entry(name).or_default().0 += set.samples);
            for ext in &set.extensions {
                *families.entry(family(ext)).or_default().1.entry(ext).or_default() += set.samples;
            }
        }
        let mut usual = Vec::new();
        for (_, (count, extensions)) in families {
            // Most samples have both: they are two fields, such as a picture and its mask.
            let each: Vec<&str> =
                extensions.iter().filter(|(_, count)| is_most(**count)).map(|(ext, _)| *ext).collect();
            if each.len() > 1 {
                usual.extend(each.into_iter().map(|ext| Usual { ext: ext.to_owned(), is_exact: true }));
            } else if is_most(count)
                && let Some((ext, _)) = extensions.into_iter().rev().max_by_key(|(_, count)| *count)
            {
                usual.push(Usual { ext: ext.to_owned(), is_exact: false });
            }
        }
        usual
    }

    /// What a sample with these extensions lacks.
    pub(super) fn missing(&self, extensions: &[String]) -> Vec<String> {
        let has = |wanted: &str| extensions.iter().any(|ext| ext == wanted);
        let given = self.given.iter().filter(|field| field.pick(|ext| has(ext).then_some(())).is_none());
        let usual = self.usual.iter().filter(|usual| {
            let like = |ext: &String| !usual.is_exact && family(ext) == family(&usual.ext);
            !has(&usual.ext) && !extensions.iter().any(like)
        });
        given.map(ToString::to_string).chain(usual.map(|usual| usual.ext.clone())).collect()
    }

    fn find_missing(&self, path: &Path, shard: &Checked, findings: &mut Findings) {
        let is_short =
            |set: &FieldSet| set.samples > set.first.len() as u64 && !self.missing(&set.extensions).is_empty();
        let again;
        let sets = if findings.keeps_all() && shard.sets.iter().any(is_short) {
            // Their keys were not kept, since which fields are missing is known only once all shards are looked at.
            again = archive::all_keys(path);
            &again.sets
        } else {
            &shard.sets
        };
        for set in sets {
            let missing = self.missing(&set.extensions);
            if missing.is_empty() {
                continue;
            }
            let message = format!("the sample has no {}, only {}", missing.join(", "), set.extensions.join(", "));
            for (key, offset) in &set.first {
                findings.add(Finding::new(FindingKind::MissingField, path, &message).at_key(key).at_offset(*offset));
            }
            findings.count(FindingKind::MissingField, set.samples.saturating_sub(set.first.len() as u64));
        }
    }
}

/// Pictures of any format are one field, as loaders take them; with a name before the format, such as `seg.png`, those of one
/// name are.
fn family(ext: &str) -> Cow<'_, str> {
    match ext.rsplit_once('.') {
        Some((name, format)) if is_picture_field(format) => Cow::Owned(format!("{name}.jpg")),
        None if is_picture_field(ext) => Cow::Borrowed("jpg"),
        _ => Cow::Borrowed(ext),
    }
}

/// Keys that stand in more than one shard.
fn find_shared_keys(paths: &[PathBuf], checked: &[Checked], findings: &mut Findings) {
    if checked.len() < 2 {
        return;
    }
    let all = (0u32..).zip(checked).flat_map(|(shard, found)| found.keys.iter().map(move |&hash| (hash, shard)));
    let mut hashes: Vec<(u64, u32)> = all.collect();
    hashes.sort_unstable();
    let shared: Vec<&[(u64, u32)]> = hashes.chunk_by(|a, b| a.0 == b.0).filter(|same| same.len() > 1).collect();
    let Some(first) = shared.iter().min_by_key(|same| (same[1].1, same[0].1)) else { return };
    let path_of = |shard: u32| &paths[shard as usize];
    if !findings.keeps_all() {
        let (one, other) = (path_of(first[0].1), path_of(first[1].1));
        let message = format!("{} keys are in more than one shard, first in '{}' too", shared.len(), one.display());
        archive::keys_with_hashes(other, [first[0].0].into(), |_, key, _| {
            findings.add(Finding::new(FindingKind::SharedKey, other, &message).at_key(key));
        });
        findings.count(FindingKind::SharedKey, shared.len() as u64 - 1);
        return;
    }
    let mut of_shard: BTreeMap<u32, HashMap<u64, u32>> = BTreeMap::new();
    for same in shared {
        of_shard.entry(same[1].1).or_default().insert(same[0].0, same[0].1);
    }
    for (shard, ones) in of_shard {
        archive::keys_with_hashes(path_of(shard), ones.keys().copied().collect(), |hash, key, offset| {
            let one = ones.get(&hash).map(|&one| path_of(one).display().to_string()).unwrap_or_default();
            let finding = Finding::new(FindingKind::SharedKey, path_of(shard), format!("the key is in '{one}' too"));
            findings.add(finding.at_key(key).at_offset(offset));
        });
    }
}

/// An error of a shard as a finding.
fn finding_of(kind: FindingKind, path: &Path, error: &Error) -> Finding {
    let mut message = error.message().to_owned();
    if let Some(source) = std::error::Error::source(error) {
        message = format!("{message}: {source}");
    }
    let mut finding = Finding::new(kind, path, message);
    finding.key = error.place().key.clone();
    finding.offset = error.place().offset;
    finding
}
