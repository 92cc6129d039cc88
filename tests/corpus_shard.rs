//! Holds the shard reader to a corpus of odd and damaged archives, where one lies beside the repository.
//!
//! It is no test of pixels; where brimful differs on purpose, `agreed_differences.tsv` says why.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use brimful::sample::{Grouping, group_by_key};
use brimful::shard::{Member, MemberKind, Shard, ShardOptions, ShardStream};
use brimful::{Error, ErrorKind};
use serde_json::Value;

/// The corpus: named by `BRIMFUL_CORPUS`, else beside the repository.
fn corpus() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus");
    let folder = std::env::var_os("BRIMFUL_CORPUS").map_or_else(beside, PathBuf::from);
    folder.join("expected.jsonl").exists().then_some(folder)
}

/// What became of an archive: its members, and the error behind them.
struct Outcome {
    members: Vec<Member>,
    error: Option<Error>,
}

impl Outcome {
    fn of(path: &Path) -> Self {
        let mut outcome = Self { members: Vec::new(), error: None };
        match Shard::open(path, &ShardOptions::default()) {
            Ok(shard) => shard.members().for_each(|member| outcome.take(member)),
            Err(error) => outcome.error = Some(error),
        }
        outcome
    }

    fn of_stream(path: &Path) -> Self {
        let mut outcome = Self { members: Vec::new(), error: None };
        match ShardStream::open(path, &ShardOptions::default()) {
            Ok(stream) => stream.for_each(|member| outcome.take(member.map(|(member, _)| member))),
            Err(error) => outcome.error = Some(error),
        }
        outcome
    }

    fn take(&mut self, member: brimful::Result<Member>) {
        match member {
            Ok(member) => self.members.push(member),
            Err(error) => self.error = Some(error),
        }
    }

    /// One line: the number of members and the kind of the error; of samples, if they are sound.
    fn summary(&self) -> String {
        let error = self.error.as_ref().map(|error| format!(", then {}", error.kind().as_str())).unwrap_or_default();
        let samples = samples(&self.members).map_or(0, |samples| samples.len());
        format!("{} members, {samples} samples{error}", self.members.len())
    }
}

/// A key as the corpus writes it down: where it is text, without the escapes that ours has.
fn as_recorded(key: &brimful::sample::Key) -> String {
    key.to_str().map_or_else(|| key.to_string(), str::to_owned)
}

/// A sample as the corpus writes it down: its key, and its fields with their sizes by extension.
type Sample = (String, BTreeMap<String, u64>);

fn samples(members: &[Member]) -> Result<Vec<Sample>, Error> {
    let members = members.iter().cloned().map(Ok);
    group_by_key(members, &Grouping::default())
        .map(|sample| {
            let sample = sample?;
            let fields = sample.fields.iter().map(|field| (field.ext.to_string(), field.value.size)).collect();
            Ok((as_recorded(&sample.key), fields))
        })
        .collect()
}

fn expected_samples(expected: &Value) -> Vec<Sample> {
    serde_json::from_value(expected["wds_samples"].clone()).expect("a list of samples")
}

/// A member as the corpus writes it down: name, type flag, size, offset of the data.
type Line = (String, char, u64, u64);

fn line(member: &Member) -> Line {
    let mut name = String::new();
    for chunk in member.name.utf8_chunks() {
        name.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| name.push_str(&format!("\\x{byte:02x}")));
    }
    let flag = match member.kind {
        MemberKind::File => '0',
        MemberKind::HardLink => '1',
        MemberKind::Symlink => '2',
        MemberKind::Dir => '5',
        MemberKind::Other(flag) => char::from(flag),
    };
    let name = if flag == '5' { name.trim_end_matches('/').to_owned() } else { name };
    (name, flag, if flag == '0' { member.size } else { 0 }, member.offset)
}

fn expected_lines(expected: &Value) -> Vec<Line> {
    let members = expected["tarfile_members"].as_array().expect("a list of members");
    members
        .iter()
        .map(|member| {
            let flag = match member["type"].as_str().and_then(|flag| flag.chars().next()) {
                Some('\0' | '7') | None => '0',
                Some(flag) => flag,
            };
            let number = |key: &str| member[key].as_u64().unwrap_or(u64::MAX);
            let size = if flag == '0' { number("size") } else { 0 };
            (member["name"].as_str().unwrap_or_default().to_owned(), flag, size, number("off"))
        })
        .collect()
}

/// Whether the outcome is what the corpus expects.
fn agrees(outcome: &Outcome, expected: &Value) -> bool {
    let samples = samples(&outcome.members);
    if samples.is_err() && outcome.error.is_none() {
        return !expected["wds_error"].is_null();
    }
    let ours: Vec<Line> = outcome.members.iter().map(line).collect();
    let theirs = expected_lines(expected);
    let error = outcome.error.as_ref().map(Error::kind);
    let same_samples = samples.is_ok_and(|samples| samples == expected_samples(expected));
    let same = ours == theirs && error.is_none() && same_samples;
    // The reference lists a member whose data are cut; here it is the error.
    let good_part = theirs.starts_with(&ours) && ours.len() + 1 >= theirs.len() && error.is_some();
    match expected["outcome"].as_str() {
        Some("samples") => same,
        Some("samples-then-error") => good_part,
        Some("error") => error.is_some(),
        Some("samples-or-error") => same || (theirs.starts_with(&ours) && error.is_some()),
        Some("expand-or-error") => error == Some(ErrorKind::Unsupported),
        // The reference could not decompress Zstandard, so it has no members there.
        Some("decompress-or-error") => same || error.is_some() || theirs.is_empty(),
        other => panic!("an outcome that this test does not know: {other:?}"),
    }
}

#[test]
fn every_archive_of_the_corpus_reads_as_expected_or_as_agreed() {
    let Some(corpus) = corpus() else { return skipped() };
    let table = include_str!("agreed_differences.tsv");
    let mut agreed: BTreeMap<&str, &str> = BTreeMap::new();
    for row in table.lines().skip(1) {
        let columns: Vec<&str> = row.split('\t').collect();
        let [path, _expected, ours, _reason] = columns[..] else { panic!("not four columns: {row}") };
        if path.starts_with("tar/") || path.starts_with("wds/") {
            agreed.insert(path, ours);
        }
    }
    let mut wrong = Vec::new();
    for expected in fs::read_to_string(corpus.join("expected.jsonl")).expect("readable").lines() {
        let expected: Value = serde_json::from_str(expected).expect("a JSON object");
        let path = expected["path"].as_str().expect("a path");
        if !path.starts_with("tar/") && !path.starts_with("wds/") {
            continue;
        }
        let outcome = Outcome::of(&corpus.join(path));
        let stream = Outcome::of_stream(&corpus.join(path));
        // A stream sees a cut or an impossible size later, so its error may be another one.
        let same_error = outcome.error.is_some() == stream.error.is_some();
        if !same_error || !stream.members.starts_with(&outcome.members) {
            wrong.push(format!("{path}: {} as a stream, {} otherwise", stream.summary(), outcome.summary()));
        }
        let summary = outcome.summary();
        match (agrees(&outcome, &expected), agreed.remove(path)) {
            (true, None) => {}
            (true, Some(_)) => wrong.push(format!("{path}: agrees now, but stands in the table")),
            (false, Some(ours)) if ours == summary => {}
            (false, _) => {
                let (members, samples) = (expected_lines(&expected).len(), expected_samples(&expected).len());
                let theirs = format!("{} {members} members, {samples} samples", expected["outcome"]);
                let error = outcome.error.as_ref().map(ToString::to_string).unwrap_or_default();
                wrong.push(format!("{path}: expected {theirs}, got {summary} {error}"));
            }
        }
        if let Some(error) = &outcome.error {
            let place = error.place();
            let compressed = error.message().contains("shard is");
            assert!(place.shard.is_some() && (compressed || place.offset.is_some()), "{path}: {error}");
        }
    }
    wrong.extend(agreed.keys().map(|path| format!("{path}: in the table, but not in the corpus")));
    assert!(wrong.is_empty(), "{} surprises:\n{}", wrong.len(), wrong.join("\n"));
}

#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn skipped() {
    eprintln!("skipped: no corpus lies beside the repository");
}
