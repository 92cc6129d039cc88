//! What every thread of a run shares and none changes: the data set, the shape of a batch, the rules, the counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::assembly::Plan;
use super::batch_sizes::{BatchSizes, WantedSize};
use super::builder::{BATCH_SIZE_MAX, LoaderConfig};
use super::dataset::Dataset;
use super::given::Order;
use super::gpu::Ranges;
use super::in_flight::InFlight;
use super::losses::Losses;
use super::policy::{Quarantine, Tally};
use super::stats::Counters;
use super::turns::Arrival;
use crate::Result;
use crate::batch::{BatchSpec, BufferPool, PageableAllocator};
use crate::device::{Device, RowWriter};
use crate::sample::{EpochPlan, Shuffle, Split};
use crate::transform::ValueOps;

/// The shared, immutable part of a run.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub(crate) dataset: Dataset,
    pub(crate) plan: Plan,
    /// Rows of each batch.
    pub(crate) sizes: BatchSizes,
    /// Rows of any batch at most.
    pub(crate) batch_size_max: usize,
    pub(crate) drop_last: bool,
    pub(crate) shuffle: Shuffle,
    pub(crate) shuffle_samples: usize,
    pub(crate) split: Split,
    pub(crate) order: Order,
    pub(crate) arrival: Arrival,
    pub(crate) turn: usize,
    pub(crate) seed: u64,
    /// Batches in flight at most.
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only engines size their memory by it"))]
    pub(crate) prefetch: usize,
    pub(crate) dtype: crate::batch::Dtype,
    pub(crate) layout: crate::batch::Layout,
    /// Whether the host only makes bytes, and the device numbers of them.
    pub(crate) is_for_device: bool,
    pub(crate) ranges: Ranges,
    pub(crate) quarantine: Arc<Quarantine>,
    /// What was lost in the shards of a stream.
    pub(crate) losses: Arc<Losses>,
    pub(crate) counters: Arc<Counters>,
    /// Buffers of whole batches.
    pub(crate) pool: Arc<BufferPool>,
    /// Buffers of labels and other small columns, not kept.
    pub(crate) small: Arc<BufferPool>,
    /// Bad samples of the run.
    pub(crate) tally: Tally,
    pub(crate) in_flight: InFlight,
    stopped: AtomicBool,
}

impl Pipeline {
    pub(crate) fn new(
        dataset: Dataset,
        config: &LoaderConfig,
        quarantine: Arc<Quarantine>,
        losses: Arc<Losses>,
        counters: Arc<Counters>,
        pool: Arc<BufferPool>,
    ) -> Self {
        let (dtype, layout) = config.host_form();
        let spec = config.spec.map(|spec| BatchSpec { dtype, layout, ..spec });
        let is_image = dataset.fields().iter().map(super::field::FieldSpec::is_image).collect();
        let names = dataset.fields().iter().map(|field| field.name().to_owned()).collect();
        Self {
            plan: Plan { batch_size: config.batch_size, spec, is_image, names, delivery: config.delivery },
            sizes: BatchSizes::new(WantedSize::new(config.batch_size), config.prefetch),
            batch_size_max: config.batch_size_max,
            dataset,
            drop_last: config.drop_last,
            shuffle: config.shuffle,
            shuffle_samples: config.shuffle_samples,
            split: config.split,
            order: config.order,
            arrival: config.arrival,
            turn: config.turn,
            seed: config.seed,
            prefetch: config.prefetch,
            dtype,
            layout,
            is_for_device: config.device != Device::Cpu,
            ranges: Ranges::default(),
            quarantine,
            losses,
            counters,
            pool,
            small: BufferPool::new(Arc::new(PageableAllocator), 0),
            tally: Tally::default(),
            in_flight: InFlight::new(config.loose_bytes_max),
            stopped: AtomicBool::new(false),
        }
    }

    /// The order of this rank's samples in `epoch`.
    pub(crate) fn epoch_plan(&self, epoch: u64) -> Result<EpochPlan> {
        let plan = EpochPlan::new(&self.dataset.shard_lens(), self.shuffle, self.seed, epoch, self.split)?;
        Ok(plan.in_turns_of(self.turn))
    }

    /// Rows that a batch may have at most where the caller gives their numbers: on a GPU its slots are made beforehand.
    pub(crate) fn rows_max(&self) -> usize {
        if self.is_for_device { self.batch_size_max.max(self.plan.batch_size) } else { BATCH_SIZE_MAX }
    }

    /// How an image of `height` x `width` with `channels` is written into a row.
    pub(crate) fn writer(&self, height: usize, width: usize) -> Result<RowWriter> {
        let options = self.dataset.options();
        let channels = usize::from(options.decode.mode.channels());
        let spec = BatchSpec { batch_size: 1, height, width, channels, dtype: self.dtype, layout: self.layout };
        match self.is_for_device {
            true => RowWriter::new(spec, &ValueOps::default()),
            false => RowWriter::new(spec, options.transform.value()),
        }
    }

    /// Tells every thread to drop what it has and end.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}
