//! Pixels to the coefficients of a baseline JPEG file: colours, smaller chroma, cosine transform, quantisation.
//!
//! It writes nothing. All arithmetic is in `f32` and in a fixed order, so that the same pixels make the same coefficients on
//! every machine; loops over eight numbers are the compiler's to make fast.

use super::coefficients::{Coefficients, Planes};
use super::jpeg::PixelKind;

/// The standard's tables (annex K) for quality 50, in rows of eight.
const LUMA: [u8; 64] = [
    16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22, 29, 51,
    87, 80, 62, 18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92, 49, 64, 78, 87, 103, 121, 120, 101,
    72, 92, 95, 98, 112, 100, 103, 99,
];
const CHROMA: [u8; 64] = [
    17, 18, 24, 47, 99, 99, 99, 99, 18, 21, 26, 66, 99, 99, 99, 99, 24, 26, 56, 99, 99, 99, 99, 99, 47, 66, 99, 99, 99,
    99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
    99, 99, 99, 99, 99, 99,
];

/// By how much the outputs of a one-dimensional transform here are larger than those of the standard's.
const SCALES: [f64; 8] =
    [1.0, 1.387_039_845, 1.306_562_965, 1.175_875_602, 1.0, 0.785_694_958, 0.541_196_100, 0.275_899_379];

/// What coefficients are divided by, in rows of eight, at one quality.
pub(super) struct Quantisation {
    pub(super) table: [u8; 64],
    /// One over the table, with what the transform leaves undone, columns first.
    factors: [[f32; 8]; 8],
}

impl Quantisation {
    /// The tables for luma and chroma at a quality on libjpeg's scale, 1 to 100.
    pub(super) fn at(quality: u8) -> [Self; 2] {
        let quality = u32::from(quality);
        let scale = if quality < 50 { 5000 / quality } else { 200 - 2 * quality };
        [LUMA, CHROMA].map(|standard| {
            let table = standard.map(|step| ((u32::from(step) * scale + 50) / 100).clamp(1, 255) as u8);
            let factor = |column: usize, row: usize| {
                1.0 / (f64::from(table[row * 8 + column]) * 8.0 * SCALES[column] * SCALES[row])
            };
            let factors = std::array::from_fn(|column| std::array::from_fn(|row| factor(column, row) as f32));
            Self { table, factors }
        })
    }
}

/// Samples of one plane, a row of blocks at a time: as many as a row of MCUs needs, rows one after the other.
#[derive(Default)]
struct Lines {
    samples: Vec<f32>,
    width: usize,
}

impl Lines {
    fn new(width: usize, rows: usize) -> Self {
        Self { samples: vec![0.0; width * rows], width }
    }

    fn row(&mut self, row: usize) -> &mut [f32] {
        &mut self.samples[row * self.width..(row + 1) * self.width]
    }

    /// Repeats the last of `filled` samples of a row up to its end.
    fn pad(&mut self, row: usize, filled: usize) {
        let row = self.row(row);
        let last = row[filled - 1];
        row[filled..].fill(last);
    }

    /// Halves the width, by means of two neighbours, and the height too where `h` and `v` are 2.
    fn shrink(&self, (h, v): (usize, usize), out: &mut Self) {
        let share = 1.0 / (h * v) as f32;
        for (number, out) in out.samples.chunks_exact_mut(self.width / h).enumerate() {
            let rows = &self.samples[number * v * self.width..];
            for (column, out) in out.iter_mut().enumerate() {
                let mut sum = 0.0;
                for row in 0..v {
                    sum += rows[row * self.width + column * h..][..h].iter().sum::<f32>();
                }
                *out = sum * share;
            }
        }
    }

    /// Transforms the blocks that lie in these lines, from block row `row` of the plane on.
    fn transform(&self, quantisation: &Quantisation, blocks: &mut [Coefficients]) {
        let across = self.width / 8;
        for (number, out) in blocks.iter_mut().enumerate() {
            let start = number / across * 8 * self.width + number % across * 8;
            let rows = std::array::from_fn(|row| {
                let samples = &self.samples[start + row * self.width..];
                std::array::from_fn(|column| samples[column])
            });
            *out = transform(rows, quantisation);
        }
    }
}

/// Fills all planes with the coefficients of `pixels`: `[height, width, channels]`, `u8`, row-major.
pub(super) fn fill(planes: &mut Planes, pixels: &[u8], width: usize, kind: PixelKind, tables: &[Quantisation; 2]) {
    let (h, v) = planes.factors();
    let (columns, rows) = planes.mcus();
    let line = columns * 8 * h;
    let mut full: [Lines; 3] = std::array::from_fn(|_| Lines::new(line, 8 * v));
    let mut small: [Lines; 2] = std::array::from_fn(|_| Lines::new(line / h, 8));
    let height = pixels.len() / (width * kind.channels());
    for mcu_row in 0..rows {
        for row in 0..8 * v {
            // The last row again below the picture.
            let y = (mcu_row * 8 * v + row).min(height - 1);
            let pixels = &pixels[y * width * kind.channels()..][..width * kind.channels()];
            match kind {
                PixelKind::Grey => {
                    let shifted = pixels.iter().map(|&value| f32::from(value) - 128.0);
                    full[0].row(row).iter_mut().zip(shifted).for_each(|(out, value)| *out = value);
                    full[0].pad(row, width);
                }
                PixelKind::Rgb => {
                    let [luma, blue, red] = &mut full;
                    split_colors(pixels, [luma.row(row), blue.row(row), red.row(row)]);
                    full.iter_mut().for_each(|lines| lines.pad(row, width));
                }
            }
        }
        full[0].transform(&tables[0], planes.block_rows(0, mcu_row));
        if kind == PixelKind::Rgb {
            for (plane, (full, small)) in full[1..].iter().zip(&mut small).enumerate() {
                let lines = if (h, v) == (1, 1) {
                    full
                } else {
                    full.shrink((h, v), small);
                    small
                };
                lines.transform(&tables[1], planes.block_rows(plane + 1, mcu_row));
            }
        }
    }
}

/// Pixels that are taken apart at once.
const CHUNK: usize = 16;

/// Red, green and blue to luma, less 128, and the two differences of colour.
fn split_colors(pixels: &[u8], [luma, blue, red]: [&mut [f32]; 3]) {
    let mut chunks = pixels.chunks_exact(3 * CHUNK);
    let mut start = 0;
    for chunk in chunks.by_ref() {
        let channel = |channel: usize| -> [f32; CHUNK] { std::array::from_fn(|at| f32::from(chunk[3 * at + channel])) };
        let (r, g, b) = (channel(0), channel(1), channel(2));
        for at in 0..CHUNK {
            luma[start + at] = luma_of(r[at], g[at], b[at]);
        }
        for at in 0..CHUNK {
            blue[start + at] = blue_of(r[at], g[at], b[at]);
        }
        for at in 0..CHUNK {
            red[start + at] = red_of(r[at], g[at], b[at]);
        }
        start += CHUNK;
    }
    for (at, pixel) in chunks.remainder().chunks_exact(3).enumerate() {
        let [r, g, b] = [0, 1, 2].map(|channel| f32::from(pixel[channel]));
        luma[start + at] = luma_of(r, g, b);
        blue[start + at] = blue_of(r, g, b);
        red[start + at] = red_of(r, g, b);
    }
}

#[inline(always)]
fn luma_of(r: f32, g: f32, b: f32) -> f32 {
    0.299 * r + 0.587 * g + 0.114 * b - 128.0
}

#[inline(always)]
fn blue_of(r: f32, g: f32, b: f32) -> f32 {
    -0.168_735_89 * r - 0.331_264_1 * g + 0.5 * b
}

#[inline(always)]
fn red_of(r: f32, g: f32, b: f32) -> f32 {
    0.5 * r - 0.418_687_6 * g - 0.081_312_41 * b
}

/// Eight numbers that are handled alike.
type Lane = [f32; 8];

#[inline(always)]
fn add(a: Lane, b: Lane) -> Lane {
    std::array::from_fn(|lane| a[lane] + b[lane])
}

#[inline(always)]
fn sub(a: Lane, b: Lane) -> Lane {
    std::array::from_fn(|lane| a[lane] - b[lane])
}

#[inline(always)]
fn times(a: Lane, factor: f32) -> Lane {
    a.map(|value| value * factor)
}

/// The cosine transform of eight lanes at once, along the first axis, after Arai, Agui and Nakajima: five multiplications,
/// the rest is done by quantisation.
#[inline(always)]
fn cosines(s: [Lane; 8]) -> [Lane; 8] {
    let (t0, t7) = (add(s[0], s[7]), sub(s[0], s[7]));
    let (t1, t6) = (add(s[1], s[6]), sub(s[1], s[6]));
    let (t2, t5) = (add(s[2], s[5]), sub(s[2], s[5]));
    let (t3, t4) = (add(s[3], s[4]), sub(s[3], s[4]));

    let (t10, t13) = (add(t0, t3), sub(t0, t3));
    let (t11, t12) = (add(t1, t2), sub(t1, t2));
    let z1 = times(add(t12, t13), std::f32::consts::FRAC_1_SQRT_2);

    let (o10, o11, o12) = (add(t4, t5), add(t5, t6), add(t6, t7));
    let z5 = times(sub(o10, o12), 0.382_683_43);
    let z2 = add(times(o10, 0.541_196_1), z5);
    let z4 = add(times(o12, 1.306_563), z5);
    let z3 = times(o11, std::f32::consts::FRAC_1_SQRT_2);
    let (z11, z13) = (add(t7, z3), sub(t7, z3));

    [add(t10, t11), add(z11, z4), add(t13, z1), sub(z13, z2), sub(t10, t11), add(z13, z2), sub(t13, z1), sub(z11, z4)]
}

#[inline(always)]
fn transpose(rows: [Lane; 8]) -> [Lane; 8] {
    std::array::from_fn(|column| std::array::from_fn(|row| rows[row][column]))
}

/// The quantised coefficients of a block of samples, in rows of eight.
fn transform(rows: [Lane; 8], quantisation: &Quantisation) -> Coefficients {
    // Down, then across: after the turn between them the first axis is that of the columns.
    let columns = cosines(transpose(cosines(rows)));
    let mut out = [0; 64];
    for (column, (values, factors)) in columns.iter().zip(&quantisation.factors).enumerate() {
        let rounded: [i32; 8] = std::array::from_fn(|row| nearest(values[row] * factors[row]));
        for (row, value) in rounded.into_iter().enumerate() {
            // Rounding may lead beyond what baseline has.
            out[row * 8 + column] = value.clamp(-1023, 1023) as i16;
        }
    }
    out
}

/// The nearest whole number of one that is smaller than a million.
#[inline(always)]
fn nearest(value: f32) -> i32 {
    // Beyond 2^23 an `f32` has no fraction: adding so much leaves the rounded number in the low bits.
    const SHIFT: f32 = 12_582_912.0;
    (value + SHIFT).to_bits() as i32 - SHIFT.to_bits() as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The transform as the standard writes it down.
    fn plainly(samples: &[[f32; 8]; 8], table: &[u8; 64]) -> [f64; 64] {
        let share = |frequency: usize| if frequency == 0 { std::f64::consts::FRAC_1_SQRT_2 } else { 1.0 };
        let cosine =
            |at: usize, frequency: usize| ((2 * at + 1) as f64 * frequency as f64 * std::f64::consts::PI / 16.0).cos();
        std::array::from_fn(|place| {
            let (v, u) = (place / 8, place % 8);
            let mut sum = 0.0;
            for (y, row) in samples.iter().enumerate() {
                for (x, &sample) in row.iter().enumerate() {
                    sum += f64::from(sample) * cosine(x, u) * cosine(y, v);
                }
            }
            sum * share(u) * share(v) / 4.0 / f64::from(table[place])
        })
    }

    proptest! {
        #[test]
        fn the_transform_is_that_of_the_standard(samples: [[u8; 8]; 8], quality in 1_u8..=100) {
            let [tables, _] = Quantisation::at(quality);
            let samples = samples.map(|row| row.map(|sample| f32::from(sample) - 128.0));
            let expected = plainly(&samples, &tables.table);
            let found = transform(samples, &tables);
            for (found, expected) in found.iter().zip(expected) {
                let expected = expected.clamp(-1023.0, 1023.0);
                prop_assert!((f64::from(*found) - expected).abs() < 0.501, "{found} {expected}");
            }
        }

        #[test]
        fn numbers_are_rounded_to_the_nearest(value in -5000.0_f32..5000.0) {
            prop_assert_eq!(nearest(value), value.round_ties_even() as i32);
        }
    }

    #[test]
    fn tables_are_those_of_libjpeg() {
        let first = |quality| Quantisation::at(quality).map(|quantisation| quantisation.table[0]);
        assert_eq!([1, 25, 50, 90, 100].map(first), [[255, 255], [32, 34], [16, 17], [3, 3], [1, 1]]);
    }
}
