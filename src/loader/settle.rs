//! How a sample ends: its small fields read, its row settled, or, where something of it is bad, what the error policy
//! says. Threads of every kind end their samples here; none of them decodes an image here.

use std::sync::Arc;
use std::time::Instant;

use crossbeam::channel::Sender;

use super::assembly::{Assembly, Row};
use super::dataset::{RawField, RawSample, missing};
use super::field::Source;
use super::peers::Peers;
use super::pipeline::Pipeline;
use super::planner::Output;
use super::policy::OnError;
use super::stats::Stage;
use crate::batch::RowValue;
use crate::decode::ImageInfo;
use crate::device::DeviceRow;
use crate::sample::{Key, Value};
use crate::transform::{Geometry, SampleRng};
use crate::{Error, ErrorKind, Result};

/// A sample on its way into a row.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) assembly: Arc<Assembly>,
    pub(crate) row: usize,
    pub(crate) position: usize,
    pub(crate) peers: Peers,
    /// How often the sample came before in this epoch.
    pub(crate) occurrence: u32,
    pub(crate) sample: Result<RawSample>,
    /// How many samples were tried for this row before.
    pub(crate) attempt: u32,
}

/// After this many bad samples in a row's place the data set is too damaged to replace from.
const ATTEMPTS_MAX: u32 = 16;

/// Another one, for a sample that comes more than once in an epoch.
const OCCURRENCE_STEP: u64 = 0xD1B5_4A32_D192_ED03;

/// An odd number without pattern in its bits (2^64 over the golden ratio): tells random streams of one seed apart.
const STREAM_STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Tells the stream for whoever goes on with rows apart from those of images: another number without pattern.
const OUTSIDE_STEP: u64 = 0xA076_1D64_78BD_642F;

/// Ends samples for one thread.
#[derive(Debug)]
pub(crate) struct Settler {
    pipeline: Arc<Pipeline>,
    output: Sender<Output>,
}

impl Settler {
    pub(crate) fn new(pipeline: Arc<Pipeline>, output: Sender<Output>) -> Self {
        Self { pipeline, output }
    }

    /// The fields of a sample that are no images, in column order.
    ///
    /// # Errors
    /// That of the first bad field.
    pub(crate) fn values_of(&self, sample: &RawSample) -> Result<Vec<RowValue>> {
        let started = Instant::now();
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
                (_, None) => return Err(missing(spec, std::iter::empty())),
            };
            values.push(value);
        }
        self.pipeline.counters.busy(Stage::Batch, started.elapsed(), 0);
        Ok(values)
    }

    /// What becomes of the `nth` image of a sample: a function of (seed, epoch, sample), of how often the sample came
    /// before in that epoch, and of the image's size alone.
    ///
    /// # Errors
    /// When the transform cannot take an image of that size.
    pub(crate) fn geometry(&self, job: &Job, nth: usize, info: &ImageInfo) -> Result<Geometry> {
        let ordinal = job.sample.as_ref().map_or(0, |sample| sample.ordinal);
        // Each image of a sample has a stream of its own; the first one's is the sample's.
        let seed = self.pipeline.seed ^ (nth as u64).wrapping_mul(STREAM_STEP) ^ repeat_of(job);
        let mut rng = SampleRng::new(seed, job.assembly.epoch, ordinal);
        self.pipeline.dataset.options().transform.geometry(info.width, info.height, &mut rng)
    }

    /// What randomness outside the loader may derive from for this sample: independent of what geometry draws.
    fn draw(&self, job: &Job) -> u64 {
        let ordinal = job.sample.as_ref().map_or(0, |sample| sample.ordinal);
        let seed = self.pipeline.seed ^ OUTSIDE_STEP ^ repeat_of(job);
        SampleRng::new(seed, job.assembly.epoch, ordinal).next_u64()
    }

    /// Ends a sample whose images are all done, or one of whose parts is bad; gives the sample that is to be tried in
    /// its stead, if there is one.
    #[must_use]
    pub(crate) fn conclude(&self, job: Job, values: Vec<RowValue>, error: Option<Error>) -> Option<Job> {
        self.conclude_with(job, values, None, error)
    }

    /// The same for a sample whose image is on the GPU already.
    #[must_use]
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only a GPU has such rows"))]
    pub(crate) fn conclude_on_device(&self, job: Job, values: Vec<RowValue>, pixels: DeviceRow) -> Option<Job> {
        self.conclude_with(job, values, Some(pixels), None)
    }

    fn conclude_with(
        &self,
        job: Job,
        values: Vec<RowValue>,
        on_device: Option<DeviceRow>,
        error: Option<Error>,
    ) -> Option<Job> {
        // Pages that vanished under the map read as zeros: whatever came of them is not the sample.
        let error = match &job.sample {
            Ok(sample) if sample.shard.as_ref().is_some_and(|shard| shard.has_faulted()) => {
                let error = Error::new(ErrorKind::ShardChanged, "the shard was truncated while it was being read");
                Some(error.at_key(&sample.key).in_shard(Arc::clone(&sample.url)))
            }
            _ => error,
        };
        if let Some(error) = error {
            return self.failed(job, error);
        }
        self.pipeline.counters.busy(Stage::Batch, std::time::Duration::ZERO, 1);
        let is_replacement = job.attempt > 0;
        let key = job.sample.as_ref().map_or_else(|_| Key::new(Vec::new()), |sample| sample.key.clone());
        let draw = self.draw(&job);
        self.settle(job, Row::Good { key, draw, values, is_replacement, on_device });
        None
    }

    /// Ends a sample that could not be read; otherwise as [`conclude`](Self::conclude).
    #[must_use]
    pub(crate) fn unread(&self, mut job: Job) -> Option<Job> {
        let gone = || Err(Error::new(ErrorKind::Cancelled, "the sample was told already"));
        let Err(error) = std::mem::replace(&mut job.sample, gone()) else { return None };
        self.pipeline.counters.failure(Stage::Read);
        self.failed(job, error)
    }

    fn failed(&self, job: Job, error: Error) -> Option<Job> {
        let pipeline = &self.pipeline;
        // Of a stream or a given order the length is unknown: a share counts from its first thousand samples on.
        let samples = job.peers.samples().unwrap_or_else(|| (job.position as u64 + 1).max(1000));
        let cause = error.to_string();
        if let Err(error) = pipeline.quarantine.admit(&pipeline.tally, error, job.assembly.epoch, job.position, samples)
        {
            self.settle(job, Row::Failed(error));
            return None;
        }
        if pipeline.quarantine.on_error() != OnError::Replace {
            self.settle(job, Row::Skipped);
            return None;
        }
        match replacement(pipeline, &job).filter(|_| job.attempt < ATTEMPTS_MAX) {
            Some(other) => {
                let sample = pipeline.dataset.read(other, |_| false);
                Some(Job { sample, attempt: job.attempt + 1, ..job })
            }
            None => {
                let message = format!("{} samples tried for one row were all bad; the last one: {cause}", job.attempt);
                self.settle(job, Row::Failed(Error::new(ErrorKind::TooManyErrors, message)));
                None
            }
        }
    }

    fn settle(&self, job: Job, outcome: Row) {
        let ordinal = job.sample.as_ref().map_or(u64::MAX, |sample| sample.ordinal);
        job.assembly.settle(job.row, ordinal, outcome);
        let started = Instant::now();
        if let Some(finished) = Assembly::release(job.assembly, &self.pipeline.small) {
            self.pipeline.counters.busy(Stage::Batch, started.elapsed(), 0);
            let _ = self.output.send(Output::Batch(finished));
        }
    }
}

/// What tells the occurrences of one sample in an epoch apart; 0 for the first.
fn repeat_of(job: &Job) -> u64 {
    u64::from(job.occurrence).wrapping_mul(OCCURRENCE_STEP)
}

/// The bytes of a field for a value that outlives the sample: views of a map are copied, so that pages that vanish later
/// cannot change what was checked, and no batch keeps a shard mapped.
fn kept(bytes: &bytes::Bytes, sample: &RawSample) -> bytes::Bytes {
    if sample.shard.is_some() { bytes::Bytes::copy_from_slice(bytes) } else { bytes.clone() }
}

/// Names shard, key, field and offset of the field that an error is about.
pub(crate) fn placed(error: Error, sample: &RawSample, field: &RawField) -> Error {
    error
        .in_field(field.extension.to_string())
        .at_key(&sample.key)
        .at_offset(field.offset)
        .in_shard(Arc::clone(&sample.url))
}

/// Another sample in the place of a bad one: a function of (seed, epoch, bad sample, attempt) alone, so that ranks, batch
/// size and a resume change nothing. Where the caller gave the order, it is one of those given lately: others may not be
/// meant to be seen.
fn replacement(pipeline: &Pipeline, job: &Job) -> Option<usize> {
    let bad = job.peers.number(job.position, job.row)?;
    let seed = pipeline.seed.wrapping_add(u64::from(job.attempt) + 1).wrapping_mul(STREAM_STEP);
    let mut rng = SampleRng::new(seed, job.assembly.epoch, bad as u64);
    job.peers.stand_in(pipeline.dataset.len().unwrap_or_default(), &mut rng)
}
