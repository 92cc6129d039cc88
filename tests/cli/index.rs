//! `brimful index`.

use serde_json::json;

use crate::archive::{SAMPLE_BYTES, archive, damaged, samples};
use crate::program::{Program, Run, assert_document};

#[test]
fn a_summary_counts_what_was_indexed() {
    let program = Program::new();
    program.write("a-0.tar", &samples(3));
    program.write("a-1.tar", &samples(2));
    let document = program.run(&["index", "--json", "a-{0..1}.tar"]).ends_quietly().json();
    assert_document(&document);
    assert_eq!((&document["shards"], &document["samples"], &document["fields"]), (&json!(2), &json!(5), &json!(10)));
    assert_eq!(document["bytes"], 5 * 701);
    assert_eq!(document["extensions"], json!({"jpg": 5, "cls": 5}));
    assert!(document["samples_per_s"].as_f64().unwrap() > 0.0);
    let cache = program.path("cache/brimful");
    assert_eq!(document["cache"], cache.to_str().unwrap());
    assert!(std::fs::read_dir(cache).unwrap().count() > 0, "the indexes are kept");
    let text = program.run(&["index", "a-{0..1}.tar"]).ends_quietly();
    assert!(text.text().contains("samples    5\n"), "{}", text.text());
}

#[test]
fn a_bad_shard_does_not_keep_the_others_back() {
    let program = Program::new();
    program.write("a-0.tar", &damaged(3, SAMPLE_BYTES));
    program.write("a-1.tar", &samples(2));
    let run = program.run(&["index", "--json", "a-{0..1}.tar"]).ends_with(1);
    run.tells_error("a-0.tar");
    assert_eq!(run.json()["samples"], 2);
    program.run(&["index", "a-0.tar"]).ends_with(2).tells_error("a-0.tar");
}

#[test]
fn where_every_shard_is_bad_the_commands_fail_however_many_there_are() {
    let program = Program::new();
    program.write("a-0.tar", &damaged(1, 0));
    program.write("a-1.tar", b"no archive at all");
    program.write("good.tar", &samples(1));
    for command in ["index", "ls"] {
        for shards in [&["a-0.tar"][..], &["a-1.tar"], &["a-0.tar", "a-1.tar"]] {
            let run = program.run(&[&[command], shards].concat()).ends_with(2);
            assert_eq!(run.stderr.matches("error: ").count(), shards.len(), "{}", run.stderr);
        }
        program.run(&[command, "a-0.tar", "a-1.tar", "good.tar"]).ends_with(1);
    }
}

#[test]
fn a_field_given_twice_has_the_exit_code_that_it_has_when_listed() {
    let program = Program::new();
    program.write("a.tar", &archive(&[("0.jpg", b"a"), ("0.jpg", b"b")]));
    for command in ["index", "ls"] {
        let run = program.run(&[command, "a.tar"]).ends_with(1);
        assert!(run.stderr.contains("a loader refuses shards"), "{}", run.stderr);
    }
}

#[test]
fn dali_indexes_are_written_beside_the_shards_or_elsewhere() {
    let program = Program::new();
    program.write("data/a.tar", &samples(2));
    program.run(&["index", "--dali", "data/a.tar"]).ends_quietly();
    let beside = std::fs::read_to_string(program.path("data/a.idx")).unwrap();
    assert_eq!(beside.lines().next(), Some("v1.2 2"));
    assert_eq!(beside.lines().nth(1), Some("jpg 512 700 000000.jpg cls 2048 1 000000.cls"));
    let document =
        program.run(&["index", "--json", "--dali", "--out-dir", "idx/new", "data/a.tar"]).ends_quietly().json();
    assert_eq!(document["files"], json!(["idx/new/a.idx"]));
    assert_eq!(std::fs::read_to_string(program.path("idx/new/a.idx")).unwrap(), beside);
}

#[test]
fn few_open_files_are_enough() {
    let program = Program::new();
    for n in 0..100 {
        program.write(&format!("shards/{n:03}.tar"), &samples(1));
    }
    let mut command = program.command_after("ulimit -n 64", &["index", "--json", "--threads", "8", "shards"]);
    let run = command.output().map(Run::of).unwrap().ends_quietly();
    assert_eq!(run.json()["samples"], 100);
}

#[test]
fn the_document_can_go_to_a_file() {
    let program = Program::new();
    program.write("a.tar", &samples(1));
    let run = program.run(&["index", "--out", "report.json", "a.tar"]).ends_quietly();
    assert!(run.text().starts_with("shards "), "the table is printed all the same: {}", run.text());
    let document: serde_json::Value =
        serde_json::from_slice(&std::fs::read(program.path("report.json")).unwrap()).unwrap();
    assert_document(&document);
    program.run(&["index", "--out", "missing/report.json", "a.tar"]).ends_with(2).tells_error("missing/report.json");
}

#[test]
fn indexes_that_cannot_be_kept_are_told() {
    let program = Program::new();
    program.write("a.tar", &samples(1));
    program.write("file", b"no folder");
    let run = program.run(&["index", "--cache-dir", "file", "a.tar"]).ends_with(1);
    assert!(run.stderr.starts_with("warning: index not kept in 'file': "), "{}", run.stderr);
}

#[test]
fn two_shards_never_share_a_dali_index() {
    let program = Program::new();
    program.write("x/a.tar", &samples(1));
    program.write("y/a.tar", &samples(2));
    let run = program.run(&["index", "--dali", "--out-dir", "idx", "x", "y"]).ends_with(2);
    run.tells_error("'x/a.tar' and 'y/a.tar' would both have their index in 'idx/a.idx'");
    assert!(!program.path("idx").exists());
    program.run(&["index", "--dali", "x", "y"]).ends_quietly();
}

#[test]
fn a_compressed_shard_has_no_dali_index() {
    let program = Program::new();
    program.write("a.tar", &samples(1));
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, &samples(1)).unwrap();
    program.write("z.tar.gz", &packed.finish().unwrap());
    let run = program.run(&["index", "--dali", "a.tar", "z.tar.gz"]).ends_with(1);
    run.tells_error("z.tar.gz: DALI reads no compressed shards");
    assert!(program.path("a.idx").exists() && !program.path("z.tar.idx").exists());
    program.run(&["bench", "loader", "--shards", "z.tar.gz"]).ends_with(2).tells_error("read in a stream");
}

#[test]
fn a_document_replaces_files_and_nothing_else() {
    let program = Program::new();
    program.write("a.tar", &samples(1));
    program.run(&["index", "--out", "/dev/null", "a.tar"]).ends_quietly();
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
    program.run(&["index", "--out", "-", "a.tar"]).ends_with(2);
    assert!(!program.path("-").exists());
}

#[test]
fn indexes_go_beside_shards_on_request() {
    let program = Program::new();
    program.write("a.tar", &samples(3));
    program.run(&["index", "--format", "beside", "a.tar"]).ends_quietly();
    assert!(program.path("a.tar.index").exists());
    program.run(&["verify", "a.tar"]).ends_quietly();
    program.run(&["index", "--format", "dali", "a.tar"]).ends_quietly();
    assert!(std::fs::read_to_string(program.path("a.idx")).unwrap().starts_with("v1.2 3"));
    program.run(&["verify", "a.tar"]).ends_quietly();
    program.write("a.tar", &samples(2));
    let run = program.run(&["verify", "a.tar"]).ends_with(1);
    assert_eq!(run.text().matches("a.tar: stale_index").count(), 2, "{}", run.text());
    program.run(&["index", "--format", "beside", "--out-dir", "x", "a.tar"]).ends_with(2).tells_error("--out-dir");
}
