//! One conversion from its plan to its description: lanes make the shards of one part, and the last part adds them up.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use serde_json::json;

use super::allowance::Memory;
use super::dataset::{self, Dataset, DatasetShard, is_description};
use super::journal::{self, Header, Journal, LeftOut, ShardRecord};
use super::lane::{Hand, Job, make_shard};
use super::options::ConvertOptions;
use super::plan::{Plan, PlannedShard};
use super::shard_file::{ensure_index, has_bytes};
use super::source::{Source, SourceKind};
use super::verify::hash_file;
use crate::error::{Error, ErrorKind, Result};
use crate::shard::index_beside;

/// A conversion that is planned.
pub struct Conversion {
    source: Box<dyn Source>,
    plan: Plan,
    folder: PathBuf,
    options: ConvertOptions,
    fields: Vec<String>,
}

/// What a run has made.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The data set is complete.
    Complete(Box<Dataset>),
    /// This part is; `convert --merge` completes the data set once all parts are.
    Part {
        /// Shards of this part.
        shards: usize,
        /// Samples in them.
        samples: u64,
        /// Bytes of them.
        bytes: u64,
        /// Samples that were left out.
        left_out: u64,
    },
}

/// Threads that work on one shard: more would wait for each other.
const HANDS_PER_LANE: usize = 4;

impl Conversion {
    /// Lists the source and plans its shards in the folder `destination`, which need not exist; nothing is written.
    ///
    /// # Errors
    /// Those of listing the source; [`ErrorKind::InvalidOption`] for options outside their range, a destination inside
    /// the source, and a name that is no fit key; [`ErrorKind::Grouping`] for two samples with one key.
    pub fn plan(kind: &SourceKind, destination: &Path, options: ConvertOptions) -> Result<Self> {
        options.check()?;
        kind.paths().into_iter().try_for_each(|source| refuse_inside(source, destination))?;
        let source = kind.open(options.threads)?;
        let plan = Plan::new(&*source, kind, &options)?;
        if plan.samples() == 0 {
            return Err(Error::new(ErrorKind::NotFound, "the source has no samples"));
        }
        refuse_replacing(&kind.paths(), destination, &plan)?;
        let mut fields: Vec<String> = Vec::new();
        source.sizes(plan.sample(0) as usize, &mut |ext, _| fields.push(ext.to_owned()));
        Ok(Self { source, plan, folder: destination.to_owned(), options, fields })
    }

    /// Samples that are to be converted.
    #[must_use]
    pub fn samples(&self) -> usize {
        self.plan.samples()
    }

    /// Shards that all parts together make.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.plan.shards.len()
    }

    /// Bytes of all shards, as the samples are in the source.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.plan.bytes
    }

    /// Bytes of the largest shard, as its samples are in the source.
    #[must_use]
    pub fn shard_bytes_max(&self) -> u64 {
        self.plan.shard_bytes_max
    }

    /// Number of classes.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.source.classes().len()
    }

    /// Extensions of the first sample's fields.
    #[must_use]
    pub fn fields(&self) -> &[String] {
        &self.fields
    }

    /// What a user should know about the source, a sentence each.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.source.notes().to_vec();
        if self.options.shuffle.is_some() {
            notes.extend(self.source.slow_when_shuffled(self.plan.bytes));
        }
        let (dropped, renamed) = (self.plan.resolved.dropped.len(), self.plan.resolved.renamed());
        if dropped > 0 {
            notes.push(format!("{dropped} samples are left out because an earlier one has their key"));
        }
        if renamed > 0 {
            notes.push(format!("{renamed} samples get a number behind their key because an earlier one has it"));
        }
        if self.plan.unfit > 0 {
            notes.push(format!("{} samples are left out because their names are no fit keys", self.plan.unfit));
        }
        notes
    }

    /// Makes the shards of this part, and the description where there is one part only. `progress` is called from many
    /// threads with the samples and bytes done so far, of this part.
    ///
    /// # Errors
    /// Those of reading and writing; [`ErrorKind::TooManyErrors`] and the error of a bad sample that is one too many;
    /// [`ErrorKind::InvalidOption`] when the destination holds a data set; [`ErrorKind::StateMismatch`] when another
    /// conversion was begun there.
    pub fn run(&self, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<Outcome> {
        let shards: Vec<&PlannedShard> = self
            .plan
            .shards
            .iter()
            .enumerate()
            .filter(|(number, _)| self.options.part.has(*number))
            .map(|(_, shard)| shard)
            .collect();
        if let Some(dataset) = Dataset::read(&self.folder)? {
            return self.made_before(dataset, &shards, progress);
        }
        let header = self.header();
        journal::refuse_others(&self.folder, &header)?;
        self.refuse_strangers(&shards)?;
        fs::create_dir_all(&self.folder)
            .map_err(|error| Error::io(format!("cannot make the folder '{}'", self.folder.display()), error))?;
        let mut journal = Journal::open(&self.folder, self.options.part, header, self.options.resume)?;
        let is_done = |shard: &PlannedShard| {
            journal.done.get(&shard.name).is_some_and(|record| is_whole(&self.folder.join(&shard.name), record))
        };
        let (done, open): (Vec<&PlannedShard>, Vec<&PlannedShard>) = shards.iter().partition(|shard| is_done(shard));
        done.iter().try_for_each(|shard| ensure_index(&self.folder.join(&shard.name)))?;
        let mut records: Vec<_> = done.iter().filter_map(|shard| journal.done.get(&shard.name).cloned()).collect();
        remove_drafts(&self.folder, &shards);
        let job = self.job(open.len(), journal.header.allowed, &records, progress);
        let books = Mutex::new((&mut journal, Vec::new()));
        self.run_lanes(&job, &open, |record| {
            let (journal, made) = &mut *books.lock().unwrap_or_else(PoisonError::into_inner);
            journal.note(&record)?;
            made.push(record);
            Ok(())
        })?;
        let (_, made) = books.into_inner().unwrap_or_else(PoisonError::into_inner);
        records.extend(made);
        if self.options.part.of == 1 {
            return Dataset::merge(&self.folder).map(|dataset| Outcome::Complete(Box::new(dataset)));
        }
        Ok(Outcome::Part {
            shards: records.len(),
            samples: records.iter().map(|record| record.samples).sum(),
            bytes: records.iter().map(|record| record.bytes).sum(),
            left_out: records.iter().map(|record| record.left_out.len() as u64).sum(),
        })
    }

    /// What the lanes that make so many shards share, when `records` are done already.
    fn job<'a>(
        &'a self,
        shards: usize,
        allowed: u64,
        records: &[ShardRecord],
        progress: &'a (dyn Fn(u64, u64) + Sync),
    ) -> Job<'a> {
        Job {
            source: &*self.source,
            plan: &self.plan,
            folder: &self.folder,
            picture: &self.options.picture,
            memory: Memory::of(self.lanes(shards), self.options.threads),
            allowed,
            left_out: AtomicU64::new(records.iter().map(|record| record.left_out.len() as u64).sum()),
            is_over: AtomicBool::new(false),
            done: AtomicU64::new(records.iter().map(|record| record.samples).sum()),
            done_bytes: AtomicU64::new(records.iter().map(|record| record.bytes).sum()),
            progress,
        }
    }

    fn lanes(&self, shards: usize) -> usize {
        self.options.threads.div_ceil(HANDS_PER_LANE).min(shards.max(1))
    }

    /// Makes `shards`, some at a time, and hands each record to `note`.
    fn run_lanes(
        &self,
        job: &Job<'_>,
        shards: &[&PlannedShard],
        note: impl Fn(ShardRecord) -> Result<()> + Sync,
    ) -> Result<()> {
        let lanes = self.lanes(shards.len());
        let next = AtomicUsize::new(0);
        let failure = Mutex::new(None);
        thread::scope(|scope| {
            for lane in 0..lanes {
                let count = self.options.threads / lanes + usize::from(lane < self.options.threads % lanes);
                let (next, failure, note) = (&next, &failure, &note);
                scope.spawn(move || {
                    let mut hands: Vec<Hand> = (0..count.max(1)).map(|_| Hand::new(&job.memory)).collect();
                    while !job.is_over.load(Ordering::Relaxed) {
                        let Some(shard) = shards.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
                        let made = make_shard(job, shard, &mut hands).and_then(note);
                        if let Err(error) = made {
                            job.is_over.store(true, Ordering::Relaxed);
                            let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
                            // What ended because of another lane's failure says nothing.
                            let says_more =
                                failure.as_ref().is_none_or(|other: &Error| other.kind() == ErrorKind::Cancelled);
                            if says_more {
                                *failure = Some(error);
                            }
                        }
                    }
                });
            }
        });
        failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    /// A complete data set stands in the destination: that is right if this conversion made it.
    fn made_before(
        &self,
        dataset: Dataset,
        shards: &[&PlannedShard],
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Outcome> {
        let message = format!("'{}' holds a data set already", self.folder.display());
        match (self.options.resume, dataset.fingerprint == self.plan.fingerprint) {
            (true, true) => {
                self.make_lost(&dataset, shards, progress)?;
                journal::remove_left(&self.folder)?;
                Ok(Outcome::Complete(Box::new(dataset)))
            }
            (true, false) => {
                Err(Error::new(ErrorKind::StateMismatch, format!("{message}, made by another conversion"))
                    .with_hint("choose another folder"))
            }
            (false, _) => Err(Error::new(ErrorKind::InvalidOption, message).with_hint("choose another folder")),
        }
    }

    /// Makes the shards of a complete data set again that are gone or have another length, and indexes that do not fit.
    fn make_lost(
        &self,
        dataset: &Dataset,
        shards: &[&PlannedShard],
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<()> {
        let known: HashMap<&str, &DatasetShard> = dataset.shards().map(|shard| (shard.name.as_str(), shard)).collect();
        let is_there = |shard: &&PlannedShard| {
            let bytes = known.get(shard.name.as_str()).map(|known| known.bytes);
            bytes.is_some_and(|bytes| has_bytes(&self.folder.join(&shard.name), bytes))
        };
        let (there, lost): (Vec<&PlannedShard>, Vec<&PlannedShard>) = shards.iter().partition(|shard| is_there(shard));
        there.iter().try_for_each(|shard| ensure_index(&self.folder.join(&shard.name)))?;
        if lost.is_empty() {
            return Ok(());
        }
        remove_drafts(&self.folder, &lost);
        let job = self.job(lost.len(), self.options.errors_max.allowed(self.source.len()), &[], progress);
        self.run_lanes(&job, &lost, |record| {
            if known.get(record.shard.as_str()).is_some_and(|known| known.hash == record.hash) {
                return Ok(());
            }
            // It must not pass for the one that was lost.
            let path = self.folder.join(&record.shard);
            let _ = fs::remove_file(index_beside(&path));
            let _ = fs::remove_file(&path);
            let message = "the shard, made again, has other bytes than dataset.json says";
            Err(Error::new(ErrorKind::StateMismatch, message)
                .in_shard(record.shard)
                .with_hint("the source has changed: convert it into another folder"))
        })
    }

    /// Shards of this part are someone else's unless the part was begun: other parts make none of that name. Without any
    /// journal all shards are.
    fn refuse_strangers(&self, mine: &[&PlannedShard]) -> Result<()> {
        if journal::is_begun(&self.folder, self.options.part)? {
            return Ok(());
        }
        let is_first = !self.folder.join(journal::FOLDER).exists();
        let all = self.plan.shards.iter().filter(|_| is_first);
        let lists = dataset::LISTS.into_iter().filter(|_| is_first);
        let names = mine.iter().copied().chain(all).map(|shard| shard.name.as_str()).chain(lists);
        match { names }.find(|name| self.folder.join(name).exists()) {
            Some(name) => {
                Err(Error::new(ErrorKind::InvalidOption, format!("'{}' holds '{name}' already", self.folder.display()))
                    .with_hint("choose another folder, or remove it first"))
            }
            None => Ok(()),
        }
    }

    fn header(&self) -> Header {
        let ConvertOptions {
            limit, shuffle, sorted, val_share, split_seed, names, duplicates, errors_max, part, ..
        } = &self.options;
        let mut options = json!({
            "limit": limit,
            "shuffle": shuffle,
            "val_share": val_share,
            "names": names,
            "duplicates": duplicates,
        });
        if self.options.picture.change_pictures() {
            options["picture"] = json!(self.options.picture);
        }
        if *sorted {
            options["sorted"] = json!(true);
        }
        if *val_share > 0.0 {
            options["split_seed"] = json!(split_seed);
        }
        let splits = (0..self.plan.splits.len()).map(|split| {
            let shards = self.plan.shards.iter().filter(|shard| shard.split == split).count();
            (self.plan.splits[split].to_owned(), shards)
        });
        let origin = |sample: u32| self.source.origin(sample as usize);
        let dropped = self.plan.resolved.dropped.iter().map(|&(sample, first)| LeftOut {
            sample: origin(sample),
            kind: ErrorKind::Grouping.as_str().into(),
            message: format!("'{}' has the same key", origin(first)),
        });
        Header {
            fingerprint: self.plan.fingerprint.clone(),
            parts: part.of,
            options,
            classes: self.source.classes().to_vec(),
            splits: splits.collect(),
            dropped: dropped.collect(),
            allowed: errors_max.allowed(self.source.len()),
        }
    }
}

/// Adds the parts of a conversion in `folder` up to one data set.
///
/// # Errors
/// [`ErrorKind::NotFound`] for missing parts or shards, [`ErrorKind::StateMismatch`] for parts of different conversions,
/// [`ErrorKind::TooManyErrors`] when they left out too many samples together, [`ErrorKind::Io`].
pub fn merge(folder: &Path) -> Result<Dataset> {
    let Some(dataset) = Dataset::read(folder)? else { return Dataset::merge(folder) };
    dataset.check_shards(folder)?;
    journal::remove_left(folder)?;
    Ok(dataset)
}

/// Refuses a destination that is the source or lies in it: the source is never written to.
fn refuse_inside(source: &Path, destination: &Path) -> Result<()> {
    let Ok(source) = fs::canonicalize(source) else { return Ok(()) };
    let absolute = std::path::absolute(destination)
        .map_err(|error| Error::io(format!("no folder can be '{}'", destination.display()), error))?;
    // The part that exists, with its links resolved, and the rest behind it.
    let existing = absolute.ancestors().find_map(|above| Some((fs::canonicalize(above).ok()?, above)));
    let Some((real, above)) = existing else { return Ok(()) };
    let place = real.join(absolute.strip_prefix(above).unwrap_or(Path::new("")));
    if place.starts_with(&source) {
        let message = format!("the destination '{}' lies inside the source", destination.display());
        return Err(Error::new(ErrorKind::InvalidOption, message).with_hint("choose a folder outside of it"));
    }
    Ok(())
}

/// Refuses a conversion that would write a file under the name that one of the source's has.
fn refuse_replacing(sources: &[&Path], destination: &Path, plan: &Plan) -> Result<()> {
    // A folder that is not there yet holds no source.
    let Ok(destination) = fs::canonicalize(destination) else { return Ok(()) };
    let shards: HashSet<&str> = plan.shards.iter().map(|shard| shard.name.as_str()).collect();
    let is_written = |name: &str| {
        is_description(name)
            || shards.contains(name)
            || name.strip_suffix(".index").is_some_and(|name| shards.contains(name))
    };
    for source in sources {
        let folder = match source.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let is_beside = fs::canonicalize(folder).is_ok_and(|folder| folder == destination);
        if is_beside && source.file_name().and_then(|name| name.to_str()).is_some_and(is_written) {
            let message = format!("the source '{}' would be replaced by what is written", source.display());
            return Err(Error::new(ErrorKind::InvalidOption, message).with_hint("choose another folder"));
        }
    }
    Ok(())
}

/// Whether a shard that a journal lists is there with its bytes. What was written before a restart of the machine may have
/// its name and its length and still lack bytes, so it is read.
fn is_whole(path: &Path, record: &ShardRecord) -> bool {
    let is_sure = record.boot.is_some() && record.boot == journal::boot();
    has_bytes(path, record.bytes) && (is_sure || hash_file(path).is_ok_and(|(_, hash)| hash == record.hash))
}

/// Removes the hidden files that a killed run has left of shards.
fn remove_drafts(folder: &Path, shards: &[&PlannedShard]) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let shards: HashSet<&str> = shards.iter().map(|shard| shard.name.as_str()).collect();
    let is_left = |name: &str| {
        let of = |name: &str| Some(name.strip_prefix('.')?.strip_suffix(".part")?.rsplit_once('.')?.0.to_owned());
        of(name).is_some_and(|of| shards.contains(of.strip_suffix(".index").unwrap_or(&of)) || is_description(&of))
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if name.to_str().is_some_and(is_left) {
            // What cannot be removed is in nobody's way.
            let _ = fs::remove_file(entry.path());
        }
    }
}

impl std::fmt::Debug for Conversion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conversion")
            .field("folder", &self.folder)
            .field("shards", &self.shards())
            .finish_non_exhaustive()
    }
}
