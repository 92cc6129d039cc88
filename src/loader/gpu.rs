//! The loader's GPU: what its runs share, and the thread that takes finished batches from host to device. How a batch
//! is copied and when memory may be reused is the device layer's business.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender};
use cudarc::driver::CudaStream;

use super::assembly::Finished;
use super::builder::LoaderConfig;
pub(crate) use super::engines::EngineLane;
use super::engines::EngineShow;
use super::lanes::Lanes;
use super::pipeline::Pipeline;
use super::planner::Output;
use super::route::RouteMode;
use super::settle::Job;
use super::stats::{DeviceStats, Stage, Totals};
use crate::batch::{BatchSpec, HostAllocator};
use crate::device::lease::{Readiness, Slot};
use crate::device::nvjpeg::EngineOptions;
use crate::device::nvtx;
use crate::device::pinned::PinnedAllocator;
use crate::device::ring::Ring;
use crate::device::stream::{Gpu, KeepCurrent};
use crate::device::transfer::{Slots, Transfer, TransferSpec};
use crate::transform::ValueOps;
use crate::{Error, ErrorKind, Result};

/// Room in a slot beside the images, for each row: a few numbers. Where more is needed the slot is made anew.
const SMALL_BYTES_PER_ROW: usize = 64;

/// How long the copy thread waits for a batch at a time: it must also notice that the run was stopped while another
/// thread hangs in storage.
const LOOK: Duration = Duration::from_millis(100);

/// The GPU that a loader's batches go to.
#[derive(Debug)]
pub(crate) struct GpuPath {
    gpu: Gpu,
    /// The copy stream of all runs: slots go from run to run, and are ordered by it.
    stream: Arc<CudaStream>,
    slots: Slots,
    readiness: Arc<Readiness>,
    spec: TransferSpec,
    copied_bytes: Arc<std::sync::atomic::AtomicU64>,
    ranges: Ranges,
    route: RouteMode,
    /// Where nvJPEG is looked for first.
    folders: Vec<PathBuf>,
    engines: Arc<EngineShow>,
    /// The router of the latest run.
    lanes: Mutex<Option<Arc<Lanes>>>,
}

impl GpuPath {
    /// Opens GPU number `ordinal` for batches of `config`, and makes sure that those in flight fit in its memory.
    ///
    /// # Errors
    /// Without that GPU, without a fixed image size, or without memory.
    pub(crate) fn open(ordinal: usize, config: &LoaderConfig, value: &ValueOps) -> Result<Self> {
        let Some(device) = config.spec else {
            let error = Error::new(ErrorKind::InvalidOption, "images of free size cannot be batched on a GPU");
            let hint = "end the transform with a fixed size, such as RandomResizedCrop(224) or Resize((224, 224))";
            return Err(error.with_hint(hint));
        };
        let gpu = Gpu::open(ordinal)?;
        let _keep = KeepCurrent::here();
        let (dtype, layout) = config.host_form();
        let host = BatchSpec { dtype, layout, ..device };
        let slots_max = config.prefetch + config.held_max;
        let room = device.batch_bytes()?.saturating_add(device.batch_size * SMALL_BYTES_PER_ROW).next_multiple_of(4096);
        let in_flight = room.saturating_mul(config.prefetch + 1).saturating_add(host.batch_bytes()?);
        let (free, total) = gpu.memory()?;
        if in_flight > free {
            let message = format!(
                "{} batches in flight need {in_flight} bytes of GPU memory; {free} of {total} are free",
                config.prefetch + 1
            );
            let hint = "use a smaller batch size, dtype=\"bfloat16\" or prefetch=1";
            return Err(Error::new(ErrorKind::Limit, message).with_hint(hint));
        }
        let mut ring = Ring::new(slots_max);
        let stream = gpu.stream()?;
        ring.fill(1, || Slot::new(&gpu, &stream, room))?;
        Ok(Self {
            gpu,
            stream,
            slots: Arc::new(Mutex::new(ring)),
            readiness: Arc::default(),
            spec: TransferSpec { host, device, value: value.clone(), room },
            copied_bytes: Arc::default(),
            ranges: Ranges(config.nvtx.then(|| nvtx::Ranges::find(&config.nvjpeg_folders)).transpose()?),
            route: config.route,
            folders: config.nvjpeg_folders.clone(),
            engines: Arc::default(),
            lanes: Mutex::new(None),
        })
    }

    /// How the stages show in a profiler.
    pub(crate) fn ranges(&self) -> Ranges {
        self.ranges.clone()
    }

    /// Host memory that the GPU can copy from at full rate.
    pub(crate) fn allocator(&self) -> Arc<dyn HostAllocator> {
        Arc::new(PinnedAllocator::new(self.gpu.clone()))
    }

    /// Lets idle slots go.
    pub(crate) fn trim(&self) -> usize {
        let _keep = KeepCurrent::here();
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).trim()
    }

    /// What stands on the GPU, and what happened to batches there.
    pub(crate) fn stats(&self, totals: Totals) -> DeviceStats {
        let (lent, early) = self.readiness.counts();
        let (slots, held) = {
            let mut ring = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            (ring.made(), ring.held())
        };
        DeviceStats {
            ordinal: self.gpu.ordinal(),
            slots,
            slots_held: held,
            slot_bytes: self.spec.room as u64,
            copied_bytes: self.copied_bytes.load(std::sync::atomic::Ordering::Relaxed),
            tensors_lent: lent,
            tensors_early: early,
            engine_images: totals.engine_images.saturating_sub(totals.engine_refused),
            engine_refused: totals.engine_refused,
            engine_unwritten: totals.engine_unwritten,
            engine_bytes: self.engines.bytes.load(std::sync::atomic::Ordering::Relaxed),
            engine_share: self.lanes().as_ref().map_or(0.0, |lanes| lanes.share()),
            engines: self.engines_text(),
        }
    }

    fn lanes(&self) -> MutexGuard<'_, Option<Arc<Lanes>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn engines_text(&self) -> Option<String> {
        let found = self.engines.found.lock().unwrap_or_else(PoisonError::into_inner);
        Some(match found.as_ref()? {
            Err(reason) => format!("not used: {reason}"),
            Ok(report) => report.to_string(),
        })
    }

    /// Starts the lane of the JPEG engines beside the decode threads, whose queue is `cpu`; `None` where all images go
    /// to the threads.
    ///
    /// # Errors
    /// When only the engines will do, and the samples are not of a kind that they serve.
    pub(crate) fn start_engines(
        &self,
        pipeline: &Arc<Pipeline>,
        decode_threads: usize,
        cpu: Sender<Job>,
        output: Sender<Output>,
        over: impl Clone + Send + 'static,
    ) -> Result<Option<(EngineLane, Arc<Lanes>)>> {
        if self.route == RouteMode::Cpu {
            return Ok(None);
        }
        let lanes = Arc::new(Lanes::new(self.route, decode_threads, EngineOptions::default().sub_batch));
        *self.lanes() = Some(Arc::clone(&lanes));
        let mine = Arc::clone(&lanes);
        let place = (&self.gpu, self.folders.as_slice(), &self.engines);
        match EngineLane::start(place, pipeline, mine, cpu, output, over) {
            Ok(lane) => Ok(Some((lane, lanes))),
            Err(error) if self.route == RouteMode::Engine => Err(error),
            Err(error) => {
                self.engines.note(Err(error.to_string()));
                Ok(None)
            }
        }
    }

    /// Starts the thread that takes what `from` brings to the GPU and on to `to`.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn start(
        &self,
        pipeline: Arc<Pipeline>,
        from: Receiver<Output>,
        to: Sender<Output>,
        over: impl Send + 'static,
    ) -> Result<()> {
        let (gpu, stream, spec) = (self.gpu.clone(), Arc::clone(&self.stream), self.spec.clone());
        let (slots, readiness) = (Arc::clone(&self.slots), Arc::clone(&self.readiness));
        let copied_bytes = Arc::clone(&self.copied_bytes);
        let work = move || {
            let failed = to.clone();
            let outcome = super::worker::unpanicked(|| {
                let transfer = Transfer::new(&gpu, stream, spec, slots, readiness)?;
                Carrier { pipeline, transfer, to, copied_bytes }.run(&from)
            });
            if let Err(error) = outcome.flatten() {
                let _ = failed.send(Output::Failed(error));
            }
            drop(over);
        };
        let spawned = std::thread::Builder::new().name("brimful-copy".to_owned()).spawn(work);
        spawned.map(drop).map_err(|error| Error::io("cannot start the copy thread", error))
    }
}

/// Ranges of the stages in a profiler, where they were asked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ranges(Option<nvtx::Ranges>);

impl Ranges {
    /// Opens the range of a stage on this thread, until what is returned is dropped.
    pub(crate) fn open(&self, stage: Stage) -> Option<nvtx::Range<'_>> {
        Some(self.0.as_ref()?.open(range_name(stage)))
    }

    /// The same until [`end`](Self::end), for work that begins and ends in different calls.
    pub(crate) fn begin(&self, stage: Stage) {
        if let Some(ranges) = &self.0 {
            ranges.begin(range_name(stage));
        }
    }

    pub(crate) fn end(&self) {
        if let Some(ranges) = &self.0 {
            ranges.end();
        }
    }
}

fn range_name(stage: Stage) -> &'static std::ffi::CStr {
    match stage {
        Stage::Read => c"brimful read",
        Stage::Decode => c"brimful decode",
        Stage::Transform => c"brimful transform",
        Stage::Batch => c"brimful batch",
        Stage::Copy => c"brimful copy",
        Stage::Wait => c"brimful wait",
    }
}

/// The copy thread's state.
struct Carrier {
    pipeline: Arc<Pipeline>,
    transfer: Transfer,
    to: Sender<Output>,
    copied_bytes: Arc<std::sync::atomic::AtomicU64>,
}

impl Carrier {
    /// Works until nobody sends or nobody listens.
    ///
    /// # Errors
    /// When the GPU fails: no batch after that can be trusted.
    fn run(mut self, from: &Receiver<Output>) -> Result<()> {
        loop {
            let output = match from.recv_timeout(LOOK) {
                Ok(output) => output,
                Err(RecvTimeoutError::Timeout) if !self.pipeline.is_stopped() => continue,
                Err(_) => break,
            };
            let output = match output {
                Output::Batch(finished) => Output::Batch(self.carry(finished)?),
                other => other,
            };
            if self.to.send(output).is_err() {
                break;
            }
            let copied = self.transfer.reap()?;
            self.pipeline.counters.busy(Stage::Copy, copied.time, copied.batches);
            self.copied_bytes.fetch_add(copied.bytes, std::sync::atomic::Ordering::Relaxed);
        }
        Ok(())
    }

    fn carry(&mut self, finished: Finished) -> Result<Finished> {
        let Finished { sequence, batch, loose_bytes } = finished;
        let Some(Ok(mut batch)) = batch else { return Ok(Finished { sequence, batch, loose_bytes }) };
        let pipeline = Arc::clone(&self.pipeline);
        let _range = pipeline.ranges.open(Stage::Copy);
        let columns = std::mem::take(&mut batch.columns);
        let rows = std::mem::take(&mut batch.rows_on_device);
        match self.transfer.upload(columns, &pipeline.plan.is_image, rows, &|| pipeline.is_stopped()) {
            Ok(columns) => batch.columns = columns,
            // The batch cannot be had now; it is this one's error, in its turn.
            Err(error) if error.kind() == ErrorKind::Limit => {
                return Ok(Finished { sequence, batch: Some(Err(error)), loose_bytes });
            }
            Err(error) => return Err(error),
        }
        Ok(Finished { sequence, batch: Some(Ok(batch)), loose_bytes })
    }
}
