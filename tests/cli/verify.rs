//! `brimful verify`.

use serde_json::Value;

use crate::archive::{SAMPLE_BYTES, archive, damaged, samples};
use crate::program::{Program, assert_document};

#[test]
fn nothing_wrong_is_exit_code_0() {
    let program = Program::new();
    program.write("a.tar", &samples(3));
    let run = program.run(&["verify", "a.tar"]).ends_quietly();
    assert_eq!(run.lines(), ["shards     1, 8.70 kB", "samples    3 (cls 3, jpg 3)", "findings   none"]);
    let summary = program.run(&["verify", "--json", "a.tar"]).ends_quietly().json();
    assert_eq!((&summary["samples"], &summary["counts"]), (&3.into(), &serde_json::json!({})));
}

#[test]
fn findings_are_lines_with_advice_and_exit_code_1() {
    let program = Program::new();
    program.write("bad.tar", &damaged(5, 3 * SAMPLE_BYTES));
    program.write("good.tar", &archive(&[("x.jpg", b"1"), ("x.cls", b"1")]));
    let run = program.run(&["verify", "bad.tar", "good.tar"]).ends_with(1);
    assert!(run.lines()[0].starts_with("bad.tar: damaged_header at byte 7680: expected the header"), "{}", run.text());
    assert!(run.text().contains("findings   1 damaged_header: fetch the shard again"), "{}", run.text());

    let run = program.run(&["verify", "--json", "bad.tar", "--out", "report.json"]).ends_with(1);
    let lines: Vec<Value> = run.lines().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["shard"], &lines[0]["kind"]), (&"bad.tar".into(), &"damaged_header".into()));
    assert_eq!(lines[1]["key"], "000003");
    assert_eq!(lines[0].as_object().unwrap().len(), 5);
    let document: Value = serde_json::from_slice(&std::fs::read(program.path("report.json")).unwrap()).unwrap();
    assert_document(&document);
    assert_eq!(document["counts"]["damaged_header"], 1);
}

#[test]
fn what_is_no_archive_is_exit_code_2() {
    let program = Program::new();
    program.write("a.tar", b"<html>");
    let run = program.run(&["verify", "a.tar"]).ends_with(2);
    assert!(run.text().contains("not_tar"), "{}", run.text());
    program.run(&["verify", "missing.tar"]).ends_with(2).tells_error("missing.tar");
    program.write("b.tar", &samples(1));
    program.run(&["verify", "--hash", "b.tar"]).ends_with(2).tells_error("no dataset.json");
    program.run(&["verify", "--fix", "out", "--duplicates", "refuse", "b.tar"]).ends_with(2);
}

#[test]
fn repaired_shards_go_into_a_folder_of_their_own() {
    let program = Program::new();
    program.write("bad.tar", &damaged(5, 3 * SAMPLE_BYTES));
    let before = std::fs::read(program.path("bad.tar")).unwrap();
    let run = program.run(&["verify", "--fix", "out", "bad.tar"]).ends_with(1);
    assert!(
        run.text().contains("repaired   4 samples in 1 shards, 0 put together, 0 renamed, 1 left out"),
        "{}",
        run.text()
    );
    program.run(&["verify", "out/bad.tar"]).ends_quietly();
    assert_eq!(std::fs::read(program.path("bad.tar")).unwrap(), before);
    // Neither its shards nor its list are replaced.
    program.run(&["verify", "--fix", "out", "bad.tar"]).ends_with(2).tells_error("'out/left_out.jsonl' exists already");
    std::fs::remove_file(program.path("out/left_out.jsonl")).unwrap();
    program.run(&["verify", "--fix", "out", "bad.tar"]).ends_with(2).tells_error("'out/bad.tar' exists already");
}

#[test]
fn findings_are_told_although_the_repair_fails() {
    let program = Program::new();
    program.write("bad.tar", &damaged(5, 3 * SAMPLE_BYTES));
    program.write("file", b"");
    let run = program.run(&["verify", "--fix", "file/out", "bad.tar"]).ends_with(2);
    assert!(run.text().contains("findings   1 damaged_header"), "{}", run.text());
    run.tells_error("cannot make the folder");
    // What can be known before is told before anything is read.
    program.write("out/bad.tar", b"");
    for args in [["--fix", "out", "--duplicates", "rename"], ["--fix", "new", "--duplicates", "refuse"]] {
        let run = program.run(&[&["verify"][..], &args, &["bad.tar"]].concat()).ends_with(2);
        assert_eq!(run.text(), "");
    }
}

#[test]
fn every_finding_is_a_line_of_json_and_a_summary_ends_them() {
    let program = Program::new();
    let names = |ext: &'static str| (0..60).map(move |n| (format!("{n:03}.{ext}"), &b"x"[..]));
    let mut files: Vec<(String, &[u8])> = names("jpg").chain(names("cls")).collect();
    files.extend((60..200).flat_map(|n| [(format!("{n}.jpg"), &b"x"[..]), (format!("{n}.cls"), b"x")]));
    let split = archive(&files.iter().map(|(name, bytes)| (name.as_str(), *bytes)).collect::<Vec<_>>());
    program.write("a.tar", &split);
    program.write("b.tar", &split);
    let run = program.run(&["verify", "--json", "a.tar", "b.tar"]).ends_with(1);
    let mut lines: Vec<Value> = run.lines().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let summary = lines.pop().unwrap();
    assert_eq!(summary["counts"], serde_json::json!({"split_group": 120, "missing_field": 240, "shared_key": 200}));
    for (kind, count) in summary["counts"].as_object().unwrap() {
        let found: Vec<&Value> = lines.iter().filter(|line| line["kind"] == kind.as_str()).collect();
        let places: std::collections::BTreeSet<String> =
            found.iter().map(|line| format!("{} {} {}", line["shard"], line["key"], line["offset"])).collect();
        assert_eq!((found.len(), places.len()), (count.as_u64().unwrap() as usize, found.len()), "{kind}");
    }
    assert_eq!(lines.len(), 560);
    // For people the first ones and their number are enough.
    let run = program.run(&["verify", "a.tar", "b.tar"]).ends_with(1);
    assert!(run.lines().len() < 100 && run.text().contains("240 missing_field"), "{}", run.text());
}

#[test]
fn images_are_decoded_and_counted() {
    let program = Program::new();
    program.run(&["demo", "--samples", "12", "--dir", "demo"]).ends_with(0);
    let run = program.run(&["verify", "--decode", "demo"]).ends_quietly();
    assert!(run.text().contains("images     12 decoded, 0 bad (jpeg 12)"), "{}", run.text());
    program.write("a.tar", &samples(3));
    let run = program.run(&["verify", "--decode", "--json", "a.tar"]).ends_with(1);
    assert_eq!(run.text().matches(r#""kind":"bad_image""#).count(), 3, "{}", run.text());
}
