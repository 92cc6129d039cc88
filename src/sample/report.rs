//! What grouping skipped, dropped or found odd, counted so that nothing is lost in silence.
//!
//! It holds numbers and a few names; it neither prints nor decides whether training may go on.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Key;

/// How many names a report keeps of each finding.
const NAMES_KEPT: usize = 8;
/// How many different extensions a report tells apart; fields with later ones are only counted.
const EXTENSIONS_MAX: usize = 1 << 16;
/// From this many one-off extensions on, and one in a hundred samples, a warning is due.
const ONE_OFF_WARNING_MIN: usize = 8;

/// What grouping met; reports of several shards add up with [`merge`](Self::merge).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupReport {
    /// Samples made.
    pub samples: u64,
    /// Fields in them.
    pub fields: u64,
    /// Members that are no files: directories, links, devices.
    pub not_files: u64,
    /// Files of macOS's own book-keeping (`._name`, `__MACOSX/`), skipped.
    pub appledouble: u64,
    /// Metadata of the archive (`__x__`, `__x__/…`), skipped.
    pub metadata: u64,
    /// Files whose names have no key or no extension, skipped.
    pub without_extension: u64,
    /// Fields given twice in one sample; the first stays.
    pub duplicate_fields: u64,
    /// Samples dropped because they carry a `__bad__` field that is not empty, as webdataset drops them.
    pub bad_samples: u64,
    /// Samples dropped because reading failed before their end was seen.
    pub cut_samples: u64,
    /// Times that a key came back later in its shard, so that its fields are spread over several samples.
    pub split_keys: u64,
    /// The first few keys that came back.
    pub split_key_names: Vec<Key>,
    /// The number of fields by extension; at most 65,536 extensions are told apart.
    pub extensions: BTreeMap<Arc<str>, u64>,
    /// Fields with an extension beyond those.
    pub extensions_untracked: u64,
}

impl GroupReport {
    /// The kind of the warning about samples that were dropped because reading failed inside them.
    pub(crate) const CUT_SAMPLES: &'static str = "cut_samples";

    /// Adds the counts of another report.
    pub fn merge(&mut self, other: &Self) {
        let Self { samples, fields, not_files, appledouble, metadata, without_extension, .. } = other;
        self.samples += samples;
        self.fields += fields;
        self.not_files += not_files;
        self.appledouble += appledouble;
        self.metadata += metadata;
        self.without_extension += without_extension;
        let Self { duplicate_fields, bad_samples, cut_samples, split_keys, extensions_untracked, .. } = other;
        self.duplicate_fields += duplicate_fields;
        self.bad_samples += bad_samples;
        self.cut_samples += cut_samples;
        self.split_keys += split_keys;
        self.extensions_untracked += extensions_untracked;
        let room = NAMES_KEPT.saturating_sub(self.split_key_names.len());
        self.split_key_names.extend(other.split_key_names.iter().take(room).cloned());
        for (ext, &count) in &other.extensions {
            self.add_extension(ext, count);
        }
    }

    /// The extensions that exactly one sample has: often a sign that dots in file names changed the keys.
    pub fn one_off_extensions(&self) -> impl Iterator<Item = &Arc<str>> {
        self.extensions.iter().filter(|&(_, &count)| count == 1).map(|(ext, _)| ext)
    }

    /// What a user should know, one plain sentence each; empty when all is well.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.oddities().into_iter().map(|(_, sentence)| sentence).collect()
    }

    /// The warnings, each with a word for its kind.
    pub(crate) fn oddities(&self) -> Vec<(&'static str, String)> {
        let mut oddities = Vec::new();
        if self.split_keys > 0 {
            let names: Vec<String> = self.split_key_names.iter().map(|key| format!("'{key}'")).collect();
            oddities.push(("split_keys", format!(
                "{} times a key came back later in its shard (first: {}): only neighbours are joined, so these samples \
                 lack fields; pack the members sorted by name",
                self.split_keys,
                names.join(", ")
            )));
        }
        let one_off = self.one_off_extensions().count();
        if one_off >= ONE_OFF_WARNING_MIN && one_off as u64 >= self.samples / 100 {
            let names: Vec<String> = self.one_off_extensions().take(3).map(|ext| format!("'{ext}'")).collect();
            oddities.push(("one_off_extensions", format!(
                "{one_off} extensions occur only once ({}, ..): the key ends at the first dot of a file name, so dots in \
                 names change the keys; splitting at the last dot may be what is meant",
                names.join(", ")
            )));
        }
        if self.duplicate_fields > 0 {
            oddities.push((
                "duplicate_fields",
                format!("{} fields are given twice in one sample; the first was kept", self.duplicate_fields),
            ));
        }
        if self.cut_samples > 0 {
            oddities.push((
                Self::CUT_SAMPLES,
                format!("{} samples were dropped because reading failed inside them", self.cut_samples),
            ));
        }
        oddities
    }

    /// Notes a key that came back.
    pub(super) fn add_split_key(&mut self, key: &[u8]) {
        self.split_keys += 1;
        if self.split_key_names.len() < NAMES_KEPT {
            self.split_key_names.push(Key::new(key.to_vec()));
        }
    }

    /// Adds `count` fields with this extension.
    pub(super) fn add_extension(&mut self, ext: &Arc<str>, count: u64) {
        if let Some(known) = self.extensions.get_mut(ext) {
            *known += count;
        } else if self.extensions.len() < EXTENSIONS_MAX {
            self.extensions.insert(ext.clone(), count);
        } else {
            self.extensions_untracked += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_add_up() {
        let mut one = GroupReport { samples: 3, appledouble: 1, ..GroupReport::default() };
        one.add_extension(&"jpg".into(), 3);
        one.add_split_key(b"a");
        let mut other = GroupReport { samples: 2, cut_samples: 1, ..GroupReport::default() };
        other.add_extension(&"jpg".into(), 1);
        other.add_extension(&"cls".into(), 1);
        (0..20).for_each(|_| other.add_split_key(b"b"));
        one.merge(&other);
        assert_eq!((one.samples, one.appledouble, one.cut_samples, one.split_keys), (5, 1, 1, 21));
        assert_eq!(one.split_key_names.len(), NAMES_KEPT);
        assert_eq!(one.extensions.values().copied().collect::<Vec<_>>(), [1, 4]);
        assert_eq!(one.one_off_extensions().map(|ext| &**ext).collect::<Vec<_>>(), ["cls"]);
    }

    #[test]
    fn dots_in_file_names_are_warned_of() {
        let mut report = GroupReport { samples: 900, ..GroupReport::default() };
        (0..8).for_each(|number| report.add_extension(&format!("{number:04}.jpg").into(), 1));
        assert_eq!(report.warnings(), [] as [String; 0], "fewer than one in a hundred samples");
        report.samples = 8;
        let warnings = report.warnings();
        assert!(warnings.len() == 1 && warnings[0].contains("last dot"), "{warnings:?}");
    }

    #[test]
    fn extensions_beyond_the_limit_are_only_counted() {
        let mut report = GroupReport::default();
        (0..EXTENSIONS_MAX + 5).for_each(|number| report.add_extension(&number.to_string().into(), 1));
        assert_eq!((report.extensions.len(), report.extensions_untracked), (EXTENSIONS_MAX, 5));
    }
}
