//! How many rows the batches of a run have, where that changes while it runs. A change takes effect at a batch whose
//! number depends on nothing but when it was asked for: ranks that ask at the same step change at the same step.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The size that a loader's consumer wants now; shared by all its runs.
#[derive(Debug, Clone)]
pub(crate) struct WantedSize(Arc<AtomicUsize>);

impl WantedSize {
    pub(crate) fn new(rows: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(rows)))
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, rows: usize) {
        self.0.store(rows, Ordering::Relaxed);
    }
}

/// The sizes of one run's batches, by the number of batches begun before.
///
/// The planner must know the size of a batch when it looks whether the epoch has enough samples for it, which it does
/// once the batch before is full. That one needed a permit, and permits come from the consumer, who says the size before
/// it gives the permit: so a size said with the `n`-th batch that is taken holds from the first batch whose predecessor
/// cannot have been begun before.
#[derive(Debug)]
pub(crate) struct BatchSizes {
    wanted: WantedSize,
    /// Batches that may be in flight.
    prefetch: usize,
    /// (first batch, rows), ascending; the first entry holds now.
    changes: Mutex<Vec<(u64, usize)>>,
}

impl BatchSizes {
    pub(crate) fn new(wanted: WantedSize, prefetch: usize) -> Self {
        let rows = wanted.get();
        Self { wanted, prefetch, changes: Mutex::new(vec![(0, rows)]) }
    }

    /// Rows of the batch before which `begun` others were begun; asked in ascending order.
    pub(crate) fn rows(&self, begun: u64) -> usize {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let due = changes.partition_point(|(first, _)| *first <= begun);
        changes.drain(..due.saturating_sub(1));
        changes.first().map_or(1, |(_, rows)| *rows)
    }

    /// Looks whether another size is wanted, after the consumer has taken `taken` batches and before it gives the permit
    /// for another.
    pub(crate) fn follow(&self, taken: u64) {
        let wanted = self.wanted.get();
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        if changes.last().is_none_or(|(_, rows)| *rows != wanted) {
            changes.push((taken + self.prefetch as u64, wanted));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_holds_from_the_first_batch_that_cannot_have_been_looked_at() {
        let wanted = WantedSize::new(4);
        let sizes = BatchSizes::new(wanted.clone(), 3);
        // Three batches are in flight; the consumer takes one, and wants another size then.
        assert_eq!(sizes.rows(2), 4);
        wanted.set(8);
        sizes.follow(1);
        assert_eq!((sizes.rows(3), sizes.rows(4), sizes.rows(9)), (4, 8, 8));
        wanted.set(2);
        sizes.follow(7);
        wanted.set(6);
        sizes.follow(8);
        assert_eq!((sizes.rows(9), sizes.rows(10), sizes.rows(11), sizes.rows(12)), (8, 2, 6, 6));
    }

    #[test]
    fn a_new_run_begins_with_the_size_that_is_wanted() {
        let wanted = WantedSize::new(4);
        wanted.set(16);
        assert_eq!(BatchSizes::new(wanted, 3).rows(0), 16);
    }
}
