//! One thing that is wrong with a shard, and the list of all of them, which stays short however many there are.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

/// Findings of one kind that are kept for one shard; further ones are counted.
const KEPT_MAX: u64 = 20;

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FindingKind {
    /// The shard cannot be opened or read.
    Unreadable,
    /// It is no tar archive.
    NotTar,
    /// A header is damaged, or bytes stand where a header should.
    DamagedHeader,
    /// The archive ends inside a member.
    Cut,
    /// The archive ends without end blocks, as one that was cut between members.
    MissingEnd,
    /// A single zero block where an archive's end has two: some readers end there.
    LoneZeroBlock,
    /// Further archives behind the end of the first: most readers see none of their members.
    HiddenMembers,
    /// Bytes behind the end that are no members.
    TrailingBytes,
    /// More zeros than an archive ends with, where members may have stood: a copy that was cut and filled up.
    ZeroRun,
    /// An archive without any member.
    NoMembers,
    /// Sparse members, which are not read.
    Sparse,
    /// Links, which carry no data.
    Link,
    /// The members of one sample are not neighbours.
    SplitGroup,
    /// Two samples have one key.
    DuplicateKey,
    /// Two samples in different shards have one key.
    SharedKey,
    /// A field is given twice in one sample.
    DuplicateField,
    /// Files of macOS's own book-keeping.
    #[serde(rename = "appledouble")]
    AppleDouble,
    /// A sample lacks a field.
    MissingField,
    /// A field has no bytes.
    EmptyField,
    /// Files that belong to no sample, since they have no key or no extension.
    NoExtension,
    /// An index beside the shard does not fit it.
    StaleIndex,
    /// The shard's bytes are not those that its data set's description says.
    HashMismatch,
    /// A shard of the data set's description is not there.
    MissingShard,
    /// An image cannot be decoded whole.
    BadImage,
}

impl FindingKind {
    /// The kind as one word, as JSON has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::NotTar => "not_tar",
            Self::DamagedHeader => "damaged_header",
            Self::Cut => "cut",
            Self::MissingEnd => "missing_end",
            Self::LoneZeroBlock => "lone_zero_block",
            Self::HiddenMembers => "hidden_members",
            Self::TrailingBytes => "trailing_bytes",
            Self::ZeroRun => "zero_run",
            Self::NoMembers => "no_members",
            Self::Sparse => "sparse",
            Self::Link => "link",
            Self::SplitGroup => "split_group",
            Self::DuplicateKey => "duplicate_key",
            Self::SharedKey => "shared_key",
            Self::DuplicateField => "duplicate_field",
            Self::AppleDouble => "appledouble",
            Self::MissingField => "missing_field",
            Self::EmptyField => "empty_field",
            Self::NoExtension => "no_extension",
            Self::StaleIndex => "stale_index",
            Self::HashMismatch => "hash_mismatch",
            Self::MissingShard => "missing_shard",
            Self::BadImage => "bad_image",
        }
    }

    /// What one can do about it.
    #[must_use]
    pub fn advice(self) -> &'static str {
        match self {
            Self::Unreadable => "look at the file's permissions and its disk",
            Self::NotTar => "fetch or make the file again",
            Self::DamagedHeader | Self::Cut => "fetch the shard again; --fix keeps the samples that are whole",
            Self::HashMismatch => "fetch or make the shard again: which of its bytes have changed nobody knows",
            Self::MissingEnd => "samples may be missing: compare with the source; --fix writes a proper end",
            Self::LoneZeroBlock | Self::HiddenMembers => {
                "most readers stop there: --fix writes all members into one archive"
            }
            Self::TrailingBytes => {
                "harmless for reading, but the file was not written as it should be; --fix drops them"
            }
            Self::ZeroRun => "samples may be missing: compare with the source, or fetch the shard again",
            Self::NoMembers => "leave the shard out, or fetch it again",
            Self::Sparse => "write the archive again without --sparse: --fix lists such members, but cannot read them",
            Self::Link => "write the archive again with tar --dereference --hard-dereference",
            Self::SplitGroup => "loaders see these as several samples that lack fields: --fix puts them together",
            Self::SharedKey => "brimful convert of all these shards with --duplicates rename or drop makes keys single",
            Self::DuplicateKey | Self::DuplicateField => "--fix --duplicates rename or drop",
            Self::AppleDouble => "--fix drops them; on a Mac set COPYFILE_DISABLE=1 before tar",
            Self::MissingField => "find the missing files in the source; loaders may skip such samples",
            Self::EmptyField => "find the files in the source: empty ones do not decode",
            Self::NoExtension => "loaders skip them: rename them, or leave them out with --fix",
            Self::StaleIndex => "brimful index --format beside or --format dali writes it anew",
            Self::MissingShard => "fetch or make the shard again",
            Self::BadImage => "find the picture in the source; --fix --decode leaves such samples out",
        }
    }
}

/// One thing that is wrong with a shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The shard's path.
    pub shard: String,
    /// What is wrong.
    pub kind: FindingKind,
    /// Where in the shard, in bytes, as far as it has a place.
    pub offset: Option<u64>,
    /// The key of the sample, as far as it concerns one.
    pub key: Option<String>,
    /// A sentence about it.
    pub message: String,
}

impl Finding {
    pub(super) fn new(kind: FindingKind, shard: &Path, message: impl Into<String>) -> Self {
        Self { shard: shard.to_string_lossy().into_owned(), kind, offset: None, key: None, message: message.into() }
    }

    pub(super) fn at_key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    pub(super) fn at_offset(mut self, offset: u64) -> Self {
        self.offset = Some(offset);
        self
    }
}

/// A list of findings.
#[derive(Debug, Clone)]
pub(in crate::convert) struct Findings {
    /// Of one kind and shard.
    kept_max: u64,
    kept: Vec<Finding>,
    counts: BTreeMap<FindingKind, u64>,
    /// How many were kept by shard and kind, for the shard that was added to last.
    of_shard: (String, BTreeMap<FindingKind, u64>),
}

impl Default for Findings {
    fn default() -> Self {
        Self::new(false)
    }
}

impl Findings {
    /// A list that keeps all findings, or the first of each kind and shard.
    pub(super) fn new(keeps_all: bool) -> Self {
        let kept_max = if keeps_all { u64::MAX } else { KEPT_MAX };
        Self { kept_max, kept: Vec::new(), counts: BTreeMap::new(), of_shard: (String::new(), BTreeMap::new()) }
    }

    pub(super) fn keeps_all(&self) -> bool {
        self.kept_max == u64::MAX
    }

    pub(super) fn add(&mut self, finding: Finding) {
        *self.counts.entry(finding.kind).or_default() += 1;
        if self.of_shard.0 != finding.shard {
            self.of_shard = (finding.shard.clone(), BTreeMap::new());
        }
        let kept = self.of_shard.1.entry(finding.kind).or_default();
        *kept += 1;
        if *kept <= self.kept_max {
            self.kept.push(finding);
        }
    }

    /// Counts `more` of a kind that are not kept.
    pub(super) fn count(&mut self, kind: FindingKind, more: u64) {
        if more > 0 {
            *self.counts.entry(kind).or_default() += more;
        }
    }

    pub(super) fn extend(&mut self, other: &Self) {
        self.kept.extend(other.kept.iter().cloned());
        other.counts.iter().for_each(|(kind, count)| self.count(*kind, *count));
    }

    pub(super) fn finish(mut self) -> (Vec<Finding>, BTreeMap<FindingKind, u64>) {
        // Stable: shards stay in their order only where they are told apart by it, so the place in the list decides first.
        let mut order: BTreeMap<String, usize> = BTreeMap::new();
        for finding in &self.kept {
            let next = order.len();
            order.entry(finding.shard.clone()).or_insert(next);
        }
        self.kept.sort_by_key(|finding| (order.get(&finding.shard).copied(), finding.offset.unwrap_or(u64::MAX)));
        (self.kept, self.counts)
    }
}
