//! Steps of one batch size, made into one measurement that a single slow step cannot spoil. It decides nothing.

use serde::{Deserialize, Serialize};

use super::probe::Reading;

/// Numbers in a measurement's vector.
const VECTOR_LEN: usize = 10;

/// Stands in a vector for what is not known: larger than any real value, so that the least over ranks is a known one.
const UNKNOWN: f64 = f64::MAX;

/// One training step, as the consumer's stream saw it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Step {
    /// Samples of its batch.
    pub rows: usize,
    /// Time from the end of the step before to its own end, in seconds, by events on the consumer's stream.
    pub elapsed_s: f64,
    /// How much of it the consumer waited for the batch, in seconds.
    pub waited_s: f64,
}

/// What one batch size did over some steps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Samples of a step.
    pub batch_size: usize,
    /// Steps that it is made of.
    pub steps: usize,
    /// Time of a step in seconds: the mean of the middle half of them.
    pub step_s: f64,
    /// Relative standard error of `step_s`, 0 where it is exact.
    pub error: f64,
    /// Share of the time that the consumer waited for batches, 0 to 1.
    pub wait_share: f64,
    /// Device memory in use at most, by everyone, in bytes.
    pub memory_bytes: Option<u64>,
    /// Device memory that may be in use at most, in bytes.
    pub memory_limit_bytes: Option<u64>,
    /// Share of the time that the SMs were active, 0 to 1.
    pub sm_active: Option<f64>,
    /// Share of the time that any kernel ran, 0 to 1.
    pub gpu_busy: Option<f64>,
    /// Whether heat or a failing supply slowed the device down. A power cap alone does not count: it belongs to the load.
    pub is_throttled: bool,
}

impl Measurement {
    /// Samples a second.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        self.batch_size as f64 / self.step_s.max(1e-9)
    }

    /// Its numbers in such a form that the least of several ranks is what all of them together did: the slowest step,
    /// the longest wait, the fullest memory. The order is fixed.
    #[must_use]
    pub fn to_vector(&self) -> [f64; VECTOR_LEN] {
        let known = |value: Option<f64>, sign: f64| value.map_or(UNKNOWN, |value| sign * value);
        let bytes = |value: Option<u64>, sign: f64| known(value.map(|value| value as f64), sign);
        [
            self.batch_size as f64,
            self.steps as f64,
            -self.step_s,
            -self.error,
            -self.wait_share,
            bytes(self.memory_bytes, -1.0),
            bytes(self.memory_limit_bytes, 1.0),
            known(self.sm_active, 1.0),
            known(self.gpu_busy, 1.0),
            if self.is_throttled { -1.0 } else { 0.0 },
        ]
    }

    /// The measurement of a vector, the least of those that all ranks made; `None` where it is none.
    #[must_use]
    pub fn from_vector(vector: &[f64]) -> Option<Self> {
        let &[size, steps, step, error, wait, memory, limit, sm, busy, throttled] = vector else { return None };
        let known = |value: f64, sign: f64| (value != UNKNOWN).then_some(sign * value);
        let bytes = |value: f64, sign: f64| known(value, sign).map(|value| value.max(0.0) as u64);
        if vector.iter().any(|value| value.is_nan()) || size < 1.0 || -step <= 0.0 {
            return None;
        }
        Some(Self {
            batch_size: size as usize,
            steps: steps.max(0.0) as usize,
            step_s: -step,
            error: -error,
            wait_share: -wait,
            memory_bytes: bytes(memory, -1.0),
            memory_limit_bytes: bytes(limit, 1.0),
            sm_active: known(sm, 1.0),
            gpu_busy: known(busy, 1.0),
            is_throttled: throttled < 0.0,
        })
    }
}

/// Collects steps of one batch size.
#[derive(Debug, Clone)]
pub struct Window {
    batch_size: usize,
    warm_up: usize,
    steps: usize,
    elapsed: Vec<f64>,
    waited: f64,
}

impl Window {
    /// A window over `steps` steps of `batch_size` rows, after `warm_up` others of that size: kernels are chosen and
    /// memory is found in these.
    #[must_use]
    pub fn new(batch_size: usize, warm_up: usize, steps: usize) -> Self {
        let steps = steps.clamp(1, 1 << 16);
        Self { batch_size, warm_up, steps, elapsed: Vec::with_capacity(steps), waited: 0.0 }
    }

    /// The size that it measures.
    #[must_use]
    pub fn batch_size(&self) -> usize {
        self.batch_size
    }

    /// Takes a step; those of another size, and those after the last one wanted, are left out. Whether it is full.
    pub fn push(&mut self, step: Step) -> bool {
        let is_sound = step.elapsed_s.is_finite() && step.elapsed_s > 0.0;
        if step.rows == self.batch_size && is_sound && !self.is_full() {
            if self.warm_up > 0 {
                self.warm_up -= 1;
            } else {
                self.elapsed.push(step.elapsed_s);
                self.waited += step.waited_s.clamp(0.0, step.elapsed_s);
            }
        }
        self.is_full()
    }

    /// Whether it has all its steps.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.elapsed.len() >= self.steps
    }

    /// What the steps so far amount to, `None` without any; the reading is the mean over the same time, memory is
    /// (in use at most, allowed at most) in bytes.
    #[must_use]
    pub fn measurement(&self, reading: Option<&Reading>, memory: Option<(u64, u64)>) -> Option<Measurement> {
        let (step_s, error) = middle_half(&self.elapsed)?;
        let total: f64 = self.elapsed.iter().sum();
        Some(Measurement {
            batch_size: self.batch_size,
            steps: self.elapsed.len(),
            step_s,
            error,
            wait_share: self.waited / total,
            memory_bytes: memory.map(|(used, _)| used),
            memory_limit_bytes: memory.map(|(_, limit)| limit),
            sm_active: reading.and_then(|reading| reading.sm_active),
            gpu_busy: reading.and_then(|reading| reading.gpu_busy),
            is_throttled: reading.is_some_and(|reading| reading.throttle.is_harmful()),
        })
    }
}

/// Mean of the middle half of some values and its relative standard error; `None` without values.
fn middle_half(values: &[f64]) -> Option<(f64, f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let cut = sorted.len() / 4;
    let middle = sorted.get(cut..sorted.len() - cut)?;
    if middle.is_empty() {
        return None;
    }
    let mean = middle.iter().sum::<f64>() / middle.len() as f64;
    let spread = sorted[sorted.len() - 1 - cut] - sorted[cut];
    // The quartiles of a normal distribution are 1.35 deviations apart; the middle half's mean is about 1.1 times as
    // uncertain as the mean of all.
    let error = 1.1 * spread / 1.35 / (sorted.len() as f64).sqrt() / mean;
    Some((mean, if values.len() < 4 { error.max(0.02) } else { error }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(rows: usize, elapsed_s: f64) -> Step {
        Step { rows, elapsed_s, waited_s: 0.0 }
    }

    #[test]
    fn one_slow_step_does_not_decide() {
        let mut window = Window::new(32, 2, 8);
        for elapsed in [9.0, 9.0, 0.1, 0.1, 0.1, 5.0, 0.1, 0.1, 0.1] {
            assert!(!window.push(step(32, elapsed)));
        }
        assert!(window.push(step(32, 0.1)));
        let made = window.measurement(None, None).unwrap();
        assert!((made.step_s - 0.1).abs() < 1e-9, "{made:?}");
        assert!((made.throughput() - 320.0).abs() < 1e-6);
    }

    #[test]
    fn steps_of_another_size_are_left_out() {
        let mut window = Window::new(32, 0, 2);
        for rows in [16, 32, 7] {
            assert!(!window.push(step(rows, 0.1)));
        }
        assert!(window.measurement(None, None).is_some());
        assert!(!window.push(step(32, f64::NAN)));
        assert!(window.push(step(32, 0.1)));
        assert!(Window::new(32, 0, 2).measurement(None, None).is_none());
    }

    #[test]
    fn the_least_vector_of_several_ranks_is_the_worst_of_each() {
        let fast = Measurement {
            batch_size: 64,
            steps: 10,
            step_s: 0.1,
            error: 0.01,
            wait_share: 0.0,
            memory_bytes: Some(10),
            memory_limit_bytes: Some(100),
            sm_active: Some(0.9),
            gpu_busy: None,
            is_throttled: false,
        };
        let slow = Measurement {
            step_s: 0.2,
            error: 0.0,
            wait_share: 0.3,
            memory_bytes: Some(50),
            memory_limit_bytes: Some(80),
            sm_active: None,
            is_throttled: true,
            ..fast
        };
        let least: Vec<f64> =
            fast.to_vector().into_iter().zip(slow.to_vector()).map(|(one, other)| one.min(other)).collect();
        let all = Measurement::from_vector(&least).unwrap();
        assert_eq!(all, Measurement { sm_active: Some(0.9), error: 0.01, ..slow });
        assert_eq!(Measurement::from_vector(&fast.to_vector()), Some(fast));
        assert!(Measurement::from_vector(&[1.0]).is_none());
        assert!(Measurement::from_vector(&[f64::NAN; VECTOR_LEN]).is_none());
    }
}
