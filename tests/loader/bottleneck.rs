//! Planted slowness is named: storage, decoding, the consumer.

use std::time::Duration;

use brimful::loader::{Bottleneck, DatasetOptions, Loader};
use brimful::shard::{ShardOptions, Store};
use brimful::transform::{Compose, Transform};

use super::made::{Made, jpeg, made, options, sample, shard_path, write_shard};

/// A store that answers late, as a far-away disk would.
#[derive(Debug)]
struct Slow(Box<dyn Store>);

impl Store for Slow {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read(&self, range: std::ops::Range<u64>) -> brimful::Result<bytes::Bytes> {
        std::thread::sleep(Duration::from_millis(4));
        self.0.read(range)
    }

    fn prefetch(&self, _: std::ops::Range<u64>) {}

    fn populate(&self, range: std::ops::Range<u64>) -> brimful::Result<()> {
        self.0.populate(range)
    }

    fn check(&self) -> brimful::Result<()> {
        self.0.check()
    }
}

fn big() -> Made {
    let data = made(&[]);
    let rows = (0..48).map(|number| {
        let (key, mut fields) = sample(number);
        fields[0].1 = jpeg(number, 400);
        (key, fields)
    });
    write_shard(&shard_path(data.folder.path(), 0), rows);
    data
}

fn bottleneck(loader: &Loader, consumer: Duration) -> Bottleneck {
    for batch in loader.epoch().unwrap() {
        batch.unwrap();
        std::thread::sleep(consumer);
    }
    loader.stats().bottleneck
}

#[test]
fn slow_storage_is_named() {
    let data = made(&[64]);
    let shards = ShardOptions { wrap: Some(|store| Box::new(Slow(store))), ..ShardOptions::default() };
    let dataset = data.dataset(DatasetOptions { shards, ..options() }).unwrap();
    let loader = Loader::builder(dataset).batch_size(8).threads(2).build().unwrap();
    assert_eq!(bottleneck(&loader, Duration::ZERO), Bottleneck::Read);
}

#[test]
fn slow_decoding_is_named() {
    let data = big();
    let transform = Compose::new(vec![Transform::resize(400), Transform::center_crop(32)]).unwrap();
    let dataset = data.dataset(DatasetOptions { transform, ..options() }).unwrap();
    let loader = Loader::builder(dataset).batch_size(4).threads(1).build().unwrap();
    assert_eq!(bottleneck(&loader, Duration::ZERO), Bottleneck::Decode);
}

#[test]
fn a_slow_consumer_is_named() {
    let data = made(&[64]);
    let loader = data.loader(|b| b.prefetch(2));
    assert_eq!(bottleneck(&loader, Duration::from_millis(20)), Bottleneck::Consumer);
}
