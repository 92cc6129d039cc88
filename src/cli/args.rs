//! What may be typed: commands, arguments, help. It holds text and numbers as they were typed; what they mean is for
//! the commands to say.

mod bench;
mod convert;
mod stats;
pub(super) mod storage;
mod verify;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};

pub(super) use self::bench::{BenchCommand, DecodeBenchArgs, DecoderChoice, LoaderBenchArgs};
use self::convert::CONVERT_EXAMPLES;
pub(super) use self::convert::{ConvertArgs, DuplicatesChoice, FormatChoice, NamesChoice, SideChoice};
use self::stats::STATS_EXAMPLES;
pub(super) use self::stats::StatsArgs;
use self::verify::VERIFY_EXAMPLES;
pub(super) use self::verify::VerifyArgs;

pub(super) use storage::{CompareArgs, StorageBenchArgs};

/// Threads that may be asked for.
const THREADS_MAX: u64 = 1024;

/// Photos that may be asked for.
const SAMPLES_MAX: u64 = 10_000_000;

/// Images of a batch that may be asked for.
const BATCH_SIZE_MAX: u64 = 1 << 20;

/// Seconds that a run may be asked to take.
const SECONDS_MAX: f64 = 86_400.0;

/// Look into tar shards, and measure how fast they become batches.
#[derive(Debug, Parser)]
#[command(name = "brimful", version, max_term_width = 100, after_help = EXAMPLES)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
}

const EXAMPLES: &str = "\
Shards are given as paths, folders, globs or brace patterns; quote patterns so that the shell
leaves them alone.

Examples:
  brimful demo                                     a first look, without any data
  brimful ls 'train-{000000..000146}.tar'          one line a sample
  brimful cat train-000000.tar 000017.jpg > a.jpg  one field of one sample
  brimful convert photos/ shards/                  shards of a folder of pictures
  brimful bench decode                             images/s of each JPEG decoder
  brimful bench loader                             images/s of the loader, and what limits it
  brimful doctor                                   what this build and this machine have

Exit codes: 0 done, 1 finished but some inputs were bad, 2 failed or wrong usage.";

/// The commands.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Make a small data set of generated photos, load it, and say what limits the speed
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoArgs),
    /// List the samples of shards: keys, fields, sizes
    #[command(after_help = LS_EXAMPLES)]
    Ls(LsArgs),
    /// Build the indexes of shards, which loaders then find in the cache
    #[command(after_help = INDEX_EXAMPLES)]
    Index(IndexArgs),
    /// Print one field of one sample
    #[command(after_help = CAT_EXAMPLES)]
    Cat(CatArgs),
    /// Show how large the fields of shards are, and how many samples each class has
    #[command(after_help = STATS_EXAMPLES)]
    Stats(StatsArgs),
    /// Say what is wrong with shards, and write repaired ones on request
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(VerifyArgs),
    /// Make shards of pictures in folders, zip archives and lists, or of other shards
    #[command(after_help = CONVERT_EXAMPLES)]
    Convert(ConvertArgs),
    /// Measure the stages of a loader on this machine
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Show what this build contains and what this machine offers
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
}

/// How shards are read.
#[derive(Debug, Clone, Args)]
pub(super) struct ReadArgs {
    /// Pass over damage to the next good header instead of stopping at it
    #[arg(long)]
    pub(super) resync: bool,
    /// How bytes are read; auto maps files on local disks and reads those on network mounts
    #[arg(long, value_enum, default_value_t = Io::Auto)]
    pub(super) io: Io,
}

/// How bytes come out of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Io {
    Auto,
    Mmap,
    Read,
    /// Past the page cache
    Direct,
    /// Past the page cache by io_uring
    Uring,
}

/// Where a JSON document goes.
#[derive(Debug, Clone, Args)]
pub(super) struct DocumentArgs {
    /// Print JSON instead of a table
    #[arg(long)]
    pub(super) json: bool,
    /// Write the JSON document to FILE as well
    #[arg(long, value_name = "FILE", value_parser = file())]
    pub(super) out: Option<PathBuf>,
}

const DEMO_EXAMPLES: &str = "\
Examples:
  brimful demo
  brimful demo --samples 10000 --threads 8
  brimful demo --shards 'train-{000000..000146}.tar'   your own data instead

The data set stays in its folder and is used again.";

#[derive(Debug, Args)]
pub(super) struct DemoArgs {
    /// Load these shards instead of making some: a path, folder, glob or brace pattern
    #[arg(long, value_name = "PATTERN", conflicts_with_all = ["samples", "dir"])]
    pub(super) shards: Option<String>,
    /// Photos to make
    #[arg(long, value_name = "N", default_value = "3000", value_parser = count(SAMPLES_MAX))]
    pub(super) samples: usize,
    /// Folder for the data set
    #[arg(long, value_name = "FOLDER", default_value = "target/demo")]
    pub(super) dir: PathBuf,
    /// Images of a batch
    #[arg(long, value_name = "N", default_value = "256", value_parser = count(BATCH_SIZE_MAX))]
    pub(super) batch_size: usize,
    /// Decode threads, all cores unless given
    #[arg(long, value_name = "N", value_parser = threads())]
    pub(super) threads: Option<usize>,
    #[command(flatten)]
    pub(super) document: DocumentArgs,
}

const LS_EXAMPLES: &str = "\
Examples:
  brimful ls train-000000.tar
  brimful ls -l 'train-{000000..000146}.tar'
  brimful ls --json data/ | jq .key
  brimful ls --lacks cls --key 'n01*' data/

With --json each line is {\"shard\", \"key\", \"fields\": {EXT: {\"offset\", \"size\"}}}.
What stands before damage is listed, the damage is told on standard error, and the exit code is 1.";

#[derive(Debug, Args)]
pub(super) struct LsArgs {
    /// Shards: paths, folders, globs or brace patterns
    #[arg(required = true, value_name = "SHARDS")]
    pub(super) shards: Vec<OsString>,
    /// Also show the shard and the offsets of each sample
    #[arg(short, long)]
    pub(super) long: bool,
    /// Print one JSON object a line
    #[arg(long, conflicts_with = "long")]
    pub(super) json: bool,
    /// Only samples whose key matches: * for anything, ? for one character, [a-z] for one of several
    #[arg(short, long, value_name = "GLOB")]
    pub(super) key: Option<String>,
    /// Only samples with this field; of alternatives such as jpg;png any
    #[arg(long, value_name = "EXT")]
    pub(super) has: Vec<String>,
    /// Only samples without this field
    #[arg(long, value_name = "EXT")]
    pub(super) lacks: Vec<String>,
    /// Only samples with a field of at least this many bytes: 500kB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(super) larger: Option<u64>,
    /// At most so many samples
    #[arg(short = 'n', long, value_name = "N")]
    pub(super) limit: Option<u64>,
    #[command(flatten)]
    pub(super) read: ReadArgs,
}

const INDEX_EXAMPLES: &str = "\
Examples:
  brimful index 'train-{000000..000146}.tar'
  brimful index --format beside data/                NAME.tar.index beside NAME.tar, which travels with it
  brimful index --format dali --out-dir idx/ data/   for NVIDIA DALI

Indexes are also kept in $XDG_CACHE_HOME/brimful or ~/.cache/brimful; a shard that changed is indexed again.";

#[derive(Debug, Args)]
pub(super) struct IndexArgs {
    /// Shards: paths, folders, globs or brace patterns
    #[arg(required = true, value_name = "SHARDS")]
    pub(super) shards: Vec<OsString>,
    /// Where indexes go, and for whom
    #[arg(long, value_enum, default_value_t = IndexFormat::Cache)]
    pub(super) format: IndexFormat,
    /// Short for --format dali
    #[arg(long, conflicts_with = "format")]
    pub(super) dali: bool,
    /// Folder for DALI's files
    #[arg(long, value_name = "FOLDER")]
    pub(super) out_dir: Option<PathBuf>,
    /// Folder that keeps the indexes
    #[arg(long, value_name = "FOLDER")]
    pub(super) cache_dir: Option<PathBuf>,
    /// Threads, all cores unless given
    #[arg(long, value_name = "N", value_parser = threads())]
    pub(super) threads: Option<usize>,
    #[command(flatten)]
    pub(super) document: DocumentArgs,
    #[command(flatten)]
    pub(super) read: ReadArgs,
}

/// Where indexes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum IndexFormat {
    /// Into the cache, where loaders find them
    Cache,
    /// And beside each shard, as NAME.tar.index
    Beside,
    /// And beside each shard for NVIDIA DALI, as NAME.idx
    Dali,
}

impl IndexArgs {
    /// The format that is asked for.
    pub(super) fn format(&self) -> IndexFormat {
        if self.dali { IndexFormat::Dali } else { self.format }
    }
}

const CAT_EXAMPLES: &str = "\
Examples:
  brimful cat train-000000.tar 000017.cls
  brimful cat train-000000.tar --field jpg 000017 > 000017.jpg
  brimful cat train-000000.tar --list-fields 000017";

#[derive(Debug, Args)]
pub(super) struct CatArgs {
    /// The shard
    #[arg(value_name = "SHARD")]
    pub(super) shard: PathBuf,
    /// The sample's key, with a dot and the field's extension unless --field is given
    #[arg(value_name = "KEY[.EXT]")]
    pub(super) key: OsString,
    /// The field's extension; of alternatives such as jpg;png the first that exists
    #[arg(short, long, value_name = "EXT")]
    pub(super) field: Option<String>,
    /// List the sample's fields and their sizes instead
    #[arg(short, long, conflicts_with = "field")]
    pub(super) list_fields: bool,
    #[command(flatten)]
    pub(super) read: ReadArgs,
}

const DOCTOR_EXAMPLES: &str = "\
Examples:
  brimful doctor
  brimful doctor --json --path /data --path /scratch";

#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// A path whose file system is looked at too; may be given several times
    #[arg(long = "path", value_name = "PATH")]
    pub(super) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) document: DocumentArgs,
}

/// A path of a file that is written.
fn file() -> impl clap::builder::TypedValueParser<Value = PathBuf> {
    use clap::builder::{PathBufValueParser, TypedValueParser};
    PathBufValueParser::new().try_map(|path| match path.as_os_str() == "-" {
        true => Err("it is a file's name; --json prints the document on standard output"),
        false => Ok(path),
    })
}

fn threads() -> impl clap::builder::TypedValueParser<Value = usize> {
    count(THREADS_MAX)
}

/// A number from 1 to `max`.
fn count(max: u64) -> impl clap::builder::TypedValueParser<Value = usize> {
    RangedU64ValueParser::<usize>::new().range(1..=max)
}

/// A number of bytes with or without a unit: kB, MB, GB, TB of powers of 1,000, KiB, MiB, GiB, TiB of powers of 1,024.
fn size(text: &str) -> Result<u64, String> {
    let digits = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1_000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "t" | "tb" => 1_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        _ => return Err(format!("'{unit}' is no unit of bytes: write 500MB or 2GiB")),
    };
    let bytes = number.parse::<f64>().map_err(|_| format!("'{number}' is no number"))? * factor as f64;
    if (1.0..9e18).contains(&bytes) { Ok(bytes as u64) } else { Err("it must be at least one byte".into()) }
}

/// A time in seconds that is not zero.
fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("'{text}' is not a number"))?;
    if seconds > 0.0 && seconds <= SECONDS_MAX {
        Ok(seconds)
    } else {
        Err(format!("it must be above 0 and at most {SECONDS_MAX}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_thread_count_of_zero_is_wrong_usage() {
        assert!(Arguments::try_parse_from(["brimful", "index", "--threads", "0", "a.tar"]).is_err());
        assert!(Arguments::try_parse_from(["brimful", "index", "--threads", "2", "a.tar"]).is_ok());
    }

    #[test]
    fn sizes_are_read() {
        let check = |text: &str, expected: Option<u64>| assert_eq!(size(text).ok(), expected, "{text}");
        check("1GB", Some(1_000_000_000));
        check("1.5 MiB", Some(3 << 19));
        check("700", Some(700));
        for text in ["", "GB", "0", "-1", "1XB", "nan", "1e400"] {
            check(text, None);
        }
    }

    #[test]
    fn a_dash_is_no_file_to_write() {
        assert!(Arguments::try_parse_from(["brimful", "doctor", "--out", "-"]).is_err());
        assert!(Arguments::try_parse_from(["brimful", "doctor", "--out", "./-"]).is_ok());
    }

    #[test]
    fn seconds_are_a_positive_number() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        for text in ["0", "-1", "nan", "inf", "x", ""] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
