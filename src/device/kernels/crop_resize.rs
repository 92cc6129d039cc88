//! What the crop and resize kernels are told: one task a picture, in the form that the GPU reads, with its scratch
//! counted. It resolves no transform and launches nothing.

use bytemuck::{Pod, Zeroable};
use cudarc::driver::sys::CUdeviceptr;

use super::Grid;
use crate::transform::{Filter, ResampledAxis, SingleResample};
use crate::{Error, ErrorKind, Result};

/// Alignment of each part of the scratch.
const SCRATCH_ALIGN: u64 = 16;

/// Pictures of one launch: the most that a grid counts.
const TASKS_MAX: usize = 65_535;

/// A picture in device memory: bytes, pixel after pixel, row after row, as the JPEG engines write it. The GPU reads
/// arrays of these, for [`poison`](super::Kernels::poison) and [`probe`](super::Kernels::probe), which take three
/// channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Picture {
    /// Address of the first pixel.
    pub pixels: CUdeviceptr,
    /// From one row to the next, in bytes.
    pub pitch: u32,
    /// In pixels.
    pub width: u32,
    /// In pixels.
    pub height: u32,
    /// Any number; pictures with different ones are poisoned with different patterns.
    pub salt: u32,
}

// SAFETY: a sequence of plain numbers, largest first, without gaps.
unsafe impl Zeroable for Picture {}
// SAFETY: as above.
unsafe impl Pod for Picture {}

impl Picture {
    /// Pixels that a probe looks at.
    #[must_use]
    pub fn probes(&self) -> u64 {
        let along = |side: u32| if side == 0 { 0 } else { u64::from(side - 1).div_ceil(8) + 1 };
        along(self.width) * along(self.height)
    }
}

/// One axis of a task, as the GPU reads it.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
struct Axis {
    start: f64,
    end: f64,
    weights: CUdeviceptr,
    inputs: u32,
    outputs: u32,
    taps: u32,
    filter: u32,
}

/// One picture's crop, resize and mirrors, as the GPU reads it.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct CropResizeTask {
    window: CUdeviceptr,
    middle: CUdeviceptr,
    row: CUdeviceptr,
    x: Axis,
    y: Axis,
    pitch: u32,
    mirrors: u32,
}

// SAFETY: a sequence of plain numbers, largest first, without gaps: 112 bytes, which a test counts.
unsafe impl Zeroable for CropResizeTask {}
// SAFETY: as above.
unsafe impl Pod for CropResizeTask {}

impl CropResizeTask {
    /// What makes the bytes of `row` of `picture`, whose pixels have `channels` bytes: `[outputs down, outputs across,
    /// channels]`, anywhere in device memory.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] for other channels than 1 and 3, and if the picture does not hold the window.
    pub fn new(picture: &Picture, channels: u32, resample: &SingleResample, row: CUdeviceptr) -> Result<Self> {
        let SingleResample { window, x, y, filter, mirror_x, mirror_y } = resample;
        let fits = |start: u32, len: u32, side: u32| start.checked_add(len).is_some_and(|end| end <= side) && len > 0;
        if !matches!(channels, 1 | 3) {
            let message = format!("pixels of {channels} channels are not resampled, only of 1 or 3");
            return Err(Error::new(ErrorKind::InvalidOption, message));
        }
        let is_inside = fits(window.x, window.width, picture.width) && fits(window.y, window.height, picture.height);
        if !is_inside || u64::from(picture.width) * u64::from(channels) > u64::from(picture.pitch) {
            let message = format!(
                "a picture of {}x{} in rows of {} bytes does not hold {window}",
                picture.width, picture.height, picture.pitch
            );
            return Err(Error::new(ErrorKind::InvalidOption, message));
        }
        let first_row = u64::from(window.y) * u64::from(picture.pitch);
        Ok(Self {
            window: picture.pixels + first_row + u64::from(window.x) * u64::from(channels),
            middle: 0,
            row,
            x: Axis::new(x, *filter)?,
            y: Axis::new(y, *filter)?,
            pitch: picture.pitch,
            mirrors: u32::from(*mirror_x) | u32::from(*mirror_y) << 1,
        })
    }

    /// Bytes of scratch that it needs, for pixels of `channels` bytes; a multiple of 16.
    #[must_use]
    pub fn scratch_bytes(&self, channels: u32) -> u64 {
        self.middle_bytes(channels).saturating_add(self.x.weight_bytes()).saturating_add(self.y.weight_bytes())
    }

    fn middle_bytes(&self, channels: u32) -> u64 {
        let row_bytes = u64::from(self.x.outputs) * u64::from(channels);
        row_bytes.saturating_mul(u64::from(self.y.inputs)).saturating_add(SCRATCH_ALIGN - 1) & !(SCRATCH_ALIGN - 1)
    }
}

impl Axis {
    fn new(axis: &ResampledAxis, filter: Filter) -> Result<Self> {
        let ResampledAxis { start, end, inputs, outputs, is_scaled } = *axis;
        // The numbers stand in `kernels/crop_resize.cu`.
        let number = match filter {
            _ if !is_scaled => 0,
            Filter::Bilinear { antialias: true } => 1,
            Filter::Bicubic => 2,
            Filter::Bilinear { antialias: false } => 3,
            Filter::Nearest => {
                return Err(Error::new(ErrorKind::InvalidOption, "the GPU does not resample with the nearest filter"));
            }
        };
        Ok(Self { start, end, weights: 0, inputs, outputs, taps: axis.taps(filter), filter: number })
    }

    /// Four words; first input and number of inputs of each output, a word each; `taps` weights of two bytes each.
    fn weight_bytes(&self) -> u64 {
        let each = 8 + 2 * u64::from(self.taps);
        (16 + u64::from(self.outputs) * each).next_multiple_of(SCRATCH_ALIGN)
    }
}

/// Tasks of one launch, and the scratch they share.
#[derive(Debug, Clone, Default)]
pub struct CropResizeBatch {
    channels: u32,
    tasks: Vec<CropResizeTask>,
    scratch_bytes: u64,
    is_placed: bool,
}

impl CropResizeBatch {
    /// A batch without tasks, for pixels of `channels` bytes, 1 or 3.
    #[must_use]
    pub fn new(channels: u32) -> Self {
        Self { channels, ..Self::default() }
    }

    /// Removes all tasks; memory for them is kept.
    pub fn clear(&mut self) {
        self.tasks.clear();
        (self.scratch_bytes, self.is_placed) = (0, false);
    }

    /// Adds a task if the batch's scratch then has at most `scratch_max` bytes; else leaves it out and says so.
    #[must_use]
    pub fn push(&mut self, task: CropResizeTask, scratch_max: u64) -> bool {
        let scratch_bytes = self.scratch_bytes.saturating_add(task.scratch_bytes(self.channels));
        if scratch_bytes > scratch_max || self.tasks.len() == TASKS_MAX {
            return false;
        }
        self.tasks.push(task);
        (self.scratch_bytes, self.is_placed) = (scratch_bytes, false);
        true
    }

    /// Gives every task its part of the scratch at `scratch`, [`scratch_bytes`](Self::scratch_bytes) of device memory.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] if it is not aligned to 16 bytes.
    pub fn place(&mut self, scratch: CUdeviceptr) -> Result<()> {
        if scratch == 0 || !scratch.is_multiple_of(SCRATCH_ALIGN) {
            let message = format!("scratch at {scratch:#x} is not aligned to {SCRATCH_ALIGN} bytes");
            return Err(Error::new(ErrorKind::InvalidOption, message));
        }
        let mut next = scratch;
        for task in &mut self.tasks {
            let mut part = |bytes: u64| {
                let start = next;
                next = next.saturating_add(bytes);
                start
            };
            task.middle = part(task.middle_bytes(self.channels));
            task.x.weights = part(task.x.weight_bytes());
            task.y.weights = part(task.y.weight_bytes());
        }
        self.is_placed = true;
        Ok(())
    }

    /// Bytes of scratch that all tasks need.
    #[must_use]
    pub fn scratch_bytes(&self) -> u64 {
        self.scratch_bytes
    }

    /// Bytes of a pixel.
    #[must_use]
    pub fn channels(&self) -> u32 {
        self.channels
    }

    /// Tasks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether there are no tasks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// The tasks as the GPU reads them: what must be copied there once they are [placed](Self::place).
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.tasks)
    }

    /// Launches of the three steps: weights, across, down; none if there is nothing to do.
    pub(super) fn grids(&self) -> Result<Option<[Grid; 3]>> {
        if self.tasks.is_empty() {
            return Ok(None);
        }
        if !self.is_placed {
            return Err(Error::new(ErrorKind::InvalidOption, "the tasks have no scratch yet: place the batch first"));
        }
        let count = self.tasks.len() as u32;
        let largest = |of: fn(&CropResizeTask) -> u32| self.tasks.iter().map(of).max().unwrap_or(1);
        let width = largest(|task| task.x.outputs);
        let (rows_in, rows_out) = (largest(|task| task.y.inputs), largest(|task| task.y.outputs));
        let byte_columns = width.saturating_mul(self.channels);
        // A thread keeps its column and walks down in steps of the grid's height, so that it looks its weights up once;
        // few steps for small pictures, and no more blocks than keep the GPU busy for large ones.
        let grid = |blocks, threads| Grid { blocks, threads, shared_bytes: 0 };
        Ok(Some([
            grid((2 * count, 1, 1), (256, 1, 1)),
            grid((width.div_ceil(32), rows_in.div_ceil(8).min(16), count), (32, 8, 1)),
            grid((byte_columns.div_ceil(64), rows_out.div_ceil(4).min(16), count), (64, 4, 1)),
        ]))
    }
}

/// The launch of `poison` and `probe`: a block a picture; none if there is none.
pub(super) fn probe_grid(count: u32) -> Option<Grid> {
    (count > 0).then_some(Grid { blocks: (count, 1, 1), threads: (256, 1, 1), shared_bytes: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::{Compose, SampleRng};

    const PICTURE: Picture = Picture { pixels: 0x1000, pitch: 1536, width: 500, height: 375, salt: 0 };

    fn resample(json: &str) -> SingleResample {
        let geometry = Compose::from_json(json).unwrap().geometry(500, 375, &mut SampleRng::new(0, 0, 0)).unwrap();
        geometry.as_single_resample().unwrap()
    }

    fn crop() -> SingleResample {
        resample(r#"[{"name": "CenterCrop", "size": [101, 203]}, {"name": "RandomVerticalFlip", "p": 1}]"#)
    }

    #[test]
    fn tasks_are_what_the_kernels_read() {
        assert_eq!((size_of::<CropResizeTask>(), size_of::<Axis>(), size_of::<Picture>()), (112, 40, 24));
        let task = CropResizeTask::new(&PICTURE, 3, &crop(), 0x77).unwrap();
        let SingleResample { window, .. } = crop();
        assert_eq!(task.window, 0x1000 + u64::from(window.y) * 1536 + u64::from(window.x) * 3);
        assert_eq!((task.row, task.mirrors, task.x.filter, task.x.taps, task.x.outputs), (0x77, 2, 0, 1, 203));
        // Rows of 609 bytes, 101 of them; 10 bytes an output and 16 more for either axis.
        assert_eq!(task.scratch_bytes(3), 61_520 + 2_048 + 1_040);
    }

    #[test]
    fn parts_of_the_scratch_do_not_overlap() {
        let task = CropResizeTask::new(&PICTURE, 3, &resample(r#"[{"name": "Resize", "size": 64}]"#), 0).unwrap();
        let mut batch = CropResizeBatch::new(3);
        assert!(batch.is_empty() && batch.grids().unwrap().is_none());
        let each = task.scratch_bytes(3);
        let pushed: Vec<bool> = (0..4).map(|_| batch.push(task, 3 * each)).collect();
        assert_eq!((pushed, batch.len(), batch.scratch_bytes()), (vec![true, true, true, false], 3, 3 * each));
        assert_eq!(batch.grids().unwrap_err().kind(), ErrorKind::InvalidOption);
        assert!(batch.place(0x101).is_err());
        batch.place(0x100).unwrap();
        let mut end = 0x100;
        for task in &batch.tasks {
            for (start, len) in [
                (task.middle, task.middle_bytes(3)),
                (task.x.weights, task.x.weight_bytes()),
                (task.y.weights, task.y.weight_bytes()),
            ] {
                assert_eq!((start, start % 16), (end, 0));
                end += len;
            }
        }
        assert_eq!((end, batch.bytes().len()), (0x100 + batch.scratch_bytes(), 3 * 112));
        batch.clear();
        assert!(batch.is_empty() && batch.scratch_bytes() == 0);
    }

    #[test]
    fn grids_cover_the_largest_picture() {
        let mut batch = CropResizeBatch::new(3);
        for json in [r#"[{"name": "Resize", "size": [20, 300]}]"#, r#"[{"name": "CenterCrop", "size": 90}]"#] {
            assert!(batch.push(CropResizeTask::new(&PICTURE, 3, &resample(json), 0).unwrap(), u64::MAX));
        }
        batch.place(16).unwrap();
        let blocks = batch.grids().unwrap().unwrap().map(|grid| grid.blocks);
        assert_eq!(blocks, [(4, 1, 1), (10, 16, 2), (15, 16, 2)]);
    }

    #[test]
    fn pictures_that_do_not_hold_the_window_are_refused() {
        let check = |picture: Picture, channels| {
            let error = CropResizeTask::new(&picture, channels, &crop(), 0).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidOption);
        };
        check(Picture { width: 300, ..PICTURE }, 3);
        check(Picture { height: 200, ..PICTURE }, 3);
        check(Picture { pitch: 1499, ..PICTURE }, 3);
        check(PICTURE, 4);
    }

    #[test]
    fn probes_stand_on_every_eighth_column_and_row_and_the_last() {
        let probes = |width, height| Picture { width, height, ..PICTURE }.probes();
        assert_eq!([probes(1, 1), probes(2, 1), probes(9, 9), probes(10, 9), probes(0, 9)], [1, 2, 4, 6, 0]);
    }
}
