//! `brimful demo`: makes a small data set of generated photos, loads it twice, and says how fast that was and what limits
//! it. It is a first look; `brimful bench loader` measures.

use std::cell::Cell;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::args::DemoArgs;
use super::consumer::{self, Taken, Until};
use super::demo_data::make_demo_shards;
use super::failure::Outcome;
use super::folders;
use super::machine::cores_available;
use super::output::{Output, rate_text};
use super::progress::Progress;
use super::recipe;
use super::shards;
use super::stages::{Stages, advice};
use crate::decode::Backend;
use crate::loader::{Dataset, ErrorBudget, Loader, OnError};
use crate::sample::Shuffle;
use crate::shard::{ShardList, ShardOptions};
use crate::{Error, ErrorKind};

/// Shards of the data set that the demo makes.
const SHARDS: usize = 4;

/// The second epoch shows what the first one has warmed up.
const EPOCHS: u64 = 2;

pub(super) fn run(args: &DemoArgs, output: &mut Output) -> anyhow::Result<Outcome> {
    let threads = args.threads.unwrap_or_else(cores_available);
    let data = Data::ready(args, threads)?;
    let loader = loader(&data.list, args.batch_size, threads)?;
    let taken = load(&loader)?;
    let report = Report::new(&data, &loader, &taken);
    output.document(&args.document, &report, |output| report.print(output))?;
    Ok(Outcome::bad_if(shards::tell_bad_samples(&taken.bad)))
}

/// The shards that are loaded.
struct Data {
    list: ShardList,
    /// Where they were made, unless they were given.
    folder: Option<PathBuf>,
    /// Time it took to make them.
    making: Duration,
}

impl Data {
    fn ready(args: &DemoArgs, threads: usize) -> crate::Result<Self> {
        let started = Instant::now();
        if let Some(pattern) = &args.shards {
            return Ok(Self { list: ShardList::parse(pattern)?, folder: None, making: Duration::ZERO });
        }
        let paths = make(&args.dir, args.samples, threads)?;
        Ok(Self { list: recipe::list_of(&paths)?, folder: Some(args.dir.clone()), making: started.elapsed() })
    }
}

/// Makes the data set, with a progress bar, or finds it.
pub(super) fn make(folder: &Path, samples: usize, threads: usize) -> crate::Result<Vec<PathBuf>> {
    let progress = Progress::new("making photos", samples);
    make_demo_shards(folder, samples, SHARDS.min(samples), 0, threads, &|done, of| progress.set(done, of))
}

fn loader(list: &ShardList, batch_size: usize, threads: usize) -> crate::Result<Loader> {
    let with_labels = shards::have_field(list.paths(), "cls")?;
    let options = recipe::dataset_options(with_labels, Backend::Auto, ShardOptions::default(), Some(folders::cache()))?;
    let indexing = Progress::new("indexing shards", list.len());
    let dataset = Dataset::open(list, options, &|done, of| indexing.set(done, of))?;
    indexing.finish();
    let samples = dataset.len().unwrap_or(usize::MAX);
    if samples == 0 {
        return Err(Error::new(ErrorKind::NotFound, "the shards hold no samples"));
    }
    Loader::builder(dataset)
        .batch_size(batch_size.min(samples))
        .shuffle(Shuffle::Global)
        .threads(threads)
        .on_error(OnError::Skip, ErrorBudget::Unlimited)
        .build()
}

/// Two epochs, with a progress bar.
fn load(loader: &Loader) -> crate::Result<Taken> {
    let images = loader.samples_per_epoch().unwrap_or(0) * EPOCHS as usize;
    let progress = Progress::new("loading images", images);
    let shown = Cell::new(0);
    consumer::take(loader, Until::Epochs(EPOCHS), &|done| {
        shown.set(done);
        progress.set(usize::try_from(shown.get()).unwrap_or(usize::MAX), images);
    })
}

/// The document, without what all documents have.
#[derive(Debug, Serialize)]
struct Report<'a> {
    images_per_s: f64,
    time_to_first_batch_s: f64,
    bottleneck: &'static str,
    advice: &'static str,
    stages: Stages<'a>,
    images: u64,
    epochs: u64,
    batch_size: usize,
    threads: usize,
    cpu_s_per_1000_images: Option<f64>,
    shards: usize,
    folder: Option<PathBuf>,
    making_s: f64,
}

impl<'a> Report<'a> {
    fn new(data: &Data, loader: &Loader, taken: &'a Taken) -> Self {
        Self {
            images_per_s: taken.images_per_s(),
            time_to_first_batch_s: taken.first_batch.as_secs_f64(),
            bottleneck: taken.stats.bottleneck.as_str(),
            advice: advice(taken.stats.bottleneck),
            stages: Stages(&taken.stats),
            images: taken.images,
            epochs: taken.epochs,
            batch_size: loader.batch_size(),
            threads: loader.threads().0,
            cpu_s_per_1000_images: taken.cpu_s_per_1000(),
            shards: data.list.len(),
            folder: data.folder.clone(),
            making_s: data.making.as_secs_f64(),
        }
    }

    fn print(&self, output: &mut Output) -> io::Result<()> {
        if let Some(folder) = &self.folder {
            writeln!(output, "data        {} shards of generated photos in {}", self.shards, folder.display())?;
        } else {
            writeln!(output, "data        {} shards", self.shards)?;
        }
        let (images, epochs, batch_size) = (self.images, self.epochs, self.batch_size);
        writeln!(output, "loaded      {images} images in {epochs} epochs, batches of {batch_size}, shuffled")?;
        writeln!(output, "images/s    {} on {} decode threads", rate_text(self.images_per_s), self.threads)?;
        writeln!(output, "first batch {:.3} s", self.time_to_first_batch_s)?;
        writeln!(output, "bottleneck  {}\n", self.bottleneck)?;
        self.stages.print(output)?;
        writeln!(output, "\n{}", sentence(self.advice))
    }
}

/// With a capital letter and a full stop.
fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", characters.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_printed_as_a_sentence() {
        assert_eq!(sentence("more cores help"), "More cores help.");
    }
}
