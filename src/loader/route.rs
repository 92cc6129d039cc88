//! Which images the GPU's JPEG engines decode and which the CPU's threads, decided from measured rates. It decodes
//! nothing and has no clock: times are given to it, and the same observations always lead to the same shares.
//!
//! Engine decoding slows the training beside it by a few percent, and CPU threads are idle otherwise: so they come
//! first. From what the consumer needs, and from what the threads manage, follows the share that is missing; that much
//! goes to the engines, and never more than their part of both rates together.

use std::collections::VecDeque;
use std::time::Duration;

/// Batches from which rates are taken: few, so that the share follows; enough that one slow batch decides nothing.
const WINDOW: usize = 8;

/// Batches at the start that tell of filling queues and of first calls, not of rates.
const WARM_UP: u32 = 3;

/// The consumer waits for more than this share of its time: it would take more images than it gets.
const WAITS_FROM: f64 = 0.02;

/// It is said to wait until the share has fallen to this.
const WAITS_TO: f64 = 0.005;

/// Threads busy for less than this share are not what the consumer waits for: storage is, or the engines are.
const BUSY_FROM: f64 = 0.8;

/// How fast the need is raised while the consumer waits, a batch: what it would take cannot be seen then.
const NEED_GROWTH: f64 = 1.12;

/// How fast the need may fall, a batch: a pause to save or to evaluate says nothing about the batches after it.
const NEED_FALL: f64 = 0.92;

/// How far the need follows what is taken while the consumer does not wait, a batch.
const NEED_FOLLOWS: f64 = 0.4;

/// The part of the threads' rate that is counted on, so that batches are ready a little before they are wanted.
const USABLE: f64 = 0.92;

/// It falls by this much when the consumer waits again after it had not for a while, down to `USABLE_MIN`.
const USABLE_STEP: f64 = 0.03;
const USABLE_MIN: f64 = 0.74;

/// Batches without waiting after which waiting again counts as a surprise.
const CALM: u32 = 20;

/// The share does not move for less than this, nor for less than a twelfth of the smaller lane's part.
const DEAD_BAND: f64 = 0.02;

/// It moves by this part of the way, a batch.
const STEP: f64 = 0.35;

/// From this share of refused images on the engines are of no use, and rest.
const REFUSED_MAX: f64 = 0.25;

/// How long they rest at first, in batches; each time doubled, up to `REST_MAX`.
const REST: u32 = 256;
const REST_MAX: u32 = 1 << 14;

/// The longest time that is counted for one batch.
const ELAPSED_MAX_S: f64 = 3600.0;

/// Where an image is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lane {
    /// By a decode thread.
    Cpu,
    /// By the GPU's JPEG engines.
    Engine,
}

/// Who decides about the lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RouteMode {
    /// The measured rates do.
    #[default]
    Auto,
    /// All images go to the threads.
    Cpu,
    /// All images that the engines take go to them.
    Engine,
}

/// What was measured between one batch in the consumer's hands and the next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Observation {
    /// Time since the batch before.
    pub elapsed: Duration,
    /// How much of it the consumer waited for this batch.
    pub waited: Duration,
    /// Images that threads finished in that time.
    pub cpu_images: u64,
    /// Thread time that they took.
    pub cpu_busy: Duration,
    /// Images that came back from the engines in that time, refused ones included.
    pub engine_images: u64,
    /// Images among them that the engines refused or failed.
    pub engine_refused: u64,
    /// How much of the time the engines had work.
    pub engine_busy: Duration,
    /// Images of that time, of all finished, whose kind the engines do not take.
    pub unsupported: u64,
}

/// Decides for each image of a loader where it is decoded.
#[derive(Debug, Clone)]
pub struct Router {
    mode: RouteMode,
    threads: f64,
    window: VecDeque<Observation>,
    seen: u32,
    /// Images a second that the consumer would take; 0 while unknown.
    need: f64,
    /// Images a second of the engines alone, from the last time that they had work.
    engine_rate: Option<f64>,
    usable: f64,
    is_waiting: bool,
    calm: u32,
    rest: u32,
    rest_next: u32,
    share: f64,
    /// Part of the images that the engines take at all.
    supported: f64,
    /// Images of the engines' part that were not sent there yet; below 0 while a run is ahead of it.
    carried: f64,
    /// Images that go to the engines in a row, and how many of such a row are left.
    run: u32,
    run_left: u32,
}

/// The rates of the window, a second.
#[derive(Debug, Clone, Copy)]
struct Rates {
    /// Images that the consumer took.
    taken: f64,
    /// Share of its time that it waited.
    waits: f64,
    /// Images that all threads together would manage.
    cpu: f64,
    /// Share of the threads' time that was work.
    busy: f64,
    /// Images of the engines while they had work.
    engine: Option<f64>,
    /// Share of the engines' images that they refused.
    refused: f64,
    supported: f64,
}

impl Router {
    /// A router for a loader with `cpu_threads` decode threads, 1 or more.
    #[must_use]
    pub fn new(mode: RouteMode, cpu_threads: usize) -> Self {
        Self {
            mode,
            threads: cpu_threads.max(1) as f64,
            window: VecDeque::with_capacity(WINDOW),
            seen: 0,
            need: 0.0,
            engine_rate: None,
            usable: USABLE,
            is_waiting: false,
            calm: 0,
            rest: 0,
            rest_next: REST,
            share: if mode == RouteMode::Engine { 1.0 } else { 0.0 },
            supported: 1.0,
            carried: 0.0,
            run: 1,
            run_left: 0,
        }
    }

    /// The same, sending `images` in a row to the engines, 1 or more, however small their share: they decode sub-batches
    /// of one size best, and one that is filled slowly keeps its batch waiting. 1 unless asked otherwise.
    #[must_use]
    pub fn in_runs_of(mut self, images: usize) -> Self {
        self.run = u32::try_from(images).unwrap_or(u32::MAX).max(1);
        self
    }

    /// The lane of the next image; ask only for images that the engines take.
    ///
    /// The share is spread evenly: of any `n` images in a row its part goes to the engines, give or take a run.
    pub fn route(&mut self) -> Lane {
        if self.share == 0.0 {
            (self.carried, self.run_left) = (0.0, 0);
            return Lane::Cpu;
        }
        self.carried += (self.share / self.supported).clamp(0.0, 1.0);
        // A bit of slack, so that a sum of fractions reaches 1 as exact arithmetic would.
        if self.run_left == 0 && self.carried >= 1.0 - 1e-9 {
            self.run_left = self.run;
        }
        if self.run_left == 0 {
            return Lane::Cpu;
        }
        self.run_left -= 1;
        self.carried -= 1.0;
        Lane::Engine
    }

    /// The share of all images that goes to the engines, 0 to 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.share
    }

    /// Whether the consumer waits now for more than the threads can give: then each lane takes what the other has no
    /// room for, whatever the share says, which was measured when less was asked for.
    #[must_use]
    pub fn overflows(&self) -> bool {
        self.mode == RouteMode::Auto && self.is_waiting && self.share > 0.0
    }

    /// Images a second that the consumer is thought to want; 0 before anything was measured.
    #[must_use]
    pub fn need(&self) -> f64 {
        self.need
    }

    /// Takes what was measured for one batch.
    pub fn observe(&mut self, observation: Observation) {
        if self.mode != RouteMode::Auto || observation.elapsed.is_zero() {
            return;
        }
        self.seen = self.seen.saturating_add(1);
        if self.seen <= WARM_UP {
            return;
        }
        if self.window.len() == WINDOW {
            self.window.pop_front();
        }
        self.window.push_back(observation);
        let Some(rates) = self.rates() else { return };
        self.supported = rates.supported.clamp(0.01, 1.0);
        self.engine_rate = rates.engine.or(self.engine_rate);
        self.judge_engines(&rates);
        self.judge_need(&rates);
        self.move_share(&rates);
    }

    fn rates(&self) -> Option<Rates> {
        let seconds = |time: Duration| time.as_secs_f64().min(ELAPSED_MAX_S);
        let own = |o: &Observation| seconds(o.elapsed.saturating_sub(o.waited));
        // The consumer was away for something else than a step: such batches tell nothing about its rate.
        let usual = 4.0 * median(self.window.iter().map(own)) + median(self.window.iter().map(|o| seconds(o.elapsed)));
        let steps = || self.window.iter().filter(|o| own(o) <= usual);
        let sum = |part: &dyn Fn(&Observation) -> f64| steps().map(part).sum::<f64>();
        let elapsed = sum(&|o| seconds(o.elapsed));
        let cpu_images = sum(&|o| o.cpu_images as f64);
        let cpu_busy = sum(&|o| o.cpu_busy.as_secs_f64());
        let engine_images = sum(&|o| o.engine_images as f64);
        let engine_busy = sum(&|o| seconds(o.engine_busy));
        let refused = sum(&|o| o.engine_refused.min(o.engine_images) as f64);
        let images = cpu_images + engine_images - refused;
        if elapsed <= 0.0 || images <= 0.0 || cpu_images <= 0.0 || cpu_busy <= 0.0 {
            return None;
        }
        Some(Rates {
            taken: images / elapsed,
            waits: sum(&|o| seconds(o.waited.min(o.elapsed))) / elapsed,
            cpu: self.threads * cpu_images / cpu_busy,
            busy: cpu_busy / (self.threads * elapsed),
            engine: (engine_images > 0.0 && engine_busy > 0.0).then(|| engine_images / engine_busy),
            refused: if engine_images > 0.0 { refused / engine_images } else { 0.0 },
            supported: 1.0 - sum(&|o| o.unsupported as f64).min(images) / images,
        })
    }

    /// Engines that refuse much rest for a while, each time longer.
    fn judge_engines(&mut self, rates: &Rates) {
        if self.rest > 0 {
            self.rest -= 1;
        } else if rates.refused > REFUSED_MAX {
            self.rest = self.rest_next;
            self.rest_next = (self.rest_next * 2).min(REST_MAX);
        }
    }

    /// What the consumer takes is what it needs, unless it waits: then it needs more, and how much shows only by trying.
    fn judge_need(&mut self, rates: &Rates) {
        let waited = self.is_waiting;
        self.is_waiting = rates.waits > if waited { WAITS_TO } else { WAITS_FROM };
        if !self.is_waiting {
            self.calm = self.calm.saturating_add(1);
            let follows = self.need + (rates.taken - self.need) * NEED_FOLLOWS;
            self.need = if self.need > 0.0 { follows.max(self.need * NEED_FALL) } else { rates.taken };
            return;
        }
        if !waited && self.calm >= CALM {
            self.usable = (self.usable - USABLE_STEP).max(USABLE_MIN);
        }
        self.calm = 0;
        if rates.busy > BUSY_FROM {
            let most = (rates.cpu + self.engine_rate.unwrap_or(rates.cpu)) / self.usable;
            self.need = (self.need.max(rates.taken) * NEED_GROWTH).min(most);
        } else {
            self.need = self.need.max(rates.taken);
        }
    }

    fn move_share(&mut self, rates: &Rates) {
        // Until it is measured the engines are taken to be as fast as the threads.
        let engine = self.engine_rate.unwrap_or(rates.cpu);
        let balanced = engine / (engine + rates.cpu);
        let missing = 1.0 - self.usable * rates.cpu / self.need.max(1e-9);
        let wanted = if self.rest > 0 { 0.0 } else { missing.clamp(0.0, balanced).min(self.supported) };
        let is_end = wanted == 0.0 && self.share < 2.0 * DEAD_BAND;
        if is_end || self.rest > 0 {
            self.share = wanted;
        } else if (wanted - self.share).abs() > DEAD_BAND.min(wanted.min(1.0 - wanted) / 12.0) {
            self.share += (wanted - self.share) * STEP;
        }
        self.share = self.share.clamp(0.0, 1.0);
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests;
