//! `brimful ls`.

use std::io::Read;
use std::process::Stdio;

use serde_json::json;

use crate::archive::{SAMPLE_BYTES, archive, damaged, samples};
use crate::program::{Program, Run};

#[test]
fn a_line_is_a_sample() {
    let program = Program::new();
    program.write("a.tar", &samples(2));
    let run = program.run(&["ls", "a.tar"]).ends_quietly();
    assert_eq!(run.lines(), ["000000  jpg 700  cls 1", "000001  jpg 700  cls 1"]);
    let run = program.run(&["ls", "-l", "a.tar"]).ends_quietly();
    assert_eq!(run.lines()[1], "a.tar  000001  jpg 700 @3072  cls 1 @4608");
}

#[test]
fn json_lines_have_exactly_three_keys() {
    let program = Program::new();
    program.write("a.tar", &samples(2));
    let run = program.run(&["ls", "--json", "a.tar"]).ends_quietly();
    let expected = json!({
        "shard": "a.tar",
        "key": "000000",
        "fields": {"jpg": {"offset": 512, "size": 700}, "cls": {"offset": 2048, "size": 1}},
    });
    let lines: Vec<serde_json::Value> = run.lines().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), &lines[0]), (2, &expected));
    assert!(
        run.lines()[0].starts_with(r#"{"shard":"a.tar","key":"000000","fields":{"jpg":{"offset":512,"size":700},"#)
    );
}

#[test]
fn what_stands_before_damage_is_listed() {
    let program = Program::new();
    program.write("bad.tar", &damaged(5, 3 * SAMPLE_BYTES));
    program.write("good.tar", &samples(1));
    let run = program.run(&["ls", "--json", "bad.tar", "good.tar"]).ends_with(1);
    assert_eq!(run.lines().len(), 4, "{}", run.text());
    assert!(run.lines()[3].contains("good.tar"));
    run.tells_error("bad.tar");
    assert_eq!(run.stderr.matches("error: ").count(), 1, "{}", run.stderr);
}

#[test]
fn resync_finds_what_stands_behind_damage() {
    let program = Program::new();
    program.write("bad.tar", &damaged(5, 3 * SAMPLE_BYTES));
    let run = program.run(&["ls", "--resync", "bad.tar"]).ends_with(1);
    // Sample 3 has lost its first field.
    assert_eq!(run.lines().len(), 5, "{}", run.text());
    assert_eq!(run.lines()[3], "000003  cls 1");
    assert!(run.stderr.starts_with("warning: bad.tar: damage was passed over in 1 place"), "{}", run.stderr);
}

#[test]
fn a_cut_shard_is_told_whatever_the_cut() {
    let program = Program::new();
    let whole = samples(3);
    for (cut, kept) in [(2 * SAMPLE_BYTES, 2), (2 * SAMPLE_BYTES + 100, 2), (2 * SAMPLE_BYTES + 600, 2)] {
        program.write("cut.tar", &whole[..cut]);
        let run = program.run(&["ls", "cut.tar"]).ends_with(1);
        assert_eq!(run.lines().len(), kept, "cut at {cut}: {}", run.text());
        assert!(run.stderr.contains("cut.tar"), "cut at {cut}: {}", run.stderr);
    }
}

#[test]
fn keys_that_come_back_are_warned_of() {
    let program = Program::new();
    program.write("a.tar", &archive(&[("0.jpg", b"a"), ("1.jpg", b"b"), ("0.cls", b"7")]));
    let run = program.run(&["ls", "a.tar"]).ends_with(0);
    assert_eq!(run.lines().len(), 3);
    assert!(run.stderr.starts_with("warning: "), "{}", run.stderr);
}

#[test]
fn a_field_given_twice_is_bad() {
    let program = Program::new();
    program.write("a.tar", &archive(&[("0.jpg", b"a"), ("0.jpg", b"b")]));
    let run = program.run(&["ls", "a.tar"]).ends_with(1);
    assert_eq!(run.lines(), ["0  jpg 1"]);
}

#[test]
fn a_key_cannot_move_the_cursor() {
    let program = Program::new();
    program.write("a.tar", &archive(&[("a\u{1b}[2J.cls", b"7")]));
    let run = program.run(&["ls", "a.tar"]).ends_quietly();
    assert_eq!(run.lines(), ["a\\u{1b}[2J  cls 1"]);
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let program = Program::new();
    program.write("a.tar", &samples(20_000));
    let mut child = program.command(&["ls", "a.tar"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 10]).unwrap();
    drop(stdout);
    Run::of(child.wait_with_output().unwrap()).ends_quietly();
}

#[test]
fn a_hundred_shards_need_few_open_files() {
    let program = Program::new();
    for n in 0..100 {
        program.write(&format!("shards/{n:03}.tar"), &samples(1));
    }
    let run = program.command_after("ulimit -n 64", &["ls", "shards/{000..099}.tar"]);
    let run = { run }.output().map(Run::of).unwrap().ends_quietly();
    assert_eq!(run.lines().len(), 100);
    let folder = program.run(&["ls", "--io", "read", "shards"]).ends_quietly();
    assert_eq!(folder.stdout, run.stdout);
}

#[test]
fn filters_pick_samples() {
    let program = Program::new();
    program.write(
        "a.tar",
        &archive(&[("a/1.jpg", b"123"), ("a/1.cls", b"7"), ("a/2.png", b"1"), ("b/1.jpg", b"12345678")]),
    );
    program.write("b.tar", &samples(3));
    let check = |filter: &[&str], expected: &[&str]| {
        let run = program.run(&[&["ls", "a.tar", "b.tar"], filter].concat()).ends_quietly();
        let keys: Vec<&str> = run.lines().iter().map(|line| line.split("  ").next().unwrap()).collect();
        assert_eq!(keys, expected, "{filter:?}");
    };
    check(&["--key", "?/1"], &["a/1", "b/1"]);
    check(&["--has", "jpg;png", "--lacks", "cls"], &["a/2", "b/1"]);
    check(&["--larger", "8B", "--key", "*/*"], &["b/1"]);
    check(&["-n", "4"], &["a/1", "a/2", "b/1", "000000"]);
    check(&["--limit", "0"], &[]);
    program.run(&["ls", "--key", "[", "a.tar"]).ends_with(2).tells_error("--key");
}
