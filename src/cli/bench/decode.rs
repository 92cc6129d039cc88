//! `brimful bench decode`: every JPEG decoder of this build on the same files, with the same crops. Storage plays no part:
//! the files are in memory.

use std::io::{self, Write};
use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::Serialize;

use super::crops::{CropJobs, Work, training_crop};
use super::photos::{Origin, Photos};
use super::spread::Spread;
use crate::cli::args::DecodeBenchArgs;
use crate::cli::failure::{Outcome, warn};
use crate::cli::machine::cores_available;
use crate::cli::output::{Output, bytes_text, count_text, rate_text};
use crate::cli::progress::Progress;
use crate::decode::{Backend, DecodeOptions, Decoder, ImageDecoder, backends};
use crate::transform::Compose;
use crate::{Error, ErrorKind, Result};

pub(super) fn run(args: &DecodeBenchArgs, output: &mut Output) -> anyhow::Result<Outcome> {
    let threads = args.threads.unwrap_or_else(cores_available);
    let mut photos = Photos::gather(args, threads)?;
    let compose = training_crop(args.size)?;
    let left_out = leave_out_bad(&mut photos, &compose, threads)?;
    let results = measure(&photos.files, &compose, threads, args)?;
    let report = Report::new(&photos, left_out, args.size, results);
    output.document(&args.document, &report, |output| report.print(output))?;
    Ok(Outcome::bad_if(left_out > 0 || photos.bad))
}

/// One row of the result: who decodes, and what is done.
#[derive(Debug, Clone, Copy)]
struct Row {
    name: &'static str,
    backend: Backend,
    work: Work,
    /// Files that a decoder may hold at once.
    held_max: usize,
}

const fn row(name: &'static str, backend: Backend, work: Work) -> Row {
    Row { name, backend, work, held_max: 1 }
}

const ROWS: [Row; 7] = [
    row("zune full", Backend::Zune, Work::Decode),
    row("zune full+resize", Backend::Zune, Work::DecodeThenResize),
    row("turbo full", Backend::Turbo, Work::Decode),
    row("turbo full+resize", Backend::Turbo, Work::DecodeThenResize),
    row("turbo region+resize", Backend::Turbo, Work::DecodeRegionThenResize),
    row("baseline region+resize", Backend::Baseline, Work::DecodeRegionThenResize),
    Row { held_max: 2, ..row("baseline 2 lanes region+resize", Backend::Baseline, Work::DecodeRegionThenResize) },
];

/// The rows whose decoders are built in.
fn rows() -> Vec<Row> {
    let is_built = |row: &Row| row.name.split(' ').next().is_some_and(|name| backends().contains(&name));
    ROWS.into_iter().filter(is_built).collect()
}

/// Takes files out that any row fails on, so that all rows do the same work; returns their number.
fn leave_out_bad(photos: &mut Photos, compose: &Compose, threads: usize) -> Result<usize> {
    let mut bad = vec![false; photos.files.len()];
    for row in rows().iter().filter(|row| row.work != Work::Decode) {
        let pass = pass(row, &photos.files, photos.files.len(), compose, threads)?;
        pass.failed.into_iter().for_each(|number| bad[number] = true);
    }
    let left_out = bad.iter().filter(|&&bad| bad).count();
    if left_out > 0 {
        warn(&format!("{left_out} of {} files cannot be decoded by every decoder and are left out", bad.len()));
        let mut flags = bad.into_iter();
        photos.files.retain(|_| !flags.next().unwrap_or(false));
    }
    if photos.files.is_empty() {
        return Err(Error::new(ErrorKind::Decode, "none of the files can be decoded"));
    }
    Ok(left_out)
}

/// Runs all rows in turn, round after round, so that a machine that slows down slows all of them.
fn measure(files: &[Bytes], compose: &Compose, threads: usize, args: &DecodeBenchArgs) -> Result<Vec<RowResult>> {
    let rows = rows();
    let progress = Progress::new("decoding", rows.len() * (args.runs + 1));
    let mut done = 0;
    let mut run = |row: &Row, count: usize| {
        let pass = pass(row, files, count, compose, threads);
        done += 1;
        progress.set(done, rows.len() * (args.runs + 1));
        pass
    };
    let mut counts = Vec::new();
    for row in &rows {
        // One pass warms up and tells how many passes fill the time.
        let seconds = run(row, files.len())?.time.as_secs_f64();
        let passes = (args.seconds / seconds.max(1e-6)).round().clamp(1.0, 1e6);
        counts.push(files.len() * passes as usize);
    }
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); rows.len()];
    for _ in 0..args.runs {
        for ((row, &count), rates) in rows.iter().zip(&counts).zip(&mut rates) {
            let pass = run(row, count)?;
            rates.push(count as f64 / pass.time.as_secs_f64().max(1e-9));
        }
    }
    let bytes = files.iter().map(Bytes::len).sum::<usize>() as f64 / files.len() as f64;
    let results =
        rows.iter().zip(rates).map(|(row, rates)| RowResult::new(row.name, Spread::of(rates), bytes, threads));
    Ok(results.collect())
}

/// What one pass took and on which files it failed.
struct Pass {
    time: Duration,
    failed: Vec<usize>,
}

/// Decodes `count` files, cycling through `files`, on `threads` threads.
fn pass(row: &Row, files: &[Bytes], count: usize, compose: &Compose, threads: usize) -> Result<Pass> {
    let options = DecodeOptions { backend: row.backend, ..DecodeOptions::default() };
    let decoders = (0..threads).map(|_| ImageDecoder::new(options.clone())).collect::<Result<Vec<_>>>()?;
    let next = AtomicUsize::new(0);
    let start = Barrier::new(threads + 1);
    let mut started = Instant::now();
    let mut failed = Vec::new();
    thread::scope(|scope| {
        let workers: Vec<_> = decoders
            .into_iter()
            .map(|mut decoder| {
                let mut jobs = CropJobs::new(files, &next, count, row.work, compose).holding(row.held_max);
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    decoder.run(&mut jobs);
                    jobs.failed
                })
            })
            .collect();
        start.wait();
        started = Instant::now();
        for worker in workers {
            // A decoder never panics on any bytes.
            failed.extend(worker.join().unwrap_or_default());
        }
    });
    Ok(Pass { time: started.elapsed(), failed })
}

/// The numbers of one row.
#[derive(Debug, Serialize)]
struct RowResult {
    name: &'static str,
    /// Median of the runs.
    images_per_s: f64,
    /// Compressed megabytes (1,000,000 bytes) a second at that rate.
    mb_per_s: f64,
    threads: usize,
    spread: Spread,
}

impl RowResult {
    fn new(name: &'static str, spread: Spread, bytes_mean: f64, threads: usize) -> Self {
        Self { name, images_per_s: spread.median, mb_per_s: spread.median * bytes_mean / 1e6, threads, spread }
    }
}

/// The document, without what all documents have.
#[derive(Debug, Serialize)]
struct Report {
    results: Vec<RowResult>,
    data: Data,
}

#[derive(Debug, Serialize)]
struct Data {
    origin: Origin,
    images: usize,
    images_left_out: usize,
    bytes_mean: u64,
    /// Side of the resized crop in pixels.
    size: u32,
}

impl Report {
    fn new(photos: &Photos, images_left_out: usize, size: u32, results: Vec<RowResult>) -> Self {
        let images = photos.files.len();
        let bytes_mean = photos.bytes() / images.max(1) as u64;
        Self { results, data: Data { origin: photos.origin, images, images_left_out, bytes_mean, size } }
    }

    fn print(&self, output: &mut Output) -> io::Result<()> {
        let rows = self.results.iter().map(|row| {
            let threads = row.threads.to_string();
            let spread = format!("{:.1} %", row.spread.percent());
            [row.name.to_owned(), rate_text(row.images_per_s), rate_text(row.mb_per_s), threads, spread]
        });
        output.table(["decoder", "images/s", "MB/s", "threads", "spread"], 1, rows)?;
        let Data { images, bytes_mean, size, .. } = self.data;
        let files = format!("{} JPEG files of {} on average", count_text(images as u64), bytes_text(bytes_mean));
        writeln!(output, "\n{files}; random crops resized to {size}x{size}; median of {} runs", self.runs())
    }

    fn runs(&self) -> usize {
        self.results.first().map_or(0, |row| row.spread.runs.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_carry_the_names_of_their_decoders() {
        let names: Vec<&str> = rows().iter().map(|row| row.name).collect();
        assert!(names.starts_with(&["zune full", "zune full+resize"]));
        assert_eq!(names.contains(&"turbo region+resize"), cfg!(feature = "turbo"));
        assert!(names.ends_with(&["baseline region+resize", "baseline 2 lanes region+resize"]));
        for row in rows() {
            let options = DecodeOptions { backend: row.backend, ..DecodeOptions::default() };
            assert_eq!(ImageDecoder::new(options).unwrap().jpeg_backend(), row.name.split(' ').next().unwrap());
        }
    }
}
