//! Wrong usage, help, and what cannot be opened.

use std::process::Stdio;

use crate::archive::samples;
use crate::program::{Program, Run};

#[test]
fn wrong_usage_is_exit_code_2() {
    let program = Program::new();
    program.write("a.tar", &samples(1));
    for args in [
        &[] as &[&str],
        &["nothing"],
        &["ls"],
        &["ls", "--wrong", "a.tar"],
        &["ls", "--json", "--long", "a.tar"],
        &["cat", "a.tar"],
        &["index", "--out-dir", "x", "a.tar"],
        &["index", "--dali", "--format", "beside", "a.tar"],
        &["convert", "a"],
        &["convert", "--merge", "a", "b"],
        &["convert", "a", "b", "--quality", "80"],
        &["verify"],
        &["stats"],
        &["index", "--threads", "0", "a.tar"],
        &["bench"],
        &["bench", "decode", "--seconds", "0"],
        &["bench", "decode", "--dir", "a", "--shards", "b"],
        &["bench", "loader", "--batch-size", "0"],
        &["demo", "--shards", "a.tar", "--samples", "3"],
    ] {
        let run = program.run(args).ends_with(2);
        assert!(run.stdout.is_empty() && !run.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn help_and_version_are_data() {
    let program = Program::new();
    let version = program.run(&["--version"]).ends_quietly();
    assert_eq!(version.text(), format!("brimful {}\n", env!("CARGO_PKG_VERSION")));
    for args in
        [&["--help"] as &[&str], &["ls", "--help"], &["index", "-h"], &["cat", "-h"], &["bench", "decode", "-h"]]
    {
        let help = program.run(args).ends_quietly();
        assert!(help.text().contains("Examples:") && !help.text().contains('\u{1b}'), "{args:?}");
    }
}

#[test]
fn a_shard_that_is_not_there_is_a_failure_told_once() {
    let program = Program::new();
    for args in [["ls", "missing.tar"], ["index", "missing.tar"], ["ls", "missing-*.tar"]] {
        let run = program.run(&args).ends_with(2);
        run.tells_error("missing");
        assert_eq!(run.stderr.matches("error: ").count(), 1, "{}", run.stderr);
        assert!(run.stdout.is_empty());
    }
    program.run(&["cat", "missing.tar", "0.cls"]).ends_with(2).tells_error("missing.tar");
}

#[test]
fn a_missing_shard_among_others_is_a_failure_before_anything_is_listed() {
    let program = Program::new();
    program.write("a-0.tar", &samples(1));
    program.write("a-2.tar", &samples(1));
    let run = program.run(&["ls", "a-{0..2}.tar"]).ends_with(2);
    run.tells_error("a-1.tar");
    assert!(run.stdout.is_empty());
}

#[test]
fn what_is_no_archive_is_told() {
    let program = Program::new();
    program.write("a.tar", b"this is no archive, and it is long enough to hold a header or two".repeat(20).as_slice());
    let run = program.run(&["ls", "a.tar"]);
    assert!(run.code == 1 || run.code == 2, "{run:?}");
    run.tells_error("a.tar");
    assert!(run.stdout.is_empty());
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") else { return };
    let program = Program::new();
    program.write("a.tar", &samples(1));
    let output = program.command(&["ls", "a.tar"]).stdout(Stdio::from(full)).output().unwrap();
    assert!(!Run::of(output).ends_with(2).stderr.is_empty());
}
