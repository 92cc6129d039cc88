//! Gives every sample its batch and its row, epoch after epoch. It is a pure walk over the epoch's plan: one caller at
//! a time holds it, reading and decoding happen elsewhere.

use std::sync::Arc;
use std::time::Instant;

use crossbeam::channel::{Receiver, Sender};

use super::assembly::{Assembly, Finished, Plan};
use super::dataset::RawSample;
use super::given::{Given, GivenBatch};
use super::peers::Peers;
use super::pipeline::Pipeline;
use super::resume::Start;
use super::stream::StreamFeed;
use crate::Result;
use crate::sample::EpochPlan;

/// What the threads of a run send to the consumer.
#[derive(Debug)]
pub(crate) enum Output {
    /// A batch, in its place in the sequence.
    Batch(Finished),
    /// The epoch before this place in the sequence is over.
    EpochEnd { sequence: u64 },
    /// The run cannot go on, whatever its place in the sequence.
    Failed(crate::Error),
}

/// One sample's place: where it goes and how its bytes are got.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) assembly: Arc<Assembly>,
    pub(crate) row: usize,
    /// Place in the epoch, for the choice of a replacement.
    pub(crate) position: usize,
    pub(crate) peers: Peers,
    /// How often the sample came before in this epoch.
    pub(crate) occurrence: u32,
    pub(crate) bytes: Bytes,
}

/// How a task's bytes are got.
#[derive(Debug)]
pub(crate) enum Bytes {
    /// By reading this sample of the index.
    Indexed(usize),
    /// They came with the stream.
    Streamed(Box<Result<RawSample>>),
}

/// Walks the epochs; one permit is taken for each batch begun and comes back when the consumer has taken it.
#[derive(Debug)]
pub(crate) struct Planner {
    pipeline: Arc<Pipeline>,
    permits: Receiver<()>,
    stop: Receiver<()>,
    output: Sender<Output>,
    feed: Feed,
    epoch: u64,
    sequence: u64,
    /// Batches begun in this run.
    begun: u64,
    batch_index: usize,
    /// Whether this epoch began at its first sample; one that is resumed may have nothing left.
    is_whole: bool,
    current: Option<Current>,
    /// Permits taken and not used yet: those of batches that wait for memory.
    spare: usize,
}

/// The batch that is being planned.
#[derive(Debug)]
struct Current {
    assembly: Arc<Assembly>,
    /// Rows that have a sample, of so many.
    planned: usize,
    rows: usize,
}

#[derive(Debug)]
enum Feed {
    Indexed { plan: Arc<EpochPlan>, position: usize },
    Stream(Box<StreamFeed>),
    Given(GivenFeed),
}

/// An order that comes from the caller, one batch at a time.
#[derive(Debug)]
struct GivenFeed {
    orders: Receiver<Given>,
    batch: Option<GivenBatch>,
    has_ended: bool,
    /// Samples that came before, for each one's place in the epoch.
    position: usize,
}

impl Planner {
    /// A planner that begins at `start` of `epoch`.
    pub(crate) fn new(
        pipeline: Arc<Pipeline>,
        permits: Receiver<()>,
        stop: Receiver<()>,
        output: Sender<Output>,
        orders: Option<Receiver<Given>>,
        epoch: u64,
        start: Start,
    ) -> Result<Self> {
        let feed = match orders {
            Some(orders) => Feed::Given(GivenFeed { orders, batch: None, has_ended: false, position: start.position }),
            None => Feed::open(&pipeline, epoch, start)?,
        };
        let batch_index = start.position / pipeline.plan.batch_size;
        Ok(Self {
            pipeline,
            permits,
            stop,
            output,
            feed,
            epoch,
            sequence: 0,
            begun: 0,
            batch_index,
            is_whole: start == Start::default(),
            current: None,
            spare: 0,
        })
    }

    /// The next sample's place. Blocks while every batch in flight is full and waiting for the consumer; `None` when
    /// the run is stopped, or when an epoch has nothing to give.
    pub(crate) fn next(&mut self) -> Option<Result<Task>> {
        let mut ended_empty = false;
        loop {
            let Ok(is_over) = self.epoch_is_over() else { return None };
            if is_over {
                if ended_empty {
                    return None;
                }
                // An epoch that gives no batch at all would otherwise be repeated without end.
                ended_empty = self.batch_index == 0 && self.is_whole && !matches!(self.feed, Feed::Given(_));
                if let Err(error) = self.end_epoch() {
                    return Some(Err(error));
                }
                if ended_empty {
                    return None;
                }
                continue;
            }
            if self.current.is_none()
                && let Err(stopped) = self.begin_batch()
            {
                return stopped.map(Err);
            }
            let Some(task) = self.place_next() else { continue };
            return Some(Ok(task));
        }
    }

    /// Whether the epoch has no more samples to give a place. `Err` when the run was stopped meanwhile: what the caller
    /// will give next must be waited for.
    fn epoch_is_over(&mut self) -> Result<bool, Stopped> {
        let drop_last = self.pipeline.drop_last;
        match &mut self.feed {
            Feed::Indexed { plan, position } => {
                let left = plan.len().saturating_sub(*position);
                Ok(left == 0 || (drop_last && self.current.is_none() && left < self.pipeline.sizes.rows(self.begun)))
            }
            Feed::Stream(stream) => Ok(stream.is_over()),
            Feed::Given(given) => given.is_over(&self.stop, &self.pipeline),
        }
    }

    /// Takes a permit and begins a batch. `Err(None)` when the run was stopped meanwhile.
    fn begin_batch(&mut self) -> Result<(), Option<crate::Error>> {
        let waiting = Instant::now();
        // A batch that the consumer takes brings a permit and makes room. With all permits here nothing is in flight,
        // and there is room: nobody waits for ever.
        while self.spare == 0 || !self.pipeline.in_flight.has_room() {
            crossbeam::select! {
                recv(self.permits) -> permit => permit.map_err(|_| None)?,
                recv(self.stop) -> _ => return Err(None),
            }
            self.spare += 1;
        }
        self.spare -= 1;
        self.pipeline.counters.blocked(waiting.elapsed());
        let pipeline = &self.pipeline;
        let mut plan = Plan { batch_size: pipeline.sizes.rows(self.begun), ..pipeline.plan.clone() };
        if let Feed::Given(GivenFeed { batch: Some(batch), .. }) = &self.feed {
            plan.batch_size = batch.numbers.len();
            self.batch_index = batch.index;
        }
        let assembly = Assembly::new(&plan, &pipeline.pool, self.sequence, self.epoch, self.batch_index);
        let assembly = assembly.map_err(Some)?;
        self.current = Some(Current { assembly, planned: 0, rows: plan.batch_size });
        self.sequence += 1;
        self.begun += 1;
        self.batch_index += 1;
        Ok(())
    }

    fn place_next(&mut self) -> Option<Task> {
        let Current { assembly, planned: row, rows } = self.current.as_mut()?;
        let (position, peers, occurrence, bytes) = match &mut self.feed {
            Feed::Indexed { plan, position } => {
                let at = *position;
                *position += 1;
                (at, Peers::Plan(Arc::clone(plan)), 0, Bytes::Indexed(plan.at(at)))
            }
            Feed::Stream(stream) => {
                let (position, sample) = stream.next()?;
                (position, Peers::None, 0, Bytes::Streamed(Box::new(sample)))
            }
            Feed::Given(given) => {
                let batch = given.batch.as_ref()?;
                let number = *batch.numbers.get(*row)?;
                let position = given.position;
                given.position += 1;
                let (numbers, stand_ins) = (Arc::clone(&batch.numbers), Arc::clone(&batch.peers));
                let occurrence = batch.occurrences.get(*row).copied().unwrap_or_default();
                (position, Peers::Given { numbers, stand_ins }, occurrence, Bytes::Indexed(number))
            }
        };
        let task = Task { assembly: Arc::clone(assembly), row: *row, position, peers, occurrence, bytes };
        *row += 1;
        if row == rows {
            if let Feed::Given(given) = &mut self.feed {
                given.batch = None;
            }
            self.close_batch();
        }
        Some(task)
    }

    /// Lets go of the batch that is being planned; its rows finish it.
    fn close_batch(&mut self) {
        let Some(Current { assembly, .. }) = self.current.take() else { return };
        if let Some(finished) = Assembly::release(assembly, &self.pipeline.small) {
            let _ = self.output.send(Output::Batch(finished));
        }
    }

    fn end_epoch(&mut self) -> Result<()> {
        if let Some(current) = &self.current
            && self.pipeline.drop_last
            && current.planned < current.rows
        {
            // Rows under way still hold the batch: whoever is last finds it dropped.
            current.assembly.discard();
            self.batch_index -= 1;
        }
        self.close_batch();
        let _ = self.output.send(Output::EpochEnd { sequence: self.sequence });
        self.sequence += 1;
        self.epoch += 1;
        self.batch_index = 0;
        self.is_whole = true;
        match &mut self.feed {
            Feed::Given(given) => given.renew(),
            feed => *feed = Feed::open(&self.pipeline, self.epoch, Start::default())?,
        }
        Ok(())
    }
}

/// The run was stopped while something was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stopped;

impl GivenFeed {
    /// Whether the caller has ended the epoch; waits for its next word where no batch is at hand.
    fn is_over(&mut self, stop: &Receiver<()>, pipeline: &Pipeline) -> Result<bool, Stopped> {
        if self.batch.is_none() && !self.has_ended {
            let waiting = Instant::now();
            let given = crossbeam::select! {
                recv(self.orders) -> given => given.map_err(|_| Stopped)?,
                recv(stop) -> _ => return Err(Stopped),
            };
            pipeline.counters.blocked(waiting.elapsed());
            match given {
                Given::Batch(batch) => self.batch = Some(batch),
                Given::EpochEnd => self.has_ended = true,
            }
        }
        Ok(self.has_ended)
    }

    fn renew(&mut self) {
        self.has_ended = false;
        self.position = 0;
    }
}

impl Feed {
    fn open(pipeline: &Arc<Pipeline>, epoch: u64, Start { consumed, position }: Start) -> Result<Self> {
        match pipeline.dataset.is_stream() {
            false => Ok(Self::Indexed { plan: Arc::new(pipeline.epoch_plan(epoch)?.after(consumed)), position }),
            true => Ok(Self::Stream(Box::new(StreamFeed::open(pipeline, epoch, position)?))),
        }
    }
}
