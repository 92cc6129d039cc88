//! One thread's share of a run: it hands out requests until time or data are over, and counts what was done and how long
//! it took. It reads nothing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::histogram::Histogram;
use super::pattern::{Request, Walk};

/// What ends a run for all of its threads.
#[derive(Debug)]
pub(super) struct Clock<'a> {
    /// Nothing is counted before this.
    pub(super) counted_from: Instant,
    /// Nothing is begun after this.
    pub(super) deadline: Instant,
    /// Set from outside to end the run early.
    pub(super) stop: &'a AtomicBool,
    /// Set by the first thread without work: from then on the others no longer compete, so nothing more is counted.
    pub(super) exhausted: AtomicBool,
}

/// What one thread did, or all of them together.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    pub(super) requests: Histogram,
    pub(super) samples: Histogram,
    pub(super) bytes: u64,
    /// When the first counted request began.
    pub(super) first: Option<Instant>,
    /// When the last one was done.
    pub(super) last: Option<Instant>,
}

impl Tally {
    pub(super) fn merge(&mut self, other: &Self) {
        self.requests.merge(&other.requests);
        self.samples.merge(&other.samples);
        self.bytes += other.bytes;
        self.first = [self.first, other.first].into_iter().flatten().min();
        self.last = self.last.max(other.last);
    }
}

/// One thread's share of a run.
#[derive(Debug)]
pub(super) struct Feed<'a> {
    walk: Walk<'a>,
    clock: &'a Clock<'a>,
    tally: Tally,
    /// Samples that are read in several requests: when the first began.
    begun: HashMap<usize, Instant>,
}

impl<'a> Feed<'a> {
    pub(super) fn new(walk: Walk<'a>, clock: &'a Clock<'a>) -> Self {
        Self { walk, clock, tally: Tally::default(), begun: HashMap::new() }
    }

    /// The moment that the first request begins.
    pub(super) fn start(&self) -> Instant {
        Instant::now()
    }

    /// The next request, which begins `now`; `None` when the run is over.
    pub(super) fn next(&mut self, now: Instant) -> Option<Request> {
        let Clock { deadline, stop, exhausted, .. } = self.clock;
        if now >= *deadline || stop.load(Ordering::Relaxed) || exhausted.load(Ordering::Relaxed) {
            return None;
        }
        let request = self.walk.next();
        match &request {
            None => exhausted.store(true, Ordering::Relaxed),
            Some(Request { begins_sample: Some(sample), ends_sample: None, .. }) => {
                self.begun.insert(*sample, now);
            }
            Some(_) => {}
        }
        request
    }

    /// Counts a request that began at `started`; returns the moment that it was done, which is also when the next one may
    /// begin.
    pub(super) fn done(&mut self, request: &Request, started: Instant) -> Instant {
        let now = Instant::now();
        if started < self.clock.counted_from {
            return now;
        }
        let latency = now.saturating_duration_since(started);
        self.tally.requests.record(latency);
        self.tally.bytes += request.len as u64;
        // Of several under way at once a later one may be done first: that is as good a beginning.
        self.tally.first.get_or_insert(started);
        self.tally.last = Some(now);
        if let Some((sample, is_whole)) = request.ends_sample {
            let since_begun = |begun: Instant| now.saturating_duration_since(begun);
            let latency = if is_whole { latency } else { self.begun.remove(&sample).map_or(latency, since_begun) };
            self.tally.samples.record(latency);
        }
        now
    }

    /// What was done.
    pub(super) fn into_tally(self) -> Tally {
        self.tally
    }
}

/// A clock that begins to count after `warm_up` and ends after `duration` more.
impl<'a> Clock<'a> {
    pub(super) fn starting(now: Instant, warm_up: Duration, duration: Duration, stop: &'a AtomicBool) -> Self {
        let counted_from = now + warm_up;
        Self { counted_from, deadline: counted_from + duration, stop, exhausted: AtomicBool::new(false) }
    }
}
