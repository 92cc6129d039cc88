//! What the normalise kernels are told: which of them serves a batch, over how many numbers, on what grid. It launches
//! nothing and is the same on every machine.

use super::Grid;
use crate::batch::{BatchSpec, Dtype, Layout};
use crate::{Error, ErrorKind, Result};

/// Threads of a block, as in `kernels/normalize.cu`.
pub(super) const THREADS: u32 = 512;

/// Bytes of a channel's table in shared memory, there.
const CHANNEL_BYTES: u32 = 256 * 16 * 4;

/// A kernel of `kernels/normalize.cu`: what becomes of the order, and how many bits a number has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it all")]
pub enum Variant {
    KeepPlanes8,
    KeepPlanes16,
    KeepPlanes32,
    PlanesFromPixels8,
    PlanesFromPixels16,
    PlanesFromPixels32,
    PixelsFromPlanes8,
    PixelsFromPlanes16,
    PixelsFromPlanes32,
    KeepPixels16,
    KeepPixels32,
}

impl Variant {
    /// Every kernel.
    pub const ALL: [Self; 11] = [
        Self::KeepPlanes8,
        Self::KeepPlanes16,
        Self::KeepPlanes32,
        Self::PlanesFromPixels8,
        Self::PlanesFromPixels16,
        Self::PlanesFromPixels32,
        Self::PixelsFromPlanes8,
        Self::PixelsFromPlanes16,
        Self::PixelsFromPlanes32,
        Self::KeepPixels16,
        Self::KeepPixels32,
    ];

    /// Its name in the compiled file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::KeepPlanes8 => "normalize_keep_planes_8",
            Self::KeepPlanes16 => "normalize_keep_planes_16",
            Self::KeepPlanes32 => "normalize_keep_planes_32",
            Self::PlanesFromPixels8 => "normalize_planes_from_pixels_8",
            Self::PlanesFromPixels16 => "normalize_planes_from_pixels_16",
            Self::PlanesFromPixels32 => "normalize_planes_from_pixels_32",
            Self::PixelsFromPlanes8 => "normalize_pixels_from_planes_8",
            Self::PixelsFromPlanes16 => "normalize_pixels_from_planes_16",
            Self::PixelsFromPlanes32 => "normalize_pixels_from_planes_32",
            Self::KeepPixels16 => "normalize_keep_pixels_16",
            Self::KeepPixels32 => "normalize_keep_pixels_32",
        }
    }

    pub(super) fn index(self) -> usize {
        self as usize
    }

    /// Bytes of shared memory that a block uses, for images of `channels` channels; 48 KiB at most.
    pub(super) fn shared_bytes(self, channels: u32) -> u32 {
        match self {
            Self::KeepPlanes8 | Self::PlanesFromPixels8 => 0,
            Self::PixelsFromPlanes8 => THREADS * 48,
            // The table has half the copies there.
            Self::PixelsFromPlanes16 | Self::PixelsFromPlanes32 => THREADS * 48 + 3 * CHANNEL_BYTES / 2,
            _ => channels * CHANNEL_BYTES,
        }
    }

    /// Numbers, or pixels where the order changes, that a block does at a time.
    fn tile(self) -> u32 {
        match self {
            Self::KeepPlanes8 | Self::PlanesFromPixels8 | Self::PixelsFromPlanes8 => THREADS * 16,
            Self::KeepPlanes16 | Self::KeepPixels16 => THREADS * 3 * 8,
            Self::KeepPlanes32 | Self::KeepPixels32 => THREADS * 4 * 4,
            _ => THREADS * 8,
        }
    }
}

/// Images of bytes into rows of a batch: a kernel and the numbers that it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NormalizeTask {
    variant: Variant,
    rows: u32,
    plane: u32,
    channels: u32,
    tiles: u32,
    row_bytes: usize,
    image_bytes: usize,
}

impl NormalizeTask {
    /// The task that makes `rows` rows of a batch of `spec` from as many images that lie as `source` says; of it,
    /// [`Layout::ChannelsLast`] and [`Layout::Nhwc`] are the same.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] for other dtypes than `U8`, `F16`, `BF16` and `F32` and other channels than 1 and 3,
    /// [`ErrorKind::Limit`] for images or batches of more numbers than the kernels count.
    pub fn new(spec: &BatchSpec, rows: usize, source: Layout) -> Result<Self> {
        let bits = match spec.dtype {
            Dtype::U8 => 8,
            Dtype::F16 | Dtype::BF16 => 16,
            Dtype::F32 => 32,
            dtype => return Err(Error::new(ErrorKind::InvalidOption, format!("the GPU makes no batches of {dtype}"))),
        };
        let too_large = || {
            let message = format!("{rows} images of {spec} are more than a GPU batch can hold");
            Error::new(ErrorKind::Limit, message).with_hint("use a smaller batch size")
        };
        let row_bytes = spec.row_bytes()?;
        let image_bytes = row_bytes / spec.dtype.size_bytes();
        let plane = spec.height * spec.width;
        if !matches!(spec.channels, 1 | 3) {
            let message = format!("images have 1 or 3 channels, not {}", spec.channels);
            return Err(Error::new(ErrorKind::InvalidOption, message));
        }
        let (from_pixels, to_pixels) = (source.is_interleaved(), spec.layout.is_interleaved());
        let is_kept = spec.channels == 1 || from_pixels == to_pixels;
        let (variant, plane, channels) = match (is_kept, bits, from_pixels) {
            // Bytes that stay as they are: one long plane.
            (true, 8, _) => (Variant::KeepPlanes8, image_bytes, 1),
            (true, 16, true) if spec.channels == 3 => (Variant::KeepPixels16, plane, 3),
            (true, _, true) if spec.channels == 3 => (Variant::KeepPixels32, plane, 3),
            (true, 16, _) => (Variant::KeepPlanes16, plane, spec.channels),
            (true, ..) => (Variant::KeepPlanes32, plane, spec.channels),
            (false, 8, true) => (Variant::PlanesFromPixels8, plane, 3),
            (false, 16, true) => (Variant::PlanesFromPixels16, plane, 3),
            (false, _, true) => (Variant::PlanesFromPixels32, plane, 3),
            (false, 8, false) => (Variant::PixelsFromPlanes8, plane, 3),
            (false, 16, false) => (Variant::PixelsFromPlanes16, plane, 3),
            (false, _, false) => (Variant::PixelsFromPlanes32, plane, 3),
        };
        let (run, runs) = match variant {
            Variant::KeepPlanes8 | Variant::KeepPlanes16 | Variant::KeepPlanes32 => (plane, channels),
            Variant::KeepPixels16 | Variant::KeepPixels32 => (image_bytes, 1),
            _ => (plane, 1),
        };
        // The kernels count the numbers of an image, a tile beyond them, and all tiles of a launch, in 32 bits.
        let counted = |count: usize| i32::try_from(count).ok().and_then(|count| u32::try_from(count).ok());
        counted(image_bytes).ok_or_else(too_large)?;
        let tiles = rows.checked_mul(runs).and_then(|runs| runs.checked_mul(run.div_ceil(variant.tile() as usize)));
        let tiles = tiles.and_then(counted).ok_or_else(too_large)?;
        let rows = counted(rows).ok_or_else(too_large)?;
        Ok(Self { variant, rows, plane: plane as u32, channels: channels as u32, tiles, row_bytes, image_bytes })
    }

    /// The kernel.
    #[must_use]
    pub fn variant(&self) -> Variant {
        self.variant
    }

    /// Images, and rows of the batch.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows as usize
    }

    /// Bytes of an image.
    #[must_use]
    pub fn source_bytes(&self) -> usize {
        self.image_bytes
    }

    /// Bytes of all rows.
    #[must_use]
    pub fn out_bytes(&self) -> usize {
        self.row_bytes.saturating_mul(self.rows())
    }

    /// Rows, numbers of a plane, planes: the kernel's parameters.
    pub(super) fn counts(&self) -> [u32; 3] {
        [self.rows, self.plane, self.channels]
    }

    /// The launch on a GPU that can run `resident` blocks at once; none if there is nothing to do.
    ///
    /// Blocks walk over the tiles, so more than can run at once would only lay out more tables.
    pub(super) fn grid(&self, resident: u32) -> Option<Grid> {
        let shared_bytes = self.variant.shared_bytes(self.channels);
        let blocks = (self.tiles.min(resident.max(1)), 1, 1);
        (self.tiles > 0).then_some(Grid { blocks, threads: (THREADS, 1, 1), shared_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(side: usize, channels: usize, dtype: Dtype, layout: Layout) -> BatchSpec {
        BatchSpec { batch_size: 4, height: side, width: side, channels, dtype, layout }
    }

    #[test]
    fn each_batch_has_its_kernel() {
        use Layout::{ChannelsLast, Nchw, Nhwc};
        let check = |channels, dtype, source, layout, expected, counts| {
            let task = NormalizeTask::new(&spec(10, channels, dtype, layout), 4, source).unwrap();
            assert_eq!((task.variant(), task.counts()), (expected, counts));
        };
        check(3, Dtype::U8, Nhwc, ChannelsLast, Variant::KeepPlanes8, [4, 300, 1]);
        check(3, Dtype::U8, Nchw, Nchw, Variant::KeepPlanes8, [4, 300, 1]);
        check(1, Dtype::U8, Nchw, Nhwc, Variant::KeepPlanes8, [4, 100, 1]);
        check(3, Dtype::U8, Nhwc, Nchw, Variant::PlanesFromPixels8, [4, 100, 3]);
        check(3, Dtype::BF16, Nhwc, Nchw, Variant::PlanesFromPixels16, [4, 100, 3]);
        check(3, Dtype::F16, Nhwc, ChannelsLast, Variant::KeepPixels16, [4, 100, 3]);
        check(3, Dtype::F32, Nhwc, Nhwc, Variant::KeepPixels32, [4, 100, 3]);
        check(3, Dtype::F32, Nchw, Nchw, Variant::KeepPlanes32, [4, 100, 3]);
        check(3, Dtype::F32, Nchw, Nhwc, Variant::PixelsFromPlanes32, [4, 100, 3]);
        check(1, Dtype::F32, Nhwc, Nchw, Variant::KeepPlanes32, [4, 100, 1]);
        check(1, Dtype::BF16, Nhwc, Nhwc, Variant::KeepPlanes16, [4, 100, 1]);
    }

    #[test]
    fn a_grid_fills_the_gpu_and_no_more() {
        let task = |rows| NormalizeTask::new(&spec(224, 3, Dtype::F32, Layout::Nchw), rows, Layout::Nhwc).unwrap();
        let blocks = |rows| task(rows).grid(264).map(|grid| grid.blocks);
        // A tile is 4096 pixels: 13 of them an image.
        assert_eq!(
            [blocks(0), blocks(1), blocks(2), blocks(1024)],
            [None, Some(13), Some(26), Some(264)].map(|b| b.map(|b| (b, 1, 1)))
        );
        let grid = task(1).grid(264).unwrap();
        assert_eq!((grid.threads, grid.shared_bytes), ((512, 1, 1), 48 * 1024));
        assert_eq!((task(3).source_bytes(), task(3).out_bytes()), (150_528, 3 * 602_112));
    }

    #[test]
    fn no_kernel_asks_for_more_shared_memory_than_every_gpu_grants() {
        for (index, variant) in Variant::ALL.into_iter().enumerate() {
            assert!(variant.shared_bytes(3) <= 48 * 1024 && variant.index() == index, "{variant:?}");
        }
    }

    #[test]
    fn what_the_kernels_cannot_count_is_an_error() {
        let check = |rows, side, channels, dtype, expected| {
            let error = NormalizeTask::new(&spec(side, channels, dtype, Layout::Nchw), rows, Layout::Nhwc).unwrap_err();
            assert_eq!(error.kind(), expected);
        };
        check(1, 50_000, 3, Dtype::U8, ErrorKind::Limit);
        check(usize::MAX, 224, 3, Dtype::U8, ErrorKind::Limit);
        check(1 << 31, 1, 3, Dtype::U8, ErrorKind::Limit);
        check(1, 8, 4, Dtype::U8, ErrorKind::InvalidOption);
        check(1, 8, 3, Dtype::F64, ErrorKind::InvalidOption);
    }
}
