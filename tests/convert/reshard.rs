//! Shards become other shards.

use std::fs;

use brimful::ErrorKind;
use brimful::convert::{Conversion, ConvertOptions, Duplicates, Names, Outcome, SourceKind};

use crate::made::{Made, by_samples, files, keys, samples};

#[test]
fn shards_are_cut_anew_shuffled_and_merged_without_a_change_of_bytes() {
    let made = Made::with_pictures(3, 20);
    let first = made.convert("first", by_samples(7));
    let kind = SourceKind::of(&made.path("first")).unwrap();
    let options = ConvertOptions { shuffle: Some(9), ..by_samples(25) };
    let Outcome::Complete(second) =
        Conversion::plan(&kind, &made.path("second"), options).unwrap().run(&|_, _| {}).unwrap()
    else {
        panic!("a part only")
    };
    assert_eq!((second.samples, second.classes, &second.fields), (60, 3, &first.fields));
    assert_eq!(fs::read(made.path("first/classes.json")).unwrap(), fs::read(made.path("second/classes.json")).unwrap());
    let all = |folder: &str, shards: &[brimful::convert::DatasetShard]| {
        let mut all: Vec<_> = shards.iter().flat_map(|shard| samples(&made.path(folder).join(&shard.name))).collect();
        all.sort();
        all
    };
    assert_eq!(all("first", &first.splits[0].shards), all("second", &second.splits[0].shards));
    assert!(!keys(&made.path("second"), &second, "train").is_sorted());
}

#[test]
fn a_pattern_names_shards_and_their_folder_is_not_written_to() {
    let made = Made::with_pictures(1, 6);
    made.convert("first", by_samples(2));
    let pattern = made.path("first/train-{000000..000001}.tar");
    let Outcome::Complete(dataset) =
        Conversion::plan(&SourceKind::of(&pattern).unwrap(), &made.path("out"), by_samples(9))
            .unwrap()
            .run(&|_, _| {})
            .unwrap()
    else {
        panic!("a part only")
    };
    assert_eq!(dataset.samples, 4);
    let kind = SourceKind::of(&made.path("first")).unwrap();
    for destination in ["first", "first/new"] {
        let error = Conversion::plan(&kind, &made.path(destination), by_samples(9)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption);
    }
    assert_eq!(SourceKind::of(&made.path("nothing-*.tar")).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn damaged_and_ungrouped_shards_are_refused_with_advice() {
    let made = Made::with_pictures(1, 4);
    made.convert("first", by_samples(4));
    let path = made.path("first/train-000000.tar");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 1024]).unwrap();
    let plan = |options| Conversion::plan(&SourceKind::of(&path).unwrap(), &made.path("out"), options);
    let error = plan(by_samples(2)).unwrap_err();
    assert!(error.hint().unwrap().contains("brimful verify"), "{error}");
    // One shard behind another: keys come twice.
    fs::write(&path, &bytes).unwrap();
    fs::copy(&path, made.path("first/train-000001.tar")).unwrap();
    let kind = SourceKind::of(&made.path("first")).unwrap();
    let plan = |duplicates| Conversion::plan(&kind, &made.path("out"), ConvertOptions { duplicates, ..by_samples(20) });
    assert_eq!(plan(Duplicates::Refuse).unwrap_err().kind(), ErrorKind::Grouping);
    assert_eq!(plan(Duplicates::Drop).unwrap().samples(), 4);
    assert_eq!(plan(Duplicates::Rename).unwrap().samples(), 8);
}

#[test]
fn no_file_of_the_source_is_replaced_or_changed() {
    let made = Made::with_pictures(2, 8);
    made.convert("first", by_samples(4));
    let before = files(&made.path("first"));
    // What an interrupted conversion has left lets new shards stand beside old ones.
    fs::create_dir(made.path("first/.brimful-convert")).unwrap();
    let plan = |source: &str, destination: &str| {
        Conversion::plan(&SourceKind::of(&made.path(source)).unwrap(), &made.path(destination), by_samples(3))
    };
    for source in ["first/*.tar", "first/train-000001.tar"] {
        let error = plan(source, "first").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption, "{source}: {error}");
    }
    fs::remove_dir(made.path("first/.brimful-convert")).unwrap();
    plan("first", "second").unwrap().run(&|_, _| {}).unwrap();
    assert_eq!(files(&made.path("first")), before);
    fs::rename(made.path("first/train-000003.tar"), made.path("old.tar")).unwrap();
    assert!(plan("old.tar", "second").is_ok(), "a shard of another name is in nobody's way");
}

#[test]
fn compressed_shards_are_read_too() {
    let made = Made::with_pictures(2, 8);
    made.convert("plain", by_samples(16));
    let bytes = fs::read(made.path("plain/train-000000.tar")).unwrap();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, &bytes).unwrap();
    fs::create_dir(made.path("packed")).unwrap();
    fs::write(made.path("packed/a.tar.gz"), packed.finish().unwrap()).unwrap();
    let kind = SourceKind::of(&made.path("packed")).unwrap();
    Conversion::plan(&kind, &made.path("out"), by_samples(16)).unwrap().run(&|_, _| {}).unwrap();
    assert!(fs::read(made.path("out/train-000000.tar")).unwrap() == bytes);
}

#[test]
fn names_in_archives_are_held_to_the_same_rules() {
    let made = Made::new();
    for (number, name) in ["../up/a.jpg", "/abs/a.jpg", "a/../b.jpg", "a\u{1b}b.jpg"].into_iter().enumerate() {
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(1);
        header.set_cksum();
        builder.append(&header, &b"x"[..]).unwrap();
        let path = made.path(&format!("{number}.tar"));
        fs::write(&path, builder.into_inner().unwrap()).unwrap();
        let plan = |names| {
            let options = ConvertOptions { names, ..by_samples(9) };
            Conversion::plan(&SourceKind::of(&path).unwrap(), &made.path(&format!("out{number}")), options)
        };
        assert_eq!(plan(Names::Refuse).unwrap_err().kind(), ErrorKind::InvalidOption, "{name}");
        plan(Names::Escape).unwrap().run(&|_, _| {}).unwrap();
        let (key, _) = samples(&made.path(&format!("out{number}/train-000000.tar"))).remove(0);
        assert_eq!(key, ["%2E%2E/up/a", "abs/a", "a/%2E%2E/b", "a%1Bb"][number]);
    }
}

#[test]
fn shards_whose_folders_number_classes_differently_are_not_merged() {
    let made = Made::with_pictures(2, 3);
    made.convert("one/a", by_samples(10));
    made.convert("one/b", by_samples(10));
    let merged = |name: &str| {
        let kind = SourceKind::of(&made.path("one/*/train-*.tar")).unwrap();
        let options = ConvertOptions { duplicates: Duplicates::Rename, ..by_samples(10) };
        let conversion = Conversion::plan(&kind, &made.path(name), options)?;
        let notes = conversion.notes();
        conversion.run(&|_, _| {}).map(|_| notes)
    };
    assert_eq!(merged("same").unwrap().len(), 1, "renamed samples are told, and nothing else");
    let list = made.path("one/b/classes.json");
    let numbers = fs::read_to_string(&list).unwrap();
    fs::write(&list, numbers.replace("class00", "zebra")).unwrap();
    let error = merged("other").unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidOption && error.to_string().contains("one/b"), "{error}");
    fs::write(&list, b"[1]").unwrap();
    assert_eq!(merged("broken").unwrap_err().kind(), ErrorKind::Decode);
    fs::remove_file(&list).unwrap();
    let notes = merged("without").unwrap().join("\n");
    assert!(notes.contains("one/b") && notes.contains("classes.json"), "{notes}");
}

#[test]
fn a_folder_of_both_shards_and_pictures_is_refused() {
    let made = Made::with_pictures(2, 3);
    assert_eq!(SourceKind::of(&made.path("src")).unwrap().as_str(), "folder");
    for (stray, kind) in [("stray.tar", "shards"), ("stray.parquet", "parquet")] {
        made.write(stray, b"anything");
        let error = SourceKind::of(&made.path("src")).unwrap_err();
        assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains(stray), "{error}");
        assert!(error.hint().unwrap().contains("pattern"), "{error}");
        assert_eq!(SourceKind::of(&made.path(&format!("src/*{}", &stray[5..]))).unwrap().as_str(), kind);
        fs::remove_file(made.path("src").join(stray)).unwrap();
    }
    let flat = Made::new();
    flat.write("a.jpg", b"a");
    flat.write("a.tar", b"a");
    assert_eq!(SourceKind::of(&flat.path("src")).unwrap_err().kind(), ErrorKind::Unsupported);
}
