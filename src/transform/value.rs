//! What happens to the numbers after the geometry: scaling to [0, 1], normalisation, dtype.
//!
//! It defines the values, to the last bit of `f32`; batches, half precision and the GPU are for others to make
//! from them.

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind, Result};

/// The type of the output's numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Dtype {
    /// 0 to 255.
    #[serde(rename = "uint8")]
    U8,
    /// 32-bit floating point.
    #[default]
    #[serde(rename = "float32")]
    F32,
}

/// What a pixel's number becomes, in this order: scaled, normalised.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueOps {
    /// Whether no entry says anything about numbers: torchvision would hand out a PIL image.
    pub picture: bool,
    /// Type of the result.
    pub dtype: Dtype,
    /// Whether [0, 255] becomes [0, 1].
    pub scale: bool,
    /// Whether scaling multiplies by the `f32` nearest to 1/255, as torchvision v2 does, instead of dividing
    /// by 255: the results differ in the last bit.
    pub reciprocal: bool,
    /// Subtraction and division after the scaling.
    pub normalize: Option<Normalize>,
}

/// `(x - mean) / std`, in `f32`; one value for each channel or one for all.
#[derive(Debug, Clone, PartialEq)]
pub struct Normalize {
    /// What is subtracted.
    pub mean: Vec<f32>,
    /// What is divided by; none is 0.
    pub std: Vec<f32>,
}

impl Default for ValueOps {
    /// A picture of `u8`, numbers as they are.
    fn default() -> Self {
        Self { picture: true, dtype: Dtype::U8, scale: false, reciprocal: false, normalize: None }
    }
}

impl ValueOps {
    /// What `pixel` of channel number `channel` becomes: the plain form of [`ValueTable`].
    #[must_use]
    pub fn value(&self, pixel: u8, channel: usize) -> f32 {
        let mut value = f32::from(pixel);
        if self.scale {
            value = if self.reciprocal { value * (1.0 / 255.0) } else { value / 255.0 };
        }
        if let Some(Normalize { mean, std }) = &self.normalize {
            let of = |values: &[f32]| values.get(channel).or(values.first()).copied();
            value = (value - of(mean).unwrap_or(0.0)) / of(std).unwrap_or(1.0);
        }
        value
    }
}

/// [`ValueOps`] for each channel and each of the 256 numbers a pixel can have.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueTable {
    channels: Box<[[f32; 256]]>,
}

impl ValueTable {
    /// The table for images of `channels` channels, 1 or 3.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`] for another number of channels, and if `ops` normalises a different number.
    pub fn new(ops: &ValueOps, channels: u8) -> Result<Self> {
        if !matches!(channels, 1 | 3) {
            return Err(Error::new(ErrorKind::InvalidOption, format!("images have 1 or 3 channels, not {channels}")));
        }
        if let Some(Normalize { mean, std }) = &ops.normalize {
            for (name, values) in [("mean", mean), ("std", std)] {
                if values.len() != 1 && values.len() != usize::from(channels) {
                    let message =
                        format!("Normalize has {} values of {name} for images of {channels} channels", values.len());
                    return Err(Error::new(ErrorKind::InvalidOption, message)
                        .with_hint("give one value for each channel, or one for all"));
                }
            }
        }
        let table = |channel| std::array::from_fn(|pixel| ops.value(pixel as u8, channel));
        Ok(Self { channels: (0..usize::from(channels)).map(table).collect() })
    }

    /// Channels of the images that the table is for.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.channels.len()
    }

    /// The value of `pixel` in channel number `channel`, which must exist.
    #[must_use]
    pub fn row(&self, channel: usize) -> Option<&[f32; 256]> {
        self.channels.get(channel)
    }

    /// All values, `[channels][256]`, channel after channel.
    #[must_use]
    pub fn entries(&self) -> &[f32] {
        self.channels.as_flattened()
    }

    /// Turns `[height, width, channels]`, `u8`, into `[channels, height, width]`, `f32`, both contiguous.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`] if a slice is not exactly so long.
    pub fn apply_chw(&self, hwc: &[u8], width: u32, height: u32, out: &mut [f32]) -> Result<()> {
        let plane_len = self.check(hwc, width, height, out)?;
        match &*self.channels {
            [red, green, blue] => {
                let (reds, rest) = out.split_at_mut(plane_len);
                let (greens, blues) = rest.split_at_mut(plane_len);
                let planes = reds.iter_mut().zip(greens).zip(blues);
                for (((r, g), b), &[pixel_r, pixel_g, pixel_b]) in planes.zip(hwc.as_chunks::<3>().0) {
                    *r = red[usize::from(pixel_r)];
                    *g = green[usize::from(pixel_g)];
                    *b = blue[usize::from(pixel_b)];
                }
            }
            _ => self.apply_interleaved(hwc, out),
        }
        Ok(())
    }

    /// Turns `[height, width, channels]`, `u8`, into the same shape of `f32`, both contiguous.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`] if a slice is not exactly so long.
    pub fn apply_hwc(&self, hwc: &[u8], width: u32, height: u32, out: &mut [f32]) -> Result<()> {
        self.check(hwc, width, height, out)?;
        self.apply_interleaved(hwc, out);
        Ok(())
    }

    fn apply_interleaved(&self, hwc: &[u8], out: &mut [f32]) {
        match &*self.channels {
            [red, green, blue] => {
                for (value, &[pixel_r, pixel_g, pixel_b]) in
                    out.as_chunks_mut::<3>().0.iter_mut().zip(hwc.as_chunks::<3>().0)
                {
                    *value = [red[usize::from(pixel_r)], green[usize::from(pixel_g)], blue[usize::from(pixel_b)]];
                }
            }
            [grey] => {
                for (value, &pixel) in out.iter_mut().zip(hwc) {
                    *value = grey[usize::from(pixel)];
                }
            }
            _ => {}
        }
    }

    /// Pixels of a plane, if both slices hold exactly an image.
    fn check(&self, hwc: &[u8], width: u32, height: u32, out: &[f32]) -> Result<usize> {
        let plane_len = u64::from(width) * u64::from(height);
        let expected = plane_len.saturating_mul(self.channels() as u64);
        if hwc.len() as u64 == expected && out.len() as u64 == expected {
            return Ok(plane_len as usize);
        }
        Err(Error::new(
            ErrorKind::InvalidOption,
            format!(
                "an image of {width}x{height} with {} channels has {expected} numbers, not {} in and {} out",
                self.channels(),
                hwc.len(),
                out.len()
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imagenet() -> ValueOps {
        let normalize = Normalize { mean: vec![0.485, 0.456, 0.406], std: vec![0.229, 0.224, 0.225] };
        ValueOps { picture: false, dtype: Dtype::F32, scale: true, reciprocal: false, normalize: Some(normalize) }
    }

    #[test]
    fn tables_equal_the_formula_to_the_last_bit() {
        let ops = imagenet();
        let table = ValueTable::new(&ops, 3).unwrap();
        let (width, height) = (37, 11);
        let hwc: Vec<u8> = (0..width * height * 3).map(|i| (i * 7 % 256) as u8).collect();
        let mut chw = vec![0.0; hwc.len()];
        let mut same_shape = chw.clone();
        table.apply_chw(&hwc, width, height, &mut chw).unwrap();
        table.apply_hwc(&hwc, width, height, &mut same_shape).unwrap();
        let plane = (width * height) as usize;
        for (i, &pixel) in hwc.iter().enumerate() {
            let (at, channel) = (i / 3, i % 3);
            let (mean, std) = ([0.485_f32, 0.456, 0.406][channel], [0.229_f32, 0.224, 0.225][channel]);
            let expected = ((f32::from(pixel) / 255.0) - mean) / std;
            assert_eq!(chw[channel * plane + at].to_bits(), expected.to_bits());
            assert_eq!(same_shape[i].to_bits(), expected.to_bits());
        }
    }

    #[test]
    fn grey_images_and_plain_scaling_work() {
        let ops = ValueOps { normalize: None, reciprocal: true, ..imagenet() };
        let table = ValueTable::new(&ops, 1).unwrap();
        let hwc = [0, 1, 100, 255];
        let mut out = [0.0; 4];
        table.apply_chw(&hwc, 2, 2, &mut out).unwrap();
        assert_eq!(out, hwc.map(|pixel| f32::from(pixel) * (1.0_f32 / 255.0)));
        let ops = ValueOps::default();
        assert_eq!(ValueTable::new(&ops, 3).unwrap().row(2).map(|row| row[200]), Some(200.0));
    }

    #[test]
    fn wrong_lengths_and_channels_are_errors() {
        let table = ValueTable::new(&imagenet(), 3).unwrap();
        assert!(table.apply_chw(&[0; 11], 2, 2, &mut [0.0; 12]).is_err());
        assert!(table.apply_hwc(&[0; 12], 2, 2, &mut [0.0; 13]).is_err());
        assert!(table.apply_hwc(&[0; 12], u32::MAX, u32::MAX, &mut [0.0; 12]).is_err());
        assert!(ValueTable::new(&imagenet(), 1).is_err());
        assert!(ValueTable::new(&imagenet(), 4).is_err());
    }
}
