//! The lane of the GPU's JPEG engines: samples whose image they take, gathered into sub-batches, and what comes back of
//! them. What they refuse goes on to the decode threads, in the same batch and the same row.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossbeam::channel::{self, Receiver, RecvTimeoutError, Sender};

use super::lanes::Lanes;
use super::pipeline::Pipeline;
use super::planner::Output;
use super::route::{Lane, RouteMode};
use super::settle::{Job, Settler};
use super::sub_batches::{Filler, Outlet, sub_batches};
use crate::batch::RowValue;
use crate::decode::ImageInfo;
use crate::device::DeviceRow;
use crate::device::kernels::Kernels;
use crate::device::nvjpeg::{EncodedImage, EngineOptions, EngineReport, EngineRules, EngineStats, JpegEngine, Outcome};
use crate::device::stream::Gpu;
use crate::transform::Geometry;
use crate::{Error, ErrorKind, Result};

/// How long a thread without work waits at a time before it looks whether the run was stopped.
const LOOK: Duration = Duration::from_millis(100);

/// The same while the engines work: what they have done is looked for that often.
const LOOK_AT_WORK: Duration = Duration::from_micros(500);

/// Threads that serve the engines: reading files into page-locked memory and handing them over takes one thread nearly as
/// long as the engines take to decode.
const SERVERS: usize = 2;

/// Sub-batches that may wait for the engines beside those in work.
const WAITING: usize = SERVERS;

/// What the readers know of the engines: whom to ask and where to send.
#[derive(Debug, Clone)]
pub(crate) struct EngineLane {
    lanes: Arc<Lanes>,
    rules: EngineRules,
    settler: Arc<Settler>,
    filler: Filler<Routed>,
    want: Sender<()>,
    state: Arc<EngineState>,
}

/// How far the opening of the engines has got.
#[derive(Debug, Default)]
struct EngineState {
    /// Somebody asked for them.
    is_wanted: AtomicBool,
    is_open: AtomicBool,
}

/// What a loader tells of its engines.
#[derive(Debug, Default)]
pub(crate) struct EngineShow {
    /// What opening them showed, once it was tried: the report, or the reason why they are not used.
    pub(crate) found: Mutex<Option<std::result::Result<EngineReport, String>>>,
    /// Bytes of GPU memory of all that are open, but for what the library takes by itself.
    pub(crate) bytes: AtomicU64,
}

impl EngineShow {
    pub(crate) fn note(&self, found: std::result::Result<EngineReport, String>) {
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
    }
}

/// A sample for the engines.
#[derive(Debug)]
struct Routed {
    job: Job,
    bytes: bytes::Bytes,
    info: ImageInfo,
    geometry: Geometry,
}

impl EngineLane {
    /// Starts the thread that serves the engines; what they refuse goes to `cpu`. They are opened when the router first
    /// asks for them, which takes a moment that a loader without need of them is spared.
    ///
    /// # Errors
    /// When the samples are not of a kind that the engines serve.
    pub(crate) fn start(
        (gpu, folders, show): (&Gpu, &[PathBuf], &Arc<EngineShow>),
        pipeline: &Arc<Pipeline>,
        lanes: Arc<Lanes>,
        cpu: Sender<Job>,
        output: Sender<Output>,
        over: impl Clone + Send + 'static,
    ) -> Result<Self> {
        let unserved = |message: &str| Err(Error::new(ErrorKind::Unsupported, message));
        let Some(spec) = pipeline.plan.spec else { return unserved("the JPEG engines need images of a fixed size") };
        if pipeline.plan.is_image.iter().filter(|&&is_image| is_image).count() != 1 || spec.channels != 3 {
            return unserved("the JPEG engines serve samples with one image, in colour");
        }
        let options = EngineOptions {
            folders: folders.to_vec(),
            output: (spec.height as u32, spec.width as u32),
            rows_held_max: rows_held_max(pipeline),
            exif: pipeline.dataset.options().decode.exif,
            ..EngineOptions::default()
        };
        let rules = options.rules();
        let (filler, outlet) = sub_batches(WAITING, options.sub_batch);
        let (want, wanted) = channel::bounded(SERVERS);
        let settler = Arc::new(Settler::new(Arc::clone(pipeline), output.clone()));
        let state = Arc::new(EngineState::default());
        let opener = || Opener {
            gpu: gpu.clone(),
            options: options.clone(),
            show: Arc::clone(show),
            state: Arc::clone(&state),
            must: lanes.mode() == RouteMode::Engine,
            lanes: Arc::clone(&lanes),
            wanted: wanted.clone(),
        };
        for n in 0..SERVERS {
            let (opener, outlet, cpu, output) = (opener(), outlet.clone(), cpu.clone(), output.clone());
            let (pipeline, settler, over) = (Arc::clone(pipeline), Arc::clone(&settler), over.clone());
            let work = move || {
                let outcome = super::worker::unpanicked(|| opener.serve(pipeline, settler, cpu, &outlet));
                if let Err(error) = outcome.flatten() {
                    let _ = output.send(Output::Failed(error));
                }
                drop(over);
            };
            let spawned = std::thread::Builder::new().name(format!("brimful-engine-{n}")).spawn(work);
            spawned.map_err(|error| Error::io("cannot start a thread of the JPEG engines", error))?;
        }
        Ok(Self { lanes, rules, settler, filler, want, state })
    }

    /// Takes the sample if it is the engines' turn and its image is of their kind; otherwise gives it back. It is their
    /// turn also where the threads have no room and the consumer waits.
    pub(crate) fn take(&self, job: Job, is_cpu_full: bool, pipeline: &Pipeline) -> Option<Job> {
        let Ok(sample) = &job.sample else { return Some(job) };
        let image = pipeline.plan.is_image.iter().position(|&is_image| is_image);
        let Some(field) = image.and_then(|column| sample.fields.get(column)?.as_ref()) else { return Some(job) };
        let bytes = field.bytes.clone();
        let mut prepared = None;
        let lane = self.lanes.route(is_cpu_full, || {
            prepared = self.prepare(&job, &bytes, pipeline.dataset.options().decode.pixels_max);
            if prepared.is_none() {
                pipeline.counters.engine_unsupported();
            }
            prepared.is_some()
        });
        let (Lane::Engine, Some((info, geometry))) = (lane, prepared) else { return Some(job) };
        if !self.state.is_open.load(Ordering::Acquire) {
            // Opening takes a moment, in which the threads do what they can; where only the engines will do it is
            // waited for.
            if !self.state.is_wanted.swap(true, Ordering::Relaxed) {
                for _ in 0..SERVERS {
                    let _ = self.want.try_send(());
                }
            }
            if self.lanes.mode() != RouteMode::Engine {
                return Some(job);
            }
        }
        let routed = Routed { job, bytes, info, geometry };
        // Where only the engines will do they are waited for; else the threads go on while the engines are behind.
        let may_wait = self.lanes.mode() == RouteMode::Engine;
        let is_full =
            |images: &[Routed]| self.rules.is_full(images.iter().map(|routed| (&routed.info, routed.bytes.len())));
        match self.filler.put(routed, may_wait, is_full) {
            Ok(waited) => {
                pipeline.counters.queued(waited);
                None
            }
            Err(routed) => Some(routed.job),
        }
    }

    fn prepare(&self, job: &Job, bytes: &[u8], pixels_max: u64) -> Option<(ImageInfo, Geometry)> {
        let info = ImageInfo::of_jpeg_header(bytes).ok()?;
        // A file that the threads would refuse is theirs to refuse.
        if u64::from(info.width) * u64::from(info.height) > pixels_max {
            return None;
        }
        let geometry = self.settler.geometry(job, 0, &info).ok()?;
        self.rules.supports(&info, &geometry, bytes.len()).ok()?;
        Some((info, geometry))
    }
}

/// Buffers of rows that the batches in flight may hold, each of one sub-batch whose rows go to batches near each other.
fn rows_held_max(pipeline: &Pipeline) -> usize {
    let options = EngineOptions::default();
    let rows = pipeline.batch_size_max.saturating_mul(pipeline.prefetch + 3);
    options.rows_held_max.max(2 * rows / options.sub_batch + options.states)
}

/// Opens the engines once they are wanted.
struct Opener {
    gpu: Gpu,
    options: EngineOptions,
    show: Arc<EngineShow>,
    state: Arc<EngineState>,
    wanted: Receiver<()>,
    lanes: Arc<Lanes>,
    /// Whether a loader without engines is of no use to its user.
    must: bool,
}

impl Opener {
    /// Serves the engines until the run ends.
    ///
    /// # Errors
    /// When the GPU fails, or when there are no engines and there must be.
    fn serve(
        self,
        pipeline: Arc<Pipeline>,
        settler: Arc<Settler>,
        cpu: Sender<Job>,
        from: &Outlet<Routed>,
    ) -> Result<()> {
        // The readers may hang in storage while the run is stopped: they are not waited for.
        while let Err(error) = self.wanted.recv_timeout(LOOK) {
            if error == RecvTimeoutError::Disconnected || pipeline.is_stopped() {
                return Ok(());
            }
        }
        let engine = match self.open() {
            Ok(engine) => engine,
            Err(error) => {
                let hint = error.hint().map_or_else(String::new, |hint| format!(" ({hint})"));
                self.show.note(Err(format!("{error}{hint}")));
                self.lanes.close();
                tracing::debug!(%error, "the JPEG engines are not used");
                // Nobody sends images to engines that are not open, but where only the engines will do.
                return if self.must { Err(error) } else { Ok(()) };
            }
        };
        self.show.note(Ok(engine.report().clone()));
        self.state.is_open.store(true, Ordering::Release);
        let server = Server {
            pipeline,
            engine,
            settler,
            cpu,
            held: HashMap::new(),
            next_ticket: 0,
            counted: EngineStats::default(),
            bytes: 0,
            show: Arc::clone(&self.show),
        };
        server.run(from)
    }

    fn open(&self) -> Result<JpegEngine> {
        self.gpu.enter()?;
        JpegEngine::open(&self.gpu, Arc::new(Kernels::load(self.gpu.context())?), self.options.clone())
    }
}

/// The thread's state.
struct Server {
    pipeline: Arc<Pipeline>,
    engine: JpegEngine,
    settler: Arc<Settler>,
    cpu: Sender<Job>,
    held: HashMap<usize, (Job, Vec<RowValue>)>,
    next_ticket: usize,
    /// What was told to the loader's counters so far.
    counted: EngineStats,
    /// The same of GPU memory.
    bytes: u64,
    show: Arc<EngineShow>,
}

impl Server {
    /// Works until nobody sends and nothing is in work, or the run is stopped.
    ///
    /// # Errors
    /// When the GPU fails.
    fn run(mut self, from: &Outlet<Routed>) -> Result<()> {
        loop {
            if self.pipeline.is_stopped() {
                return Ok(());
            }
            for (image, outcome) in self.engine.try_collect() {
                self.finish(image, outcome);
            }
            self.count();
            let patience = if self.engine.in_flight() > 0 { LOOK_AT_WORK } else { LOOK };
            match from.next(patience) {
                Some(routed) => self.submit(routed),
                None => {
                    while self.engine.in_flight() > 0 && !self.pipeline.is_stopped() {
                        for (image, outcome) in self.engine.collect() {
                            self.finish(image, outcome);
                        }
                    }
                    self.count();
                    return Ok(());
                }
            }
        }
    }

    /// Tells the loader's counters what happened since the last look.
    fn count(&mut self) {
        let now = self.engine.stats();
        let before = std::mem::replace(&mut self.counted, now);
        let refused = (now.refused + now.failed) - (before.refused + before.failed);
        let images = now.written - before.written + refused;
        // Each thread keeps the engines busy by itself; together they are busy no longer than one of them.
        let busy = now.busy.saturating_sub(before.busy) / SERVERS as u32;
        self.pipeline.counters.engine_did(images, refused, now.unwritten - before.unwritten, busy);
        self.tell_bytes(self.engine.memory_bytes() as u64);
    }

    /// Tells how much GPU memory this server's engines take now.
    fn tell_bytes(&mut self, now: u64) {
        let before = std::mem::replace(&mut self.bytes, now);
        // Wraps where it shrinks, and the sum of all servers comes out right.
        self.show.bytes.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }

    /// Hands a sub-batch to the engines, once one of their places is free.
    fn submit(&mut self, routed: Vec<Routed>) {
        let images: Vec<EncodedImage> = routed.into_iter().filter_map(|routed| self.hold(routed)).collect();
        if images.is_empty() {
            return;
        }
        if !self.engine.can_submit() {
            for (image, outcome) in self.engine.collect() {
                self.finish(image, outcome);
            }
        }
        if let Err(images) = self.engine.submit(images) {
            for image in images {
                if let Some((job, _)) = self.held.remove(&image.ticket) {
                    self.to_threads(job);
                }
            }
        }
    }

    /// Reads a sample's small fields and keeps them until its image comes back; `None` where they are bad.
    fn hold(&mut self, routed: Routed) -> Option<EncodedImage> {
        let Routed { job, bytes, info, geometry } = routed;
        let Ok(sample) = &job.sample else {
            self.to_threads(job);
            return None;
        };
        match self.settler.values_of(sample) {
            Ok(values) => {
                let ticket = self.next_ticket;
                self.next_ticket += 1;
                self.held.insert(ticket, (job, values));
                Some(EncodedImage { bytes, info, geometry, ticket })
            }
            Err(error) => {
                if let Some(other) = self.settler.conclude(job, Vec::new(), Some(error)) {
                    self.to_threads(other);
                }
                None
            }
        }
    }

    fn finish(&mut self, image: EncodedImage, outcome: Outcome) {
        let Some((job, values)) = self.held.remove(&image.ticket) else { return };
        match outcome {
            Outcome::Written(row) => {
                let pixels = DeviceRow { address: row.address(), owner: Arc::new(row) };
                if let Some(other) = self.settler.conclude_on_device(job, values, pixels) {
                    self.to_threads(other);
                }
            }
            Outcome::Refused(reason) => {
                tracing::debug!(%reason, "an image goes from the JPEG engines to the decode threads");
                self.to_threads(job);
            }
        }
    }

    fn to_threads(&self, job: Job) {
        // Fails only when the run ends.
        let _ = self.cpu.send(job);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tell_bytes(0);
    }
}
