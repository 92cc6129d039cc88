//! Damaged and badly packed shards written anew: members of a sample put together, keys made single, what is damaged left out
//! and listed.
//!
//! It mends no bytes: a sample is written as it is or not at all. The shards that are read stay as they are.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use twox_hash::XxHash3_128;

use super::allowance::Memory;
use super::dataset::LEFT_OUT;
use super::extension::is_picture_field;
use super::journal::LeftOut;
use super::lane::{Hand, Job, make_shard};
use super::options::{ConvertOptions, Duplicates, ErrorBudget, Names, ShardLimit};
use super::picture::PictureOptions;
use super::plan::Plan;
use super::sample::Fields;
use super::source::{Source, SourceKind};
use super::tars::copy_field;
use super::verify::{Checked, Expected, check_all, decode_whole};
use crate::decode::{DecodeOptions, ImageDecoder};
use crate::error::{Error, ErrorKind, Result};
use crate::sample::{FieldSelector, Key, is_appledouble, is_metadata, split_name};
use crate::shard::{Damage, Draft, Member, MemberKind, Shard, ShardOptions, index_beside};

/// How shards are written anew.
#[derive(Debug, Clone)]
pub struct RepairOptions {
    /// Whether further samples of a key are renamed or dropped; [`Duplicates::Refuse`] is not for repairs.
    pub duplicates: Duplicates,
    /// Leaves samples out whose images cannot be decoded whole.
    pub decode: bool,
    /// The fields that a sample next to damage must have to be kept; those that more than half of the samples have, unless
    /// given.
    pub fields: Vec<FieldSelector>,
    /// Threads, at least 1.
    pub threads: usize,
}

/// What was written.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Repair {
    /// The new shards, in order.
    pub shards: Vec<PathBuf>,
    /// Samples in them.
    pub samples: u64,
    /// Samples whose members were not neighbours.
    pub regrouped: u64,
    /// Samples that got a number behind their key.
    pub renamed: u64,
    /// What is in no new shard, and why; `left_out.jsonl` beside the shards has the same.
    pub left_out: Vec<LeftOut>,
    /// Ranges of the shards that were passed over as damaged, and sparse members: what stood there is in no new shard, and
    /// in `left_out.jsonl` by its place.
    pub lost: Vec<LeftOut>,
}

/// Writes repaired shards of those at `paths` into the folder `out`, under their names.
///
/// # Errors
/// [`ErrorKind::InvalidOption`] when a file would be replaced or two shards have one name, [`ErrorKind::Io`] when writing
/// fails.
pub fn repair(
    paths: &[PathBuf],
    out: &Path,
    options: &RepairOptions,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Repair> {
    let targets = targets(paths, out)?;
    fs::create_dir_all(out).map_err(|error| Error::io(format!("cannot make the folder '{}'", out.display()), error))?;
    let checked = check_all(paths, options.threads, false, &|_, _| {});
    let expected = Expected::of(&checked, &options.fields);
    let mut repair = Repair::default();
    let memory = Memory::of(1, options.threads);
    let mut hands: Vec<Hand> = (0..options.threads.max(1)).map(|_| Hand::new(&memory)).collect();
    for (number, ((path, target), found)) in paths.iter().zip(&targets).zip(&checked).enumerate() {
        repair.lost.extend(lost_in(path, found));
        match Mended::of(path, found, &expected, options) {
            Ok(mended) => mended.write(out, target, &mut hands, &mut repair)?,
            Err(error) => repair.left_out.push(LeftOut::of(path.display().to_string(), &error)),
        }
        progress(number + 1, paths.len());
    }
    let list = out.join(LEFT_OUT);
    if !(repair.left_out.is_empty() && repair.lost.is_empty()) {
        let written = Draft::create(&list).and_then(|mut draft| {
            for line in repair.left_out.iter().chain(&repair.lost) {
                draft.write_all(&serde_json::to_vec(line)?)?;
                draft.write_all(b"\n")?;
            }
            draft.finish()
        });
        written.map_err(|error| Error::io(format!("cannot write '{}'", list.display()), error))?;
    }
    Ok(repair)
}

/// Refuses what [`repair`] would refuse, before anything is read.
///
/// # Errors
/// [`ErrorKind::InvalidOption`] when a file would be replaced or two shards have one name.
pub fn refuse_replacing_by_repair(paths: &[PathBuf], out: &Path) -> Result<()> {
    targets(paths, out).map(drop)
}

/// What nobody can read in a shard, by its place.
fn lost_in(path: &Path, found: &Checked) -> Vec<LeftOut> {
    let line = |place: String, kind: &str, message: &str| LeftOut {
        sample: format!("{}: {place}", path.display()),
        kind: kind.into(),
        message: message.into(),
    };
    let (losses, lost_bytes) = found.losses_all;
    let why = "damaged; what samples stood there is unknown";
    let mut lost: Vec<LeftOut> = found
        .losses
        .iter()
        .map(|loss| line(format!("bytes {} to {}", loss.offset, loss.offset.saturating_add(loss.bytes)), "lost", why))
        .collect();
    if losses > lost.len() as u64 {
        let told: u64 = found.losses.iter().map(|loss| loss.bytes).sum();
        let place = format!("{} more ranges of {} bytes", losses - lost.len() as u64, lost_bytes.saturating_sub(told));
        lost.push(line(place, "lost", why));
    }
    let (members, count) = &found.sparse;
    let why = "a sparse member, which is not read";
    lost.extend(members.iter().map(|member| line(format!("byte {}", member.offset), "sparse", why)));
    let more = count.saturating_sub(members.len() as u64);
    if more > 0 {
        lost.push(line(format!("{more} more members"), "sparse", why));
    }
    lost
}

/// The file name of each new shard.
fn targets(paths: &[PathBuf], out: &Path) -> Result<Vec<String>> {
    let invalid = |message: String, hint: &str| Err(Error::new(ErrorKind::InvalidOption, message).with_hint(hint));
    let empty_folder = "choose an empty folder: repaired shards replace nothing";
    if out.join(LEFT_OUT).exists() {
        return invalid(format!("'{}' exists already", out.join(LEFT_OUT).display()), empty_folder);
    }
    let mut targets: Vec<String> = Vec::with_capacity(paths.len());
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let target = match name.find(".tar").or_else(|| name.find(".tgz")) {
            Some(end) => format!("{}.tar", &name[..end]),
            None => format!("{name}.tar"),
        };
        if targets.contains(&target) {
            return invalid(
                format!("two of the shards would become '{target}'"),
                "repair each folder into one of its own",
            );
        }
        if out.join(&target).exists() {
            let message = format!("'{}' exists already", out.join(&target).display());
            return invalid(message, empty_folder);
        }
        targets.push(target);
    }
    Ok(targets)
}

/// One shard as it will be written.
struct Mended {
    shard: Shard,
    samples: Vec<Sample>,
    decoders: Option<Mutex<Vec<ImageDecoder>>>,
    /// What decoders may take.
    memory: Memory,
    left_out: Vec<LeftOut>,
}

struct Sample {
    key: Vec<u8>,
    fields: Vec<(String, Range<u64>)>,
    /// Where its members begin and end, headers and padding included.
    span: Range<u64>,
    /// Whether its members were not neighbours.
    is_regrouped: bool,
    /// Whether an earlier sample has its key.
    is_further: bool,
}

impl Sample {
    fn new(key: Vec<u8>, start: u64) -> Self {
        Self { key, fields: Vec::new(), span: start..start, is_regrouped: false, is_further: false }
    }

    fn has(&self, ext: &str) -> bool {
        self.fields.iter().any(|(known, _)| known == ext)
    }

    fn add(&mut self, ext: String, member: &Member) {
        self.fields.push((ext, member.offset..member.offset + member.size));
        self.span.end = (member.offset + member.size).next_multiple_of(512);
    }
}

impl Mended {
    fn of(path: &Path, found: &Checked, expected: &Expected<'_>, options: &RepairOptions) -> Result<Self> {
        let shard = Shard::open(path, &ShardOptions { damage: Damage::Resync, ..ShardOptions::default() })?;
        let decoders = options.decode.then(|| Mutex::new(Vec::new()));
        let memory = Memory::of(1, options.threads);
        let mut mended = Self { shard, samples: Vec::new(), decoders, memory, left_out: Vec::new() };
        mended.gather(options.duplicates)?;
        mended.leave_damaged_out(found, expected);
        Ok(mended)
    }

    /// Puts the members of each key together, in the order in which keys first come.
    fn gather(&mut self, duplicates: Duplicates) -> Result<()> {
        let mut of_key: HashMap<Vec<u8>, Vec<usize>> = HashMap::new();
        // Neighbours with one key: one sample, or several where a field comes again.
        let mut run: Vec<Sample> = Vec::new();
        for member in self.shard.clone().members() {
            let member = member?;
            let Some((key, ext)) = self.split(&member) else { continue };
            let (key, ext) = (key.to_vec(), Key::new(ext.to_vec()).to_string().to_lowercase());
            if run.first().is_some_and(|sample| sample.key != key) {
                self.place(std::mem::take(&mut run), &mut of_key);
            }
            let comes_again = run.last().is_some_and(|sample| sample.has(&ext));
            if comes_again && duplicates == Duplicates::Drop {
                self.leave_out(&member, "duplicate", "an earlier member has its name");
                continue;
            }
            if run.is_empty() || comes_again {
                run.push(Sample::new(key, member.header_offset));
            }
            if let Some(sample) = run.last_mut() {
                sample.add(ext, &member);
            }
        }
        self.place(run, &mut of_key);
        if duplicates == Duplicates::Drop {
            self.drop_further();
        }
        Ok(())
    }

    /// Adds a run to the earlier sample with its key, or makes a sample of its own of it. It is added only where it can
    /// belong to one sample alone: which label goes with which picture is never guessed.
    fn place(&mut self, mut run: Vec<Sample>, of_key: &mut HashMap<Vec<u8>, Vec<usize>>) {
        let Some(first) = run.first() else { return };
        let copies = of_key.entry(first.key.clone()).or_default();
        if let [part] = run.as_mut_slice() {
            let lacks_all = |&copy: &usize| !part.fields.iter().any(|(ext, _)| self.samples[copy].has(ext));
            let mut fit = copies.iter().copied().filter(lacks_all);
            if let (Some(copy), None) = (fit.next(), fit.next()) {
                let sample = &mut self.samples[copy];
                sample.fields.append(&mut part.fields);
                sample.span.end = part.span.end;
                sample.is_regrouped = true;
                return;
            }
        }
        for mut sample in run {
            sample.is_further = !copies.is_empty();
            copies.push(self.samples.len());
            self.samples.push(sample);
        }
    }

    /// Leaves all but the first sample of each key out.
    fn drop_further(&mut self) {
        let name = self.shard.name().clone();
        let left_out = &mut self.left_out;
        self.samples.retain(|sample| {
            if sample.is_further {
                let key = Key::new(sample.key.clone());
                left_out.extend(sample.fields.iter().map(|(ext, _)| LeftOut {
                    sample: format!("{name}: {key}.{ext}"),
                    kind: "duplicate".into(),
                    message: "an earlier sample has its key".into(),
                }));
            }
            !sample.is_further
        });
    }

    /// Key and extension of a member that belongs to a sample; others are listed, but for book-keeping.
    fn split<'a>(&mut self, member: &'a Member) -> Option<(&'a [u8], &'a [u8])> {
        match member.kind {
            MemberKind::Dir => return None,
            MemberKind::File if is_metadata(&member.name) || is_appledouble(&member.name) => return None,
            MemberKind::File => {}
            _ => {
                self.leave_out(member, "link", "it is no file, but a link or a device, and carries no data");
                return None;
            }
        }
        let parts = split_name(&member.name);
        if parts.is_none() {
            self.leave_out(member, "no_extension", "its name has no key or no extension");
        }
        parts
    }

    fn leave_out(&mut self, member: &Member, kind: &str, message: &str) {
        let sample = format!("{}: {}", self.shard.name(), Key::new(member.name.clone()));
        self.left_out.push(LeftOut { sample, kind: kind.into(), message: message.into() });
    }

    /// A sample beside damage that lacks a field has lost it there.
    fn leave_damaged_out(&mut self, found: &Checked, expected: &Expected<'_>) {
        let end = self.samples.iter().map(|sample| sample.span.end).max().unwrap_or(0);
        let touches = |span: &Range<u64>| {
            let at_loss = found.losses.iter().any(|loss| {
                span.end == loss.offset || (loss.offset..=loss.offset.saturating_add(loss.bytes)).contains(&span.start)
            });
            at_loss || found.is_cut && span.end == end
        };
        let name = self.shard.name().clone();
        let left_out = &mut self.left_out;
        self.samples.retain(|sample| {
            let extensions: Vec<String> = sample.fields.iter().map(|(ext, _)| ext.clone()).collect();
            let missing = if touches(&sample.span) { expected.missing(&extensions) } else { Vec::new() };
            if !missing.is_empty() {
                let key = Key::new(sample.key.clone());
                let message = format!("it has lost its {} to damage", missing.join(", "));
                left_out.push(LeftOut { sample: format!("{name}: {key}"), kind: "damaged".into(), message });
            }
            missing.is_empty()
        });
    }

    fn write(mut self, out: &Path, target: &str, hands: &mut [Hand], repair: &mut Repair) -> Result<()> {
        repair.left_out.append(&mut self.left_out);
        repair.regrouped += self.samples.iter().filter(|sample| sample.is_regrouped).count() as u64;
        if self.samples.is_empty() {
            return Ok(());
        }
        let options = ConvertOptions {
            limit: ShardLimit::Samples(u64::MAX),
            names: Names::Escape,
            duplicates: Duplicates::Rename,
            errors_max: ErrorBudget::Count(u64::MAX),
            ..ConvertOptions::default()
        };
        let kind = SourceKind::Shards { paths: Vec::new(), folder: None };
        let mut plan = Plan::new(&self, &kind, &options)?;
        let Some(mut shard) = plan.shards.pop() else { return Ok(()) };
        shard.name = target.to_owned();
        let job = Job {
            source: &self,
            plan: &plan,
            folder: out,
            picture: &PictureOptions::default(),
            memory: Memory::of(1, hands.len()),
            allowed: u64::MAX,
            left_out: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            done: AtomicU64::new(0),
            done_bytes: AtomicU64::new(0),
            progress: &|_, _| {},
        };
        let record = make_shard(&job, &shard, hands)?;
        repair.renamed += plan.resolved.renamed() as u64;
        repair.samples += record.samples;
        repair.left_out.extend(record.left_out);
        if record.samples == 0 {
            // A shard of nothing is none.
            let path = out.join(target);
            return fs::remove_file(index_beside(&path)).and_then(|()| fs::remove_file(&path)).map_err(|error| {
                Error::io(format!("cannot remove '{}', which has no samples", path.display()), error)
            });
        }
        repair.shards.push(out.join(target));
        Ok(())
    }

    /// Refuses a sample whose images cannot be decoded whole.
    fn decode(&self, fields: &Fields) -> Result<()> {
        let Some(pool) = &self.decoders else { return Ok(()) };
        let lock = || pool.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = lock().pop();
        let mut decoder = taken.map_or_else(|| ImageDecoder::new(DecodeOptions::default()), Ok)?;
        let decoded = fields.iter().filter(|field| is_picture_field(&field.ext)).try_for_each(|field| {
            let decoded = decode_whole(&field.bytes, &mut decoder, &self.memory);
            decoded.map(drop).map_err(|error| error.in_field(field.ext.clone()))
        });
        lock().push(decoder);
        decoded
    }
}

impl Source for Mended {
    fn len(&self) -> usize {
        self.samples.len()
    }

    fn name(&self, sample: usize, name: &mut Vec<u8>) {
        name.extend_from_slice(&self.samples[sample].key);
    }

    fn origin(&self, sample: usize) -> String {
        format!("{}: {}", self.shard.name(), Key::new(self.samples[sample].key.clone()))
    }

    fn sizes(&self, sample: usize, tell: &mut dyn FnMut(&str, u64)) {
        self.samples[sample].fields.iter().for_each(|(ext, range)| tell(ext, range.end - range.start));
    }

    fn read(&self, sample: usize, fields: &mut Fields) -> Result<()> {
        let sample = &self.samples[sample];
        sample.fields.iter().try_for_each(|(ext, range)| copy_field(&self.shard, ext, range.clone(), fields))?;
        self.shard.check()?;
        self.decode(fields)
    }

    fn fingerprint(&self) -> u128 {
        let mut hash = XxHash3_128::new();
        self.samples.iter().for_each(|sample| hash.write(&sample.key));
        hash.finish_128()
    }

    fn classes(&self) -> &[String] {
        &[]
    }

    fn notes(&self) -> &[String] {
        &[]
    }
}
