//! Many samples in one contiguous host buffer: what a batch looks like, the memory it lives in, how rows become
//! columns. It decodes nothing and knows no threads; the loader fills what this module lends.

#[expect(unsafe_code, reason = "owned host memory and disjoint rows of one buffer for many threads")]
pub mod buffer;
mod collate;
mod array;

use std::fmt;

pub use array::DeviceArray;
pub use buffer::{BufferPool, HostAllocator, HostBuffer, HostMemory, PageableAllocator, Release, Slot, Slots};
pub use collate::{Column, RowValue, apart, collate};

pub use crate::sample::ArrayDtype as Dtype;
use crate::{Error, ErrorKind, Result};

/// Order of an image batch in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Layout {
    /// `[N, C, H, W]`, contiguous: torch's default.
    #[default]
    Nchw,
    /// `[N, C, H, W]` in shape, `[N, H, W, C]` in memory: torch's `channels_last`.
    ChannelsLast,
    /// `[N, H, W, C]`, contiguous.
    Nhwc,
}

impl Layout {
    /// Whether the channels of one pixel are neighbours in memory.
    #[must_use]
    pub fn is_interleaved(self) -> bool {
        !matches!(self, Self::Nchw)
    }
}

/// Shape, element type and memory order of the images of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSpec {
    /// Rows of a full batch.
    pub batch_size: usize,
    /// Height of an image in pixels.
    pub height: usize,
    /// Width of an image in pixels.
    pub width: usize,
    /// Channels of a pixel: 3 (RGB) or 1 (grey).
    pub channels: usize,
    /// `U8`, `F16`, `BF16` or `F32`.
    pub dtype: Dtype,
    /// Order in memory.
    pub layout: Layout,
}

impl BatchSpec {
    /// Bytes of one image.
    ///
    /// # Errors
    /// [`ErrorKind::Limit`] when the product does not fit in memory's address range.
    pub fn row_bytes(&self) -> Result<usize> {
        [self.height, self.width, self.channels, self.dtype.size_bytes()]
            .into_iter()
            .try_fold(1usize, usize::checked_mul)
            .ok_or_else(|| Error::new(ErrorKind::Limit, format!("an image of {self} does not fit in memory")))
    }

    /// Bytes of a full batch.
    ///
    /// # Errors
    /// [`ErrorKind::Limit`] when the product does not fit in memory's address range.
    pub fn batch_bytes(&self) -> Result<usize> {
        let bytes = self.row_bytes()?.checked_mul(self.batch_size).filter(|&bytes| bytes <= isize::MAX as usize);
        bytes.ok_or_else(|| {
            let message = format!("a batch of {} images of {self} does not fit in memory", self.batch_size);
            Error::new(ErrorKind::Limit, message).with_hint("use a smaller batch size")
        })
    }

    /// Shape and strides, in elements, of a batch of `rows` images.
    #[must_use]
    pub fn shape_and_strides(&self, rows: usize) -> (Vec<usize>, Vec<usize>) {
        let (h, w, c) = (self.height, self.width, self.channels);
        match self.layout {
            Layout::Nchw => (vec![rows, c, h, w], vec![c * h * w, h * w, w, 1]),
            Layout::ChannelsLast => (vec![rows, c, h, w], vec![c * h * w, 1, w * c, c]),
            Layout::Nhwc => (vec![rows, h, w, c], vec![c * h * w, w * c, c, 1]),
        }
    }
}

impl fmt::Display for BatchSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { width, height, channels, dtype, .. } = self;
        write!(f, "{width}x{height}, {channels} channels, {}", dtype.as_str())
    }
}

/// A dense tensor in host memory.
#[derive(Debug)]
pub struct HostTensor {
    /// The bytes, little-endian elements; may be longer than the tensor needs.
    pub data: HostBuffer,
    /// Element type.
    pub dtype: Dtype,
    /// Size of each dimension; the first is the batch.
    pub shape: Vec<usize>,
    /// Distance of neighbours along each dimension, in elements.
    pub strides: Vec<usize>,
}

impl HostTensor {
    /// A row-major tensor over `data`.
    ///
    /// # Errors
    /// [`ErrorKind::Limit`] when `data` is shorter than the shape needs.
    pub fn contiguous(data: HostBuffer, dtype: Dtype, shape: Vec<usize>) -> Result<Self> {
        let bytes = shape.iter().try_fold(dtype.size_bytes(), |bytes, &dim| bytes.checked_mul(dim));
        if bytes.is_none_or(|bytes| bytes > data.len()) {
            let message = format!("a tensor of shape {shape:?} needs more than {} bytes", data.len());
            return Err(Error::new(ErrorKind::Limit, message));
        }
        let strides = contiguous_strides(&shape);
        Ok(Self { data, dtype, shape, strides })
    }

    /// The bytes of the tensor, without what the buffer holds beyond them.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        let len = self.shape.iter().product::<usize>() * self.dtype.size_bytes();
        self.data.get(..len).unwrap_or_default()
    }
}

fn contiguous_strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i].max(1);
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(layout: Layout) -> BatchSpec {
        BatchSpec { batch_size: 8, height: 4, width: 5, channels: 3, dtype: Dtype::F32, layout }
    }

    #[test]
    fn strides_describe_the_layout() {
        assert_eq!(spec(Layout::Nchw).shape_and_strides(2), (vec![2, 3, 4, 5], vec![60, 20, 5, 1]));
        assert_eq!(spec(Layout::ChannelsLast).shape_and_strides(2), (vec![2, 3, 4, 5], vec![60, 1, 15, 3]));
        assert_eq!(spec(Layout::Nhwc).shape_and_strides(2), (vec![2, 4, 5, 3], vec![60, 15, 3, 1]));
        assert_eq!(contiguous_strides(&[2, 3, 4, 5]), vec![60, 20, 5, 1]);
    }

    #[test]
    fn a_batch_that_cannot_exist_is_an_error() {
        let huge = BatchSpec { batch_size: usize::MAX / 8, ..spec(Layout::Nchw) };
        assert_eq!(huge.batch_bytes().unwrap_err().kind(), ErrorKind::Limit);
        assert_eq!(spec(Layout::Nchw).batch_bytes().unwrap(), 8 * 4 * 5 * 3 * 4);
    }
}
