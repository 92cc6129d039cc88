//! The shards that are measured: given ones, of which at most as many as stay open, or made ones, which go afterwards.

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;

use super::interrupt::Interrupt;
use crate::cli::args::StorageBenchArgs;
use crate::cli::failure::note;
use crate::cli::folders;
use crate::cli::machine::cores_available;
use crate::cli::output::bytes_text;
use crate::cli::progress::Progress;
use crate::cli::shards::{self as lists, name_of};
use crate::shard::{Compression, Damage, IndexCache, ShardOptions, build_indexes};
use crate::storage::{Extent, FILES_MAX, Layout, MadeShards};
use crate::{Error, ErrorKind};

/// Steps of the progress of making shards.
const MAKING_STEPS: usize = 1000;

/// Shards and where samples lie in them.
#[derive(Debug)]
pub(super) struct Shards {
    pub(super) layout: Layout,
    pub(super) data: Data,
    /// Removes made shards when it goes.
    _made: Option<MadeShards>,
}

/// What a document says about the shards.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Data {
    /// As it was given.
    pub(super) path: String,
    /// Shards that are measured, and those there are.
    pub(super) shards: usize,
    pub(super) shards_found: usize,
    pub(super) bytes: u64,
    /// 0 where samples are not known: compressed shards.
    pub(super) samples: usize,
    pub(super) sample_bytes_mean: Option<f64>,
    pub(super) made: bool,
}

impl Shards {
    pub(super) fn gather(args: &StorageBenchArgs, interrupt: &Interrupt) -> anyhow::Result<Self> {
        let made = args.make.map(|bytes| make(args, bytes, interrupt)).transpose()?;
        let found = match &made {
            Some(made) => made.paths().to_vec(),
            None => lists::paths(&args.paths)?,
        };
        let paths = spread(&found, FILES_MAX);
        if paths.len() < found.len() {
            note(&format!("measuring {} of {} shards, evenly chosen", paths.len(), found.len()));
        }
        let samples = samples(&paths, made.is_none())?;
        let layout = Layout::new(&paths, samples)?;
        let samples = layout.samples().len();
        let sample_bytes: u64 = layout.samples().iter().map(|sample| sample.len).sum();
        let shown: Vec<_> = args.paths.iter().map(|path| path.to_string_lossy()).collect();
        let data = Data {
            path: shown.join(" "),
            shards: paths.len(),
            shards_found: found.len(),
            bytes: layout.bytes(),
            samples,
            sample_bytes_mean: (samples > 0).then(|| sample_bytes as f64 / samples as f64),
            made: made.is_some(),
        };
        Ok(Self { layout, data, _made: made })
    }
}

fn make(args: &StorageBenchArgs, bytes: u64, interrupt: &Interrupt) -> anyhow::Result<MadeShards> {
    let [folder] = args.paths.as_slice() else {
        let message = format!("--make takes one folder to make shards in, got {}", args.paths.len());
        return Err(Error::new(ErrorKind::InvalidOption, message).into());
    };
    let folder = Path::new(folder);
    if !folder.is_dir() {
        let message = format!("'{}' is no folder to make test shards in", folder.display());
        return Err(Error::new(ErrorKind::NotFound, message).with_hint("make it, or name another").into());
    }
    note(&format!("making {} of test shards in {}, removed afterwards", bytes_text(bytes), folder.display()));
    let progress = Progress::new("making shards", MAKING_STEPS);
    let told = |done: u64| progress.set((done as f64 / bytes as f64 * MAKING_STEPS as f64) as usize, MAKING_STEPS);
    MadeShards::make(folder, bytes, args.shard_bytes, args.sizes, interrupt.flag(), &told)
        .with_context(|| format!("cannot make test shards in '{}'", folder.display()))
}

/// At most `count` of the paths, evenly from all of them.
fn spread(paths: &[PathBuf], count: usize) -> Vec<PathBuf> {
    let taken = paths.len().min(count);
    (0..taken).map(|number| paths[number * paths.len() / taken].clone()).collect()
}

/// Where samples lie; none where a shard is compressed, since nothing in it can be read by itself.
fn samples(paths: &[PathBuf], keep_index: bool) -> anyhow::Result<Vec<Extent>> {
    for path in paths {
        if Compression::of_path(path)?.is_some() {
            note(&format!("{}: compressed, so samples cannot be read at random", path.display()));
            return Ok(Vec::new());
        }
    }
    // What is damaged is for other commands to tell: it is as fast to read as what is whole.
    let options = ShardOptions { damage: Damage::Resync, ..ShardOptions::default() };
    let cache = keep_index.then(|| IndexCache::at(folders::cache()));
    let progress = Progress::new("indexing shards", paths.len());
    let indexes =
        build_indexes(paths, &options, cache.as_ref(), cores_available(), &|done, of| progress.set(done, of))?;
    let names: Vec<_> = paths.iter().map(|path| name_of(path)).collect();
    let samples = lists::group(indexes, &names)?;
    let extent = |sample: crate::sample::SampleRef<'_>| {
        let range = sample.range();
        Extent { file: sample.shard(), offset: range.start, len: range.end - range.start }
    };
    Ok(samples.iter().map(extent).filter(|sample| sample.len > 0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_chosen_evenly() {
        let paths: Vec<PathBuf> = (0..10).map(|number| PathBuf::from(number.to_string())).collect();
        let chosen: Vec<String> = spread(&paths, 4).iter().map(|path| path.display().to_string()).collect();
        assert_eq!(chosen, ["0", "2", "5", "7"]);
        assert_eq!(spread(&paths, 20), paths);
        assert_eq!(spread(&[], 20), [] as [PathBuf; 0]);
    }
}
