//! `brimful doctor`.

use crate::program::{Program, assert_document};

#[test]
fn the_document_has_its_keys() {
    let program = Program::new();
    let document = program.run(&["doctor", "--json", "--path", "."]).ends_quietly().json();
    assert_document(&document);
    for key in ["decoders", "features", "libraries", "gpus", "cpus", "numa", "cgroup", "filesystems"] {
        assert!(document.get(key).is_some(), "no {key} in {document}");
    }
    assert!(document["decoders"].as_array().unwrap().iter().any(|name| name == "zune"));
    assert_eq!(document["filesystems"][0]["role"], "given");
    assert!(document["filesystems"][0]["type"].is_string());
}

#[test]
fn the_text_is_one_fact_a_line() {
    let run = Program::new().run(&["doctor"]).ends_quietly();
    assert!(run.lines().iter().any(|line| line.starts_with("decoders  ")), "{}", run.text());
}

#[test]
fn a_path_that_is_not_there_is_a_bad_input() {
    let run = Program::new().run(&["doctor", "--path", "missing"]).ends_with(1);
    assert!(run.lines().iter().any(|line| line.contains("missing (given): cannot look at the path")), "{}", run.text());
}
