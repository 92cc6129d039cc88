//! What may be typed after `stats`.

use std::ffi::OsString;

use clap::Args;

use super::{DocumentArgs, ReadArgs, threads};

pub(super) const STATS_EXAMPLES: &str = "\
Examples:
  brimful stats 'train-{000000..000146}.tar'
  brimful stats --json data/ | jq .classes";

#[derive(Debug, Args)]
pub(in crate::cli) struct StatsArgs {
    /// Shards: paths, folders, globs or brace patterns
    #[arg(required = true, value_name = "SHARDS")]
    pub(in crate::cli) shards: Vec<OsString>,
    /// The field that names the class
    #[arg(long, value_name = "EXT", default_value = "cls")]
    pub(in crate::cli) class_field: String,
    /// Threads, all cores unless given
    #[arg(long, value_name = "N", value_parser = threads())]
    pub(in crate::cli) threads: Option<usize>,
    #[command(flatten)]
    pub(in crate::cli) document: DocumentArgs,
    #[command(flatten)]
    pub(in crate::cli) read: ReadArgs,
}
