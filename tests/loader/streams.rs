//! Shards that can only be read from front to back.

use std::io::Write;

use brimful::ErrorKind;
use brimful::loader::{Access, DatasetOptions, ErrorBudget, Loader, OnError};
use brimful::sample::{Remainder, Shuffle, Split};

use super::made::{Made, epoch_labels, made, options};

/// The same samples, gzipped.
fn compressed(shard_lens: &[usize]) -> Made {
    let mut data = made(shard_lens);
    for shard in 0..shard_lens.len() {
        let path = super::made::shard_path(data.folder.path(), shard);
        let file = std::fs::File::create(path.with_extension("tar.gz")).unwrap();
        let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        encoder.write_all(&std::fs::read(&path).unwrap()).unwrap();
        encoder.finish().unwrap();
    }
    data.pattern = data.folder.path().join("*.tar.gz").to_str().unwrap().to_owned();
    data
}

#[test]
fn compressed_shards_are_read_in_a_stream_of_the_same_samples() {
    let data = compressed(&[6, 5]);
    let loader = data.loader(|b| b);
    assert_eq!(loader.len(), None);
    assert_eq!(epoch_labels(&loader), (0..11).collect::<Vec<i64>>());
    assert_eq!(epoch_labels(&loader), (0..11).collect::<Vec<i64>>());
}

#[test]
fn compressed_shards_may_be_inflated_into_an_index() {
    let data = compressed(&[6, 5]);
    let dataset = data.dataset(DatasetOptions { access: Access::Indexed, ..options() }).unwrap();
    assert_eq!(dataset.len(), Some(11));
    let loader = Loader::builder(dataset).batch_size(4).shuffle(Shuffle::Global).build().unwrap();
    let mut labels = epoch_labels(&loader);
    labels.sort_unstable();
    assert_eq!(labels, (0..11).collect::<Vec<i64>>());
}

#[test]
fn a_stream_is_shuffled_in_its_window_and_by_its_shards() {
    let data = compressed(&[10, 10, 10]);
    let run = |threads| {
        let loader = data.loader(|b| b.shuffle(Shuffle::Global).shuffle_samples(8).seed(4).threads(threads));
        (epoch_labels(&loader), epoch_labels(&loader))
    };
    let (first, second) = run(1);
    assert_ne!(first, (0..30).collect::<Vec<i64>>());
    assert_ne!(first, second);
    assert_eq!((first.clone(), second), run(3));
    let mut sorted = first;
    sorted.sort_unstable();
    assert_eq!(sorted, (0..30).collect::<Vec<i64>>());
}

#[test]
fn ranks_share_a_stream_in_equal_counts() {
    let data = compressed(&[5, 6]);
    for (remainder, count) in [(Remainder::Drop, 3), (Remainder::Pad, 4)] {
        for rank in 0..3 {
            let split = Split { rank, world_size: 3, remainder };
            let loader = data.loader(|b| b.split(split).shuffle(Shuffle::Global));
            assert_eq!(epoch_labels(&loader).len(), count, "{remainder:?} rank {rank}");
        }
    }
}

#[test]
fn a_stream_resumes_and_drops_its_short_end() {
    let data = compressed(&[7, 7]);
    let build = || data.loader(|b| b.shuffle(Shuffle::Global).drop_last(true));
    let loader = build();
    let whole: Vec<i64> = epoch_labels(&loader);
    assert_eq!(whole.len(), 12);
    let partly = build();
    let mut epoch = partly.epoch().unwrap();
    epoch.next().unwrap().unwrap();
    let resumed = build();
    resumed.load_state(&partly.state()).unwrap();
    assert_eq!(epoch_labels(&resumed), whole[4..]);
}

#[test]
fn a_cut_stream_is_never_a_silent_end() {
    let data = compressed(&[9]);
    let path = data.folder.path().join("train-000000.tar.gz");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let raise = data.loader(|b| b);
    let errors: Vec<_> = raise.epoch().unwrap().filter_map(Result::err).collect();
    assert_eq!(errors.len(), 1);
    let skip = data.loader(|b| b.on_error(OnError::Skip, ErrorBudget::Unlimited));
    let labels = epoch_labels(&skip);
    assert!(!labels.is_empty() && labels.len() < 9, "{labels:?}");
    assert!(skip.stats().skipped >= 1);
}

#[test]
fn a_stream_has_nothing_to_replace_from() {
    let data = compressed(&[3]);
    let dataset = data.dataset(options()).unwrap();
    let error = Loader::builder(dataset).on_error(OnError::Replace, ErrorBudget::Unlimited).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
}
