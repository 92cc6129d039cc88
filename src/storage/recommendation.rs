//! Which method, how many threads and which sizes suit a storage, from what was measured on it. It prefers the simple
//! where the difference is small.

use serde::{Deserialize, Serialize};

use super::measurement::Measurement;
use super::method::Method;
use super::pattern::Pattern;
use super::run::{Cache, Run};

/// Rates that are this close to the best are as good: what needs fewer threads and requests wins.
const CLOSE: f64 = 0.95;

/// How many times faster reads past the cache must be: they give up what the cache keeps for the next epoch.
const DIRECT_GAIN_MIN: f64 = 1.15;

/// What a loader should do on a storage.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Recommendation {
    /// How bytes are read; one of those that a loader has.
    pub method: Method,
    /// Threads that read.
    pub threads: usize,
    /// Bytes of a request when whole shards are read.
    pub block_bytes: u64,
    /// Requests under way in each thread.
    pub queue_depth: usize,
    /// Samples that should be asked for ahead: as many as are read at once.
    pub samples_ahead: usize,
    /// Megabytes (1,000,000 bytes) a second that this gave, cold.
    pub mb_per_s: f64,
    /// Samples a second that this gave, cold, where samples were known.
    pub samples_per_s: Option<f64>,
}

/// What suits a loader that shuffles all samples, or whole shards where samples at random were not measured; `None`
/// where nothing was measured cold by a method that a loader has.
#[must_use]
pub fn recommend(measured: &[Measurement]) -> Option<Recommendation> {
    let cold = |pattern: Pattern| {
        move |found: &&Measurement| {
            found.case.cache == Cache::Cold && found.case.pattern == pattern && is_loaders(found.case.method)
        }
    };
    let members: Vec<_> = measured.iter().filter(cold(Pattern::Members)).collect();
    let streams: Vec<_> = measured.iter().filter(cold(Pattern::Sequential)).collect();
    let chosen = choose(if members.is_empty() { &streams } else { &members })?;
    let method = chosen.case.method;
    let of_method: Vec<_> = streams.into_iter().filter(|found| found.case.method == method).collect();
    let blocks = choose_by(&of_method, |found| found.case.block_bytes);
    Some(Recommendation {
        method,
        threads: chosen.case.threads,
        block_bytes: blocks.map_or(chosen.case.block_bytes, |found| found.case.block_bytes),
        queue_depth: chosen.case.queue_depth,
        samples_ahead: chosen.case.threads * chosen.case.queue_depth,
        mb_per_s: rate(chosen),
        samples_per_s: chosen.median(Run::samples_per_s),
    })
}

/// Whether a loader can read so; a map that is only touched and registered buffers are there for comparison.
fn is_loaders(method: Method) -> bool {
    matches!(method, Method::MmapPopulate | Method::Pread | Method::Direct | Method::Uring)
}

fn choose<'a>(measured: &[&'a Measurement]) -> Option<&'a Measurement> {
    let place = |method: Method| Method::ALL.iter().position(|other| *other == method);
    let simplest = |found: &[&'a Measurement]| {
        choose_by(found, |found| {
            (place(found.case.method), found.case.threads * found.case.queue_depth, found.case.threads)
        })
    };
    let (direct, cached): (Vec<_>, Vec<_>) = measured.iter().partition(|found| found.case.method.is_direct());
    match (simplest(&cached), simplest(&direct)) {
        (Some(cached), Some(direct)) if rate(direct) > rate(cached) * DIRECT_GAIN_MIN => Some(direct),
        (cached, direct) => cached.or(direct),
    }
}

/// Of those that are close to the best the one with the least `key`.
fn choose_by<'a, K: Ord>(measured: &[&'a Measurement], key: impl Fn(&Measurement) -> K) -> Option<&'a Measurement> {
    let best = measured.iter().map(|found| rate(found)).fold(0.0, f64::max);
    measured.iter().filter(|found| rate(found) >= best * CLOSE).min_by_key(|found| key(found)).copied()
}

fn rate(measured: &Measurement) -> f64 {
    super::statistics::median(&measured.mb_per_s())
}

#[cfg(test)]
mod tests {
    use super::super::histogram::Histogram;
    use super::super::run::Case;
    use super::*;
    use std::time::Duration;

    fn measured(method: Method, pattern: Pattern, threads: usize, block_bytes: u64, mb_per_s: f64) -> Measurement {
        let queue_depth = if method.has_depth() { 8 } else { 1 };
        let case = Case { method, pattern, threads, block_bytes, queue_depth, cache: Cache::Cold };
        let run = Run {
            time: Duration::from_secs(1),
            bytes: (mb_per_s * 1e6) as u64,
            samples: Some(mb_per_s * 10.0),
            requests: Histogram::default(),
            sample_latencies: Histogram::default(),
            cpu: Duration::ZERO,
            major_faults: None,
            process_bytes: None,
            device_bytes: None,
            resident_before: None,
        };
        Measurement { case, runs: vec![run] }
    }

    #[test]
    fn the_simplest_of_the_fast_ones_is_chosen() {
        use Method::{Direct, Mmap, MmapPopulate, Pread, Uring, UringRegistered};
        let members = |method, threads, rate| measured(method, Pattern::Members, threads, 1, rate);
        let check = |measured: &[Measurement], method, threads| {
            let found = recommend(measured).unwrap();
            assert_eq!((found.method, found.threads), (method, threads));
        };
        check(&[members(Pread, 2, 100.0), members(Pread, 8, 300.0), members(Pread, 16, 310.0)], Pread, 8);
        check(&[members(MmapPopulate, 4, 100.0), members(Pread, 4, 102.0)], MmapPopulate, 4);
        check(&[members(Pread, 4, 100.0), members(Direct, 8, 110.0)], Pread, 4);
        check(&[members(Pread, 4, 100.0), members(Direct, 8, 190.0), members(Uring, 1, 200.0)], Direct, 8);
        check(&[members(Pread, 4, 100.0), members(Mmap, 4, 900.0), members(UringRegistered, 1, 900.0)], Pread, 4);
        check(&[members(Direct, 4, 100.0)], Direct, 4);
        assert_eq!(recommend(&[members(Mmap, 4, 100.0)]), None);
        assert_eq!(recommend(&[]), None);
    }

    #[test]
    fn blocks_come_from_reading_whole_shards() {
        let whole = |block, rate| measured(Method::Pread, Pattern::Sequential, 2, block, rate);
        let mut all = vec![whole(4096, 50.0), whole(65536, 198.0), whole(1 << 20, 200.0)];
        assert_eq!(recommend(&all).map(|found| (found.threads, found.block_bytes)), Some((2, 65536)));
        all.push(measured(Method::Pread, Pattern::Members, 4, 1 << 18, 90.0));
        let found = recommend(&all).unwrap();
        assert_eq!((found.threads, found.block_bytes, found.mb_per_s), (4, 65536, 90.0));
        assert_eq!(found.samples_per_s, Some(900.0));
    }
}
