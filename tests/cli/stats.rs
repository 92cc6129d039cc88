//! `brimful stats`.

use crate::archive::{archive, damaged, samples};
use crate::program::{Program, assert_document};

#[test]
fn sizes_and_classes_are_counted() {
    let program = Program::new();
    program.write(
        "a.tar",
        &archive(&[("0.jpg", b"123"), ("0.cls", b"7\n"), ("1.jpg", &[0; 900]), ("1.cls", b"7"), ("2.cls", b"cat")]),
    );
    let run = program.run(&["stats", "a.tar"]).ends_quietly();
    for line in
        ["samples    3", "jpg: 2 fields, 903 B; 3 B to 900 B, 451 B on average", "2 classes, 1 to 2 samples each"]
    {
        assert!(run.text().contains(line), "{}", run.text());
    }
    let document = program.run(&["stats", "--json", "a.tar"]).ends_quietly().json();
    assert_document(&document);
    assert_eq!((&document["classes"]["7"], &document["classes"]["cat"]), (&2.into(), &1.into()));
    assert_eq!(document["fields"]["jpg"]["histogram"]["1024"], 1);
}

#[test]
fn damage_is_told() {
    let program = Program::new();
    program.write("bad.tar", &damaged(4, 2560));
    program.write("good.tar", &samples(2));
    program.run(&["stats", "bad.tar", "good.tar"]).ends_with(1).tells_error("bad.tar");
    program.write("bad.tar", b"none");
    program.run(&["stats", "bad.tar"]).ends_with(2);
}
