//! One decode thread's work: takes samples, reads their small fields, sends images through decoder and resampler into
//! their rows. It pulls; when it has nothing it waits; it knows nothing of epochs or order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crossbeam::channel::{Receiver, Sender, TryRecvError};

use super::assembly::ImageColumn;
use super::pipeline::Pipeline;
use super::planner::Output;
use super::settle::{Job, Settler, placed};
use super::stats::Stage;
use crate::batch::{BatchSpec, HostTensor, RowValue};
use crate::decode::{Decoder, ImageDecoder, ImageInfo, Jobs, Pixels, Planes, Refusal, Region, Ticket};
use crate::device::RowWriter;
use crate::transform::{Geometry, Resampler};
use crate::{Error, ErrorKind, Result};

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
    settler: Settler,
    resampler: Resampler,
    writer: Option<RowWriter>,
    /// One image, `[H, W, C]` u8, between resampler and row.
    scratch: Vec<u8>,
    held: Vec<Option<Held>>,
    ready: VecDeque<Ticket>,
    tickets: Vec<Option<Image>>,
    busy: usize,
    /// Images that the decoder holds, and since when it has been at work on them.
    decoding: usize,
    since: Instant,
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
}

impl Worker {
    pub(crate) fn new(pipeline: Arc<Pipeline>, intake: Intake, output: Sender<Output>) -> Result<Self> {
        let writer = match &pipeline.plan.spec {
            Some(spec) => Some(pipeline.writer(spec.height, spec.width)?),
            None => None,
        };
        Ok(Self {
            settler: Settler::new(Arc::clone(&pipeline), output),
            pipeline,
            intake,
            resampler: Resampler::new(),
            writer,
            scratch: Vec::new(),
            held: Vec::new(),
            ready: VecDeque::new(),
            tickets: Vec::new(),
            busy: 0,
            decoding: 0,
            since: Instant::now(),
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
        let mut next = Some(job);
        while let Some(job) = next.take() {
            let Ok(sample) = &job.sample else {
                next = self.settler.unread(job);
                continue;
            };
            let (values, error) = match self.settler.values_of(sample) {
                Ok(values) => (values, None),
                Err(error) => (Vec::new(), Some(error)),
            };
            let specs = self.pipeline.dataset.fields();
            let images: Vec<usize> = (0..specs.len()).filter(|&field| specs[field].is_image()).collect();
            if error.is_some() || images.is_empty() {
                next = self.settler.conclude(job, values, error);
                continue;
            }
            self.busy += 1;
            let held = free_place(&mut self.held, Held { job, values, images_left: images.len(), error: None });
            for (nth, field) in images.into_iter().enumerate() {
                let image = Image { held, field, nth, geometry: None };
                let ticket = free_place(&mut self.tickets, image);
                self.ready.push_back(ticket);
            }
        }
    }

    /// Resamples one decoded image into its row.
    fn write(&mut self, image: &Image, decoded: Decoded<'_>) -> Result<()> {
        let Some(held) = self.held.get(image.held).and_then(Option::as_ref) else { return Ok(()) };
        let geometry =
            image.geometry.as_ref().ok_or_else(|| Error::new(ErrorKind::Decode, "an image without geometry"))?;
        let (height, width) = geometry.output_size();
        let bytes = height as usize * width as usize * usize::from(decoded.channels());
        match (held.job.assembly.images(image.nth), &self.writer) {
            (ImageColumn::Fixed(slots), Some(writer)) => {
                let mut row = slots.claim(held.job.row).ok_or_else(taken)?;
                if writer.is_plain() {
                    return decoded.resample(&mut self.resampler, geometry, &mut row);
                }
                self.scratch.resize(bytes, 0);
                decoded.resample(&mut self.resampler, geometry, &mut self.scratch)?;
                writer.write(&self.scratch, &mut row)
            }
            (ImageColumn::Loose(_), _) => {
                self.scratch.resize(bytes, 0);
                decoded.resample(&mut self.resampler, geometry, &mut self.scratch)?;
                let tensor = loose(&self.pipeline, &self.scratch, height as usize, width as usize)?;
                let Held { job, .. } = held;
                let is_put = job.assembly.put_loose(image.nth, job.row, tensor, &self.pipeline.in_flight);
                is_put.then_some(()).ok_or_else(taken)
            }
            _ => Err(taken()),
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
            let Some(image) = self.tickets.get(ticket).and_then(Option::as_ref) else { continue };
            if self.decoding == 0 {
                self.since = Instant::now();
            }
            self.decoding += 1;
            let held = self.held.get(image.held).and_then(Option::as_ref);
            let sample = held.and_then(|held| held.job.sample.as_ref().ok());
            if let Some(Some(field)) = sample.map(|sample| sample.fields.get(image.field).and_then(Option::as_ref)) {
                let bytes = field.bytes.clone();
                self.pipeline.ranges.begin(Stage::Decode);
                return Some((ticket, bytes));
            }
            self.pipeline.ranges.begin(Stage::Decode);
            self.done(ticket, Err(Error::new(ErrorKind::MissingField, "the image field has no bytes")));
        }
    }

    fn region(&mut self, ticket: Ticket, info: &ImageInfo) -> Result<Region> {
        let unknown = || Error::new(ErrorKind::Decode, "a decoder asked for an image it was not given");
        let image = self.tickets.get_mut(ticket).and_then(Option::as_mut).ok_or_else(unknown)?;
        let held = self.held.get(image.held).and_then(Option::as_ref).ok_or_else(unknown)?;
        let geometry = self.settler.geometry(&held.job, image.nth, info)?;
        let source = geometry.source;
        image.geometry = Some(geometry);
        Ok(source)
    }

    fn fell_back(&mut self, _: Ticket, refusal: Refusal) {
        self.pipeline.counters.fell_back(refusal);
    }

    fn takes_planes(&self, ticket: Ticket) -> bool {
        let image = self.tickets.get(ticket).and_then(Option::as_ref);
        image.and_then(|image| image.geometry.as_ref()).is_some_and(Geometry::takes_planes)
    }

    fn done(&mut self, ticket: Ticket, result: Result<Pixels<'_>>) {
        self.finish(ticket, result.map(Decoded::Pixels));
    }

    fn done_planes(&mut self, ticket: Ticket, planes: Planes<'_>) {
        self.finish(ticket, Ok(Decoded::Planes(planes)));
    }
}

/// What a decoder hands over.
enum Decoded<'a> {
    Pixels(Pixels<'a>),
    Planes(Planes<'a>),
}

impl Decoded<'_> {
    fn channels(&self) -> u8 {
        match self {
            Self::Pixels(pixels) => pixels.channels,
            Self::Planes(_) => 3,
        }
    }

    fn resample(&self, resampler: &mut Resampler, geometry: &Geometry, out: &mut [u8]) -> Result<()> {
        match self {
            Self::Pixels(pixels) => resampler.apply(pixels, geometry, out),
            Self::Planes(planes) => resampler.apply_planes(planes, geometry, out),
        }
    }
}

impl Worker {
    /// The end of an image: it goes into its row, and its sample may be complete.
    fn finish(&mut self, ticket: Ticket, result: Result<Decoded<'_>>) {
        let Some(image) = self.tickets.get_mut(ticket).and_then(Option::take) else { return };
        self.pipeline.ranges.end();
        let decoded = Instant::now();
        let counters = Arc::clone(&self.pipeline.counters);
        // Of several images in work each gets the time since the last one was done.
        counters.busy(Stage::Decode, decoded - self.since, 1);
        self.decoding -= 1;
        let pipeline = Arc::clone(&self.pipeline);
        let written = result.inspect_err(|_| counters.failure(Stage::Decode)).and_then(|pixels| {
            let _range = pipeline.ranges.open(Stage::Transform);
            let written = self.write(&image, pixels).inspect_err(|_| counters.failure(Stage::Transform));
            counters.busy(Stage::Transform, decoded.elapsed(), 1);
            written
        });
        self.since = Instant::now();
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
            let Held { job, values, error, .. } = held;
            if let Some(other) = self.settler.conclude(job, values, error) {
                self.begin(other);
            }
        }
    }
}

/// Runs `work`; a panic in it becomes an error, since one bad sample must not end a process that trains for days.
pub(crate) fn unpanicked<T>(work: impl FnOnce() -> T) -> Result<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).map_err(|_| {
        let error = Error::new(ErrorKind::Cancelled, "a thread of the loader failed inside");
        error.with_hint("please report it, with the message that it printed")
    })
}

fn taken() -> Error {
    Error::new(ErrorKind::Decode, "the row of this image is in other hands")
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
