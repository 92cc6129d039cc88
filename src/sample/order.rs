//! The plan of an epoch: which sample comes at which position, for every rank.
//!
//! It moves numbers, never data, and remembers nothing: each answer is a pure function of seed, epoch, rank and world
//! size, whatever the number of threads, so a run resumes by knowing how far it came.

use super::permutation::{Permutation, derive_key};
use crate::error::{Error, ErrorKind, Result};

/// In which order the samples of an epoch come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Shuffle {
    /// As they lie in the shards.
    #[default]
    None,
    /// An exact shuffle of all samples.
    Global,
    /// The shards in random order, and the samples of each `shards` neighbours in that order shuffled together: reads
    /// stay within a few shards at a time. At least 1; 1 shuffles within single shards.
    Window {
        /// Shards that are shuffled together.
        shards: usize,
    },
}

/// How ranks get equal counts when the samples do not divide evenly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Remainder {
    /// The first samples of the epoch's order come once more at its end.
    #[default]
    Pad,
    /// The last samples of the epoch's order are left out.
    Drop,
}

/// Which share of an epoch belongs to this process.
///
/// Ranks take turns: position `p` of rank `r` is position `p * world_size + r` of the epoch's order, unless they take
/// [more at a turn](EpochPlan::in_turns_of). So after as many turns of each the ranks together have seen a prefix of
/// that order, and a run can go on with another number of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Split {
    /// This process, below `world_size`.
    pub rank: usize,
    /// Number of processes, at least 1.
    pub world_size: usize,
    /// What happens to samples that do not divide evenly.
    pub remainder: Remainder,
}

impl Split {
    /// The only process: sees every sample exactly once.
    #[must_use]
    pub fn whole() -> Self {
        Self { rank: 0, world_size: 1, remainder: Remainder::Pad }
    }

    /// Makes sure that the rank exists.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] when there are no processes or `rank` is none of them.
    pub fn check(&self) -> Result<()> {
        if self.rank < self.world_size {
            return Ok(());
        }
        let Self { rank, world_size, .. } = self;
        Err(Error::new(ErrorKind::InvalidOption, format!("rank {rank} does not exist in a world of {world_size}"))
            .with_hint("ranks count from 0 to the world size less one"))
    }
}

impl Default for Split {
    fn default() -> Self {
        Self::whole()
    }
}

/// The order of one epoch as one rank sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpochPlan {
    order: Order,
    samples: usize,
    split: Split,
    /// Samples that all ranks together had before this plan begins.
    consumed: usize,
    /// Samples that a rank takes at its turn, at least 1.
    turn: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Order {
    Stored,
    Global(Permutation),
    Window(Windows),
}

impl EpochPlan {
    /// The plan of an epoch over shards with these numbers of samples; samples are numbered in shard order.
    ///
    /// Costs nothing for [`Shuffle::None`] and [`Shuffle::Global`], and a table of the shards for [`Shuffle::Window`].
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] for a window of no shards or a rank that does not exist, [`ErrorKind::Limit`] when
    /// the samples cannot be counted.
    pub fn new(shard_lens: &[usize], shuffle: Shuffle, seed: u64, epoch: u64, split: Split) -> Result<Self> {
        split.check()?;
        let samples = shard_lens
            .iter()
            .try_fold(0_usize, |sum, &len| sum.checked_add(len))
            .filter(|&samples| samples.checked_add(split.world_size).is_some())
            .ok_or_else(|| Error::new(ErrorKind::Limit, "the data set has more samples than can be counted"))?;
        let order = match shuffle {
            Shuffle::None => Order::Stored,
            Shuffle::Global => Order::Global(Permutation::new(samples, derive_key(&[GLOBAL, seed, epoch]))),
            Shuffle::Window { shards: 0 } => {
                return Err(Error::new(ErrorKind::InvalidOption, "a shuffle window of 0 shards holds no samples")
                    .with_hint("a window is 1 shard or more"));
            }
            Shuffle::Window { shards } => Order::Window(Windows::new(shard_lens, shards, seed, epoch)),
        };
        Ok(Self { order, samples, split, consumed: 0, turn: 1 })
    }

    /// What is left of the epoch once all ranks together have had `consumed` samples, however many ranks those were.
    ///
    /// With an unchanged world size and `consumed` a multiple of it, this is the tail of the plan.
    #[must_use]
    pub fn after(mut self, consumed: usize) -> Self {
        self.consumed = consumed.min(self.samples);
        self
    }

    /// The same order dealt out in neighbouring `samples` a turn, at least 1, instead of one by one. Of the last round
    /// all ranks take equal parts, so what [`Remainder::Pad`] repeats comes last of all, on the last ranks.
    #[must_use]
    pub fn in_turns_of(mut self, samples: usize) -> Self {
        self.turn = samples.max(1);
        self
    }

    /// Number of samples of this rank: the same on every rank.
    #[must_use]
    pub fn len(&self) -> usize {
        let left = self.samples - self.consumed;
        match self.split.remainder {
            Remainder::Pad => left.div_ceil(self.split.world_size),
            Remainder::Drop => left / self.split.world_size,
        }
    }

    /// Whether this rank has no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of the sample at `position`, or `None` behind the end.
    #[must_use]
    pub fn get(&self, position: usize) -> Option<usize> {
        let len = self.len();
        if position >= len {
            return None;
        }
        let before = position / self.turn * self.turn;
        let turn = self.turn.min(len - before);
        // In bounds: below `samples + world_size`, which `new` has checked.
        let place = self.consumed + before * self.split.world_size + self.split.rank * turn + (position - before);
        let place = if place < self.samples { place } else { (place - self.samples) % self.samples };
        Some(match &self.order {
            Order::Stored => place,
            Order::Global(permutation) => permutation.at(place),
            Order::Window(windows) => windows.at(place),
        })
    }

    /// The number of the sample at `position`, in constant time; for windows, in the logarithm of the shards.
    ///
    /// # Panics
    /// When `position` is not below [`len`](Self::len), as indexing a slice does.
    #[must_use]
    pub fn at(&self, position: usize) -> usize {
        let Some(sample) = self.get(position) else {
            panic!("position {position} is behind the end of a plan of {} samples", self.len())
        };
        sample
    }

    /// This rank's samples in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.len()).map_while(|position| self.get(position))
    }
}

// What a key is for, so that equal seeds do not make equal orders of unlike things.
const GLOBAL: u64 = 1;
const SHARDS: u64 = 2;
const WINDOW: u64 = 3;

/// The order of the shards `0..shards` in an epoch; windows and streams share it.
pub(super) fn shard_permutation(shards: usize, seed: u64, epoch: u64) -> Permutation {
    Permutation::new(shards, derive_key(&[SHARDS, seed, epoch]))
}

/// Shards in random order, shuffled together a few at a time.
///
/// Invariant: `ends` rises (not strictly), has one entry a shard, and windows cover `ends` in pieces of `window_shards`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Windows {
    /// By place in the shuffled order: the number of the shard's first sample.
    first_samples: Vec<usize>,
    /// By place in the shuffled order: the position behind the shard's last sample.
    ends: Vec<usize>,
    window_shards: usize,
    /// One for each window.
    permutations: Vec<Permutation>,
}

impl Windows {
    fn new(shard_lens: &[usize], window_shards: usize, seed: u64, epoch: u64) -> Self {
        let starts: Vec<usize> =
            shard_lens.iter().scan(0, |end, len| Some(std::mem::replace(end, *end + len))).collect();
        let permutation = shard_permutation(shard_lens.len(), seed, epoch);
        let shards: Vec<usize> = (0..shard_lens.len()).map(|place| permutation.at(place)).collect();
        let mut end = 0;
        let mut ends = Vec::with_capacity(shards.len());
        let mut permutations = Vec::with_capacity(shards.len().div_ceil(window_shards));
        for (window, members) in shards.chunks(window_shards).enumerate() {
            let start = end;
            for &shard in members {
                end += shard_lens[shard];
                ends.push(end);
            }
            permutations.push(Permutation::new(end - start, derive_key(&[WINDOW, seed, epoch, window as u64])));
        }
        Self { first_samples: shards.iter().map(|&shard| starts[shard]).collect(), ends, window_shards, permutations }
    }

    /// The sample at `place`, which lies below the number of samples.
    fn at(&self, place: usize) -> usize {
        let window = self.ends.partition_point(|&end| end <= place) / self.window_shards;
        let first = window * self.window_shards;
        let last = self.ends.len().min(first + self.window_shards);
        let start = self.start(first);
        let place = start + self.permutations[window].at(place - start);
        let shard = first + self.ends[first..last].partition_point(|&end| end <= place);
        self.first_samples[shard] + (place - self.start(shard))
    }

    /// The position of a shard's first sample, by its place in the shuffled order.
    fn start(&self, shard: usize) -> usize {
        if shard == 0 { 0 } else { self.ends[shard - 1] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(rank: usize, world_size: usize, remainder: Remainder) -> Split {
        Split { rank, world_size, remainder }
    }

    fn plan(shard_lens: &[usize], shuffle: Shuffle, epoch: u64, split: Split) -> EpochPlan {
        EpochPlan::new(shard_lens, shuffle, 17, epoch, split).unwrap()
    }

    fn shuffles() -> impl Strategy<Value = Shuffle> {
        prop_oneof![
            Just(Shuffle::None),
            Just(Shuffle::Global),
            (1_usize..9).prop_map(|shards| Shuffle::Window { shards })
        ]
    }

    proptest! {
        #[test]
        fn a_whole_epoch_has_every_sample_once(
            lens in prop::collection::vec(0_usize..40, 0..20), shuffle in shuffles(), epoch: u64
        ) {
            let mut order: Vec<usize> = plan(&lens, shuffle, epoch, Split::whole()).iter().collect();
            order.sort_unstable();
            prop_assert_eq!(order, (0..lens.iter().sum()).collect::<Vec<_>>());
        }

        #[test]
        fn ranks_share_an_epoch_without_overlap(
            lens in prop::collection::vec(0_usize..30, 0..12), shuffle in shuffles(), world_size in 1_usize..12
        ) {
            let whole: Vec<usize> = plan(&lens, shuffle, 3, Split::whole()).iter().collect();
            let ranks = |remainder| -> Vec<Vec<usize>> {
                (0..world_size).map(|rank| plan(&lens, shuffle, 3, split(rank, world_size, remainder)).iter().collect()).collect()
            };
            // In turns, the ranks read the epoch's order.
            let woven = |ranks: &[Vec<usize>]| -> Vec<usize> {
                (0..ranks[0].len()).flat_map(|position| ranks.iter().map(move |rank| rank[position])).collect()
            };

            let dropped = ranks(Remainder::Drop);
            prop_assert!(dropped.iter().all(|rank| rank.len() == whole.len() / world_size));
            prop_assert_eq!(&woven(&dropped)[..], &whole[..whole.len() / world_size * world_size]);

            let padded = ranks(Remainder::Pad);
            prop_assert!(padded.iter().all(|rank| rank.len() == whole.len().div_ceil(world_size)));
            let expected: Vec<usize> =
                whole.iter().cycle().take(whole.len().div_ceil(world_size) * world_size).copied().collect();
            prop_assert_eq!(woven(&padded), expected);
        }

        #[test]
        fn turns_of_any_length_share_the_same_order(
            lens in prop::collection::vec(0_usize..30, 1..8), shuffle in shuffles(), world_size in 1_usize..7,
            turn in 1_usize..12, rounds in 0_usize..5, drop: bool
        ) {
            let remainder = if drop { Remainder::Drop } else { Remainder::Pad };
            let whole: Vec<usize> = plan(&lens, shuffle, 3, Split::whole()).iter().collect();
            let ranks: Vec<EpochPlan> = (0..world_size)
                .map(|rank| plan(&lens, shuffle, 3, split(rank, world_size, remainder)).in_turns_of(turn))
                .collect();
            let len = ranks[0].len();
            prop_assert!(ranks.iter().all(|rank| rank.len() == len));
            // Round after round, the ranks one after the other: gathered so, padding is what is left over at the end.
            let mut gathered = Vec::new();
            for before in (0..len).step_by(turn) {
                for rank in &ranks {
                    gathered.extend((before..len.min(before + turn)).map(|position| rank.at(position)));
                }
            }
            let expected: Vec<usize> = whole.iter().cycle().take(len * world_size).copied().collect();
            prop_assert_eq!(gathered, expected);
            // What is left after some rounds is the tail, whoever shares it.
            let had = (rounds * turn).min(len);
            for rank in &ranks {
                let tail: Vec<usize> = rank.iter().skip(had).collect();
                prop_assert_eq!(rank.clone().after(had * world_size).iter().collect::<Vec<_>>(), tail);
            }
        }

        #[test]
        fn a_window_draws_from_its_own_shards(
            lens in prop::collection::vec(1_usize..30, 1..20), shards in 1_usize..6
        ) {
            let starts: Vec<usize> = lens.iter().scan(0, |end, len| Some(std::mem::replace(end, *end + len))).collect();
            let order = plan(&lens, Shuffle::Window { shards }, 5, Split::whole());
            let shard_of = |sample: usize| starts.partition_point(|&start| start <= sample) - 1;
            let mut samples = order.iter();
            let permutation = shard_permutation(lens.len(), 17, 5);
            let shard_order: Vec<usize> = (0..lens.len()).map(|place| permutation.at(place)).collect();
            for window in shard_order.chunks(shards) {
                let count = window.iter().map(|&shard| lens[shard]).sum();
                for sample in samples.by_ref().take(count) {
                    prop_assert!(window.contains(&shard_of(sample)));
                }
            }
        }

        #[test]
        fn a_resumed_epoch_goes_on_where_it_stopped(
            lens in prop::collection::vec(0_usize..30, 1..12), shuffle in shuffles(),
            world_size in 1_usize..9, rounds in 0_usize..40, drop: bool
        ) {
            let remainder = if drop { Remainder::Drop } else { Remainder::Pad };
            for rank in 0..world_size {
                let plan = plan(&lens, shuffle, 1, split(rank, world_size, remainder));
                let tail: Vec<usize> = plan.iter().skip(rounds).collect();
                let resumed = plan.clone().after(rounds * world_size);
                prop_assert_eq!(resumed.len(), tail.len());
                prop_assert_eq!(resumed.iter().collect::<Vec<_>>(), tail);
            }
        }
    }

    #[test]
    fn a_run_can_go_on_with_another_number_of_ranks() {
        let lens = [100, 37];
        let whole: Vec<usize> = plan(&lens, Shuffle::Global, 0, Split::whole()).iter().collect();
        let mut seen: Vec<usize> = (0..4)
            .flat_map(|rank| {
                let plan = plan(&lens, Shuffle::Global, 0, split(rank, 4, Remainder::Drop));
                plan.iter().take(10).collect::<Vec<_>>()
            })
            .collect();
        for rank in 0..3 {
            seen.extend(plan(&lens, Shuffle::Global, 0, split(rank, 3, Remainder::Drop)).after(40).iter());
        }
        seen.sort_unstable();
        let mut expected = whole[..40 + 97 / 3 * 3].to_vec();
        expected.sort_unstable();
        assert_eq!(seen, expected);
    }

    #[test]
    fn epochs_and_seeds_have_their_own_orders() {
        let lens = [300, 300, 400];
        for shuffle in [Shuffle::Global, Shuffle::Window { shards: 2 }] {
            let order = |seed, epoch| -> Vec<usize> {
                EpochPlan::new(&lens, shuffle, seed, epoch, Split::whole()).unwrap().iter().collect()
            };
            assert_eq!(order(0, 1), order(0, 1));
            let orders = [order(0, 0), order(0, 1), order(1, 0), order(1, 1), order(0, u64::MAX)];
            for (place, one) in orders.iter().enumerate() {
                for other in &orders[..place] {
                    let same = one.iter().zip(other).filter(|(a, b)| a == b).count();
                    assert!(same < 20, "{shuffle:?}: {same} of 1000 positions are equal");
                }
            }
        }
    }

    #[test]
    fn the_stored_order_counts_up() {
        assert_eq!(plan(&[2, 0, 3], Shuffle::None, 9, Split::whole()).iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn more_ranks_than_samples_still_get_equal_counts() {
        let ranks = |remainder| (0..8).map(move |rank| plan(&[3], Shuffle::Global, 0, split(rank, 8, remainder)));
        assert!(ranks(Remainder::Drop).all(|plan| plan.is_empty()));
        let padded: Vec<usize> = ranks(Remainder::Pad).map(|plan| plan.at(0)).collect();
        assert_eq!((&padded[..3], &padded[..2]), (&padded[3..6], &padded[6..]));
        assert!(plan(&[], Shuffle::Global, 0, split(1, 2, Remainder::Pad)).is_empty());
    }

    #[test]
    fn impossible_plans_are_refused() {
        let check = |lens: &[usize], shuffle, split, expected| {
            assert_eq!(EpochPlan::new(lens, shuffle, 0, 0, split).unwrap_err().kind(), expected);
        };
        check(&[1], Shuffle::Window { shards: 0 }, Split::whole(), ErrorKind::InvalidOption);
        check(&[1], Shuffle::None, split(2, 2, Remainder::Pad), ErrorKind::InvalidOption);
        check(&[1], Shuffle::None, split(0, 0, Remainder::Pad), ErrorKind::InvalidOption);
        check(&[usize::MAX, 1], Shuffle::None, Split::whole(), ErrorKind::Limit);
        check(&[usize::MAX], Shuffle::None, split(1, 2, Remainder::Pad), ErrorKind::Limit);
    }

    #[test]
    #[should_panic(expected = "behind the end")]
    fn a_position_behind_the_end_panics() {
        let _ = plan(&[3], Shuffle::None, 0, Split::whole()).at(3);
    }
}
