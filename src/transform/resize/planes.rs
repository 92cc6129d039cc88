//! Bilinear resampling of planes, as our own JPEG decoder makes them: across, then down, then pixels of three bytes.
//!
//! It gives the bytes that fast_image_resize gives, in less time, because neighbours of one colour lie side by side.
//! Other filters, borders and mere copies are not its business.

use super::super::single::SingleResample;
use super::weights::Weights;
#[cfg(target_arch = "x86_64")]
use super::x86::{self, Reach};
use crate::decode::{Instructions, Planes};

/// Samples that are handled at once: lines are a whole number of them long.
pub(super) const CHUNK: usize = 32;

/// Resamples planes; keeps its buffers.
#[derive(Debug)]
pub(super) struct PlaneResampler {
    instructions: Instructions,
    x: Weights,
    y: Weights,
    /// The planes resampled across: `[3, height, line]`.
    across: Vec<u8>,
    /// A row of each, resampled down.
    lines: [Vec<u8>; 3],
    #[cfg(target_arch = "x86_64")]
    steps: x86::Steps,
}

impl Default for PlaneResampler {
    fn default() -> Self {
        Self::with(Instructions::detect())
    }
}

impl PlaneResampler {
    pub(super) fn with(instructions: Instructions) -> Self {
        Self {
            instructions,
            x: Weights::default(),
            y: Weights::default(),
            across: Vec::new(),
            lines: Default::default(),
            #[cfg(target_arch = "x86_64")]
            steps: x86::Steps::default(),
        }
    }

    /// Writes what `resample` makes of its window, which `planes` is, to `out`: `[outputs down, outputs across, 3]`.
    pub(super) fn run(&mut self, planes: &Planes<'_>, resample: &SingleResample, out: &mut [u8]) {
        self.x.set(&resample.x, resample.mirror_x);
        self.y.set(&resample.y, resample.mirror_y);
        let width = resample.x.outputs as usize;
        let line = width.next_multiple_of(CHUNK);
        let plane = line * planes.height as usize;
        if self.across.len() < 3 * plane {
            self.across = vec![0; 3 * plane];
        }
        for line_of_plane in self.lines.iter_mut().filter(|buffer| buffer.len() < line) {
            *line_of_plane = vec![0; line];
        }
        self.resample_across(planes, line);
        let Self { instructions, y, across, lines, .. } = self;
        let mut planes = across.chunks_exact(plane);
        let (Some(red), Some(green), Some(blue)) = (planes.next(), planes.next(), planes.next()) else { return };
        for (output, row) in out.chunks_exact_mut(3 * width).enumerate() {
            for (plane, out) in [red, green, blue].into_iter().zip(&mut *lines) {
                resample_down(*instructions, plane, y, output, &mut out[..line]);
            }
            instructions.interleave(lines.each_ref().map(|line| &line[..]), row);
        }
    }

    fn resample_across(&mut self, planes: &Planes<'_>, line: usize) {
        let Self { instructions, x, across, .. } = self;
        #[cfg(target_arch = "x86_64")]
        if instructions.have_avx2() {
            let reach = self.steps.set(x, planes.stride);
            for (plane, out) in (0..3).zip(across.chunks_exact_mut(line * planes.height as usize)) {
                let plane = planes.plane(plane);
                // SAFETY: the functions of `x86` need AVX2, and nothing else.
                unsafe {
                    match reach {
                        Reach::Near => x86::across(plane, planes.stride, &self.steps, out, line, x.precision),
                        Reach::Far => x86::across_far(plane, planes.stride, &self.steps, out, line, x.precision),
                        Reach::Short => across_plainly(plane, planes.stride, x, out, line),
                    }
                }
            }
            return;
        }
        let _ = instructions;
        for (plane, out) in (0..3).zip(across.chunks_exact_mut(line * planes.height as usize)) {
            across_plainly(planes.plane(plane), planes.stride, x, out, line);
        }
    }
}

/// One row of outputs from the rows of `plane`.
fn resample_down(instructions: Instructions, plane: &[u8], weights: &Weights, output: usize, out: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if instructions.have_avx2() {
        // SAFETY: the function needs AVX2, and nothing else.
        return unsafe { x86::down(plane, weights, output, out) };
    }
    let _ = instructions;
    down_plainly(plane, weights, output, out);
}

/// Each row of `plane`, `stride` apart, to `line` samples of `out`; inlined so that its callers choose the instructions.
#[inline(always)]
pub(super) fn across_plainly(plane: &[u8], stride: usize, weights: &Weights, out: &mut [u8], line: usize) {
    for (row, out) in plane.chunks_exact(stride).zip(out.chunks_exact_mut(line)) {
        for (output, sample) in out.iter_mut().take(weights.starts.len()).enumerate() {
            let inputs = &row[weights.starts[output]..][..weights.counts[output]];
            *sample = weighted(inputs.iter().copied(), weights.of(output), weights.precision);
        }
    }
}

/// Row `output` of the rows of `plane`, each as long as `out`.
pub(super) fn down_plainly(plane: &[u8], weights: &Weights, output: usize, out: &mut [u8]) {
    let line = out.len();
    let rows = &plane[weights.starts[output] * line..];
    for (column, sample) in out.iter_mut().enumerate() {
        let inputs = rows[column..].iter().step_by(line).take(weights.counts[output]);
        *sample = weighted(inputs.copied(), weights.of(output), weights.precision);
    }
}

/// The weighted sum, rounded.
#[inline(always)]
fn weighted(inputs: impl Iterator<Item = u8>, weights: &[i16], precision: u32) -> u8 {
    let half = 1_i32 << precision >> 1;
    let sum = inputs.zip(weights).fold(half, |sum, (input, &weight)| sum + i32::from(input) * i32::from(weight));
    (sum >> precision).clamp(0, 255) as u8
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::{Compose, Resampler, SampleRng};
    use super::*;
    use crate::decode::{Pixels, Region};

    /// Resamples noise as planes and as pixels; both must be the same bytes.
    fn check(json: &str, width: u32, height: u32, seed: u64) {
        let geometry = Compose::from_json(json).unwrap();
        let geometry = geometry.geometry(width, height, &mut SampleRng::new(seed, 0, 0)).unwrap();
        let source = geometry.source;
        let stride = (source.width as usize).next_multiple_of(Planes::ALIGNMENT);
        let mut noise = seed as u32 | 1;
        let data: Vec<u8> = (0..3 * stride * source.height as usize)
            .map(|_| {
                noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                // Often black or white, where sums are clipped.
                ((noise >> 16) as u16 % 320).saturating_sub(32).min(255) as u8
            })
            .collect();
        let planes = Planes::new(&data, source, stride).unwrap();
        let mut pixels = Vec::new();
        planes.to_pixels(&mut pixels);
        let pixels = Pixels::packed(&pixels, Region { ..source }, 3).unwrap();
        let (rows, columns) = geometry.output_size();
        let mut expected = vec![0; rows as usize * columns as usize * 3];
        Resampler::new().apply(&pixels, &geometry, &mut expected).unwrap();
        for instructions in Instructions::all() {
            let mut resampler = Resampler { planes: PlaneResampler::with(instructions), ..Resampler::new() };
            let mut out = vec![7; expected.len()];
            resampler.apply_planes(&planes, &geometry, &mut out).unwrap();
            assert!(out == expected, "{json} of {width}x{height}, {instructions:?}");
        }
    }

    #[test]
    fn usual_crops_are_the_same_bytes_as_fast_image_resizes() {
        for (number, (width, height)) in [(500, 375), (333, 500), (1300, 200), (90, 70)].into_iter().enumerate() {
            let crop = r#"[{"name": "RandomResizedCrop", "size": 224}, {"name": "RandomHorizontalFlip"}]"#;
            check(crop, width, height, number as u64);
            let middle = r#"[{"name": "Resize", "size": 64}, {"name": "CenterCrop", "size": 48}, {"name": "RandomVerticalFlip", "p": 1}]"#;
            check(middle, width, height, number as u64);
        }
    }

    #[test]
    fn what_planes_do_not_take_is_done_as_pixels() {
        check(r#"[{"name": "CenterCrop", "size": 40}]"#, 60, 50, 1);
        check(r#"[{"name": "Resize", "size": 40, "interpolation": "bicubic"}]"#, 60, 50, 1);
    }

    proptest! {
        #[test]
        fn all_sizes_are_the_same_bytes(
            (width, height) in (1..400_u32, 1..60_u32),
            (rows, columns) in (1..50_u32, 1..90_u32),
            flip: bool,
            seed: u64,
        ) {
            let flip = if flip { 1 } else { 0 };
            let json = format!(
                r#"[{{"name": "RandomResizedCrop", "size": [{rows}, {columns}]}},
                    {{"name": "RandomHorizontalFlip", "p": {flip}}}, {{"name": "RandomVerticalFlip"}}]"#
            );
            check(&json, width, height, seed);
        }
    }
}
