//! What the threads can do at most: the same decoding and transforming as in the loader with no loader around it. Bytes
//! are mapped and resident, each thread has its own files and one output row that it writes again and again; there is no
//! queue, no batch and no order.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::batch::{BatchSpec, BufferPool, Dtype, HostBuffer, Layout, PageableAllocator};
use crate::cli::recipe::{CROP, IMAGE};
use crate::decode::{DecodeOptions, Decoder, ImageDecoder, ImageInfo, Jobs, Pixels, Planes, Region, Ticket};
use crate::device::{Device, RowWriter};
use crate::loader::Dataset;
use crate::sample::{EpochPlan, FieldSelector, Shuffle, Split};
use crate::shard::Shard;
use crate::transform::{Compose, Geometry, Resampler, SampleRng, ValueOps};
use crate::{Error, ErrorKind, Result};

/// Samples that stay resident at most, and their bytes: enough that no cache of the processor holds them.
const SAMPLES_MAX: usize = 8192;
const BYTES_MAX: u64 = 2 << 30;

/// Files that are decoded, in the order of the loader's first epoch.
#[derive(Debug)]
pub(super) struct Ceiling {
    files: Vec<(u64, Bytes)>,
    compose: Compose,
    decode: DecodeOptions,
    seed: u64,
    device: Device,
}

impl Ceiling {
    /// Makes the first samples of the loader's first epoch with `seed` resident.
    pub(super) fn prepare(dataset: &Dataset, seed: u64, device: Device) -> Result<Self> {
        let no_index = || Error::new(ErrorKind::Unsupported, "compressed shards have no index to take samples from");
        let index = dataset.index().ok_or_else(no_index)?;
        let selector = FieldSelector::parse(IMAGE)?;
        let plan = EpochPlan::new(&index.shard_lens(), Shuffle::Global, seed, 0, Split::whole())?;
        let mut shards: Vec<Option<Shard>> = vec![None; dataset.paths().len()];
        let mut files = Vec::new();
        let mut bytes = 0;
        for number in plan.iter().take(SAMPLES_MAX) {
            let sample = index.get(number);
            let Some(field) = sample.field(&selector) else { continue };
            let shard = match &mut shards[sample.shard()] {
                Some(shard) => shard,
                none => none.insert(Shard::open(&dataset.paths()[sample.shard()], &dataset.options().shards)?),
            };
            shard.populate(field.range())?;
            files.push((number as u64, shard.read(field.range())?));
            bytes += field.size;
            if bytes > BYTES_MAX {
                break;
            }
        }
        let options = dataset.options();
        Ok(Self { files, compose: options.transform.clone(), decode: options.decode.clone(), seed, device })
    }

    /// Bytes of a file on average.
    pub(super) fn bytes_mean(&self) -> u64 {
        let bytes: u64 = self.files.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        bytes / self.files.len().max(1) as u64
    }

    /// Images a second on `threads` threads, measured for `time`.
    pub(super) fn images_per_s(&self, threads: usize, time: Duration) -> Result<f64> {
        let workers = (0..threads).map(|first| Share::new(self, first, threads)).collect::<Result<Vec<_>>>()?;
        let start = Barrier::new(threads);
        let rates = thread::scope(|scope| {
            let handles: Vec<_> = workers
                .into_iter()
                .map(|(mut decoder, mut share)| {
                    let start = &start;
                    scope.spawn(move || {
                        start.wait();
                        let started = Instant::now();
                        share.end = started + time;
                        decoder.run(&mut share);
                        // Each thread has its own end, so that none waits for the slowest.
                        share.images as f64 / started.elapsed().as_secs_f64().max(1e-9)
                    })
                })
                .collect();
            handles.into_iter().filter_map(|handle| handle.join().ok()).sum::<f64>()
        });
        Ok(rates)
    }
}

/// One thread's files: every `step`-th, again and again until the end.
struct Share<'a> {
    ceiling: &'a Ceiling,
    position: usize,
    first: usize,
    step: usize,
    end: Instant,
    images: u64,
    geometries: Vec<(Ticket, Geometry)>,
    resampler: Resampler,
    resized: Vec<u8>,
    writer: RowWriter,
    row: HostBuffer,
}

impl<'a> Share<'a> {
    fn new(ceiling: &'a Ceiling, first: usize, step: usize) -> Result<(ImageDecoder, Self)> {
        // For a GPU the host's work ends with bytes.
        let on_host = ceiling.device == Device::Cpu;
        let spec = BatchSpec {
            batch_size: 1,
            height: CROP as usize,
            width: CROP as usize,
            channels: usize::from(ceiling.decode.mode.channels()),
            dtype: if on_host { Dtype::F32 } else { Dtype::U8 },
            layout: if on_host { Layout::Nchw } else { Layout::Nhwc },
        };
        let bytes = ValueOps::default();
        let ops = if on_host { ceiling.compose.value() } else { &bytes };
        let share = Self {
            ceiling,
            position: first,
            first,
            step,
            end: Instant::now(),
            images: 0,
            geometries: Vec::new(),
            resampler: Resampler::new(),
            resized: vec![0; spec.height * spec.width * spec.channels],
            writer: RowWriter::new(spec, ops)?,
            row: BufferPool::new(Arc::new(PageableAllocator), 1).take(spec.row_bytes()?)?,
        };
        Ok((ImageDecoder::new(ceiling.decode.clone())?, share))
    }

    fn finish(
        &mut self,
        ticket: Ticket,
        resample: impl FnOnce(&mut Resampler, &Geometry, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let Some(place) = self.geometries.iter().position(|(number, _)| *number == ticket) else { return Ok(()) };
        let (_, geometry) = self.geometries.swap_remove(place);
        if self.writer.is_plain() {
            resample(&mut self.resampler, &geometry, &mut self.row)?;
        } else {
            resample(&mut self.resampler, &geometry, &mut self.resized)?;
            self.writer.write(&self.resized, &mut self.row)?;
        }
        std::hint::black_box(&self.row[..]);
        self.images += 1;
        Ok(())
    }
}

impl Jobs for Share<'_> {
    fn next(&mut self) -> Option<(Ticket, Bytes)> {
        if Instant::now() >= self.end {
            return None;
        }
        if self.position >= self.ceiling.files.len() {
            self.position = self.first;
        }
        let ticket = self.position;
        let (_, bytes) = self.ceiling.files.get(ticket)?;
        self.position += self.step;
        Some((ticket, bytes.clone()))
    }

    fn region(&mut self, ticket: Ticket, info: &ImageInfo) -> Result<Region> {
        let ordinal = self.ceiling.files.get(ticket).map_or(0, |(ordinal, _)| *ordinal);
        let mut rng = SampleRng::new(self.ceiling.seed, 0, ordinal);
        let geometry = self.ceiling.compose.geometry(info.width, info.height, &mut rng)?;
        let source = geometry.source;
        self.geometries.push((ticket, geometry));
        Ok(source)
    }

    fn done(&mut self, ticket: Ticket, result: Result<Pixels<'_>>) {
        // A bad file is the loader's to tell; here it is no image that was made.
        let finished = result
            .and_then(|pixels| self.finish(ticket, |resampler, geometry, out| resampler.apply(&pixels, geometry, out)));
        if finished.is_err() {
            self.geometries.retain(|(number, _)| *number != ticket);
        }
    }

    fn takes_planes(&self, ticket: Ticket) -> bool {
        self.geometries.iter().any(|(number, geometry)| *number == ticket && geometry.takes_planes())
    }

    fn done_planes(&mut self, ticket: Ticket, planes: Planes<'_>) {
        let resample = |resampler: &mut Resampler, geometry: &Geometry, out: &mut [u8]| {
            resampler.apply_planes(&planes, geometry, out)
        };
        if self.finish(ticket, resample).is_err() {
            self.geometries.retain(|(number, _)| *number != ticket);
        }
    }
}
