//! The ring of device slots: how many there are, which are idle, who waits for one to come back. It is generic over
//! what a slot is, and touches no GPU.

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

    /// A slot with room for `bytes`: an idle one, a new one from `make`, or the next that comes back.
    ///
    /// # Errors
    /// What `make` fails with; [`ErrorKind::Limit`] when all slots are out and none came back for `patience`;
    /// [`ErrorKind::Cancelled`] when `is_stopped` says so while it waits.
    pub fn take(
        &mut self,
        bytes: usize,
        patience: Duration,
        is_stopped: &dyn Fn() -> bool,
        make: impl FnOnce(usize) -> Result<T>,
    ) -> Result<T> {
        let deadline = Instant::now() + patience;
        loop {
            self.collect();
            if let Some(fitting) = self.idle.iter().rposition(|slot| slot.room_bytes() >= bytes) {
                return Ok(self.idle.swap_remove(fitting));
            }
            // After a change of the batch size: slots that became too small make room for others.
            self.made -= self.idle.len();
            self.idle.clear();
            if self.made < self.slots_max {
                let slot = make(bytes)?;
                self.made += 1;
                return Ok(slot);
            }
            match self.returned.recv_timeout(LOOK.min(deadline.saturating_duration_since(Instant::now()))) {
                Ok(slot) => self.idle.push(slot),
                Err(_) if is_stopped() => return Err(Error::new(ErrorKind::Cancelled, "the loader was stopped")),
                Err(_) if Instant::now() >= deadline => return Err(self.exhausted()),
                Err(_) => {}
            }
        }
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

    fn take(ring: &mut Ring<Slot>, bytes: usize, number: &mut usize) -> Result<Slot> {
        ring.take(bytes, Duration::ZERO, &|| false, |bytes| {
            *number += 1;
            Ok(Slot(*number, bytes))
        })
    }

    #[test]
    fn it_grows_only_while_slots_are_held() {
        let (mut ring, mut made) = (Ring::new(4), 0);
        let first = take(&mut ring, 10, &mut made).unwrap();
        let _second = take(&mut ring, 10, &mut made).unwrap();
        ring.give_back().send(first).unwrap();
        assert_eq!(take(&mut ring, 10, &mut made).unwrap().0, 1, "the idle one is used again");
        assert_eq!((ring.made(), made), (2, 2));
    }

    #[test]
    fn a_consumer_that_holds_every_slot_is_told_how_many() {
        let (mut ring, mut made) = (Ring::new(3), 0);
        let held: Vec<_> = (0..3).map(|_| take(&mut ring, 1, &mut made).unwrap()).collect();
        let error = take(&mut ring, 1, &mut made).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Limit);
        assert!(error.message().contains("3 batches are held"), "{error}");
        ring.give_back().send(held.into_iter().next().unwrap()).unwrap();
        assert!(take(&mut ring, 1, &mut made).is_ok(), "and goes on once one is let go");
    }

    #[test]
    fn a_larger_batch_replaces_slots_that_are_too_small() {
        let (mut ring, mut made) = (Ring::new(2), 0);
        for _ in 0..2 {
            let slot = take(&mut ring, 8, &mut made).unwrap();
            ring.give_back().send(slot).unwrap();
        }
        let larger = take(&mut ring, 16, &mut made).unwrap();
        assert_eq!((larger.1, ring.made()), (16, 1));
    }

    #[test]
    fn trimming_lets_only_idle_slots_go() {
        let (mut ring, mut made) = (Ring::new(4), 0);
        let _held = take(&mut ring, 8, &mut made).unwrap();
        let idle = take(&mut ring, 8, &mut made).unwrap();
        ring.give_back().send(idle).unwrap();
        assert_eq!((ring.trim(), ring.made(), ring.held()), (1, 1, 1));
    }

    #[test]
    fn a_stop_ends_the_wait() {
        let (mut ring, mut made) = (Ring::new(1), 0);
        let _held = take(&mut ring, 8, &mut made).unwrap();
        let stopped = ring.take(8, Duration::from_secs(3600), &|| true, |_| unreachable!());
        assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Cancelled);
    }

    #[test]
    fn a_slot_that_cannot_be_made_is_not_counted() {
        let mut ring: Ring<Slot> = Ring::new(1);
        let fail = |_| Err(Error::new(ErrorKind::Limit, "no memory"));
        assert!(ring.take(8, Duration::ZERO, &|| false, fail).is_err());
        assert_eq!(ring.made(), 0);
        assert!(take(&mut ring, 8, &mut 0).is_ok());
    }

    proptest! {
        #[test]
        fn no_slot_is_ever_in_two_hands(steps in prop::collection::vec((any::<bool>(), 1usize..4), 1..200)) {
            let (mut ring, mut made) = (Ring::new(5), 0);
            let mut held: Vec<Slot> = Vec::new();
            for (takes, bytes) in steps {
                if takes {
                    if let Ok(slot) = take(&mut ring, bytes, &mut made) {
                        prop_assert!(slot.room_bytes() >= bytes);
                        prop_assert!(held.iter().all(|other| other.0 != slot.0));
                        held.push(slot);
                    } else {
                        prop_assert_eq!(held.len(), 5, "it refuses only when all are held");
                    }
                } else if let Some(slot) = held.pop() {
                    ring.give_back().send(slot).unwrap();
                }
                prop_assert_eq!(ring.held(), held.len());
                prop_assert!(ring.made() <= 5);
            }
        }
    }
}
