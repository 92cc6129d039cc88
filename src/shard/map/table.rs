//! The table of watched ranges: what the SIGBUS handler looks a fault's address up in.
//!
//! It knows addresses and a flag for each range, not what lies there. It takes no lock and never allocates, so that a
//! handler can read it at any moment.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

/// How many maps can be watched at once. A slot takes 32 bytes of zeroed memory once it is used.
const SLOTS: usize = 16 << 10;

/// Puts the addresses from `start` up to `end` under watch; `None` when the table is full.
pub(super) fn watch(start: usize, end: usize) -> Option<Watch> {
    let hint = FREE.load(Ordering::Relaxed);
    let number = (hint..SLOTS).chain(0..hint).find(|number| TABLE[*number].claim(start, end))?;
    // A release in the meantime has lowered the hint: then it stays.
    let _ = FREE.compare_exchange(hint, number + 1, Ordering::Relaxed, Ordering::Relaxed);
    USED.fetch_max(number + 1, Ordering::SeqCst);
    Some(Watch(number))
}

/// Flags the range that holds `address`; `false` when none does.
pub(super) fn flag(address: usize) -> bool {
    let used = USED.load(Ordering::SeqCst).min(SLOTS);
    let slot = TABLE[..used].iter().find(|slot| slot.holds(address));
    if let Some(slot) = slot {
        slot.faulted.store(true, Ordering::SeqCst);
    }
    slot.is_some()
}

/// A range of addresses under watch, until it is dropped: the number of its slot.
#[derive(Debug)]
pub(super) struct Watch(usize);

impl Watch {
    /// Whether a page of the range has faulted since the watch began.
    pub(super) fn has_faulted(&self) -> bool {
        TABLE[self.0].faulted.load(Ordering::Acquire)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        TABLE[self.0].release();
        FREE.fetch_min(self.0, Ordering::Relaxed);
    }
}

/// The watched ranges: the one global table of the library.
static TABLE: [Slot; SLOTS] = [const { Slot::new() }; SLOTS];

/// All slots from this number on have never been used: where the handler may stop looking.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Where to look for a free slot first: most of those before it are taken.
static FREE: AtomicUsize = AtomicUsize::new(0);

/// A place in the table, read by the handler under a version count.
///
/// Invariant: `version` is odd while `start` and `end` are being written, and grows with each write; a reader that
/// finds the same even version before and after reading them has read a pair that belonged together. A free slot
/// has `end == 0`, which holds no address. The slot of a fault's own range never changes during the handler,
/// because the faulting thread is inside a view that keeps the map, and with it the watch, alive.
#[derive(Debug)]
struct Slot {
    version: AtomicUsize,
    start: AtomicUsize,
    end: AtomicUsize,
    faulted: AtomicBool,
}

impl Slot {
    const fn new() -> Self {
        Self {
            version: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            faulted: AtomicBool::new(false),
        }
    }

    fn claim(&self, start: usize, end: usize) -> bool {
        // Acquire: an end of 0 is then the end that belongs to this version, and beginning fails if it has changed since.
        let version = self.version.load(Ordering::Acquire);
        if !version.is_multiple_of(2) || self.end.load(Ordering::Relaxed) != 0 || !self.begin(version) {
            return false;
        }
        self.faulted.store(false, Ordering::Relaxed);
        self.start.store(start, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
        true
    }

    fn release(&self) {
        // Only the one owner of a claimed slot comes here, so the version cannot change in between.
        let version = self.version.load(Ordering::Relaxed);
        if self.begin(version) {
            self.start.store(0, Ordering::Relaxed);
            self.end.store(0, Ordering::Relaxed);
            self.version.store(version.wrapping_add(2), Ordering::Release);
        }
    }

    /// Makes the version odd, if it still is `version`.
    fn begin(&self, version: usize) -> bool {
        let odd = version.wrapping_add(1);
        let begun = self.version.compare_exchange(version, odd, Ordering::Acquire, Ordering::Relaxed).is_ok();
        // A reader that sees any of the stores that follow also sees the odd version.
        fence(Ordering::Release);
        begun
    }

    fn holds(&self, address: usize) -> bool {
        let before = self.version.load(Ordering::Acquire);
        let range = self.start.load(Ordering::Relaxed)..self.end.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        before.is_multiple_of(2) && before == self.version.load(Ordering::Relaxed) && range.contains(&address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_holds_the_addresses_of_its_range_until_it_is_released() {
        let slot = Slot::new();
        assert!(!slot.holds(0));
        assert!(slot.claim(4096, 12288));
        assert!(!slot.claim(0, 4096), "a taken slot cannot be claimed");
        for (address, held) in [(4095, false), (4096, true), (12287, true), (12288, false)] {
            assert_eq!(slot.holds(address), held, "{address}");
        }
        slot.faulted.store(true, Ordering::SeqCst);
        slot.release();
        assert!(!slot.holds(4096));
        assert!(slot.claim(8192, 12288));
        assert!(!slot.faulted.load(Ordering::SeqCst), "a flag does not outlive its watch");
        assert!(!slot.holds(4096));
    }

    #[test]
    fn a_slot_in_change_holds_nothing() {
        let slot = Slot::new();
        assert!(slot.claim(4096, 8192));
        let version = slot.version.load(Ordering::SeqCst);
        assert!(slot.begin(version));
        assert!(!slot.holds(4096));
        assert!(!slot.claim(4096, 8192));
    }
}
