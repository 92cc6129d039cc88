//! Shards that can only be read from front to back.

use std::io::Write;

use brimful::ErrorKind;
use brimful::loader::{Access, DatasetOptions, ErrorBudget, Loader, OnError};
use brimful::sample::{Remainder, Shuffle, Split};
use brimful::shard::{Damage, ShardOptions};

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
    let [bad] = &skip.bad_samples()[..] else { panic!("not one bad sample") };
    assert!(bad.is_shard && bad.what() == "shard" && bad.message.contains("unknown"), "{bad:?}");
    assert_eq!(skip.notices(), [format!("left out: {}", bad.message)]);
    let stream = skip.stats().stream.unwrap();
    assert_eq!((stream.shards, stream.lost_shards), (1, 1));
    assert_eq!(stream.groups.samples, labels.len() as u64);
    epoch_labels(&skip);
    assert_eq!(skip.stats().stream.unwrap().lost_shards, 1, "each shard counts once");
}

/// Shards whose second sample's header is overwritten, gzipped after that.
fn damaged(shards: usize) -> Made {
    let data = made(&vec![4; shards]);
    for shard in 0..shards {
        let path = super::made::shard_path(data.folder.path(), shard);
        let mut bytes = std::fs::read(&path).unwrap();
        let header = bytes.windows(6).position(|window| window == format!("{:06}", shard * 4 + 1).as_bytes()).unwrap();
        // The header's own name may be in the extended header before it: both blocks go.
        let block = header / 512 * 512;
        bytes[block..block + 512].fill(0xff);
        std::fs::write(&path, bytes).unwrap();
    }
    data
}

#[test]
fn losses_in_a_stream_are_told_as_those_of_an_index_are() {
    let data = damaged(8);
    let shards = ShardOptions { damage: Damage::Resync, ..ShardOptions::default() };
    let indexed = data.dataset(DatasetOptions { shards, ..options() }).unwrap();
    let streamed = data.dataset(DatasetOptions { shards, access: Access::Stream, ..options() }).unwrap();
    assert!(indexed.warnings().len() >= 8);
    let loader = |dataset| {
        let builder = Loader::builder(dataset).batch_size(4).threads(2);
        builder.on_error(OnError::Skip, ErrorBudget::Unlimited).build().unwrap()
    };
    let (through_index, loader) = (loader(indexed.clone()), loader(streamed));
    assert!(loader.notices().is_empty());
    assert_eq!(epoch_labels(&loader), epoch_labels(&through_index));
    let told = loader.notices();
    for warning in &indexed.warnings()[..5] {
        assert!(told.contains(warning), "{warning:?} is not in {told:?}");
    }
    assert!(told.iter().any(|sentence| sentence.starts_with("8 shards so far are damaged")), "{told:?}");
    let stream = loader.stats().stream.unwrap();
    assert_eq!((stream.shards, stream.damaged_shards, stream.lost_shards), (8, 8, 0));
    assert!(stream.resyncs >= 8 && stream.lost_bytes >= 8 * 512, "{stream:?}");
    assert_eq!(through_index.stats().stream, None);
}

#[test]
fn a_stream_has_nothing_to_replace_from() {
    let data = compressed(&[3]);
    let dataset = data.dataset(options()).unwrap();
    let error = Loader::builder(dataset).on_error(OnError::Replace, ErrorBudget::Unlimited).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
}
