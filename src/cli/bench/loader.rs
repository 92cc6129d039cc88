//! `brimful bench loader`: how many images a second the loader hands out, and which share that is of what its threads can
//! do without it. Both are measured in turn, round after round. No model takes part.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::ceiling::Ceiling;
use super::spread::Spread;
use crate::cli::args::{DecoderChoice, LoaderBenchArgs};
use crate::cli::consumer::{self, Taken, Until};
use crate::cli::failure::{Outcome, note};
use crate::cli::folders;
use crate::cli::machine::cores_available;
use crate::cli::output::{Output, bytes_text, count_text, rate_text};
use crate::cli::process::ResidentMemory;
use crate::cli::progress::Progress;
use crate::cli::stages::{Stages, advice};
use crate::cli::{demo, recipe, shards};
use crate::decode::Backend;
use crate::device::Device;
use crate::loader::{Dataset, ErrorBudget, Loader, OnError, RouteMode, Stage, Stats};
use crate::sample::Shuffle;
use crate::shard::{ShardList, ShardOptions};
use crate::storage::ChosenIo;
use crate::{Error, ErrorKind};

/// Order and crops are the same in every run of the bench.
const SEED: u64 = 0;

pub(super) fn run(args: &LoaderBenchArgs, output: &mut Output) -> anyhow::Result<Outcome> {
    if let Some(model) = &args.train {
        let message = format!("training {model} takes Python and torch, which this program does not have");
        let error = Error::new(ErrorKind::Unsupported, message);
        return Err(error
            .with_hint("pip install brimful torch torchvision, and run the `brimful` of that environment")
            .into());
    }
    let threads = args.threads.unwrap_or_else(cores_available);
    let (list, folder) = data(args, threads)?;
    let (dataset, io) = open(&list, args)?;
    let bench = Bench {
        dataset,
        io,
        threads,
        batch_size: args.batch_size,
        device: args.device,
        route: match args.decoder {
            DecoderChoice::Auto => RouteMode::Auto,
            DecoderChoice::Gpu => RouteMode::Engine,
            _ => RouteMode::Cpu,
        },
        runs: args.runs,
        until: until(args),
        time: time(args),
    };
    let measured = bench.measure()?;
    let report = Report::new(&bench, &measured, folder);
    output.document(&args.document, &report, |output| report.print(output))?;
    Ok(Outcome::bad_if(shards::tell_bad_samples(&measured.first.bad)))
}

/// The shards asked for; otherwise a data set of generated photos in the cache folder, which stays there.
fn data(args: &LoaderBenchArgs, threads: usize) -> crate::Result<(ShardList, Option<PathBuf>)> {
    if let Some(pattern) = &args.shards {
        return Ok((ShardList::parse(pattern)?, None));
    }
    let folder = folders::cache().join(format!("photos-{}", args.samples));
    note(&format!("data: {} generated photos in {}, kept for later runs", args.samples, folder.display()));
    let paths = demo::make(&folder, args.samples, threads)?;
    Ok((recipe::list_of(&paths)?, Some(folder)))
}

/// The data set, and how its storage is best read.
fn open(list: &ShardList, args: &LoaderBenchArgs) -> crate::Result<(Dataset, ChosenIo)> {
    let with_labels = shards::have_field(list.paths(), "cls")?;
    let backend = match args.decoder {
        DecoderChoice::Auto | DecoderChoice::Cpu | DecoderChoice::Gpu => Backend::Auto,
        DecoderChoice::Baseline => Backend::Baseline,
        DecoderChoice::Turbo => Backend::Turbo,
        DecoderChoice::Zune => Backend::Zune,
    };
    let chosen = shards::loaders_io(args.io, list.paths())?;
    let shards = ShardOptions { io: chosen.method, opener: chosen.opener, ..ShardOptions::default() };
    let options = recipe::dataset_options(with_labels, backend, shards, Some(folders::cache()))?;
    let indexing = Progress::new("indexing shards", list.len());
    let dataset = Dataset::open(list, options, &|done, of| indexing.set(done, of))?;
    let Some(samples) = dataset.len() else {
        let message = "compressed shards are read in a stream, and this bench needs samples by number";
        return Err(Error::new(ErrorKind::Unsupported, message)
            .with_hint("give uncompressed shards, or load these with `brimful demo --shards`"));
    };
    if samples < args.batch_size {
        let message = format!("{samples} samples do not fill one batch of {}", args.batch_size);
        return Err(Error::new(ErrorKind::InvalidOption, message).with_hint("give a smaller --batch-size"));
    }
    Ok((dataset, chosen))
}

/// How long each run of the loader lasts.
fn until(args: &LoaderBenchArgs) -> Until {
    args.epochs.map_or(Until::Elapsed(time(args)), |epochs| Until::Epochs(epochs as u64))
}

fn time(args: &LoaderBenchArgs) -> Duration {
    Duration::from_secs_f64(args.seconds)
}

/// What is measured, and how often.
struct Bench {
    dataset: Dataset,
    io: ChosenIo,
    threads: usize,
    batch_size: usize,
    device: Device,
    route: RouteMode,
    runs: usize,
    until: Until,
    time: Duration,
}

/// All that came out.
struct Measured {
    /// A run of the loader before anything else, which warms caches up. Its rate does not count, but its memory does:
    /// later the files of the ceiling are mapped as well.
    first: Taken,
    rounds: Vec<Round>,
    /// Bytes of an image file on average.
    bytes_mean: u64,
}

/// One round: the loader, then its threads without it, then one thread without it.
struct Round {
    loader: Taken,
    no_loader: f64,
    one_thread: f64,
}

impl Bench {
    fn measure(&self) -> crate::Result<Measured> {
        let steps = 1 + self.runs * 3;
        let progress = Progress::new("measuring", steps);
        let mut done = 0;
        let mut step = || {
            done += 1;
            progress.set(done, steps);
        };
        let first = self.load()?;
        step();
        let ceiling = Ceiling::prepare(&self.dataset, SEED, self.device)?;
        let mut rounds = Vec::with_capacity(self.runs);
        for _ in 0..self.runs {
            let loader = self.load()?;
            step();
            let no_loader = ceiling.images_per_s(self.threads, self.time)?;
            step();
            let one_thread = if self.threads == 1 { no_loader } else { ceiling.images_per_s(1, self.time)? };
            step();
            rounds.push(Round { loader, no_loader, one_thread });
        }
        Ok(Measured { first, rounds, bytes_mean: ceiling.bytes_mean() })
    }

    /// One run of the loader. Its threads end with it: nothing runs beside what is measured next.
    fn load(&self) -> crate::Result<Taken> {
        let loader = Loader::builder(self.dataset.clone())
            .batch_size(self.batch_size)
            .drop_last(true)
            .shuffle(Shuffle::Global)
            .seed(SEED)
            .threads(self.threads)
            .readers(self.io.readers)
            .samples_ahead(self.io.samples_ahead)
            .device(self.device)
            .route(self.route)
            .nvjpeg_folders(folders::nvjpeg())
            .on_error(OnError::Skip, ErrorBudget::Unlimited)
            .build()?;
        consumer::take(&loader, self.until, &|_| {})
    }
}

/// The document, without what all documents have.
#[derive(Debug, Serialize)]
struct Report<'a> {
    images_per_s: f64,
    /// The loader's rate over that of its threads without it.
    pipeline_efficiency: f64,
    time_to_first_batch_s: f64,
    rss_anon_mb: Option<f64>,
    rss_file_mb: Option<f64>,
    bottleneck: &'static str,
    advice: &'static str,
    stages: Stages<'a>,
    no_loader_images_per_s: f64,
    one_thread_images_per_s: f64,
    /// Time between the batches on both sides of an epoch's end, in mean times between batches.
    epoch_gap_batches: Option<f64>,
    cpu_s_per_1000_images: Option<f64>,
    threads: usize,
    batch_size: usize,
    device: String,
    copied_mb_per_s: Option<f64>,
    /// Share of the images that the GPU's JPEG engines decoded.
    engine_share: Option<f64>,
    /// The engines, or why they were not used.
    engines: Option<String>,
    spread: Spreads,
    data: Data,
}

/// The runs behind the medians.
#[derive(Debug, Serialize)]
struct Spreads {
    images_per_s: Spread,
    no_loader_images_per_s: Spread,
    one_thread_images_per_s: Spread,
    pipeline_efficiency: Spread,
    time_to_first_batch_s: Spread,
}

#[derive(Debug, Serialize)]
struct Data {
    shards: usize,
    samples: usize,
    /// Bytes of an image file.
    bytes_mean: u64,
    /// Where generated photos are kept; none for shards that were given.
    folder: Option<PathBuf>,
}

impl<'a> Report<'a> {
    fn new(bench: &Bench, measured: &'a Measured, folder: Option<PathBuf>) -> Self {
        let Measured { first, rounds, bytes_mean } = measured;
        let stats = &rounds.last().map_or(first, |round| &round.loader).stats;
        let memory = |bytes: fn(&ResidentMemory) -> u64| first.memory.as_ref().map(|memory| bytes(memory) as f64 / 1e6);
        let spread = |value: &dyn Fn(&Round) -> f64| Spread::of(rounds.iter().map(value).collect());
        let median = |value: &dyn Fn(&Round) -> Option<f64>| {
            let values: Vec<f64> = rounds.iter().filter_map(value).collect();
            (!values.is_empty()).then(|| Spread::of(values).median)
        };
        let spread = Spreads {
            images_per_s: spread(&|round| round.loader.images_per_s()),
            no_loader_images_per_s: spread(&|round| round.no_loader),
            one_thread_images_per_s: spread(&|round| round.one_thread),
            pipeline_efficiency: spread(&|round| ratio(round.loader.images_per_s(), round.no_loader)),
            time_to_first_batch_s: spread(&|round| round.loader.first_batch.as_secs_f64()),
        };
        Self {
            images_per_s: spread.images_per_s.median,
            pipeline_efficiency: ratio(spread.images_per_s.median, spread.no_loader_images_per_s.median),
            time_to_first_batch_s: spread.time_to_first_batch_s.median,
            rss_anon_mb: memory(|memory| memory.anonymous_bytes),
            rss_file_mb: memory(|memory| memory.file_bytes),
            bottleneck: stats.bottleneck.as_str(),
            advice: advice(stats.bottleneck),
            stages: Stages(stats),
            no_loader_images_per_s: spread.no_loader_images_per_s.median,
            one_thread_images_per_s: spread.one_thread_images_per_s.median,
            epoch_gap_batches: median(&|round| round.loader.epoch_gap),
            cpu_s_per_1000_images: median(&|round| round.loader.cpu_s_per_1000()),
            threads: bench.threads,
            batch_size: bench.batch_size,
            device: bench.device.to_string(),
            copied_mb_per_s: copied_mb_per_s(stats),
            engine_share: engine_share(stats),
            engines: stats.device.as_ref().and_then(|device| device.engines.clone()),
            spread,
            data: Data {
                shards: bench.dataset.paths().len(),
                samples: bench.dataset.len().unwrap_or(0),
                bytes_mean: *bytes_mean,
                folder,
            },
        }
    }

    fn print(&self, output: &mut Output) -> io::Result<()> {
        let row = |name: &str, spread: &Spread, threads: usize| {
            [name.to_owned(), rate_text(spread.median), threads.to_string(), format!("{:.1} %", spread.percent())]
        };
        let rows = [
            row("loader", &self.spread.images_per_s, self.threads),
            row("no loader", &self.spread.no_loader_images_per_s, self.threads),
            row("no loader", &self.spread.one_thread_images_per_s, 1),
        ];
        output.table(["", "images/s", "threads", "spread"], 1, rows)?;
        let number = |value: Option<f64>, digits: usize| value.map_or("?".into(), |value| format!("{value:.digits$}"));
        writeln!(output, "\npipeline efficiency {:.1} %", 100.0 * self.pipeline_efficiency)?;
        writeln!(output, "first batch         {:.3} s", self.time_to_first_batch_s)?;
        writeln!(output, "epoch boundary      {} batch times", number(self.epoch_gap_batches, 2))?;
        writeln!(output, "processor time      {} s for 1,000 images", number(self.cpu_s_per_1000_images, 2))?;
        if let Some(rate) = self.copied_mb_per_s {
            writeln!(output, "copied to {:<9} {:.1} GB/s while copying, kernels included", self.device, rate / 1e3)?;
        }
        if let (Some(share), Some(engines)) = (self.engine_share, &self.engines) {
            writeln!(output, "JPEG engines        {:.0} % of the images; {engines}", 100.0 * share)?;
        }
        let (anonymous, file) = (number(self.rss_anon_mb, 0), number(self.rss_file_mb, 0));
        writeln!(output, "resident memory     {anonymous} MB, and {file} MB of mapped files")?;
        writeln!(output, "bottleneck          {}: {}\n", self.bottleneck, self.advice)?;
        self.stages.print(output)?;
        let Data { shards, samples, bytes_mean, .. } = self.data;
        let images = format!("{} images of {} on average", count_text(samples as u64), bytes_text(bytes_mean));
        let runs = self.spread.images_per_s.runs.len();
        writeln!(output, "\n{images} in {shards} shards; batches of {}; median of {runs} runs", self.batch_size)
    }
}

/// Rate of the copy stream while it was busy, kernels included.
fn copied_mb_per_s(stats: &Stats) -> Option<f64> {
    let busy_s = stats.stage(Stage::Copy).busy_share * stats.wall.as_secs_f64();
    let copied = stats.device.as_ref()?.copied_bytes as f64;
    (busy_s > 0.0).then(|| copied / busy_s / 1e6)
}

fn engine_share(stats: &Stats) -> Option<f64> {
    let engine_images = stats.device.as_ref()?.engine_images as f64;
    Some(ratio(engine_images, engine_images + stats.stage(Stage::Decode).items as f64))
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
