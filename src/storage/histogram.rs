//! Counts of latencies in buckets whose width grows with the latency: any percentile of any number of requests from a
//! few kilobytes, at most 1/64 too large. It keeps no single latency, except the largest.

use std::time::Duration;

/// Buckets of one doubling; the error of a percentile is one of these.
const STEPS: u64 = 64;
const STEP_BITS: u32 = STEPS.trailing_zeros();

/// Buckets for every number of nanoseconds that a u64 holds.
const BUCKETS: usize = ((64 - STEP_BITS as usize) + 1) * STEPS as usize;

/// How many requests took how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], count: 0, max_ns: 0 }
    }
}

impl Histogram {
    /// Counts one latency.
    pub fn record(&mut self, latency: Duration) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket_of(ns)] += 1;
        self.count += 1;
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds the counts of another one.
    pub fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(mine, other)| *mine += other);
        self.count += other.count;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// How many latencies were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The largest latency, exactly.
    #[must_use]
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max_ns)
    }

    /// The least latency that a share of at least `percent` / 100 of all do not exceed, rounded up by at most 1/64;
    /// `None` where nothing was counted. `percent` is taken as between 0 and 100.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Option<Duration> {
        if self.count == 0 {
            return None;
        }
        // The nearest-rank rule: rank 1 is the smallest.
        let rank = (percent.clamp(0.0, 100.0) / 100.0 * self.count as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            below += count;
            if below >= rank {
                return Some(Duration::from_nanos(last_of(bucket).min(self.max_ns)));
            }
        }
        Some(self.max())
    }

    /// Share of latencies above each of the limits of the buckets that hold any, ascending: the distribution's tail.
    #[must_use]
    pub fn tail(&self) -> Vec<(Duration, f64)> {
        let mut above = self.count;
        let mut tail = Vec::new();
        for (bucket, &count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            above -= count;
            let limit = Duration::from_nanos(last_of(bucket).min(self.max_ns));
            tail.push((limit, above as f64 / self.count as f64));
        }
        tail
    }
}

/// The bucket of a number: itself below `STEPS`, then `STEPS` buckets a doubling.
fn bucket_of(ns: u64) -> usize {
    if ns < STEPS {
        return ns as usize;
    }
    let doublings = ns.ilog2() - STEP_BITS;
    let step = (ns >> doublings) - STEPS;
    ((u64::from(doublings) + 1) * STEPS + step) as usize
}

/// The largest number of a bucket.
fn last_of(bucket: usize) -> u64 {
    let (doublings, step) = (bucket as u64 / STEPS, bucket as u64 % STEPS);
    match doublings {
        0 => step,
        _ => {
            let first = (STEPS + step) << (doublings - 1);
            first + ((1 << (doublings - 1)) - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(latencies: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        latencies.iter().for_each(|ns| histogram.record(Duration::from_nanos(*ns)));
        histogram
    }

    #[test]
    fn nothing_has_no_percentiles() {
        let histogram = Histogram::default();
        assert_eq!((histogram.percentile(50.0), histogram.max(), histogram.tail()), (None, Duration::ZERO, Vec::new()));
    }

    #[test]
    fn small_numbers_are_exact() {
        let histogram = of(&(1..=50).collect::<Vec<_>>());
        let check =
            |percent, ns| assert_eq!(histogram.percentile(percent), Some(Duration::from_nanos(ns)), "{percent}");
        check(0.0, 1);
        check(50.0, 25);
        check(99.0, 50);
        check(100.0, 50);
        assert_eq!(histogram.tail().last(), Some(&(Duration::from_nanos(50), 0.0)));
    }

    #[test]
    fn buckets_follow_each_other() {
        for bucket in 1..BUCKETS - 1 {
            let (before, last) = (last_of(bucket - 1), last_of(bucket));
            assert!(before < last);
            assert_eq!((bucket_of(before + 1), bucket_of(last)), (bucket, bucket));
        }
        assert_eq!((bucket_of(u64::MAX), last_of(BUCKETS - 1)), (BUCKETS - 1, u64::MAX));
    }

    proptest! {
        #[test]
        fn a_percentile_is_that_of_the_sorted_list_or_a_little_more(
            latencies in proptest::collection::vec(prop_oneof![0_u64..200, 0_u64..10_000_000, any::<u64>()], 1..300),
            percent in 0.0_f64..=100.0,
        ) {
            let mut sorted = latencies.clone();
            sorted.sort_unstable();
            let rank = ((percent / 100.0 * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len());
            let exact = sorted[rank - 1];
            let found = of(&latencies).percentile(percent).unwrap().as_nanos() as u64;
            prop_assert!(found >= exact, "{} below {}", found, exact);
            prop_assert!(found - exact <= exact / STEPS, "{} too far above {}", found, exact);
        }

        #[test]
        fn merging_is_counting_together(
            a in proptest::collection::vec(any::<u64>(), 0..50),
            b in proptest::collection::vec(any::<u64>(), 0..50),
        ) {
            let mut merged = of(&a);
            merged.merge(&of(&b));
            prop_assert_eq!(merged, of(&[a, b].concat()));
        }
    }
}
