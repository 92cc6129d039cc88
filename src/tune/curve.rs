//! What is known of step time, activity and memory over batch size, and what follows from it: the plateau, the knee, the
//! size that fits. It chooses nothing and forgets nothing.

use serde::{Deserialize, Serialize};

use super::window::Measurement;

/// Measurements kept of one size.
const KEPT_MAX: usize = 8;

/// Two measurements of one size that differ by more than this disagree: something slowed one of them down.
const AGREE: f64 = 0.05;

/// A line through step times passes this near to each of them, or it is none.
const ON_LINE: f64 = 0.04;

/// How far real step times lie off that line without noise, and how much windows differ for no reason that shows in them.
const OFF_LINE: f64 = 0.006;
const UNSEEN_ERROR: f64 = 0.006;

/// Rates that differ by less than this are the same.
const SAME: f64 = 0.015;

/// A rate this near to the one wanted has reached it: asking for all of it would let noise chase the size upwards.
const ENOUGH: f64 = 0.994;

/// A step time this far above the straight line between its neighbours was disturbed: larger batches never take less.
const DENT: f64 = 1.05;

/// One measurement in its place in time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Seen {
    /// Its number among all measurements.
    at: u64,
    throughput: f64,
    /// Relative standard error.
    error: f64,
    is_throttled: bool,
}

/// One batch size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Point {
    pub(super) size: usize,
    seen: Vec<Seen>,
    /// The latest of each.
    pub(super) sm_active: Option<f64>,
    pub(super) gpu_busy: Option<f64>,
    pub(super) wait_share: f64,
    pub(super) memory_bytes: Option<u64>,
}

impl Point {
    /// Measurements of this size.
    pub(super) fn windows(&self) -> usize {
        self.seen.len()
    }

    /// Samples a second: the mean of the measurements that agree with the best. What slows a device down only ever
    /// lowers a rate.
    pub(super) fn throughput(&self) -> f64 {
        let best = self.seen.iter().map(|seen| seen.throughput).fold(0.0, f64::max);
        let near: Vec<f64> =
            self.seen.iter().map(|seen| seen.throughput).filter(|rate| *rate >= best * (1.0 - AGREE)).collect();
        near.iter().sum::<f64>() / near.len().max(1) as f64
    }

    /// Relative standard error of the rate, as far as single steps tell.
    pub(super) fn error(&self) -> f64 {
        let count = self.seen.len().max(1) as f64;
        (self.seen.iter().map(|seen| seen.error.powi(2)).sum::<f64>()).sqrt() / count
    }

    /// Whether it was only ever measured while the device was throttled.
    fn is_throttled(&self) -> bool {
        !self.seen.is_empty() && self.seen.iter().all(|seen| seen.is_throttled)
    }

    fn latest(&self) -> f64 {
        self.seen.last().map_or(0.0, |seen| seen.throughput)
    }

    /// Time of a step in seconds.
    pub(super) fn step_s(&self) -> f64 {
        self.size as f64 / self.throughput().max(1e-9)
    }
}

/// All sizes that were run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Curve {
    points: Vec<Point>,
    measurements: u64,
    memory_limit_bytes: Option<u64>,
}

impl Curve {
    pub(super) fn push(&mut self, made: &Measurement) {
        self.measurements += 1;
        let seen = Seen {
            at: self.measurements,
            throughput: made.throughput(),
            error: made.error,
            is_throttled: made.is_throttled,
        };
        self.memory_limit_bytes = made.memory_limit_bytes.or(self.memory_limit_bytes);
        let at = self.points.partition_point(|point| point.size < made.batch_size);
        if self.points.get(at).is_none_or(|point| point.size != made.batch_size) {
            let point = Point {
                size: made.batch_size,
                seen: Vec::new(),
                sm_active: None,
                gpu_busy: None,
                wait_share: 0.0,
                memory_bytes: None,
            };
            self.points.insert(at, point);
        }
        let point = &mut self.points[at];
        if point.seen.len() == KEPT_MAX {
            point.seen.remove(0);
        }
        point.seen.push(seen);
        point.sm_active = made.sm_active.or(point.sm_active);
        point.gpu_busy = made.gpu_busy.or(point.gpu_busy);
        point.wait_share = made.wait_share;
        point.memory_bytes = point.memory_bytes.max(made.memory_bytes);
    }

    /// Whether a curve that was read from outside is one that this code could have made.
    pub(super) fn is_sound(&self) -> bool {
        let ascends = self.points.windows(2).all(|pair| pair[0].size < pair[1].size);
        let is_rate = |seen: &Seen| seen.throughput.is_finite() && seen.throughput > 0.0 && seen.error.is_finite();
        ascends && self.points.iter().all(|point| point.size > 0 && point.seen.iter().all(is_rate))
    }

    pub(super) fn points(&self) -> &[Point] {
        &self.points
    }

    pub(super) fn get(&self, size: usize) -> Option<&Point> {
        self.points.iter().find(|point| point.size == size)
    }

    /// The size that was measured next below `size`.
    pub(super) fn below(&self, size: usize) -> Option<&Point> {
        self.points.iter().rev().find(|point| point.size < size)
    }

    /// The size at which the rate would reach `wanted`, with step times on a straight line between two points.
    pub(super) fn crossing(&self, low: &Point, high: &Point, wanted: f64) -> f64 {
        let step = |point: &Point| point.size as f64 / self.smooth(point).max(1e-9);
        let slope = (step(high) - step(low)) / (high.size - low.size) as f64;
        let size = wanted * (step(low) - slope * low.size as f64) / (1.0 - wanted * slope);
        if size.is_finite() { size.clamp(low.size as f64, high.size as f64) } else { high.size as f64 }
    }

    /// Forgets rates, which no longer hold, and keeps what is known of memory.
    pub(super) fn forget_rates(&mut self) {
        self.points.iter_mut().for_each(|point| point.seen.clear());
    }

    /// Forgets sizes from `size` on: they do not run.
    pub(super) fn cut(&mut self, size: usize) {
        self.points.retain(|point| point.size < size);
    }

    fn measured(&self) -> impl DoubleEndedIterator<Item = &Point> {
        self.points.iter().filter(|point| point.windows() > 0)
    }

    /// The highest rate measured.
    pub(super) fn best(&self) -> Option<&Point> {
        self.measured().max_by(|one, other| one.throughput().total_cmp(&other.throughput()))
    }

    /// The largest size whose rate cannot be believed: it was measured while the device was throttled, and that is over,
    /// or something slowed it down that spared its neighbours.
    pub(super) fn suspect(&self) -> Option<usize> {
        let points: Vec<&Point> = self.measured().collect();
        let latest = points.iter().filter_map(|point| point.seen.last()).max_by_key(|seen| seen.at)?;
        let is_stale = |point: &Point| !latest.is_throttled && point.is_throttled();
        let is_dented = |at: usize| {
            let (Some(low), Some(high)) = (at.checked_sub(1).and_then(|at| points.get(at)), points.get(at + 1)) else {
                return false;
            };
            let share = (points[at].size - low.size) as f64 / (high.size - low.size) as f64;
            points[at].step_s() > DENT * (low.step_s() + share * (high.step_s() - low.step_s()))
        };
        let found = points.iter().enumerate().rev().find(|(at, point)| is_stale(point) || is_dented(*at))?;
        Some(found.1.size)
    }

    /// The straight line on which the step times of the largest sizes lie, as (seconds, seconds a sample, smallest size
    /// on it): what noise does to one point, the others mend. `None` with fewer than three points on it.
    fn line(&self) -> Option<(f64, f64, usize)> {
        let points: Vec<(f64, f64)> = self.measured().map(|point| (point.size as f64, point.step_s())).collect();
        let first = (0..points.len().saturating_sub(2)).find(|&first| {
            let on_line = fitted(&points[first..]);
            on_line.is_some_and(|(fixed, slope)| {
                points[first..].iter().all(|(size, step)| ((fixed + slope * size) / step - 1.0).abs() <= ON_LINE)
            })
        })?;
        let (fixed, slope) = fitted(&points[first..])?;
        Some((fixed, slope, points[first].0 as usize))
    }

    /// The rate of a size: as it was measured, and the less certain that is, the nearer to the line that it lies on.
    fn smooth(&self, point: &Point) -> f64 {
        match self.line() {
            Some((fixed, slope, first)) if point.size >= first => {
                let on_line = point.size as f64 / (fixed + slope * point.size as f64).max(1e-9);
                let measured = OFF_LINE.powi(2) / (OFF_LINE.powi(2) + point.error().powi(2) + UNSEEN_ERROR.powi(2));
                point.throughput().powf(measured) * on_line.powf(1.0 - measured)
            }
            _ => point.throughput(),
        }
    }

    /// The highest rate of any size up to `largest`: measured, or, where growth ended before, what the last two sizes
    /// foretell, with no more gain than doublings that each gain half of the one before would bring.
    pub(super) fn plateau(&self, largest: usize) -> f64 {
        let best = self.measured().map(|point| self.smooth(point)).fold(0.0, f64::max);
        let mut largest_first = self.measured().rev();
        let (Some(last), Some(former)) = (largest_first.next(), largest_first.next()) else { return best };
        // The best of several uncertain rates is more often too high than too low: the largest size's is taken for it
        // where it is as good.
        let best = Some(self.smooth(last)).filter(|rate| *rate >= best * (1.0 - SAME)).unwrap_or(best);
        if largest <= last.size {
            return best;
        }
        let (step_s, slope, rate, former_rate) = match self.line() {
            Some((fixed, slope, _)) => {
                (fixed + slope * last.size as f64, slope, self.smooth(last), self.smooth(former))
            }
            None => {
                let slope = (last.step_s() - former.step_s()) / (last.size - former.size) as f64;
                (last.step_s(), slope, last.throughput(), former.throughput())
            }
        };
        if slope <= 0.0 {
            return best;
        }
        let foretold = largest as f64 / (step_s + slope * (largest - last.size) as f64);
        let doublings = (last.size as f64 / former.size as f64).log2().max(1e-9);
        let gain = (rate / former_rate.max(1e-9)).powf(1.0 / doublings) - 1.0;
        best.max(foretold.min(rate * (1.0 + gain.clamp(0.0, 1.0))))
    }

    /// The smallest size whose rate reaches `wanted`, and the largest below it that does not.
    pub(super) fn knee(&self, wanted: f64) -> Option<(&Point, Option<&Point>)> {
        let reached = self.measured().find(|point| self.smooth(point) >= wanted * ENOUGH).or_else(|| self.best())?;
        let missed = self.measured().rev().find(|point| point.size < reached.size);
        Some((reached, missed))
    }

    /// The largest batch whose memory stays within the limit less `headroom` (a share), as far as is known.
    pub(super) fn fitting(&self, headroom: f64) -> Option<usize> {
        let room = self.room(headroom)?;
        let known = |point: &&Point| point.memory_bytes.is_some();
        let mut largest_first = self.points.iter().rev().filter(known);
        let last = largest_first.next()?;
        let used = last.memory_bytes? as f64;
        let per_row = match largest_first.next().and_then(|former| Some((former.size, former.memory_bytes? as f64))) {
            Some((size, former)) => ((used - former) / (last.size - size) as f64).max(0.0),
            None => used / last.size as f64,
        };
        let more = (room - used) / per_row.max(1.0);
        Some((last.size as f64 + more).max(0.0) as usize)
    }

    /// Whether `made` uses more than the limit less `headroom`.
    pub(super) fn is_over(&self, made: &Measurement, headroom: f64) -> bool {
        match (made.memory_bytes, self.room(headroom)) {
            (Some(used), Some(room)) => used as f64 > room,
            _ => false,
        }
    }

    fn room(&self, headroom: f64) -> Option<f64> {
        Some(self.memory_limit_bytes? as f64 * (1.0 - headroom))
    }

    /// By how much `size` deviates now from what it did before; `None` where it was measured but once.
    pub(super) fn drift(&self, size: usize) -> Option<f64> {
        let seen = &self.get(size)?.seen;
        let (last, former) = (seen.last()?, seen.get(seen.len().checked_sub(2)?)?);
        Some(last.throughput / former.throughput.max(1e-9) - 1.0)
    }

    /// Brings all rates to the present, given that the rate of `size` moved evenly from its last measurement but one to
    /// its last one, and that the device slowed down or sped up as a whole.
    pub(super) fn correct_drift(&mut self, size: usize) {
        let Some(point) = self.get(size) else { return };
        let mut latest_first = point.seen.iter().rev();
        let (Some(last), Some(former)) = (latest_first.next().copied(), latest_first.next().copied()) else { return };
        let ratio = last.throughput / former.throughput.max(1e-9);
        let span = (last.at - former.at).max(1) as f64;
        for seen in self.points.iter_mut().flat_map(|point| &mut point.seen) {
            let age = last.at.saturating_sub(seen.at) as f64 / span;
            seen.throughput *= ratio.powf(age.min(1.0));
        }
    }

    /// The rate of the latest measurement of `size`.
    pub(super) fn latest(&self, size: usize) -> Option<f64> {
        Some(self.get(size)?.latest())
    }
}

/// The line `fixed + slope * size` with the least squares of relative distances.
fn fitted(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let sum = |part: &dyn Fn(f64, f64) -> f64| points.iter().map(|&(size, step)| part(size, step)).sum::<f64>();
    // Each distance is divided by its step time: of 1 = fixed / step + slope * size / step.
    let (ff, fs, ss) = (sum(&|_, t| 1.0 / (t * t)), sum(&|n, t| n / (t * t)), sum(&|n, t| n * n / (t * t)));
    let (f, s) = (sum(&|_, t| 1.0 / t), sum(&|n, t| n / t));
    let determinant = ff * ss - fs * fs;
    let (fixed, slope) = ((f * ss - s * fs) / determinant, (s * ff - f * fs) / determinant);
    (fixed.is_finite() && slope.is_finite() && slope > 0.0).then_some((fixed, slope))
}

/// By how much the rate grows when the size doubles, from one point to a larger one: 0.05 is 5 %.
pub(super) fn gain_per_doubling(former: &Point, larger: &Point) -> f64 {
    let doublings = (larger.size as f64 / former.size as f64).log2().max(1e-9);
    (larger.throughput() / former.throughput().max(1e-9)).powf(1.0 / doublings) - 1.0
}

/// The same of the share of the time that SMs are active, in points; `None` where it is unknown.
pub(super) fn sm_rise_per_doubling(former: &Point, larger: &Point) -> Option<f64> {
    let doublings = (larger.size as f64 / former.size as f64).log2().max(1e-9);
    Some((larger.sm_active? - former.sm_active?) * 100.0 / doublings)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps take 10 ms and 1 ms for each 10 samples: 10,000 samples a second at most.
    fn model(size: usize) -> Measurement {
        Measurement {
            batch_size: size,
            steps: 10,
            step_s: 0.01 + size as f64 * 1e-4,
            memory_bytes: Some(1000 + 10 * size as u64),
            memory_limit_bytes: Some(4000),
            ..Measurement::default()
        }
    }

    fn curve(sizes: &[usize]) -> Curve {
        let mut curve = Curve::default();
        sizes.iter().for_each(|&size| curve.push(&model(size)));
        curve
    }

    #[test]
    fn a_plateau_is_foretold_where_growth_ended_early() {
        let curve = curve(&[100, 200, 400]);
        let exact = model(100_000).throughput();
        assert!((curve.plateau(100_000) / exact - 1.0).abs() < 0.15, "no more than halving gains bring");
        assert!((curve.plateau(500) - model(500).throughput()).abs() < 1.0);
        assert!((curve.plateau(400) - model(400).throughput()).abs() < 1e-6);
    }

    #[test]
    fn the_knee_lies_between_two_points() {
        let curve = curve(&[100, 200, 400, 800]);
        let (reached, missed) = curve.knee(7000.0).unwrap();
        assert_eq!((reached.size, missed.map(|point| point.size)), (400, Some(200)));
        // 7,000 a second: size / (0.01 + size / 10,000) = 7,000.
        assert!((curve.crossing(missed.unwrap(), reached, 7000.0) - 233.3).abs() < 0.1);
    }

    #[test]
    fn memory_bounds_the_size() {
        assert_eq!(curve(&[10, 20]).fitting(0.0), Some(300));
        assert_eq!(curve(&[10, 20]).fitting(0.5), Some(100));
        let one = Measurement { memory_bytes: Some(1000), ..model(10) };
        let mut curve = Curve::default();
        curve.push(&one);
        assert_eq!(curve.fitting(0.0), Some(40), "of one point all memory is taken to grow with the size");
        assert_eq!(Curve::default().fitting(0.1), None);
    }

    #[test]
    fn what_slowed_one_measurement_down_is_left_out() {
        let mut curve = curve(&[100, 100]);
        curve.push(&Measurement { step_s: 0.06, ..model(100) });
        assert!((curve.get(100).unwrap().throughput() - 5000.0).abs() < 1.0);
    }

    #[test]
    fn drift_of_one_size_corrects_the_others() {
        let mut curve = Curve::default();
        // The device loses 2 % with every measurement.
        for (at, size) in [400, 100, 200, 400].into_iter().enumerate() {
            let made = model(size);
            curve.push(&Measurement { step_s: made.step_s / 0.98f64.powi(at as i32), ..made });
        }
        assert!((curve.drift(400).unwrap() - (0.98f64.powi(3) - 1.0)).abs() < 1e-9);
        curve.correct_drift(400);
        let now = 0.98f64.powi(3);
        for size in [100, 200, 400] {
            let rate = curve.get(size).unwrap().throughput();
            assert!((rate / (model(size).throughput() * now) - 1.0).abs() < 1e-3, "{size}: {rate}");
        }
    }
}
