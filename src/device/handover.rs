//! The order in which one slot is written and read by streams that know nothing of each other, as two events and two
//! flags. It is generic over the event, so that the order can be proven without a GPU.

use super::stream::StreamHandle;
use crate::Result;

/// An event of a GPU: a point in the work of one stream that other streams can wait for.
pub trait OrderEvent {
    /// Marks the end of all that was begun on `stream` so far.
    ///
    /// # Errors
    /// When the driver refuses.
    fn record(&self, stream: StreamHandle) -> Result<()>;

    /// Lets nothing that is begun on `stream` from now on run before the marked point; no thread waits.
    ///
    /// # Errors
    /// When the driver refuses.
    fn hold(&self, stream: StreamHandle) -> Result<()>;

    /// Whether the marked point has passed.
    fn has_passed(&self) -> bool;
}

/// A slot's way from the copy stream to consumers' streams and back.
///
/// Invariant: work that reads the slot on other streams than the copy stream is over once `done` has passed if
/// `is_lent`, and once the whole GPU is idle if `is_unsure`.
#[derive(Debug)]
pub struct Handover<E> {
    ready: E,
    done: E,
    is_lent: bool,
    is_unsure: bool,
}

impl<E: OrderEvent> Handover<E> {
    /// The order of a slot that nobody has used yet.
    #[must_use]
    pub fn new(ready: E, done: E) -> Self {
        Self { ready, done, is_lent: false, is_unsure: false }
    }

    /// Holds the copy stream until every consumer is through with the slot. `settle` waits for the whole GPU; it is
    /// called only where an event could not be recorded.
    ///
    /// # Errors
    /// When the driver refuses; the slot must not be written then.
    pub fn reclaim(&mut self, copy: StreamHandle, settle: impl FnOnce() -> Result<()>) -> Result<()> {
        if self.is_unsure {
            settle()?;
        } else if self.is_lent {
            self.done.hold(copy)?;
        }
        (self.is_lent, self.is_unsure) = (false, false);
        Ok(())
    }

    /// Says that what was begun on the copy stream so far completes the slot.
    ///
    /// # Errors
    /// When the driver refuses; the slot must not be lent then.
    pub fn complete(&self, copy: StreamHandle) -> Result<()> {
        self.ready.record(copy)
    }

    /// Holds a consumer's stream until the slot is complete; says whether it was so already.
    ///
    /// # Errors
    /// When the driver refuses, as for a stream that is being captured into a graph.
    pub fn lend(&self, consumer: StreamHandle) -> Result<bool> {
        let is_complete = self.ready.has_passed();
        self.ready.hold(consumer)?;
        Ok(is_complete)
    }

    /// Takes note that no more work that reads the slot will be begun on a stream it was lent to.
    pub fn end(&mut self, consumer: StreamHandle) {
        // Where another consumer ended before, the one event then stands for both.
        let chained = if self.is_lent { self.done.hold(consumer) } else { Ok(()) };
        let recorded = chained.and_then(|()| self.done.record(consumer));
        self.is_lent = true;
        self.is_unsure |= recorded.is_err();
    }
}

impl<E> Handover<E> {
    /// Takes note that a consumer ended whose stream nobody knows: the whole GPU is waited for before the slot is used
    /// again.
    pub fn end_unknown(&mut self) {
        (self.is_lent, self.is_unsure) = (true, true);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::HashMap;
    use std::rc::Rc;

    use proptest::prelude::*;

    use super::*;
    use crate::{Error, ErrorKind};

    /// What a stream was told to do, in order.
    #[derive(Debug, Clone, Copy)]
    enum Work {
        Write(u32),
        Read(u32),
        Record(usize, u32),
        Hold(usize, u32),
    }

    /// A GPU without a GPU: streams are lists of work, and any interleaving that the events allow may happen.
    #[derive(Debug, Default)]
    struct FakeGpu {
        streams: HashMap<usize, Vec<Work>>,
        recorded: HashMap<usize, u32>,
        refuses: bool,
    }

    #[derive(Debug)]
    struct FakeEvent(usize, Rc<RefCell<FakeGpu>>);

    fn number(stream: StreamHandle) -> usize {
        stream.as_raw() as usize
    }

    impl OrderEvent for FakeEvent {
        fn record(&self, stream: StreamHandle) -> Result<()> {
            let mut gpu = self.1.borrow_mut();
            if gpu.refuses {
                return Err(Error::new(ErrorKind::Device, "the stream is being captured"));
            }
            let version = gpu.recorded.entry(self.0).or_default();
            *version += 1;
            let version = *version;
            gpu.streams.entry(number(stream)).or_default().push(Work::Record(self.0, version));
            Ok(())
        }

        fn hold(&self, stream: StreamHandle) -> Result<()> {
            let mut gpu = self.1.borrow_mut();
            let version = gpu.recorded.get(&self.0).copied().unwrap_or(0);
            gpu.streams.entry(number(stream)).or_default().push(Work::Hold(self.0, version));
            Ok(())
        }

        fn has_passed(&self) -> bool {
            false
        }
    }

    /// Runs all work in an order that `choices` picks among those allowed; `Err` is a read of another batch's bytes.
    fn run(gpu: &FakeGpu, choices: &[usize]) -> std::result::Result<(), String> {
        let mut places: Vec<(usize, usize)> = gpu.streams.keys().map(|&stream| (stream, 0)).collect();
        places.sort_unstable();
        let (mut passed, mut content, mut turn) = (HashMap::<usize, u32>::new(), 0, 0);
        loop {
            let can_run: Vec<usize> = (0..places.len())
                .filter(|&at| match gpu.streams[&places[at].0].get(places[at].1) {
                    Some(Work::Hold(event, version)) => passed.get(event).copied().unwrap_or(0) >= *version,
                    Some(_) => true,
                    None => false,
                })
                .collect();
            let Some(&at) = can_run.get(choices[turn % choices.len()] % can_run.len().max(1)) else { break };
            match gpu.streams[&places[at].0][places[at].1] {
                Work::Write(value) => content = value,
                Work::Read(value) if value != content => return Err(format!("read {content} for {value}")),
                Work::Record(event, version) => drop(passed.insert(event, version)),
                Work::Read(_) | Work::Hold(..) => {}
            }
            places[at].1 += 1;
            turn += 1;
        }
        let is_over = places.iter().all(|&(stream, place)| place == gpu.streams[&stream].len());
        if is_over { Ok(()) } else { Err("streams wait for each other for ever".into()) }
    }

    const COPY: usize = 100;

    /// One slot, reused for batch after batch, each read on one or two consumer streams.
    fn batches(readers: &[Vec<usize>], skip: Option<&str>) -> Rc<RefCell<FakeGpu>> {
        let gpu = Rc::new(RefCell::new(FakeGpu::default()));
        let mut handover = Handover::new(FakeEvent(0, Rc::clone(&gpu)), FakeEvent(1, Rc::clone(&gpu)));
        let copy = StreamHandle::fake(COPY);
        let work = |stream: usize, work| gpu.borrow_mut().streams.entry(stream).or_default().push(work);
        for (batch, streams) in readers.iter().enumerate() {
            let value = batch as u32 + 1;
            if skip != Some("reclaim") {
                handover.reclaim(copy, || panic!("no event failed")).unwrap();
            }
            work(COPY, Work::Write(value));
            handover.complete(copy).unwrap();
            for &stream in streams {
                if skip != Some("lend") {
                    handover.lend(StreamHandle::fake(stream)).unwrap();
                }
                work(stream, Work::Read(value));
            }
            for &stream in streams {
                if skip != Some("end") {
                    handover.end(StreamHandle::fake(stream));
                }
            }
        }
        gpu
    }

    proptest! {
        #[test]
        fn no_interleaving_lets_a_consumer_read_another_batch(
            readers in prop::collection::vec(prop::collection::vec(0usize..3, 0..3), 1..12),
            choices in prop::collection::vec(0usize..64, 1..64),
        ) {
            let gpu = batches(&readers, None);
            let outcome = run(&gpu.borrow(), &choices);
            prop_assert!(outcome.is_ok(), "{outcome:?}");
        }
    }

    #[test]
    fn each_of_the_three_steps_is_needed() {
        let readers = vec![vec![0, 1]; 6];
        for step in ["reclaim", "lend", "end"] {
            let gpu = batches(&readers, Some(step));
            let fails = (0..500).any(|seed| {
                let choices: Vec<usize> = (0..61).map(|turn| (seed * 31 + turn * turn * 7 + turn) % 64).collect();
                run(&gpu.borrow(), &choices).is_err()
            });
            assert!(fails, "leaving out {step} was not noticed");
        }
    }

    #[test]
    fn a_consumer_on_an_unknown_stream_leads_to_a_wait_for_the_whole_gpu() {
        let gpu = Rc::new(RefCell::new(FakeGpu::default()));
        let mut handover = Handover::new(FakeEvent(0, Rc::clone(&gpu)), FakeEvent(1, Rc::clone(&gpu)));
        let mut settled = false;
        handover.end_unknown();
        let settle = || {
            settled = true;
            Ok(())
        };
        handover.reclaim(StreamHandle::fake(COPY), settle).unwrap();
        assert!(settled);
    }

    #[test]
    fn an_event_that_cannot_be_recorded_leads_to_a_wait_for_the_whole_gpu() {
        let gpu = Rc::new(RefCell::new(FakeGpu::default()));
        let mut handover = Handover::new(FakeEvent(0, Rc::clone(&gpu)), FakeEvent(1, Rc::clone(&gpu)));
        let copy = StreamHandle::fake(COPY);
        handover.complete(copy).unwrap();
        handover.lend(StreamHandle::fake(0)).unwrap();
        gpu.borrow_mut().refuses = true;
        handover.end(StreamHandle::fake(0));
        let mut settled = 0;
        for _ in 0..2 {
            let settle = || {
                settled += 1;
                Ok(())
            };
            handover.reclaim(copy, settle).unwrap();
        }
        assert_eq!(settled, 1, "once, and not again for a slot that was not lent since");
    }
}
