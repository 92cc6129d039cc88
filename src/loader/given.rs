//! An epoch whose order the caller names, batch by batch, while it runs: how numbers come in, and how often each came
//! before. It reads and decodes nothing, and draws no order of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam::channel::{self, Receiver, Sender};

use crate::{Error, ErrorKind, Result};

/// Who decides in which order samples come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// The loader: a function of shuffling, seed, epoch and rank.
    #[default]
    Planned,
    /// The caller, who hands over the numbers of each batch: see [`Orders`].
    Given,
}

/// Numbers of one batch, in row order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GivenBatch {
    /// Its number in the epoch.
    pub(crate) index: usize,
    pub(crate) numbers: Arc<[usize]>,
    /// How often each number came before in this epoch.
    pub(crate) occurrences: Vec<u32>,
    /// What may stand in for a bad sample: numbers of this batch, and where these are few, of those before it.
    pub(crate) peers: Arc<[usize]>,
}

/// What the caller says.
#[derive(Debug)]
pub(crate) enum Given {
    Batch(GivenBatch),
    EpochEnd,
}

/// Numbers that a replacement is chosen from, where so many were given.
const PEERS_MIN: usize = 32;

/// The order of one epoch, in the caller's hands: sample numbers, batch by batch. It may be used while another thread
/// waits for a batch; cloned, it is the same order.
#[derive(Debug, Clone)]
pub struct Orders(Arc<Mutex<Giver>>);

impl Orders {
    pub(crate) fn new(giver: Giver) -> Self {
        Self(Arc::new(Mutex::new(giver)))
    }

    /// Whether another batch may be given now: a few are taken ahead of those that were delivered, no more.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.lock().has_room()
    }

    /// Hands over the sample numbers of the next batch, in row order. A number may come again, in the same batch or a
    /// later one: it is augmented in another way each time.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] for an empty batch, one larger than a GPU's slots, a number that does not exist, and
    /// where there is no room.
    pub fn give(&self, numbers: Vec<usize>) -> Result<()> {
        self.lock().give(numbers)
    }

    /// Counts a batch that was delivered before the state was saved from which this epoch goes on: it is not made
    /// again.
    ///
    /// # Errors
    /// As [`give`](Self::give).
    pub fn pass_over(&self, numbers: &[usize]) -> Result<()> {
        self.lock().pass_over(numbers)
    }

    /// Says that the epoch has no more batches than those given: it is over once they are delivered.
    pub fn end(&self) {
        self.lock().end();
    }

    pub(crate) fn taken(&self) {
        self.lock().taken();
    }

    /// The order of the next epoch, through the same channel; this one has ended.
    pub(crate) fn renewed(&self) -> Self {
        let giver = self.lock();
        let Giver { sender, samples, rows_max, limit, .. } = &*giver;
        Self::new(Giver::of(sender.clone(), *samples, *rows_max, *limit))
    }

    fn lock(&self) -> MutexGuard<'_, Giver> {
        // Nothing that runs under the lock can leave the order half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an order knows of itself. It counts what is under way and has room for so many batches only, so that an order
/// without end is taken no faster than batches are.
#[derive(Debug)]
pub(crate) struct Giver {
    sender: Sender<Given>,
    samples: usize,
    rows_max: usize,
    /// Batches that were given and not delivered, and how many may be.
    outstanding: usize,
    limit: usize,
    next_index: usize,
    seen: Occurrences,
    recent: Vec<usize>,
    has_ended: bool,
}

impl Giver {
    /// An order over `samples` samples, `limit` batches ahead at most, each of `rows_max` rows at most.
    pub(crate) fn new(samples: usize, rows_max: usize, limit: usize) -> (Self, Receiver<Given>) {
        // Bounded by `limit`.
        let (sender, receiver) = channel::unbounded();
        (Self::of(sender, samples, rows_max, limit), receiver)
    }

    fn of(sender: Sender<Given>, samples: usize, rows_max: usize, limit: usize) -> Self {
        Self {
            sender,
            samples,
            rows_max,
            outstanding: 0,
            limit,
            next_index: 0,
            seen: Occurrences::default(),
            recent: Vec::new(),
            has_ended: false,
        }
    }

    /// Whether another batch may be given now.
    pub(crate) fn has_room(&self) -> bool {
        !self.has_ended && self.outstanding < self.limit
    }

    /// Hands over the numbers of the next batch.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] for a batch without rows or with too many, for a number that does not exist, and
    /// where there is no room.
    pub(crate) fn give(&mut self, numbers: Vec<usize>) -> Result<()> {
        self.check(&numbers)?;
        if !self.has_room() {
            let message = format!("{} batches are given ahead already, or the order has ended", self.outstanding);
            return Err(Error::new(ErrorKind::InvalidOption, message).with_hint("ask for room before giving a batch"));
        }
        let occurrences = numbers.iter().map(|&number| self.seen.count(number, self.samples)).collect();
        let numbers: Arc<[usize]> = numbers.into();
        self.remember(&numbers);
        let peers = match numbers.len() < PEERS_MIN {
            true => self.recent.as_slice().into(),
            false => Arc::clone(&numbers),
        };
        let batch = GivenBatch { index: self.next_index, numbers, occurrences, peers };
        self.next_index += 1;
        self.outstanding += 1;
        // Where nobody takes it, the run tells why.
        let _ = self.sender.send(Given::Batch(batch));
        Ok(())
    }

    /// Counts a batch that was delivered in an earlier life of this epoch and is not made again.
    ///
    /// # Errors
    /// As [`give`](Self::give).
    pub(crate) fn pass_over(&mut self, numbers: &[usize]) -> Result<()> {
        self.check(numbers)?;
        for &number in numbers {
            self.seen.count(number, self.samples);
        }
        self.remember(numbers);
        self.next_index += 1;
        Ok(())
    }

    /// Says that this epoch has no more batches.
    pub(crate) fn end(&mut self) {
        if !self.has_ended {
            self.has_ended = true;
            let _ = self.sender.send(Given::EpochEnd);
        }
    }

    /// Takes note that a batch was delivered.
    pub(crate) fn taken(&mut self) {
        self.outstanding = self.outstanding.saturating_sub(1);
    }

    fn check(&self, numbers: &[usize]) -> Result<()> {
        let refused =
            |message: String, hint: &str| Err(Error::new(ErrorKind::InvalidOption, message).with_hint(hint.to_owned()));
        if numbers.is_empty() {
            return refused(
                "a batch was asked for that has no samples".to_owned(),
                "leave it out of the batch sampler",
            );
        }
        if numbers.len() > self.rows_max {
            let message =
                format!("a batch of {} rows was asked for, and {} are the most", numbers.len(), self.rows_max);
            return refused(message, "make smaller batches");
        }
        match numbers.iter().find(|&&number| number >= self.samples) {
            None => Ok(()),
            Some(number) => {
                let message = format!("there is no sample {number}: the data set has {}", self.samples);
                refused(message, "the sampler must give numbers from 0 to one less than the length of the data set")
            }
        }
    }

    /// Keeps the last few numbers: what stands in for a bad sample is a function of the order alone.
    fn remember(&mut self, numbers: &[usize]) {
        self.recent.extend_from_slice(&numbers[numbers.len().saturating_sub(PEERS_MIN)..]);
        let excess = self.recent.len().saturating_sub(PEERS_MIN);
        self.recent.drain(..excess);
    }
}

/// How often each number came, in a bit for each number and an entry for those that came again.
#[derive(Debug, Default)]
struct Occurrences {
    once: Vec<u64>,
    again: HashMap<usize, u32>,
}

impl Occurrences {
    /// How often `number`, of `samples`, came before; it has now come once more.
    fn count(&mut self, number: usize, samples: usize) -> u32 {
        if self.once.is_empty() {
            self.once = vec![0; samples.div_ceil(64)];
        }
        let bit = 1 << (number % 64);
        let Some(word) = self.once.get_mut(number / 64) else { return 0 };
        if *word & bit == 0 {
            *word |= bit;
            return 0;
        }
        let times = self.again.entry(number).or_default();
        *times = times.wrapping_add(1);
        *times
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn room_comes_back_with_each_batch_that_is_delivered() {
        let (mut giver, orders) = Giver::new(10, 4, 2);
        giver.give(vec![1, 2]).unwrap();
        giver.give(vec![3]).unwrap();
        assert!(!giver.has_room());
        assert_eq!(giver.give(vec![4]).unwrap_err().kind(), ErrorKind::InvalidOption);
        giver.taken();
        assert!(giver.has_room());
        giver.give(vec![4]).unwrap();
        giver.end();
        giver.end();
        assert!(!giver.has_room());
        let said: Vec<Given> = orders.try_iter().collect();
        assert_eq!(said.len(), 4, "three batches and one end");
    }

    #[test]
    fn what_cannot_be_a_batch_is_refused() {
        let (mut giver, _orders) = Giver::new(10, 4, 2);
        for (numbers, word) in [(vec![], "no samples"), (vec![0; 5], "the most"), (vec![3, 10], "no sample 10")] {
            let error = giver.give(numbers).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    proptest! {
        #[test]
        fn occurrences_are_those_of_a_plain_count(
            batches in prop::collection::vec(prop::collection::vec(0_usize..70, 1..9), 0..20),
            passed in 0_usize..20,
        ) {
            let (mut giver, orders) = Giver::new(70, 8, 32);
            let mut counts = [0_u32; 70];
            let mut expected = Vec::new();
            for (index, numbers) in batches.iter().enumerate() {
                let before: Vec<u32> = numbers.iter().map(|&number| {
                    counts[number] += 1;
                    counts[number] - 1
                }).collect();
                if index < passed {
                    giver.pass_over(numbers).unwrap();
                } else {
                    giver.give(numbers.clone()).unwrap();
                    expected.push((index, numbers.clone(), before));
                }
            }
            let got: Vec<_> = orders.try_iter().map(|given| match given {
                Given::Batch(batch) => (batch.index, batch.numbers.to_vec(), batch.occurrences),
                Given::EpochEnd => panic!("no end was told"),
            }).collect();
            prop_assert_eq!(got, expected);
        }

        #[test]
        fn what_may_stand_in_does_not_depend_on_where_the_epoch_was_taken_up(
            batches in prop::collection::vec(prop::collection::vec(0_usize..70, 1..50), 1..12),
            passed in 0_usize..12,
        ) {
            let peers = |passed: usize| {
                let (mut giver, orders) = Giver::new(70, 64, 32);
                for (index, numbers) in batches.iter().enumerate() {
                    match index < passed {
                        true => giver.pass_over(numbers).unwrap(),
                        false => giver.give(numbers.clone()).unwrap(),
                    }
                }
                let peers = |given| match given {
                    Given::Batch(batch) => batch.peers.to_vec(),
                    Given::EpochEnd => Vec::new(),
                };
                orders.try_iter().map(peers).collect::<Vec<_>>()
            };
            let passed = passed.min(batches.len());
            prop_assert_eq!(&peers(0)[passed..], &peers(passed)[..]);
        }
    }
}
