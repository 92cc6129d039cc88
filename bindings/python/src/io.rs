//! Single images for Python: bytes in, pixels out, on the calling thread. Batches never pass here.

use std::sync::Arc;

use brimful::batch::{BufferPool, Dtype, HostTensor, PageableAllocator};
use brimful::decode::{DecodeOptions, ImageDecoder};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::dataset::{backend, color_mode};
use crate::dlpack::Tensor;
use crate::error::{raise, raise_of_image};

/// Decodes one image into `[height, width, channels]`, `uint8`.
#[pyfunction]
#[pyo3(signature = (data, *, mode, decoder, exif))]
pub(crate) fn decode_image(
    py: Python<'_>,
    data: PyBackedBytes,
    mode: &str,
    decoder: &str,
    exif: bool,
) -> PyResult<Tensor> {
    let options = DecodeOptions { mode: color_mode(mode)?, backend: backend(decoder)?, exif, ..Default::default() };
    let decoder = ImageDecoder::new(options).map_err(raise)?;
    py.detach(|| decode(decoder, &data)).map(Tensor::new).map_err(raise_of_image)
}

fn decode(mut decoder: ImageDecoder, data: &[u8]) -> brimful::Result<HostTensor> {
    let pixels = decoder.decode(data, None)?;
    let shape = vec![pixels.height as usize, pixels.width as usize, usize::from(pixels.channels)];
    let row_bytes = pixels.row_bytes();
    let mut buffer = BufferPool::new(Arc::new(PageableAllocator), 0).take(shape.iter().product())?;
    for (place, row) in buffer.chunks_exact_mut(row_bytes.max(1)).zip(pixels.rows()) {
        place.copy_from_slice(row);
    }
    HostTensor::contiguous(buffer, Dtype::U8, shape)
}
