//! What may be typed after `verify`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::convert::DuplicatesChoice;
use super::{DocumentArgs, threads};

pub(super) const VERIFY_EXAMPLES: &str = "\
Examples:
  brimful verify 'train-{000000..000146}.tar'      headers only: damage, grouping, names, indexes
  brimful verify --hash --decode out/              every byte, and every image decoded whole
  brimful verify --json data/ | jq 'select(.kind).kind'
  brimful verify --fix repaired/ --duplicates drop damaged.tar

With --json every finding is a line {\"shard\", \"kind\", \"offset\", \"key\", \"message\"}, and the last line sums them up;
otherwise the first 20 of a kind and shard are shown. Nothing found is exit code 0, anything 1,
and 2 where no shard has a sample.";

#[derive(Debug, Args)]
pub(in crate::cli) struct VerifyArgs {
    /// Shards: paths, folders, globs or brace patterns
    #[arg(required = true, value_name = "SHARDS")]
    pub(in crate::cli) shards: Vec<OsString>,
    /// Compare every byte with the hashes in the dataset.json beside the shards
    #[arg(long)]
    pub(in crate::cli) hash: bool,
    /// Decode every image whole, and count what images there are
    #[arg(long)]
    pub(in crate::cli) decode: bool,
    /// Fields that each sample must have, such as 'jpg;png,cls'; what most samples have, unless given
    #[arg(long, value_name = "FIELDS", value_delimiter = ',')]
    pub(in crate::cli) fields: Vec<String>,
    /// Write repaired shards into this folder: regrouped, without damaged samples, which are listed
    #[arg(long, value_name = "OUT")]
    pub(in crate::cli) fix: Option<PathBuf>,
    /// What --fix does with a sample whose key an earlier one of its shard has: rename or drop
    #[arg(long, value_enum, default_value_t = DuplicatesChoice::Rename, requires = "fix")]
    pub(in crate::cli) duplicates: DuplicatesChoice,
    /// Threads, all cores unless given
    #[arg(long, value_name = "N", value_parser = threads())]
    pub(in crate::cli) threads: Option<usize>,
    #[command(flatten)]
    pub(in crate::cli) document: DocumentArgs,
}
