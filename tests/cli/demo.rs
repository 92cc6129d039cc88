//! `brimful demo`.

use crate::archive::archive;
use crate::program::{Program, assert_document, assert_stages};

const SMALL: [&str; 7] = ["demo", "--samples", "10", "--batch-size", "4", "--threads=2", "--json"];

#[test]
fn it_makes_data_loads_it_twice_and_names_the_bottleneck() {
    let program = Program::new();
    let document = program.run(&SMALL).ends_quietly().json();
    assert_document(&document);
    assert_stages(&document);
    assert_eq!((&document["images"], &document["epochs"], &document["batch_size"]), (&20.into(), &2.into(), &4.into()));
    assert!(document["images_per_s"].as_f64().unwrap() > 0.0);
    assert!(document["time_to_first_batch_s"].as_f64().unwrap() > 0.0);
    assert!(document["advice"].is_string() && document["bottleneck"].is_string());
    let folder = program.path("target/demo");
    let first = std::fs::metadata(folder.join("demo-000000.tar")).unwrap().modified().unwrap();
    let run = program.run(&SMALL[..6]).ends_quietly();
    assert!(run.text().contains("generated photos in target/demo"), "{}", run.text());
    assert!(run.text().contains("20 images in 2 epochs"), "{}", run.text());
    let again = std::fs::metadata(folder.join("demo-000000.tar")).unwrap().modified().unwrap();
    assert_eq!(first, again, "the data set is used again");
}

#[test]
fn it_loads_given_shards_without_labels_too() {
    let program = Program::new();
    let photo = brimful::encode::encode_photo(1);
    program.write("a.tar", &archive(&[("0.jpeg", &photo), ("1.jpeg", &photo), ("2.jpeg", &photo)]));
    let document = program.run(&["demo", "--json", "--shards", "a.tar"]).ends_quietly().json();
    assert_eq!((&document["images"], &document["batch_size"]), (&6.into(), &3.into()));
    assert!(document["folder"].is_null() && !program.path("target").exists());
}

#[test]
fn a_damaged_image_is_left_out_and_told_with_its_place() {
    let program = Program::new();
    let photo = brimful::encode::encode_photo(1);
    program.write("a.tar", &archive(&[("0.jpg", &photo), ("1.jpg", &photo[..photo.len() / 2])]));
    let run = program.run(&["demo", "--json", "--shards", "a.tar"]).ends_with(1);
    assert_eq!(run.json()["images"], 2);
    assert!(run.stderr.starts_with("warning: left out: a.tar: sample '1'"), "{}", run.stderr);
    program.write("bad.tar", &archive(&[("1.jpg", &photo[..photo.len() / 2])]));
    let run = program.run(&["demo", "--shards", "bad.tar"]).ends_with(2);
    run.tells_error("no image could be loaded: the first one is bad: bad.tar: sample '1'");
    assert!(run.stdout.is_empty());
}
