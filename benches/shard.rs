//! How fast a shard's headers are walked, its index is built, and its members are read, through each store.
//!
//! Shards are made in a temporary folder and are in page cache; a throughput in bytes counts the whole shard, data that
//! is only stepped over included.

use std::hint::black_box;
use std::path::Path;

use brimful::shard::{Headers, IoMethod, Shard, ShardIndex, ShardOptions, ShardWriter, WriterOptions};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// Samples of a shard.
const SAMPLES: usize = 1000;
/// Bytes of a picture: ten times less than a photo has, so that headers weigh more.
const PICTURE_BYTES: usize = 10 << 10;
const STORES: [(&str, IoMethod); 2] = [("map", IoMethod::Mmap), ("read", IoMethod::Read)];

fn headers(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    for (headers, name) in [(Headers::Pax, "pax"), (Headers::Plain, "plain")] {
        let path = folder.path().join(format!("{name}.tar"));
        write(&path, headers);
        let mut group = criterion.benchmark_group(format!("shard headers {name}"));
        group.throughput(Throughput::Bytes(std::fs::metadata(&path).unwrap().len()));
        let memory = Shard::from_bytes(name, std::fs::read(&path).unwrap().into());
        group.bench_function("memory", |bencher| bencher.iter(|| walk(&memory)));
        for (store, io) in STORES {
            group.bench_function(store, |bencher| bencher.iter(|| walk(&open(&path, io))));
        }
        group.finish();
    }
}

fn index(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar");
    write(&path, Headers::Pax);
    let mut group = criterion.benchmark_group("shard index");
    group.throughput(Throughput::Elements(2 * SAMPLES as u64));
    for (store, io) in STORES {
        group.bench_function(store, |bencher| bencher.iter(|| ShardIndex::build(&open(&path, io)).unwrap()));
    }
    group.finish();
}

/// Every member's bytes, once from front to back and once in an order that jumps.
fn read(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar");
    write(&path, Headers::Pax);
    let index = ShardIndex::build(&open(&path, IoMethod::Mmap)).unwrap();
    let ranges: Vec<_> = index.iter().map(|file| file.offset..file.offset + file.size).collect();
    // A step that shares no factor with the number of members visits each of them once.
    let jumping: Vec<_> = (0..ranges.len()).map(|i| ranges[i * 1_237 % ranges.len()].clone()).collect();
    let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    let mut group = criterion.benchmark_group("shard read");
    group.throughput(Throughput::Bytes(bytes));
    for (store, io) in STORES {
        let shard = open(&path, io);
        for (order, ranges) in [("in order", &ranges), ("jumping", &jumping)] {
            group.bench_function(format!("{store} {order}"), |bencher| {
                bencher.iter(|| {
                    for range in ranges {
                        shard.populate(range.clone()).unwrap();
                        black_box(sum(&shard.read(range.clone()).unwrap()));
                    }
                });
            });
        }
    }
    group.finish();
}

fn open(path: &Path, io: IoMethod) -> Shard {
    Shard::open(path, &ShardOptions { io, ..ShardOptions::default() }).unwrap()
}

fn walk(shard: &Shard) -> usize {
    let members = shard.members().filter(|member| black_box(member).is_ok());
    members.count()
}

/// Touches every byte, as a decoder would.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().map(|&byte| u64::from(byte)).sum()
}

fn write(path: &Path, headers: Headers) {
    let options = WriterOptions { headers, ..WriterOptions::default() };
    let mut writer = ShardWriter::new(path.to_str().unwrap(), options).unwrap();
    for number in 0..SAMPLES {
        let picture = vec![number as u8; PICTURE_BYTES + number % 512];
        writer.write_sample(&format!("{number:08}"), &[("jpg", &picture[..]), ("cls", b"7")]).unwrap();
    }
    writer.finish().unwrap();
}

criterion_group!(benches, headers, index, read);
criterion_main!(benches);
