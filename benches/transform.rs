//! How long one image takes in the transform stage, on one thread: geometry, resampling, values.

use std::hint::black_box;

use brimful::decode::{Pixels, Region};
use brimful::transform::{Compose, Resampler, SampleRng, ValueTable};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const WIDTH: u32 = 500;
const HEIGHT: u32 = 375;

/// Lists that training and evaluation use, by name.
const LISTS: [(&str, &str); 4] = [
    ("train", r#"[{"name": "RandomResizedCrop", "size": 224}, {"name": "RandomHorizontalFlip", "p": 0.0}]"#),
    ("train_flipped", r#"[{"name": "RandomResizedCrop", "size": 224}, {"name": "RandomHorizontalFlip", "p": 1.0}]"#),
    ("eval", r#"[{"name": "Resize", "size": 256}, {"name": "CenterCrop", "size": 224}]"#),
    ("crop", r#"[{"name": "RandomCrop", "size": 224}]"#),
];

fn transform(criterion: &mut Criterion) {
    let data: Vec<u8> = (0..WIDTH * HEIGHT * 3).map(|i| (i % 251) as u8).collect();
    let pixels = Pixels::packed(&data, Region::full(WIDTH, HEIGHT), 3).unwrap();
    let mut group = criterion.benchmark_group("transform");
    group.throughput(Throughput::Elements(1));
    for (name, json) in LISTS {
        let compose = Compose::from_json(json).unwrap();
        let mut resampler = Resampler::new();
        let mut out = vec![0; 224 * 224 * 3];
        let mut sample = 0;
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                sample += 1;
                let geometry = compose.geometry(WIDTH, HEIGHT, &mut SampleRng::new(0, 0, sample)).unwrap();
                resampler.apply(black_box(&pixels), &geometry, &mut out).unwrap();
            });
        });
    }
    let compose = Compose::from_json(LISTS[0].1).unwrap();
    let mut sample = 0;
    group.bench_function("geometry", |bencher| {
        bencher.iter(|| {
            sample += 1;
            compose.geometry(WIDTH, HEIGHT, &mut SampleRng::new(0, 0, sample)).unwrap()
        });
    });
    group.finish();
}

fn value(criterion: &mut Criterion) {
    let json = r#"[{"name": "Normalize", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}]"#;
    let table = ValueTable::new(Compose::from_json(json).unwrap().value(), 3).unwrap();
    let hwc: Vec<u8> = (0..224 * 224 * 3).map(|i| (i % 251) as u8).collect();
    let mut out = vec![0.0; hwc.len()];
    let mut group = criterion.benchmark_group("value");
    group.throughput(Throughput::Elements(224 * 224));
    group.bench_function("chw", |bencher| {
        bencher.iter(|| table.apply_chw(black_box(&hwc), 224, 224, &mut out).unwrap());
    });
    group.bench_function("hwc", |bencher| {
        bencher.iter(|| table.apply_hwc(black_box(&hwc), 224, 224, &mut out).unwrap());
    });
    group.finish();
}

criterion_group!(benches, transform, value);
criterion_main!(benches);
