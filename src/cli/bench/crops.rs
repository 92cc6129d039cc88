//! Decode jobs with the crops of a training run: the same crop for the same file whoever decodes it. It keeps no pixels
//! and times nothing.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use crate::Result;
use crate::decode::{ImageInfo, Jobs, Pixels, Planes, Region, Ticket};
use crate::transform::{Compose, Geometry, Resampler, SampleRng, Transform};

/// The crops do not change from run to run.
const SEED: u64 = 0;

/// What is done with each file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// All pixels are decoded, and that is all.
    Decode,
    /// All pixels are decoded, then the crop is resized.
    DecodeThenResize,
    /// Only what the crop needs is decoded, then resized.
    DecodeRegionThenResize,
}

/// `RandomResizedCrop(size)` and a flip.
pub(super) fn training_crop(size: u32) -> Result<Compose> {
    Compose::new(vec![Transform::random_resized_crop(size), Transform::random_horizontal_flip(0.5)])
}

/// One thread's part of the jobs: it takes the next file that no other thread has taken.
pub(super) struct CropJobs<'a> {
    files: &'a [Bytes],
    next: &'a AtomicUsize,
    end: usize,
    work: Work,
    /// Files that the decoder may hold at once.
    held_max: usize,
    held: usize,
    compose: &'a Compose,
    /// Geometry of the tickets in work: one for most decoders, a few for one that holds several.
    geometries: Vec<(Ticket, Geometry)>,
    resampler: Resampler,
    resized: Vec<u8>,
    /// Numbers of files that could not be decoded.
    pub(super) failed: Vec<usize>,
}

impl<'a> CropJobs<'a> {
    /// Jobs until `next`, which the threads share, reaches `end`; it counts on through `files` from the start again.
    pub(super) fn new(files: &'a [Bytes], next: &'a AtomicUsize, end: usize, work: Work, compose: &'a Compose) -> Self {
        let resampler = Resampler::new();
        Self {
            files,
            next,
            end,
            work,
            held_max: usize::MAX,
            held: 0,
            compose,
            geometries: Vec::new(),
            resampler,
            resized: Vec::new(),
            failed: Vec::new(),
        }
    }

    /// With a decoder that holds no more files at once than this, however many it could.
    pub(super) fn holding(self, held_max: usize) -> Self {
        Self { held_max, ..self }
    }

    fn finish(
        &mut self,
        ticket: Ticket,
        channels: u8,
        resample: impl FnOnce(&mut Resampler, &Geometry, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let Some(place) = self.geometries.iter().position(|(number, _)| *number == ticket) else { return Ok(()) };
        let (_, geometry) = self.geometries.swap_remove(place);
        let (height, width) = geometry.output_size();
        self.resized.resize(height as usize * width as usize * usize::from(channels), 0);
        resample(&mut self.resampler, &geometry, &mut self.resized)?;
        black_box(&self.resized);
        Ok(())
    }

    fn end(&mut self, ticket: Ticket, finished: Result<()>) {
        if finished.is_err() {
            self.geometries.retain(|(number, _)| *number != ticket);
            self.failed.push(ticket);
        }
    }
}

impl Jobs for CropJobs<'_> {
    fn next(&mut self) -> Option<(Ticket, Bytes)> {
        if self.held == self.held_max {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let ticket = number.checked_rem(self.files.len()).filter(|_| number < self.end)?;
        self.held += 1;
        Some((ticket, self.files[ticket].clone()))
    }

    fn region(&mut self, ticket: Ticket, info: &ImageInfo) -> Result<Region> {
        if self.work == Work::Decode {
            return Ok(Region::from(info));
        }
        let mut rng = SampleRng::new(SEED, 0, ticket as u64);
        let geometry = self.compose.geometry(info.width, info.height, &mut rng)?;
        let source = geometry.source;
        self.geometries.push((ticket, geometry));
        Ok(if self.work == Work::DecodeRegionThenResize { source } else { Region::from(info) })
    }

    fn done(&mut self, ticket: Ticket, result: Result<Pixels<'_>>) {
        self.held -= 1;
        let finished = result.and_then(|pixels| {
            black_box(pixels.data);
            self.finish(ticket, pixels.channels, |resampler, geometry, out| resampler.apply(&pixels, geometry, out))
        });
        self.end(ticket, finished);
    }

    fn takes_planes(&self, ticket: Ticket) -> bool {
        self.geometries.iter().any(|(number, geometry)| *number == ticket && geometry.takes_planes())
    }

    fn done_planes(&mut self, ticket: Ticket, planes: Planes<'_>) {
        self.held -= 1;
        let finished =
            self.finish(ticket, 3, |resampler, geometry, out| resampler.apply_planes(&planes, geometry, out));
        self.end(ticket, finished);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{DecodeOptions, Decoder, ImageDecoder};
    use crate::encode::encode_photo;

    #[test]
    fn each_file_is_taken_once_a_pass_and_bad_ones_are_named() {
        let files = [Bytes::from(encode_photo(1)), Bytes::from_static(b"no image"), Bytes::from(encode_photo(2))];
        let compose = training_crop(32).unwrap();
        for work in [Work::Decode, Work::DecodeThenResize, Work::DecodeRegionThenResize] {
            let next = AtomicUsize::new(0);
            let mut jobs = CropJobs::new(&files, &next, 6, work, &compose);
            ImageDecoder::new(DecodeOptions::default()).unwrap().run(&mut jobs);
            assert_eq!(jobs.failed, [1, 1], "{work:?}");
            assert!(jobs.geometries.is_empty());
            assert_eq!(jobs.resized.len(), if work == Work::Decode { 0 } else { 32 * 32 * 3 });
        }
    }
}
