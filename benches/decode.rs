//! Decoding of photos: in full, and of the regions that random resized crops ask for.
//!
//! Makes its own photos, unless `BRIMFUL_PHOTOS` names a folder of JPEG files.

use std::hint::black_box;
use std::path::Path;

use brimful::decode::{Backend, DecodeOptions, ImageDecoder, Region, backends};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

struct Photo {
    bytes: Vec<u8>,
    /// A region with the size and shape of an average random resized crop.
    region: Region,
}

fn photos() -> Vec<Photo> {
    let files = match std::env::var_os("BRIMFUL_PHOTOS") {
        Some(folder) => read(Path::new(&folder)),
        None => (0..16).map(generated).collect(),
    };
    let mut state = 1_u64;
    let mut draw = |below: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % u64::from(below.max(1))) as u32
    };
    let mut decoder = ImageDecoder::new(DecodeOptions::default()).expect("default options are legal");
    let mut photos = Vec::new();
    for bytes in files {
        let Ok(info) = decoder.info(&bytes) else { continue };
        // Between 8 and 100 % of the area, nearly square, anywhere.
        let share = f64::from(8 + draw(93)) / 100.0;
        let side = |size: u32, draw: u32| ((f64::from(size) * share.sqrt()) as u32 * (85 + draw) / 100).clamp(1, size);
        let (width, height) = (side(info.width, draw(30)), side(info.height, draw(30)));
        let (x, y) = (draw(info.width - width + 1), draw(info.height - height + 1));
        photos.push(Photo { bytes, region: Region { x, y, width, height } });
    }
    photos
}

fn read(folder: &Path) -> Vec<Vec<u8>> {
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .expect("BRIMFUL_PHOTOS is a folder")
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .collect();
    paths.sort();
    paths.iter().filter_map(|path| std::fs::read(path).ok()).collect()
}

/// A picture with as much detail as a photo, different for each `number`.
fn generated(number: u32) -> Vec<u8> {
    let (width, height) = (500_u32, 375_u32);
    let mut data = Vec::with_capacity((width * height * 3) as usize);
    let mut noise = number.wrapping_mul(2_654_435_761) | 1;
    for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
        noise ^= noise << 13;
        noise ^= noise >> 17;
        noise ^= noise << 5;
        let light = 128.0 + 70.0 * (f64::from(x * (3 + number % 5)) / 90.0).sin() * (f64::from(y) / 60.0).cos();
        let grain = f64::from(noise % 24) - 12.0;
        data.extend([light + grain, light * 0.8 + grain, 255.0 - light + grain].map(|value| value as u8));
    }
    let mut bytes = Vec::new();
    jpeg_encoder::Encoder::new(&mut bytes, 90)
        .encode(&data, width as u16, height as u16, jpeg_encoder::ColorType::Rgb)
        .expect("a picture of legal size");
    bytes
}

fn decode(criterion: &mut Criterion) {
    let photos = photos();
    let mut group = criterion.benchmark_group("decode");
    group.sample_size(10).throughput(Throughput::Elements(photos.len() as u64));
    let mut run = |name: String, mut work: Box<dyn FnMut(&Photo)>| {
        group.bench_function(name, |bencher| bencher.iter(|| photos.iter().for_each(&mut work)));
    };
    for (name, backend) in [("turbo", Backend::Turbo), ("zune", Backend::Zune)] {
        if !backends().contains(&name) {
            continue;
        }
        let decoder = || ImageDecoder::new(DecodeOptions { backend, ..DecodeOptions::default() }).expect("it is built");
        let (mut full, mut region) = (decoder(), decoder());
        run(format!("{name}/full"), Box::new(move |photo| drop(black_box(full.decode(&photo.bytes, None)))));
        run(
            format!("{name}/region"),
            Box::new(move |photo| drop(black_box(region.decode(&photo.bytes, Some(photo.region))))),
        );
    }
    let mut header = ImageDecoder::new(DecodeOptions::default()).expect("default options are legal");
    run("header".to_owned(), Box::new(move |photo| drop(black_box(header.info(&photo.bytes)))));
    group.finish();
}

criterion_group!(benches, decode);
criterion_main!(benches);
