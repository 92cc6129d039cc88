//! `brimful bench loader`: how many images a second the loader hands out, and which share that is of what its threads can
//! do without it. Both are measured in turn, round after round. No GPU and no model takes part.

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
use crate::cli::progress::Progress;
use crate::cli::stages::{Stages, advice};
use crate::cli::{demo, recipe, shards};
use crate::decode::Backend;
use crate::loader::{Dataset, Loader};
use crate::sample::Shuffle;
use crate::shard::{ShardList, ShardOptions};
use crate::{Error, ErrorKind};

/// Order and crops are the same in every run of the bench.
const SEED: u64 = 0;

pub(super) fn run(args: &LoaderBenchArgs, output: &mut Output) -> anyhow::Result<Outcome> {
    let threads = args.threads.unwrap_or_else(cores_available);
    let (list, folder) = data(args, threads)?;
    let dataset = open(&list, args)?;
    let ceiling = Ceiling::prepare(&dataset, SEED)?;
    let rounds = measure(&dataset, &ceiling, threads, args)?;
    let last = rounds.last().ok_or_else(|| Error::new(ErrorKind::InvalidOption, "no round was asked for"))?;
    let report = Report::new(&rounds, &last.loader, &dataset, &ceiling, folder, args.batch_size, threads);
    output.document(&args.document, &report, |output| report.print(output))?;
    Ok(Outcome::Done)
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

fn open(list: &ShardList, args: &LoaderBenchArgs) -> crate::Result<Dataset> {
    let with_labels = shards::have_field(list.paths(), "cls")?;
    let backend = match args.decoder {
        DecoderChoice::Auto => Backend::Auto,
        DecoderChoice::Turbo => Backend::Turbo,
        DecoderChoice::Zune => Backend::Zune,
    };
    let shards = ShardOptions { io: shards::io_method(args.io), ..ShardOptions::default() };
    let options = recipe::dataset_options(with_labels, backend, shards, Some(folders::cache()))?;
    let indexing = Progress::new("indexing shards", list.len());
    let dataset = Dataset::open(list, options, &|done, of| indexing.set(done, of))?;
    let samples = dataset.len().unwrap_or(0);
    if samples < args.batch_size {
        let message = format!("{samples} samples do not fill one batch of {}", args.batch_size);
        return Err(Error::new(ErrorKind::InvalidOption, message).with_hint("give a smaller --batch-size"));
    }
    Ok(dataset)
}

/// One round: the loader, then its threads without it, then one thread without it.
struct Round {
    loader: Taken,
    no_loader: f64,
    one_thread: f64,
}

fn measure(dataset: &Dataset, ceiling: &Ceiling, threads: usize, args: &LoaderBenchArgs) -> crate::Result<Vec<Round>> {
    let time = Duration::from_secs_f64(args.seconds);
    let until = args.epochs.map_or(Until::Elapsed(time), |epochs| Until::Epochs(epochs as u64));
    let steps = (args.runs + 1) * 3;
    let progress = Progress::new("measuring", steps);
    let round = |number: usize, until: Until, time: Duration| -> crate::Result<Round> {
        let step = |done: usize| progress.set(number * 3 + done, steps);
        let loader = Loader::builder(dataset.clone())
            .batch_size(args.batch_size)
            .drop_last(true)
            .shuffle(Shuffle::Global)
            .seed(SEED)
            .threads(threads)
            .build()?;
        let taken = consumer::take(&loader, until, &|_| step(0))?;
        // Its threads end here: nothing runs beside what is measured next.
        drop(loader);
        step(1);
        let no_loader = ceiling.images_per_s(threads, time)?;
        step(2);
        let one_thread = if threads == 1 { no_loader } else { ceiling.images_per_s(1, time)? };
        step(3);
        Ok(Round { loader: taken, no_loader, one_thread })
    };
    // A short round warms caches and clocks up and is forgotten.
    let short = time.min(Duration::from_millis(500));
    round(0, Until::Elapsed(short), short)?;
    (1..=args.runs).map(|number| round(number, until, time)).collect()
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
    fn new(
        rounds: &[Round],
        last: &'a Taken,
        dataset: &Dataset,
        ceiling: &Ceiling,
        folder: Option<PathBuf>,
        batch_size: usize,
        threads: usize,
    ) -> Self {
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
            rss_anon_mb: median(&|round| round.loader.memory.map(|memory| memory.anonymous_bytes as f64 / 1e6)),
            rss_file_mb: median(&|round| round.loader.memory.map(|memory| memory.file_bytes as f64 / 1e6)),
            bottleneck: last.stats.bottleneck.as_str(),
            advice: advice(last.stats.bottleneck),
            stages: Stages(&last.stats),
            no_loader_images_per_s: spread.no_loader_images_per_s.median,
            one_thread_images_per_s: spread.one_thread_images_per_s.median,
            epoch_gap_batches: median(&|round| round.loader.epoch_gap),
            cpu_s_per_1000_images: median(&|round| round.loader.cpu_s_per_1000()),
            threads,
            batch_size,
            spread,
            data: Data {
                shards: dataset.paths().len(),
                samples: dataset.len().unwrap_or(0),
                bytes_mean: ceiling.bytes_mean(),
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

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
