//! Whole epochs of the loader over small pictures, where its own work weighs most: order, reading, slots, channels.
//!
//! What it reaches on photos, and the share of the ceiling that is, `brimful bench loader` tells.

use brimful::encode::{JpegOptions, PixelKind, encode_jpeg};
use brimful::loader::{Dataset, DatasetOptions, Loader};
use brimful::sample::Shuffle;
use brimful::shard::{Headers, ShardList, ShardWriter, WriterOptions};
use brimful::transform::{Compose, Transform};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const SAMPLES: usize = 4096;
const SHARDS: usize = 4;
/// Sides of a picture in pixels.
const SIDE: u32 = 32;
const BATCH_SIZE: usize = 256;

fn epoch(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    let pattern = folder.path().join("*.tar").to_str().unwrap().to_owned();
    write(folder.path().join("%06d.tar").to_str().unwrap());
    let transform = Compose::new(vec![
        Transform::random_resized_crop(SIDE),
        Transform::random_horizontal_flip(0.5),
        Transform::ToTensor {},
        Transform::normalize(&[0.485, 0.456, 0.406], &[0.229, 0.224, 0.225]),
    ]);
    let options = DatasetOptions { transform: transform.unwrap(), ..DatasetOptions::default() };
    let labels = DatasetOptions { fields: vec!["cls".into()], ..DatasetOptions::default() };

    let mut group = criterion.benchmark_group("loader epoch");
    group.throughput(Throughput::Elements(SAMPLES as u64)).sample_size(20);
    for (job, options) in [("images", options), ("labels alone", labels)] {
        let list = ShardList::parse(&pattern).unwrap();
        let dataset = Dataset::open(&list, options, &|_, _| {}).unwrap();
        for threads in [1, 2] {
            let loader = Loader::builder(dataset.clone()).batch_size(BATCH_SIZE).threads(threads);
            let loader = loader.shuffle(Shuffle::Global).build().unwrap();
            group.bench_function(format!("{job}, {threads} threads"), |bencher| {
                bencher.iter(|| {
                    let rows: usize = loader.epoch().unwrap().map(|batch| batch.unwrap().len()).sum();
                    assert_eq!(rows, SAMPLES);
                });
            });
        }
    }
    group.finish();
}

fn write(pattern: &str) {
    let samples_max = Some((SAMPLES / SHARDS) as u64);
    let options = WriterOptions { headers: Headers::Pax, samples_max, ..WriterOptions::default() };
    let mut writer = ShardWriter::new(pattern, options).unwrap();
    for number in 0..SAMPLES {
        let pixels: Vec<u8> = (0..SIDE * SIDE * 3).map(|i| (number as u32 * 31 + i * 7 / 5) as u8).collect();
        let jpeg = encode_jpeg(&pixels, SIDE, SIDE, PixelKind::Rgb, &JpegOptions::default()).unwrap();
        let label = number.to_string();
        writer.write_sample(&format!("{number:06}"), &[("jpg", &jpeg[..]), ("cls", label.as_bytes())]).unwrap();
    }
    writer.finish().unwrap();
}

criterion_group!(benches, epoch);
criterion_main!(benches);
