//! Any names, with zero bytes between them, as the files of a shard: no panic, every field of the right sample, none
//! lost uncounted, and the same samples from a stream as in an index.
#![no_main]

use brimful::sample::{Duplicates, Grouping, KeySplit, SampleIndexBuilder, group_by_key, split_name};
use brimful::shard::{Member, MemberKind};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&choice, bytes)) = bytes.split_first() else { return };
    let grouping = Grouping {
        keep_appledouble: choice & 1 != 0,
        key_split: if choice & 2 != 0 { KeySplit::LastDot } else { KeySplit::FirstDot },
        duplicates: if choice & 4 != 0 { Duplicates::KeepFirst } else { Duplicates::Error },
    };
    let names: Vec<&[u8]> = bytes.split(|&byte| byte == 0).collect();
    let size = |number: usize| number as u64 % 2;

    let members = names.iter().enumerate().map(|(number, &name)| {
        let (name, offset, size) = (Bytes::copy_from_slice(name), number as u64, size(number));
        Ok((Member { name, header_offset: offset, offset, size, kind: MemberKind::File }, number))
    });
    let mut groups = group_by_key(members, &grouping);
    let results: Vec<_> = groups.by_ref().collect();
    let report = groups.report();
    let samples: Vec<_> = results.iter().flatten().collect();

    let mut numbers = Vec::new();
    for sample in &samples {
        assert!(!sample.fields.is_empty());
        for field in &sample.fields {
            let name = names[field.value];
            let (key, ext) = name.split_at(sample.key.as_bytes().len());
            assert_eq!((key, ext[0]), (sample.key.as_bytes(), b'.'));
            if grouping.key_split == KeySplit::FirstDot {
                assert_eq!(split_name(name), Some((key, &ext[1..])));
            }
            if let Ok(ext) = std::str::from_utf8(&ext[1..]) {
                assert_eq!(ext.to_lowercase(), *field.ext);
            }
            numbers.push(field.value);
        }
    }
    assert!(numbers.is_sorted_by(|a, b| a < b));
    assert_eq!((report.samples, report.fields), (samples.len() as u64, numbers.len() as u64));
    if report.bad_samples == 0 {
        let skipped = report.metadata + report.appledouble + report.without_extension + report.duplicate_fields;
        assert_eq!(report.fields + skipped, names.len() as u64);
        assert!(samples.windows(2).all(|pair| pair[0].key != pair[1].key), "one sample in two");
    }

    let mut builder = SampleIndexBuilder::new(&grouping);
    let files = names.iter().enumerate().map(|(number, &name)| (name, number as u64, size(number)));
    let pushed = builder.push_shard("fuzz.tar".into(), 0, files);
    assert_eq!(pushed.is_err(), results.iter().any(Result::is_err));
    if pushed.is_ok() {
        let index = builder.finish();
        assert_eq!(index.len(), samples.len());
        for (indexed, sample) in index.iter().zip(samples) {
            assert_eq!(indexed.key(), sample.key.as_bytes());
            let fields = sample.fields.iter().map(|field| (&*field.ext, field.value as u64, size(field.value)));
            assert!(indexed.fields().map(|field| (field.ext, field.offset, field.size)).eq(fields));
        }
        assert_eq!(*index.report(), report);
    }
});
