//! What may be typed after `bench`, but for storage.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::storage::{self, CompareArgs, StorageBenchArgs};
use super::{BATCH_SIZE_MAX, DocumentArgs, Io, SAMPLES_MAX, count, seconds, threads};
use crate::device::Device;

/// What can be measured.
#[derive(Debug, Subcommand)]
pub(in crate::cli) enum BenchCommand {
    /// Compare the JPEG decoders of this build on the same files and crops
    #[command(after_help = BENCH_DECODE_EXAMPLES)]
    Decode(DecodeBenchArgs),
    /// Measure the loader, and its threads without it
    #[command(after_help = BENCH_LOADER_EXAMPLES)]
    Loader(LoaderBenchArgs),
    /// Measure how fast a storage delivers shards, and how many GPUs that feeds
    #[command(after_help = storage::STORAGE_EXAMPLES)]
    Storage(Box<StorageBenchArgs>),
    /// Compare two documents of a bench: which figures differ by more than chance
    #[command(after_help = storage::COMPARE_EXAMPLES)]
    Compare(CompareArgs),
}

const BENCH_DECODE_EXAMPLES: &str = "\
Examples:
  brimful bench decode                             generated photos, all cores
  brimful bench decode --dir photos/ --threads 1
  brimful bench decode --shards 'train-*.tar' --json --out decode.json

Rows say what is decoded: all of the image (full), or what a random crop needs of it (region).";

#[derive(Debug, Args)]
pub(in crate::cli) struct DecodeBenchArgs {
    /// Folder with JPEG files, searched in depth
    #[arg(long, value_name = "FOLDER", conflicts_with = "shards")]
    pub(in crate::cli) dir: Option<PathBuf>,
    /// Shards with JPEG files: a path, folder, glob or brace pattern
    #[arg(long, value_name = "PATTERN")]
    pub(in crate::cli) shards: Option<String>,
    /// Files to decode at most
    #[arg(long, value_name = "N", default_value = "256", value_parser = count(1_000_000))]
    pub(in crate::cli) images: usize,
    /// Threads, all cores unless given
    #[arg(long, value_name = "N", value_parser = threads())]
    pub(in crate::cli) threads: Option<usize>,
    /// Side of the resized crop in pixels
    #[arg(long, value_name = "PIXELS", default_value = "224", value_parser = clap::value_parser!(u32).range(1..=8192))]
    pub(in crate::cli) size: u32,
    /// Seconds of each run of a row
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    pub(in crate::cli) seconds: f64,
    /// Runs of each row
    #[arg(long, value_name = "N", default_value = "5", value_parser = count(1000))]
    pub(in crate::cli) runs: usize,
    #[command(flatten)]
    pub(in crate::cli) document: DocumentArgs,
}

const BENCH_LOADER_EXAMPLES: &str = "\
Examples:
  brimful bench loader                             generated photos, all cores
  brimful bench loader --shards 'train-{000000..000146}.tar' --batch-size 512
  brimful bench loader --threads 8 --epochs 2 --json --out loader.json

Images go through RandomResizedCrop(224), a flip, and normalising to floats. `no loader` is the
same work on the same threads without queues, batches and order (and without the normalising
where a GPU does that); pipeline efficiency is the
loader's share of it.";

/// Who decodes JPEG.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum DecoderChoice {
    /// Threads; for a GPU also its JPEG engines, as measured rates decide
    Auto,
    /// Threads alone
    Cpu,
    /// The GPU's JPEG engines for all that they take
    Gpu,
    /// The baseline decoder on threads
    Baseline,
    /// libjpeg-turbo on threads
    Turbo,
    /// zune-jpeg on threads
    Zune,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct LoaderBenchArgs {
    /// Shards to load: a path, folder, glob or brace pattern; generated photos unless given
    #[arg(long, value_name = "PATTERN", conflicts_with = "samples")]
    pub(in crate::cli) shards: Option<String>,
    /// Photos to make where no shards are given
    #[arg(long, value_name = "N", default_value = "3000", value_parser = count(SAMPLES_MAX))]
    pub(in crate::cli) samples: usize,
    /// Images of a batch
    #[arg(long, value_name = "N", default_value = "256", value_parser = count(BATCH_SIZE_MAX))]
    pub(in crate::cli) batch_size: usize,
    /// Decode threads, all cores unless given
    #[arg(long, value_name = "N", value_parser = threads())]
    pub(in crate::cli) threads: Option<usize>,
    /// Who decodes JPEG
    #[arg(long, value_enum, default_value_t = DecoderChoice::Auto)]
    pub(in crate::cli) decoder: DecoderChoice,
    /// How bytes are read; auto does as `bench storage` found best, or maps files on local disks and reads others
    #[arg(long, value_enum, default_value_t = Io::Auto)]
    pub(in crate::cli) io: Io,
    /// Where batches go: cpu, cuda (the first GPU) or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub(in crate::cli) device: Device,
    /// Train this model on the batches meanwhile: only where brimful came with pip
    #[arg(long, value_name = "MODEL")]
    pub(in crate::cli) train: Option<String>,
    /// Seconds of each run
    #[arg(long, value_name = "S", default_value = "3", value_parser = seconds)]
    pub(in crate::cli) seconds: f64,
    /// Whole epochs of each run of the loader, instead of a time
    #[arg(long, value_name = "N", value_parser = count(1_000_000))]
    pub(in crate::cli) epochs: Option<usize>,
    /// Runs
    #[arg(long, value_name = "N", default_value = "5", value_parser = count(1000))]
    pub(in crate::cli) runs: usize,
    #[command(flatten)]
    pub(in crate::cli) document: DocumentArgs,
}
