//! The JPEG engines as a loader uses them: sub-batches go in while there is a free state, and come back oldest first. It
//! runs on its caller's thread, keeps no image back, and never decides whether an image should come at all.

use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::handle::{Handle, Parser};
use super::library::Library;
use super::refusal::Refusal;
use super::rows::RowPool;
use super::rules::EngineRules;
use super::slot::{EncodedImage, Outcome, Slot};
use crate::decode::ImageInfo;
use crate::device::kernels::Kernels;
use crate::device::stream::Gpu;
use crate::transform::Geometry;
use crate::{Error, ErrorKind, Result};

/// How the engines are used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineOptions {
    /// Folders in which nvJPEG is looked for, after the system's own: site-packages as they are, or folders with the
    /// library itself. Default none.
    pub folders: Vec<PathBuf>,
    /// (height, width) of the rows in pixels, 1 or more each. Default (224, 224).
    pub output: (u32, u32),
    /// Images of a full sub-batch, 1 to 512. Default 32: more are no faster.
    pub sub_batch: usize,
    /// Sub-batches in flight, 2 to 16. Default 2.
    pub states: usize,
    /// Bytes of device memory for the decoded images of a sub-batch, 1 MiB or more; one image may take an eighth, and
    /// half as much again is used for resampling. Default 64 MiB.
    pub scratch_bytes: usize,
    /// Bytes of page-locked memory for the files of a sub-batch, 64 KiB or more; one file may take an eighth. Default
    /// 16 MiB.
    pub staging_bytes: usize,
    /// Sub-batches whose rows may be held at once, `states` or more. Default 64.
    pub rows_held_max: usize,
    /// Whether images are turned upright by their EXIF orientation; those that must be are refused. Default `false`.
    pub exif: bool,
    /// Whether chroma is interpolated, as libjpeg-turbo does on the CPU. Default `false`: the engines repeat chroma, and
    /// interpolating beside them takes four times as long.
    pub interpolate: bool,
}

impl EngineOptions {
    /// Which images may be sent to engines that are opened with these options; needs no GPU.
    #[must_use]
    pub fn rules(&self) -> EngineRules {
        EngineRules {
            output: self.output,
            exif: self.exif,
            images_max: self.sub_batch,
            scratch_bytes: self.scratch_bytes,
            staging_bytes: self.staging_bytes,
        }
    }
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            folders: Vec::new(),
            output: (224, 224),
            sub_batch: 32,
            states: 2,
            scratch_bytes: 64 << 20,
            staging_bytes: 16 << 20,
            rows_held_max: 64,
            exif: false,
            interpolate: false,
        }
    }
}

/// Which library reaches the engines, and how many there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineReport {
    /// The library's file, as it was asked for.
    pub library: PathBuf,
    /// Its version.
    pub version: (u32, u32, u32),
    /// Engines of the GPU, and cores of each, where the library tells.
    pub engines: Option<(u32, u32)>,
}

/// What the engines did since they were opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Sub-batches that came back.
    pub batches: u64,
    /// Sub-batches that the library failed as a whole.
    pub batches_failed: u64,
    /// Images that came back as rows.
    pub written: u64,
    /// Images that came back because they were not for the engines.
    pub refused: u64,
    /// Images that came back because the engines failed at them.
    pub failed: u64,
    /// Images among those failed that were reported as decoded and found unwritten.
    pub unwritten: u64,
    /// Time in which at least one sub-batch was in flight.
    pub busy: Duration,
    /// Time of the submitting thread for copying files and having the library look at them.
    pub staging: Duration,
    /// Time of the submitting thread inside the library's decode calls.
    pub calling: Duration,
}

/// What all slots use.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) rules: EngineRules,
    pub(super) stats: EngineStats,
    pub(super) parser: Parser,
    pub(super) rows: Arc<RowPool>,
    pub(super) kernels: Arc<Kernels>,
    pub(super) handle: Arc<Handle>,
    pub(super) gpu: Gpu,
}

/// The JPEG engines of one GPU, with `states` sub-batches in flight.
///
/// ```no_run
/// # use brimful::device::nvjpeg::{EncodedImage, EngineOptions, JpegEngine, Outcome};
/// # fn example(gpu: brimful::device::stream::Gpu, kernels: std::sync::Arc<brimful::device::kernels::Kernels>,
/// #     images: Vec<EncodedImage>) -> brimful::Result<()> {
/// let mut engine = JpegEngine::open(&gpu, kernels, EngineOptions::default())?;
/// if engine.submit(images).is_ok() {
///     for (image, outcome) in engine.collect() {
///         match outcome {
///             Outcome::Written(row) => println!("{} lies at {:#x}", image.ticket, row.address()),
///             Outcome::Refused(reason) => println!("{} is for the CPU: {reason}", image.ticket),
///         }
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct JpegEngine {
    // Dropped in this order: slots use what is shared.
    slots: Vec<Slot>,
    shared: Shared,
    /// Slots in flight, oldest first.
    order: VecDeque<usize>,
    busy_since: Option<Instant>,
    report: EngineReport,
}

impl JpegEngine {
    /// Opens the engines of `gpu` and allocates what the sub-batches need.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] for an option out of its range, [`ErrorKind::Device`] when the library is missing or
    /// the GPU has no engines that it can use, [`ErrorKind::Limit`] when there is no memory.
    pub fn open(gpu: &Gpu, kernels: Arc<Kernels>, options: EngineOptions) -> Result<Self> {
        check(&options)?;
        let (height, width) = options.output;
        let row_bytes = (height as usize).checked_mul(width as usize).and_then(|pixels| pixels.checked_mul(3));
        let row_bytes = row_bytes.filter(|bytes| bytes.checked_mul(options.sub_batch).is_some()).ok_or_else(|| {
            Error::new(ErrorKind::InvalidOption, format!("rows of {height}x{width} are too large for a GPU"))
        })?;
        let library = Library::find(&options.folders)?;
        let handle = Handle::open(gpu, &library, options.interpolate)?;
        let report = report(&library, &handle);
        let rules = options.rules();
        let shared = Shared {
            rules,
            stats: EngineStats::default(),
            parser: Parser::new(&handle)?,
            rows: RowPool::new(gpu, options.sub_batch, row_bytes, options.rows_held_max)?,
            kernels,
            handle,
            gpu: gpu.clone(),
        };
        let slots = (0..options.states).map(|_| Slot::new(gpu, &shared)).collect::<Result<_>>()?;
        Ok(Self { slots, shared, order: VecDeque::with_capacity(options.states), busy_since: None, report })
    }

    /// Which library and which engines `gpu` would be used with; opens and closes them.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] with the reason why they cannot be used.
    pub fn probe(gpu: &Gpu, folders: &[PathBuf]) -> Result<EngineReport> {
        let library = Library::find(folders)?;
        let handle = Handle::open(gpu, &library, false)?;
        Ok(report(&library, &handle))
    }

    /// Which library and which engines these are.
    #[must_use]
    pub fn report(&self) -> &EngineReport {
        &self.report
    }

    /// What the engines take, for threads that choose images.
    #[must_use]
    pub fn rules(&self) -> EngineRules {
        self.shared.rules
    }

    /// Whether the engines take an image; see [`EngineRules::supports`].
    ///
    /// # Errors
    /// The reason why not.
    pub fn supports(&self, info: &ImageInfo, geometry: &Geometry, file_bytes: usize) -> Result<(), Refusal> {
        self.shared.rules.supports(info, geometry, file_bytes)
    }

    /// Whether `images` are enough for a sub-batch, or leave no room for one more.
    #[must_use]
    pub fn is_full(&self, images: &[EncodedImage]) -> bool {
        self.shared.rules.is_full(images.iter().map(|image| (&image.info, image.bytes.len())))
    }

    /// Sub-batches in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.order.len()
    }

    /// Whether a sub-batch can be submitted without collecting one first.
    #[must_use]
    pub fn can_submit(&self) -> bool {
        self.order.len() < self.slots.len()
    }

    /// Begins to decode a sub-batch; any number of images from 1 up to a full one. Copies the files, and returns while
    /// the engines work.
    ///
    /// Images beyond what the sub-batch holds, and all of them when something fails, are refused when collected.
    ///
    /// # Errors
    /// The images, when every state is in flight: [`collect`](Self::collect) first.
    pub fn submit(&mut self, images: Vec<EncodedImage>) -> Result<(), Vec<EncodedImage>> {
        if images.is_empty() {
            return Ok(());
        }
        let Some(free) = self.slots.iter().position(Slot::is_free) else { return Err(images) };
        self.busy_since.get_or_insert_with(Instant::now);
        self.slots[free].begin(images, &mut self.shared)?;
        self.order.push_back(free);
        Ok(())
    }

    /// Waits for the oldest sub-batch in flight, asleep, and gives back its images, in the order they came; nothing when
    /// none is in flight.
    pub fn collect(&mut self) -> Vec<(EncodedImage, Outcome)> {
        let Some(oldest) = self.order.pop_front() else { return Vec::new() };
        let outcomes = self.slots[oldest].finish();
        let stats = &mut self.shared.stats;
        stats.batches += 1;
        for (_, outcome) in &outcomes {
            match outcome {
                Outcome::Written(_) => stats.written += 1,
                Outcome::Refused(reason) if reason.is_failure() => stats.failed += 1,
                Outcome::Refused(_) => stats.refused += 1,
            }
            stats.unwritten += u64::from(matches!(outcome, Outcome::Refused(Refusal::Unwritten { .. })));
        }
        if self.order.is_empty()
            && let Some(since) = self.busy_since.take()
        {
            stats.busy += since.elapsed();
        }
        outcomes
    }

    /// As [`collect`](Self::collect), but nothing when the oldest sub-batch is not done yet.
    pub fn try_collect(&mut self) -> Vec<(EncodedImage, Outcome)> {
        match self.order.front() {
            Some(&oldest) if self.slots[oldest].is_done() => self.collect(),
            _ => Vec::new(),
        }
    }

    /// What the engines did so far.
    #[must_use]
    pub fn stats(&self) -> EngineStats {
        let mut stats = self.shared.stats;
        stats.busy += self.busy_since.map_or(Duration::ZERO, |since| since.elapsed());
        stats
    }

    /// Bytes of device memory in use: scratch of the states, and rows. What the library itself allocates is not known.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.slots.iter().map(Slot::memory_bytes).sum::<usize>() + self.shared.rows.bytes()
    }
}

impl fmt::Display for EngineReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor, patch) = self.version;
        match self.engines {
            Some((engines, _)) => write!(f, "{engines} JPEG engines")?,
            None => f.write_str("JPEG engines")?,
        }
        write!(f, ", nvJPEG {major}.{minor}.{patch} at {}", self.library.display())
    }
}

fn report(library: &Library, handle: &Handle) -> EngineReport {
    EngineReport { library: library.path().to_owned(), version: library.version(), engines: handle.engines() }
}

fn check(options: &EngineOptions) -> Result<()> {
    let EngineOptions {
        output: (height, width), sub_batch, states, scratch_bytes, staging_bytes, rows_held_max, ..
    } = *options;
    let problem = if height == 0 || width == 0 {
        format!("rows of {height}x{width} pixels are empty")
    } else if !(1..=512).contains(&sub_batch) {
        format!("a sub-batch of {sub_batch} images is not in 1 to 512")
    } else if !(2..=16).contains(&states) {
        format!("{states} states are not in 2 to 16")
    } else if scratch_bytes < 1 << 20 || staging_bytes < 64 << 10 {
        format!("{scratch_bytes} and {staging_bytes} bytes of scratch and staging are under 1 MiB and 64 KiB")
    } else if rows_held_max < states {
        format!("{rows_held_max} sub-batches of rows are fewer than {states} states")
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::InvalidOption, problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_out_of_range_are_refused_before_anything_is_opened() {
        let good = EngineOptions::default;
        assert!(check(&good()).is_ok());
        for options in [
            EngineOptions { output: (0, 224), ..good() },
            EngineOptions { sub_batch: 0, ..good() },
            EngineOptions { sub_batch: 513, ..good() },
            EngineOptions { states: 1, ..good() },
            EngineOptions { scratch_bytes: 1000, ..good() },
            EngineOptions { staging_bytes: 0, ..good() },
            EngineOptions { rows_held_max: 1, ..good() },
        ] {
            assert_eq!(check(&options).unwrap_err().kind(), ErrorKind::InvalidOption, "{options:?}");
        }
    }
}
