//! The whole route on threads: from shards to batches in order. It is the only place that knows every layer; each rule
//! it applies is written in the layer that owns it.
//!
//! ```no_run
//! use brimful::loader::{Dataset, DatasetOptions, Loader};
//! use brimful::shard::ShardList;
//!
//! # fn main() -> brimful::Result<()> {
//! let shards = ShardList::parse("train-{000000..000146}.tar")?;
//! let dataset = Dataset::open(&shards, DatasetOptions::default(), &|_, _| {})?;
//! let loader = Loader::builder(dataset).batch_size(256).build()?;
//! for batch in loader.epoch()? {
//!     let batch = batch?;
//!     println!("{} samples", batch.len());
//! }
//! # Ok(())
//! # }
//! ```

mod field;
mod process;
mod notices;
mod losses;
mod archives;
mod files;
mod joined;
mod dataset;
mod policy;
mod stats;
mod builder;
mod batch_sizes;
mod pipeline;
#[cfg_attr(not(feature = "cuda"), path = "no_gpu.rs")]
mod gpu;
mod in_flight;
mod assembly;
mod stream;
mod peers;
mod given;
mod turns;
mod planner;
mod route;
#[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "there is one lane where there is no GPU"))]
mod lanes;
mod settle;
#[cfg(feature = "cuda")]
mod engines;
#[cfg(feature = "cuda")]
mod sub_batches;
mod worker;
mod run;
mod resume;
mod epoch;
mod single;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

pub use assembly::Delivery;
pub use builder::LoaderBuilder;
pub use dataset::{Access, Dataset, DatasetOptions};
pub use epoch::{Epoch, Poll};
pub use field::FieldSpec;
pub use given::{Order, Orders};
pub use losses::StreamStats;
pub use policy::{BadSample, ErrorBudget, OnError};
pub use resume::State;
pub use route::{Lane, Observation, RouteMode, Router};
pub use stats::{Bottleneck, DeviceStats, Stage, StageStats, Stats};
pub use turns::Arrival;

use crate::batch::{BufferPool, Column, PageableAllocator};
use crate::device::{Device, DeviceRow};
use crate::sample::{EpochPlan, Key};
use crate::{Error, ErrorKind, Result};
use batch_sizes::{BatchSizes, WantedSize};
use builder::LoaderConfig;
use gpu::GpuPath;
use losses::Losses;
use notices::Notices;
use pipeline::Pipeline;
use policy::Quarantine;
use process::PerProcess;
use resume::{STATE_VERSION, Start};
use run::Run;
use stats::Counters;

/// Samples of one data set in batches, epoch after epoch.
///
/// A loader starts no thread until [`epoch`](Self::epoch) is called, and dropping it ends and joins them. It may be
/// shared between threads; two epochs iterated at the same time are independent.
///
/// Dropping a loader or an epoch waits half a second at most: a thread that hangs in the system by then, because
/// storage does not answer, is left behind. It ends when the system lets it go, and holds its shards and buffers
/// until then; nothing of it is seen again.
#[derive(Debug)]
pub struct Loader {
    shared: Arc<Shared>,
}

/// What a loader and its epochs share.
#[derive(Debug)]
struct Shared {
    dataset: Dataset,
    config: LoaderConfig,
    /// See [`resume::fingerprint`]: made once, since every state carries it.
    fingerprint: u64,
    quarantine: Arc<Quarantine>,
    losses: Arc<Losses>,
    notices: Arc<Notices>,
    wanted: WantedSize,
    /// Buffers of whole batches, kept from run to run.
    pool: Arc<BufferPool>,
    gpu: Option<GpuPath>,
    counters: Mutex<Option<Arc<Counters>>>,
    place: Mutex<Place>,
    /// A run that has finished an epoch and already works on the next.
    idle: PerProcess<Mutex<Option<Run>>>,
}

/// Where the next epoch begins, and what was delivered of the current one.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    epoch: u64,
    start: Start,
    delivered_epoch: u64,
    delivered: Start,
}

/// A place between two batches, told by a batch or an epoch for [`Loader::confirm`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark {
    epoch: u64,
    start: Start,
}

/// One batch, in host memory.
#[derive(Debug)]
pub struct Batch {
    /// The epoch it belongs to.
    pub epoch: u64,
    /// Its number in the epoch.
    pub index: usize,
    len: usize,
    /// Rows it was planned with: bad samples that were skipped are the difference to `len`.
    planned: usize,
    /// Rows that stand in for bad samples.
    replaced: usize,
    /// The loader's place after it.
    pub mark: Mark,
    /// Numbers of its samples in the data set, in row order.
    pub samples: Vec<u64>,
    /// Keys of its samples, in row order, where [rows](Delivery::Rows) are delivered; empty otherwise.
    pub keys: Vec<Key>,
    /// For each of its samples a number from (seed, epoch, sample), for randomness outside the loader; with the keys.
    pub draws: Vec<u64>,
    /// One column a field, in the order asked for.
    pub columns: Vec<Column>,
    /// Rows of the first image column whose pixels are on the GPU already.
    #[cfg_attr(not(any(feature = "cuda", test)), expect(dead_code, reason = "only a GPU has such rows"))]
    pub(crate) rows_on_device: Vec<(usize, DeviceRow)>,
}

impl Batch {
    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether every sample of it was bad and skipped.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Loader {
    /// Begins to configure a loader over `dataset`.
    pub fn builder(dataset: Dataset) -> LoaderBuilder {
        LoaderBuilder::new(dataset)
    }

    fn assemble(
        dataset: Dataset,
        config: LoaderConfig,
        on_error: OnError,
        budget: ErrorBudget,
        quarantine: Option<PathBuf>,
        pool: Arc<BufferPool>,
        gpu: Option<GpuPath>,
    ) -> Result<Self> {
        let notices = Arc::new(Notices::new());
        let quarantine = Arc::new(Quarantine::new(on_error, budget, quarantine, Arc::clone(&notices))?);
        let fingerprint = resume::fingerprint(&dataset, &config, resume::shuffle_of(&config));
        let wanted = WantedSize::new(config.batch_size);
        Ok(Self {
            shared: Arc::new(Shared {
                dataset,
                config,
                wanted,
                fingerprint,
                quarantine,
                losses: Arc::new(Losses::new(Arc::clone(&notices))),
                notices,
                pool,
                gpu,
                counters: Mutex::new(None),
                place: Mutex::default(),
                idle: PerProcess::new(Mutex::new(None)),
            }),
        })
    }

    /// The next epoch: 0 at first, then one more each time, unless [`set_epoch`](Self::set_epoch) said otherwise.
    ///
    /// # Errors
    /// When threads cannot be started.
    pub fn epoch(&self) -> Result<Epoch> {
        let Place { epoch, start, .. } = {
            let mut place = self.shared.place();
            let now = *place;
            let next = now.epoch + 1;
            *place = Place { epoch: next, delivered_epoch: now.epoch, delivered: now.start, ..Place::default() };
            now
        };
        let idle = self.shared.take_idle().filter(|run| run.epoch == epoch && run.start == start);
        let run = match idle {
            Some(run) => run,
            None => self.shared.start(epoch, start)?,
        };
        Ok(Epoch::new(Arc::clone(&self.shared), run))
    }

    /// Makes `epoch` the one that the next call of [`epoch`](Self::epoch) begins, from its first sample: also one that
    /// was begun before, which is replayed.
    ///
    /// Only a place that [`load_state`](Self::load_state) set and from which no epoch was begun yet stays when its own
    /// epoch is named: the usual loop sets each epoch before it begins, the resumed one too.
    pub fn set_epoch(&self, epoch: u64) {
        let mut place = self.shared.place();
        // A start in mid-epoch can only be a loaded one: beginning an epoch takes it away.
        if place.epoch != epoch || place.start == Start::default() {
            *place = Place { epoch, delivered_epoch: epoch, ..Place::default() };
        }
    }

    /// Batches of a whole epoch of the present size; `None` for a stream, and where the caller gives the order.
    #[must_use]
    pub fn len(&self) -> Option<usize> {
        let samples = self.samples_per_epoch()?;
        let (batch_size, drop_last) = (self.batch_size(), self.shared.config.drop_last);
        Some(if drop_last { samples / batch_size } else { samples.div_ceil(batch_size) })
    }

    /// Whether an epoch is known to have no batch.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Samples of an epoch of this rank; `None` for a stream, and where the caller gives the order.
    #[must_use]
    pub fn samples_per_epoch(&self) -> Option<usize> {
        self.order(0).ok().flatten().map(|plan| plan.len())
    }

    /// The order of this rank's samples in `epoch`, for whoever draws batches by number elsewhere; `None` for a stream,
    /// and where the caller gives it.
    ///
    /// # Errors
    /// As [`EpochPlan::new`].
    pub fn order(&self, epoch: u64) -> Result<Option<EpochPlan>> {
        let (dataset, config) = (&self.shared.dataset, &self.shared.config);
        if dataset.is_stream() || config.order == Order::Given {
            return Ok(None);
        }
        let plan = EpochPlan::new(&dataset.shard_lens(), config.shuffle, config.seed, epoch, config.split)?;
        Ok(Some(plan.in_turns_of(config.turn)))
    }

    /// Rows of a full batch: those begun from now on; up to [`prefetch`](Self::prefetch) before them are of a former size
    /// after a change.
    #[must_use]
    pub fn batch_size(&self) -> usize {
        self.shared.wanted.get()
    }

    /// Makes batches of `rows` rows from now on. Nothing in flight is thrown away: once the next batch was taken,
    /// [`prefetch`](Self::prefetch) more come in the former size, so that consumers that ask at the same step change at
    /// the same step. A run that is started anew begins with the new size.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] unless `rows` is between 1 and
    /// [`batch_size_max`](LoaderBuilder::batch_size_max).
    pub fn set_batch_size(&self, rows: usize) -> Result<()> {
        let most = self.shared.config.batch_size_max;
        if !(1..=most).contains(&rows) {
            let message = format!("batch_size={rows} is not between 1 and batch_size_max={most}");
            return Err(Error::new(ErrorKind::InvalidOption, message));
        }
        self.shared.wanted.set(rows);
        Ok(())
    }

    /// Batches in flight beside the consumer's.
    #[must_use]
    pub fn prefetch(&self) -> usize {
        self.shared.config.prefetch
    }

    /// Threads that decode, and threads that read.
    #[must_use]
    pub fn threads(&self) -> (usize, usize) {
        (self.shared.config.threads.decode, self.shared.config.threads.read)
    }

    /// The data set it reads.
    #[must_use]
    pub fn dataset(&self) -> &Dataset {
        &self.shared.dataset
    }

    /// What each stage did since the threads of the latest run were started.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let counters = self.shared.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stats = match counters.as_ref() {
            Some(counters) => counters.snapshot(),
            None => {
                let threads = self.shared.config.threads;
                Counters::new(threads.decode, threads.read).snapshot()
            }
        };
        let totals = counters.as_ref().map(|counters| counters.totals()).unwrap_or_default();
        stats.device = self.shared.gpu.as_ref().map(|gpu| gpu.stats(totals));
        let is_stream = self.shared.dataset.is_stream();
        stats.stream = is_stream.then(|| self.shared.losses.stats());
        stats
    }

    /// What has come up in the data since the last call, one sentence each, for whoever shows warnings: the first few
    /// bad samples and damaged shards of a stream as they are met, the rest summed up at the end of an epoch. Each is
    /// told once in the life of a loader.
    #[must_use]
    pub fn notices(&self) -> Vec<String> {
        self.shared.notices.take()
    }

    /// Where batches are delivered.
    #[must_use]
    pub fn device(&self) -> Device {
        self.shared.config.device
    }

    /// Gives device memory back that no batch uses at the moment, and says how many slots that were. The next batches
    /// allocate anew.
    pub fn release_idle(&self) -> usize {
        self.shared.gpu.as_ref().map_or(0, GpuPath::trim)
    }

    /// Samples that were left out because they were bad, each once, at most the first 1,000.
    #[must_use]
    pub fn bad_samples(&self) -> Vec<BadSample> {
        self.shared.quarantine.bad_samples()
    }

    /// Moves the place of the loader to `mark`: what the consumer of [rows](Delivery::Rows) has got.
    pub fn confirm(&self, mark: Mark) {
        self.shared.confirm(mark);
    }

    /// The place after the last batch that was delivered, prefetched ones not counted.
    #[must_use]
    pub fn state(&self) -> State {
        let place = *self.shared.place();
        State {
            version: STATE_VERSION,
            seed: self.shared.config.seed,
            epoch: place.delivered_epoch,
            consumed: place.delivered.consumed as u64,
            position: place.delivered.position as u64,
            world_size: self.shared.config.split.world_size as u64,
            fingerprint: self.shared.fingerprint,
        }
    }

    /// Makes the next epoch go on where `state` was taken: at once through an index; a stream is read again up to there.
    ///
    /// # Errors
    /// [`StateMismatch`](crate::ErrorKind::StateMismatch) when it belongs to another seed, data set, order or version, or
    /// its position lies beyond the epoch.
    pub fn load_state(&self, state: &State) -> Result<()> {
        let config = &self.shared.config;
        let mismatch =
            |message: String, hint: &str| Err(Error::new(ErrorKind::StateMismatch, message).with_hint(hint.to_owned()));
        if let Some(shuffle) = resume::other_shuffle(&self.shared.dataset, config, state.fingerprint) {
            let (theirs, ours) =
                (resume::shuffle_text(Some(shuffle)), resume::shuffle_text(resume::shuffle_of(config)));
            let message =
                format!("the saved state was made {theirs}, this loader reads {ours}: the shards are the same");
            return mismatch(message, "build the loader with the same shuffling");
        }
        let samples = self.shared.dataset.len();
        let start = match config.order {
            Order::Planned => {
                state.start_under(config.split, config.turn, config.seed, self.shared.fingerprint, samples)?
            }
            Order::Given => state.start_of_given(config.split, config.seed, self.shared.fingerprint, samples)?,
        };
        *self.shared.place() = Place { epoch: state.epoch, start, delivered_epoch: state.epoch, delivered: start };
        Ok(())
    }
}

impl Shared {
    fn place(&self) -> std::sync::MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn confirm(&self, Mark { epoch, start }: Mark) {
        let mut place = self.place();
        place.delivered_epoch = epoch;
        place.delivered = start;
    }

    fn pipeline(&self, counters: Arc<Counters>) -> Pipeline {
        let (quarantine, losses) = (Arc::clone(&self.quarantine), Arc::clone(&self.losses));
        let pool = Arc::clone(&self.pool);
        let mut pipeline = Pipeline::new(self.dataset.clone(), &self.config, quarantine, losses, counters, pool);
        pipeline.sizes = BatchSizes::new(self.wanted.clone(), self.config.prefetch);
        pipeline
    }

    /// A pipeline for `rows` samples outside any epoch, in host memory: errors are raised, counters are nobody's.
    fn single_pipeline(&self, rows: usize) -> Result<Pipeline> {
        let notices = Arc::clone(&self.notices);
        let quarantine = Arc::new(Quarantine::new(OnError::Raise, ErrorBudget::Unlimited, None, notices)?);
        let config = LoaderConfig { batch_size: rows, device: Device::Cpu, ..self.config.clone() };
        let pool = BufferPool::new(Arc::new(PageableAllocator), 0);
        let counters = Arc::new(Counters::new(1, 1));
        let losses = Arc::clone(&self.losses);
        Ok(Pipeline::new(self.dataset.clone(), &config, quarantine, losses, counters, pool))
    }

    fn start(&self, epoch: u64, start: Start) -> Result<Run> {
        let threads = self.config.threads;
        let counters = Arc::new(Counters::new(threads.decode, threads.read));
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&counters));
        let mut pipeline = self.pipeline(counters);
        if let Some(gpu) = &self.gpu {
            pipeline.ranges = gpu.ranges();
        }
        Run::start(Arc::new(pipeline), threads, self.gpu.as_ref(), epoch, start)
    }

    fn take_idle(&self) -> Option<Run> {
        self.idle_place().lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Keeps a run whose epoch is over for the next one.
    fn keep(&self, run: Run) {
        let former = self.idle_place().lock().unwrap_or_else(PoisonError::into_inner).replace(run);
        drop(former);
    }

    fn idle_place(&self) -> &Mutex<Option<Run>> {
        self.idle.get(|| Mutex::new(None))
    }
}
