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
    assert!(program.run(&["verify", "--json", "a.tar"]).ends_quietly().stdout.is_empty());
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
fn images_are_decoded_and_counted() {
    let program = Program::new();
    program.run(&["demo", "--samples", "12", "--dir", "demo"]).ends_with(0);
    let run = program.run(&["verify", "--decode", "demo"]).ends_quietly();
    assert!(run.text().contains("images     12 decoded, 0 bad (jpeg 12)"), "{}", run.text());
    program.write("a.tar", &samples(3));
    let run = program.run(&["verify", "--decode", "--json", "a.tar"]).ends_with(1);
    assert_eq!(run.text().matches("bad_image").count(), 3, "{}", run.text());
}
