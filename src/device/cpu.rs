//! Finished pixels into a row of a host batch: converted, normalised and laid out on the host. It is what the device
//! kernels are compared with; it holds no memory of its own.

use super::table::NumberTable;
use crate::batch::{BatchSpec, Dtype, Layout};
use crate::transform::{ValueOps, ValueTable};
use crate::{Error, ErrorKind, Result};

/// Writes images of one [`BatchSpec`] into rows of a batch. Cheap to share between threads.
#[derive(Debug, Clone)]
pub struct RowWriter {
    spec: BatchSpec,
    numbers: Numbers,
}

/// What the bytes of an image become.
#[derive(Debug, Clone)]
enum Numbers {
    Bytes,
    Floats(ValueTable),
    /// `float16` or `bfloat16`.
    Halves(NumberTable),
}

impl RowWriter {
    /// A writer for rows of `spec`, whose numbers follow `ops`.
    ///
    /// # Errors
    /// As [`NumberTable::new`].
    pub fn new(spec: BatchSpec, ops: &ValueOps) -> Result<Self> {
        let numbers = match NumberTable::new(ops, spec.dtype, spec.channels)? {
            None => Numbers::Bytes,
            Some(_) if spec.dtype == Dtype::F32 => {
                Numbers::Floats(ValueTable::new(ops, u8::try_from(spec.channels).unwrap_or(u8::MAX))?)
            }
            Some(table) => Numbers::Halves(table),
        };
        Ok(Self { spec, numbers })
    }

    /// Whether a row is the image's own bytes, `[H, W, C]`: then a resampler may write into the row directly.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        matches!(self.numbers, Numbers::Bytes) && self.spec.layout.is_interleaved()
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
        let misaligned = || Error::new(ErrorKind::Limit, format!("a row of {} is not aligned", self.spec.dtype));
        match &self.numbers {
            Numbers::Bytes if layout.is_interleaved() => row.copy_from_slice(hwc),
            Numbers::Bytes => deinterleave(hwc, channels, row),
            Numbers::Floats(table) => {
                let floats = bytemuck::try_cast_slice_mut(row).map_err(|_| misaligned())?;
                let (width, height) = (width as u32, height as u32);
                match layout.is_interleaved() {
                    true => table.apply_hwc(hwc, width, height, floats)?,
                    false => table.apply_chw(hwc, width, height, floats)?,
                }
            }
            Numbers::Halves(table) => {
                let halves: &mut [u16] = bytemuck::try_cast_slice_mut(row).map_err(|_| misaligned())?;
                write_halves(table, hwc, layout, halves);
            }
        }
        Ok(())
    }
}

/// Writes the halves that `table` gives for an image; both slices have its length.
fn write_halves(table: &NumberTable, hwc: &[u8], layout: Layout, halves: &mut [u16]) {
    let channels = table.channels();
    let plane_len = hwc.len() / channels.max(1);
    for channel in 0..channels {
        let Some(numbers) = table.channel(channel) else { continue };
        let bytes = hwc.iter().skip(channel).step_by(channels);
        let look_up = |(half, &byte): (&mut u16, &u8)| *half = numbers[usize::from(byte)] as u16;
        match layout.is_interleaved() {
            true => halves.iter_mut().skip(channel).step_by(channels).zip(bytes).for_each(look_up),
            false => halves.iter_mut().skip(channel * plane_len).take(plane_len).zip(bytes).for_each(look_up),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::table::{bf16_bits, f16_bits};
    use crate::transform::{self, Normalize};

    #[test]
    fn every_dtype_and_layout_holds_the_transforms_values() {
        let normalize =
            |channels| Normalize { mean: vec![0.4; channels], std: (1..=channels).map(|i| i as f32).collect() };
        for (channels, layout, dtype) in [1, 3].into_iter().flat_map(|channels| {
            let layouts = [Layout::Nchw, Layout::Nhwc, Layout::ChannelsLast];
            let dtypes = [Dtype::U8, Dtype::F16, Dtype::BF16, Dtype::F32];
            layouts.into_iter().flat_map(move |layout| dtypes.map(|dtype| (channels, layout, dtype)))
        }) {
            let (height, width) = (5, 7);
            let spec = BatchSpec { batch_size: 1, height, width, channels, dtype, layout };
            let ops = match dtype {
                Dtype::U8 => ValueOps::default(),
                _ => ValueOps {
                    dtype: transform::Dtype::F32,
                    scale: true,
                    normalize: Some(normalize(channels)),
                    ..ValueOps::default()
                },
            };
            let hwc: Vec<u8> = (0..height * width * channels).map(|i| (i * 37 % 256) as u8).collect();
            let mut row = vec![0_u32; spec.row_bytes().unwrap().div_ceil(4)];
            let row: &mut [u8] = &mut bytemuck::cast_slice_mut(&mut row)[..spec.row_bytes().unwrap()];
            RowWriter::new(spec, &ops).unwrap().write(&hwc, row).unwrap();
            for (i, &pixel) in hwc.iter().enumerate() {
                let (pixel_at, channel) = (i / channels, i % channels);
                let at = if layout.is_interleaved() { i } else { channel * height * width + pixel_at };
                let value = ops.value(pixel, channel);
                let expected = match dtype {
                    Dtype::U8 => vec![pixel],
                    Dtype::F16 => f16_bits(value).to_ne_bytes().to_vec(),
                    Dtype::BF16 => bf16_bits(value).to_ne_bytes().to_vec(),
                    _ => value.to_ne_bytes().to_vec(),
                };
                assert_eq!(&row[at * expected.len()..][..expected.len()], expected, "{spec} {layout:?} {i}");
            }
        }
    }

    #[test]
    fn rows_of_another_size_or_dtype_are_errors() {
        let spec =
            BatchSpec { batch_size: 1, height: 2, width: 2, channels: 3, dtype: Dtype::F16, layout: Layout::Nchw };
        let writer = RowWriter::new(spec, &ValueOps::default()).unwrap();
        assert!(!writer.is_plain());
        assert_eq!(writer.write(&[0; 12], &mut [0; 23]).unwrap_err().kind(), ErrorKind::Limit);
        assert_eq!(writer.write(&[0; 11], &mut [0; 24]).unwrap_err().kind(), ErrorKind::Limit);
        let doubles = BatchSpec { dtype: Dtype::F64, ..spec };
        assert_eq!(RowWriter::new(doubles, &ValueOps::default()).unwrap_err().kind(), ErrorKind::InvalidOption);
    }
}
