//! One pass over a data set as an iterator. It holds the run while it lasts, hands it back to its loader at the end of
//! the epoch, and stops it when dropped early.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::given::Orders;
use super::resume::Start;
use super::run::{Next, Run};
use super::stats::Counters;
use super::{Batch, Delivery, Mark, Shared};
use crate::Result;

/// The batches of one epoch, in order.
#[derive(Debug)]
pub struct Epoch {
    shared: Arc<Shared>,
    run: Option<Run>,
    counters: Option<Arc<Counters>>,
    number: u64,
    start: Start,
    /// Samples whose turn has come, and those of them that were delivered.
    planned: usize,
    delivered: usize,
    mark: Mark,
}

/// What [`Epoch::poll`] found.
#[derive(Debug)]
pub enum Poll {
    /// The next batch, or the error that stands in its place and ends the epoch.
    Ready(Result<Batch>),
    /// The epoch is over.
    Done,
    /// Nothing within the time given.
    Pending,
}

/// How long the iterator sleeps at a time; it is woken by every batch, so this bounds nothing but idle wake-ups.
const WAIT: Duration = Duration::from_secs(60);

impl Epoch {
    pub(super) fn new(shared: Arc<Shared>, run: Run) -> Self {
        let counters = Some(run.counters());
        let (number, start) = (run.epoch, run.start);
        let mark = Mark { epoch: run.epoch, start };
        Self { shared, run: Some(run), counters, number, start, planned: 0, delivered: 0, mark }
    }

    /// Which epoch this is.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The loader's place after what this epoch has given: after its end, the start of the next.
    #[must_use]
    pub fn mark(&self) -> Mark {
        self.mark
    }

    /// Waits for the next batch for at most `timeout`: for callers that must look at something else in between.
    pub fn poll(&mut self, timeout: Duration) -> Poll {
        let started = Instant::now();
        loop {
            let Some(run) = &mut self.run else { return Poll::Done };
            let left = timeout.saturating_sub(started.elapsed());
            match run.next(left) {
                Err(error) => {
                    self.run = None;
                    return Poll::Ready(Err(error));
                }
                Ok(Next::Batch(Ok(mut batch))) => {
                    let (epoch, start) = (run.epoch, run.start);
                    self.delivered(&batch, started.elapsed(), epoch, start);
                    if let Some(run) = &self.run {
                        run.observe();
                    }
                    // Every sample of it was bad and left out: there is nothing to train on.
                    batch.mark = self.mark;
                    if !batch.is_empty() {
                        return Poll::Ready(Ok(batch));
                    }
                }
                Ok(Next::Batch(Err(error))) => {
                    self.run = None;
                    return Poll::Ready(Err(error));
                }
                Ok(Next::EpochEnd) => {
                    let (epoch, start) = (run.epoch, run.start);
                    self.over(epoch, start);
                    return Poll::Done;
                }
                Ok(Next::Discarded) => {}
                Ok(Next::Pending) => {
                    if let Some(counters) = &self.counters {
                        counters.waited(started.elapsed());
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    /// Where the caller hands over the sample numbers of this epoch; `None` under
    /// [`Order::Planned`](super::Order::Planned), and once the epoch is over.
    #[must_use]
    pub fn orders(&self) -> Option<Orders> {
        self.run.as_ref().and_then(Run::orders)
    }

    /// Samples that were delivered before this epoch was taken up: those that all ranks together had before their number
    /// last changed, and those that this rank had of its share of the rest.
    #[must_use]
    pub fn start(&self) -> (usize, usize) {
        (self.start.consumed, self.start.position)
    }

    fn delivered(&mut self, batch: &Batch, waited: Duration, epoch: u64, start: Start) {
        self.planned += batch.planned;
        self.delivered += batch.len;
        if let Some(counters) = &self.counters {
            counters.bad_rows(batch.planned - batch.len, batch.replaced);
            counters.delivered(waited);
        }
        self.moved(epoch, start);
    }

    fn moved(&mut self, epoch: u64, start: Start) {
        self.mark = Mark { epoch, start };
        // Rows are taken ahead of their consumer, who says itself what it has got.
        if self.shared.config.delivery == Delivery::Batches {
            self.shared.confirm(self.mark);
        }
    }

    /// The state after the last batch is the start of the next epoch.
    fn over(&mut self, epoch: u64, start: Start) {
        self.moved(epoch, start);
        if self.planned > 0 && self.delivered == 0 {
            let Self { number, planned, .. } = self;
            self.shared.notices.push(format!("epoch {number} gave no batch: all of its {planned} samples were bad"));
        }
        self.shared.quarantine.epoch_ended();
        self.shared.losses.epoch_ended();
        if let Some(run) = self.run.take() {
            self.shared.keep(run);
        }
    }
}

impl Iterator for Epoch {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.poll(WAIT) {
                Poll::Ready(batch) => return Some(batch),
                Poll::Done => return None,
                Poll::Pending => {}
            }
        }
    }
}
