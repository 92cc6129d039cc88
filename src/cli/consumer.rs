//! Takes batches from a loader as a training loop without a model would, as fast as they come, and keeps the times. What
//! the numbers mean is for others to say.

use std::time::{Duration, Instant};

use super::process::{self, ResidentMemory};
use crate::loader::{BadSample, Loader, Stats};
use crate::{Error, ErrorKind, Result};

/// Batches after which the loader's buffers have all been used once: the system gives memory when it is first written,
/// and that is the work of a start, not of an epoch.
const WARM_BATCHES: u64 = 8;

/// When to stop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Until {
    /// After so many whole epochs.
    Epochs(u64),
    /// With the first batch after so much time, counted from the batch from which on the rate counts.
    Elapsed(Duration),
}

/// What was taken, and when.
#[derive(Debug)]
pub(super) struct Taken {
    /// All images.
    pub(super) images: u64,
    /// Epochs begun.
    pub(super) epochs: u64,
    /// From asking for the first epoch to the first batch.
    pub(super) first_batch: Duration,
    /// From one of the first batches to the last, and the images after that one: at both ends the loader has the same
    /// work in flight, so neither its start nor what it prepares in vain counts.
    pub(super) steady: Duration,
    pub(super) steady_images: u64,
    /// Processor time of the whole process from the first batch to the last.
    pub(super) cpu: Option<Duration>,
    /// The time between the batches on both sides of an epoch's end, in mean times between batches of one epoch.
    pub(super) epoch_gap: Option<f64>,
    pub(super) memory: Option<ResidentMemory>,
    /// Samples that were left out, each once.
    pub(super) bad: Vec<BadSample>,
    pub(super) stats: Stats,
}

impl Taken {
    /// Images a second in steady state; over all time where there was but one batch.
    pub(super) fn images_per_s(&self) -> f64 {
        let (images, time) =
            if self.steady_images > 0 { (self.steady_images, self.steady) } else { (self.images, self.first_batch) };
        images as f64 / time.as_secs_f64().max(1e-9)
    }

    /// Seconds of processor time for 1,000 images.
    pub(super) fn cpu_s_per_1000(&self) -> Option<f64> {
        let cpu = self.cpu.filter(|_| self.steady_images > 0)?;
        Some(cpu.as_secs_f64() * 1000.0 / self.steady_images as f64)
    }
}

/// Takes batches until the end asked for; tells `progress` how many images came so far.
///
/// # Errors
/// Those of the loader, and when not one image came.
pub(super) fn take(loader: &Loader, until: Until, progress: &dyn Fn(u64)) -> Result<Taken> {
    let asked = Instant::now();
    let mut clock = Clock::default();
    let mut epochs = 0;
    let mut memory = None;
    'epochs: while until != Until::Epochs(epochs) {
        epochs += 1;
        for batch in loader.epoch()? {
            clock.tick(batch?.len() as u64);
            progress(clock.images);
            if let Until::Elapsed(time) = until
                && clock.elapsed() >= time
            {
                // While the loader still holds all its buffers.
                memory = process::resident_memory();
                break 'epochs;
            }
        }
        memory = process::resident_memory();
        if clock.end_epoch() == 0 {
            break;
        }
    }
    if clock.images == 0 {
        let bad = loader.bad_samples().into_iter().next();
        let reason = bad.map_or("there are none".into(), |bad| format!("the first one is bad: {}", bad.message));
        return Err(Error::new(ErrorKind::Decode, format!("no image could be loaded: {reason}")));
    }
    Ok(clock.taken(asked, epochs, memory, loader))
}

/// Times of batches.
#[derive(Debug, Default)]
struct Clock {
    /// The first batch of all.
    begun: Option<Instant>,
    /// The batch from which on the rate counts: the first one, until there are enough to leave out those whose memory
    /// was touched for the first time.
    first: Option<(Instant, Option<Duration>)>,
    batches: u64,
    last: Option<(Instant, Option<Duration>)>,
    images: u64,
    images_first: u64,
    /// Batches of the epoch in work.
    batches_epoch: u64,
    within: Vec<Duration>,
    between: Vec<Duration>,
}

impl Clock {
    fn tick(&mut self, images: u64) {
        let now = (Instant::now(), process::cpu_time());
        self.batches += 1;
        if self.batches == 1 || self.batches == WARM_BATCHES {
            self.begun.get_or_insert(now.0);
            self.first = Some(now);
            self.images_first = self.images + images;
        }
        match &self.last {
            None => {}
            Some((last, _)) if self.batches_epoch == 0 => self.between.push(now.0 - *last),
            Some((last, _)) => self.within.push(now.0 - *last),
        }
        self.last = Some(now);
        self.images += images;
        self.batches_epoch += 1;
    }

    /// Returns how many batches the epoch had.
    fn end_epoch(&mut self) -> u64 {
        std::mem::take(&mut self.batches_epoch)
    }

    /// From the batch from which on the rate counts to the last.
    fn elapsed(&self) -> Duration {
        match (&self.first, &self.last) {
            (Some((first, _)), Some((last, _))) => *last - *first,
            _ => Duration::ZERO,
        }
    }

    fn taken(self, asked: Instant, epochs: u64, memory: Option<ResidentMemory>, loader: &Loader) -> Taken {
        let cpu_at = |moment: &Option<(Instant, Option<Duration>)>| moment.as_ref().and_then(|(_, cpu)| *cpu);
        let cpu = cpu_at(&self.last).zip(cpu_at(&self.first)).map(|(last, first)| last.saturating_sub(first));
        let mean = mean(&self.within).filter(|&mean| mean > 0.0);
        Taken {
            images: self.images,
            epochs,
            first_batch: self.begun.map_or(Duration::ZERO, |begun| begun - asked),
            steady: self.elapsed(),
            steady_images: self.images - self.images_first,
            cpu,
            epoch_gap: self::mean(&self.between).zip(mean).map(|(between, mean)| between / mean),
            memory,
            bad: loader.bad_samples(),
            stats: loader.stats(),
        }
    }
}

fn mean(times: &[Duration]) -> Option<f64> {
    let sum: Duration = times.iter().sum();
    (!times.is_empty()).then(|| sum.as_secs_f64() / times.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_whose_memory_is_new_do_not_count_once_there_are_others() {
        let mut clock = Clock::default();
        (0..WARM_BATCHES - 1).for_each(|_| clock.tick(10));
        assert_eq!((clock.images_first, clock.images), (10, 70));
        (0..3).for_each(|_| clock.tick(10));
        assert_eq!((clock.images_first, clock.images), (80, 100));
    }

    #[test]
    fn the_first_batch_is_where_the_clock_starts() {
        let start = Instant::now();
        let at = |ms: u64| Some((start + Duration::from_millis(ms), Some(Duration::from_millis(2 * ms))));
        let clock = Clock {
            begun: at(100).map(|(begun, _)| begun),
            first: at(100),
            batches: 3,
            last: at(300),
            images: 30,
            images_first: 10,
            within: vec![Duration::from_millis(40), Duration::from_millis(60)],
            between: vec![Duration::from_millis(100)],
            ..Clock::default()
        };
        assert_eq!(clock.elapsed(), Duration::from_millis(200));
        assert_eq!(mean(&clock.within), Some(0.05));
        assert_eq!(mean(&[]), None);
    }

    #[test]
    fn an_interval_belongs_to_an_epoch_or_lies_between_two() {
        let mut clock = Clock::default();
        for _ in 0..2 {
            (0..3).for_each(|_| clock.tick(8));
            assert_eq!(clock.end_epoch(), 3);
        }
        assert_eq!((clock.within.len(), clock.between.len()), (4, 1));
        assert_eq!((clock.images, clock.images_first), (48, 8));
        assert_eq!(clock.end_epoch(), 0);
    }
}
