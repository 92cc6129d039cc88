//! Conversions that end early and go on.

use std::fs;
use std::io::Write;

use brimful::ErrorKind;
use brimful::convert::{ConvertOptions, ErrorBudget, Part};

use crate::made::{Made, by_samples, files};

fn resumed(options: ConvertOptions) -> ConvertOptions {
    ConvertOptions { resume: true, ..options }
}

#[test]
fn a_run_that_failed_goes_on_and_ends_with_the_same_bytes() {
    let made = Made::with_pictures(3, 30);
    let options = || ConvertOptions { shuffle: Some(5), threads: 1, ..by_samples(7) };
    made.convert("whole", options());
    let conversion = made.plan("out", options()).unwrap();
    let broken = made.path("src/class01/img011.jpg");
    let bytes = fs::read(&broken).unwrap();
    fs::remove_file(&broken).unwrap();
    conversion.run(&|_, _| {}).unwrap_err();
    fs::write(&broken, bytes).unwrap();
    let done = files_of_shards(&made, "out");
    assert!(done.len() > 1 && done.len() < 13, "{} shards before the failure", done.len());
    assert!(done.iter().all(|name| !name.starts_with('.')), "{done:?}");

    let error = made.run("out", options()).unwrap_err();
    assert!(error.hint().unwrap().contains("--resume"), "{error}");
    let other = ConvertOptions { shuffle: Some(6), ..options() };
    assert_eq!(made.run("out", resumed(other)).unwrap_err().kind(), ErrorKind::StateMismatch);
    made.convert("out", resumed(options()));
    assert_eq!(files(&made.path("out")), files(&made.path("whole")));
    // Once more there is nothing to do.
    made.convert("out", resumed(options()));
    assert_eq!(made.run("out", options()).unwrap_err().kind(), ErrorKind::InvalidOption);
}

#[test]
fn a_cut_journal_and_a_lost_shard_are_made_good() {
    let made = Made::with_pictures(2, 20);
    let options = || ConvertOptions { threads: 1, ..by_samples(5) };
    made.convert("whole", options());
    let conversion = made.plan("out", options()).unwrap();
    let last = made.path("src/class01/img019.jpg");
    let bytes = fs::read(&last).unwrap();
    fs::remove_file(&last).unwrap();
    conversion.run(&|_, _| {}).unwrap_err();
    fs::write(&last, bytes).unwrap();
    let journal = made.path("out/.brimful-convert/part-1-of-1.jsonl");
    let text = fs::read(&journal).unwrap();
    fs::write(&journal, &text[..text.len() - 40]).unwrap();
    fs::remove_file(made.path("out/train-000002.tar")).unwrap();
    // What a killed process leaves behind.
    let mut left = fs::File::create(made.path("out/.train-000003.tar.77-0.part")).unwrap();
    left.write_all(b"half a shard").unwrap();
    made.convert("out", resumed(options()));
    assert_eq!(files(&made.path("out")), files(&made.path("whole")));
}

#[test]
fn a_journal_cut_in_its_first_line_begins_anew() {
    let made = Made::with_pictures(1, 4);
    made.convert("whole", by_samples(2));
    fs::create_dir_all(made.path("out/.brimful-convert")).unwrap();
    fs::write(made.path("out/.brimful-convert/part-1-of-1.jsonl"), b"{\"finger").unwrap();
    made.convert("out", resumed(by_samples(2)));
    assert_eq!(files(&made.path("out")), files(&made.path("whole")));
}

#[test]
fn shards_of_someone_else_are_not_replaced() {
    let made = Made::with_pictures(1, 4);
    fs::create_dir(made.path("out")).unwrap();
    fs::write(made.path("out/train-000001.tar"), b"mine").unwrap();
    let error = made.run("out", by_samples(2)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
    assert_eq!(files(&made.path("out")).len(), 1);
    made.convert("other", by_samples(2));
}

#[test]
fn a_destination_that_holds_a_part_of_another_conversion_is_refused() {
    let made = Made::with_pictures(2, 10);
    let part = |number, of| ConvertOptions { part: Part { number, of }, ..by_samples(4) };
    made.run("out", part(1, 2)).unwrap();
    let before = shards(&made, "out");
    let refused = |options: ConvertOptions| {
        let error = made.run("out", options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StateMismatch, "{error}");
        assert_eq!(shards(&made, "out"), before);
    };
    // Another number of parts, other options, another source.
    refused(by_samples(4));
    refused(resumed(by_samples(4)));
    refused(part(2, 3));
    refused(ConvertOptions { shuffle: Some(1), ..part(2, 2) });
    made.write("class00/more.jpg", b"more");
    refused(part(2, 2));
    refused(by_samples(4));
    fs::remove_file(made.path("src/class00/more.jpg")).unwrap();
    // A shard of this part that no journal lists is someone else's.
    fs::write(made.path("out/train-000001.tar"), b"mine").unwrap();
    for options in [part(2, 2), resumed(part(2, 2))] {
        assert_eq!(made.run("out", options).unwrap_err().kind(), ErrorKind::InvalidOption);
        assert_eq!(fs::read(made.path("out/train-000001.tar")).unwrap(), b"mine");
    }
    fs::remove_file(made.path("out/train-000001.tar")).unwrap();
    made.run("out", part(2, 2)).unwrap();
    brimful::convert::merge(&made.path("out")).unwrap();
    made.convert("whole", by_samples(4));
    assert_eq!(files(&made.path("out")), files(&made.path("whole")));
}

#[test]
fn a_larger_budget_lets_a_conversion_go_on() {
    let made = Made::with_pictures(2, 10);
    for name in ["x", "y"] {
        std::os::unix::fs::symlink("nothing", made.path(&format!("src/class01/{name}.jpg"))).unwrap();
    }
    let options = |count| ConvertOptions { errors_max: ErrorBudget::Count(count), threads: 1, ..by_samples(4) };
    let error = made.run("out", options(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooManyErrors);
    let dataset = made.convert("out", resumed(options(2)));
    assert_eq!((dataset.samples, dataset.left_out), (20, 2));
    made.convert("whole", options(2));
    assert_eq!(files(&made.path("out")), files(&made.path("whole")));
}

fn files_of_shards(made: &Made, folder: &str) -> Vec<String> {
    let entries = fs::read_dir(made.path(folder)).unwrap().map(|entry| entry.unwrap().file_name());
    entries
        .map(|name| name.into_string().unwrap())
        .filter(|name| name.ends_with(".tar") || name.ends_with(".part"))
        .collect()
}

#[test]
fn what_a_complete_data_set_has_lost_is_made_again() {
    let made = Made::with_pictures(2, 20);
    made.convert("whole", by_samples(5));
    made.convert("out", by_samples(5));
    let out = made.path("out");
    fs::remove_file(out.join("train-000001.tar")).unwrap();
    let cut = fs::read(out.join("train-000002.tar")).unwrap();
    fs::write(out.join("train-000002.tar"), &cut[..cut.len() - 512]).unwrap();
    fs::remove_file(out.join("train-000003.tar.index")).unwrap();
    // What a run leaves that was killed before it could clean up.
    fs::create_dir(out.join(".brimful-convert")).unwrap();
    let error = brimful::convert::merge(&out).unwrap_err();
    assert!(error.to_string().contains("train-000001.tar") && error.hint().unwrap().contains("--resume"), "{error}");
    made.convert("out", resumed(by_samples(5)));
    assert_eq!(files(&out), files(&made.path("whole")));
    fs::create_dir(out.join(".brimful-convert")).unwrap();
    fs::remove_file(out.join("train-000003.tar.index")).unwrap();
    brimful::convert::merge(&out).unwrap();
    assert_eq!(files(&out), files(&made.path("whole")));
}

#[test]
fn shards_from_before_a_restart_of_the_machine_are_compared_by_their_hashes() {
    let made = Made::with_pictures(2, 20);
    let options = || ConvertOptions { threads: 1, ..by_samples(5) };
    made.convert("whole", options());
    made.run("out", ConvertOptions { part: Part { number: 1, of: 2 }, ..options() }).unwrap();
    let shard = made.path("out/train-000000.tar");
    let mut bytes = fs::read(&shard).unwrap();
    // The system had given it its name and its length, but not yet its bytes.
    bytes[2048..].fill(0);
    fs::write(&shard, &bytes).unwrap();
    fs::remove_file(made.path("out/train-000002.tar.index")).unwrap();
    let journal = made.path("out/.brimful-convert/part-1-of-2.jsonl");
    let text = fs::read_to_string(&journal).unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    fs::write(&journal, text.replace(boot.trim(), "another")).unwrap();
    for number in [1, 2] {
        made.run("out", resumed(ConvertOptions { part: Part { number, of: 2 }, ..options() })).unwrap();
    }
    brimful::convert::merge(&made.path("out")).unwrap();
    assert_eq!(files(&made.path("out")), files(&made.path("whole")));
}

#[test]
fn two_runs_of_one_part_do_not_meet() {
    let made = Made::with_pictures(1, 40);
    let conversion = made.plan("out", resumed(by_samples(10))).unwrap();
    let refused = std::sync::Mutex::new(None);
    conversion
        .run(&|_, _| {
            refused.lock().unwrap().get_or_insert_with(|| made.run("out", resumed(by_samples(10))).map(drop));
        })
        .unwrap();
    let error = refused.into_inner().unwrap().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StateMismatch, "{error}");
}

#[test]
fn lists_of_the_user_are_not_replaced() {
    let made = Made::with_pictures(1, 4);
    fs::create_dir(made.path("out")).unwrap();
    for name in ["classes.json", "left_out.jsonl"] {
        let path = made.path("out").join(name);
        fs::write(&path, b"mine").unwrap();
        let error = made.run("out", by_samples(2)).unwrap_err();
        assert_eq!((error.kind(), fs::read(&path).unwrap()), (ErrorKind::InvalidOption, b"mine".to_vec()), "{error}");
        fs::remove_file(path).unwrap();
    }
}

/// The shards of a folder with the hashes of their bytes.
fn shards(made: &Made, folder: &str) -> std::collections::BTreeMap<String, u128> {
    let read = |name: String| {
        let bytes = fs::read(made.path(folder).join(&name)).unwrap();
        (name, twox_hash::XxHash3_128::oneshot(&bytes))
    };
    files_of_shards(made, folder).into_iter().map(read).collect()
}
