//! Other layouts become shards: a source lists samples, a plan says which of them go where, lanes of threads write them.
//!
//! It trains nothing and keeps no pictures: what is in memory is the catalogue and the few samples on their way. The plan is a
//! function of the source and the options alone, so that threads, parts of a cluster and runs that were killed all make
//! the same bytes.

mod crew;
mod extension;
mod place;
mod options;
mod key;
mod source;
mod files;
mod folder;
mod tars;
mod zip;
mod list;
mod parquet;
mod plan;
mod duplicates;
mod allowance;
mod sample;
mod picture;
mod shard_file;
mod lane;
mod journal;
mod dataset;
mod run;
mod verify;
mod repair;

pub(crate) use crew::each;
pub use dataset::{Dataset, DatasetShard, DatasetSplit};
pub use journal::LeftOut;
pub use list::ListOptions;
pub use options::{ConvertOptions, Duplicates, ErrorBudget, Names, Part, ShardLimit};
pub use parquet::ParquetOptions;
pub use picture::{PictureFormat, PictureOptions, PictureTally, ResizeBy};
pub use repair::{Repair, RepairOptions, refuse_replacing_by_repair, repair};
pub use run::{Conversion, Outcome, merge};
pub use source::SourceKind;
pub use verify::{Census, Finding, FindingKind, Verification, VerifyOptions, verify};
