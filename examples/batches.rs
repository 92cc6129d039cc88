//! Loads one epoch of a data set and prints what comes out: the shortest program over the library.
//!
//! `cargo run --release --features turbo --example batches -- 'train-{000000..000146}.tar'`

#![expect(clippy::print_stdout, reason = "a program that tells what it found")]

use brimful::batch::Column;
use brimful::loader::{Dataset, DatasetOptions, Loader};
use brimful::sample::Shuffle;
use brimful::shard::ShardList;
use brimful::transform::{Compose, Transform};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pattern = std::env::args().nth(1).ok_or("usage: batches PATTERN")?;
    let transform = Compose::new(vec![
        Transform::random_resized_crop(224),
        Transform::random_horizontal_flip(0.5),
        Transform::ToTensor {},
        Transform::normalize(&[0.485, 0.456, 0.406], &[0.229, 0.224, 0.225]),
    ])?;
    let options = DatasetOptions { transform, ..DatasetOptions::default() };
    let dataset = Dataset::open(&ShardList::parse(&pattern)?, options, &|_, _| {})?;
    let loader = Loader::builder(dataset).batch_size(256).shuffle(Shuffle::Global).build()?;
    let mut images = 0;
    for batch in loader.epoch()? {
        let batch = batch?;
        images += batch.len();
        if let (0, Column::Tensor(tensor)) = (batch.index, &batch.columns[0]) {
            println!("the first batch: {} {:?}", tensor.dtype, tensor.shape);
        }
    }
    let stats = loader.stats();
    let rate = images as f64 / stats.wall.as_secs_f64();
    println!("{images} images, {rate:.0} a second, the bottleneck is {}", stats.bottleneck.as_str());
    Ok(())
}
