//! Samples end to end: archives in, grouped and indexed samples and their values out.

use std::collections::BTreeMap;
use std::path::PathBuf;

use brimful::ErrorKind;
use brimful::sample::{
    EpochPlan, FieldSelector, Grouping, Key, Sample, SampleIndex, Shuffle, Split, Value, group_by_key,
};
use brimful::shard::{Shard, ShardIndex, ShardOptions, ShardStream};
use bytes::Bytes;

/// An archive of files, as the `tar` crate writes it.
fn archive(files: &[(&str, &[u8])]) -> Bytes {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, data) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, *data).unwrap();
    }
    builder.into_inner().unwrap().into()
}

fn index(shards: &[Bytes], grouping: &Grouping) -> brimful::Result<SampleIndex> {
    let names: Vec<String> = (0..shards.len()).map(|number| format!("{number}.tar")).collect();
    let indexes: brimful::Result<Vec<ShardIndex>> = names
        .iter()
        .zip(shards)
        .map(|(name, bytes)| ShardIndex::build(&Shard::from_bytes(name, bytes.clone())))
        .collect();
    SampleIndex::build(indexes?, grouping, names)
}

/// The samples of one archive read from front to back.
fn stream(bytes: &Bytes, grouping: &Grouping) -> brimful::Result<Vec<Sample>> {
    let reader = std::io::Cursor::new(bytes.clone());
    group_by_key(ShardStream::from_reader("stream", reader, &ShardOptions::default()), grouping).collect()
}

/// The samples of one archive read through its index.
fn random_access(bytes: &Bytes, grouping: &Grouping) -> brimful::Result<Vec<Sample>> {
    let shard = Shard::from_bytes("index", bytes.clone());
    let index = index(std::slice::from_ref(bytes), grouping)?;
    let read = |sample: brimful::sample::SampleRef<'_>| -> brimful::Result<Sample> {
        let field = |field: brimful::sample::FieldRef<'_>| {
            Ok(brimful::sample::Field { ext: field.ext.into(), value: shard.read(field.range())? })
        };
        Ok(Sample {
            key: Key::new(sample.key().to_vec()),
            fields: sample.fields().map(field).collect::<brimful::Result<_>>()?,
        })
    };
    index.iter().map(read).collect()
}

#[test]
fn a_shard_is_the_same_samples_by_index_and_by_stream() {
    let long = format!("{}/n01.left.jpg", "d".repeat(150));
    let bytes = archive(&[
        ("000.jpg", b"\xff\xd8\xff"),
        ("000.cls", b" 7\n"),
        ("__index__/x.json", b"{}"),
        ("._000.txt", b"junk"),
        ("000.json", b"{\"meta\": {\"label\": [4, 5.5]}}"),
        ("readme", b"no extension"),
        (&long, b"left"),
        ("001.JPG", b""),
    ]);
    let grouping = Grouping::default();
    let samples = stream(&bytes, &grouping).unwrap();
    assert_eq!(random_access(&bytes, &grouping).unwrap(), samples);
    let exts = |sample: &Sample| sample.fields.iter().map(|field| field.ext.to_string()).collect::<Vec<_>>().join(" ");
    assert_eq!(samples.iter().map(exts).collect::<Vec<_>>(), ["jpg cls json", "left.jpg", "jpg"]);

    let value = |selector: &str| {
        let selector = FieldSelector::parse(selector).unwrap();
        let field = samples[0].field(&selector).unwrap();
        Value::read(&field.ext, &field.value, selector.path(&field.ext)).unwrap()
    };
    assert_eq!(value("cls"), Value::Int(7));
    assert_eq!(value("jsn:x;json:meta.label.1"), Value::Float(5.5));
    assert_eq!(value("png;jpg"), Value::Bytes(Bytes::from_static(b"\xff\xd8\xff")));
}

#[test]
fn an_epoch_reads_every_sample_of_every_shard() {
    let shards: Vec<Bytes> = (0..5_u8)
        .map(|shard| {
            let names: Vec<String> =
                (0..shard).flat_map(|n| ["jpg", "cls"].map(|ext| format!("{shard}{n}.{ext}"))).collect();
            archive(&names.iter().map(|name| (name.as_str(), &b"x"[..])).collect::<Vec<_>>())
        })
        .collect();
    let index = index(&shards, &Grouping::default()).unwrap();
    assert_eq!(index.shard_lens(), [0, 1, 2, 3, 4]);
    let plan = EpochPlan::new(&index.shard_lens(), Shuffle::Window { shards: 2 }, 1, 0, Split::whole()).unwrap();
    let mut keys: Vec<Vec<u8>> = plan.iter().map(|sample| index.get(sample).key().to_vec()).collect();
    keys.sort();
    assert_eq!(keys.len(), 10);
    assert_eq!((&keys[0][..], &keys[9][..]), (&b"10"[..], &b"43"[..]));
}

#[test]
fn names_and_indexes_must_be_equally_many() {
    let indexes = || vec![ShardIndex::build(&Shard::from_bytes("a", archive(&[("a.jpg", b"")]))).unwrap()];
    for names in [&[][..], &["a", "b"]] {
        let error = SampleIndex::build(indexes(), &Grouping::default(), names.iter().copied()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption);
    }
}

#[test]
fn a_changed_shard_changes_the_fingerprint() {
    let fingerprint = |data: &[u8]| {
        let index = index(&[archive(&[("a.jpg", data), ("b.jpg", b"x")])], &Grouping::default()).unwrap();
        index.fingerprint()
    };
    assert_eq!(fingerprint(b"one"), fingerprint(b"two"), "same names, offsets and sizes");
    assert_ne!(fingerprint(b"one"), fingerprint(b"three"));
}

/// The collection of odd archives, where it lies beside the checkout.
fn corpus() -> Option<PathBuf> {
    let ancestors = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().skip(1).take(2);
    ancestors.map(|folder| folder.join("shared/corpus")).find(|folder| folder.is_dir())
}

/// What Python misreads: under GNU's magic the times in the prefix field are no part of the name.
const MISREAD_BY_PYTHON: &[&str] = &["wds/names-grouping/syn-gnu-prefix-ignored.tar"];

/// Every well-formed archive of the collection groups as Python's webdataset grouped it when the collection was made.
#[test]
fn the_corpus_groups_as_recorded() {
    let Some(corpus) = corpus() else {
        say_skipped("no corpus beside the checkout");
        return;
    };
    let grouping = Grouping { keep_appledouble: true, ..Grouping::default() };
    let expected = std::fs::read_to_string(corpus.join("expected.jsonl")).unwrap();
    let mut compared = 0;
    let mut different = Vec::new();
    for line in expected.lines() {
        let case: serde_json::Value = serde_json::from_str(line).unwrap();
        let path = case["path"].as_str().unwrap();
        if !path.starts_with("wds/") || !path.ends_with(".tar") || !case["tarfile_error"].is_null() {
            continue;
        }
        let bytes = Bytes::from(std::fs::read(corpus.join(path)).unwrap());
        let samples = match random_access(&bytes, &grouping) {
            Ok(samples) => samples,
            Err(error) if error.kind() == ErrorKind::Grouping => {
                assert!(case["wds_error"].as_str().is_some_and(|error| error.contains("duplicate")), "{path}: {error}");
                compared += 1;
                continue;
            }
            Err(error) if path.contains("names-grouping") || path.contains("good") => panic!("{path}: {error}"),
            // Damage that Python does not notice is the shard's matter.
            Err(_) => continue,
        };
        let got: Vec<(String, BTreeMap<String, usize>)> = samples
            .iter()
            .map(|sample| {
                let fields = sample.fields.iter().map(|field| (field.ext.to_string(), field.value.len()));
                (as_recorded(&sample.key), fields.collect())
            })
            .collect();
        let recorded: Vec<(String, BTreeMap<String, usize>)> =
            serde_json::from_value(case["wds_samples"].clone()).unwrap();
        if got != recorded {
            different.push(path.to_owned());
        }
        compared += 1;
    }
    assert_eq!(different, MISREAD_BY_PYTHON);
    assert!(compared >= 20, "only {compared} archives were compared");
}

/// A key as Python wrote it down: where it is text, without the escapes that ours has.
fn as_recorded(key: &brimful::sample::Key) -> String {
    key.to_str().map_or_else(|| key.to_string(), str::to_owned)
}

/// Says that a test had nothing to do.
#[expect(clippy::print_stderr, reason = "a test that passes without having tested must say so")]
fn say_skipped(reason: &str) {
    eprintln!("skipped: {reason}");
}
