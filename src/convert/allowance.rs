//! Memory that threads share: each takes as many bytes as its work needs and gives them back, and together they never have more
//! than is allowed.
//!
//! It counts only; what is allocated, and whether the count is right, is the caller's business. Whoever waits must hold nothing
//! that others wait for.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes of samples on their way, of all threads together: read, and packed behind headers.
const SAMPLES: u64 = 64 << 20;
/// Bytes of buffers that are kept for later samples, of all threads together.
const SPARE: u64 = 40 << 20;
/// Bytes of large pictures that are decoded, of all threads together, and those of small ones, which threads keep.
const PICTURES: u64 = 208 << 20;
const PICTURES_KEPT: u64 = 48 << 20;

/// What one conversion may take. It is less than 500 MB whatever the number of threads; only a single sample or picture that
/// needs more by itself gets more, and then it is the only one.
#[derive(Debug)]
pub(super) struct Memory {
    /// Samples of one lane in memory.
    pub(super) lane_bytes: u64,
    /// Buffers that a lane keeps, and those that each of its threads keeps.
    pub(super) lane_spare_bytes: u64,
    pub(super) hand_spare_bytes: u64,
    /// What a thread needs for a picture, and may keep, without asking [`pictures`](Self::pictures).
    pub(super) hand_picture_bytes: u64,
    /// For samples larger than a lane's share.
    pub(super) samples: Allowance,
    /// For pictures larger than a thread's share.
    pub(super) pictures: Allowance,
}

impl Memory {
    /// The shares of `lanes` lanes that have `threads` threads together.
    pub(super) fn of(lanes: usize, threads: usize) -> Self {
        let (lanes, threads) = (lanes.max(1) as u64, threads.max(1) as u64);
        Self {
            lane_bytes: (SAMPLES / lanes).min(SAMPLES / 2),
            lane_spare_bytes: SPARE / 2 / lanes,
            hand_spare_bytes: SPARE / 2 / threads,
            hand_picture_bytes: PICTURES_KEPT / threads,
            samples: Allowance::new(SAMPLES),
            pictures: Allowance::new(PICTURES),
        }
    }
}

/// Bytes that may be taken.
#[derive(Debug)]
pub(super) struct Allowance {
    bytes_max: u64,
    taken: Mutex<u64>,
    given_back: Condvar,
}

/// Bytes that are taken; dropped, they are given back.
#[derive(Debug)]
pub(super) struct Taken<'a> {
    allowance: &'a Allowance,
    bytes: u64,
}

impl Allowance {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { bytes_max, taken: Mutex::new(0), given_back: Condvar::new() }
    }

    /// Takes `bytes`, as soon as others have given enough back. More than there are at all are taken as all of them.
    pub(super) fn take(&self, bytes: u64) -> Taken<'_> {
        let bytes = bytes.min(self.bytes_max);
        let mut taken = self.lock();
        while *taken > self.bytes_max - bytes {
            taken = self.given_back.wait(taken).unwrap_or_else(PoisonError::into_inner);
        }
        *taken += bytes;
        Taken { allowance: self, bytes }
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.allowance.lock() -= self.bytes;
        self.allowance.given_back.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    #[test]
    fn threads_together_never_have_more_than_is_allowed() {
        let allowance = Allowance::new(100);
        let (now, most) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for thread in 0..8_u64 {
                let (allowance, now, most) = (&allowance, &now, &most);
                scope.spawn(move || {
                    for turn in 0..200 {
                        let bytes = (thread * 31 + turn * 17) % 130;
                        let _taken = allowance.take(bytes);
                        let counted = bytes.min(100);
                        most.fetch_max(now.fetch_add(counted, Ordering::SeqCst) + counted, Ordering::SeqCst);
                        thread::yield_now();
                        now.fetch_sub(counted, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!((1..=100).contains(&most.into_inner()));
        assert_eq!(*allowance.lock(), 0);
    }

    #[test]
    fn all_shares_together_stay_below_500_mb() {
        for threads in [1_usize, 2, 4, 7, 16, 64, 128, 1000] {
            let lanes = threads.div_ceil(4);
            let memory = Memory::of(lanes, threads);
            let (lanes, threads) = (lanes as u64, threads as u64);
            let of_lanes = lanes * (memory.lane_bytes + memory.lane_spare_bytes);
            let of_hands = threads * (memory.hand_spare_bytes + memory.hand_picture_bytes);
            let all = of_lanes + of_hands + memory.samples.bytes_max + memory.pictures.bytes_max;
            assert!(all <= 450_000_000, "{threads} threads: {all}");
        }
    }
}
