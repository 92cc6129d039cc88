//! An image folder becomes shards.

use brimful::ErrorKind;
use brimful::convert::{ConvertOptions, ErrorBudget, ShardLimit, SourceKind};
use brimful::shard::{IndexCache, ShardIndex, ShardOptions, index_beside};

use crate::made::{Made, by_samples, files, keys, left_out, samples};

#[test]
fn classes_are_numbered_and_samples_ordered_as_torchvision_does() {
    let made = Made::new();
    for name in
        ["b/2.jpg", "b/10.jpg", "B/x.PNG", "a/z.jpeg", "a-1/y.jpg", "a/sub-1/p.jpg", "a/sub/q.webp", "a/sub/r/s.jpg"]
    {
        made.write(name, name.as_bytes());
    }
    made.write("a/notes.txt", b"no picture");
    made.write("b/.hidden.jpg", b"hidden");
    made.write("loose.jpg", b"no class");
    std::fs::create_dir(made.path("src/empty")).unwrap();
    let conversion = made.plan("out", by_samples(100)).unwrap();
    let notes = conversion.notes().join("\n");
    for note in ["1 pictures directly in", "1 files below", "1 hidden", "1 classes have no pictures (first: 'empty')"] {
        assert!(notes.contains(note), "{notes}");
    }
    let dataset = made.convert("out", by_samples(100));
    let found = samples(&made.path("out/train-000000.tar"));
    let lines: Vec<String> = found
        .iter()
        .map(|(key, fields)| {
            let [(cls, label), (ext, bytes)] = &fields[..] else { panic!("{key}: {fields:?}") };
            assert_eq!(cls, "cls");
            format!("{key} {ext} {} {}", String::from_utf8_lossy(label), String::from_utf8_lossy(bytes))
        })
        .collect();
    let expected = [
        "B/x png 0 B/x.PNG",
        "a/z jpg 1 a/z.jpeg",
        "a/sub/q webp 1 a/sub/q.webp",
        "a/sub/r/s jpg 1 a/sub/r/s.jpg",
        "a/sub-1/p jpg 1 a/sub-1/p.jpg",
        "a-1/y jpg 2 a-1/y.jpg",
        "b/10 jpg 3 b/10.jpg",
        "b/2 jpg 3 b/2.jpg",
    ];
    let mut expected = expected.to_vec();
    // By whole paths: "a/sub-1" comes before "a/sub/r", and behind "a/sub".
    expected.swap(3, 4);
    assert_eq!(lines, expected);
    let classes = std::fs::read_to_string(made.path("out/classes.json")).unwrap();
    assert_eq!(classes, "{\n  \"B\": 0,\n  \"a\": 1,\n  \"a-1\": 2,\n  \"b\": 3,\n  \"empty\": 4\n}\n");
    assert_eq!((dataset.samples, dataset.classes, dataset.left_out), (8, 5, 0));
    assert_eq!(dataset.fields.get("jpg"), Some(&6));
}

#[test]
fn pictures_without_folders_have_no_class() {
    let made = Made::new();
    made.write("a.jpg", b"1");
    made.write("b.jpg", b"2");
    let dataset = made.convert("out", by_samples(10));
    let found = samples(&made.path("out/train-000000.tar"));
    assert_eq!(found[1], ("b".into(), vec![("jpg".into(), b"2".to_vec())]));
    assert_eq!(dataset.classes, 0);
    assert!(!made.path("out/classes.json").exists());
}

#[test]
fn shards_end_by_samples_or_by_bytes() {
    let made = Made::with_pictures(3, 7);
    let dataset = made.convert("a", by_samples(8));
    let counts: Vec<u64> = dataset.splits[0].shards.iter().map(|shard| shard.samples).collect();
    assert_eq!(counts, [8, 8, 5]);
    assert_eq!(dataset.splits[0].pattern, "train-{000000..000002}.tar");

    let limit = ShardLimit::Bytes(9_000);
    let dataset = made.convert("b", ConvertOptions { limit, threads: 2, ..ConvertOptions::default() });
    let sizes: Vec<u64> = dataset.splits[0].shards.iter().map(|shard| shard.bytes).collect();
    assert!(sizes.len() > 3 && sizes.iter().all(|size| *size <= 9_000), "{sizes:?}");
    assert_eq!(dataset.samples, 21);
    for shard in &dataset.splits[0].shards {
        let bytes = std::fs::read(made.path("b").join(&shard.name)).unwrap();
        assert_eq!(bytes.len() as u64, shard.bytes);
        assert_eq!(format!("{:032x}", twox_hash::XxHash3_128::oneshot(&bytes)), shard.hash);
    }
}

#[test]
fn every_shard_has_an_index_beside_it_that_a_reader_takes() {
    let made = Made::with_pictures(2, 5);
    let dataset = made.convert("out", by_samples(4));
    for shard in &dataset.splits[0].shards {
        let path = made.path("out").join(&shard.name);
        let options = ShardOptions::default();
        let index = ShardIndex::build(&brimful::shard::Shard::open(&path, &options).unwrap()).unwrap();
        let beside = std::fs::read(index_beside(&path)).unwrap();
        index.write_beside(&path).unwrap();
        assert_eq!(std::fs::read(index_beside(&path)).unwrap(), beside);
        let cache = IndexCache::at(made.path("cache"));
        assert_eq!(cache.load_or_build(&path, &options).unwrap(), index);
    }
}

#[test]
fn a_folder_without_pictures_and_no_folder_are_errors() {
    let made = Made::new();
    made.write("a/readme.txt", b"");
    assert_eq!(made.plan("out", by_samples(1)).unwrap_err().kind(), ErrorKind::NotFound);
    std::fs::remove_dir_all(made.path("src")).unwrap();
    assert_eq!(made.plan("out", by_samples(1)).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_folder_that_contains_itself_is_an_error() {
    let made = Made::with_pictures(1, 1);
    std::os::unix::fs::symlink("..", made.path("src/class00/up")).unwrap();
    assert_eq!(made.plan("out", by_samples(1)).unwrap_err().kind(), ErrorKind::Limit);
}

#[test]
fn pictures_behind_links_are_read_and_broken_links_are_bad_samples() {
    let made = Made::with_pictures(1, 2);
    std::os::unix::fs::symlink("img000.jpg", made.path("src/class00/link.jpg")).unwrap();
    let dataset = made.convert("a", by_samples(10));
    assert_eq!(keys(&made.path("a"), &dataset, "train").len(), 3);
    std::os::unix::fs::symlink("nothing", made.path("src/class00/broken.jpg")).unwrap();
    let error = made.run("b", by_samples(10)).unwrap_err();
    assert!(error.to_string().contains("broken.jpg") && error.hint().unwrap().contains("--max-errors"), "{error}");
    let options = ConvertOptions { errors_max: ErrorBudget::Count(1), ..by_samples(10) };
    let dataset = made.convert("c", options);
    assert_eq!((dataset.samples, dataset.left_out), (3, 1));
    assert!(left_out(&made.path("c")).contains("broken.jpg"));
}

#[test]
fn what_is_no_regular_file_is_a_bad_sample_and_nobody_waits_for_it() {
    let made = Made::with_pictures(1, 2);
    let pipe = made.path("src/class00/pipe.jpg");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    let error = made.run("a", by_samples(10)).unwrap_err();
    assert!(error.to_string().contains("pipe.jpg' is no regular file"), "{error}");
    let dataset = made.convert("b", ConvertOptions { errors_max: ErrorBudget::Count(1), ..by_samples(10) });
    assert_eq!((dataset.samples, dataset.left_out), (2, 1));
    for name in ["list.csv", "photos.zip", "files.parquet"] {
        let path = made.path(name);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        assert_eq!(SourceKind::of(&path).unwrap_err().kind(), ErrorKind::Unsupported, "{name}");
    }
}

#[test]
fn a_file_that_changed_since_it_was_listed_is_a_bad_sample() {
    let made = Made::with_pictures(1, 3);
    let conversion = made.plan("out", by_samples(10)).unwrap();
    made.write("class00/img001.jpg", b"other");
    let error = conversion.run(&|_, _| {}).unwrap_err();
    assert!(error.to_string().contains("img001.jpg") && error.to_string().contains("changed"), "{error}");
    assert!(!made.path("out/train-000000.tar").exists());
}

#[test]
fn a_destination_inside_the_source_is_refused_and_the_source_stays_as_it_is() {
    let made = Made::with_pictures(1, 1);
    std::os::unix::fs::symlink("src", made.path("link")).unwrap();
    for destination in ["src", "src/out", "src/class00/../new/out", "link/out"] {
        let error = made.plan(destination, by_samples(1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption, "{destination}");
    }
    assert_eq!(files(&made.path("src/class00")).len(), 1);
    // Beside it, a folder whose name begins alike is another one.
    made.convert("src-shards", by_samples(1));
}

#[test]
fn options_out_of_range_are_refused() {
    let made = Made::with_pictures(1, 1);
    let check = |options: ConvertOptions| {
        assert_eq!(made.plan("out", options).unwrap_err().kind(), ErrorKind::InvalidOption);
    };
    check(by_samples(0));
    check(ConvertOptions { val_share: 1.0, ..by_samples(1) });
    check(ConvertOptions { val_share: f64::NAN, ..by_samples(1) });
    check(ConvertOptions { threads: 0, ..by_samples(1) });
    check(ConvertOptions { sorted: true, shuffle: Some(1), ..by_samples(1) });
    check(ConvertOptions { part: brimful::convert::Part { number: 3, of: 2 }, ..by_samples(1) });
}
