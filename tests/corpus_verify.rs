//! Holds `verify` to a corpus of odd and damaged archives, where one lies beside the repository: no silent damage, and
//! nothing found in good shards.

use std::fs;
use std::path::{Path, PathBuf};

use brimful::convert::{FindingKind, VerifyOptions, verify};
use serde_json::Value;

/// Archives among the good ones that are packed in the order of a folder, so that samples are torn apart.
const TORN: [&str; 1] = ["wds/good/syn-gnutar-dot.tar"];

/// Archives that end in more zeros than they must have, as those whose records are filled up: no damage.
const PADDED: [&str; 1] = ["tar/ends-damage/syn-record-padded.tar"];

/// The corpus: named by `BRIMFUL_CORPUS`, else beside the repository.
fn corpus() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus");
    let folder = std::env::var_os("BRIMFUL_CORPUS").map_or_else(beside, PathBuf::from);
    folder.join("expected.jsonl").exists().then_some(folder)
}

#[test]
fn no_damage_is_silent_and_good_shards_have_no_finding() {
    let Some(corpus) = corpus() else { return skipped() };
    let mut wrong = Vec::new();
    let mut excused = Vec::new();
    for expected in fs::read_to_string(corpus.join("expected.jsonl")).unwrap().lines() {
        let expected: Value = serde_json::from_str(expected).unwrap();
        let path = expected["path"].as_str().unwrap();
        if !path.starts_with("tar/") && !path.starts_with("wds/") {
            continue;
        }
        let options = VerifyOptions { threads: 1, ..VerifyOptions::default() };
        let found = verify(&[corpus.join(path)], &options, &|_, _| {}).unwrap();
        let kinds: Vec<FindingKind> = found.counts.keys().copied().collect();
        let must = matches!(expected["outcome"].as_str(), Some("error" | "samples-then-error" | "expand-or-error"));
        if must && kinds.is_empty() {
            wrong.push(format!("{path}: {} without a finding", expected["outcome"]));
        }
        let must_not = path.starts_with("wds/good/") || path.starts_with("wds/many/");
        if must_not && !kinds.is_empty() {
            match TORN.iter().find(|torn| **torn == path && kinds == [FindingKind::SplitGroup]) {
                Some(torn) => excused.push(*torn),
                None => wrong.push(format!("{path}: {:?}", found.findings)),
            }
        }
        if path.starts_with("tar/ends-damage/") && kinds.is_empty() {
            match PADDED.iter().find(|padded| **padded == path) {
                Some(padded) => excused.push(*padded),
                None => wrong.push(format!("{path}: silent damage")),
            }
        }
    }
    let excuses = [&TORN[..], &PADDED].concat();
    wrong.extend(excuses.iter().filter(|path| !excused.contains(path)).map(|path| format!("{path}: needs no excuse")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn skipped() {
    eprintln!("skipped: no corpus lies beside the repository");
}
