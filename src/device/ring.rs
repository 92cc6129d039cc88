//! The ring of device slots: how many there are, which are idle, who waits for one to come back. It is generic over
//! what a slot is, and touches no GPU.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam::channel::{self, Receiver, Sender};

use crate::{Error, ErrorKind, Result};

/// How long one look at the way back lasts; between looks the caller may be told to stop.
const LOOK: Duration = Duration::from_millis(50);

/// Something with room for a batch.
pub trait Room {
    /// Bytes it has room for.
    fn room_bytes(&self) -> usize;
}

/// Slots that go out filled and come back over a channel, from any thread and without a lock.
///
/// It begins empty, makes a slot whenever none is idle, up to `slots_max`, and then waits for one to come back.
#[derive(Debug)]
pub struct Ring<T> {
    idle: Vec<T>,
    returned: Receiver<T>,
    give_back: Sender<T>,
    made: usize,
    slots_max: usize,
}

impl<T: Room> Ring<T> {
    /// An empty ring of at most `slots_max` slots, one at least.
    #[must_use]
    pub fn new(slots_max: usize) -> Self {
        let (give_back, returned) = channel::unbounded();
        Self { idle: Vec::new(), returned, give_back, made: 0, slots_max: slots_max.max(1) }
    }

    /// Makes `slots` idle slots, or as many as may be made.
    ///
    /// # Errors
    /// What `make` fails with.
    pub fn fill(&mut self, slots: usize, make: impl Fn() -> Result<T>) -> Result<()> {
        while self.made < slots.min(self.slots_max) {
            self.idle.push(make()?);
            self.made += 1;
        }
        Ok(())
    }

    /// The way back for slots.
    #[must_use]
    pub fn give_back(&self) -> Sender<T> {
        self.give_back.clone()
    }

    /// Slots that exist.
    #[must_use]
    pub fn made(&self) -> usize {
        self.made
    }

    /// Slots that are filled and in someone's hands.
    #[must_use]
    pub fn held(&mut self) -> usize {
        self.collect();
        self.made - self.idle.len()
    }

    /// A slot with room for `bytes`: the idle one that came back first, a new one from `make`, or the next that comes
    /// back. While it waits, others may look at the ring and trim it.
    ///
    /// # Errors
    /// What `make` fails with; [`ErrorKind::Limit`] when all slots are out and none came back for `patience`;
    /// [`ErrorKind::Cancelled`] when `is_stopped` says so while it waits.
    pub fn take(
        ring: &Mutex<Self>,
        bytes: usize,
        patience: Duration,
        is_stopped: &dyn Fn() -> bool,
        make: impl FnOnce(usize) -> Result<T>,
    ) -> Result<T> {
        let lock = || ring.lock().unwrap_or_else(PoisonError::into_inner);
        let deadline = Instant::now() + patience;
        let returned = lock().returned.clone();
        loop {
            {
                let mut ring = lock();
                if let Some(slot) = ring.take_idle(bytes) {
                    return Ok(slot);
                }
                if ring.made < ring.slots_max {
                    let slot = make(bytes)?;
                    ring.made += 1;
                    return Ok(slot);
                }
            }
            match returned.recv_timeout(LOOK.min(deadline.saturating_duration_since(Instant::now()))) {
                Ok(slot) => lock().idle.push(slot),
                Err(_) if is_stopped() => return Err(Error::new(ErrorKind::Cancelled, "the loader was stopped")),
                Err(_) if Instant::now() >= deadline => return Err(lock().exhausted()),
                Err(_) => {}
            }
        }
    }

    /// The idle slot that came back first among those with room for `bytes`: its reader ended first. Where there is none,
    /// idle slots, too small since the batch size grew, make way for others.
    fn take_idle(&mut self, bytes: usize) -> Option<T> {
        self.collect();
        if let Some(fitting) = self.idle.iter().position(|slot| slot.room_bytes() >= bytes) {
            return Some(self.idle.remove(fitting));
        }
        self.made -= self.idle.len();
        self.idle.clear();
        None
    }

    /// Lets idle slots go; those that are out stay.
    pub fn trim(&mut self) -> usize {
        self.collect();
        let idle = self.idle.len();
        self.made -= idle;
        self.idle.clear();
        idle
    }

    fn collect(&mut self) {
        self.idle.extend(self.returned.try_iter());
    }

    fn exhausted(&self) -> Error {
        let message = format!("{} batches are held on the GPU and none was let go", self.made);
        let hint = "keep numbers such as loss.item() instead of whole batches, or raise device_batches_max";
        Error::new(ErrorKind::Limit, message).with_hint(hint)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug)]
    struct Slot(usize, usize);

    impl Room for Slot {
        fn room_bytes(&self) -> usize {
            self.1
        }
    }

    fn ring(slots_max: usize) -> Mutex<Ring<Slot>> {
        Mutex::new(Ring::new(slots_max))
    }

    fn take(ring: &Mutex<Ring<Slot>>, bytes: usize, number: &mut usize) -> Result<Slot> {
        Ring::take(ring, bytes, Duration::ZERO, &|| false, |bytes| {
            *number += 1;
            Ok(Slot(*number, bytes))
        })
    }

    #[test]
    fn it_grows_only_while_slots_are_held() {
        let (ring, mut made) = (ring(4), 0);
        let first = take(&ring, 10, &mut made).unwrap();
        let _second = take(&ring, 10, &mut made).unwrap();
        ring.lock().unwrap().give_back().send(first).unwrap();
        assert_eq!(take(&ring, 10, &mut made).unwrap().0, 1, "the idle one is used again");
        assert_eq!((ring.lock().unwrap().made(), made), (2, 2));
    }

    #[test]
    fn a_consumer_that_holds_every_slot_is_told_how_many() {
        let (ring, mut made) = (ring(3), 0);
        let held: Vec<_> = (0..3).map(|_| take(&ring, 1, &mut made).unwrap()).collect();
        let error = take(&ring, 1, &mut made).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Limit);
        assert!(error.message().contains("3 batches are held"), "{error}");
        ring.lock().unwrap().give_back().send(held.into_iter().next().unwrap()).unwrap();
        assert!(take(&ring, 1, &mut made).is_ok(), "and goes on once one is let go");
    }

    #[test]
    fn a_larger_batch_replaces_slots_that_are_too_small() {
        let (ring, mut made) = (ring(2), 0);
        for _ in 0..2 {
            let slot = take(&ring, 8, &mut made).unwrap();
            ring.lock().unwrap().give_back().send(slot).unwrap();
        }
        let larger = take(&ring, 16, &mut made).unwrap();
        assert_eq!((larger.1, ring.lock().unwrap().made()), (16, 1));
    }

    #[test]
    fn trimming_lets_only_idle_slots_go() {
        let (ring, mut made) = (ring(4), 0);
        let _held = take(&ring, 8, &mut made).unwrap();
        let idle = take(&ring, 8, &mut made).unwrap();
        ring.lock().unwrap().give_back().send(idle).unwrap();
        let mut ring = ring.lock().unwrap();
        assert_eq!((ring.trim(), ring.made(), ring.held()), (1, 1, 1));
    }

    #[test]
    fn the_slot_that_came_back_first_goes_out_first() {
        let (ring, mut made) = (ring(4), 0);
        let held: Vec<_> = (0..3).map(|_| take(&ring, 8, &mut made).unwrap()).collect();
        let back = ring.lock().unwrap().give_back();
        held.into_iter().for_each(|slot| back.send(slot).unwrap());
        let order: Vec<_> = (0..3).map(|_| take(&ring, 8, &mut made).unwrap().0).collect();
        assert_eq!(order, [1, 2, 3]);
    }

    #[test]
    fn others_look_at_the_ring_while_someone_waits_for_a_slot() {
        let (ring, mut made) = (ring(1), 0);
        let held = take(&ring, 8, &mut made).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                Ring::take(&ring, 8, Duration::from_secs(60), &|| false, |_| unreachable!()).map(|slot| slot.0)
            });
            // Comes back at once however long the other waits, and so does the slot through the ring's way back.
            assert_eq!(ring.lock().unwrap().held(), 1);
            let back = ring.lock().unwrap().give_back();
            back.send(held).unwrap();
            assert_eq!(waiting.join().unwrap().unwrap(), 1);
        });
    }

    #[test]
    fn a_stop_ends_the_wait() {
        let (ring, mut made) = (ring(1), 0);
        let _held = take(&ring, 8, &mut made).unwrap();
        let stopped = Ring::take(&ring, 8, Duration::from_secs(3600), &|| true, |_| unreachable!());
        assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Cancelled);
    }

    #[test]
    fn a_slot_that_cannot_be_made_is_not_counted() {
        let ring = ring(1);
        let fail = |_| Err(Error::new(ErrorKind::Limit, "no memory"));
        assert!(Ring::take(&ring, 8, Duration::ZERO, &|| false, fail).is_err());
        assert_eq!(ring.lock().unwrap().made(), 0);
        assert!(take(&ring, 8, &mut 0).is_ok());
    }

    proptest! {
        #[test]
        fn no_slot_is_ever_in_two_hands(steps in prop::collection::vec((any::<bool>(), 1usize..4), 1..200)) {
            let (ring, mut made) = (ring(5), 0);
            let mut held: Vec<Slot> = Vec::new();
            for (takes, bytes) in steps {
                if takes {
                    if let Ok(slot) = take(&ring, bytes, &mut made) {
                        prop_assert!(slot.room_bytes() >= bytes);
                        prop_assert!(held.iter().all(|other| other.0 != slot.0));
                        held.push(slot);
                    } else {
                        prop_assert_eq!(held.len(), 5, "it refuses only when all are held");
                    }
                } else if let Some(slot) = held.pop() {
                    ring.lock().unwrap().give_back().send(slot).unwrap();
                }
                prop_assert_eq!(ring.lock().unwrap().held(), held.len());
                prop_assert!(ring.lock().unwrap().made() <= 5);
            }
        }
    }
}
