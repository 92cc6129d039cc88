//! One decode thread's work: takes samples, reads their small fields, sends images through decoder and resampler into
//! their rows. It pulls; when it has nothing it waits; it knows nothing of epochs or order.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use crossbeam::channel::{Receiver, Sender, TryRecvError};

use super::assembly::{Assembly, ImageColumn, Row};
use super::dataset::{RawField, RawSample};
use super::field::Source;
use super::pipeline::Pipeline;
use super::planner::Output;
use super::policy::OnError;
use super::stats::Stage;
use crate::batch::{BatchSpec, HostTensor, RowValue};
use crate::decode::{Decoder, ImageDecoder, ImageInfo, Jobs, Pixels, Region, Ticket};
use crate::device::RowWriter;
use crate::sample::{EpochPlan, Value};
use crate::transform::{Geometry, Resampler, SampleRng};
use crate::{Error, ErrorKind, Result};

/// A sample on its way into a row.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) assembly: Arc<Assembly>,
    pub(crate) row: usize,
    pub(crate) position: usize,
    pub(crate) plan: Option<Arc<EpochPlan>>,
    pub(crate) sample: Result<RawSample>,
    /// How many samples were tried for this row before.
    pub(crate) attempt: u32,
}

/// After this many bad samples in a row's place the data set is too damaged to replace from.
const ATTEMPTS_MAX: u32 = 16;

/// An odd number without pattern in its bits (2^64 over the golden ratio): tells random streams of one seed apart.
const STREAM_STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Where a worker's jobs come from.
#[derive(Debug)]
pub(crate) enum Intake {
    /// The queue that the readers fill, and what is disconnected when the run is stopped: a reader that hangs holds the
    /// queue open.
    Queue { jobs: Receiver<Job>, stopped: Receiver<()> },
    /// A list known beforehand: single samples, without threads.
    List(VecDeque<Job>),
}

/// A decode thread's state; it implements [`Jobs`], so a decoder pulls from it.
#[derive(Debug)]
pub(crate) struct Worker {
    pipeline: Arc<Pipeline>,
    intake: Intake,
    output: Sender<Output>,
    resampler: Resampler,
    writer: Option<RowWriter>,
    /// One image, `[H, W, C]` u8, between resampler and row.
    scratch: Vec<u8>,
    held: Vec<Option<Held>>,
    ready: VecDeque<Ticket>,
    tickets: Vec<Option<Image>>,
    busy: usize,
}

/// A sample some of whose images are not done.
#[derive(Debug)]
struct Held {
    job: Job,
    values: Vec<RowValue>,
    images_left: usize,
    error: Option<Error>,
}

/// One image of a held sample.
#[derive(Debug)]
struct Image {
    held: usize,
    field: usize,
    nth: usize,
    geometry: Option<Geometry>,
    since: Instant,
}

impl Worker {
    pub(crate) fn new(pipeline: Arc<Pipeline>, intake: Intake, output: Sender<Output>) -> Result<Self> {
        let writer = match &pipeline.plan.spec {
            Some(spec) => Some(pipeline.writer(spec.height, spec.width)?),
            None => None,
        };
        Ok(Self {
            pipeline,
            intake,
            output,
            resampler: Resampler::new(),
            writer,
            scratch: Vec::new(),
            held: Vec::new(),
            ready: VecDeque::new(),
            tickets: Vec::new(),
            busy: 0,
        })
    }

    /// Works until the jobs end or the run is stopped.
    ///
    /// # Errors
    /// When no decoder can be made, and when something in here panicked: the rows in work are lost then, so the run
    /// must end.
    pub(crate) fn run(mut self) -> Result<()> {
        let mut decoder = ImageDecoder::new(self.pipeline.dataset.options().decode.clone())?;
        unpanicked(|| decoder.run(&mut self))
    }

    fn take_job(&mut self) -> Option<Job> {
        match &mut self.intake {
            Intake::List(jobs) => jobs.pop_front(),
            Intake::Queue { jobs, stopped } => match jobs.try_recv() {
                Ok(job) => Some(job),
                Err(TryRecvError::Empty) if self.busy == 0 => {
                    let waiting = Instant::now();
                    let job = crossbeam::select! {
                        recv(jobs) -> job => job.ok(),
                        recv(stopped) -> _ => None,
                    };
                    self.pipeline.counters.starved(waiting.elapsed());
                    job
                }
                Err(_) => None,
            },
        }
    }

    /// Reads a sample's small fields and makes its images ready to be pulled.
    fn begin(&mut self, job: Job) {
        let started = Instant::now();
        let sample = match &job.sample {
            Ok(sample) => sample,
            Err(_) => return self.settle_unread(job),
        };
        let values = self.values_of(sample);
        self.pipeline.counters.busy(Stage::Batch, started.elapsed(), 0);
        let specs = self.pipeline.dataset.fields();
        let images: Vec<usize> = (0..specs.len()).filter(|&field| specs[field].is_image()).collect();
        let (values, error) = match values {
            Ok(values) => (values, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        if error.is_some() || images.is_empty() {
            return self.conclude(Held { job, values, images_left: 0, error });
        }
        self.busy += 1;
        let held = free_place(&mut self.held, Held { job, values, images_left: images.len(), error: None });
        for (nth, field) in images.into_iter().enumerate() {
            let image = Image { held, field, nth, geometry: None, since: started };
            let ticket = free_place(&mut self.tickets, image);
            self.ready.push_back(ticket);
        }
    }

    fn settle_unread(&mut self, job: Job) {
        let Job { assembly, row, position, plan, sample, attempt } = job;
        let Err(error) = sample else { return };
        self.pipeline.counters.failure(Stage::Read);
        self.failed(assembly, row, position, plan, attempt, u64::MAX, error);
    }

    fn values_of(&self, sample: &RawSample) -> Result<Vec<RowValue>> {
        let mut values = Vec::with_capacity(sample.fields.len());
        for (spec, field) in self.pipeline.dataset.fields().iter().zip(&sample.fields) {
            let value = match (&spec.source, field) {
                (Source::Image(_), _) => continue,
                (Source::Key, _) => Value::Name(sample.key.to_bytes()),
                (Source::Url, _) => Value::Name(self.pipeline.dataset.path_bytes(sample.shard_number)),
                (Source::Bytes(_), Some(field)) => Value::Bytes(kept(&field.bytes, sample)),
                (Source::Value(selector), Some(field)) => {
                    Value::read(&field.extension, &kept(&field.bytes, sample), selector.path(&field.extension))
                        .map_err(|error| placed(error, sample, field))?
                }
                (_, None) => return Err(super::dataset::missing(spec, std::iter::empty())),
            };
            values.push(value);
        }
        Ok(values)
    }

    /// Resamples one decoded image into its row.
    fn write(&mut self, image: &Image, pixels: &Pixels<'_>) -> Result<()> {
        let Some(held) = self.held.get(image.held).and_then(Option::as_ref) else { return Ok(()) };
        let geometry =
            image.geometry.as_ref().ok_or_else(|| Error::new(ErrorKind::Decode, "an image without geometry"))?;
        let (height, width) = geometry.output_size();
        let bytes = height as usize * width as usize * usize::from(pixels.channels);
        match (held.job.assembly.images(image.nth), &self.writer) {
            (ImageColumn::Fixed(slots), Some(writer)) => {
                let mut row = slots.claim(held.job.row).ok_or_else(taken)?;
                if writer.is_plain() {
                    return self.resampler.apply(pixels, geometry, &mut row);
                }
                self.scratch.resize(bytes, 0);
                self.resampler.apply(pixels, geometry, &mut self.scratch)?;
                writer.write(&self.scratch, &mut row)
            }
            (ImageColumn::Loose(rows), _) => {
                self.scratch.resize(bytes, 0);
                self.resampler.apply(pixels, geometry, &mut self.scratch)?;
                let tensor = loose(&self.pipeline, &self.scratch, height as usize, width as usize)?;
                let place = rows.get(held.job.row).ok_or_else(taken)?;
                *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(tensor);
                Ok(())
            }
            _ => Err(taken()),
        }
    }

    /// All images of a sample are done, or one of its fields is bad.
    fn conclude(&mut self, held: Held) {
        let Held { job, values, error, .. } = held;
        let Job { assembly, row, position, plan, sample, attempt } = job;
        let ordinal = sample.as_ref().map_or(u64::MAX, |sample| sample.ordinal);
        // Pages that vanished under the map read as zeros: whatever came of them is not the sample.
        let faulted =
            sample.as_ref().ok().and_then(|sample| sample.shard.as_ref()).is_some_and(|shard| shard.has_faulted());
        let error = match (&sample, faulted) {
            (Ok(sample), true) => {
                let error = Error::new(ErrorKind::ShardChanged, "the shard was truncated while it was being read");
                Some(error.at_key(&sample.key).in_shard(Arc::clone(&sample.url)))
            }
            _ => error,
        };
        match error {
            None => {
                self.pipeline.counters.busy(Stage::Batch, std::time::Duration::ZERO, 1);
                self.settle(assembly, row, ordinal, Row::Good { values, is_replacement: attempt > 0 });
            }
            Some(error) => self.failed(assembly, row, position, plan, attempt, ordinal, error),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of a job that outlive its bytes")]
    fn failed(
        &mut self,
        assembly: Arc<Assembly>,
        row: usize,
        position: usize,
        plan: Option<Arc<EpochPlan>>,
        attempt: u32,
        ordinal: u64,
        error: Error,
    ) {
        let pipeline = Arc::clone(&self.pipeline);
        // Of a stream the length is unknown: a share counts from its first thousand samples on.
        let samples = plan.as_ref().map_or((position as u64 + 1).max(1000), |plan| plan.len() as u64);
        let cause = error.to_string();
        if let Err(error) = pipeline.quarantine.admit(&pipeline.tally, error, assembly.epoch, position, samples) {
            return self.settle(assembly, row, ordinal, Row::Failed(error));
        }
        match (pipeline.quarantine.on_error(), plan) {
            (OnError::Replace, Some(plan)) if attempt < ATTEMPTS_MAX => {
                let other = replacement(&pipeline, &plan, assembly.epoch, position, attempt);
                let sample = pipeline.dataset.read(other, |_| false);
                self.begin(Job { assembly, row, position, plan: Some(plan), sample, attempt: attempt + 1 });
            }
            (OnError::Replace, _) => {
                let message = format!("{ATTEMPTS_MAX} samples tried for one row were all bad; the last one: {cause}");
                self.settle(assembly, row, ordinal, Row::Failed(Error::new(ErrorKind::TooManyErrors, message)));
            }
            _ => self.settle(assembly, row, ordinal, Row::Skipped),
        }
    }

    fn settle(&mut self, assembly: Arc<Assembly>, row: usize, ordinal: u64, outcome: Row) {
        assembly.settle(row, ordinal, outcome);
        let started = Instant::now();
        if let Some(finished) = Assembly::release(assembly, &self.pipeline.small) {
            self.pipeline.counters.busy(Stage::Batch, started.elapsed(), 0);
            let _ = self.output.send(Output::Batch(finished));
        }
    }
}

impl Jobs for Worker {
    fn next(&mut self) -> Option<(Ticket, bytes::Bytes)> {
        loop {
            if self.pipeline.is_stopped() {
                return None;
            }
            let Some(ticket) = self.ready.pop_front() else {
                let job = self.take_job()?;
                self.begin(job);
                continue;
            };
            let Some(image) = self.tickets.get_mut(ticket).and_then(Option::as_mut) else { continue };
            image.since = Instant::now();
            let held = self.held.get(image.held).and_then(Option::as_ref);
            let sample = held.and_then(|held| held.job.sample.as_ref().ok());
            if let Some(Some(field)) = sample.map(|sample| sample.fields.get(image.field).and_then(Option::as_ref)) {
                return Some((ticket, field.bytes.clone()));
            }
            self.done(ticket, Err(Error::new(ErrorKind::MissingField, "the image field has no bytes")));
        }
    }

    fn region(&mut self, ticket: Ticket, info: &ImageInfo) -> Result<Region> {
        let unknown = || Error::new(ErrorKind::Decode, "a decoder asked for an image it was not given");
        let image = self.tickets.get_mut(ticket).and_then(Option::as_mut).ok_or_else(unknown)?;
        let held = self.held.get(image.held).and_then(Option::as_ref).ok_or_else(unknown)?;
        let ordinal = held.job.sample.as_ref().map_or(0, |sample| sample.ordinal);
        // Each image of a sample has a stream of its own; the first one's is the sample's.
        let seed = self.pipeline.seed ^ (image.nth as u64).wrapping_mul(STREAM_STEP);
        let mut rng = SampleRng::new(seed, held.job.assembly.epoch, ordinal);
        let transform = &self.pipeline.dataset.options().transform;
        let geometry = transform.geometry(info.width, info.height, &mut rng)?;
        let source = geometry.source;
        image.geometry = Some(geometry);
        Ok(source)
    }

    fn done(&mut self, ticket: Ticket, result: Result<Pixels<'_>>) {
        let Some(image) = self.tickets.get_mut(ticket).and_then(Option::take) else { return };
        let decoded = Instant::now();
        let counters = Arc::clone(&self.pipeline.counters);
        counters.busy(Stage::Decode, decoded - image.since, 1);
        let written = result.inspect_err(|_| counters.failure(Stage::Decode)).and_then(|pixels| {
            let written = self.write(&image, &pixels).inspect_err(|_| counters.failure(Stage::Transform));
            counters.busy(Stage::Transform, decoded.elapsed(), 1);
            written
        });
        let Some(held) = self.held.get_mut(image.held).and_then(Option::as_mut) else { return };
        if let (Err(error), Ok(sample)) = (written, &held.job.sample) {
            let error = match sample.fields.get(image.field).and_then(Option::as_ref) {
                Some(field) => placed(error, sample, field),
                None => error,
            };
            held.error.get_or_insert(error);
        }
        held.images_left -= 1;
        if held.images_left == 0
            && let Some(held) = self.held.get_mut(image.held).and_then(Option::take)
        {
            self.busy -= 1;
            self.conclude(held);
        }
    }
}

/// The bytes of a field for a value that outlives the sample: views of a map are copied, so that pages that vanish later
/// cannot change what was checked, and no batch keeps a shard mapped.
fn kept(bytes: &bytes::Bytes, sample: &RawSample) -> bytes::Bytes {
    if sample.shard.is_some() { bytes::Bytes::copy_from_slice(bytes) } else { bytes.clone() }
}

/// Runs `work`; a panic in it becomes an error, since one bad sample must not end a process that trains for days.
pub(crate) fn unpanicked<T>(work: impl FnOnce() -> T) -> Result<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).map_err(|_| {
        let error = Error::new(ErrorKind::Cancelled, "a thread of the loader failed inside");
        error.with_hint("please report it, with the message that it printed")
    })
}

/// Names shard, key, field and offset of the field that an error is about.
fn placed(error: Error, sample: &RawSample, field: &RawField) -> Error {
    error
        .in_field(field.extension.to_string())
        .at_key(&sample.key)
        .at_offset(field.offset)
        .in_shard(Arc::clone(&sample.url))
}

fn taken() -> Error {
    Error::new(ErrorKind::Decode, "the row of this image is in other hands")
}

/// A sample of the same epoch in the place of a bad one: a function of (seed, epoch, position, attempt) alone.
fn replacement(pipeline: &Pipeline, plan: &EpochPlan, epoch: u64, position: usize, attempt: u32) -> usize {
    let seed = pipeline.seed.wrapping_add(u64::from(attempt) + 1).wrapping_mul(STREAM_STEP);
    let mut rng = SampleRng::new(seed, epoch, position as u64);
    plan.at(rng.below(u32::try_from(plan.len()).unwrap_or(u32::MAX)) as usize)
}

/// An image of free size as a tensor of its own, `[C, H, W]` or `[H, W, C]` as the layout says.
fn loose(pipeline: &Pipeline, hwc: &[u8], height: usize, width: usize) -> Result<HostTensor> {
    let writer = pipeline.writer(height, width)?;
    let channels = hwc.len() / (height * width).max(1);
    let spec = BatchSpec { batch_size: 1, height, width, channels, dtype: pipeline.dtype, layout: pipeline.layout };
    let mut data = pipeline.small.take(spec.row_bytes()?)?;
    writer.write(hwc, &mut data)?;
    let (shape, strides) = spec.shape_and_strides(1);
    Ok(HostTensor { data, dtype: spec.dtype, shape: shape[1..].to_vec(), strides: strides[1..].to_vec() })
}

/// Puts `value` into the first free place of `places` and says which.
fn free_place<T>(places: &mut Vec<Option<T>>, value: T) -> usize {
    match places.iter().position(Option::is_none) {
        Some(place) => {
            places[place] = Some(value);
            place
        }
        None => {
            places.push(Some(value));
            places.len() - 1
        }
    }
}
