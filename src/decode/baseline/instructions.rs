//! Which instructions the processor has: the one place where a fast path is chosen over its plain twin.
//!
//! It computes nothing itself. Every function here does the same with all instructions, to the last bit.

use super::advance;
use super::header::BLOCK;
use super::idct::{self, BlockRow};
use super::lanes::Lane;
use super::stuffing::{self, Pass};
#[cfg(target_arch = "x86_64")]
use super::x86;
use super::{color, upsample};

/// A choice that the processor can run.
///
/// Invariant: `Avx2` is only made where AVX2, BMI1, BMI2, LZCNT and MOVBE are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Instructions(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// All by the book, a symbol at a time: what the others are compared with.
    #[cfg(test)]
    Plain,
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

/// Calls the function of [`x86`] or its plain twin.
macro_rules! choose {
    ($self:ident, $fast:expr, $plain:expr) => {
        match $self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the functions of `x86` need the instructions that the type's invariant names, and nothing else.
            Kind::Avx2 => unsafe { $fast },
            #[cfg(test)]
            Kind::Plain => $plain,
            Kind::Scalar => $plain,
        }
    };
}

impl Instructions {
    /// The reference: as `SCALAR`, and symbols by the book.
    #[cfg(test)]
    pub(super) const PLAIN: Self = Self(Kind::Plain);

    /// Those of any processor: the plain twins, a block and a row at a time.
    pub(crate) const SCALAR: Self = Self(Kind::Scalar);

    /// The best that this processor has.
    pub(crate) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("movbe")
        {
            return Self(Kind::Avx2);
        }
        Self::SCALAR
    }

    /// All that this processor has, for tests that compare them.
    #[cfg(test)]
    pub(crate) fn all() -> Vec<Self> {
        let mut all = vec![Self::SCALAR, Self::detect()];
        all.dedup();
        all
    }

    /// Whether functions that need AVX2 may be called.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn have_avx2(self) -> bool {
        self.0 == Kind::Avx2
    }

    pub(super) fn copy_data(self, scan: &[u8], bytes: &mut [u8], pass: &mut Pass) {
        choose!(self, x86::copy_data(scan, bytes, pass), stuffing::copy_data(scan, bytes, pass));
    }

    /// Decodes until one of the lanes stops.
    pub(super) fn advance<const N: usize>(self, lanes: [&mut Lane; N]) {
        #[cfg(test)]
        if self == Self::PLAIN {
            return lanes.into_iter().for_each(Lane::advance_by_the_book);
        }
        choose!(self, x86::advance(lanes), advance::advance(lanes));
    }

    pub(super) fn transform(
        self,
        row: &[i16],
        blocks: BlockRow,
        quantiser: &[i16; BLOCK],
        samples: &mut [u8],
        stride: usize,
    ) -> bool {
        choose!(
            self,
            x86::transform(row, blocks, quantiser, samples, stride),
            idct::transform(row, blocks, quantiser, samples, stride)
        )
    }

    pub(super) fn across(self, near: &[u8], wide: &mut [u8]) {
        choose!(self, x86::across(near, wide), upsample::across(near, wide));
    }

    pub(super) fn down(self, near: &[u8], far: &[u8], is_upper: bool, out: &mut [u8]) {
        choose!(self, x86::down(near, far, is_upper, out), upsample::down(near, far, is_upper, out));
    }

    pub(super) fn both(self, near: &[u8], far: &[u8], sums: &mut [u16], wide: &mut [u8]) {
        choose!(self, x86::both(near, far, sums, wide), upsample::both(near, far, sums, wide));
    }

    pub(super) fn rgb_planes(self, ycc: [&[u8]; 3], rgb: [&mut [u8]; 3]) {
        choose!(self, x86::rgb_planes(ycc, rgb), color::rgb_planes(ycc, rgb));
    }

    pub(crate) fn interleave(self, planes: [&[u8]; 3], pixels: &mut [u8]) {
        choose!(self, x86::interleave(planes, pixels), color::interleave(planes, pixels));
    }
}
