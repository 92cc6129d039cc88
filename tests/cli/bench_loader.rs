//! `brimful bench loader`.

use crate::archive::archive;
use crate::program::{Program, assert_document, assert_stages};

const QUICK: [&str; 8] =
    ["bench", "loader", "--json", "--seconds=0.01", "--runs=2", "--threads=2", "--batch-size", "4"];

#[test]
fn the_document_has_its_keys() {
    let program = Program::new();
    let run = program.run(&[&QUICK[..], &["--samples", "9", "--epochs", "3"]].concat()).ends_with(0);
    assert!(run.stderr.starts_with("data: 9 generated photos in "), "{}", run.stderr);
    let document = run.json();
    assert_document(&document);
    assert_stages(&document);
    for key in ["images_per_s", "no_loader_images_per_s", "one_thread_images_per_s", "pipeline_efficiency"] {
        assert!(document[key].as_f64().unwrap() > 0.0, "{key}: {document}");
        assert_eq!(document["spread"][key]["runs"].as_array().unwrap().len(), 2, "{key}");
    }
    for key in ["time_to_first_batch_s", "rss_anon_mb", "rss_file_mb", "epoch_gap_batches", "cpu_s_per_1000_images"] {
        assert!(document[key].is_number(), "{key}: {document}");
    }
    let ratio = document["images_per_s"].as_f64().unwrap() / document["no_loader_images_per_s"].as_f64().unwrap();
    assert!((document["pipeline_efficiency"].as_f64().unwrap() - ratio).abs() < 1e-9);
    assert_eq!(document["data"]["samples"], 9);
    let folder = program.path("cache/brimful/photos-9");
    assert_eq!(document["data"]["folder"], folder.to_str().unwrap());
    assert!(folder.join("demo-000000.tar").exists());
}

#[test]
fn given_shards_are_loaded_and_the_table_is_for_people() {
    let program = Program::new();
    let photo = brimful::encode::encode_photo(1);
    let files: Vec<(String, &[u8])> = (0..8).map(|n| (format!("{n}.jpg"), photo.as_slice())).collect();
    program.write("a.tar", &archive(&files.iter().map(|(name, bytes)| (name.as_str(), *bytes)).collect::<Vec<_>>()));
    let args = ["bench", "loader", "--shards", "a.tar", "--seconds", "0.01", "--runs", "1", "--batch-size", "2"];
    let run = program.run(&args).ends_quietly();
    for part in ["loader ", "no loader ", "pipeline efficiency ", "bottleneck ", "decode ", "batches of 2"] {
        assert!(run.text().contains(part), "no '{part}' in {}", run.text());
    }
}

#[test]
fn too_few_samples_for_a_batch_are_a_failure_with_advice() {
    let program = Program::new();
    let photo = brimful::encode::encode_photo(1);
    program.write("a.tar", &archive(&[("0.jpg", &photo)]));
    let run = program.run(&["bench", "loader", "--shards", "a.tar", "--batch-size", "2"]).ends_with(2);
    run.tells_error("1 samples do not fill one batch of 2");
    assert!(run.stderr.contains("hint: "), "{}", run.stderr);
}
