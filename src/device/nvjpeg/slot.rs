//! One sub-batch on its way through the engines: files are staged, outputs poisoned, decoded, probed, and resampled into
//! rows, all on a stream of its own. It does not choose images, and it holds one sub-batch at a time.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use cudarc::driver::{CudaEvent, CudaStream, sys};

use super::abi::{Image, status_name};
use super::engine::Shared;
use super::handle::State;
use super::refusal::Refusal;
use super::rows::{EngineRow, EngineRows};
use super::rules::{EngineRules, IMAGE_ALIGN, image_bytes, pitch_of};
use crate::batch::{HostAllocator, HostMemory};
use crate::decode::ImageInfo;
use crate::device::kernels::{CropResizeBatch, CropResizeTask, Picture};
use crate::device::pinned::PinnedAllocator;
use crate::device::stream::{DeviceMemory, Gpu, failed};
use crate::transform::Geometry;
use crate::{Error, ErrorKind, Result};

/// A compressed image on its way to the engines.
#[derive(Debug, Clone)]
pub struct EncodedImage {
    /// The whole file.
    pub bytes: Bytes,
    /// Its header.
    pub info: ImageInfo,
    /// What becomes of it.
    pub geometry: Geometry,
    /// The caller's number for it.
    pub ticket: usize,
}

/// What became of an image.
#[derive(Debug)]
pub enum Outcome {
    /// It is there, proven to have been written.
    Written(EngineRow),
    /// It must be decoded elsewhere.
    Refused(Refusal),
}

/// Bytes of the scratch between the two resampling steps, as a part of the scratch for decoded images.
const RESAMPLE_PART: usize = 2;

/// From so many probed pixels on, one that holds its pattern proves nothing.
const MANY_PROBES: u64 = 256;

/// Bytes of what kernels are told about an image, and of what they answer.
const PICTURE_BYTES: usize = size_of::<Picture>();
const TASK_BYTES: usize = size_of::<CropResizeTask>();
const COUNT_BYTES: usize = size_of::<u32>();

/// A place for one sub-batch.
///
/// Invariant: while `flight` is `None` no work on `stream` is pending, no engine writes to `decoded`, and nothing reads
/// or writes `staging` and `host_tables` but this value.
#[derive(Debug)]
pub(super) struct Slot {
    flight: Option<Flight>,
    /// `None` after a decode that failed.
    state: Option<State>,
    stream: Arc<CudaStream>,
    poisoned: CudaEvent,
    done: CudaEvent,
    /// Decoded images, whole.
    decoded: DeviceMemory,
    /// Between the steps of the resampler, and its weights.
    resample: DeviceMemory,
    /// Pictures, tasks, counts: on the GPU, and as they are copied to and from it.
    tables: DeviceMemory,
    host_tables: HostMemory,
    /// The files, page-locked: bytes that no truncated shard can take away, copied at full rate.
    staging: HostMemory,
    tasks: CropResizeBatch,
    images_max: usize,
    /// Grows by one an image, so that no two patterns in a row are the same.
    salt: u32,
}

/// A sub-batch that was begun.
#[derive(Debug)]
struct Flight {
    images: Vec<EncodedImage>,
    refusals: Vec<Option<Refusal>>,
    rows: Option<Arc<EngineRows>>,
    /// Whether all its work was queued, so that `done` tells its end.
    is_queued: bool,
}

impl Slot {
    pub(super) fn new(gpu: &Gpu, shared: &Shared) -> Result<Self> {
        let EngineRules { images_max, scratch_bytes, staging_bytes, .. } = shared.rules;
        let stream = gpu.stream()?;
        let blocking = || {
            let flags = sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC;
            gpu.context().new_event(Some(flags)).map_err(|error| failed("cannot make an event", error))
        };
        let pinned = PinnedAllocator::new(gpu.clone());
        let tables_bytes = images_max * (PICTURE_BYTES + TASK_BYTES + COUNT_BYTES);
        let slot = Self {
            flight: None,
            state: Some(State::new(&shared.handle)?),
            poisoned: blocking()?,
            done: blocking()?,
            decoded: gpu.allocate(&stream, scratch_bytes)?,
            resample: gpu.allocate(&stream, scratch_bytes / RESAMPLE_PART)?,
            tables: gpu.allocate(&stream, tables_bytes)?,
            host_tables: pinned.allocate(tables_bytes)?,
            staging: pinned.allocate(staging_bytes)?,
            tasks: CropResizeBatch::new(3),
            images_max,
            salt: 0,
            stream,
        };
        // The engines do not wait for the stream, nor for allocations in its order.
        slot.stream.synchronize().map_err(|error| failed("cannot wait for memory", error))?;
        Ok(slot)
    }

    pub(super) fn is_free(&self) -> bool {
        self.flight.is_none()
    }

    /// Begins a sub-batch, and waits only until its outputs are poisoned; what fails comes back as refusals.
    ///
    /// The slot must be free: else the images come back.
    pub(super) fn begin(&mut self, images: Vec<EncodedImage>, shared: &mut Shared) -> Result<(), Vec<EncodedImage>> {
        if !self.is_free() {
            return Err(images);
        }
        let refusals = images.iter().map(|_| None).collect();
        let mut flight = Flight { images, refusals, rows: None, is_queued: false };
        match self.queue(&mut flight, shared) {
            Ok(()) => flight.is_queued = true,
            Err(error) => flight.refuse_rest(&Refusal::Device(error.to_string())),
        }
        self.flight = Some(flight);
        Ok(())
    }

    /// Bytes of device memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.decoded.len() + self.resample.len() + self.tables.len()
    }

    /// Whether the sub-batch is done; errors count, since waiting would not help.
    pub(super) fn is_done(&self) -> bool {
        match &self.flight {
            Some(flight) if flight.is_queued => self.done.try_is_complete().unwrap_or(true),
            _ => true,
        }
    }

    /// Waits for the sub-batch; nothing if none was begun. The thread sleeps meanwhile.
    pub(super) fn finish(&mut self) -> Vec<(EncodedImage, Outcome)> {
        let Some(mut flight) = self.flight.take() else { return Vec::new() };
        let waited = match flight.is_queued {
            true => self.done.synchronize(),
            false => self.stream.synchronize(),
        };
        if let Err(error) = waited {
            flight.refuse_rest(&Refusal::Device(failed("waiting for the engines", error).to_string()));
        }
        let counts = self.host_tables.get(self.counts_at()..).unwrap_or(&[]).chunks_exact(COUNT_BYTES);
        let counts = counts.map(|count| u32::from_ne_bytes([count[0], count[1], count[2], count[3]]));
        // Images beyond a full sub-batch have no count, and are refused anyway.
        let counts = counts.take(self.images_max).chain(std::iter::repeat(0));
        let Flight { images, refusals, rows, .. } = flight;
        let outcomes = images.into_iter().zip(refusals).zip(counts).enumerate();
        let outcome = |(index, ((image, refusal), pixels)): (usize, ((EncodedImage, _), u32))| {
            let outcome = match (refusal, rows.as_ref()) {
                (Some(reason), _) => Outcome::Refused(reason),
                (None, Some(rows)) if pixels <= by_chance(&image.info) => Outcome::Written(EngineRow::new(rows, index)),
                (None, _) => Outcome::Refused(Refusal::Unwritten { pixels }),
            };
            (image, outcome)
        };
        outcomes.map(outcome).collect()
    }

    fn queue(&mut self, flight: &mut Flight, shared: &mut Shared) -> Result<()> {
        let pictures = self.lay_out(flight);
        let Some(rows) = shared.rows.take()? else {
            flight.refuse_rest(&Refusal::RowsHeld);
            return self.record_done();
        };
        flight.rows = Some(rows);
        self.poison(&pictures, shared)?;
        let started = Instant::now();
        let files = self.stage(flight, shared);
        shared.stats.staging += started.elapsed();
        self.poisoned.synchronize().map_err(|error| failed("waiting for the pattern", error))?;
        self.decode(flight, &pictures, &files, shared)?;
        self.probe(&pictures, shared)?;
        self.resample(flight, &pictures, shared)?;
        self.record_done()
    }

    fn record_done(&self) -> Result<()> {
        self.done.record(&self.stream).map_err(|error| failed("cannot record an event", error))
    }

    /// Gives each image its place; those without get a picture of no pixels.
    fn lay_out(&mut self, flight: &mut Flight) -> Vec<Picture> {
        let mut next: usize = 0;
        let mut pictures = Vec::with_capacity(flight.images.len());
        for (image, refusal) in flight.images.iter().zip(&mut flight.refusals) {
            let start = next;
            let end = image_bytes(&image.info).and_then(|bytes| next.checked_add(bytes));
            let end = end.filter(|&end| end <= self.decoded.len() && pictures.len() < self.images_max);
            self.salt = self.salt.wrapping_add(1);
            let picture = Picture {
                pixels: self.decoded.address() + start as u64,
                pitch: 0,
                width: 0,
                height: 0,
                salt: self.salt,
            };
            let pitch = u32::try_from(pitch_of(image.info.width)).ok();
            match (end, pitch) {
                (Some(end), Some(pitch)) => {
                    next = end;
                    let ImageInfo { width, height, .. } = image.info;
                    pictures.push(Picture { pitch, width, height, ..picture });
                }
                _ => {
                    *refusal = Some(Refusal::Full);
                    if pictures.len() < self.images_max {
                        pictures.push(picture);
                    }
                }
            }
        }
        pictures
    }

    /// Queues the pattern, and an event behind it.
    fn poison(&mut self, pictures: &[Picture], shared: &Shared) -> Result<()> {
        self.upload(0, bytemuck::cast_slice(pictures))?;
        // SAFETY: the table was just copied in the order of the stream, and by `lay_out` names parts of `decoded` only,
        // which nothing else uses (the type's invariant).
        unsafe { shared.kernels.poison(self.tables.address(), pictures.len() as u32, self.stream.cu_stream()) }?;
        self.poisoned.record(&self.stream).map_err(|error| failed("cannot record an event", error))
    }

    /// Copies the files into page-locked memory, and looks at the copies, which nobody can change, as the library does;
    /// the place of each that is to be decoded.
    fn stage(&mut self, flight: &mut Flight, shared: &mut Shared) -> Vec<Option<std::ops::Range<usize>>> {
        let mut next: usize = 0;
        let mut files = Vec::with_capacity(flight.images.len());
        for (image, refusal) in flight.images.iter().zip(&mut flight.refusals) {
            let place = next..next.saturating_add(image.bytes.len());
            let copy = match self.staging.get_mut(place.clone()) {
                Some(copy) if refusal.is_none() => copy,
                _ => {
                    refusal.get_or_insert(Refusal::Full);
                    files.push(None);
                    continue;
                }
            };
            copy.copy_from_slice(&image.bytes);
            next = place.end.next_multiple_of(IMAGE_ALIGN);
            let checked = check_whole(copy, &image.info).and_then(|()| shared.parser.check(copy, &image.info));
            match checked {
                Ok(()) => files.push(Some(place)),
                Err(reason) => {
                    *refusal = Some(reason);
                    files.push(None);
                }
            }
        }
        files
    }

    fn decode(
        &mut self,
        flight: &mut Flight,
        pictures: &[Picture],
        places: &[Option<std::ops::Range<usize>>],
        shared: &mut Shared,
    ) -> Result<()> {
        let placed = places.iter().zip(pictures).filter_map(|(place, picture)| Some((place.clone()?, picture)));
        let files = placed.filter_map(|(place, picture)| Some((self.staging.get(place)?, output(picture))));
        let files: Vec<(&[u8], Image)> = files.collect();
        if files.is_empty() {
            return Ok(());
        }
        let state = match &mut self.state {
            Some(state) => state,
            none => none.insert(State::new(&shared.handle)?),
        };
        shared.gpu.bind()?;
        let started = Instant::now();
        // SAFETY: no decode of this state is under way and nothing pending writes to `decoded`: the slot was free, and
        // the pattern, the only work queued since that does, has been waited for. The files lie in `staging`, which
        // stays unwritten until the flight is finished. `lay_out` gave each output the room for an image of the
        // header's size, and `stage` saw the library read that size in the very bytes that it will decode.
        let decoded = unsafe { state.decode(&files, &self.stream) };
        shared.stats.calling += started.elapsed();
        if let Err(status) = decoded {
            shared.stats.batches_failed += 1;
            flight.refuse_rest(&Refusal::Batch(status_name(status)));
            // Whatever was begun must be over before the outputs are poisoned again, and the state is in no known one.
            self.stream.synchronize().map_err(|error| failed("waiting for a decode that failed", error))?;
            self.state = None;
        }
        Ok(())
    }

    /// Queues the look at what was written, and its way back.
    fn probe(&mut self, pictures: &[Picture], shared: &Shared) -> Result<()> {
        let (at, count) = (self.counts_at(), pictures.len());
        let counts = self.tables.address() + at as u64;
        // SAFETY: the table of pictures still stands where `poison` copied it, and there is room for as many counts;
        // reading and writing happen in the order of the stream, behind the decode.
        unsafe { shared.kernels.probe(self.tables.address(), count as u32, counts, self.stream.cu_stream()) }?;
        let len = self.host_tables.len();
        let back = self.host_tables.get_mut(at..(at + count * COUNT_BYTES).min(len)).unwrap_or(&mut []);
        // SAFETY: the page-locked counts are read only once `done` has passed, and written by nothing else.
        unsafe { self.tables.copy_to(at, back, &self.stream) }
    }

    /// Queues the way of each decoded image into its row.
    fn resample(&mut self, flight: &mut Flight, pictures: &[Picture], shared: &Shared) -> Result<()> {
        let Some(rows) = &flight.rows else { return Ok(()) };
        rows.open_to(&self.stream)?;
        self.tasks.clear();
        let images = flight.images.iter().zip(pictures).zip(&mut flight.refusals).enumerate();
        for (index, ((image, picture), refusal)) in images.filter(|(_, (_, refusal))| refusal.is_none()) {
            let resample =
                image.geometry.as_single_resample().filter(|_| image.geometry.output_size() == shared.rules.output);
            let task = resample.map(|resample| CropResizeTask::new(picture, 3, &resample, rows.address(index)));
            match task {
                Some(Ok(task)) if self.tasks.push(task, self.resample.len() as u64) => {}
                Some(Ok(_)) => *refusal = Some(Refusal::Full),
                _ => *refusal = Some(Refusal::Geometry),
            }
        }
        self.tasks.place(self.resample.address())?;
        let at = self.images_max * PICTURE_BYTES;
        let host = self.host_tables.get_mut(at..at + self.tasks.bytes().len());
        let host = host.ok_or_else(|| Error::new(ErrorKind::Device, "a sub-batch has more tasks than images"))?;
        host.copy_from_slice(self.tasks.bytes());
        // SAFETY: this part of the page-locked tables is written once a flight, here, and the tables' owner leaves it
        // alone until `done` has passed.
        unsafe { self.tables.copy_from(at, host, &self.stream) }?;
        let tasks = self.tables.address() + at as u64;
        // SAFETY: tasks name windows of pictures in `decoded`, rows of this flight, which `rows` lends to it alone, and
        // `resample`, all used in the order of this stream only; readers of the rows' former bytes are waited for.
        unsafe { shared.kernels.crop_resize(&self.tasks, tasks, self.stream.cu_stream()) }
    }

    fn upload(&mut self, at: usize, bytes: &[u8]) -> Result<()> {
        let host = self.host_tables.get_mut(at..at + bytes.len());
        let host = host.ok_or_else(|| Error::new(ErrorKind::Device, "a sub-batch is larger than its tables"))?;
        host.copy_from_slice(bytes);
        // SAFETY: the page-locked bytes are not written again before the flight is finished.
        unsafe { self.tables.copy_from(at, host, &self.stream) }
    }

    /// Where the counts lie in the tables: behind pictures and tasks.
    fn counts_at(&self) -> usize {
        self.images_max * (PICTURE_BYTES + TASK_BYTES)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // The stream frees device memory in its order, but page-locked memory and the state go at once.
        if self.flight.is_some() {
            let _ = self.stream.synchronize();
        }
    }
}

impl Flight {
    /// Refuses every image that is not refused yet.
    fn refuse_rest(&mut self, reason: &Refusal) {
        for refusal in &mut self.refusals {
            refusal.get_or_insert_with(|| reason.clone());
        }
    }
}

/// Whether a file is undamaged as far as its markers tell, and what its header said: damage that shows here does not fail
/// a whole sub-batch.
fn check_whole(file: &[u8], header: &ImageInfo) -> Result<(), Refusal> {
    match ImageInfo::of_whole_jpeg(file) {
        Ok(found) if found == *header => Ok(()),
        Ok(_) => Err(Refusal::Changed),
        Err(_) => Err(Refusal::Damaged),
    }
}

/// Probed pixels that may hold the pattern although they were written: by accident one in 16,777,216 does, which is one
/// image in a few thousand. An image that was skipped, in part or whole, shows many more.
fn by_chance(info: &ImageInfo) -> u32 {
    let ImageInfo { width, height, .. } = *info;
    let probes = Picture { pixels: 0, pitch: 0, width, height, salt: 0 }.probes();
    u32::from(probes > MANY_PROBES)
}

/// Where the library writes a picture.
fn output(picture: &Picture) -> Image {
    let mut image = Image { channel: [std::ptr::null_mut(); 4], pitch: [0; 4] };
    image.channel[0] = picture.pixels as usize as *mut u8;
    image.pitch[0] = picture.pitch as usize;
    image
}
