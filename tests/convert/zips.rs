//! Zip archives become shards.

use brimful::ErrorKind;
use brimful::convert::{Conversion, ConvertOptions, Dataset, ErrorBudget, Names, Outcome, SourceKind};

use crate::archive::zip;
use crate::made::{Made, by_samples, left_out, samples};

fn convert(made: &Made, bytes: &[u8], options: ConvertOptions) -> brimful::Result<Dataset> {
    let path = made.path("photos.zip");
    std::fs::write(&path, bytes).unwrap();
    match Conversion::plan(&SourceKind::of(&path)?, &made.path("out"), options)?.run(&|_, _| {})? {
        Outcome::Complete(dataset) => Ok(*dataset),
        Outcome::Part { .. } => panic!("a part only"),
    }
}

#[test]
fn folders_below_the_common_one_are_classes() {
    let made = Made::new();
    let long = vec![7; 40_000];
    let files: [(&str, &[u8]); 7] = [
        ("set/", b""),
        ("set/dog/b.jpg", b"b"),
        ("set/dog/a.JPEG", &long),
        ("set/cat/x/c.png", b"c"),
        ("set/cat/.hidden.jpg", b""),
        ("set/readme.txt", b"text"),
        ("__MACOSX/set/dog/._a.jpg", b""),
    ];
    let dataset = convert(&made, &zip(&files), by_samples(10)).unwrap();
    let found = samples(&made.path("out/train-000000.tar"));
    let label = |label: &[u8]| ("cls".to_owned(), label.to_vec());
    let expected = [
        ("cat/x/c".to_owned(), vec![label(b"0"), ("png".into(), b"c".to_vec())]),
        ("dog/a".to_owned(), vec![label(b"1"), ("jpg".into(), long)]),
        ("dog/b".to_owned(), vec![label(b"1"), ("jpg".into(), b"b".to_vec())]),
    ];
    assert_eq!((found.as_slice(), dataset.classes), (&expected[..], 2));
}

#[test]
fn damaged_files_are_bad_samples_and_damaged_archives_errors() {
    let made = Made::new();
    let good = zip(&[("a/0.jpg", b"zero"), ("a/1.jpg", b"one, long enough to be deflated"), ("a/2.jpg", b"two")]);
    let mut bad = good.clone();
    let at = bad.windows(4).position(|window| window == b"zero").unwrap();
    bad[at] ^= 1;
    assert_eq!(convert(&made, &bad, by_samples(9)).unwrap_err().kind(), ErrorKind::Decode);
    std::fs::remove_dir_all(made.path("out")).unwrap();
    let dataset = convert(&made, &bad, ConvertOptions { errors_max: ErrorBudget::Count(1), ..by_samples(9) }).unwrap();
    assert_eq!((dataset.samples, dataset.left_out), (2, 1));
    assert!(left_out(&made.path("out")).contains("a/0.jpg"));
    for bytes in [&good[..good.len() - 30], b"", b"PK\x05\x06", &good[100..]] {
        let error = convert(&Made::new(), bytes, by_samples(9)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Decode, "{error}");
    }
    assert_eq!(convert(&Made::new(), &zip(&[("a.txt", b"")]), by_samples(9)).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn any_changed_byte_is_noticed_or_harmless() {
    let made = Made::new();
    let good = zip(&[("a/0.jpg", b"zero"), ("a/1.jpg", b"one, long enough to be deflated")]);
    let path = made.path("photos.zip");
    for (at, bits) in (0..good.len()).flat_map(|at| [(at, 0x21), (at, 3)]) {
        let mut bytes = good.clone();
        bytes[at] ^= bits;
        std::fs::write(&path, &bytes).unwrap();
        // No panic, and no sample of other bytes: sizes and sums are checked.
        let plan =
            Conversion::plan(&SourceKind::of(&path).unwrap(), &made.path(&format!("{at}-{bits}")), by_samples(9));
        let Ok(plan) = plan else { continue };
        if plan.run(&|_, _| {}).is_ok() {
            let found = samples(&made.path(&format!("{at}-{bits}/train-000000.tar")));
            assert!(found.len() == 2 || !plan.notes().is_empty(), "byte {at}: {} samples", found.len());
            for (_, fields) in found {
                for (ext, bytes) in fields.iter().filter(|(ext, _)| ext != "cls") {
                    assert!(
                        bytes.starts_with(b"zero") || bytes.starts_with(b"one, long"),
                        "byte {at}: {ext} {bytes:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn an_archive_of_more_files_than_its_count_can_tell_is_read_whole() {
    let made = Made::new();
    let names: Vec<String> = (0..66_000).map(|n| format!("a/{n:05}.jpg")).collect();
    let bytes = zip(&names.iter().map(|name| (name.as_str(), &b"x"[..])).collect::<Vec<_>>());
    let path = made.path("photos.zip");
    std::fs::write(&path, &bytes).unwrap();
    let plan = |name: &str| {
        Conversion::plan(&SourceKind::of(&made.path(name)).unwrap(), &made.path("out"), by_samples(100_000))
    };
    assert_eq!(plan("photos.zip").unwrap().samples(), 66_000);
    // A count that fits no number of files is damage.
    let mut wrong = zip(&[("a/0.jpg", b"x"), ("a/1.jpg", b"y")]);
    let at = wrong.len() - 22 + 8;
    wrong[at..at + 4].copy_from_slice(&[1, 0, 1, 0]);
    std::fs::write(made.path("wrong.zip"), &wrong).unwrap();
    assert_eq!(plan("wrong.zip").unwrap_err().kind(), ErrorKind::Decode);
}

#[test]
fn names_that_lead_up_or_to_the_root_are_refused_or_escaped() {
    let made = Made::new();
    let check = |name: &str, files: &[(&str, &[u8])], escaped: &[&str]| {
        let path = made.path(name);
        std::fs::write(&path, zip(files)).unwrap();
        let plan = |names| {
            let options = ConvertOptions { names, ..by_samples(9) };
            Conversion::plan(&SourceKind::of(&path).unwrap(), &made.path(&format!("out-{name}")), options)
        };
        assert_eq!(plan(Names::Refuse).unwrap_err().kind(), ErrorKind::InvalidOption, "{name}");
        plan(Names::Escape).unwrap().run(&|_, _| {}).unwrap();
        let found = samples(&made.path(&format!("out-{name}/train-000000.tar")));
        let lines: Vec<String> =
            found.iter().map(|(key, fields)| format!("{key} {}", String::from_utf8_lossy(&fields[0].1))).collect();
        assert_eq!(lines, escaped, "{name}");
    };
    check("up.zip", &[("../cat/a.jpg", b"1"), ("../dog/b.jpg", b"2")], &["%2E%2E/cat/a 0", "%2E%2E/dog/b 1"]);
    check("root.zip", &[("/set/cat/a.jpg", b"1"), ("/set/dog/b.jpg", b"2")], &["set/cat/a 0", "set/dog/b 0"]);
    check("mixed.zip", &[("cat/a.jpg", b"1"), ("dog/../b.jpg", b"2")], &["cat/a 0", "dog/%2E%2E/b 1"]);
}
