//! What may be typed behind `brimful bench storage` and `brimful bench compare`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{DocumentArgs, count, file, seconds};
use crate::storage::{Cache, DEPTH_MAX, Method, Pattern, Sizes, THREADS_MAX, parse_bytes};

/// Bytes of a request that may be asked for.
const BLOCK_BYTES: std::ops::RangeInclusive<u64> = 512..=64 << 20;

/// Runs of a case that may be asked for.
const RUNS_MAX: u64 = 1000;

pub(in crate::cli) const STORAGE_EXAMPLES: &str = "\
Examples:
  brimful bench storage 'train-{000000..000146}.tar'      your shards, all methods, cold and warm
  brimful bench storage --make 20GB /mnt/disk             test shards, removed afterwards
  brimful bench storage --methods pread --threads 4 --blocks 256KiB --cache cold data/
  brimful bench storage data/ --html storage.html --out storage.json

Several threads, blocks or depths are swept, one of them at a time, cold where anything is. Cold: the
shards' pages are evicted first, and it is told how many were still cached; warm: they are read once
before. What is found to suit the storage is kept for loaders with io=\"auto\", unless --no-profile is
given.";

pub(in crate::cli) const COMPARE_EXAMPLES: &str = "\
Examples:
  brimful bench compare before.json after.json

Documents are those of --out. A difference is called one where the 95 % interval of the ratio,
from the runs of both, leaves 1 out.";

#[derive(Debug, Args)]
pub(in crate::cli) struct StorageBenchArgs {
    /// Shards: paths, folders, globs or brace patterns; with --make one folder to make test shards in
    #[arg(required = true, value_name = "PATH")]
    pub(in crate::cli) paths: Vec<OsString>,
    /// Make test shards of random bytes first, this much in all, and remove them afterwards
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(in crate::cli) make: Option<u64>,
    /// Sizes of made samples: 115kB, a range 50kB-200kB, or median and deviation of the logarithm 100kB~0.5
    #[arg(long, value_name = "SIZES", default_value = "101kB~0.5", requires = "make", value_parser = sizes)]
    pub(in crate::cli) sizes: Sizes,
    /// Bytes of a made shard
    #[arg(long, value_name = "BYTES", default_value = "256MB", requires = "make", value_parser = bytes)]
    pub(in crate::cli) shard_bytes: u64,
    /// How bytes are read; all that this machine can unless given
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = word(Method::ALL, Method::as_str))]
    pub(in crate::cli) methods: Vec<Method>,
    /// In which order: sequential, interleaved, shuffled, members (samples at random), blocks (at random)
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "sequential,members",
          value_parser = word(Pattern::ALL, Pattern::as_str))]
    pub(in crate::cli) patterns: Vec<Pattern>,
    /// States of the page cache
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "cold,warm",
          value_parser = word([Cache::Cold, Cache::Warm], Cache::as_str))]
    pub(in crate::cli) cache: Vec<Cache>,
    /// Reading threads
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,4,8,16",
          value_parser = count(THREADS_MAX as u64))]
    pub(in crate::cli) threads: Vec<usize>,
    /// Bytes of a request
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "16KiB,64KiB,256KiB,1MiB",
          value_parser = block)]
    pub(in crate::cli) blocks: Vec<u64>,
    /// Requests under way in each thread, for io_uring
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,4,16,64",
          value_parser = count(DEPTH_MAX as u64))]
    pub(in crate::cli) depths: Vec<usize>,
    /// What else is measured by the best method: members parsed, images decoded, the whole loader
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    pub(in crate::cli) stages: Vec<StageChoice>,
    /// Seconds of each run, at most; a cold run ends with its data
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    pub(in crate::cli) duration: f64,
    /// Seconds of each run before anything is counted
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(in crate::cli) warm_up: Option<f64>,
    /// Runs of each case, in turn
    #[arg(long, value_name = "N", default_value = "3", value_parser = count(RUNS_MAX))]
    pub(in crate::cli) runs: usize,
    /// Drop the whole system's caches before each round too, as the administrator may
    #[arg(long)]
    pub(in crate::cli) drop_caches: bool,
    /// A document of `brimful tune` whose rate is what one GPU here asks for; found in the cache folder unless given
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) tuned: Option<PathBuf>,
    /// Do not keep what is found for loaders with io="auto"
    #[arg(long)]
    pub(in crate::cli) no_profile: bool,
    /// Folder that keeps profiles of storage
    #[arg(long, value_name = "FOLDER")]
    pub(in crate::cli) profile_dir: Option<PathBuf>,
    /// Write a page with charts to FILE
    #[arg(long, value_name = "FILE", value_parser = file())]
    pub(in crate::cli) html: Option<PathBuf>,
    #[command(flatten)]
    pub(in crate::cli) document: DocumentArgs,
}

/// What may stand behind reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum StageChoice {
    /// Headers are parsed and members taken
    Parse,
    /// Images of the members are decoded
    Decode,
    /// The whole loader
    Loader,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct CompareArgs {
    /// The document that others are measured against
    #[arg(value_name = "A")]
    pub(in crate::cli) before: PathBuf,
    /// The document that is compared with it
    #[arg(value_name = "B")]
    pub(in crate::cli) after: PathBuf,
    #[command(flatten)]
    pub(in crate::cli) document: DocumentArgs,
}

/// One of `all`, by its word.
fn word<T: Copy + Send + Sync + 'static, const N: usize>(
    all: [T; N],
    word_of: fn(T) -> &'static str,
) -> impl clap::builder::TypedValueParser<Value = T> {
    use clap::builder::{PossibleValuesParser, TypedValueParser};
    let words = all.map(word_of);
    PossibleValuesParser::new(words).try_map(move |typed| {
        let found = all.into_iter().find(|one| word_of(*one) == typed);
        found.ok_or("it is none of them")
    })
}

fn bytes(text: &str) -> Result<u64, String> {
    match parse_bytes(text) {
        Ok(0) => Err("it must be above 0".into()),
        Ok(bytes) => Ok(bytes),
        Err(error) => Err(format!("{}; {}", error.message(), error.hint().unwrap_or_default())),
    }
}

fn block(text: &str) -> Result<u64, String> {
    let bytes = bytes(text)?;
    match BLOCK_BYTES.contains(&bytes) {
        true => Ok(bytes),
        false => Err(format!("it must be between {} and {} bytes", BLOCK_BYTES.start(), BLOCK_BYTES.end())),
    }
}

fn sizes(text: &str) -> Result<Sizes, String> {
    text.parse().map_err(|error: crate::Error| format!("{}; {}", error.message(), error.hint().unwrap_or_default()))
}
