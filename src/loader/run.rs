//! The threads of one pass over a data set, and the channels between them: readers fill a bounded queue of jobs, decode
//! threads empty it, finished batches go to one consumer, and permits flow back. Dropping a run stops all of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam::channel::{self, Receiver, RecvTimeoutError, Sender};

use super::Batch;
use super::given::{Giver, Order, Orders};
use super::gpu::{EngineLane, GpuPath};
use super::lanes::Lanes;
use super::peers::Peers;
use super::pipeline::Pipeline;
use super::planner::{self, Output, Planner};
use super::resume::Start;
use super::settle::Job;
use super::stats::Counters;
use super::turns::{Arrival, Turns};
use super::worker::{Intake, Worker, unpanicked};
use crate::{Error, ErrorKind, Result};

/// Jobs that may wait for a decode thread, per thread: enough that none runs dry while a reader waits for storage.
const JOBS_PER_THREAD: usize = 8;

/// Jobs that may wait at least, however few threads decode.
const JOBS_MIN: usize = 32;

/// The longest single wait; callers that wait longer ask again.
const WAIT_MAX: Duration = Duration::from_secs(24 * 3600);

/// A read that takes longer than this waited for storage: bytes in memory are mapped in a fraction of it.
const READ_IS_COLD: Duration = Duration::from_micros(200);

/// Samples for which a reader goes on asking ahead after a read that waited for storage.
const READS_AFTER_COLD: u32 = 256;

/// How long the end of a run waits for its threads. Those that end in time, as all do that are told between two samples,
/// are joined; one that hangs in the system, on a mount that does not answer, is left to end by itself.
const ENDING_MAX: Duration = Duration::from_millis(500);

/// The same for threads inside a GPU's driver: they end by themselves, but what they are in, such as opening the JPEG
/// engines, takes seconds, and a process that ends under them may crash.
const GPU_ENDING_MAX: Duration = Duration::from_secs(10);

/// How many threads of each kind a run has, how many batches are in flight, and for how many samples ahead of its own
/// reading each reader asks storage.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Threads {
    pub(crate) decode: usize,
    pub(crate) read: usize,
    pub(crate) prefetch: usize,
    pub(crate) ahead: usize,
}

/// A pass over the data set that goes on over epoch boundaries until it is dropped.
#[derive(Debug)]
pub(crate) struct Run {
    pipeline: Arc<Pipeline>,
    output: Receiver<Output>,
    permits: Sender<()>,
    /// Dropped to wake whoever waits for a permit.
    stop: Option<Sender<()>>,
    /// Disconnected once every thread has ended: each holds a sender and never sends.
    ended: Receiver<()>,
    /// The same for threads that call a GPU's driver.
    gpu_ended: Receiver<()>,
    pool: Option<rayon::ThreadPool>,
    readers: Vec<std::thread::JoinHandle<()>>,
    pid: u32,
    turns: Turns,
    /// Told of every batch that is delivered, where there are two lanes.
    lanes: Option<Arc<Lanes>>,
    /// Where the caller names the samples.
    orders: Option<Orders>,
    /// Batches taken from this run, discarded ones counted.
    taken: u64,
    /// The epoch whose batches come next, and how far it was delivered.
    pub(crate) epoch: u64,
    pub(crate) start: Start,
}

/// What a consumer gets when it asks.
#[derive(Debug)]
pub(crate) enum Next {
    Batch(Result<Batch>),
    EpochEnd,
    /// A batch that was too short to deliver; ask again.
    Discarded,
    /// Nothing yet.
    Pending,
}

impl Run {
    /// Starts the threads at `start` of `epoch`.
    pub(crate) fn start(
        pipeline: Arc<Pipeline>,
        threads: Threads,
        gpu: Option<&GpuPath>,
        epoch: u64,
        start: Start,
    ) -> Result<Self> {
        let (permits, permits_out) = channel::bounded(threads.prefetch);
        for _ in 0..threads.prefetch {
            let _ = permits.send(());
        }
        let (stop, stopped) = channel::bounded::<()>(0);
        let (finished, output) = channel::unbounded();
        let (alive, ended) = channel::bounded::<()>(0);
        let (gpu_alive, gpu_ended) = channel::bounded::<()>(0);
        let (finished, output) = match gpu {
            None => (finished, output),
            Some(gpu) => {
                let (on_device, arrived) = channel::unbounded();
                gpu.start(Arc::clone(&pipeline), output, on_device, gpu_alive.clone())?;
                (finished, arrived)
            }
        };
        let (queue, jobs) = channel::bounded((threads.decode * JOBS_PER_THREAD).max(JOBS_MIN));
        let (giver, orders) = match pipeline.order {
            Order::Planned => (None, None),
            Order::Given => {
                let samples = pipeline.dataset.len().unwrap_or(0);
                let (giver, orders) = Giver::new(samples, pipeline.rows_max(), threads.prefetch);
                (Some(giver), Some(orders))
            }
        };
        let planner =
            Planner::new(Arc::clone(&pipeline), permits_out, stopped.clone(), finished.clone(), orders, epoch, start)?;
        let workers: Vec<Worker> = (0..threads.decode)
            .map(|_| {
                let intake = Intake::Queue { jobs: jobs.clone(), stopped: stopped.clone() };
                Worker::new(Arc::clone(&pipeline), intake, finished.clone())
            })
            .collect::<Result<_>>()?;
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads.decode)
            .thread_name(|n| format!("brimful-decode-{n}"))
            .build()
            .map_err(|error| Error::new(ErrorKind::Io, "cannot start the decode threads").with_source(error))?;
        let engines = match gpu {
            None => None,
            Some(gpu) => {
                gpu.start_engines(&pipeline, threads.decode, queue.clone(), finished.clone(), gpu_alive.clone())?
            }
        };
        let mut run = Self {
            pipeline: Arc::clone(&pipeline),
            output,
            permits,
            stop: Some(stop),
            ended,
            gpu_ended,
            pool: None,
            readers: Vec::new(),
            pid: std::process::id(),
            turns: Turns::new(pipeline.arrival),
            lanes: engines.as_ref().map(|(_, lanes)| Arc::clone(lanes)),
            orders: giver.map(Orders::new),
            taken: 0,
            epoch,
            start,
        };
        for worker in workers {
            let (alive, failed) = (alive.clone(), finished.clone());
            let is_for_device = pipeline.is_for_device;
            pool.spawn(move || {
                if is_for_device {
                    yield_to_launches();
                }
                if let Err(error) = worker.run() {
                    let _ = failed.send(Output::Failed(error));
                }
                drop(alive);
            });
        }
        run.pool = Some(pool);
        let planner = Arc::new(Mutex::new(planner));
        for n in 0..threads.read {
            let reader = Reader {
                pipeline: Arc::clone(&pipeline),
                planner: Arc::clone(&planner),
                queue: queue.clone(),
                engines: engines.as_ref().map(|(lane, _)| lane.clone()),
                stopped: stopped.clone(),
                checked: HashMap::new(),
                ahead: threads.ahead,
                cold: READS_AFTER_COLD,
            };
            let (working, failed) = (alive.clone(), finished.clone());
            let spawned = std::thread::Builder::new().name(format!("brimful-read-{n}")).spawn(move || {
                if let Err(error) = unpanicked(|| reader.run()).flatten() {
                    let _ = failed.send(Output::Failed(error));
                }
                drop(working);
            });
            match spawned {
                Ok(reader) => run.readers.push(reader),
                Err(error) => {
                    // Dropping the run waits for its threads, of which this one is none.
                    drop((queue, alive, gpu_alive));
                    return Err(Error::io("cannot start a reader thread", error));
                }
            }
        }
        Ok(run)
    }

    /// The next thing in order, after at most `timeout`.
    ///
    /// # Errors
    /// In a child process that was forked from the one whose threads do the work.
    pub(crate) fn next(&mut self, timeout: Duration) -> Result<Next> {
        if self.is_foreign() {
            let message = "this iterator's threads ran in the parent process and did not come along with the fork";
            let hint = "make a new iterator in the child: iter(loader)";
            return Err(Error::new(ErrorKind::Cancelled, message).with_hint(hint));
        }
        let deadline = Instant::now().checked_add(timeout.min(WAIT_MAX)).unwrap_or_else(Instant::now);
        let (in_turn, samples) = loop {
            if let Some(in_turn) = self.turns.take() {
                break in_turn;
            }
            match self.output.recv_deadline(deadline) {
                Ok(Output::Failed(error)) => return Ok(Next::Batch(Err(error))),
                Ok(Output::Batch(finished)) => self.turns.insert(finished.sequence, Some(finished)),
                Ok(Output::EpochEnd { sequence }) => self.turns.insert(sequence, None),
                Err(RecvTimeoutError::Timeout) => return Ok(Next::Pending),
                // Only an epoch without a single batch ends the threads by itself.
                Err(RecvTimeoutError::Disconnected) => return Ok(Next::EpochEnd),
            }
        };
        Ok(match in_turn {
            None => {
                self.orders = self.orders.as_ref().map(Orders::renewed);
                self.epoch += 1;
                self.start = Start::default();
                Next::EpochEnd
            }
            Some(finished) => {
                self.pipeline.in_flight.subtract(finished.loose_bytes);
                self.taken += 1;
                self.pipeline.sizes.follow(self.taken);
                let _ = self.permits.try_send(());
                if let Some(orders) = &self.orders {
                    orders.taken();
                }
                self.start.position += samples;
                match finished.batch {
                    Some(batch) => Next::Batch(batch),
                    None => Next::Discarded,
                }
            }
        })
    }

    /// The caller's end of the order, where the caller gives it.
    pub(crate) fn orders(&self) -> Option<Orders> {
        self.orders.clone()
    }

    /// Tells the router, if there is one, that a batch was delivered.
    pub(crate) fn observe(&self) {
        if let Some(lanes) = &self.lanes {
            lanes.observe(&self.pipeline.counters);
        }
    }

    /// The counters that the threads of this run write.
    pub(crate) fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.pipeline.counters)
    }

    /// Whether the threads of this run belong to another process, from which this one was forked.
    pub(crate) fn is_foreign(&self) -> bool {
        self.pid != std::process::id()
    }
}

/// What decode threads give way by, in steps of niceness.
#[cfg(target_os = "linux")]
const NICER: i32 = 10;

/// Makes the calling thread give way to the one that launches kernels: on a machine with all cores busy decoding, a GPU
/// would otherwise wait for its next kernel.
fn yield_to_launches() {
    #[cfg(target_os = "linux")]
    {
        // On Linux a thread has a niceness of its own, and "this process" means this thread. Where it may not change
        // it, only speed is lost.
        let nice = rustix::process::getpriority_process(None).unwrap_or(0);
        let _ = rustix::process::setpriority_process(None, nice + NICER);
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.is_foreign() {
            // Nothing here can be joined: the threads exist in the parent only, and their locks may be held.
            std::mem::forget(self.pool.take());
            std::mem::forget(std::mem::take(&mut self.readers));
            std::mem::forget(std::mem::replace(&mut self.ended, channel::never()));
            std::mem::forget(std::mem::replace(&mut self.gpu_ended, channel::never()));
            std::mem::forget(self.stop.take());
            std::mem::forget(std::mem::replace(&mut self.output, channel::never()));
            std::mem::forget(std::mem::replace(&mut self.permits, channel::bounded(0).0));
            std::mem::forget(std::mem::replace(&mut self.turns, Turns::new(Arrival::InOrder)));
            std::mem::forget(self.orders.take());
            return;
        }
        self.pipeline.stop();
        self.stop = None;
        let _ = self.gpu_ended.recv_timeout(GPU_ENDING_MAX);
        if self.ended.recv_timeout(ENDING_MAX) == Err(RecvTimeoutError::Timeout) {
            // What such a thread holds is shared with nobody but threads of its own run, or counted by reference.
            tracing::debug!("a thread of the loader hangs in the system and is left to end by itself");
            return;
        }
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
    }
}

/// A thread that brings samples' bytes into memory and queues them for decoding.
struct Reader {
    pipeline: Arc<Pipeline>,
    planner: Arc<Mutex<Planner>>,
    queue: Sender<Job>,
    /// The other lane, where there is one.
    engines: Option<EngineLane>,
    stopped: Receiver<()>,
    /// For each shard, the batch for which its file was last looked at.
    checked: HashMap<usize, u64>,
    /// Samples ahead of its own reading whose bytes storage is asked for.
    ahead: usize,
    /// Samples for which storage is still asked ahead; where all bytes are in memory that would be a call for nothing.
    cold: u32,
}

impl Reader {
    /// Works until the run is stopped or has nothing to give.
    ///
    /// # Errors
    /// When no further batch can be begun: the run is over then.
    fn run(mut self) -> Result<()> {
        loop {
            if self.pipeline.is_stopped() {
                return Ok(());
            }
            let task = self.planner.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(task) = task.transpose()? else { return Ok(()) };
            if self.forward(task).is_none() {
                return Ok(());
            }
        }
    }

    /// Reads one sample and queues it; `None` when the run was stopped.
    fn forward(&mut self, task: planner::Task) -> Option<()> {
        let planner::Task { assembly, row, position, peers, occurrence, bytes } = task;
        let sample = match bytes {
            planner::Bytes::Streamed(sample) => *sample,
            planner::Bytes::Indexed(ordinal) => {
                let _range = self.pipeline.ranges.open(super::Stage::Read);
                let started = Instant::now();
                self.read_ahead(&peers, position, row);
                let batch = assembly.sequence;
                let checked = &mut self.checked;
                let sample = self.pipeline.dataset.read(ordinal, |shard| checked.insert(shard, batch) != Some(batch));
                let took = started.elapsed();
                self.cold = if took > READ_IS_COLD { READS_AFTER_COLD } else { self.cold.saturating_sub(1) };
                self.pipeline.counters.busy(super::Stage::Read, took, 1);
                sample
            }
        };
        if let Ok(sample) = &sample {
            let bytes = sample.fields.iter().flatten().map(|field| field.bytes.len() as u64).sum();
            self.pipeline.counters.read_bytes(bytes);
        }
        let job = Job { assembly, row, position, peers, occurrence, sample, attempt: 0 };
        let job = match &self.engines {
            None => job,
            Some(engines) => match engines.take(job, self.queue.is_full(), &self.pipeline) {
                None => return Some(()),
                Some(job) => job,
            },
        };
        let waiting = Instant::now();
        crossbeam::select! {
            send(self.queue, job) -> sent => sent.ok()?,
            recv(self.stopped) -> _ => return None,
        }
        self.pipeline.counters.queued(waiting.elapsed());
        Some(())
    }

    fn read_ahead(&self, peers: &Peers, position: usize, row: usize) {
        if self.cold > 0 {
            peers.ahead(position, row, self.ahead).for_each(|number| self.pipeline.dataset.prefetch(number));
        }
    }
}
