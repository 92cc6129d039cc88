//! Finished pixels into a row of a host batch: converted, normalised and laid out on the host. It is what the device
//! kernels are compared with; it holds no memory of its own.

use crate::batch::{BatchSpec, Dtype, Layout};
use crate::transform::{self, ValueOps, ValueTable};
use crate::{Error, ErrorKind, Result};

/// Writes images of one [`BatchSpec`] into rows of a batch. Cheap to share between threads.
#[derive(Debug, Clone)]
pub struct RowWriter {
    spec: BatchSpec,
    table: Option<ValueTable>,
}

impl RowWriter {
    /// A writer for rows of `spec`, whose numbers follow `ops`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] when `ops` asks for float arithmetic and `spec` for bytes, or the other way round.
    pub fn new(spec: BatchSpec, ops: &ValueOps) -> Result<Self> {
        let table = match (spec.dtype, ops.dtype) {
            (Dtype::U8, transform::Dtype::U8) => None,
            (Dtype::F32, _) => Some(ValueTable::new(ops, u8::try_from(spec.channels).unwrap_or(u8::MAX))?),
            (dtype, _) => {
                let message = format!("a batch of {dtype} cannot hold the values that the transform makes");
                let hint = "use dtype float32, or leave ToTensor and Normalize out of the transform";
                return Err(Error::new(ErrorKind::InvalidOption, message).with_hint(hint));
            }
        };
        Ok(Self { spec, table })
    }

    /// Whether a row is the image's own bytes, `[H, W, C]`: then a resampler may write into the row directly.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.table.is_none() && self.spec.layout.is_interleaved()
    }

    /// Writes one image.
    ///
    /// `hwc` is `[height, width, channels]` u8, contiguous; `row` is one row of the batch in its dtype and layout.
    ///
    /// # Errors
    /// [`ErrorKind::Limit`] when either slice has not the size that the spec gives.
    pub fn write(&self, hwc: &[u8], row: &mut [u8]) -> Result<()> {
        let BatchSpec { width, height, channels, layout, .. } = self.spec;
        if hwc.len() != width * height * channels || row.len() != self.spec.row_bytes()? {
            let message = format!("an image of {} bytes is no row of {}", hwc.len(), self.spec);
            return Err(Error::new(ErrorKind::Limit, message));
        }
        match (&self.table, layout) {
            (None, Layout::Nchw) => deinterleave(hwc, channels, row),
            (None, _) => row.copy_from_slice(hwc),
            (Some(table), layout) => {
                let floats = bytemuck::try_cast_slice_mut(row)
                    .map_err(|_| Error::new(ErrorKind::Limit, "a row of floats is not aligned to 4 bytes"))?;
                let (width, height) = (width as u32, height as u32);
                match layout.is_interleaved() {
                    true => table.apply_hwc(hwc, width, height, floats)?,
                    false => table.apply_chw(hwc, width, height, floats)?,
                }
            }
        }
        Ok(())
    }
}

fn deinterleave(hwc: &[u8], channels: usize, planes: &mut [u8]) {
    let pixels = hwc.len() / channels.max(1);
    for (channel, plane) in planes.chunks_exact_mut(pixels.max(1)).enumerate() {
        for (value, pixel) in plane.iter_mut().zip(hwc.chunks_exact(channels)) {
            *value = pixel[channel];
        }
    }
}
