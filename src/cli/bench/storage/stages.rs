//! What is left of the storage's speed behind it: when headers are parsed and members taken, when images are decoded, and
//! through the whole loader. All of it reads as a loader would.

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::Serialize;

use super::interrupt::Interrupt;
use super::shards::Shards;
use crate::cli::args::StorageBenchArgs;
use crate::cli::args::storage::StageChoice;
use crate::cli::bench::crops::{CropJobs, Work, training_crop};
use crate::cli::bench::spread::Spread;
use crate::cli::consumer::{self, Until};
use crate::cli::failure::note;
use crate::cli::machine::cores_available;
use crate::cli::progress::Progress;
use crate::cli::{folders, recipe, shards as lists};
use crate::decode::{Backend, DecodeOptions, Decoder, ImageDecoder};
use crate::loader::{Dataset, ErrorBudget, Loader, OnError};
use crate::sample::Shuffle;
use crate::shard::{MemberKind, Shard, ShardOptions};
use crate::storage::residency::{evict, warm};
use crate::storage::statistics::median;
use crate::storage::{Cache, ChosenIo, Recommendation, resident};
use crate::{Error, ErrorKind, Result};

/// Images that a thread takes before it decodes them.
const IMAGES_AT_ONCE: usize = 32;

/// Samples of a batch of the loader, fewer where there are fewer.
const BATCH_SIZE: usize = 64;

/// The rate behind a stage.
#[derive(Debug, Serialize)]
pub(super) struct StageResult {
    pub(super) stage: &'static str,
    pub(super) cache: &'static str,
    pub(super) threads: usize,
    pub(super) samples_per_s: f64,
    pub(super) mb_per_s: f64,
    /// Share of the pages that were cached before a run.
    pub(super) resident_before: Option<f64>,
    pub(super) spread: StageSpread,
}

#[derive(Debug, Serialize)]
pub(super) struct StageSpread {
    pub(super) samples_per_s: Spread,
}

/// Measures the stages that were asked for, in turn.
pub(super) fn measure(
    args: &StorageBenchArgs,
    shards: &Shards,
    recommended: Option<&Recommendation>,
    caches: &[Cache],
    interrupt: &Interrupt,
) -> anyhow::Result<Vec<StageResult>> {
    if args.stages.is_empty() {
        return Ok(Vec::new());
    }
    let paths: Vec<PathBuf> = shards.layout.paths().map(ToOwned::to_owned).collect();
    let bench = Bench {
        shards,
        io: recommended.map_or_else(|| Ok(ChosenIo::default()), ChosenIo::recommended)?,
        threads: recommended.map_or_else(cores_available, |found| found.threads.max(cores_available())),
        duration: Duration::from_secs_f64(args.duration),
        paths,
    };
    let stages = bench.possible(&args.stages)?;
    let wanted: Vec<(StageChoice, Cache)> =
        caches.iter().flat_map(|cache| stages.iter().map(|stage| (*stage, *cache))).collect();
    let progress = Progress::new("measuring stages", wanted.len() * args.runs);
    let mut rates = vec![Vec::new(); wanted.len()];
    let mut shares = vec![Vec::new(); wanted.len()];
    for round in 0..args.runs {
        for (number, &(stage, cache)) in wanted.iter().enumerate() {
            if interrupt.is_set() {
                break;
            }
            let resident = bench.prepare(cache)?;
            let rate = bench.samples_per_s(stage, interrupt)?;
            // A run that was cut short says nothing.
            if !interrupt.is_set() {
                rates[number].push(rate);
                shares[number].extend(resident);
            }
            progress.set(round * wanted.len() + number + 1, wanted.len() * args.runs);
        }
    }
    let bytes_a_sample = shards.layout.bytes_a_sample().unwrap_or(0.0);
    let results = wanted.into_iter().zip(rates).zip(shares).filter(|((_, rates), _)| !rates.is_empty());
    let result = results.map(|(((stage, cache), rates), shares)| {
        let spread = Spread::of(rates);
        StageResult {
            stage: stage.word(),
            cache: cache.as_str(),
            threads: bench.threads,
            samples_per_s: spread.median,
            mb_per_s: spread.median * bytes_a_sample / 1e6,
            resident_before: (!shares.is_empty()).then(|| median(&shares)),
            spread: StageSpread { samples_per_s: spread },
        }
    });
    Ok(result.collect())
}

impl StageChoice {
    fn word(self) -> &'static str {
        match self {
            Self::Parse => "parse",
            Self::Decode => "decode",
            Self::Loader => "loader",
        }
    }
}

struct Bench<'a> {
    shards: &'a Shards,
    paths: Vec<PathBuf>,
    io: ChosenIo,
    threads: usize,
    duration: Duration,
}

impl Bench<'_> {
    /// The stages that these shards allow; of others it is told why not.
    fn possible(&self, asked: &[StageChoice]) -> Result<Vec<StageChoice>> {
        let has_samples = !self.shards.layout.samples().is_empty();
        let mut has_images = false;
        for extension in recipe::IMAGE.split(';') {
            has_images |= has_samples && lists::have_field(&self.paths, extension)?;
        }
        let (kept, left): (Vec<StageChoice>, Vec<StageChoice>) = asked
            .iter()
            .copied()
            .partition(|stage| if *stage == StageChoice::Parse { has_samples } else { has_images });
        for stage in left {
            let lacking =
                if has_samples { "the shards hold no images" } else { "compressed shards are read in a stream" };
            note(&format!("left out: {}: {lacking}", stage.word()));
        }
        Ok(kept)
    }

    /// Evicts or warms the shards; returns the share of their pages that is resident then.
    fn prepare(&self, cache: Cache) -> Result<Option<f64>> {
        self.paths.iter().try_for_each(|path| if cache == Cache::Cold { evict(path) } else { warm(path) })?;
        resident(&self.shards.layout)
    }

    fn options(&self) -> ShardOptions {
        ShardOptions { io: self.io.method, opener: self.io.opener, ..ShardOptions::default() }
    }

    fn samples_per_s(&self, stage: StageChoice, interrupt: &Interrupt) -> Result<f64> {
        match stage {
            StageChoice::Loader => self.loader(),
            StageChoice::Parse | StageChoice::Decode => self.members(stage == StageChoice::Decode, interrupt),
        }
    }

    /// Threads take shard after shard, once each, and all members of each.
    fn members(&self, decodes: bool, interrupt: &Interrupt) -> Result<f64> {
        let next = AtomicUsize::new(0);
        let started = Instant::now();
        let read = thread::scope(|scope| {
            let work = || {
                let mut walk = Walk { bench: self, decodes, deadline: started + self.duration, interrupt };
                let mut samples = 0.0;
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(path) = self.paths.get(number).filter(|_| !walk.is_over()) else { return Ok(samples) };
                    samples += walk.shard(number, path)?;
                }
            };
            let threads: Vec<_> = (0..self.threads).map(|_| scope.spawn(work)).collect();
            let joined = threads.into_iter().map(|thread| {
                thread.join().unwrap_or_else(|_| Err(Error::new(ErrorKind::Io, "a reading thread panicked")))
            });
            joined.sum::<Result<f64>>()
        })?;
        Ok(read / started.elapsed().as_secs_f64().max(1e-9))
    }

    /// The whole loader, shuffled, for the duration or the whole epoch.
    fn loader(&self) -> Result<f64> {
        let options = recipe::dataset_options(false, Backend::Auto, self.options(), Some(folders::cache()))?;
        let dataset = Dataset::open(&recipe::list_of(&self.paths)?, options, &|_, _| {})?;
        let batch_size = dataset.len().unwrap_or(1).clamp(1, BATCH_SIZE);
        let loader = Loader::builder(dataset)
            .batch_size(batch_size)
            .shuffle(Shuffle::Global)
            .readers(self.io.readers)
            .samples_ahead(self.io.samples_ahead)
            .on_error(OnError::Skip, ErrorBudget::Unlimited)
            .build()?;
        Ok(consumer::take(&loader, Until::Elapsed(self.duration), &|_| {})?.images_per_s())
    }
}

/// One thread's way through its shards.
struct Walk<'a> {
    bench: &'a Bench<'a>,
    decodes: bool,
    deadline: Instant,
    interrupt: &'a Interrupt,
}

impl Walk<'_> {
    fn is_over(&self) -> bool {
        Instant::now() >= self.deadline || self.interrupt.is_set()
    }

    /// Takes the members of one shard; returns the number of samples, in part where the time is over.
    fn shard(&mut self, number: usize, path: &PathBuf) -> Result<f64> {
        let shard = Shard::open(path, &self.bench.options())?;
        let all = self.bench.shards.layout.samples().iter().filter(|sample| sample.file == number).count();
        let mut images = Vec::new();
        let mut end = 0;
        for member in shard.members() {
            let member = member?;
            if member.kind != MemberKind::File {
                continue;
            }
            let range = member.offset..member.offset + member.size;
            end = range.end;
            shard.populate(range.clone())?;
            let bytes = shard.read(range)?;
            black_box(bytes.first());
            if self.decodes && is_image(&member.name) {
                images.push(bytes);
                if images.len() == IMAGES_AT_ONCE {
                    decode(&std::mem::take(&mut images))?;
                }
            }
            if self.is_over() {
                decode(&images)?;
                return Ok(all as f64 * end as f64 / shard.len() as f64);
            }
        }
        decode(&images)?;
        Ok(if end > 0 { all as f64 } else { 0.0 })
    }
}

fn is_image(name: &[u8]) -> bool {
    let extension = name.rsplit(|byte| *byte == b'.').next().unwrap_or_default();
    recipe::IMAGE.split(';').any(|image| extension.eq_ignore_ascii_case(image.as_bytes()))
}

/// Decodes all pixels of the images; what cannot be decoded is as fast to read as what can.
fn decode(images: &[Bytes]) -> Result<()> {
    if images.is_empty() {
        return Ok(());
    }
    let compose = training_crop(recipe::CROP)?;
    let mut decoder = ImageDecoder::new(DecodeOptions::default())?;
    let next = AtomicUsize::new(0);
    decoder.run(&mut CropJobs::new(images, &next, images.len(), Work::Decode, &compose));
    Ok(())
}
