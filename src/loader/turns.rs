//! Whose turn it is: finished batches come in any order and leave in the planned one, or, where that is allowed, as
//! they are ready. It holds what came early; it waits for nothing.

use std::collections::BTreeMap;

use super::assembly::Finished;

/// Whether a finished batch waits for those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Arrival {
    /// Batches come in the order of the epoch.
    #[default]
    InOrder,
    /// A batch that is ready may overtake others of its epoch.
    AsReady,
}

/// The sequence of batches and epoch ends of one run.
#[derive(Debug)]
pub(crate) struct Turns {
    arrival: Arrival,
    /// What came and has not left, by its place in the sequence; `None` is the end of an epoch.
    ///
    /// The end of an epoch comes before all batches of the next one, so that none of them can overtake it unseen.
    waiting: BTreeMap<u64, Option<Finished>>,
    /// The first place that has not left.
    next: u64,
    /// Samples of what left before its turn.
    ahead: BTreeMap<u64, usize>,
}

impl Turns {
    pub(crate) fn new(arrival: Arrival) -> Self {
        Self { arrival, waiting: BTreeMap::new(), next: 0, ahead: BTreeMap::new() }
    }

    /// Takes in what is finished, or the end of an epoch.
    pub(crate) fn insert(&mut self, sequence: u64, finished: Option<Finished>) {
        self.waiting.insert(sequence, finished);
    }

    /// What may leave now, if anything, and how many samples now lie behind with nothing missing among them; `None` in
    /// the place of a batch is the end of an epoch.
    pub(crate) fn take(&mut self) -> Option<(Option<Finished>, usize)> {
        let first = self.waiting.first_entry()?;
        let is_in_turn = *first.key() == self.next;
        if !is_in_turn && (self.arrival == Arrival::InOrder || first.get().is_none()) {
            return None;
        }
        let (sequence, finished) = first.remove_entry();
        let samples = finished.as_ref().map_or(0, Finished::samples);
        if !is_in_turn {
            self.ahead.insert(sequence, samples);
            return Some((finished, 0));
        }
        self.next += 1;
        let mut behind = samples;
        while let Some(samples) = self.ahead.remove(&self.next) {
            self.next += 1;
            behind += samples;
        }
        Some((finished, behind))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn discarded(sequence: u64) -> Option<Finished> {
        Some(Finished { sequence, batch: None, loose_bytes: 0 })
    }

    /// The order in which a sequence leaves that comes in as `arrivals`; `true` stands for the end of an epoch.
    fn departures(arrival: Arrival, ends: &[bool], arrivals: &[usize]) -> Vec<Option<u64>> {
        let mut turns = Turns::new(arrival);
        let mut left = Vec::new();
        for &place in arrivals {
            let sequence = place as u64;
            turns.insert(sequence, if ends[place] { None } else { discarded(sequence) });
            while let Some((finished, _)) = turns.take() {
                left.push(finished.map(|finished| finished.sequence));
            }
        }
        left
    }

    /// A sequence of batches and ends, and an order in which no batch comes before the end of the epoch before it.
    fn sequences() -> impl Strategy<Value = (Vec<bool>, Vec<usize>)> {
        prop::collection::vec(prop::bool::weighted(0.2), 1..24).prop_flat_map(|ends| {
            let keys = prop::collection::vec(0_u32..1000, ends.len());
            (Just(ends), keys).prop_map(|(ends, mut keys)| {
                let mut earliest = 0;
                for (place, &is_end) in ends.iter().enumerate() {
                    keys[place] = keys[place].max(earliest);
                    if is_end {
                        // The planner tells it as it comes to it, before any batch of the next epoch is begun.
                        earliest = keys[place];
                    }
                }
                let mut arrivals: Vec<usize> = (0..ends.len()).collect();
                arrivals.sort_by_key(|&place| (keys[place], place));
                (ends, arrivals)
            })
        })
    }

    proptest! {
        #[test]
        fn in_order_everything_leaves_in_sequence((ends, arrivals) in sequences()) {
            let expected: Vec<Option<u64>> =
                ends.iter().enumerate().map(|(place, &is_end)| (!is_end).then_some(place as u64)).collect();
            prop_assert_eq!(departures(Arrival::InOrder, &ends, &arrivals), expected);
        }

        #[test]
        fn as_ready_each_epoch_leaves_whole_before_its_end((ends, arrivals) in sequences()) {
            let left = departures(Arrival::AsReady, &ends, &arrivals);
            prop_assert_eq!(left.len(), ends.len());
            let epochs = |places: &[Option<u64>]| -> Vec<Vec<u64>> {
                places.split(Option::is_none).map(|epoch| {
                    let mut epoch: Vec<u64> = epoch.iter().flatten().copied().collect();
                    epoch.sort_unstable();
                    epoch
                }).collect()
            };
            let planned: Vec<Option<u64>> =
                ends.iter().enumerate().map(|(place, &is_end)| (!is_end).then_some(place as u64)).collect();
            prop_assert_eq!(epochs(&left), epochs(&planned));
        }
    }

    #[test]
    fn as_ready_a_batch_overtakes_and_samples_count_once_nothing_is_missing() {
        let mut turns = Turns::new(Arrival::AsReady);
        turns.insert(1, discarded(1));
        turns.insert(3, None);
        assert!(turns.take().is_some_and(|(finished, _)| finished.is_some_and(|finished| finished.sequence == 1)));
        assert!(turns.take().is_none(), "the epoch is not over");
        turns.insert(0, discarded(0));
        turns.insert(2, discarded(2));
        let left: Vec<_> =
            std::iter::from_fn(|| turns.take()).map(|(finished, _)| finished.map(|f| f.sequence)).collect();
        assert_eq!(left, [Some(0), Some(2), None]);
    }
}
