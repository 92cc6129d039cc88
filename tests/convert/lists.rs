//! Lists of pictures become shards.

use brimful::ErrorKind;
use brimful::convert::{Conversion, Dataset, ListOptions, Outcome, SourceKind};

use crate::made::{Made, by_samples, samples};

fn convert(made: &Made, name: &str, text: &str, change: impl Fn(&mut ListOptions)) -> brimful::Result<Dataset> {
    made.write(name, text.as_bytes());
    let SourceKind::List(mut list) = SourceKind::of(&made.path("src").join(name))? else { panic!("no list") };
    change(&mut list);
    let destination = made.path(&format!("out-{name}"));
    match Conversion::plan(&SourceKind::List(list), &destination, by_samples(10))?.run(&|_, _| {})? {
        Outcome::Complete(dataset) => Ok(*dataset),
        Outcome::Part { .. } => panic!("a part only"),
    }
}

fn lines(made: &Made, name: &str) -> Vec<String> {
    let found = samples(&made.path(&format!("out-{name}/train-000000.tar")));
    let field = |(ext, bytes): &(String, Vec<u8>)| format!("{ext}={}", String::from_utf8_lossy(bytes));
    found
        .iter()
        .map(|(key, fields)| format!("{key} {}", fields.iter().map(field).collect::<Vec<_>>().join(" ")))
        .collect()
}

fn with_pictures() -> Made {
    let made = Made::new();
    made.write("a/1.jpg", b"one");
    made.write("b/2.png", b"two");
    made
}

#[test]
fn labels_that_are_names_become_classes_and_other_columns_json() {
    let made = with_pictures();
    let text = "path,label,\"a caption\",n\r\nb/2.png,\"dog, big\",\"line\nbreak\",7\r\na/1.jpg,cat,,8\r\n";
    let dataset = convert(&made, "l.csv", text, |_| {}).unwrap();
    let expected = [
        "b/2 cls=1 json={\"a caption\":\"line\\nbreak\",\"n\":\"7\"} png=two",
        "a/1 cls=0 jpg=one json={\"a caption\":\"\",\"n\":\"8\"}",
    ];
    assert_eq!((lines(&made, "l.csv"), dataset.classes), (expected.map(str::to_owned).to_vec(), 2));
    let classes = std::fs::read_to_string(made.path("out-l.csv/classes.json")).unwrap();
    assert_eq!(classes, "{\n  \"cat\": 0,\n  \"dog, big\": 1\n}\n");
}

#[test]
fn labels_that_are_numbers_stay() {
    let made = with_pictures();
    convert(&made, "l.tsv", "image\ttarget\nb/2.png\t12\na/1.jpg\t3\n", |_| {}).unwrap();
    assert_eq!(lines(&made, "l.tsv"), ["b/2 cls=12 png=two", "a/1 cls=3 jpg=one"]);
    let text = "{\"file\": \"a/1.jpg\", \"label\": 5, \"box\": [1, 2.5]}\n\n{\"file\": \"b/2.png\", \"label\": 6}\n";
    convert(&made, "l.jsonl", text, |_| {}).unwrap();
    assert_eq!(lines(&made, "l.jsonl"), ["a/1 cls=5 jpg=one json={\"box\":[1,2.5]}", "b/2 cls=6 png=two"]);
}

#[test]
fn labels_with_fractions_are_no_classes_and_stay_in_the_json() {
    let made = with_pictures();
    let notes = |name: &str| {
        let kind = SourceKind::of(&made.path("src").join(name)).unwrap();
        Conversion::plan(&kind, &made.path("nowhere"), by_samples(10)).unwrap().notes().join("\n")
    };
    let dataset = convert(&made, "l.csv", "path,score\nb/2.png,0.73\na/1.jpg,2\n", |list| {
        list.label_column = Some("score".into());
    });
    assert_eq!(dataset.unwrap().classes, 0);
    assert_eq!(lines(&made, "l.csv"), ["b/2 json={\"score\":\"0.73\"} png=two", "a/1 jpg=one json={\"score\":\"2\"}"]);
    let text = "{\"file\": \"a/1.jpg\", \"label\": 0.5}\n{\"file\": \"b/2.png\", \"label\": 1e-3}\n";
    convert(&made, "l.jsonl", text, |_| {}).unwrap();
    assert_eq!(lines(&made, "l.jsonl"), ["a/1 jpg=one json={\"label\":0.5}", "b/2 json={\"label\":0.001} png=two"]);
    assert!(notes("l.jsonl").contains("'label'") && notes("l.jsonl").contains("json"), "{}", notes("l.jsonl"));
    // Names among numbers are names all.
    let dataset = convert(&made, "m.csv", "path,label\nb/2.png,2.5\na/1.jpg,nan\n", |_| {}).unwrap();
    assert_eq!(
        (dataset.classes, lines(&made, "m.csv")),
        (2, vec!["b/2 cls=0 png=two".into(), "a/1 cls=1 jpg=one".into()])
    );
    assert_eq!(notes("m.csv"), "");
}

#[test]
fn columns_and_root_can_be_named() {
    let made = with_pictures();
    let root = made.path("src");
    let text = format!("where,what,label\n{}/a/1.jpg,9,x\n", root.display());
    convert(&made, "deep/l.csv", &text, |list| {
        list.root = Some(root.clone());
        list.path_column = Some("where".into());
        list.label_column = Some("what".into());
    })
    .unwrap();
    assert_eq!(lines(&made, "deep/l.csv"), ["a/1 cls=9 jpg=one json={\"label\":\"x\"}"]);
}

#[test]
fn a_row_that_cannot_be_read_is_named() {
    let made = with_pictures();
    let check = |name: &str, text: &str, kind: ErrorKind, part: &str| {
        let error = convert(&made, name, text, |_| {}).unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(part), "{error}");
    };
    check("a.csv", "path,label\na/1.jpg,1\nb/2.png\n", ErrorKind::FieldValue, "row 2 of the list");
    check("b.csv", "path,label\na/1.jpg,\n", ErrorKind::FieldValue, "no label in the column 'label'");
    check("c.csv", "x,y\n1,2\n", ErrorKind::InvalidOption, "no column of paths among x, y");
    check("d.csv", "path\n", ErrorKind::NotFound, "has no rows");
    check("e.jsonl", "{\"path\": \"a/1.jpg\"}\nnot json\n", ErrorKind::FieldValue, "row 2 of the list");
    check("f.jsonl", "{\"path\": 7}\n", ErrorKind::FieldValue, "no path in the column 'path'");
    check("g.csv", "path\nnotes.txt\n", ErrorKind::FieldValue, "no picture by its name");
    check("h.csv", "path\nmissing.jpg\n", ErrorKind::NotFound, "missing.jpg");
    check("i.csv", "path\n../src/a/1.jpg\n", ErrorKind::InvalidOption, "cannot be a key");
    check("j.csv", "path\na/1.jpg\na/1.jpg\n", ErrorKind::Grouping, "would both have the key 'a/1'");
}
