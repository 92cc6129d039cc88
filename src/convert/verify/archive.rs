//! One shard walked along its headers: damage, grouping, names, and whether indexes beside it still fit. It reads no data.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use twox_hash::XxHash3_128;

use super::beside::Beside;
use super::finding::{Finding, FindingKind, Findings};
use super::finding_of;
use crate::error::{Error, ErrorKind};
use crate::sample::{Key, is_appledouble, is_metadata, split_name};
use crate::shard::{Damage, Loss, Member, MemberKind, ScanReport, Shard, ShardOptions};

/// Keys that are kept of each set of fields.
const KEYS_KEPT: usize = 20;

/// What one shard holds and what is wrong with it.
#[derive(Debug, Default)]
pub(in crate::convert) struct Checked {
    pub(super) samples: u64,
    pub(super) bytes: u64,
    pub(super) fields: BTreeMap<String, u64>,
    /// Samples by the set of their extensions.
    pub(super) sets: Vec<FieldSet>,
    /// Hashes of all keys.
    pub(super) keys: Vec<u64>,
    pub(super) findings: Findings,
    /// Ranges that were passed over as damaged.
    pub(in crate::convert) losses: Vec<Loss>,
    /// How many there are, more than are kept, and bytes of all.
    pub(in crate::convert) losses_all: (u64, u64),
    /// The first sparse members, which were passed over, and how many there are.
    pub(in crate::convert) sparse: (Vec<Loss>, u64),
    /// Whether the archive ends without end blocks.
    pub(in crate::convert) is_cut: bool,
}

/// Samples that have the same fields.
#[derive(Debug, Default)]
pub(super) struct FieldSet {
    /// Sorted.
    pub(super) extensions: Vec<String>,
    pub(super) samples: u64,
    /// The first few of them: key, and offset of the first header.
    pub(super) first: Vec<(String, u64)>,
}

/// Walks along the headers of the shard at `path`. Of findings alike, all are kept or the first ones.
pub(super) fn check_shard(path: &Path, keeps_all: bool) -> Checked {
    check(path, Findings::new(keeps_all), KEYS_KEPT)
}

/// The sets of fields in the shard at `path`, with the keys of all samples.
pub(super) fn all_keys(path: &Path) -> Checked {
    check(path, Findings::default(), usize::MAX)
}

fn check(path: &Path, findings: Findings, keys_kept: usize) -> Checked {
    let mut checked = Checked { findings, ..Checked::default() };
    let options = ShardOptions { damage: Damage::Resync, ..ShardOptions::default() };
    let shard = match Shard::open(path, &options) {
        Ok(shard) => shard,
        Err(error) => {
            checked.findings.add(finding_of(kind_of(&error, FindingKind::Unreadable), path, &error));
            return checked;
        }
    };
    checked.bytes = std::fs::metadata(path).map_or(shard.len(), |found| found.len());
    let mut walk = Walk::new(path, &mut checked, Beside::of(path), keys_kept);
    let mut members = shard.members();
    let mut is_archive = true;
    for member in members.by_ref() {
        match member {
            Ok(member) => walk.take(&member),
            Err(error) => {
                is_archive = false;
                let kind = kind_of(&error, FindingKind::DamagedHeader);
                walk.checked.findings.add(finding_of(kind, path, &error));
            }
        }
    }
    walk.finish();
    let report = members.report().clone();
    tell_report(path, &report, &mut checked.findings);
    if is_archive && is_empty(&report) {
        checked.findings.add(Finding::new(FindingKind::NoMembers, path, "the archive has no members"));
    }
    checked.is_cut = report.missing_end;
    checked.losses_all = (report.resyncs, report.lost_bytes);
    checked.sparse = (report.sparse_members, report.sparse);
    checked.losses = report.losses;
    checked
}

/// Tells the keys in a shard whose hashes are among these, each once, with the offset of its first header.
pub(super) fn keys_with_hashes(path: &Path, mut hashes: HashSet<u64>, mut tell: impl FnMut(u64, &str, u64)) {
    let options = ShardOptions { damage: Damage::Resync, ..ShardOptions::default() };
    let Ok(shard) = Shard::open(path, &options) else { return };
    for member in shard.members().flatten() {
        if hashes.is_empty() {
            return;
        }
        let Some((key, _)) = split_name(&member.name) else { continue };
        let hash = hash_of(key);
        if hashes.remove(&hash) {
            tell(hash, &shown(key.to_vec()), member.header_offset);
        }
    }
}

fn hash_of(key: &[u8]) -> u64 {
    XxHash3_128::oneshot(key) as u64
}

fn shown(key: impl Into<bytes::Bytes>) -> String {
    Key::new(key).to_string()
}

fn kind_of(error: &Error, otherwise: FindingKind) -> FindingKind {
    match error.kind() {
        ErrorKind::NotTar => FindingKind::NotTar,
        ErrorKind::Truncated => FindingKind::Cut,
        ErrorKind::BadHeader => FindingKind::DamagedHeader,
        ErrorKind::Io | ErrorKind::NotFound | ErrorKind::ShardChanged | ErrorKind::Limit => FindingKind::Unreadable,
        _ => otherwise,
    }
}

/// Damage that the walk passed over. Only strict rules have the words for it, so the shard is walked by them once more, as
/// far as the first damage.
fn tell_report(path: &Path, report: &ScanReport, findings: &mut Findings) {
    if report.resyncs > 0 || report.missing_end || report.sparse > 0 {
        let strict = Shard::open(path, &ShardOptions::default()).ok();
        let first = strict.and_then(|shard| shard.members().find_map(Result::err));
        if let Some(error) = &first {
            let kind = match error.kind() {
                ErrorKind::Unsupported => FindingKind::Sparse,
                ErrorKind::Truncated if report.resyncs == 0 => FindingKind::MissingEnd,
                _ => kind_of(error, FindingKind::DamagedHeader),
            };
            findings.add(finding_of(kind, path, error));
        }
        let told = first.as_ref().and_then(|error| error.place().offset);
        for loss in report.losses.iter().filter(|loss| !told.is_some_and(|at| reaches(loss, at))) {
            let message = format!("{} bytes up to the next good header are lost", loss.bytes);
            findings.add(Finding::new(FindingKind::DamagedHeader, path, message).at_offset(loss.offset));
        }
        findings.count(FindingKind::DamagedHeader, report.resyncs.saturating_sub(report.losses.len() as u64));
        let is_told = first.as_ref().is_some_and(|error| error.kind() == ErrorKind::Truncated);
        if report.missing_end && !is_told {
            findings.add(Finding::new(FindingKind::MissingEnd, path, "the archive ends without end blocks"));
        }
    }
    if let Some(Loss { offset, bytes }) = report.zero_run {
        let message = format!("{bytes} bytes of zeros, more than an archive ends with");
        findings.add(Finding::new(FindingKind::ZeroRun, path, message).at_offset(offset));
    }
    let mut tell = |count: u64, kind, message: String| {
        if count > 0 {
            findings.add(Finding::new(kind, path, message));
        }
    };
    let (more, lone, behind) = (report.archives_more, report.zero_blocks, report.trailing_bytes);
    tell(more, FindingKind::HiddenMembers, format!("{more} more archives stand behind the end of the first"));
    tell(lone, FindingKind::LoneZeroBlock, format!("{lone} times one zero block stands where an end has two"));
    tell(behind, FindingKind::TrailingBytes, format!("{behind} bytes behind the end are no members"));
}

/// Whether an archive that is whole holds nothing.
fn is_empty(report: &ScanReport) -> bool {
    report.is_whole() && report.files + report.dirs + report.links + report.others == 0
}

fn reaches(loss: &Loss, at: u64) -> bool {
    (loss.offset..=loss.offset.saturating_add(loss.bytes)).contains(&at)
}

/// The walk through one shard: groups members as loaders do, and remembers each key by its hash.
struct Walk<'a> {
    path: &'a Path,
    checked: &'a mut Checked,
    beside: Beside,
    /// Numbers of extensions and of sets of them.
    extensions: HashMap<Vec<u8>, u32>,
    names: Vec<String>,
    sets: HashMap<Vec<u32>, usize>,
    /// The set of the last sample with a key, by the key's hash.
    seen: HashMap<u64, usize>,
    open: Option<Open>,
    /// Keys that are kept of each set.
    keys_kept: usize,
    appledouble: Count,
    without: Count,
    links: Count,
    empty: u64,
}

/// The sample that is being read.
struct Open {
    key: bytes::Bytes,
    offset: u64,
    fields: Vec<u32>,
}

/// How many, and the first or all of them.
struct Count {
    count: u64,
    kept: Vec<(String, u64)>,
    kept_max: usize,
}

impl Count {
    fn new(keeps_all: bool) -> Self {
        Self { count: 0, kept: Vec::new(), kept_max: if keeps_all { usize::MAX } else { 1 } }
    }

    fn add(&mut self, member: &Member) {
        self.count += 1;
        if self.kept.len() < self.kept_max {
            self.kept.push((shown(member.name.clone()), member.header_offset));
        }
    }
}

impl<'a> Walk<'a> {
    fn new(path: &'a Path, checked: &'a mut Checked, beside: Beside, keys_kept: usize) -> Self {
        let keeps_all = checked.findings.keeps_all();
        Self {
            path,
            checked,
            beside,
            extensions: HashMap::new(),
            names: Vec::new(),
            sets: HashMap::new(),
            seen: HashMap::new(),
            open: None,
            keys_kept,
            appledouble: Count::new(keeps_all),
            without: Count::new(keeps_all),
            links: Count::new(keeps_all),
            empty: 0,
        }
    }

    fn take(&mut self, member: &Member) {
        match member.kind {
            MemberKind::File => self.beside.take(member),
            MemberKind::Symlink | MemberKind::HardLink => return self.links.add(member),
            MemberKind::Dir | MemberKind::Other(_) => return,
        }
        if is_metadata(&member.name) {
            return;
        }
        if is_appledouble(&member.name) {
            return self.appledouble.add(member);
        }
        let Some((key, ext)) = split_name(&member.name) else { return self.without.add(member) };
        if self.open.as_ref().is_none_or(|open| open.key != key) {
            self.close();
            let key = member.name.slice(..key.len());
            self.open = Some(Open { key, offset: member.header_offset, fields: Vec::with_capacity(4) });
        }
        let number = self.number(ext);
        let Some(open) = &mut self.open else { return };
        if open.fields.contains(&number) {
            let message = format!("the field '{}' is given twice", self.names[number as usize]);
            let finding = Finding::new(FindingKind::DuplicateField, self.path, message);
            self.checked.findings.add(finding.at_key(&shown(open.key.clone())).at_offset(member.header_offset));
            return;
        }
        if member.size == 0 {
            self.empty += 1;
            let message = format!("the field '{}' has no bytes", self.names[number as usize]);
            let finding = Finding::new(FindingKind::EmptyField, self.path, message);
            self.checked.findings.add(finding.at_key(&shown(open.key.clone())).at_offset(member.header_offset));
        }
        open.fields.push(number);
    }

    /// The number of an extension, in whatever case it is written.
    fn number(&mut self, ext: &[u8]) -> u32 {
        if let Some(&number) = self.extensions.get(ext) {
            return number;
        }
        let name = Key::new(ext.to_vec()).to_string().to_lowercase();
        let number = self.names.iter().position(|known| *known == name).unwrap_or_else(|| {
            self.names.push(name);
            self.names.len() - 1
        }) as u32;
        self.extensions.insert(ext.to_vec(), number);
        number
    }

    /// Ends the sample that is being read.
    fn close(&mut self) {
        let Some(Open { key, offset, mut fields }) = self.open.take() else { return };
        fields.sort_unstable();
        let set = match self.sets.get(&fields) {
            Some(&set) => set,
            None => {
                let mut extensions: Vec<String> =
                    fields.iter().map(|&field| self.names[field as usize].clone()).collect();
                extensions.sort();
                self.checked.sets.push(FieldSet { extensions, ..FieldSet::default() });
                self.sets.insert(fields, self.checked.sets.len() - 1);
                self.checked.sets.len() - 1
            }
        };
        self.checked.samples += 1;
        let found = &mut self.checked.sets[set];
        found.samples += 1;
        if found.first.len() < self.keys_kept {
            found.first.push((shown(key.clone()), offset));
        }
        let hash = hash_of(&key);
        match self.seen.insert(hash, set) {
            None => self.checked.keys.push(hash),
            Some(before) => {
                let (before, now) = (&self.checked.sets[before].extensions, &self.checked.sets[set].extensions);
                let (kind, message) = match before.iter().find(|ext| now.contains(ext)) {
                    Some(ext) => (FindingKind::DuplicateKey, format!("an earlier sample has the key, and its '{ext}'")),
                    None => (FindingKind::SplitGroup, "fields with this key stand further up, not beside it".into()),
                };
                let finding = Finding::new(kind, self.path, message);
                self.checked.findings.add(finding.at_key(&shown(key)).at_offset(offset));
            }
        }
    }

    fn finish(mut self) {
        self.close();
        for FieldSet { extensions, samples, .. } in &self.checked.sets {
            for ext in extensions {
                *self.checked.fields.entry(ext.clone()).or_default() += samples;
            }
        }
        let counts = [
            (self.appledouble, FindingKind::AppleDouble, "files of macOS's own book-keeping"),
            (self.without, FindingKind::NoExtension, "files have no key or no extension"),
            (self.links, FindingKind::Link, "links carry no data"),
        ];
        for (Count { count, kept, kept_max }, kind, what) in counts {
            let more = count - kept.len() as u64;
            for (name, offset) in kept {
                let message = match kept_max {
                    1 => format!("{count} {what} (first: '{name}')"),
                    _ => format!("'{name}': {what}"),
                };
                self.checked.findings.add(Finding::new(kind, self.path, message).at_offset(offset));
            }
            self.checked.findings.count(kind, more);
        }
        for message in self.beside.finish(self.checked.samples) {
            self.checked.findings.add(Finding::new(FindingKind::StaleIndex, self.path, message));
        }
    }
}
