//! `brimful bench storage` and `brimful bench compare`.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::archive::{archive, samples};
use crate::program::{Program, Run, assert_document};

/// One quick case of each state of the cache.
const QUICK: [&str; 9] = [
    "bench",
    "storage",
    "--duration=0.02",
    "--runs=2",
    "--methods=pread,mmap+populate",
    "--threads=2",
    "--blocks=64KiB",
    "--depths=4",
    "--json",
];

fn quick<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&QUICK[..], more].concat()
}

#[test]
fn the_document_has_its_keys_and_made_shards_are_gone() {
    let program = Program::new();
    fs::create_dir(program.path("disk")).unwrap();
    let more = ["--make=600kB", "--sizes=3kB-9kB", "--shard-bytes=200kB", "--out=a.json", "--html=a.html", "disk"];
    let run = program.run(&quick(&more)).ends_with(0);
    assert!(run.stderr.contains("making 600 kB of test shards in disk, removed afterwards"), "{}", run.stderr);
    assert_eq!(fs::read_dir(program.path("disk")).unwrap().count(), 0);
    let document = run.json();
    assert_document(&document);
    assert_eq!(fs::read(program.path("a.json")).unwrap(), run.stdout);
    let rows = document["results"].as_array().unwrap();
    assert_eq!(rows.len(), 8, "two methods, two patterns, cold and warm: {document}");
    for row in rows {
        for key in ["mb_per_s", "samples_per_s", "iops", "p50_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms"] {
            assert!(row[key].as_f64().unwrap() > 0.0, "{key}: {row}");
        }
        for key in ["cpu_s_per_gb", "major_faults", "process_read_bytes"] {
            assert!(row[key].is_number(), "{key}: {row}");
        }
        assert_eq!(row["spread"]["mb_per_s"]["runs"].as_array().unwrap().len(), 2);
        assert_eq!(row["sample"].is_object(), row["pattern"] == "members", "{row}");
        assert!((0.0..=1.0).contains(&row["resident_before"].as_f64().unwrap()));
    }
    let jobs = document["feeds"]["jobs"].as_array().unwrap();
    assert!(jobs.iter().any(|job| job["gpu"] == "H100" && job["year"] == 2024 && job["gpus"].as_f64().unwrap() > 0.0));
    assert_eq!((&document["data"]["made"], &document["interrupted"]), (&true.into(), &false.into()));
    assert!(document["harness"]["ns_per_request"].as_f64().unwrap() > 0.0);
    assert_eq!(document["storage"]["mounts"], 1);
    let profile = document["profile"].as_str().unwrap();
    assert!(Path::new(profile).starts_with(program.path("cache/brimful")) && Path::new(profile).exists());
    let page = fs::read_to_string(program.path("a.html")).unwrap();
    for part in ["<!doctype html>", "<svg", "MLPerf Storage v1.0", "Cold against warm", "pread", "ns a request"] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn given_shards_are_measured_and_the_table_is_for_people() {
    let program = Program::new();
    let photo = brimful::encode::encode_photo(1);
    let files: Vec<(String, &[u8])> = (0..8).map(|n| (format!("{n}.jpg"), photo.as_slice())).collect();
    let bytes = archive(&files.iter().map(|(name, bytes)| (name.as_str(), *bytes)).collect::<Vec<_>>());
    program.write("a-0.tar", &bytes);
    program.write("a-1.tar", &bytes);
    let typed = quick(&["--no-profile", "--stages=parse,decode,loader", "--cache=cold", "a-{0..1}.tar"]);
    let typed: Vec<&str> = typed.into_iter().filter(|word| *word != "--json").collect();
    let run = program.run(&typed).ends_with(0);
    for part in ["method ", "pread ", "cold", "parse ", "decode ", "loader ", "MLPerf", "16 samples (given)"] {
        assert!(run.text().contains(part), "no '{part}' in {}", run.text());
    }
    assert!(!run.text().contains("kept for io=") && run.text().contains("measuring itself takes "));
    assert_eq!(fs::read(program.path("a-0.tar")).unwrap(), bytes, "shards are left as they are");
}

#[test]
fn a_machine_that_was_tuned_counts_first() {
    let program = Program::new();
    program.write("a.tar", &samples(20));
    program.write("tune.json", br#"{"recommended": {"images_per_s": 2000.0}}"#);
    program.write("bad.json", b"{}");
    let tuned = |file: &str| program.run(&quick(&["--no-profile", "--tuned", file, "--cache=cold", "a.tar"]));
    let document = tuned("tune.json").ends_with(0).json();
    assert_eq!(document["feeds"]["jobs"][0]["samples_per_s"], 2000.0);
    tuned("bad.json").ends_with(2).tells_error("bad.json");
    tuned("missing.json").ends_with(2).tells_error("missing.json");
    program.write("cache/brimful/tune.json", br#"{"device_per_s": 3000.0, "recommended": {"images_per_s": 2000.0}}"#);
    let kept = program.run(&quick(&["--no-profile", "--cache=cold", "a.tar"])).ends_with(0).json();
    assert_eq!(kept["feeds"]["jobs"][0]["samples_per_s"], 3000.0);
    program.write("cache/brimful/tune.json", b"half of a docum");
    let unread = program.run(&quick(&["--no-profile", "--cache=cold", "a.tar"])).ends_with(0).json();
    assert_eq!(unread["feeds"]["jobs"][0]["source"], "MLPerf Storage v1.0, emulated");
}

#[test]
fn what_has_no_room_is_refused_before_anything_is_written() {
    let program = Program::new();
    fs::create_dir(program.path("disk")).unwrap();
    program.run(&quick(&["--make=9000TB", "disk"])).ends_with(2).tells_error("do not fit into 'disk'");
    program.run(&quick(&["--make=1MB", "nowhere"])).ends_with(2).tells_error("'nowhere' is no folder");
    program.run(&quick(&["--make=1MB", "disk", "disk"])).ends_with(2).tells_error("one folder");
    assert_eq!(fs::read_dir(program.path("disk")).unwrap().count(), 0);
}

#[test]
fn a_disk_that_fills_up_under_made_shards_is_left_as_it_was() {
    let program = Program::new();
    fs::create_dir(program.path("disk")).unwrap();
    // A file of more than 64 blocks of 512 bytes cannot be written, as on a full disk.
    let before = "trap '' XFSZ; ulimit -f 64";
    let run = Run::of(program.command_after(before, &quick(&["--make=400kB", "disk"])).output().unwrap()).ends_with(2);
    run.tells_error("cannot make test shards in 'disk'");
    assert_eq!(fs::read_dir(program.path("disk")).unwrap().count(), 0);
}

#[test]
fn a_shard_that_shrinks_meanwhile_ends_the_run_with_its_name() {
    let program = Program::new();
    program.write("a.tar", &samples(2000));
    let typed = ["--methods=mmap,pread", "--cache=warm", "--duration=0.02", "--runs=1000", "--no-profile", "a.tar"];
    let mut child = program.command(&[&["bench", "storage"], &typed[..]].concat());
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    let pid = child.id();
    // Far more than indexing and warming up read.
    while bytes_read(pid) < 50_000_000 && began.elapsed() < Duration::from_secs(60) {
        std::thread::yield_now();
    }
    assert!(child.try_wait().unwrap().is_none(), "it still measures");
    fs::File::options().write(true).open(program.path("a.tar")).unwrap().set_len(10_000).unwrap();
    let run = Run::of(child.wait_with_output().unwrap()).ends_with(2);
    run.tells_error("shrank");
    assert!(run.stderr.contains("a.tar") && run.stdout.is_empty(), "{}", run.stderr);
}

/// Bytes that a process has read so far.
fn bytes_read(pid: u32) -> u64 {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    io.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse().ok()).unwrap_or(0)
}

#[test]
fn direct_reads_of_a_file_system_in_memory_are_refused_or_left_out() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return };
    if brimful::shard::filesystem_of(folder.path()).is_ok_and(|found| found.name != "tmpfs") {
        return;
    }
    let program = Program::new();
    let shard = folder.path().join("a.tar");
    fs::write(&shard, samples(20)).unwrap();
    let shard = shard.to_str().unwrap();
    let alone = program.run(&["bench", "storage", "--methods=direct", "--no-profile", shard]).ends_with(2);
    alone.tells_error("direct reads are not possible on tmpfs");
    let typed = quick(&["--no-profile", "--cache=cold", shard]);
    let typed: Vec<&str> = typed
        .into_iter()
        .map(|word| if word.starts_with("--methods") { "--methods=pread,direct" } else { word })
        .collect();
    let run = program.run(&typed).ends_with(0);
    for part in ["tmpfs is memory", "left out: direct: ", "direct reads are not possible"] {
        assert!(run.stderr.contains(part), "no '{part}' in {}", run.stderr);
    }
    assert_eq!(run.json()["skipped"][0]["what"], "direct");
}

#[test]
fn a_folder_that_may_not_be_read_is_told() {
    use std::os::unix::fs::PermissionsExt;
    let program = Program::new();
    fs::create_dir(program.path("closed")).unwrap();
    program.write("closed/a.tar", &samples(3));
    fs::set_permissions(program.path("closed"), fs::Permissions::from_mode(0o000)).unwrap();
    // The administrator may read anything: then another user runs the command, where the system has a way to say so.
    let is_root = rustix::process::geteuid().is_root();
    let run = if is_root {
        let binary = env!("CARGO_BIN_EXE_brimful");
        let mut ancestors = Path::new(binary).ancestors().skip(1);
        let reachable = ancestors
            .all(|folder| fs::metadata(folder).is_ok_and(|metadata| metadata.permissions().mode() & 0o001 != 0));
        if !reachable || !Path::new("/usr/bin/setpriv").exists() {
            return;
        }
        fs::set_permissions(program.path("."), fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = std::process::Command::new("/usr/bin/setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", binary, "bench", "storage"]);
        command.arg(program.path("closed")).env("XDG_CACHE_HOME", "/nonexistent");
        Run::of(command.output().unwrap())
    } else {
        program.run(&["bench", "storage", "closed"])
    };
    fs::set_permissions(program.path("closed"), fs::Permissions::from_mode(0o755)).unwrap();
    let run = run.ends_with(2);
    assert!(run.stderr.contains("closed") && run.stderr.contains("ermission denied"), "{}", run.stderr);
}

#[test]
fn ctrl_c_keeps_what_was_measured_and_removes_what_was_made() {
    let program = Program::new();
    fs::create_dir(program.path("disk")).unwrap();
    let typed = [
        "bench",
        "storage",
        "--make=400kB",
        "--shard-bytes=100kB",
        "--methods=pread",
        "--patterns=members",
        "--cache=warm",
        "--threads=1",
        "--duration=0.05",
        "--runs=1000",
        "--json",
        "--no-profile",
        "disk",
    ];
    let child = program.command(&typed).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    // Shards are there once it measures, and a run takes a twentieth of a second.
    let began = Instant::now();
    let is_made = || {
        fs::read_dir(program.path("disk"))
            .unwrap()
            .flatten()
            .any(|made| fs::read_dir(made.path()).is_ok_and(|shards| shards.flatten().count() >= 4))
    };
    while !is_made() && began.elapsed() < Duration::from_secs(60) {
        std::thread::yield_now();
    }
    // Far more than warming up reads: at least one run is over.
    while bytes_read(child.id()) < 200_000_000 && began.elapsed() < Duration::from_secs(60) {
        std::thread::yield_now();
    }
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let run = Run::of(child.wait_with_output().unwrap());
    assert_eq!(fs::read_dir(program.path("disk")).unwrap().count(), 0, "{}", run.stderr);
    if run.code == 2 {
        run.tells_error("interrupted before anything was measured");
        return;
    }
    let run = run.ends_with(1);
    assert!(run.stderr.contains("warning: interrupted"), "{}", run.stderr);
    let document = run.json();
    assert_eq!(document["interrupted"], true);
    let runs = document["results"][0]["spread"]["mb_per_s"]["runs"].as_array().unwrap().len();
    assert!((1..1000).contains(&runs), "{runs}");
}

#[test]
fn wrong_numbers_are_wrong_usage() {
    let program = Program::new();
    program.write("a.tar", &samples(3));
    for word in [
        "--methods=fast",
        "--patterns=zigzag",
        "--cache=lukewarm",
        "--threads=0",
        "--blocks=0",
        "--blocks=1GB",
        "--depths=0",
        "--duration=0",
        "--runs=0",
        "--make=much",
        "--sizes=1kB",
        "--stages=train",
    ] {
        let run = program.run(&["bench", "storage", word, "a.tar"]).ends_with(2);
        assert!(run.stdout.is_empty() && !run.stderr.is_empty(), "{word}");
    }
}

#[test]
fn documents_are_compared_with_a_note_on_chance() {
    let program = Program::new();
    let document = |runs: &str| {
        format!(r#"{{"results": [{{"method": "pread", "threads": 2, "spread": {{"mb_per_s": {{"runs": {runs}}}}}}}]}}"#)
    };
    program.write("a.json", document("[100, 102, 98]").as_bytes());
    program.write("b.json", document("[150, 151, 149]").as_bytes());
    program.write("c.json", b"{}");
    let run = program.run(&["bench", "compare", "a.json", "b.json"]).ends_quietly();
    for part in ["pread threads=2", "higher", "1.50", "1 higher, 0 lower"] {
        assert!(run.text().contains(part), "no '{part}' in {}", run.text());
    }
    let run = program.run(&["bench", "compare", "--json", "a.json", "a.json"]).ends_quietly();
    assert_document(&run.json());
    assert_eq!(run.json()["rows"][0]["verdict"], "no_difference");
    program.run(&["bench", "compare", "a.json", "c.json"]).ends_with(2).tells_error("no figure with runs in common");
    program.run(&["bench", "compare", "a.json", "none.json"]).ends_with(2).tells_error("none.json");
}
