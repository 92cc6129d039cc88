//! Images a second of the GPU's JPEG engines alone, from files in memory to rows on the GPU: for each size of sub-batch
//! and number in flight. Prints one JSON document; does nothing where there is no GPU.
//!
//! `cargo bench --features cuda --bench engine -- --dir PHOTOS [--seconds 2] [--library-path DIR]... [--repeat-chroma]
//! [--sizes 16,32,64,128] [--states 2,3,4]`

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program whose output is its result")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use brimful::decode::image_info;
use brimful::device::kernels::Kernels;
use brimful::device::nvjpeg::{EncodedImage, EngineOptions, JpegEngine, Outcome};
use brimful::device::stream::Gpu;
use brimful::transform::{Compose, SampleRng};
use bytes::Bytes;
use serde_json::{Value, json};

const TRANSFORM: &str = r#"[{"name": "RandomResizedCrop", "size": 224}, {"name": "RandomHorizontalFlip", "p": 0.5}]"#;

struct Arguments {
    dir: Option<PathBuf>,
    folders: Vec<PathBuf>,
    seconds: f64,
    sizes: Vec<usize>,
    states: Vec<usize>,
    interpolate: bool,
}

fn main() {
    let arguments = match arguments(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(problem) => {
            eprintln!("{problem}");
            std::process::exit(2);
        }
    };
    let files = files(arguments.dir.as_deref());
    match measure(&arguments, &files) {
        Ok(document) => println!("{document:#}"),
        Err(error) => eprintln!("skipped: {error} (hint: {})", error.hint().unwrap_or("none")),
    }
}

fn arguments(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments {
        dir: None,
        folders: Vec::new(),
        seconds: 2.0,
        sizes: vec![16, 32, 64, 128],
        states: vec![2, 3, 4],
        interpolate: true,
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--bench" => {}
            "--repeat-chroma" => arguments.interpolate = false,
            "--dir" => arguments.dir = Some(value()?.into()),
            "--library-path" => arguments.folders.push(value()?.into()),
            "--seconds" => arguments.seconds = value()?.parse().map_err(|_| "--seconds takes a number".to_owned())?,
            "--sizes" => arguments.sizes = numbers(&value()?)?,
            "--states" => arguments.states = numbers(&value()?)?,
            _ => return Err(format!("unknown argument {word}")),
        }
    }
    Ok(arguments)
}

fn numbers(list: &str) -> Result<Vec<usize>, String> {
    list.split(',').map(|number| number.parse().map_err(|_| format!("{number} is no number"))).collect()
}

/// The files of the folder, or generated photos.
fn files(dir: Option<&Path>) -> Vec<Bytes> {
    let Some(dir) = dir else {
        return (0..64).map(|seed| Bytes::from(brimful::encode::encode_photo(seed))).collect();
    };
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths.iter().filter_map(|path| std::fs::read(path).ok()).map(Bytes::from).collect()
}

fn measure(arguments: &Arguments, files: &[Bytes]) -> brimful::Result<Value> {
    let gpu = Gpu::open(0)?;
    let kernels = Arc::new(Kernels::load(gpu.context())?);
    let mut results = Vec::new();
    let mut report = Value::Null;
    for &sub_batch in &arguments.sizes {
        for &states in &arguments.states {
            let options = EngineOptions {
                folders: arguments.folders.clone(),
                sub_batch,
                states,
                scratch_bytes: (sub_batch << 20).max(16 << 20),
                staging_bytes: (sub_batch << 18).max(16 << 20),
                interpolate: arguments.interpolate,
                ..EngineOptions::default()
            };
            let mut engine = JpegEngine::open(&gpu, Arc::clone(&kernels), options)?;
            let found = engine.report();
            report = json!({
                "library": found.library, "version": [found.version.0, found.version.1, found.version.2],
                "engines": found.engines.map(|(engines, cores)| json!({"engines": engines, "cores": cores})),
            });
            let images = images(&engine, files)?;
            results.push(row(&mut engine, &images, sub_batch, states, arguments.seconds));
        }
    }
    Ok(json!({
        "nvjpeg": report, "files": files.len(), "interpolate": arguments.interpolate, "transform": TRANSFORM,
        "results": results,
    }))
}

fn images(engine: &JpegEngine, files: &[Bytes]) -> brimful::Result<Vec<EncodedImage>> {
    let compose = Compose::from_json(TRANSFORM)?;
    let mut images = Vec::new();
    for (ticket, bytes) in files.iter().enumerate() {
        let Ok(info) = image_info(bytes) else { continue };
        let geometry = compose.geometry(info.width, info.height, &mut SampleRng::new(0, 0, ticket as u64))?;
        if engine.supports(&info, &geometry, bytes.len()).is_ok() {
            images.push(EncodedImage { bytes: bytes.clone(), info, geometry, ticket });
        }
    }
    Ok(images)
}

fn row(engine: &mut JpegEngine, images: &[EncodedImage], sub_batch: usize, states: usize, seconds: f64) -> Value {
    let mut next = images.iter().cycle().cloned();
    let _ = work(engine, &mut next, Duration::from_secs_f64(seconds / 4.0));
    let (before, cpu_before) = (engine.stats(), cpu_time());
    let took = work(engine, &mut next, Duration::from_secs_f64(seconds));
    let (after, cpu) = (engine.stats(), cpu_time() - cpu_before);
    let written = (after.written - before.written) as f64;
    json!({
        "sub_batch": sub_batch,
        "states": states,
        "images": images.len(),
        "images_per_s": (written / took.as_secs_f64()).round(),
        "cpu_s_per_1000": cpu.as_secs_f64() / (written / 1000.0).max(1e-9),
        "staging_us": per_image(after.staging - before.staging, written),
        "calling_us": per_image(after.calling - before.calling, written),
        "refused": after.refused - before.refused,
        "failed": after.failed - before.failed,
        "unwritten": after.unwritten - before.unwritten,
        "batches": after.batches - before.batches,
        "memory_mb": engine.memory_bytes() >> 20,
    })
}

/// Microseconds for each of `images`.
fn per_image(time: Duration, images: f64) -> f64 {
    (time.as_secs_f64() * 1e7 / images.max(1.0)).round() / 10.0
}

/// Keeps every state busy for `time`, and then empties them.
fn work(engine: &mut JpegEngine, next: &mut impl Iterator<Item = EncodedImage>, time: Duration) -> Duration {
    let started = Instant::now();
    let mut pending = Vec::new();
    while started.elapsed() < time {
        if !engine.can_submit() {
            collect(engine);
        }
        while !engine.is_full(&pending) {
            let Some(image) = next.next() else { return Duration::MAX };
            pending.push(image);
        }
        if let Err(images) = engine.submit(std::mem::take(&mut pending)) {
            pending = images;
        }
    }
    while engine.in_flight() > 0 {
        collect(engine);
    }
    started.elapsed()
}

fn collect(engine: &mut JpegEngine) {
    for (image, outcome) in engine.collect() {
        if let Outcome::Refused(reason) = outcome
            && reason.is_failure()
        {
            eprintln!("image {}: {reason}", image.ticket);
        }
    }
}

/// CPU time of the process so far.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let numbers = text.rsplit(')').next().unwrap_or("").split_whitespace();
    let ticks: u64 = numbers.skip(11).take(2).filter_map(|number| number.parse::<u64>().ok()).sum();
    // The kernel tells these in hundredths of a second, whatever its own clock does.
    Duration::from_millis(ticks * 10)
}
