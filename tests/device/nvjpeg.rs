//! The JPEG engines against the CPU: the same rows within a tolerance, refusals where they belong, no row lost or
//! overwritten, no memory leaked.

use std::path::Path;
use std::sync::MutexGuard;

use brimful::decode::{DecodeOptions, ImageDecoder, image_info};
use brimful::device::nvjpeg::{
    EncodedImage, EngineOptions, EngineRow, JpegEngine, LIBRARY_VERSIONS, Library, Outcome, Refusal,
};
use brimful::device::stream::Gpu;
use brimful::encode::encode_photo;
use brimful::transform::{Compose, Resampler, SampleRng};
use bytes::Bytes;
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

use crate::gpu::{alone, folders, read};

/// What one row may differ from the CPU's: any byte, and all bytes on average. Engines and libjpeg-turbo make chroma
/// between samples, and round, each in their own way.
const WORST: u8 = 64;
const MEAN: f64 = 2.0;

const SIDE: u32 = 224;
const TRANSFORM: &str = r#"[{"name": "RandomResizedCrop", "size": 224}, {"name": "RandomHorizontalFlip", "p": 0.5}]"#;

/// The lock on the GPU, the GPU, and an engine with rows of 224x224, which goes first; says why, if there can be none.
fn engine(test: &str, options: EngineOptions) -> Option<(MutexGuard<'static, ()>, Gpu, JpegEngine)> {
    let (gpu, kernels, in_use) = alone(test)?;
    match JpegEngine::open(&gpu, kernels, EngineOptions { folders: folders(), ..options }) {
        Ok(engine) => Some((in_use, gpu, engine)),
        Err(error) => {
            eprintln!("{test}: skipped, {error} (hint: {})", error.hint().unwrap_or("none"));
            None
        }
    }
}

fn encoded(file: Vec<u8>, ticket: usize) -> EncodedImage {
    let info = image_info(&file).unwrap();
    let mut rng = SampleRng::new(0, 0, ticket as u64);
    let geometry = Compose::from_json(TRANSFORM).unwrap().geometry(info.width, info.height, &mut rng).unwrap();
    EncodedImage { bytes: Bytes::from(file), info, geometry, ticket }
}

/// `count` generated photos that the engines take.
fn photos(engine: &JpegEngine, first: u64, count: usize) -> Vec<EncodedImage> {
    let images = (first..).map(|seed| encoded(encode_photo(seed), seed as usize));
    images
        .filter(|image| engine.supports(&image.info, &image.geometry, image.bytes.len()).is_ok())
        .take(count)
        .collect()
}

/// What the CPU makes of an image.
fn on_cpu(image: &EncodedImage) -> brimful::Result<Vec<u8>> {
    let mut decoder = ImageDecoder::new(DecodeOptions::default()).unwrap();
    let pixels = decoder.decode(&image.bytes, Some(image.geometry.source))?;
    let mut row = vec![0; (SIDE * SIDE * 3) as usize];
    Resampler::new().apply(&pixels, &image.geometry, &mut row)?;
    Ok(row)
}

fn bytes_of(gpu: &Gpu, row: &EngineRow) -> Vec<u8> {
    assert_eq!(row.len(), (SIDE * SIDE * 3) as usize);
    // SAFETY: a row that was handed out is written, and held here.
    unsafe { read(gpu, row.address(), row.len()) }
}

/// Largest and mean difference.
fn difference(a: &[u8], b: &[u8]) -> (u8, f64) {
    assert_eq!(a.len(), b.len());
    let each = || a.iter().zip(b).map(|(a, b)| a.abs_diff(*b));
    (each().max().unwrap_or(0), each().map(f64::from).sum::<f64>() / a.len().max(1) as f64)
}

/// Submits `images` in sub-batches and collects them all.
fn run(engine: &mut JpegEngine, images: Vec<EncodedImage>) -> Vec<(EncodedImage, Outcome)> {
    let mut outcomes = Vec::new();
    let mut pending = Vec::new();
    let mut images = images.into_iter().peekable();
    while let Some(image) = images.next() {
        pending.push(image);
        if engine.is_full(&pending) || images.peek().is_none() {
            if !engine.can_submit() {
                outcomes.extend(engine.collect());
            }
            engine.submit(std::mem::take(&mut pending)).expect("a state is free");
        }
    }
    while engine.in_flight() > 0 {
        outcomes.extend(engine.collect());
    }
    outcomes
}

fn row_of(outcome: &Outcome) -> &EngineRow {
    match outcome {
        Outcome::Written(row) => row,
        Outcome::Refused(reason) => panic!("refused: {reason}"),
    }
}

#[test]
fn the_library_is_found_where_wheels_put_it() {
    if folders().is_empty() {
        eprintln!("the_library_is_found_where_wheels_put_it: skipped, BRIMFUL_LIBRARY_PATH names no folder");
        return;
    }
    let library = Library::find(&folders()).unwrap();
    eprintln!("{library:?}");
    assert!(LIBRARY_VERSIONS.contains(&library.version().0));
}

#[test]
fn engines_and_cpu_make_the_same_rows_within_a_tolerance() {
    for interpolate in [true, false] {
        let options = EngineOptions { sub_batch: 24, interpolate, ..EngineOptions::default() };
        let Some((_in_use, gpu, mut engine)) = engine("same rows", options) else { return };
        eprintln!("{:?}", engine.report());
        let mut images = photos(&engine, 0, 64);
        images.extend(real_photos(&engine));
        let count = images.len();
        let outcomes = run(&mut engine, images);
        let tickets: Vec<usize> = outcomes.iter().map(|(image, _)| image.ticket).collect();
        assert!(tickets.is_sorted() && tickets.len() == count, "every image comes back, in order");
        let mut all = Vec::new();
        for (image, outcome) in &outcomes {
            let made = bytes_of(&gpu, row_of(outcome));
            all.push((
                image.info.components,
                image.info.jpeg.clone().unwrap().sampling[0],
                difference(&made, &on_cpu(image).unwrap()),
            ));
        }
        for (kind, luma) in [(3, (1, 1)), (3, (2, 1)), (3, (2, 2)), (1, (1, 1))] {
            let of_kind: Vec<(u8, f64)> = all.iter().filter(|a| (a.0, a.1) == (kind, luma)).map(|a| a.2).collect();
            let worst = of_kind.iter().map(|d| d.0).max().unwrap_or(0);
            let mean = of_kind.iter().map(|d| d.1).sum::<f64>() / of_kind.len().max(1) as f64;
            let worst_mean = of_kind.iter().map(|d| d.1).fold(0.0, f64::max);
            let number = of_kind.len();
            eprintln!(
                "interpolate {interpolate}, {kind} components, luma {luma:?}: {number} photos, largest difference \
                 {worst}, mean {mean:.3}, of the worst photo {worst_mean:.3}"
            );
            // Repeated chroma is for measuring, not for use.
            assert!(!interpolate || worst <= WORST && worst_mean <= MEAN);
        }
        let stats = engine.stats();
        assert_eq!((stats.written, stats.refused, stats.failed), (count as u64, 0, 0), "{stats:?}");
    }
}

/// The photos of `../shared/photos`, where there are any.
fn real_photos(engine: &JpegEngine) -> Vec<EncodedImage> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/photos");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("no photos in {}: only generated ones are compared", folder.display());
        return Vec::new();
    };
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let files = paths.iter().filter_map(|path| std::fs::read(path).ok()).filter(|file| image_info(file).is_ok());
    let images = files.enumerate().map(|(n, file)| encoded(file, 1_000_000 + n));
    images.filter(|image| engine.supports(&image.info, &image.geometry, image.bytes.len()).is_ok()).collect()
}

#[test]
fn sub_batches_of_any_size_are_decoded() {
    let options = EngineOptions { sub_batch: 16, ..EngineOptions::default() };
    let Some((_in_use, gpu, mut engine)) = engine("any size", options) else { return };
    let images = photos(&engine, 100, 16);
    let expected: Vec<Vec<u8>> = images.iter().map(|image| on_cpu(image).unwrap()).collect();
    for size in [16, 1, 3, 16, 15, 2, 2, 1] {
        engine.submit(images[..size].to_vec()).unwrap();
        let outcomes = engine.collect();
        assert_eq!(outcomes.len(), size);
        for ((_, outcome), expected) in outcomes.iter().zip(&expected) {
            let (worst, mean) = difference(&bytes_of(&gpu, row_of(outcome)), expected);
            assert!(worst <= WORST && mean <= MEAN, "of {size}: {worst} {mean}");
        }
    }
    let mut too_many = images.clone();
    too_many.extend(images.clone());
    engine.submit(too_many).unwrap();
    let outcomes = engine.collect();
    let refused = |outcome: &Outcome| matches!(outcome, Outcome::Refused(Refusal::Full));
    assert_eq!(outcomes.iter().filter(|(_, outcome)| refused(outcome)).count(), 16);
    assert!(engine.collect().is_empty() && engine.submit(Vec::new()).is_ok() && engine.in_flight() == 0);
}

/// Files that the engines should not decode, each damaged in its own way behind a header that is in order.
fn damaged() -> Vec<(&'static str, Vec<u8>)> {
    let file = encode_photo(7);
    let scan = file.windows(2).position(|pair| pair == [0xFF, 0xDA]).unwrap() + 14;
    let middle = scan + (file.len() - scan) / 2;
    let with = |place: std::ops::Range<usize>, bytes: &[u8]| [&file[..place.start], bytes, &file[place.end..]].concat();
    let tables = file.windows(2).position(|pair| pair == [0xFF, 0xC4]).unwrap();
    vec![
        ("zeros in the scan", with(middle..middle + 2000, &[0; 2000])),
        ("ones in the scan", with(middle..middle + 2000, &[0xFE; 2000])),
        ("half of the scan missing", with(middle..file.len() - 2, &[])),
        ("no scan at all", with(scan..file.len() - 2, &[])),
        ("one bit flipped", with(middle..middle + 1, &[file[middle] ^ 0x10])),
        ("a restart marker that should not be", with(middle..middle, &[0xFF, 0xD3])),
        ("Huffman tables that are none", with(tables + 5..tables + 21, &[0xFF; 16])),
        ("no Huffman tables", with(tables..tables + 2, &[0xFF, 0xFE])),
    ]
}

#[test]
fn a_damaged_file_fails_alone() {
    let options = EngineOptions { sub_batch: 8, ..EngineOptions::default() };
    let Some((_in_use, gpu, mut engine)) = engine("damaged file", options) else { return };
    let good = photos(&engine, 200, 7);
    let expected: Vec<Vec<u8>> = good.iter().map(|image| on_cpu(image).unwrap()).collect();
    for (what, file) in damaged() {
        // The header of the undamaged file: what reaches the engines has passed the CPU's walk over the markers.
        let bad = EncodedImage { bytes: Bytes::from(file), ..encoded(encode_photo(7), 7) };
        let mut images = good.clone();
        images.insert(3, bad);
        engine.submit(images).unwrap();
        let mut outcomes = engine.collect();
        let (image, outcome) = outcomes.remove(3);
        let cpu = on_cpu(&image).map_or_else(|error| error.to_string(), |_| "decoded".to_owned());
        match outcome {
            Outcome::Written(row) => {
                let whole = on_cpu(&encoded(encode_photo(7), 7)).unwrap();
                let (worst, mean) = difference(&bytes_of(&gpu, &row), &whole);
                eprintln!("{what}: written, {worst} and {mean:.2} from the undamaged one; the CPU: {cpu}");
            }
            Outcome::Refused(reason) => eprintln!("{what}: {reason}; the CPU: {cpu}"),
        }
        for ((_, outcome), expected) in outcomes.iter().zip(&expected) {
            let row = match outcome {
                Outcome::Written(row) => row,
                // The library gave the whole sub-batch up: its images go to the CPU, where the bad one fails alone.
                Outcome::Refused(Refusal::Batch(_)) => continue,
                Outcome::Refused(reason) => panic!("{what}: a neighbour was refused: {reason}"),
            };
            let (worst, mean) = difference(&bytes_of(&gpu, row), expected);
            assert!(worst <= WORST && mean <= MEAN, "{what}: a neighbour is {worst} and {mean} off");
        }
    }
    eprintln!("{:?}", engine.stats());
}

#[test]
fn what_the_engines_do_not_take_comes_back_and_the_rest_is_decoded() {
    let options = EngineOptions { sub_batch: 8, ..EngineOptions::default() };
    let Some((_in_use, _gpu, mut engine)) = engine("unsupported", options) else { return };
    let coded = |color: ColorType, progressive: bool, sampling: SamplingFactor| {
        let channels = if color == ColorType::Cmyk { 4 } else { 3 };
        let pixels: Vec<u8> = (0..256 * 256 * channels).map(|n| (n / 97) as u8).collect();
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&mut file, 90);
        encoder.set_progressive(progressive);
        encoder.set_sampling_factor(sampling);
        encoder.encode(&pixels, 256, 256, color).unwrap();
        file
    };
    let mut images = photos(&engine, 300, 4);
    for (n, file) in [
        coded(ColorType::Rgb, true, SamplingFactor::F_2_2),
        coded(ColorType::Cmyk, false, SamplingFactor::F_1_1),
        coded(ColorType::Rgb, false, SamplingFactor::F_4_1),
    ]
    .into_iter()
    .enumerate()
    {
        let image = encoded(file, n);
        assert!(engine.supports(&image.info, &image.geometry, image.bytes.len()).is_err());
        images.insert(n + 1, image);
    }
    // A header that speaks of another picture: the file has changed since.
    let mut changed = images[0].clone();
    changed.info.width += 16;
    images.push(changed);
    engine.submit(images).unwrap();
    for (n, (_, outcome)) in engine.collect().into_iter().enumerate() {
        match (n, outcome) {
            (1..=3, Outcome::Refused(reason)) => {
                eprintln!("{reason}");
                assert!(matches!(reason, Refusal::Unsupported(_)), "{reason}");
            }
            (7, Outcome::Refused(reason)) => assert_eq!(reason, Refusal::Changed),
            (_, Outcome::Written(_)) if n != 7 => {}
            (n, outcome) => panic!("{n}: {outcome:?}"),
        }
    }
}

#[test]
fn restart_markers_and_grey_files_are_decoded_or_refused_but_never_wrong() {
    let Some((_in_use, gpu, mut engine)) = engine("restart and grey", EngineOptions::default()) else { return };
    let picture = brimful::encode::photo(11);
    let coded = |color: ColorType, restart: u16| {
        let pixels: Vec<u8> = match color {
            ColorType::Luma => picture.rgb.chunks_exact(3).map(|pixel| pixel[1]).collect(),
            _ => picture.rgb.clone(),
        };
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&mut file, 90);
        encoder.set_restart_interval(restart);
        encoder.encode(&pixels, picture.width as u16, picture.height as u16, color).unwrap();
        encoded(file, usize::from(restart))
    };
    let images = vec![
        coded(ColorType::Rgb, 0),
        coded(ColorType::Rgb, 1),
        coded(ColorType::Rgb, 31),
        coded(ColorType::Luma, 0),
        coded(ColorType::Luma, 7),
    ];
    engine.submit(images).unwrap();
    for (image, outcome) in engine.collect() {
        let (components, restart) = (image.info.components, image.ticket);
        match outcome {
            Outcome::Written(row) => {
                let (worst, mean) = difference(&bytes_of(&gpu, &row), &on_cpu(&image).unwrap());
                eprintln!("{components} components, restart every {restart}: {worst} and {mean:.3} from the CPU");
                assert!(worst <= WORST && mean <= MEAN);
            }
            Outcome::Refused(reason) => eprintln!("{components} components, restart every {restart}: {reason}"),
        }
    }
}

#[test]
fn rows_keep_their_bytes_while_they_are_held() {
    let options = EngineOptions { sub_batch: 8, states: 2, rows_held_max: 3, ..EngineOptions::default() };
    let Some((_in_use, gpu, mut engine)) = engine("held rows", options) else { return };
    let (first, others) = (photos(&engine, 400, 8), photos(&engine, 500, 8));
    engine.submit(first).unwrap();
    let held = engine.collect();
    let before: Vec<Vec<u8>> = held.iter().map(|(_, outcome)| bytes_of(&gpu, row_of(outcome))).collect();
    for _ in 0..50 {
        while engine.can_submit() {
            engine.submit(others.clone()).unwrap();
        }
        for (_, outcome) in engine.collect() {
            row_of(&outcome);
        }
    }
    for ((_, outcome), before) in held.iter().zip(&before) {
        assert!(bytes_of(&gpu, row_of(outcome)) == *before, "a row changed while it was held");
    }
    while engine.can_submit() {
        engine.submit(others.clone()).unwrap();
    }
    let mut hoard = Vec::new();
    while engine.in_flight() > 0 {
        hoard.extend(engine.collect());
    }
    engine.submit(others.clone()).unwrap();
    let refused = engine.collect();
    assert!(refused.iter().all(|(_, outcome)| matches!(outcome, Outcome::Refused(Refusal::RowsHeld))), "{refused:?}");
    drop(hoard);
    engine.submit(others).unwrap();
    assert!(engine.collect().iter().all(|(_, outcome)| matches!(outcome, Outcome::Written(_))));
    let memory = engine.memory_bytes();
    drop(engine);
    for ((_, outcome), before) in held.iter().zip(&before) {
        assert!(bytes_of(&gpu, row_of(outcome)) == *before, "a row changed when the engine went, {memory} bytes");
    }
}

#[test]
fn a_thousand_sub_batches_leak_no_device_memory() {
    let options = EngineOptions { sub_batch: 8, states: 3, ..EngineOptions::default() };
    let Some((_in_use, gpu, mut engine)) = engine("leak", options) else { return };
    let images = photos(&engine, 600, 24);
    let mut sizes = [8, 8, 5, 8, 1].iter().cycle();
    let mut parts = images.chunks(8).cycle();
    let mut turn = |engine: &mut JpegEngine| {
        while engine.can_submit() {
            let (Some(part), Some(&size)) = (parts.next(), sizes.next()) else { return };
            engine.submit(part[..size].to_vec()).unwrap();
        }
        for (_, outcome) in engine.collect() {
            row_of(&outcome);
        }
    };
    for _ in 0..50 {
        turn(&mut engine);
    }
    let (before, _) = gpu.memory().unwrap();
    for _ in 0..1000 {
        turn(&mut engine);
    }
    let (after, _) = gpu.memory().unwrap();
    eprintln!("free before {before}, after {after}, {:?}", engine.stats());
    // Other processes may use the same GPU: only a growth that a leak of a byte a pixel would show counts.
    assert!(before.saturating_sub(after) < 64 << 20, "{before} bytes were free, {after} are now");
}

#[test]
fn an_engine_may_change_threads_and_go_in_mid_flight() {
    let Some((_in_use, _gpu, mut engine)) = engine("threads", EngineOptions::default()) else { return };
    let images = photos(&engine, 700, 16);
    let mut engine = std::thread::spawn(move || {
        engine.submit(images).unwrap();
        engine
    })
    .join()
    .unwrap();
    assert!(engine.collect().iter().all(|(_, outcome)| matches!(outcome, Outcome::Written(_))));
    let again = photos(&engine, 800, 16);
    engine.submit(again).unwrap();
    drop(engine);
}
