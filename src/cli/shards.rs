//! Shards as the commands see them: patterns become paths, one shard becomes its samples and what is wrong with it. It
//! prints nothing about samples; damage is told here because every command tells it alike.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::args::{Io, ReadArgs};
use super::failure::{report, warn};
use super::folders;
use super::output::{bytes_text, count_text, printable};
use crate::loader::BadSample;
use crate::sample::{Duplicates, GroupReport, Grouping, SampleIndex, SampleIndexBuilder};
use crate::shard::{Damage, IoMethod, Opener, ScanReport, Shard, ShardIndex, ShardList, ShardOptions};
use crate::storage::{self, ChosenIo, choose_io, open_store};
use crate::{Error, Result};

/// Bad samples that are told one by one.
const BAD_SAMPLES_SHOWN: usize = 5;

/// The library's options for what was typed; what suits a storage is a loader's business.
pub(super) fn options(args: &ReadArgs) -> ShardOptions {
    let damage = if args.resync { Damage::Resync } else { Damage::Strict };
    let (io, opener): (_, Option<Opener>) = match args.io {
        Io::Auto => (IoMethod::Auto, None),
        Io::Mmap => (IoMethod::Mmap, None),
        Io::Read => (IoMethod::Read, None),
        Io::Direct => (IoMethod::Direct, None),
        Io::Uring => (IoMethod::Read, Some(open_store)),
    };
    ShardOptions { io, opener, damage, ..ShardOptions::default() }
}

/// How a loader reads the shards at `paths`: as was typed, or as the storage's profile says.
pub(super) fn loaders_io(io: Io, paths: &[PathBuf]) -> Result<ChosenIo> {
    let io = match io {
        Io::Auto => storage::Io::Auto,
        Io::Mmap => storage::Io::Mmap,
        Io::Read => storage::Io::Read,
        Io::Direct => storage::Io::Direct,
        Io::Uring => storage::Io::Uring,
    };
    choose_io(io, Some(&folders::cache()), paths)
}

/// The shards that the patterns mean, in order.
pub(super) fn paths(patterns: &[impl AsRef<OsStr>]) -> Result<Vec<PathBuf>> {
    Ok(ShardList::from_patterns(patterns)?.paths().to_vec())
}

/// The path as it is shown.
pub(super) fn name_of(path: &Path) -> Arc<str> {
    path.to_string_lossy().into()
}

/// A shard, the samples before its first damage, and the damage.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) shard: Shard,
    pub(super) samples: SampleIndex,
    scan: ScanReport,
    error: Option<Error>,
}

impl Listing {
    /// Opens a shard and walks along its headers.
    ///
    /// # Errors
    /// When it cannot be opened at all; damage is kept, see [`tell_damage`](Self::tell_damage).
    pub(super) fn read(path: &Path, options: &ShardOptions) -> Result<Self> {
        let shard = Shard::open(path, options)?;
        let (index, error) = ShardIndex::build_partial(&shard);
        let scan = index.report().clone();
        let samples = group([index], &[name_of(path)])?;
        Ok(Self { shard, samples, scan, error })
    }

    /// Whether the damage stands before every sample.
    pub(super) fn is_lost(&self) -> bool {
        self.error.is_some() && self.samples.is_empty()
    }

    /// Tells on standard error what is wrong with the shard; `true` if anything is lost.
    pub(super) fn tell_damage(self) -> bool {
        let mut bad = tell_scan(self.shard.name(), &self.scan);
        bad |= tell_grouping(self.samples.report());
        if let Some(error) = self.error {
            report(&error.into());
            bad = true;
        }
        bad
    }
}

/// The samples of several shards, by webdataset's rule; of fields given twice the first stays, and that is counted.
pub(super) fn group(indexes: impl IntoIterator<Item = ShardIndex>, names: &[Arc<str>]) -> Result<SampleIndex> {
    let grouping = Grouping { duplicates: Duplicates::KeepFirst, ..Grouping::default() };
    let mut samples = SampleIndexBuilder::new(&grouping);
    for (index, name) in indexes.into_iter().zip(names) {
        let files = index.iter().map(|file| (file.name, file.offset, file.size));
        samples.push_shard(name.clone(), index.fingerprint(), files)?;
    }
    Ok(samples.finish())
}

/// Warns of what a walk along the headers passed over; `true` if anything is lost.
pub(super) fn tell_scan(name: &str, scan: &ScanReport) -> bool {
    if scan.resyncs > 0 {
        let places = if scan.resyncs == 1 { "place" } else { "places" };
        let lost = bytes_text(scan.lost_bytes);
        let first = scan.losses.first().map_or(String::new(), |loss| format!(", the first at byte {}", loss.offset));
        warn(&format!("{name}: damage was passed over in {} {places}{first}: {lost} lost", scan.resyncs));
    }
    if scan.missing_end {
        warn(&format!("{name}: the archive ends without end blocks, as one that was cut"));
    }
    if scan.sparse > 0 {
        warn(&format!("{name}: {} sparse members were passed over", scan.sparse));
    }
    if scan.trailing_bytes > 0 {
        warn(&format!("{name}: {} bytes behind the end are no members", count_text(scan.trailing_bytes)));
    }
    !scan.is_whole()
}

/// Warns of what grouping found odd; `true` if a loader would refuse it.
pub(super) fn tell_grouping(grouping: &GroupReport) -> bool {
    for warning in grouping.warnings() {
        warn(&warning);
    }
    let refused = grouping.duplicate_fields > 0;
    if refused {
        warn("a loader refuses shards in which a field is given twice");
    }
    refused
}

/// Warns of samples that a loader left out; `true` if there are any.
pub(super) fn tell_bad_samples(bad: &[BadSample]) -> bool {
    for sample in bad.iter().take(BAD_SAMPLES_SHOWN) {
        warn(&format!("left out: {}", printable(&sample.message)));
    }
    if bad.len() > BAD_SAMPLES_SHOWN {
        warn(&format!("left out: {} more", count_text((bad.len() - BAD_SAMPLES_SHOWN) as u64)));
    }
    !bad.is_empty()
}

/// Whether the first sample of the first shard has a field; `false` where there is no sample.
pub(super) fn have_field(paths: &[PathBuf], extension: &str) -> Result<bool> {
    let Some(path) = paths.first() else { return Ok(false) };
    let listing = Listing::read(path, &ShardOptions::default())?;
    Ok(listing.samples.iter().next().is_some_and(|sample| sample.fields().any(|field| field.ext == extension)))
}
