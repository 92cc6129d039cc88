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
fn shards_over_2_gb_are_warned_of_however_they_are_asked_for() {
    let program = Program::new();
    // Files with nothing but holes take no room.
    for number in 0..9 {
        program.write(&format!("photos/{number}.jpg"), b"");
        let file = fs::File::options().write(true).open(program.path(&format!("photos/{number}.jpg"))).unwrap();
        file.set_len(250 << 20).unwrap();
    }
    let warned = |args: &[&str]| {
        let args = [&["convert", "photos", "out", "--dry-run"], args].concat();
        program.run(&args).ends_with(0).stderr.contains("slow to move")
    };
    assert!(!warned(&[]));
    assert!(!warned(&["--samples-per-shard", "7"]));
    assert!(warned(&["--samples-per-shard", "9"]));
    assert!(warned(&["--shard-size", "3GB"]));
    assert!(!program.path("out").exists());
}

#[test]
fn options_that_say_nothing_about_a_source_are_refused() {
    let program = with_photos(2, 10);
    program.write("list.csv", b"where,what\nphotos/cat/00000.jpg,3\n");
    let refused =
        |args: &[&str], part: &str| program.run(&[&["convert"], args].concat()).ends_with(2).tells_error(part);
    refused(&["photos", "out", "--path-column", "x"], "for lists");
    refused(&["photos", "out", "--label-column", "x"], "for them and for lists");
    refused(&["photos", "out", "--image-column", "x"], "for Parquet files");
    refused(&["list.csv", "out", "--image-column", "x"], "for Parquet files");
    refused(&["photos", "out", "--quality", "80"], "--quality is for");
    program.run(&["convert", "photos", "out", "--sort", "--shuffle", "1"]).ends_with(2);
    let args = ["convert", "list.csv", "out", "--path-column", "where", "--label-column", "what"];
    let run = program.run(&args).ends_quietly();
    assert!(run.text().contains("samples    1 (cls 1, jpg 1)"), "{}", run.text());
    program.run(&["convert", "out", "sorted", "--sort"]).ends_quietly();
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

/// Numbers that differ from run to run; the seed is told where a test fails.
struct Random {
    seed: u64,
    state: u64,
}

impl Random {
    fn new() -> Self {
        let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), "points to kill at");
        Self { seed, state: seed }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % end
    }
}

/// Runs the command and kills it once the folder has so many bytes more than when it began; whether that was in time.
fn kill_at(program: &Program, args: &[&str], folder: &str, step: u64) -> bool {
    let before = size_of(&program.path(folder));
    let mut child = program.command(args).stdout(Stdio::null()).spawn().unwrap();
    while size_of(&program.path(folder)) < before + step && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    !child.wait().unwrap().success()
}

/// Whatever has its name in a folder is what it will be in the end.
fn assert_complete_as_far_as_it_goes(folder: &Path, whole: &Path, told: &str) {
    for name in listing(folder).into_keys().filter(|name| !name.starts_with('.')) {
        assert!(
            fs::read(folder.join(&name)).unwrap() == fs::read(whole.join(&name)).unwrap(),
            "{name} differs: {told}"
        );
    }
}

#[test]
fn a_run_that_is_killed_at_any_time_goes_on_to_the_same_bytes() {
    let program = with_photos(600, 3_000);
    let common = ["convert", "photos", "--samples-per-shard", "50", "--shuffle", "1"];
    program.run(&[&common[..], &["whole"]].concat()).ends_quietly();
    let (whole, all) = (program.path("whole"), size_of(&program.path("whole")));
    let mut random = Random::new();
    let told = format!("seed {}", random.seed);
    let mut killed = 0;
    for _ in 0..10 {
        let threads = ["1", "2", "5"][random.below(3) as usize];
        let args = [&common[..], &["out", "--resume", "--threads", threads]].concat();
        killed += usize::from(kill_at(&program, &args, "out", random.below(all / 5)));
        assert_complete_as_far_as_it_goes(&program.path("out"), &whole, &told);
    }
    assert!(killed > 0, "no run was killed in time: {told}");
    program.run(&[&common[..], &["out", "--resume"]].concat()).ends_quietly();
    assert_same_files(&whole, &program.path("out"));

    // The same for parts, each killed once.
    for part in ["2/3", "1/3", "3/3"] {
        let args = [&common[..], &["parts", "--resume", "--part", part]].concat();
        kill_at(&program, &args, "parts", random.below(all / 3));
        assert_complete_as_far_as_it_goes(&program.path("parts"), &whole, &told);
        program.run(&args).ends_quietly();
    }
    program.run(&["convert", "--merge", "parts"]).ends_quietly();
    assert_same_files(&whole, &program.path("parts"));
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

/// Holds the superuser, who may read anything, to permissions, where the system has the means.
const HELD: &str = "if [ \"$(id -u)\" = 0 ] && command -v setpriv > /dev/null; \
    then exec setpriv --bounding-set -dac_override,-dac_read_search \"$0\" \"$@\"; fi";

#[test]
fn files_that_may_not_be_read_are_bad_samples() {
    use std::os::unix::fs::PermissionsExt;
    let program = with_photos(4, 100);
    let locked = program.path("photos/cat/00000.jpg");
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).unwrap();
    let held = |args: &[&str]| crate::program::Run::of(program.command_after(HELD, args).output().unwrap());
    if held(&["cat", "photos/cat/00000.jpg", "x"]).stderr.contains("denied") {
        held(&["convert", "photos", "out"]).ends_with(2).tells_error("00000.jpg");
        assert!(!program.path("out/train-000000.tar").exists());
        let run = held(&["convert", "photos", "out", "--resume", "--max-errors", "1"]).ends_with(1);
        assert!(run.text().contains("samples    3 ") && run.text().contains("left out   1"), "{}", run.text());
        assert!(fs::read_to_string(program.path("out/left_out.jsonl")).unwrap().contains("00000.jpg"));
        // Neither may a shard that cannot be read pass for a good one.
        fs::set_permissions(program.path("out/train-000000.tar"), fs::Permissions::from_mode(0o000)).unwrap();
        let run = held(&["verify", "out/train-000000.tar"]).ends_with(2);
        assert!(run.text().contains("unreadable"), "{}", run.text());
    } else {
        fs::read(&locked).expect("only who may read anything is not held");
    }
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
