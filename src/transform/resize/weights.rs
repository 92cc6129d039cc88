//! The weights of the bilinear filter along one axis, as whole numbers, made once for each geometry.
//!
//! They are fast_image_resize's to the last bit, so that a picture is the same whichever path resamples it.

use super::super::single::ResampledAxis;

/// Bits that a weight may have with its sign, and bits that a sum of weighted samples leaves for fractions.
const WEIGHT_BITS: u32 = 15;
const PRECISION_MAX: u32 = 22;

/// For each output which inputs it is made of, and how much of each.
///
/// Invariants: `starts` and `counts` have an entry for each output and `weights` has `taps`, an even number, with zeros
/// behind the first `counts`; the inputs of an output, `starts..starts + counts`, exist.
#[derive(Debug, Default)]
pub(super) struct Weights {
    pub(super) starts: Vec<usize>,
    pub(super) counts: Vec<usize>,
    pub(super) weights: Vec<i16>,
    pub(super) taps: usize,
    /// Bits of a weight's fraction.
    pub(super) precision: u32,
    exact: Vec<f64>,
}

impl Weights {
    /// Those of `axis`, in the order of the outputs or, mirrored, in the opposite one.
    pub(super) fn set(&mut self, axis: &ResampledAxis, is_mirrored: bool) {
        self.starts.clear();
        self.counts.clear();
        self.exact.clear();
        for number in 0..axis.outputs {
            let output = if is_mirrored { axis.outputs - 1 - number } else { number };
            self.add(axis, output);
        }
        let greatest = self.exact.iter().copied().fold(0.0, f64::max);
        let is_too_large =
            |bits: u32| (greatest * f64::from(1_u32 << (bits + 1))).round() >= f64::from(1 << WEIGHT_BITS);
        self.precision = (0..PRECISION_MAX).find(|&bits| is_too_large(bits)).unwrap_or(PRECISION_MAX - 1);
        self.taps = self.counts.iter().copied().max().unwrap_or(0).next_multiple_of(2);
        self.weights.clear();
        self.weights.resize(self.taps * self.counts.len(), 0);
        let one = f64::from(1_u32 << self.precision);
        let mut exact = &self.exact[..];
        for (weights, &count) in self.weights.chunks_exact_mut(self.taps.max(1)).zip(&self.counts) {
            let (of_this, rest) = exact.split_at(count);
            weights.iter_mut().zip(of_this).for_each(|(weight, exact)| *weight = (exact * one).round() as i16);
            exact = rest;
        }
    }

    fn add(&mut self, axis: &ResampledAxis, output: u32) {
        if !axis.is_scaled {
            self.starts.push(axis.start as usize + output as usize);
            self.counts.push(1);
            self.exact.push(1.0);
            return;
        }
        let scale = (axis.end - axis.start) / f64::from(axis.outputs);
        let radius = scale.max(1.0);
        let narrowing = 1.0 / radius;
        let centre = axis.start + (f64::from(output) + 0.5) * scale;
        let first = (centre - radius).floor().max(0.0) as usize;
        let end = (centre + radius).ceil().min(f64::from(axis.inputs)) as usize;
        let weight = |input: usize| (1.0 - ((input as f64 - (centre - 0.5)) * narrowing).abs()).max(0.0);
        let start = (first..end).find(|&input| weight(input) != 0.0).unwrap_or(first);
        let end = (start..end).rev().find(|&input| weight(input) != 0.0).map_or(start, |last| last + 1);
        let sum: f64 = (start..end).fold(0.0, |sum, input| sum + weight(input));
        self.starts.push(start);
        self.counts.push(end - start);
        self.exact.extend((start..end).map(|input| weight(input) / sum));
    }

    /// The weights of one output.
    #[inline(always)]
    pub(super) fn of(&self, output: usize) -> &[i16] {
        &self.weights[output * self.taps..][..self.taps]
    }
}
