//! Rows instead of batches: the same samples in the same order, with the images that the transform leaves uneven.

use brimful::ErrorKind;
use brimful::batch::{Column, RowValue};
use brimful::loader::{Batch, DatasetOptions, Delivery, ErrorBudget, Loader, OnError};
use brimful::sample::Shuffle;
use brimful::transform::Compose;

use super::made::{labels, made, pixels, sample, shard_path, write_shard};

fn row_labels(batch: &Batch) -> Vec<i64> {
    let Column::Values(values) = &batch.columns[1] else { panic!("no values: {:?}", batch.columns[1]) };
    values.iter().map(|value| if let RowValue::Int(label) = value { *label } else { panic!("{value:?}") }).collect()
}

#[test]
fn rows_are_those_of_batches() {
    let data = made(&[7, 6]);
    let batches = data.loader(|b| b.shuffle(Shuffle::Global).seed(3));
    let rows = data.loader(|b| b.shuffle(Shuffle::Global).seed(3).delivery(Delivery::Rows));
    for _ in 0..2 {
        let pairs: Vec<_> = batches.epoch().unwrap().zip(rows.epoch().unwrap()).collect();
        assert_eq!(pairs.len(), 4);
        for (batch, rows) in pairs {
            let (batch, rows) = (batch.unwrap(), rows.unwrap());
            assert_eq!(labels(&batch), row_labels(&rows));
            assert_eq!(pixels(&batch), pixels(&rows));
            assert_eq!((&batch.samples, batch.len()), (&rows.samples, rows.len()));
            assert_eq!(rows.keys.len(), rows.len());
            assert!(batch.keys.is_empty() && batch.draws.is_empty());
        }
    }
}

#[test]
fn draws_derive_from_seed_epoch_and_sample_alone() {
    let data = made(&[7, 6]);
    let draws = |seed: u64, batch_size: usize, shuffle: Shuffle, epochs: usize| {
        let with = |b: brimful::loader::LoaderBuilder| b.batch_size(batch_size).shuffle(shuffle);
        let loader = data.loader(|b| with(b).seed(seed).threads(batch_size).delivery(Delivery::Rows));
        let mut last = Vec::new();
        for _ in 0..epochs {
            last = loader
                .epoch()
                .unwrap()
                .flat_map(|batch| {
                    let batch = batch.unwrap();
                    batch.samples.into_iter().zip(batch.draws).collect::<Vec<_>>()
                })
                .collect();
        }
        last.sort_unstable();
        last
    };
    let first = draws(1, 4, Shuffle::None, 1);
    assert_eq!(first, draws(1, 3, Shuffle::Global, 1));
    assert_ne!(first, draws(1, 4, Shuffle::None, 2));
    assert_ne!(first, draws(2, 4, Shuffle::None, 1));
    let distinct: std::collections::HashSet<u64> = first.iter().map(|(_, draw)| *draw).collect();
    assert_eq!(distinct.len(), 13);
}

#[test]
fn images_of_free_size_come_as_they_are() {
    let data = made(&[5]);
    let plain = DatasetOptions { transform: Compose::default(), ..DatasetOptions::default() };
    write_shard(
        &shard_path(data.folder.path(), 0),
        (0..5).map(|number| {
            let (key, mut fields) = sample(number);
            fields[0].1 = super::made::jpeg(number, 16 + number as u16);
            (key, fields)
        }),
    );
    let loader = Loader::builder(data.dataset(plain).unwrap()).batch_size(5).delivery(Delivery::Rows).build().unwrap();
    let batch = loader.epoch().unwrap().next().unwrap().unwrap();
    let Column::Tensors(images) = &batch.columns[0] else { panic!("no tensors") };
    let shapes: Vec<_> = images.iter().map(|image| image.shape.clone()).collect();
    assert_eq!(shapes, (16..21).map(|side| vec![3, side, side]).collect::<Vec<_>>());
    assert_eq!(batch.keys[4].as_bytes(), b"000004");
}

#[test]
fn images_of_free_size_pass_a_place_that_is_too_small_for_one_batch() {
    // Each batch holds more than is allowed in flight: they come one after the other, and all of them come.
    let data = made(&[30]);
    let plain = || DatasetOptions { transform: Compose::default(), ..DatasetOptions::default() };
    for (batch_size, delivery) in [(1, Delivery::Rows), (4, Delivery::Rows), (4, Delivery::Batches)] {
        let builder = Loader::builder(data.dataset(plain()).unwrap()).batch_size(batch_size).threads(3);
        let loader = builder.prefetch(5).delivery(delivery).loose_bytes_max(1).build().unwrap();
        for _ in 0..2 {
            let samples: Vec<_> = loader.epoch().unwrap().flat_map(|batch| batch.unwrap().samples).collect();
            assert_eq!(samples, (0..30).collect::<Vec<_>>());
        }
    }
    let error = Loader::builder(data.dataset(plain()).unwrap()).loose_bytes_max(0).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
}

#[test]
fn bad_samples_are_left_out_of_rows_too() {
    let data = made(&[1]);
    write_shard(
        &shard_path(data.folder.path(), 0),
        (0..6).map(|number| {
            let (key, mut fields) = sample(number);
            if number == 2 {
                fields[0].1 = b"no image".to_vec();
            }
            (key, fields)
        }),
    );
    let rows = |on_error| data.loader(|b| b.delivery(Delivery::Rows).on_error(on_error, ErrorBudget::Unlimited));
    let first = rows(OnError::Skip).epoch().unwrap().next().unwrap().unwrap();
    assert_eq!(row_labels(&first), [0, 1, 3]);
    assert_eq!(first.keys.len(), 3);
    let error = rows(OnError::Raise).epoch().unwrap().next().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Decode);
}

#[test]
fn the_place_moves_when_the_consumer_of_rows_says_so() {
    let data = made(&[10]);
    let rows = data.loader(|b| b.seed(5).delivery(Delivery::Rows));
    let mut epoch = rows.epoch().unwrap();
    let batches: Vec<_> = epoch.by_ref().map(|batch| batch.unwrap()).collect();
    assert_eq!((rows.state().epoch, rows.state().position), (0, 0));
    rows.confirm(epoch.mark());
    assert_eq!((rows.state().epoch, rows.state().position), (1, 0));
    rows.confirm(batches[1].mark);
    let state = rows.state();
    assert_eq!((state.epoch, state.position), (0, 8));
    let other = data.loader(|b| b.seed(5).delivery(Delivery::Rows));
    other.load_state(&state).unwrap();
    let batch = other.epoch().unwrap().next().unwrap().unwrap();
    assert_eq!(row_labels(&batch), [8, 9]);
}
