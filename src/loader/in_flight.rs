//! Bytes of images that wait for the consumer, where the transform leaves their sizes free: a bound on what a batch may
//! cost cannot be known beforehand then. It counts; the planner waits.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of images of free size between decoder and consumer, over all batches of a run.
#[derive(Debug)]
pub(crate) struct InFlight {
    bytes: AtomicU64,
    /// From this many on no further batch is begun: a batch is begun when the one before it is all but decoded, so this
    /// plus one batch is the most there is at a time.
    bytes_max: u64,
}

impl InFlight {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self { bytes: AtomicU64::new(0), bytes_max }
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether another batch may be begun.
    pub(crate) fn has_room(&self) -> bool {
        self.bytes() < self.bytes_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_until_the_bound_is_reached() {
        let in_flight = InFlight::new(100);
        assert!(in_flight.has_room());
        in_flight.add(99);
        assert!(in_flight.has_room());
        in_flight.add(1);
        assert!(!in_flight.has_room());
        in_flight.subtract(2);
        assert_eq!((in_flight.bytes(), in_flight.has_room()), (98, true));
    }
}
