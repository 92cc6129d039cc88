//! Order for shards that can only be read from front to back: compressed ones, pipes.
//!
//! Without an index there is no exact shuffle: the shards are permuted and a buffer mixes what comes out of them. It
//! reads nothing itself, and every choice is a pure function of seed, epoch and the order of what is pushed.

use super::order::{Remainder, Split, shard_permutation};
use super::permutation::{Permutation, below, derive_key, random_word};
use crate::error::{Error, ErrorKind, Result};

// What a key is for; see `order`.
const BUFFER: u64 = 4;

/// The order in which the shards of an epoch are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamOrder {
    shards: usize,
    permutation: Option<Permutation>,
}

impl StreamOrder {
    /// An order of the shards `0..shards`: as they are listed, or shuffled as
    /// [`Shuffle::Window`](super::Shuffle::Window) shuffles them.
    #[must_use]
    pub fn new(shards: usize, shuffle: bool, seed: u64, epoch: u64) -> Self {
        Self { shards, permutation: shuffle.then(|| shard_permutation(shards, seed, epoch)) }
    }

    /// Number of shards.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards
    }

    /// Whether there are no shards.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shards == 0
    }

    /// The shards in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.shards).map(|place| self.permutation.as_ref().map_or(place, |permutation| permutation.at(place)))
    }
}

/// Mixes a stream within a bounded number of samples.
///
/// Each sample that comes in when the buffer is full takes the place of a random one, which goes out. What goes out
/// when depends on seed, epoch and the order of the pushes, not on time.
#[derive(Debug, Clone)]
pub struct ShuffleBuffer<T> {
    /// Never longer than `capacity`.
    items: Vec<T>,
    capacity: usize,
    key: u64,
    /// Random words used so far.
    drawn: u64,
}

impl<T> ShuffleBuffer<T> {
    /// A buffer of `capacity` samples; 1 hands the stream on in its order, one behind. `stream` tells apart buffers of
    /// one epoch, such as those of several readers. Memory grows as samples come, up to the capacity.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] for a capacity of 0.
    pub fn new(capacity: usize, seed: u64, epoch: u64, stream: u64) -> Result<Self> {
        if capacity == 0 {
            return Err(Error::new(ErrorKind::InvalidOption, "a shuffle buffer of 0 samples holds none")
                .with_hint("a buffer is 1 sample or more"));
        }
        Ok(Self { items: Vec::new(), capacity, key: derive_key(&[BUFFER, seed, epoch, stream]), drawn: 0 })
    }

    /// Takes a sample in; once the buffer is full, another comes out.
    pub fn push(&mut self, item: T) -> Option<T> {
        if self.items.len() < self.capacity {
            self.items.push(item);
            return None;
        }
        let at = self.draw();
        self.items.get_mut(at).map(|place| std::mem::replace(place, item))
    }

    /// Takes a random sample out: call it at the end of the stream until it is empty.
    pub fn pop(&mut self) -> Option<T> {
        if self.items.is_empty() {
            return None;
        }
        let at = self.draw();
        Some(self.items.swap_remove(at))
    }

    /// Samples in the buffer.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether the buffer is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// A random place in the buffer, which is not empty.
    fn draw(&mut self) -> usize {
        let word = random_word(self.key, self.drawn);
        self.drawn += 1;
        below(word, self.items.len())
    }
}

/// Gives this rank its share of a stream of unknown length, with equal counts on every rank.
///
/// Every rank reads the whole stream; ranks take turns by sample number. A rank's sample comes out only once all ranks
/// have got one of the same round, so that the last, incomplete round can be treated alike everywhere. The split
/// comes before a [`ShuffleBuffer`], never after it.
#[derive(Debug, Clone)]
pub struct StreamSplit<T> {
    split: Split,
    /// Turn of the next sample within its round.
    turn: usize,
    /// This rank's sample of the round.
    mine: Option<T>,
    /// The very first sample, kept to fill up the last round.
    first: Option<T>,
}

impl<T: Clone> StreamSplit<T> {
    /// A split at the start of a stream.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] for a rank that does not exist.
    pub fn new(split: Split) -> Result<Self> {
        split.check()?;
        Ok(Self { split, turn: 0, mine: None, first: None })
    }

    /// Takes the next sample of the stream; at the end of each round, this rank's one comes out.
    pub fn push(&mut self, item: T) -> Option<T> {
        if self.first.is_none() && self.split.remainder == Remainder::Pad && self.split.world_size > 1 {
            self.first = Some(item.clone());
        }
        if self.turn == self.split.rank {
            self.mine = Some(item);
        }
        self.turn += 1;
        if self.turn < self.split.world_size {
            return None;
        }
        self.turn = 0;
        self.mine.take()
    }

    /// Ends the stream. An incomplete round is dropped under [`Remainder::Drop`]; under [`Remainder::Pad`], ranks that
    /// it did not reach get the stream's first sample once more.
    pub fn finish(mut self) -> Option<T> {
        match self.split.remainder {
            Remainder::Pad if self.turn > 0 => self.mine.take().or(self.first),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{EpochPlan, Shuffle};
    use proptest::prelude::*;

    fn shuffled(items: std::ops::Range<usize>, capacity: usize, epoch: u64) -> Vec<usize> {
        let mut buffer = ShuffleBuffer::new(capacity, 5, epoch, 0).unwrap();
        let mut out: Vec<usize> = items.filter_map(|item| buffer.push(item)).collect();
        out.extend(std::iter::from_fn(|| buffer.pop()));
        out
    }

    fn share(items: usize, rank: usize, world_size: usize, remainder: Remainder) -> Vec<usize> {
        let mut split = StreamSplit::new(Split { rank, world_size, remainder }).unwrap();
        let mut out: Vec<usize> = (0..items).filter_map(|item| split.push(item)).collect();
        out.extend(split.finish());
        out
    }

    proptest! {
        #[test]
        fn a_buffer_loses_nothing_and_is_reproducible(count in 0_usize..300, capacity in 1_usize..80, epoch: u64) {
            let mut out = shuffled(0..count, capacity, epoch);
            prop_assert_eq!(&out, &shuffled(0..count, capacity, epoch));
            // No sample comes out before it went in: the buffer is the only distance it can gain.
            prop_assert!(out.iter().enumerate().all(|(place, &item)| item <= place + capacity));
            out.sort_unstable();
            prop_assert_eq!(out, (0..count).collect::<Vec<_>>());
        }

        #[test]
        fn ranks_get_equal_counts_of_a_stream(items in 0_usize..100, world_size in 1_usize..9) {
            let whole = EpochPlan::new(&[items], Shuffle::None, 0, 0, Split::whole()).unwrap();
            prop_assert_eq!(share(items, 0, 1, Remainder::Pad), whole.iter().collect::<Vec<_>>());
            for rank in 0..world_size {
                let split = Split { rank, world_size, remainder: Remainder::Drop };
                let plan = EpochPlan::new(&[items], Shuffle::None, 0, 0, split).unwrap();
                prop_assert_eq!(share(items, rank, world_size, Remainder::Drop), plan.iter().collect::<Vec<_>>());

                let padded = share(items, rank, world_size, Remainder::Pad);
                prop_assert_eq!(padded.len(), items.div_ceil(world_size));
                let fresh = padded.iter().filter(|&&item| item % world_size == rank).count();
                prop_assert!(fresh == padded.len() || padded.last() == Some(&0));
            }
        }
    }

    #[test]
    fn a_buffer_mixes_and_epochs_differ() {
        let one = shuffled(0..1000, 100, 0);
        let other = shuffled(0..1000, 100, 1);
        assert!(one.iter().zip(&other).filter(|(a, b)| a == b).count() < 50);
        assert!(one.iter().enumerate().filter(|(place, item)| place == *item).count() < 50);
        assert_eq!(shuffled(0..10, 1, 0), (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn shards_come_in_the_order_of_windows() {
        let order: Vec<usize> = StreamOrder::new(9, true, 3, 2).iter().collect();
        let plan = EpochPlan::new(&[1; 9], Shuffle::Window { shards: 1 }, 3, 2, Split::whole()).unwrap();
        assert_eq!(order, plan.iter().collect::<Vec<_>>());
        assert_eq!(StreamOrder::new(3, false, 3, 2).iter().collect::<Vec<_>>(), [0, 1, 2]);
        assert!(StreamOrder::new(0, true, 0, 0).is_empty());
    }

    #[test]
    fn impossible_options_are_refused() {
        assert_eq!(ShuffleBuffer::<u8>::new(0, 0, 0, 0).unwrap_err().kind(), ErrorKind::InvalidOption);
        let split = Split { rank: 1, world_size: 1, remainder: Remainder::Pad };
        assert_eq!(StreamSplit::<u8>::new(split).unwrap_err().kind(), ErrorKind::InvalidOption);
    }
}
