//! A conversion in a folder that goes with it, and what must hold of whatever it writes.

use std::fs;
use std::path::{Path, PathBuf};

use brimful::convert::{
    Conversion, ConvertOptions, Duplicates, ErrorBudget, FindingKind, Names, Outcome, SourceKind, VerifyOptions, verify,
};
use brimful::shard::{Shard, ShardOptions};

/// What no shard of ours may have, however odd its source is.
const NEVER: [FindingKind; 15] = [
    FindingKind::Unreadable,
    FindingKind::NotTar,
    FindingKind::DamagedHeader,
    FindingKind::Cut,
    FindingKind::MissingEnd,
    FindingKind::LoneZeroBlock,
    FindingKind::HiddenMembers,
    FindingKind::TrailingBytes,
    FindingKind::Sparse,
    FindingKind::Link,
    FindingKind::SplitGroup,
    FindingKind::DuplicateKey,
    FindingKind::DuplicateField,
    FindingKind::AppleDouble,
    FindingKind::StaleIndex,
];

/// Asserts that the shards are whole and group as they were written.
pub fn assert_sound(shards: &[PathBuf]) {
    let options = VerifyOptions { threads: 1, ..VerifyOptions::default() };
    let found = verify(shards, &options, &|_, _| {}).expect("headers alone are looked at");
    assert!(!NEVER.iter().any(|kind| found.counts.contains_key(kind)), "{:?}", found.findings);
}

/// Converts `source` as far as it goes. Names and bytes of all members, if anything came of it.
pub fn convert(source: &Path) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let out = tempfile::tempdir().expect("a folder");
    let options = ConvertOptions {
        names: Names::Escape,
        duplicates: Duplicates::Rename,
        errors_max: ErrorBudget::Count(u64::MAX),
        ..ConvertOptions::default()
    };
    let before = fs::read(source).expect("the source");
    let kind = SourceKind::of(source).ok()?;
    let made = Conversion::plan(&kind, &out.path().join("out"), options).ok()?.run(&|_, _| {});
    assert!(fs::read(source).expect("the source") == before, "the source was written to");
    let Outcome::Complete(dataset) = made.ok()? else { return None };
    let shards = dataset.splits.iter().flat_map(|split| &split.shards);
    let shards: Vec<PathBuf> = shards.map(|shard| out.path().join("out").join(&shard.name)).collect();
    assert_sound(&shards);
    let mut members = Vec::new();
    for path in shards {
        let shard = Shard::open(&path, &ShardOptions::default()).expect("a shard");
        for member in shard.members() {
            let member = member.expect("a whole shard");
            let bytes = shard.read(member.offset..member.offset + member.size).expect("a whole shard");
            members.push((member.name.to_vec(), bytes.to_vec()));
        }
    }
    Some(members)
}

/// A good file with some bytes changed, as three bytes each of the input say.
pub fn changed(good: &[u8], input: &[u8]) -> Vec<u8> {
    let mut changed = good.to_vec();
    for change in input.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % changed.len();
        changed[at] ^= change[2];
    }
    changed
}
