//! `brimful bench decode`.

use crate::archive::archive;
use crate::program::{Program, assert_document};

const QUICK: [&str; 10] =
    ["bench", "decode", "--json", "--seconds", "0.001", "--runs", "2", "--size", "32", "--threads=2"];

fn names(document: &serde_json::Value) -> Vec<&str> {
    document["results"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect()
}

#[test]
fn every_decoder_has_its_rows() {
    let program = Program::new();
    let run = program.run(&[&QUICK[..], &["--images", "3", "--out", "decode.json"]].concat()).ends_quietly();
    let document = run.json();
    assert_document(&document);
    assert_eq!(std::fs::read(program.path("decode.json")).unwrap(), run.stdout);
    let names = names(&document);
    assert!(names.contains(&"zune full"));
    for name in ["turbo full", "turbo full+resize", "turbo region+resize"] {
        assert_eq!(names.contains(&name), cfg!(feature = "turbo"), "{name}");
    }
    for row in document["results"].as_array().unwrap() {
        let (rate, megabytes) = (row["images_per_s"].as_f64().unwrap(), row["mb_per_s"].as_f64().unwrap());
        assert!(rate > 0.0 && megabytes > 0.0);
        assert_eq!((&row["threads"], row["spread"]["runs"].as_array().unwrap().len()), (&2.into(), 2));
        assert!(row["spread"]["min"].as_f64().unwrap() <= rate && rate <= row["spread"]["max"].as_f64().unwrap());
    }
    assert_eq!(document["data"]["origin"], "generated");
}

#[test]
fn files_come_from_a_folder_or_from_shards() {
    let program = Program::new();
    let photos = [brimful::encode::encode_photo(1), brimful::encode::encode_photo(2)];
    program.write("photos/a.jpg", &photos[0]);
    program.write("photos/deep/b.jpeg", &photos[1]);
    program.write("a.tar", &archive(&[("0.jpg", &photos[0]), ("0.cls", b"1"), ("1.jpg", &photos[1])]));
    for source in [["--dir", "photos"], ["--shards", "a.tar"]] {
        let document = program.run(&[&QUICK[..], &source].concat()).ends_quietly().json();
        assert_eq!(document["data"]["images"], 2, "{source:?}");
    }
}

#[test]
fn a_damaged_file_is_left_out_for_all() {
    let program = Program::new();
    let photo = brimful::encode::encode_photo(1);
    program.write("photos/cut.jpg", &photo[..photo.len() / 2]);
    program.write("photos/good.jpg", &photo);
    let run = program.run(&[&QUICK[..], &["--dir", "photos"]].concat()).ends_with(1);
    assert!(run.stderr.starts_with("warning: 1 of 2 files"), "{}", run.stderr);
    assert_eq!(run.json()["data"]["images_left_out"], 1);
}

#[test]
fn what_only_has_the_name_of_a_jpeg_is_told() {
    let program = Program::new();
    let photo = brimful::encode::encode_photo(1);
    program.write("a.tar", &archive(&[("0.jpg", &photo), ("1.jpg", b"no photo")]));
    let run = program.run(&[&QUICK[..], &["--shards", "a.tar"]].concat()).ends_with(1);
    assert!(run.stderr.starts_with("warning: 1 of 2 files are no JPEG"), "{}", run.stderr);
    assert_eq!(run.json()["data"]["images"], 1);
}

#[test]
fn a_folder_without_photos_is_a_failure() {
    let program = Program::new();
    program.write("photos/a.txt", b"no photo");
    let run = program.run(&[&QUICK[..], &["--dir", "photos"]].concat()).ends_with(2);
    run.tells_error("no JPEG files");
    assert!(run.stderr.contains("hint: leave --dir"), "{}", run.stderr);
}

#[test]
fn the_table_names_its_columns() {
    let args = ["bench", "decode", "--images", "2", "--seconds", "0.001", "--runs", "1", "--size", "32"];
    let run = Program::new().run(&args).ends_quietly();
    let header: Vec<&str> = run.lines()[0].split_whitespace().collect();
    assert_eq!(header, ["decoder", "images/s", "MB/s", "threads", "spread"], "{}", run.text());
    assert!(run.lines()[1].starts_with("zune full "), "{}", run.text());
}
