//! All runs of one case together, and what makes its figures doubtful.

use std::time::Duration;

use super::histogram::Histogram;
use super::run::{Cache, Case, Run};
use super::statistics::median;

/// Runs that lie farther apart than this, as a share of their median, disagree.
const SPREAD_MAX: f64 = 0.1;

/// Share of the files' pages that may be resident before a cold run.
const RESIDENT_MAX: f64 = 0.02;

/// Share of its bytes that a cold run must have got from storage.
const DELIVERED_MIN: f64 = 0.9;

/// Share of its threads' time that a run may compute for before it is the processor that limits it.
const COMPUTING_MAX: f64 = 0.85;

/// Runs that are shorter say little.
const TIME_MIN: Duration = Duration::from_millis(50);

/// A case and its runs, at least one.
#[derive(Debug, Clone)]
pub struct Measurement {
    /// What was measured.
    pub case: Case,
    /// The runs in the order in which they were made.
    pub runs: Vec<Run>,
}

/// Why a figure should be taken with care.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Doubt {
    /// Runs lie far apart: the distance of the farthest from the median, as a share of it.
    RunsDisagree(f64),
    /// Pages were resident before a cold run, and which share of them.
    Resident(f64),
    /// Storage delivered only this share of what a cold run read: something cached it.
    NotDelivered(f64),
    /// Not all pages were resident before a warm run, and which share of them was.
    NotWarm(f64),
    /// The processor was the limit, not storage: the share of the threads' time that was computed.
    ProcessorBound(f64),
    /// The data were read before the shortest run could say much: its time in seconds.
    Short(f64),
}

impl Measurement {
    /// Megabytes (1,000,000 bytes) a second of each run.
    #[must_use]
    pub fn mb_per_s(&self) -> Vec<f64> {
        self.runs.iter().map(Run::mb_per_s).collect()
    }

    /// The median of what each run gives; `None` where no run does.
    #[must_use]
    pub fn median(&self, value: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.runs.iter().filter_map(value).collect();
        (!values.is_empty()).then(|| median(&values))
    }

    /// Latencies of requests, all runs together.
    #[must_use]
    pub fn requests(&self) -> Histogram {
        self.merged(|run| &run.requests)
    }

    /// Latencies of samples, all runs together; empty where they were not counted.
    #[must_use]
    pub fn samples(&self) -> Histogram {
        self.merged(|run| &run.sample_latencies)
    }

    fn merged(&self, of: impl Fn(&Run) -> &Histogram) -> Histogram {
        let mut merged = Histogram::default();
        self.runs.iter().for_each(|run| merged.merge(of(run)));
        merged
    }

    /// What makes the figures doubtful, on a machine with `cores` processors for this process.
    #[must_use]
    pub fn doubts(&self, cores: usize) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        let rates = self.mb_per_s();
        let middle = median(&rates);
        let farthest = rates.iter().map(|rate| (rate - middle).abs()).fold(0.0, f64::max);
        if middle > 0.0 && farthest / middle > SPREAD_MAX {
            doubts.push(Doubt::RunsDisagree(farthest / middle));
        }
        let is_direct = self.case.method.is_direct();
        let resident = self.median(|run| run.resident_before);
        match (self.case.cache, resident) {
            // What bypasses the cache does not care what is in it.
            (Cache::Cold, Some(share)) if share > RESIDENT_MAX && !is_direct => doubts.push(Doubt::Resident(share)),
            (Cache::Warm, Some(share)) if share < 1.0 - RESIDENT_MAX => doubts.push(Doubt::NotWarm(share)),
            _ => {}
        }
        let delivered = self.median(|run| Some(run.process_bytes? as f64 / run.bytes.max(1) as f64));
        if let Some(share) = delivered.filter(|share| self.case.cache == Cache::Cold && *share < DELIVERED_MIN) {
            doubts.push(Doubt::NotDelivered(share));
        }
        let at_once = self.case.threads.min(cores.max(1)) as f64;
        let computing = self.median(|run| Some(run.cpu.as_secs_f64() / run.time.as_secs_f64().max(1e-9) / at_once));
        if let Some(share) = computing.filter(|share| *share > COMPUTING_MAX) {
            doubts.push(Doubt::ProcessorBound(share.min(1.0)));
        }
        let shortest = self.runs.iter().map(|run| run.time).min().unwrap_or_default();
        if shortest < TIME_MIN {
            doubts.push(Doubt::Short(shortest.as_secs_f64()));
        }
        doubts
    }
}

impl Doubt {
    /// The doubt as one `snake_case` word, as documents spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RunsDisagree(_) => "runs_disagree",
            Self::Resident(_) => "resident",
            Self::NotDelivered(_) => "not_delivered",
            Self::NotWarm(_) => "not_warm",
            Self::ProcessorBound(_) => "processor_bound",
            Self::Short(_) => "short",
        }
    }
}

impl std::fmt::Display for Doubt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let percent = |share: f64| 100.0 * share;
        match *self {
            Self::RunsDisagree(share) => write!(f, "runs disagree: one lies {:.0} % off the median", percent(share)),
            Self::Resident(share) => {
                write!(
                    f,
                    "{:.0} % of the pages were cached before a cold run: someone maps or reads them",
                    percent(share)
                )
            }
            Self::NotDelivered(share) => {
                write!(
                    f,
                    "storage delivered only {:.0} % of the bytes of a cold run: the rest was cached",
                    percent(share)
                )
            }
            Self::NotWarm(share) => {
                write!(f, "only {:.0} % of the pages stayed cached: memory is short", percent(share))
            }
            Self::ProcessorBound(share) => {
                write!(f, "the processor was the limit, {:.0} % busy, not the storage", percent(share))
            }
            Self::Short(seconds) => write!(f, "all was read within {:.0} ms: give more data", 1000.0 * seconds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::method::Method;
    use super::super::pattern::Pattern;
    use super::*;

    fn run(mb_per_s: f64) -> Run {
        Run {
            time: Duration::from_secs(1),
            bytes: (mb_per_s * 1e6) as u64,
            samples: None,
            requests: Histogram::default(),
            sample_latencies: Histogram::default(),
            cpu: Duration::from_millis(500),
            major_faults: None,
            process_bytes: Some((mb_per_s * 1e6) as u64),
            device_bytes: None,
            resident_before: Some(0.0),
        }
    }

    fn doubts(method: Method, cache: Cache, runs: Vec<Run>) -> Vec<&'static str> {
        let case = Case { method, pattern: Pattern::Sequential, threads: 2, block_bytes: 1, queue_depth: 1, cache };
        Measurement { case, runs }.doubts(2).into_iter().map(Doubt::as_str).collect()
    }

    #[test]
    fn each_doubt_has_its_sign() {
        let cold = |runs| doubts(Method::Pread, Cache::Cold, runs);
        assert_eq!(cold(vec![run(100.0), run(105.0), run(98.0)]), [] as [&str; 0]);
        assert_eq!(cold(vec![run(100.0), run(140.0), run(98.0)]), ["runs_disagree"]);
        let resident = Run { resident_before: Some(0.4), ..run(100.0) };
        assert_eq!(cold(vec![resident.clone()]), ["resident"]);
        assert_eq!(doubts(Method::Direct, Cache::Cold, vec![resident]), [] as [&str; 0]);
        assert_eq!(cold(vec![Run { process_bytes: Some(50_000_000), ..run(100.0) }]), ["not_delivered"]);
        assert_eq!(cold(vec![Run { cpu: Duration::from_millis(1900), ..run(100.0) }]), ["processor_bound"]);
        let short = Run { time: Duration::from_millis(3), cpu: Duration::ZERO, ..run(100.0) };
        assert_eq!(cold(vec![short]), ["short"]);
        let warm = |resident| Run { resident_before: Some(resident), process_bytes: Some(0), ..run(100.0) };
        assert_eq!(doubts(Method::Pread, Cache::Warm, vec![warm(1.0)]), [] as [&str; 0]);
        assert_eq!(doubts(Method::Pread, Cache::Warm, vec![warm(0.5)]), ["not_warm"]);
    }
}
