//! What each byte of each channel becomes in a batch: the transform's values, rounded to the batch's dtype. Host and
//! GPU look numbers up here and calculate none, so they cannot differ in a bit.

use half::{bf16, f16};

use crate::batch::Dtype;
use crate::transform::{self, ValueOps, ValueTable};
use crate::{Error, ErrorKind, Result};

/// Numbers of a batch for each channel and each of the 256 bytes that a pixel can hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumberTable {
    dtype: Dtype,
    /// `[channels][256]`; the number's bits are the low ones of each word.
    words: Box<[u32]>,
}

impl NumberTable {
    /// The table for images of `channels` channels, 1 or 3; none if a batch of `dtype` holds the bytes themselves.
    ///
    /// Halves are rounded to the nearest, ties to even, from the `f32` that [`ValueTable`] gives.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] when `dtype` cannot hold the values that `ops` makes, and as [`ValueTable::new`].
    pub fn new(ops: &ValueOps, dtype: Dtype, channels: usize) -> Result<Option<Self>> {
        let bits: fn(f32) -> u32 = match (dtype, ops.dtype) {
            (Dtype::U8, transform::Dtype::U8) => return Ok(None),
            (Dtype::F32, _) => f32::to_bits,
            (Dtype::F16, _) => |value| u32::from(f16_bits(value)),
            (Dtype::BF16, _) => |value| u32::from(bf16_bits(value)),
            _ => {
                let message = format!("a batch of {dtype} cannot hold the values that the transform makes");
                let hint =
                    "use dtype float32, float16 or bfloat16, or leave ToTensor and Normalize out of the transform";
                return Err(Error::new(ErrorKind::InvalidOption, message).with_hint(hint));
            }
        };
        let values = ValueTable::new(ops, u8::try_from(channels).unwrap_or(u8::MAX))?;
        Ok(Some(Self { dtype, words: values.entries().iter().map(|&value| bits(value)).collect() }))
    }

    /// Type of the numbers.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Channels of the images that the table is for.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.words.len() / 256
    }

    /// `[channels][256]`, channel after channel, as the GPU reads it: the number's bits are the low ones of each word.
    #[must_use]
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// The words of one channel.
    pub(super) fn channel(&self, channel: usize) -> Option<&[u32; 256]> {
        self.words.as_chunks().0.get(channel)
    }
}

/// The bits of the `float16` nearest to `value`, ties to even.
#[must_use]
pub fn f16_bits(value: f32) -> u16 {
    f16::from_f32(value).to_bits()
}

/// The bits of the `bfloat16` nearest to `value`, ties to even.
#[must_use]
pub fn bf16_bits(value: f32) -> u16 {
    bf16::from_f32(value).to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::Normalize;

    /// Rounds by the definition: of the numbers whose bits are `low` and `low + 1`, the nearer, or the even one.
    fn nearest(value: f32, low: u16, number: impl Fn(u16) -> f64) -> u16 {
        let (below, above) = (f64::from(value) - number(low), number(low + 1) - f64::from(value));
        if below < above || below == above && low.is_multiple_of(2) { low } else { low + 1 }
    }

    /// What positive finite bits of a `float16` mean; the first of infinity count as the number they would be.
    fn f16_number(bits: u16) -> f64 {
        let (exponent, fraction) = (i32::from(bits >> 10), f64::from(bits & 0x3ff));
        match exponent {
            0 => fraction * 2f64.powi(-24),
            _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
        }
    }

    #[test]
    fn halves_are_the_nearest_with_ties_to_even() {
        // Every number, every middle between two, and what lies next to them.
        for low in 0..0x7c00_u16 {
            let middle = ((f16_number(low) + f16_number(low + 1)) / 2.0) as f32;
            for value in [middle.next_down(), middle, middle.next_up(), f16_number(low) as f32] {
                assert_eq!(f16_bits(value), nearest(value, low, f16_number), "{value}");
                assert_eq!(f16_bits(-value), nearest(value, low, f16_number) | 0x8000, "-{value}");
            }
        }
        let bf16_number = |bits: u16| f64::from(f32::from_bits(u32::from(bits) << 16));
        for low in 0..0x7f7f_u16 {
            let middle = ((bf16_number(low) + bf16_number(low + 1)) / 2.0) as f32;
            for value in [middle.next_down(), middle, middle.next_up(), bf16_number(low) as f32] {
                assert_eq!(bf16_bits(value), nearest(value, low, bf16_number), "{value}");
                assert_eq!(bf16_bits(-value), nearest(value, low, bf16_number) | 0x8000, "-{value}");
            }
        }
    }

    #[test]
    fn what_no_half_can_hold_becomes_infinite_and_nan_stays_nan() {
        assert_eq!([65_519.0, 65_520.0, f32::INFINITY].map(f16_bits), [0x7bff, 0x7c00, 0x7c00]);
        assert_eq!([f32::MAX, f32::NEG_INFINITY].map(bf16_bits), [0x7f80, 0xff80]);
        assert!(f16::from_bits(f16_bits(f32::NAN)).is_nan() && bf16::from_bits(bf16_bits(f32::NAN)).is_nan());
        // A NaN whose few bits would all be rounded away.
        let faint = f32::from_bits(0x7f80_0001);
        assert!(f16::from_bits(f16_bits(faint)).is_nan() && bf16::from_bits(bf16_bits(faint)).is_nan());
    }

    #[test]
    fn a_table_holds_the_transforms_values_in_the_batchs_dtype() {
        let normalize = Normalize { mean: vec![0.485, 0.456, 0.406], std: vec![0.229, 0.224, 0.225] };
        let ops =
            ValueOps { dtype: transform::Dtype::F32, scale: true, normalize: Some(normalize), ..ValueOps::default() };
        let check = |dtype, bits: fn(f32) -> u32| {
            let table = NumberTable::new(&ops, dtype, 3).unwrap().unwrap();
            assert_eq!((table.dtype(), table.channels(), table.words().len()), (dtype, 3, 768));
            for (i, &word) in table.words().iter().enumerate() {
                assert_eq!(word, bits(ops.value((i % 256) as u8, i / 256)));
            }
        };
        check(Dtype::F32, f32::to_bits);
        check(Dtype::F16, |value| u32::from(f16::from_f32(value).to_bits()));
        check(Dtype::BF16, |value| u32::from(bf16::from_f32(value).to_bits()));
        let hint = NumberTable::new(&ops, Dtype::U8, 3).unwrap_err();
        assert_eq!(hint.kind(), ErrorKind::InvalidOption);
        assert_eq!(NumberTable::new(&ValueOps::default(), Dtype::U8, 3).unwrap(), None);
        assert!(NumberTable::new(&ops, Dtype::F16, 4).is_err());
    }
}
