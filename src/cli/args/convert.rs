//! What may be typed after `convert`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{DocumentArgs, size, threads};
use crate::convert::{ErrorBudget, Part};

pub(super) const CONVERT_EXAMPLES: &str = "\
Examples:
  brimful convert imagenet/train out/ --shuffle 0
  brimful convert photos/ out/ --samples-per-shard 5000 --val 0.1
  brimful convert photos/ out/ --part 3/16         one of 16 jobs, then: brimful convert --merge out/

  brimful convert photos/ out/ --resize 512 --quality 90 --apply-orientation
  brimful convert train.csv out/ --label-column species
  brimful convert 'old/*.tar' out/ --shuffle 1     cut, merge and shuffle shards anew
  brimful convert 'data/train-*.parquet' out/      a data set of the Hugging Face Hub

SRC is a folder of pictures with a folder for each class, a zip archive of the same, a list (.csv, .tsv,
.jsonl: a path and a label for each picture, further columns become the field json), Parquet files with a
column of pictures, or shards: a folder of them, or a pattern. It is never written to. The same source and options make the same bytes, on any
number of threads and in any number of parts. Without an option that asks for it no picture changes.";

#[derive(Debug, Args)]
pub(in crate::cli) struct ConvertArgs {
    /// What is converted; with --merge, the destination of all parts
    #[arg(value_name = "SRC")]
    pub(in crate::cli) source: PathBuf,
    /// The folder for the shards
    #[arg(value_name = "DST", required_unless_present = "merge", conflicts_with = "merge")]
    pub(in crate::cli) destination: Option<PathBuf>,
    /// Samples in a shard
    #[arg(long, value_name = "N", conflicts_with = "shard_size", value_parser = clap::value_parser!(u64).range(1..))]
    pub(in crate::cli) samples_per_shard: Option<u64>,
    /// Bytes in a shard at most, as the samples are in the source: 500MB, 2GiB
    #[arg(long, value_name = "SIZE", default_value = "1GB", value_parser = size)]
    pub(in crate::cli) shard_size: u64,
    /// Shuffle all samples by this seed
    #[arg(long, value_name = "SEED")]
    pub(in crate::cli) shuffle: Option<u64>,
    /// Order all samples by their keys
    #[arg(long, conflicts_with = "shuffle")]
    pub(in crate::cli) sort: bool,
    /// Share of the samples that goes into a split `val`, such as 0.1
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub(in crate::cli) val: f64,
    /// Which samples go into `val`
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub(in crate::cli) split_seed: u64,
    /// What happens to names that are absolute, climb with .., or have control characters or bytes that are not UTF-8
    #[arg(long, value_enum, default_value_t = NamesChoice::Refuse)]
    pub(in crate::cli) names: NamesChoice,
    /// What happens to a sample whose key an earlier one has
    #[arg(long, value_enum, default_value_t = DuplicatesChoice::Refuse)]
    pub(in crate::cli) duplicates: DuplicatesChoice,
    /// Make pictures whose longer side is longer than MAX pixels that small
    #[arg(long, value_name = "MAX", value_parser = clap::value_parser!(u32).range(1..=65535))]
    pub(in crate::cli) resize: Option<u32>,
    /// Which side --resize measures
    #[arg(long, value_enum, default_value_t = SideChoice::Longer, requires = "resize")]
    pub(in crate::cli) resize_by: SideChoice,
    /// Quality of JPEG files that are encoded anew [default: 90]
    #[arg(long, value_name = "1-100", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(in crate::cli) quality: Option<u8>,
    /// What pictures of other formats become; webp is without loss
    #[arg(long, value_enum, default_value_t = FormatChoice::Keep)]
    pub(in crate::cli) format: FormatChoice,
    /// Restart markers in baseline JPEG files, every so many rows of MCUs, without loss
    #[arg(long, value_name = "ROWS", num_args = 0..=1, default_missing_value = "1", value_parser = clap::value_parser!(u16).range(1..))]
    pub(in crate::cli) restart_rows: Option<u16>,
    /// Take EXIF, comments, colour profiles and what stands behind the picture out of files
    #[arg(long)]
    pub(in crate::cli) strip_metadata: bool,
    /// Turn pictures upright as their EXIF says, without loss where that can be
    #[arg(long)]
    pub(in crate::cli) apply_orientation: bool,
    /// Fields whose pictures these options change, such as jpg,depth.png; unless given, the one picture whose extension is its
    /// format alone, so that masks (seg.png) stay as they are
    #[arg(long, value_name = "FIELDS", value_delimiter = ',')]
    pub(in crate::cli) fields: Vec<String>,
    /// The column of pictures in Parquet files
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) image_column: Option<String>,
    /// The column of paths in a list
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) path_column: Option<String>,
    /// The column of labels in a list or in Parquet files
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) label_column: Option<String>,
    /// The folder that relative paths in a list begin at; the list's own, unless given
    #[arg(long, value_name = "FOLDER")]
    pub(in crate::cli) root: Option<PathBuf>,
    /// Bad samples that may be left out and listed: a number, or a share such as 0.1%
    #[arg(long, value_name = "N", default_value = "0", value_parser = budget)]
    pub(in crate::cli) max_errors: ErrorBudget,
    /// Go on with a run of the same conversion that was ended
    #[arg(long)]
    pub(in crate::cli) resume: bool,
    /// Plan and tell, but write nothing
    #[arg(long)]
    pub(in crate::cli) dry_run: bool,
    /// Make the shards of part I of N only; parts may run anywhere, in any order
    #[arg(long, value_name = "I/N", value_parser = part)]
    pub(in crate::cli) part: Option<Part>,
    /// Check that all parts are there and write the description of the data set
    #[arg(long, conflicts_with_all = ["part", "dry_run", "resume"])]
    pub(in crate::cli) merge: bool,
    /// Threads, all cores unless given
    #[arg(long, value_name = "N", value_parser = threads())]
    pub(in crate::cli) threads: Option<usize>,
    #[command(flatten)]
    pub(in crate::cli) document: DocumentArgs,
}

/// Which side of a picture is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum SideChoice {
    /// Both sides are at most so long
    Longer,
    /// The shorter one is
    Shorter,
}

/// What pictures become.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum FormatChoice {
    /// Each keeps its format
    Keep,
    Jpg,
    Webp,
}

/// What happens to names that are no fit keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum NamesChoice {
    /// The sample is bad
    Refuse,
    /// What does not fit is written as % and two hexadecimal digits
    Escape,
}

/// What happens to a sample whose key an earlier one has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum DuplicatesChoice {
    /// Nothing is converted
    Refuse,
    /// It gets a number behind its key
    Rename,
    /// It is left out and listed
    Drop,
}

/// A number, or a share in per cent.
fn budget(text: &str) -> Result<ErrorBudget, String> {
    match text.strip_suffix('%') {
        Some(share) => {
            let share: f64 = share.trim().parse().map_err(|_| format!("'{text}' is no share"))?;
            if (0.0..=100.0).contains(&share) {
                Ok(ErrorBudget::Share(share / 100.0))
            } else {
                Err("a share is from 0% to 100%".into())
            }
        }
        None => text
            .parse()
            .map(ErrorBudget::Count)
            .map_err(|_| format!("'{text}' is no number of samples, nor a share such as 0.1%")),
    }
}

/// `I/N`.
fn part(text: &str) -> Result<Part, String> {
    let wrong = || format!("'{text}' is no part: write 3/16 for the third of 16");
    let (number, of) = text.split_once('/').ok_or_else(wrong)?;
    let (number, of) = (number.parse().map_err(|_| wrong())?, of.parse().map_err(|_| wrong())?);
    if (1..=of).contains(&number) { Ok(Part { number, of }) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_parts_are_read() {
        assert_eq!(budget("12"), Ok(ErrorBudget::Count(12)));
        assert_eq!(budget("0.5%"), Ok(ErrorBudget::Share(0.005)));
        assert!(["", "-1", "101%", "x%"].iter().all(|text| budget(text).is_err()));
        assert_eq!(part("3/16"), Ok(Part { number: 3, of: 16 }));
        assert!(["", "3", "0/4", "5/4", "a/b", "1/0"].iter().all(|text| part(text).is_err()));
    }
}
