//! Finds the smallest batch size that keeps the device busy, while training goes on. It is a pure state machine: it runs
//! nothing, has no clock, and the same measurements always lead to the same sizes.
//!
//! It grows geometrically until a larger batch gains nothing, fits no more, or waits for data; then it looks for the
//! knee between the sizes it has run, returns to it, checks that the device is what it was, and stays. From then on
//! only lasting changes move it.

mod reason;

use serde::{Deserialize, Serialize};

pub use reason::{Change, Decision, Limit, Phase, Reason};

use super::curve::{Curve, Point, gain_per_doubling, sm_rise_per_doubling};
use super::sizes::Sizes;
use super::window::Measurement;
use crate::{Error, ErrorKind, Result};

/// A doubling that gains less than this brings nothing.
const GAIN_MIN: f64 = 0.025;

/// SMs that become active for less than this many points more at a doubling are as active as they will be.
const SM_RISE_MIN: f64 = 2.0;

/// A rate that falls by this much at a larger size ends growth, whatever the SMs do.
const FALL: f64 = -0.05;

/// A measurement less certain than this is repeated.
const ERROR_MAX: f64 = 0.015;

/// Measurements of one size that may be spent on certainty.
const WINDOWS_MAX: usize = 3;

/// The rates between which the choice is made must be as certain as this: near the knee 1 % in the rate is 20 % in the
/// size.
const CHOICE_ERROR_MAX: f64 = 0.008;

/// Measurements of one size that may be spent on the choice, and how often a size is returned to for them.
const CHOICE_WINDOWS_MAX: usize = 5;
const RETURNS_MAX: u32 = 8;

/// Measurements that are waited for a throttled device to cool down before growth ends on its word.
const COOLING_MAX: usize = 8;

/// From this share of waiting on, the data path is what holds the run back.
const WAITS: f64 = 0.10;

/// A step that takes at most this much longer at twice the size waits for launches, not for work.
const FLAT: f64 = 1.15;

/// The knee is looked for no longer once the chosen size is this near to it.
const NEAR: f64 = 1.12;

/// Sizes that are tried between others at most, in one tuning.
const REFINEMENTS_MAX: u32 = 4;

/// Sizes that are measured again at most, in one tuning, because something had disturbed them.
const REVISITS_MAX: u32 = 6;

/// How far a size may have moved when it is measured again before the whole device is taken to have changed.
const DRIFT: f64 = 0.04;

/// How often a change of the device may be worked into one tuning.
const CORRECTIONS_MAX: u32 = 2;

/// A settled rate must differ by this much, this many measurements in a row, before the size is looked for anew.
const LASTING: f64 = 0.15;
const LASTING_WINDOWS: u32 = 5;

/// Measurements between two searches at least; doubled each time, so that a changing load cannot keep it searching.
const REST: u64 = 30;
const REST_MAX: u64 = 1 << 20;

/// Out-of-memory errors after which growth is given up.
const OUT_OF_MEMORY_MAX: u32 = 2;

/// What the controller may do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// The sizes to choose from.
    pub sizes: Sizes,
    /// Share of the plateau's rate that is enough, 0.5 to 1. Default 0.95.
    pub target: f64,
    /// Share of device memory that must stay free, 0 to 0.9. Default 0.1.
    pub headroom: f64,
}

impl Options {
    /// The defaults over `sizes`.
    #[must_use]
    pub fn new(sizes: Sizes) -> Self {
        Self { sizes, target: 0.95, headroom: 0.1 }
    }
}

/// Chooses batch sizes from measurements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BatchSizeController {
    options: Options,
    curve: Curve,
    size: usize,
    phase: Phase,
    limit: Limit,
    /// Sizes from here on ran out of memory.
    ceiling: Option<usize>,
    out_of_memory: u32,
    refinements: u32,
    corrections: u32,
    revisits: u32,
    returns: u32,
    /// Rate of the settled size.
    settled_rate: f64,
    odd: u32,
    since_settled: u64,
    rest: u64,
}

impl BatchSizeController {
    /// A controller that begins at the smallest size.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] for a target or a headroom out of range.
    pub fn new(options: Options) -> Result<Self> {
        let refused =
            |message: String, hint: &str| Err(Error::new(ErrorKind::InvalidOption, message).with_hint(hint.to_owned()));
        let Options { target, headroom, .. } = options;
        if !(0.5..=1.0).contains(&target) {
            return refused(format!("target={target} is not between 0.5 and 1"), "0.95 asks for 95 % of the best rate");
        }
        if !(0.0..=0.9).contains(&headroom) {
            return refused(
                format!("headroom={headroom} is not between 0 and 0.9"),
                "0.1 leaves a tenth of memory free",
            );
        }
        Ok(Self {
            size: options.sizes.min(),
            options,
            curve: Curve::default(),
            phase: Phase::Growing,
            limit: Limit::Unknown,
            ceiling: None,
            out_of_memory: 0,
            refinements: 0,
            corrections: 0,
            revisits: 0,
            returns: 0,
            settled_rate: 0.0,
            odd: 0,
            since_settled: 0,
            rest: REST,
        })
    }

    /// The size that steps should have now.
    #[must_use]
    pub fn batch_size(&self) -> usize {
        self.size
    }

    /// What it was made with.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Whether a state that was read from outside is one that this code could have made.
    pub(super) fn is_sound(&self) -> bool {
        self.options.sizes.contains(self.size) && self.settled_rate.is_finite() && self.curve.is_sound()
    }

    /// What it is doing.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// What holds the run back, as far as it is known.
    #[must_use]
    pub fn limit(&self) -> Limit {
        self.limit
    }

    /// Sizes that were run, with their rates in samples a second, ascending.
    #[must_use]
    pub fn rates(&self) -> Vec<(usize, f64)> {
        let points = self.curve.points().iter().filter(|point| point.windows() > 0);
        points.map(|point| (point.size, point.throughput())).collect()
    }

    /// Takes a measurement and says how to go on. One of another size than the present one is left out.
    pub fn observe(&mut self, made: &Measurement) -> Decision {
        let is_sound = made.step_s.is_finite() && made.step_s > 0.0 && made.error >= 0.0;
        if made.batch_size != self.size || !is_sound || self.phase == Phase::Failed {
            return self.stay();
        }
        self.curve.push(made);
        match self.phase {
            Phase::Growing => self.grow(made),
            Phase::Refining => self.refine(made),
            Phase::Confirming => self.confirm(),
            Phase::Settled => self.watch(made),
            Phase::Failed => self.stay(),
        }
    }

    /// Takes note that a step of `size` ran out of memory: that size and all above it are not run again.
    pub fn out_of_memory(&mut self, size: usize) -> Decision {
        self.ceiling = Some(self.ceiling.map_or(size, |ceiling| ceiling.min(size)));
        self.out_of_memory += 1;
        self.curve.cut(size);
        if size <= self.options.sizes.min() {
            self.phase = Phase::Failed;
            self.limit = Limit::Memory;
            return self.stay();
        }
        if self.size < size {
            return self.stay();
        }
        let reason = Reason::OutOfMemory { size };
        if self.phase == Phase::Growing && self.out_of_memory < OUT_OF_MEMORY_MAX {
            // Something may fit between the last size that ran and this one.
            let largest = self.curve.points().last().map(|point| point.size);
            let fitting = self.curve.fitting(self.options.headroom).unwrap_or(usize::MAX).min(size * 3 / 4);
            if let (Some(largest), Some(next)) = (largest, self.options.sizes.at_most(fitting))
                && next > largest
            {
                return self.go(next, Phase::Growing, reason);
            }
        }
        self.limit = Limit::Memory;
        match self.curve.best() {
            Some(_) => self.choose(reason),
            None => {
                let next = self.options.sizes.at_most(size / 2).unwrap_or(self.options.sizes.min());
                self.go(next, Phase::Growing, reason)
            }
        }
    }

    fn grow(&mut self, made: &Measurement) -> Decision {
        let windows = self.curve.get(self.size).map_or(0, Point::windows);
        let is_uncertain = made.error > ERROR_MAX || made.is_throttled;
        if is_uncertain && windows < WINDOWS_MAX {
            return self.stay();
        }
        if self.curve.is_over(made, self.options.headroom) {
            self.limit = Limit::Memory;
            return self.give_up_size(made);
        }
        let Some((gain, sm_rise)) = self.last_gain() else { return self.enlarge(None) };
        let has_activity_risen = sm_rise.is_some_and(|rise| rise >= SM_RISE_MIN);
        if gain >= GAIN_MIN || (has_activity_risen && gain > FALL) {
            return self.enlarge(Some(gain));
        }
        // What ends the search is looked at twice.
        if windows < 2 || (gain < FALL && windows < WINDOWS_MAX) || (made.is_throttled && windows < COOLING_MAX) {
            return self.stay();
        }
        self.limit = if made.wait_share >= WAITS { Limit::Data } else { Limit::Compute };
        let reason = match self.limit {
            Limit::Data => Reason::DataBound { wait_share: made.wait_share },
            _ => Reason::Plateau { gain },
        };
        self.choose(reason)
    }

    /// Gain and rise of activity at the present size, a doubling; `None` at the first size.
    fn last_gain(&self) -> Option<(f64, Option<f64>)> {
        let (now, former) = (self.curve.get(self.size)?, self.curve.below(self.size)?);
        Some((gain_per_doubling(former, now), sm_rise_per_doubling(former, now)))
    }

    fn enlarge(&mut self, gain: Option<f64>) -> Decision {
        let allowed = self.largest_allowed();
        let next = self.options.sizes.grown(self.size).and_then(|next| self.options.sizes.at_most(next.min(allowed)));
        match next.filter(|&next| next > self.size) {
            Some(next) => self.go(next, Phase::Growing, Reason::Growing { gain }),
            None => {
                let is_full = allowed < self.options.sizes.max();
                // What a doubling gains beyond what the target gives away anyway.
                let gains = gain.is_none_or(|gain| gain > 1.0 - self.options.target);
                self.limit = match (is_full, self.is_flat()) {
                    (true, _) => Limit::Memory,
                    (false, true) => Limit::Launch,
                    (false, false) if gains => Limit::Bounds,
                    (false, false) => Limit::Compute,
                };
                self.choose(if is_full { Reason::MemoryFull } else { Reason::LargestSize })
            }
        }
    }

    /// The largest size that may be run: within bounds, memory, and what has failed before.
    fn largest_allowed(&self) -> usize {
        let fitting = self.curve.fitting(self.options.headroom).unwrap_or(usize::MAX);
        let ceiling = self.ceiling.map_or(usize::MAX, |ceiling| ceiling - 1);
        self.options.sizes.max().min(fitting).min(ceiling)
    }

    /// Whether steps of the largest sizes take the same time: the device waits for launches.
    fn is_flat(&self) -> bool {
        let mut largest_first = self.curve.points().iter().rev().filter(|point| point.windows() > 0);
        let (Some(last), Some(former)) = (largest_first.next(), largest_first.next()) else { return false };
        let doublings = (last.size as f64 / former.size as f64).log2().max(1e-9);
        let growth = (last.step_s() / former.step_s().max(1e-12)).powf(1.0 / doublings);
        growth <= FLAT && last.wait_share < WAITS && last.gpu_busy.is_none_or(|busy| busy < 0.95)
    }

    /// The present size takes more memory than it may: the largest one below that does not.
    fn give_up_size(&mut self, made: &Measurement) -> Decision {
        let size = made.batch_size;
        self.ceiling = Some(self.ceiling.map_or(size, |ceiling| ceiling.min(size)));
        self.curve.cut(size);
        let reason = Reason::MemoryLimit { size };
        if self.curve.best().is_some() {
            return self.choose(reason);
        }
        match self.options.sizes.at_most(size - 1) {
            Some(next) => self.go(next, Phase::Growing, reason),
            // It runs, and there is nothing smaller: the headroom cannot be had.
            None => {
                self.ceiling = Some(size + 1);
                self.curve.push(made);
                self.settle()
            }
        }
    }

    /// Looks for the knee, given all that was measured, and goes there or nearer to it.
    fn choose(&mut self, reason: Reason) -> Decision {
        if self.revisits < REVISITS_MAX
            && let Some(suspect) = self.curve.suspect()
        {
            self.revisits += 1;
            return self.go(suspect, Phase::Refining, Reason::Disturbed { size: suspect });
        }
        let largest = match self.limit {
            // More of what waits for data or does not fit is no use.
            Limit::Data | Limit::Memory => self.curve.points().last().map_or(self.size, |point| point.size),
            _ => self.largest_allowed(),
        };
        let wanted = self.curve.plateau(largest) * self.options.target;
        let Some((reached, missed)) = self.curve.knee(wanted) else { return self.stay() };
        let chosen = reached.size;
        if let Some(missed) = missed.filter(|_| self.refinements < REFINEMENTS_MAX) {
            let knee = self.curve.crossing(missed, reached, wanted);
            if chosen as f64 > knee * NEAR
                && let Some(next) = self.options.sizes.between(missed.size, chosen, knee)
            {
                self.refinements += 1;
                return self.go(next, Phase::Refining, reason);
            }
        }
        let largest_run = self.curve.points().last();
        let uncertain = [missed, Some(reached), largest_run].into_iter().flatten().find(|point| {
            let is_exact = point.error() < CHOICE_ERROR_MAX / 4.0;
            let is_enough = point.error() <= CHOICE_ERROR_MAX && (is_exact || point.windows() >= 2);
            !is_enough && (1..CHOICE_WINDOWS_MAX).contains(&point.windows())
        });
        if let Some(uncertain) = uncertain.filter(|_| self.returns < RETURNS_MAX) {
            let size = uncertain.size;
            self.returns += 1;
            return self.go(size, Phase::Refining, Reason::Uncertain { size });
        }
        if chosen == self.size && self.curve.drift(chosen).is_none_or(|drift| drift.abs() <= DRIFT) {
            return self.settle();
        }
        self.go(chosen, Phase::Confirming, reason)
    }

    fn refine(&mut self, made: &Measurement) -> Decision {
        let windows = self.curve.get(self.size).map_or(0, Point::windows);
        if (made.error > ERROR_MAX || made.is_throttled) && windows < WINDOWS_MAX {
            return self.stay();
        }
        self.choose(Reason::Knee { target: self.options.target })
    }

    /// The chosen size is run again: does it still do what it did?
    fn confirm(&mut self) -> Decision {
        let drift = self.curve.drift(self.size).unwrap_or(0.0);
        if drift.abs() <= DRIFT || self.corrections >= CORRECTIONS_MAX {
            return self.settle();
        }
        self.corrections += 1;
        self.curve.correct_drift(self.size);
        self.choose(Reason::Drift { drift })
    }

    fn settle(&mut self) -> Decision {
        self.phase = Phase::Settled;
        self.settled_rate = self.curve.latest(self.size).unwrap_or(0.0);
        self.odd = 0;
        self.since_settled = 0;
        if self.limit == Limit::Unknown {
            self.limit = Limit::Compute;
        }
        self.stay()
    }

    fn watch(&mut self, made: &Measurement) -> Decision {
        self.since_settled += 1;
        if self.curve.is_over(made, self.options.headroom / 2.0) && self.options.sizes.at_most(self.size - 1).is_some()
        {
            self.limit = Limit::Memory;
            return self.give_up_size(made);
        }
        let change = made.throughput() / self.settled_rate.max(1e-9) - 1.0;
        let waits = made.wait_share >= WAITS;
        if waits {
            self.limit = Limit::Data;
        } else if self.limit == Limit::Data && made.wait_share < WAITS / 2.0 && change > LASTING {
            // The data path was mended: what was found while it waited says nothing about the device.
            self.limit = Limit::Unknown;
        }
        // A loader that cannot keep up, or a hot device, is no reason for another size.
        let is_odd = change.abs() > LASTING && !made.is_throttled && !waits;
        self.odd = if is_odd { self.odd + 1 } else { 0 };
        if self.odd < LASTING_WINDOWS || self.since_settled < self.rest {
            return self.stay();
        }
        self.rest = (self.rest * 2).min(REST_MAX);
        self.refinements = 0;
        self.corrections = 0;
        self.revisits = 0;
        self.returns = 0;
        self.limit = Limit::Unknown;
        self.curve.forget_rates();
        let start = self.options.sizes.at_least(self.size / 4).unwrap_or(self.size).min(self.size);
        self.go(start, Phase::Growing, Reason::LastingChange { change })
    }

    fn go(&mut self, size: usize, phase: Phase, reason: Reason) -> Decision {
        let from = std::mem::replace(&mut self.size, size);
        self.phase = phase;
        let change = (from != size).then_some(Change { from, to: size, reason });
        Decision { batch_size: size, phase, limit: self.limit, change }
    }

    fn stay(&self) -> Decision {
        Decision { batch_size: self.size, phase: self.phase, limit: self.limit, change: None }
    }
}
