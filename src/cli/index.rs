//! `brimful index`: indexes of shards, built on all cores and kept in the cache, or written for DALI. Samples are counted,
//! not looked into.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use serde::Serialize;

use super::args::{IndexArgs, IndexFormat};
use super::failure::{Outcome, report, warn};
use super::folders;
use super::machine::cores_available;
use super::output::{Output, bytes_text, count_text, rate_text, write_whole};
use super::progress::Progress;
use super::shards::{self, name_of, tell_grouping, tell_scan};
use crate::convert::each;
use crate::shard::{Compression, IndexCache, ShardIndex, ShardOptions, index_beside};
use crate::{Error, ErrorKind};

pub(super) fn run(args: &IndexArgs, output: &mut Output) -> anyhow::Result<Outcome> {
    let options = shards::options(&args.read);
    let paths = shards::paths(&args.shards)?;
    let cache = args.cache_dir.clone().unwrap_or_else(folders::cache);
    let started = Instant::now();
    let kept = IndexCache::at(&cache);
    let format = args.format();
    if args.out_dir.is_some() && format != IndexFormat::Dali {
        let message = "--out-dir is for --format dali: other indexes have their places";
        return Err(Error::new(ErrorKind::InvalidOption, message).into());
    }
    if format == IndexFormat::Dali {
        refuse_equal_names(&paths, args.out_dir.as_deref())?;
    }
    let built = build(&paths, &options, &kept, args.threads.unwrap_or_else(cores_available));
    let seconds = started.elapsed().as_secs_f64();

    let mut bad = false;
    if let Some(sentence) = kept.unkept() {
        warn(&sentence);
        // Files beside shards do not need the cache.
        bad |= format == IndexFormat::Cache;
    }
    let mut names: Vec<Arc<str>> = Vec::new();
    let mut indexes = Vec::new();
    let mut files = Vec::new();
    for (path, index) in paths.iter().zip(built) {
        match index {
            Ok(index) => {
                bad |= tell_scan(&name_of(path), index.report());
                if format == IndexFormat::Dali && Compression::of_path(path)?.is_some() {
                    let message = "DALI reads no compressed shards: there is no index of one";
                    report(&Error::new(ErrorKind::Unsupported, message).in_shard(name_of(path)).into());
                    bad = true;
                } else if format == IndexFormat::Dali {
                    files.push(write_dali(path, args.out_dir.as_deref(), &index)?);
                } else if format == IndexFormat::Beside {
                    bad |= write_beside(path, &index, &mut files)?;
                }
                names.push(name_of(path));
                indexes.push(index);
            }
            Err(error) => {
                bad = true;
                report(&error.into());
            }
        }
    }
    if indexes.is_empty() {
        return Ok(Outcome::AllBad);
    }
    let summary = Summary::of(indexes, &names, seconds, cache, files, &mut bad)?;
    output.document(&args.document, &summary, |output| summary.print(output))?;
    Ok(Outcome::bad_if(bad))
}

/// The index of each shard, as the cache keeps it or built anew. One bad shard does not keep the others back.
fn build(
    paths: &[PathBuf],
    options: &ShardOptions,
    cache: &IndexCache,
    threads: usize,
) -> Vec<crate::Result<ShardIndex>> {
    let progress = Progress::new("indexing shards", paths.len());
    let build = |path: &PathBuf| cache.load_or_build(path, options).map_err(|error| error.in_shard(name_of(path)));
    each(paths, threads, build, &|done, of| progress.set(done, of))
}

/// Where the DALI index of a shard goes.
fn dali_path(shard: &Path, folder: Option<&Path>) -> PathBuf {
    let beside = shard.with_extension("idx");
    match (folder, beside.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => beside,
    }
}

/// Two shards that would share one DALI index are an error: one would take the other's place.
fn refuse_equal_names(shards: &[PathBuf], folder: Option<&Path>) -> crate::Result<()> {
    let mut owners: BTreeMap<PathBuf, &Path> = BTreeMap::new();
    for shard in shards {
        let path = dali_path(shard, folder);
        let message = |other: &Path| {
            let names = [other, shard, &path].map(|path| path.display().to_string());
            format!("'{}' and '{}' would both have their index in '{}'", names[0], names[1], names[2])
        };
        if let Some(other) = owners.get(&path).filter(|other| *other != shard) {
            let error = Error::new(ErrorKind::InvalidOption, message(other));
            return Err(error.with_hint("leave --out-dir out, or index each folder into one of its own"));
        }
        owners.insert(path, shard);
    }
    Ok(())
}

/// Writes the DALI index of a shard; returns its path.
fn write_dali(shard: &Path, folder: Option<&Path>, index: &ShardIndex) -> anyhow::Result<PathBuf> {
    let path = dali_path(shard, folder);
    let mut text = Vec::new();
    index.write_dali(&mut text).map_err(|error| error.in_shard(name_of(shard)))?;
    if let Some(folder) = folder {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder '{}'", folder.display()))?;
    }
    write_whole(&path, &text)?;
    Ok(path)
}

/// Writes the index beside a shard, unless none could be used there; `true` then.
fn write_beside(shard: &Path, index: &ShardIndex, files: &mut Vec<PathBuf>) -> crate::Result<bool> {
    let refusal = match (Compression::of_path(shard)?, index.report().is_whole()) {
        (Some(_), _) => "a compressed shard is read from its start: there is no index beside one",
        (None, false) => "the shard is damaged: there is no index beside one",
        (None, true) => {
            index.write_beside(shard)?;
            files.push(index_beside(shard));
            return Ok(false);
        }
    };
    report(&Error::new(ErrorKind::Unsupported, refusal).in_shard(name_of(shard)).into());
    Ok(true)
}

/// What was indexed.
#[derive(Debug, Serialize)]
struct Summary {
    shards: usize,
    samples: u64,
    fields: u64,
    /// Bytes of the fields, without headers.
    bytes: u64,
    /// Number of fields by extension.
    extensions: BTreeMap<String, u64>,
    seconds: f64,
    samples_per_s: f64,
    cache: PathBuf,
    /// Index files beside shards.
    files: Vec<PathBuf>,
}

impl Summary {
    fn of(
        indexes: Vec<ShardIndex>,
        names: &[Arc<str>],
        seconds: f64,
        cache: PathBuf,
        files: Vec<PathBuf>,
        bad: &mut bool,
    ) -> crate::Result<Self> {
        let shards = indexes.len();
        let bytes = indexes.iter().flat_map(ShardIndex::iter).map(|file| file.size).fold(0, u64::saturating_add);
        let samples = shards::group(indexes, names)?;
        *bad |= tell_grouping(samples.report());
        let grouped = samples.report();
        Ok(Self {
            shards,
            samples: samples.len() as u64,
            fields: grouped.fields,
            bytes,
            extensions: grouped.extensions.iter().map(|(extension, count)| (extension.to_string(), *count)).collect(),
            seconds,
            samples_per_s: samples.len() as f64 / seconds.max(1e-9),
            cache,
            files,
        })
    }

    fn print(&self, output: &mut Output) -> io::Result<()> {
        let extensions: Vec<String> =
            self.extensions.iter().map(|(extension, count)| format!("{extension} {}", count_text(*count))).collect();
        writeln!(output, "shards     {}", count_text(self.shards as u64))?;
        writeln!(output, "samples    {}", count_text(self.samples))?;
        writeln!(output, "fields     {} ({})", count_text(self.fields), extensions.join(", "))?;
        writeln!(output, "bytes      {}", bytes_text(self.bytes))?;
        writeln!(output, "time       {:.3} s, {} samples/s", self.seconds, rate_text(self.samples_per_s))?;
        writeln!(output, "cache      {}", self.cache.display())?;
        for file in &self.files {
            writeln!(output, "written    {}", file.display())?;
        }
        Ok(())
    }
}
