//! The fast twins for processors with AVX2; no pointer is touched here.

use std::arch::x86_64::*;

use super::planes::CHUNK;
use super::weights::Weights;

/// Outputs that are made at once, in groups of four.
const UNIT: usize = 16;
/// Inputs that a group may reach over.
const WINDOW: usize = 16;
/// Outputs that are made at once where each has windows of its own.
const FAR_UNIT: usize = 8;

/// How to resample across: for each unit of outputs the windows that its groups read, and for each two taps how the
/// inputs are brought to their weights.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// Where the windows of the four groups of a unit begin; each ends inside the row.
    windows: Vec<[usize; 4]>,
    /// For each unit, a step for each two taps.
    steps: Vec<Step>,
    pairs: usize,
    far: Far,
}

/// The same where groups reach too far: each output has one window or several, all as many.
#[derive(Debug, Default)]
struct Far {
    /// Where the first window of each output begins; the last ends inside the row. A whole number of units.
    starts: Vec<usize>,
    /// A weight for each input of each window.
    weights: Vec<[i16; WINDOW]>,
    windows: usize,
}

/// Which of the twins takes rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// [`across`]
    Near,
    /// [`across_far`]
    Far,
    /// Rows are too short for windows.
    Short,
}

/// Two taps of sixteen outputs: groups 0 and 2, then groups 1 and 3, so that packing brings them into order.
#[derive(Debug, Clone, Copy)]
struct Step {
    shuffles: [[u8; 32]; 2],
    weights: [[i16; 16]; 2],
}

impl Steps {
    /// Those of `weights` for rows of `stride` samples.
    pub(super) fn set(&mut self, weights: &Weights, stride: usize) -> Reach {
        if stride >= WINDOW && self.set_near(weights, stride) {
            return Reach::Near;
        }
        if self.far.set(weights, stride) { Reach::Far } else { Reach::Short }
    }

    /// False if a group reaches too far.
    fn set_near(&mut self, weights: &Weights, stride: usize) -> bool {
        let outputs = weights.starts.len();
        self.pairs = weights.taps / 2;
        self.windows.clear();
        self.steps.clear();
        for unit in (0..outputs).step_by(UNIT) {
            let mut windows = [0; 4];
            let empty = Step { shuffles: [[0x80; 32]; 2], weights: [[0; 16]; 2] };
            let first_step = self.steps.len();
            self.steps.resize(first_step + self.pairs, empty);
            for (group, window) in windows.iter_mut().enumerate() {
                let members = (unit + 4 * group).min(outputs)..(unit + 4 * group + 4).min(outputs);
                let Some(start) = weights.starts[members.clone()].iter().min() else { continue };
                *window = (*start).min(stride - WINDOW);
                for (place, output) in members.enumerate() {
                    let offset = weights.starts[output] - *window;
                    if offset + weights.counts[output] > WINDOW {
                        return false;
                    }
                    let (half, lane) = (group % 2, group / 2);
                    for tap in 0..weights.counts[output] {
                        let step = &mut self.steps[first_step + tap / 2];
                        let at = 8 * lane + 2 * place + tap % 2;
                        step.shuffles[half][2 * at] = (offset + tap) as u8;
                        step.weights[half][at] = weights.of(output)[tap];
                    }
                }
            }
            self.windows.push(windows);
        }
        true
    }
}

impl Far {
    /// False if rows are too short.
    fn set(&mut self, weights: &Weights, stride: usize) -> bool {
        self.windows = weights.taps.div_ceil(WINDOW);
        let span = self.windows * WINDOW;
        let outputs = weights.starts.len();
        if stride < span {
            return false;
        }
        self.starts.clear();
        self.weights.clear();
        self.weights.resize(outputs.next_multiple_of(FAR_UNIT) * self.windows, [0; WINDOW]);
        for (output, own) in self.weights.chunks_exact_mut(self.windows).take(outputs).enumerate() {
            let start = weights.starts[output].min(stride - span);
            let offset = weights.starts[output] - start;
            let count = weights.counts[output];
            own.as_flattened_mut()[offset..][..count].copy_from_slice(&weights.of(output)[..count]);
            self.starts.push(start);
        }
        self.starts.resize(outputs.next_multiple_of(FAR_UNIT), 0);
        true
    }
}

#[target_feature(enable = "avx2")]
fn vector(bytes: [u8; 32]) -> __m256i {
    bytemuck::cast(bytes)
}

/// Each row of `plane`, `stride` apart, to `line` samples of `out`.
#[target_feature(enable = "avx2")]
pub(super) fn across(plane: &[u8], stride: usize, steps: &Steps, out: &mut [u8], line: usize, precision: u32) {
    for (unit, (windows, steps)) in steps.windows.iter().zip(steps.steps.chunks_exact(steps.pairs)).enumerate() {
        let job = Job { plane, stride, windows: *windows, line, at: UNIT * unit, precision };
        match steps {
            [_] => job.run::<1>(steps, out),
            [_, _] => job.run::<2>(steps, out),
            [_, _, _] => job.run::<3>(steps, out),
            _ => job.run_many(steps, out),
        }
    }
}

/// One unit of outputs in every row.
struct Job<'a> {
    plane: &'a [u8],
    stride: usize,
    windows: [usize; 4],
    line: usize,
    at: usize,
    precision: u32,
}

impl Job<'_> {
    /// With steps so few that they stay in registers.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn run<const PAIRS: usize>(&self, steps: &[Step], out: &mut [u8]) {
        let Some(steps) = steps.first_chunk::<PAIRS>() else { return };
        let shift = _mm_cvtsi32_si128(self.precision as i32);
        let mut shuffles = [[_mm256_setzero_si256(); 2]; PAIRS];
        let mut weights = shuffles;
        for (i, step) in steps.iter().enumerate() {
            shuffles[i] = [vector(step.shuffles[0]), vector(step.shuffles[1])];
            weights[i] = [bytemuck::cast(step.weights[0]), bytemuck::cast(step.weights[1])];
        }
        let half = _mm256_set1_epi32(1 << self.precision >> 1);
        for (row, out) in self.plane.chunks_exact(self.stride).zip(out.chunks_exact_mut(self.line)) {
            let Some([first, second]) = self.inputs(row) else { return };
            let (mut even, mut odd) = (half, half);
            for i in 0..PAIRS {
                let product = _mm256_madd_epi16(_mm256_shuffle_epi8(first, shuffles[i][0]), weights[i][0]);
                even = _mm256_add_epi32(even, product);
                let product = _mm256_madd_epi16(_mm256_shuffle_epi8(second, shuffles[i][1]), weights[i][1]);
                odd = _mm256_add_epi32(odd, product);
            }
            out[self.at..][..UNIT].copy_from_slice(&packed(even, odd, shift));
        }
    }

    #[target_feature(enable = "avx2")]
    fn run_many(&self, steps: &[Step], out: &mut [u8]) {
        let shift = _mm_cvtsi32_si128(self.precision as i32);
        for (row, out) in self.plane.chunks_exact(self.stride).zip(out.chunks_exact_mut(self.line)) {
            let Some([first, second]) = self.inputs(row) else { return };
            let mut even = _mm256_set1_epi32(1 << self.precision >> 1);
            let mut odd = even;
            for step in steps {
                let inputs = _mm256_shuffle_epi8(first, vector(step.shuffles[0]));
                even = _mm256_add_epi32(even, _mm256_madd_epi16(inputs, bytemuck::cast(step.weights[0])));
                let inputs = _mm256_shuffle_epi8(second, vector(step.shuffles[1]));
                odd = _mm256_add_epi32(odd, _mm256_madd_epi16(inputs, bytemuck::cast(step.weights[1])));
            }
            out[self.at..][..UNIT].copy_from_slice(&packed(even, odd, shift));
        }
    }

    /// The windows of groups 0 and 2, and of 1 and 3.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn inputs(&self, row: &[u8]) -> Option<[__m256i; 2]> {
        let [a, b, c, d] = self.windows;
        let window = |start: usize| row.get(start..)?.first_chunk::<WINDOW>();
        let both =
            |low: &[u8; WINDOW], high: &[u8; WINDOW]| _mm256_set_m128i(bytemuck::cast(*high), bytemuck::cast(*low));
        Some([both(window(a)?, window(c)?), both(window(b)?, window(d)?)])
    }
}

/// Sums of sixteen outputs as bytes.
#[target_feature(enable = "avx2")]
#[inline]
fn packed(even: __m256i, odd: __m256i, shift: __m128i) -> [u8; UNIT] {
    let words = _mm256_packs_epi32(_mm256_sra_epi32(even, shift), _mm256_sra_epi32(odd, shift));
    let bytes = _mm256_permute4x64_epi64::<0b10_00>(_mm256_packus_epi16(words, words));
    bytemuck::cast(_mm256_castsi256_si128(bytes))
}

/// Each row of `plane`, `stride` apart, to `line` samples of `out`, where windows reach far.
#[target_feature(enable = "avx2")]
pub(super) fn across_far(plane: &[u8], stride: usize, steps: &Steps, out: &mut [u8], line: usize, precision: u32) {
    let Far { starts, weights, windows } = &steps.far;
    let shift = _mm_cvtsi32_si128(precision as i32);
    let half = _mm256_set1_epi32(1 << precision >> 1);
    for (row, out) in plane.chunks_exact(stride).zip(out.chunks_exact_mut(line)) {
        let units = starts.as_chunks::<FAR_UNIT>().0.iter().zip(weights.chunks_exact(FAR_UNIT * windows));
        for ((starts, weights), out) in units.zip(out.as_chunks_mut::<FAR_UNIT>().0) {
            let mut sums = [_mm256_setzero_si256(); FAR_UNIT];
            for ((sum, start), weights) in sums.iter_mut().zip(starts).zip(weights.chunks_exact(*windows)) {
                let inputs = row[*start..].as_chunks::<WINDOW>().0;
                for (inputs, weights) in inputs.iter().zip(weights) {
                    let inputs = _mm256_cvtepu8_epi16(bytemuck::cast(*inputs));
                    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(inputs, bytemuck::cast(*weights)));
                }
            }
            // Four sums in each half of a vector, one half for the lower inputs and one for the upper.
            let four =
                |s: [__m256i; 4]| _mm256_hadd_epi32(_mm256_hadd_epi32(s[0], s[1]), _mm256_hadd_epi32(s[2], s[3]));
            let [a, b, c, d, e, f, g, h] = sums;
            let (first, second) = (four([a, b, c, d]), four([e, f, g, h]));
            let lower = _mm256_permute2x128_si256::<0x20>(first, second);
            let upper = _mm256_permute2x128_si256::<0x31>(first, second);
            let sums = _mm256_sra_epi32(_mm256_add_epi32(_mm256_add_epi32(lower, upper), half), shift);
            let words = _mm256_packs_epi32(sums, sums);
            let bytes: [u8; 32] = bytemuck::cast(_mm256_packus_epi16(words, words));
            out[..4].copy_from_slice(&bytes[..4]);
            out[4..].copy_from_slice(&bytes[16..20]);
        }
    }
}

/// Row `output` of the rows of `plane`, each as long as `out`, which is a whole number of chunks.
#[target_feature(enable = "avx2")]
pub(super) fn down(plane: &[u8], weights: &Weights, output: usize, out: &mut [u8]) {
    let line = out.len();
    let count = weights.counts[output];
    let rows = &plane[weights.starts[output] * line..][..count * line];
    let (zero, half) = (_mm256_setzero_si256(), _mm256_set1_epi32(1 << weights.precision >> 1));
    let shift = _mm_cvtsi32_si128(weights.precision as i32);
    for (column, out) in out.as_chunks_mut::<CHUNK>().0.iter_mut().enumerate() {
        let mut sums = [half; 4];
        for (pair, two) in weights.of(output).as_chunks::<2>().0.iter().enumerate().take(count.div_ceil(2)) {
            let weights = _mm256_set1_epi32(i32::from(two[0]) & 0xFFFF | i32::from(two[1]) << 16);
            let row = |number: usize| {
                let start = number.min(count - 1) * line + CHUNK * column;
                rows[start..].first_chunk::<CHUNK>().map_or(zero, |bytes| vector(*bytes))
            };
            let (upper, lower) = (row(2 * pair), row(2 * pair + 1));
            let (low, high) = (_mm256_unpacklo_epi8(upper, lower), _mm256_unpackhi_epi8(upper, lower));
            let pairs = [
                _mm256_unpacklo_epi8(low, zero),
                _mm256_unpackhi_epi8(low, zero),
                _mm256_unpacklo_epi8(high, zero),
                _mm256_unpackhi_epi8(high, zero),
            ];
            for (sum, pairs) in sums.iter_mut().zip(pairs) {
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, weights));
            }
        }
        let [a, b, c, d] = sums;
        let words = |a: __m256i, b: __m256i| _mm256_packs_epi32(_mm256_sra_epi32(a, shift), _mm256_sra_epi32(b, shift));
        *out = bytemuck::cast(_mm256_packus_epi16(words(a, b), words(c, d)));
    }
}
