//! Names that are no fit keys, and keys that two samples have.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use brimful::ErrorKind;
use brimful::convert::{ConvertOptions, Duplicates, ErrorBudget, Names};

use crate::made::{Made, by_samples, keys, left_out};

/// A source with a Latin-1 name and one with an escape sequence.
fn odd_names() -> Made {
    let made = Made::with_pictures(1, 1);
    for name in [&b"caf\xe9.jpg"[..], b"a\x1b[2J.jpg"] {
        std::fs::write(made.path("src/class00").join(OsStr::from_bytes(name)), b"x").unwrap();
    }
    made
}

#[test]
fn a_name_that_is_no_fit_key_ends_the_conversion_before_anything_is_written() {
    let made = odd_names();
    let error = made.run("out", by_samples(10)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
    assert!(error.to_string().contains("a\\u{1b}[2J") && error.hint().unwrap().contains("--names escape"), "{error}");
    assert!(!made.path("out").exists());
}

#[test]
fn within_the_budget_such_samples_are_left_out_and_listed() {
    let made = odd_names();
    let options = ConvertOptions { errors_max: ErrorBudget::Share(0.7), ..by_samples(10) };
    let dataset = made.convert("out", options);
    assert_eq!((dataset.samples, dataset.left_out), (1, 2));
    assert_eq!(left_out(&made.path("out")).lines().count(), 2);
}

#[test]
fn or_they_are_escaped() {
    let made = odd_names();
    let dataset = made.convert("out", ConvertOptions { names: Names::Escape, ..by_samples(10) });
    let keys = keys(&made.path("out"), &dataset, "train");
    assert_eq!(keys, ["class00/a%1B[2J", "class00/caf%E9", "class00/img000"]);
}

#[test]
fn two_samples_with_one_key_are_refused_renamed_or_dropped() {
    let made = Made::new();
    for name in ["c/a.jpg", "c/a.png", "c/a.b.jpg", "c/a_b.jpg", "c/a-2.jpg", "c/z.jpg"] {
        made.write(name, name.as_bytes());
    }
    let with = |duplicates| ConvertOptions { duplicates, ..by_samples(10) };
    let error = made.run("refused", with(Duplicates::Refuse)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Grouping);
    assert!(error.message().contains("src/c/a.jpg' and '") && error.message().contains("src/c/a.png'"), "{error}");
    assert!(!made.path("refused").exists());

    let dataset = made.convert("renamed", with(Duplicates::Rename));
    let renamed = keys(&made.path("renamed"), &dataset, "train");
    assert_eq!(renamed, ["c/a-2", "c/a_b", "c/a", "c/a-3", "c/a_b-2", "c/z"]);

    let dataset = made.convert("dropped", with(Duplicates::Drop));
    assert_eq!(keys(&made.path("dropped"), &dataset, "train"), ["c/a-2", "c/a_b", "c/a", "c/z"]);
    assert_eq!(dataset.left_out, 2);
    assert!(left_out(&made.path("dropped")).contains("a.png"));
}
