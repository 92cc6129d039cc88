//! `brimful convert`: what it prints, and that a killed run and a full disk leave nothing half done.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use crate::program::{Program, assert_document};

/// A program whose folder has a source `photos` of two classes.
fn with_photos(pictures: usize, bytes: usize) -> Program {
    let program = Program::new();
    for number in 0..pictures {
        let class = ["cat", "dog"][number % 2];
        program.write(&format!("photos/{class}/{number:05}.jpg"), &vec![number as u8; bytes + number % 7]);
    }
    program
}

/// The names and sizes of a folder's files; hidden ones too.
fn listing(folder: &Path) -> BTreeMap<String, u64> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len())).collect()
}

fn assert_same_files(one: &Path, other: &Path) {
    assert_eq!(listing(one), listing(other));
    for name in listing(one).keys() {
        assert!(fs::read(one.join(name)).unwrap() == fs::read(other.join(name)).unwrap(), "{name} differs");
    }
}

#[test]
fn it_ends_with_the_pattern_and_three_lines_of_python() {
    let program = with_photos(10, 100);
    let run = program.run(&["convert", "photos", "out", "--samples-per-shard", "4", "--val", "0.2"]).ends_quietly();
    let text = run.text();
    for part in
        ["samples    10 (cls 10, jpg 10)", "classes    2", "out/train-{000000..000001}.tar", "out/val-000000.tar"]
    {
        assert!(text.contains(part), "{text}");
    }
    let last: Vec<&str> = text.trim_end().lines().rev().take(3).collect();
    assert!(last[2].starts_with("from brimful import") && last[0].starts_with("loader = DataLoader("), "{text}");
    assert!(last[1].contains("\"out/train-{000000..000001}.tar\", fields=(\"jpg\", \"cls\")"), "{text}");
    let run = program.run(&["ls", "out/train-000000.tar"]).ends_quietly();
    assert!(run.lines()[0].ends_with("cls 1  jpg 100"), "{}", run.text());
}

#[test]
fn a_dry_run_tells_and_writes_nothing() {
    let program = with_photos(10, 100);
    let run = program.run(&["convert", "photos", "out", "--dry-run", "--json"]).ends_quietly();
    let document = run.json();
    assert_document(&document);
    assert_eq!((document["samples"].as_u64(), document["shards"].as_u64()), (Some(10), Some(1)));
    assert!(!program.path("out").exists());
    program.run(&["convert", "photos", "out", "--json"]).ends_with(0);
    assert_eq!(fs::metadata(program.path("out/train-000000.tar")).unwrap().len(), document["bytes"].as_u64().unwrap());
}

#[test]
fn parts_are_merged() {
    let program = with_photos(20, 100);
    program.run(&["convert", "photos", "whole", "--samples-per-shard", "3"]).ends_quietly();
    for part in ["2/2", "1/2"] {
        let run = program.run(&["convert", "photos", "out", "--samples-per-shard", "3", "--part", part]).ends_quietly();
        assert!(run.text().contains("brimful convert --merge out"), "{}", run.text());
    }
    program.run(&["convert", "--merge", "out"]).ends_quietly();
    assert_same_files(&program.path("whole"), &program.path("out"));
    program.run(&["convert", "--merge", "photos"]).ends_with(2).tells_error("no parts of a conversion");
}

#[test]
fn a_run_that_is_killed_at_any_time_goes_on_to_the_same_bytes() {
    let program = with_photos(600, 3_000);
    let args = |folder: &'static str| vec!["convert", "photos", folder, "--samples-per-shard", "50", "--shuffle", "1"];
    program.run(&args("whole")).ends_quietly();
    let mut resumed = args("out");
    resumed.push("--resume");
    let mut killed = 0;
    // Each run is killed once so many bytes more are there than when it began, wherever that finds it.
    for step in [40_000, 1, 300_000, 150_000, 77_777, 400_000] {
        let before = size_of(&program.path("out"));
        let mut child = program.command(&resumed).stdout(Stdio::null()).spawn().unwrap();
        while size_of(&program.path("out")) < before + step && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        killed += usize::from(!child.wait().unwrap().success());
    }
    assert!(killed > 0, "no run was killed in time");
    program.run(&resumed).ends_quietly();
    assert_same_files(&program.path("whole"), &program.path("out"));
}

/// Bytes of all files in a folder that may be gone at any time.
fn size_of(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|found| found.len()).sum()
}

#[test]
fn a_full_disk_ends_with_an_error_and_no_half_shard() {
    let program = with_photos(100, 20_000);
    let args = ["convert", "photos", "out", "--samples-per-shard", "10", "--threads", "1"];
    // No file may have more than 100 blocks of 512 bytes: that is how a full disk looks to the program.
    let run =
        program.command_after("trap '' XFSZ; ulimit -f 100", &args).output().map(crate::program::Run::of).unwrap();
    let run = run.ends_with(2);
    run.tells_error("out/train-000000.tar: cannot ");
    assert!(run.stderr.contains("hint: make room"), "{}", run.stderr);
    let names: Vec<String> = listing(&program.path("out")).into_keys().collect();
    assert_eq!(names, [".brimful-convert"]);
    program.run(&[&args[..], &["--resume"]].concat()).ends_quietly();
}

#[test]
fn no_permission_is_an_error() {
    use std::os::unix::fs::PermissionsExt;
    let program = with_photos(4, 100);
    fs::create_dir(program.path("locked")).unwrap();
    fs::set_permissions(program.path("locked"), fs::Permissions::from_mode(0o500)).unwrap();
    // The superuser may write anywhere.
    if fs::write(program.path("locked/probe"), b"").is_err() {
        program
            .run(&["convert", "photos", "locked/out"])
            .ends_with(2)
            .tells_error("cannot make the folder 'locked/out'");
    }
    program.run(&["convert", "photos", "/proc/brimful-out"]).ends_with(2).tells_error("/proc/brimful-out");
    program.run(&["convert", "photos", "photos/cat/00000.jpg"]).ends_with(2);
    program.run(&["convert", "photos", "photos/out"]).ends_with(2).tells_error("lies inside the source");
}

#[test]
fn bad_samples_are_counted_and_listed() {
    let program = with_photos(10, 100);
    std::os::unix::fs::symlink("nothing", program.path("photos/cat/broken.jpg")).unwrap();
    let run = program.run(&["convert", "photos", "a"]).ends_with(2);
    run.tells_error("broken.jpg");
    assert!(run.stderr.contains("--max-errors"), "{}", run.stderr);
    let run = program.run(&["convert", "photos", "b", "--max-errors", "20%"]).ends_with(1);
    assert!(run.text().contains("left out   1, listed in b/left_out.jsonl"), "{}", run.text());
}
