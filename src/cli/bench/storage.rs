//! `brimful bench storage`: how fast a storage delivers shards by each method, in each pattern, cold and warm, and how many
//! GPUs that feeds. The measuring is the library's; here is what is measured, in which order, and how it is told.

mod interrupt;
mod shards;
mod place;
mod cases;
mod stages;
mod tuned;
mod document;
mod page;

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::cli::args::StorageBenchArgs;
use crate::cli::failure::{Outcome, note, warn};
use crate::cli::folders;
use crate::cli::machine::cores_available;
use crate::cli::output::{Output, write_whole};
use crate::cli::progress::Progress;
use crate::storage::{
    Cache, Case, Layout, Limits, Measurement, Method, Profile, Recommendation, cost_of_a_request, drop_all_caches,
    recommend,
};
use crate::{Error, ErrorKind};
use cases::Cases;
use document::{Document, Skipped};
use interrupt::Interrupt;
use place::Place;
use shards::Shards;
use stages::StageResult;
use tuned::Tuned;

/// Where the administrator drops the caches of the whole system.
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Share of the memory that is free for a cache in which warm data must have room.
const WARM_SHARE: f64 = 0.8;

pub(super) fn run(args: &StorageBenchArgs, output: &mut Output) -> anyhow::Result<Outcome> {
    let tuned = Tuned::find(args.tuned.as_deref())?;
    let interrupt = Interrupt::watch()?;
    let shards = Shards::gather(args, &interrupt)?;
    let place = Place::of(shards.layout.paths());
    place.notes.iter().for_each(|sentence| note(sentence));
    let (methods, mut skipped) = usable_methods(args, &shards.layout)?;
    let caches = usable_caches(args, &shards.layout, &mut skipped)?;
    let cases = Cases::plan(args, &methods, &caches, !shards.layout.samples().is_empty())?;
    let measured = measure(args, &shards.layout, cases, &interrupt, &mut skipped)?;
    for Skipped { what, reason } in &skipped {
        note(&format!("left out: {what}: {reason}"));
    }
    let recommended = recommend(&measured);
    let stages = match interrupt.is_set() {
        true => Vec::new(),
        false => stages::measure(args, &shards, recommended.as_ref(), &caches, &interrupt)?,
    };
    // Of an interrupted run, or of several storages together, nobody knows what suits one of them.
    let keeps = !args.no_profile && !interrupt.is_set() && place.mounts == 1;
    let kept = recommended.as_ref().filter(|_| keeps).and_then(|found| keep_profile(args, &shards, found));
    let cost = cost_of_a_request(&shards.layout, cases::BLOCK_BYTES)?;
    let document =
        Document::new(args, &shards, place, &measured, skipped, stages, recommended, kept, cost, tuned, &interrupt);
    document.warn_of_doubts();
    output.document(&args.document, &document, |output| document.print(output))?;
    if let Some(path) = &args.html {
        let page = page::of(&document);
        page.check()?;
        write_whole(path, page.to_html().as_bytes())?;
    }
    if interrupt.is_set() {
        warn("interrupted: what was measured until then is told, and marked");
    }
    Ok(Outcome::bad_if(interrupt.is_set()))
}

/// The methods that were asked for, or all, as far as they work here; the others with the reason.
fn usable_methods(args: &StorageBenchArgs, layout: &Layout) -> anyhow::Result<(Vec<Method>, Vec<Skipped>)> {
    let asked: &[Method] = if args.methods.is_empty() { &Method::ALL } else { &args.methods };
    let (mut usable, mut skipped, mut refused) = (Vec::new(), Vec::new(), None);
    for &method in asked {
        match method.check(layout.path(0)) {
            Ok(()) => usable.push(method),
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                skipped.push(Skipped::because(method.as_str(), &error));
                refused = refused.or(Some(error));
            }
            Err(error) => return Err(error.into()),
        }
    }
    match refused {
        // None of those that were asked for: that is a failure, not something left out.
        Some(error) if usable.is_empty() => Err(error.into()),
        _ => Ok((usable, skipped)),
    }
}

/// The states of the cache that were asked for; data that do not fit into memory cannot be warm.
fn usable_caches(args: &StorageBenchArgs, layout: &Layout, skipped: &mut Vec<Skipped>) -> anyhow::Result<Vec<Cache>> {
    let free = crate::cli::system::System::here().kilobytes("/proc/meminfo", "MemAvailable").unwrap_or(u64::MAX);
    let mut caches = args.cache.clone();
    caches.dedup();
    if layout.bytes() as f64 > free as f64 * WARM_SHARE && caches.contains(&Cache::Warm) {
        let message = format!("{} bytes of shards do not fit into the {free} bytes of free memory", layout.bytes());
        let error = Error::new(ErrorKind::Limit, message).with_hint("give fewer shards, or --cache cold");
        if caches == [Cache::Warm] {
            return Err(error.into());
        }
        skipped.push(Skipped::because("warm", &error));
        caches.retain(|cache| *cache != Cache::Warm);
    }
    Ok(caches)
}

/// Runs all cases in turn, round after round, so that a machine that slows down slows all of them.
fn measure(
    args: &StorageBenchArgs,
    layout: &Layout,
    cases: Cases,
    interrupt: &Interrupt,
    skipped: &mut Vec<Skipped>,
) -> anyhow::Result<Vec<Measurement>> {
    let mut measured: Vec<Measurement> =
        cases.0.into_iter().map(|case| Measurement { case, runs: Vec::new() }).collect();
    let steps = measured.len() * args.runs;
    let progress = Progress::new("measuring", steps);
    for round in 0..args.runs {
        if args.drop_caches && measured.iter().any(|found| found.case.cache == Cache::Cold) {
            drop_all_caches(Path::new(DROP_CACHES))?;
        }
        for number in 0..measured.len() {
            if interrupt.is_set() {
                break;
            }
            let case = measured[number].case;
            match crate::storage::run(layout, &case, &limits(args, round, interrupt)) {
                // A run that was cut short says nothing.
                Ok(_) if interrupt.is_set() => {}
                Ok(run) => measured[number].runs.push(run),
                // Refused at this size only, such as more memory than is allowed.
                Err(error) if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Limit) => {
                    if round == 0 {
                        skipped.push(Skipped::because(&case_text(&case), &error));
                    }
                }
                Err(error) => return Err(error.into()),
            }
            progress.set(round * measured.len() + number + 1, steps);
        }
    }
    measured.retain(|found| !found.runs.is_empty());
    if measured.is_empty() {
        let error = match interrupt.is_set() {
            true => Error::new(ErrorKind::Cancelled, "interrupted before anything was measured"),
            false => Error::new(ErrorKind::Unsupported, "nothing could be measured: see what was left out, and why"),
        };
        return Err(error.into());
    }
    Ok(measured)
}

fn limits<'a>(args: &StorageBenchArgs, round: usize, interrupt: &'a Interrupt) -> Limits<'a> {
    Limits {
        warm_up: args.warm_up.map_or(Duration::ZERO, Duration::from_secs_f64),
        duration: Duration::from_secs_f64(args.duration),
        seed: round as u64,
        stop: interrupt.flag(),
    }
}

fn case_text(case: &Case) -> String {
    format!(
        "{} {} on {} threads, depth {}",
        case.method.as_str(),
        case.pattern.as_str(),
        case.threads,
        case.queue_depth
    )
}

/// Keeps what was found for loaders; returns the file. Made shards say as much about their file system as any.
fn keep_profile(args: &StorageBenchArgs, shards: &Shards, recommended: &Recommendation) -> Option<PathBuf> {
    let folder = args.profile_dir.clone().unwrap_or_else(folders::cache);
    let kept = Profile::new(shards.layout.path(0), *recommended).and_then(|profile| profile.save(&folder));
    match kept {
        Ok(path) => Some(path),
        Err(error) => {
            warn(&format!("what was found is not kept: {error}"));
            None
        }
    }
}

impl Interrupt {
    fn is_set(&self) -> bool {
        self.flag().load(Ordering::Relaxed)
    }
}

/// Processors of this process: what a run's processor time is compared with.
fn cores() -> usize {
    cores_available()
}
