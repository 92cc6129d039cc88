//! The order of samples: shuffles, splits, and that threads and parts change nothing.

use std::collections::BTreeSet;

use brimful::ErrorKind;
use brimful::convert::{Conversion, ConvertOptions, ErrorBudget, Outcome, Part, ShardLimit, SourceKind, merge};

use crate::made::{Made, by_samples, files, keys};

#[test]
fn any_number_of_threads_makes_the_same_bytes() {
    let made = Made::with_pictures(5, 60);
    for shuffle in [None, Some(7)] {
        let options = |threads| ConvertOptions { shuffle, val_share: 0.2, threads, ..by_samples(50) };
        let name = |threads: usize| format!("{shuffle:?}-{threads}");
        made.convert(&name(1), options(1));
        let expected = files(&made.path(&name(1)));
        assert!(expected.contains_key("dataset.json") && expected.contains_key("val-000001.tar.index"));
        for threads in [2, 3, 9] {
            made.convert(&name(threads), options(threads));
            assert_eq!(files(&made.path(&name(threads))), expected, "{threads} threads");
        }
    }
}

#[test]
fn a_seed_shuffles_and_a_share_splits() {
    let made = Made::with_pictures(4, 50);
    let plain = made.convert("plain", by_samples(1000));
    let all = keys(&made.path("plain"), &plain, "train");
    assert!(all.is_sorted());
    let shuffled = |name: &str, seed, split_seed| {
        let options = ConvertOptions { shuffle: Some(seed), val_share: 0.25, split_seed, ..by_samples(1000) };
        let dataset = made.convert(name, options);
        let folder = made.path(name);
        (keys(&folder, &dataset, "train"), keys(&folder, &dataset, "val"))
    };
    let (train, val) = shuffled("a", 1, 0);
    assert_eq!((train.len(), val.len()), (150, 50));
    let together: BTreeSet<&String> = train.iter().chain(&val).collect();
    assert!(together.into_iter().eq(&all));
    assert!(!train.is_sorted() && !val.is_sorted());
    let (other_order, same_val) = shuffled("b", 2, 0);
    assert_ne!(other_order, train);
    assert_eq!(same_val.iter().collect::<BTreeSet<_>>(), val.iter().collect::<BTreeSet<_>>());
    let (_, other_val) = shuffled("c", 1, 3);
    assert_ne!(other_val.iter().collect::<BTreeSet<_>>(), val.iter().collect::<BTreeSet<_>>());
}

#[test]
fn shards_are_sorted_by_key_again() {
    let made = Made::with_pictures(3, 30);
    let plain = made.convert("plain", by_samples(20));
    let shuffled = made.convert("shuffled", ConvertOptions { shuffle: Some(2), ..by_samples(7) });
    assert!(!keys(&made.path("shuffled"), &shuffled, "train").is_sorted());
    let kind = SourceKind::of(&made.path("shuffled")).unwrap();
    let sorted = |name: &str, val_share, threads| {
        let options = ConvertOptions { sorted: true, val_share, threads, ..by_samples(20) };
        match Conversion::plan(&kind, &made.path(name), options).unwrap().run(&|_, _| {}).unwrap() {
            Outcome::Complete(dataset) => *dataset,
            Outcome::Part { .. } => panic!("a part only"),
        }
    };
    let again = sorted("again", 0.0, 1);
    assert_eq!(keys(&made.path("again"), &again, "train"), keys(&made.path("plain"), &plain, "train"));
    for shard in &plain.splits[0].shards {
        let [one, other] = ["plain", "again"].map(|folder| std::fs::read(made.path(folder).join(&shard.name)).unwrap());
        assert!(one == other, "{}", shard.name);
    }
    let split = sorted("split", 0.3, 4);
    let [train, val] = ["train", "val"].map(|name| keys(&made.path("split"), &split, name));
    assert_eq!((train.len(), val.len()), (63, 27));
    assert!(train.is_sorted() && val.is_sorted());
}

#[test]
fn parts_in_any_order_add_up_to_the_same_bytes() {
    let made = Made::with_pictures(3, 40);
    let options = |number, of| ConvertOptions { shuffle: Some(3), part: Part { number, of }, ..by_samples(9) };
    made.convert("whole", options(1, 1));
    for of in [2, 3, 20] {
        let name = format!("parts-{of}");
        for number in (1..=of).rev() {
            let error = merge(&made.path(&name)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            assert!(matches!(made.run(&name, options(number, of)).unwrap(), Outcome::Part { .. }));
        }
        merge(&made.path(&name)).unwrap();
        assert_eq!(files_only(&made.path(&name)), files(&made.path("whole")), "{of} parts");
        merge(&made.path(&name)).unwrap();
    }
}

#[test]
fn parts_of_different_conversions_are_not_merged() {
    let made = Made::with_pictures(2, 10);
    let options = |number, seed| ConvertOptions { shuffle: Some(seed), part: Part { number, of: 2 }, ..by_samples(5) };
    made.run("out", options(1, 1)).unwrap();
    // Made elsewhere, and put together by hand.
    made.run("elsewhere", options(2, 2)).unwrap();
    let journal = ".brimful-convert/part-2-of-2.jsonl";
    std::fs::copy(made.path("elsewhere").join(journal), made.path("out").join(journal)).unwrap();
    assert_eq!(merge(&made.path("out")).unwrap_err().kind(), ErrorKind::StateMismatch);
}

#[test]
fn a_shard_that_is_gone_is_noticed_by_the_merge() {
    let made = Made::with_pictures(2, 10);
    let options = |number| ConvertOptions { part: Part { number, of: 2 }, ..by_samples(5) };
    made.run("out", options(1)).unwrap();
    made.run("out", options(2)).unwrap();
    std::fs::remove_file(made.path("out/train-000002.tar")).unwrap();
    let error = merge(&made.path("out")).unwrap_err();
    assert!(error.to_string().contains("train-000002.tar"), "{error}");
}

#[test]
fn parts_that_left_out_too_much_together_are_not_merged() {
    let made = Made::with_pictures(2, 10);
    for name in ["class00/a.jpg", "class01/z.jpg"] {
        std::os::unix::fs::symlink("nothing", made.path("src").join(name)).unwrap();
    }
    let options = |number, count| {
        let part = Part { number, of: 2 };
        ConvertOptions { part, errors_max: ErrorBudget::Count(count), resume: true, ..by_samples(11) }
    };
    [1, 2].into_iter().for_each(|number| drop(made.run("out", options(number, 1)).unwrap()));
    assert_eq!(merge(&made.path("out")).unwrap_err().kind(), ErrorKind::TooManyErrors);
    [1, 2].into_iter().for_each(|number| drop(made.run("out", options(number, 2)).unwrap()));
    assert_eq!(merge(&made.path("out")).unwrap().left_out, 2);
}

#[test]
fn a_sample_larger_than_a_shard_makes_a_shard_of_its_own() {
    let made = Made::new();
    for (name, size) in [("a/0.jpg", 10), ("a/1.jpg", 90_000), ("a/2.jpg", 10), ("a/3.jpg", 10)] {
        made.write(name, &vec![1; size]);
    }
    let limit = ShardLimit::Bytes(10_000);
    let dataset = made.convert("out", ConvertOptions { limit, threads: 2, ..ConvertOptions::default() });
    let counts: Vec<u64> = dataset.splits[0].shards.iter().map(|shard| shard.samples).collect();
    assert_eq!(counts, [1, 1, 2]);
}

fn files_only(folder: &std::path::Path) -> std::collections::BTreeMap<String, u128> {
    assert!(!folder.join(".brimful-convert").exists());
    files(folder)
}
