//! One run: a source is read by some threads in some pattern for a while, from a cache in a known state, and everything is
//! counted. How runs repeat and what they mean is for others to say.

use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::counters::{Counters, DeviceNumber, delivered};
use super::feed::{Clock, Feed, Tally};
use super::histogram::Histogram;
use super::layout::Layout;
use super::method::Method;
use super::pattern::{Pattern, Plan};
use super::residency::{evict, resident_share, warm};
use super::source::{Source, check_depth, check_memory};
use crate::error::{Error, ErrorKind, Result};
use crate::shard::filesystem_of;

/// Threads at most.
pub const THREADS_MAX: usize = 1024;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Case {
    /// How bytes are read.
    pub method: Method,
    /// In which order.
    pub pattern: Pattern,
    /// By how many threads, 1 to 1,024.
    pub threads: usize,
    /// Bytes of a request; under [`Pattern::Members`] a request is a sample.
    pub block_bytes: u64,
    /// Requests under way in each thread, for methods that have several; 1 for others.
    pub queue_depth: usize,
    /// What is in the page cache before.
    pub cache: Cache,
}

/// What is in the page cache before a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cache {
    /// Nothing of the files; each byte is read once at most.
    Cold,
    /// All of the files; they are read again and again.
    Warm,
}

impl Cache {
    /// The state as one word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Warm => "warm",
        }
    }
}

/// How long a run is, and what ends it.
#[derive(Debug, Clone, Copy)]
pub struct Limits<'a> {
    /// Time before anything is counted.
    pub warm_up: Duration,
    /// Time that is counted, unless the data end before.
    pub duration: Duration,
    /// Seed of random orders.
    pub seed: u64,
    /// Set by anyone to end the run early.
    pub stop: &'a AtomicBool,
}

/// What one run came to.
#[derive(Debug, Clone)]
pub struct Run {
    /// From the first counted request's beginning to the last one's end.
    pub time: Duration,
    /// Bytes asked for and delivered.
    pub bytes: u64,
    /// Samples, counted under [`Pattern::Members`] and otherwise told from the bytes; `None` without samples.
    pub samples: Option<f64>,
    /// Latencies of requests.
    pub requests: Histogram,
    /// Latencies of whole samples; empty but under [`Pattern::Members`].
    pub sample_latencies: Histogram,
    /// Processor time of the process while the run lasted.
    pub cpu: Duration,
    /// Page faults that waited for storage.
    pub major_faults: Option<u64>,
    /// Bytes that storage delivered to this process, as the kernel counts them; `None` where it does not.
    pub process_bytes: Option<u64>,
    /// Bytes that the device delivered to anyone meanwhile.
    pub device_bytes: Option<u64>,
    /// Share of the files' pages that were in the page cache before the run, 0 to 1.
    pub resident_before: Option<f64>,
}

impl Run {
    /// Megabytes (1,000,000 bytes) a second.
    #[must_use]
    pub fn mb_per_s(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.time.as_secs_f64().max(1e-9)
    }

    /// Samples a second.
    #[must_use]
    pub fn samples_per_s(&self) -> Option<f64> {
        Some(self.samples? / self.time.as_secs_f64().max(1e-9))
    }

    /// Requests a second.
    #[must_use]
    pub fn iops(&self) -> f64 {
        self.requests.count() as f64 / self.time.as_secs_f64().max(1e-9)
    }
}

/// Puts the cache into the state that `case` asks for, opens the files, and runs it.
///
/// # Errors
/// Those of [`Source::open`]; [`ErrorKind::ShardChanged`] when a file changes, [`ErrorKind::Io`] when one cannot be read,
/// [`ErrorKind::InvalidOption`] for numbers out of range.
pub fn run(layout: &Layout, case: &Case, limits: &Limits<'_>) -> Result<Run> {
    check_depth(case.queue_depth)?;
    layout.check()?;
    let resident_before = prepare(layout, case.cache)?;
    let source = Source::open(layout, case.method, case.pattern, case.queue_depth)?;
    let run = run_source(layout, &source, case, limits)?;
    layout.check()?;
    Ok(Run { resident_before, ..run })
}

/// Evicts or warms the files; returns the share of them that is resident then.
fn prepare(layout: &Layout, cache: Cache) -> Result<Option<f64>> {
    for path in layout.paths() {
        match cache {
            Cache::Cold => evict(path)?,
            Cache::Warm if resident_share(path)? == Some(1.0) => {}
            Cache::Warm => warm(path)?,
        }
    }
    resident(layout)
}

/// The share of all files' bytes that is resident; `None` where the kernel does not tell.
pub fn resident(layout: &Layout) -> Result<Option<f64>> {
    let mut bytes = 0.0;
    for (file, path) in layout.paths().enumerate() {
        let Some(share) = resident_share(path)? else { return Ok(None) };
        bytes += share * layout.size(file) as f64;
    }
    Ok(Some(bytes / layout.bytes() as f64))
}

/// Runs `case` on an open source, whatever its method, with the cache as it is.
///
/// # Errors
/// As [`run`].
pub fn run_source(layout: &Layout, source: &Source, case: &Case, limits: &Limits<'_>) -> Result<Run> {
    if !(1..=THREADS_MAX).contains(&case.threads) {
        let message = format!("threads={} is not between 1 and {THREADS_MAX}", case.threads);
        return Err(Error::new(ErrorKind::InvalidOption, message));
    }
    let repeats = case.cache == Cache::Warm;
    let plan = Plan::new(layout, case.pattern, case.threads, case.block_bytes, limits.seed, repeats)?;
    let device = DeviceNumber::of(layout.path(0));
    let is_network = filesystem_of(layout.path(0)).is_ok_and(|found| found.is_network);
    let at_start = Barrier::new(case.threads + 1);
    let request_bytes_max = plan.request_bytes_max();
    check_memory(case.threads, case.queue_depth, request_bytes_max)?;
    // Far enough ahead that every thread is there; the clock itself is set when all are.
    let clock = std::sync::OnceLock::new();
    let (tally, used) = thread::scope(|scope| {
        let work = || {
            let reader = source.reader(request_bytes_max);
            at_start.wait();
            // The second wait is for the clock, which whoever made the threads sets in between.
            at_start.wait();
            let clock: &Clock<'_> =
                clock.get().ok_or_else(|| Error::new(ErrorKind::Cancelled, "the run never began"))?;
            let mut feed = Feed::new(plan.walk(), clock);
            let ran = reader.and_then(|reader| reader.run(layout, &mut feed));
            if ran.is_err() {
                // The others would only read on for an answer that nobody gets.
                clock.exhausted.store(true, std::sync::atomic::Ordering::Relaxed);
            }
            ran.map(|()| feed.into_tally())
        };
        let threads: Vec<_> = (0..case.threads).map(|_| scope.spawn(work)).collect();
        at_start.wait();
        let before = Counters::now(device);
        clock.get_or_init(|| Clock::starting(Instant::now(), limits.warm_up, limits.duration, limits.stop));
        at_start.wait();
        let mut tally = Tally::default();
        let mut failed = None;
        for thread in threads {
            match thread.join() {
                Ok(Ok(done)) => tally.merge(&done),
                Ok(Err(error)) => failed = failed.or(Some(error)),
                Err(_) => failed = failed.or_else(|| Some(Error::new(ErrorKind::Io, "a reading thread panicked"))),
            }
        }
        let used = Counters::now(device).since(&before);
        failed.map_or(Ok((tally, used)), Err)
    })?;
    let time =
        tally.first.zip(tally.last).map_or(Duration::ZERO, |(first, last)| last.saturating_duration_since(first));
    let samples = match case.pattern {
        Pattern::Members => Some(tally.samples.count() as f64),
        _ => layout.bytes_a_sample().map(|bytes| tally.bytes as f64 / bytes),
    };
    Ok(Run {
        time,
        bytes: tally.bytes,
        samples,
        requests: tally.requests,
        sample_latencies: tally.samples,
        cpu: used.cpu,
        major_faults: used.major_faults,
        process_bytes: delivered(used.process_bytes, is_network),
        device_bytes: used.device_bytes,
        resident_before: None,
    })
}

/// Processor time that measuring one request costs by itself, in one thread: a run that reads nothing.
///
/// # Errors
/// Those of making a plan.
pub fn cost_of_a_request(layout: &Layout, block_bytes: u64) -> Result<Duration> {
    let stop = AtomicBool::new(false);
    let limits = Limits { warm_up: Duration::ZERO, duration: Duration::from_millis(100), seed: 0, stop: &stop };
    let case = Case {
        method: Method::Pread,
        pattern: Pattern::Sequential,
        threads: 1,
        block_bytes,
        queue_depth: 1,
        cache: Cache::Warm,
    };
    let run = run_source(layout, &Source::nothing(), &case, &limits)?;
    Ok(run.cpu.div_f64(run.requests.count().max(1) as f64))
}

/// Drops what the whole system has cached of all files, as the administrator may.
///
/// # Errors
/// [`ErrorKind::Io`] where that is not permitted.
pub fn drop_all_caches(control: &Path) -> Result<()> {
    std::fs::write(control, b"3\n").map_err(|error| {
        Error::io(format!("cannot drop the system's caches by '{}'", control.display()), error)
            .with_hint("only the administrator may; without --drop-caches only the shards' own pages are evicted")
    })
}
