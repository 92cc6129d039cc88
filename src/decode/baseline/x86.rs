//! The fast twins for processors with AVX2 and BMI2.
//!
//! No pointer is touched here: vectors are read and written through slices, whose bounds are checked once a vector.

use std::arch::x86_64::*;

use super::advance;
use super::header::{BLOCK, STEP_MAX};
use super::idct::{BlockRow, EVEN, LIMIT, NATURAL, ODD, SHIFTS};
use super::lanes::Lane;
use super::stuffing::{self, Pass};
use super::{color, upsample};

/// Bytes of a vector.
const VECTOR: usize = 32;

#[target_feature(enable = "avx2")]
fn load(bytes: &[u8; VECTOR]) -> __m256i {
    bytemuck::cast(*bytes)
}

/// [`stuffing::copy_data`]
#[target_feature(enable = "avx2")]
pub(super) fn copy_data(scan: &[u8], bytes: &mut [u8], pass: &mut Pass) {
    while let Some(from) = scan.get(pass.from..).and_then(|rest| rest.first_chunk::<VECTOR>())
        && let Some(to) = bytes.get_mut(pass.to..).and_then(|rest| rest.first_chunk_mut::<VECTOR>())
    {
        *to = *from;
        let found = _mm256_movemask_epi8(_mm256_cmpeq_epi8(load(from), _mm256_set1_epi8(-1))) as u32;
        if found == 0 {
            pass.from += VECTOR;
            pass.to += VECTOR;
            continue;
        }
        let plain = found.trailing_zeros() as usize;
        pass.from += plain;
        pass.to += plain;
        // The FF itself is copied already.
        if scan.get(pass.from + 1) != Some(&0) {
            return;
        }
        pass.from += 2;
        pass.to += 1;
    }
    stuffing::copy_data(scan, bytes, pass);
}

/// [`advance::advance`]
#[target_feature(enable = "bmi1,bmi2,lzcnt,movbe")]
#[inline(never)]
pub(super) fn advance<const N: usize>(lanes: [&mut Lane; N]) {
    advance::advance(lanes);
}

#[target_feature(enable = "avx2")]
pub(super) fn across(near: &[u8], wide: &mut [u8]) {
    upsample::across(near, wide);
}

#[target_feature(enable = "avx2")]
pub(super) fn down(near: &[u8], far: &[u8], is_upper: bool, out: &mut [u8]) {
    upsample::down(near, far, is_upper, out);
}

#[target_feature(enable = "avx2")]
pub(super) fn both(near: &[u8], far: &[u8], sums: &mut [u16], wide: &mut [u8]) {
    upsample::both(near, far, sums, wide);
}

/// [`color::rgb_planes`]
#[target_feature(enable = "avx2")]
pub(super) fn rgb_planes(ycc: [&[u8]; 3], rgb: [&mut [u8]; 3]) {
    const { assert!(color::CHUNK == VECTOR) };
    let [y, cb, cr] = ycc.map(|row| row.as_chunks::<VECTOR>().0);
    let [red, green, blue] = rgb.map(|row| row.as_chunks_mut::<VECTOR>().0);
    for ((((y, cb), cr), red), (green, blue)) in y.iter().zip(cb).zip(cr).zip(red).zip(green.iter_mut().zip(blue)) {
        let zero = _mm256_setzero_si256();
        let (y, cb, cr) = (load(y), load(cb), load(cr));
        let low = colors(_mm256_unpacklo_epi8(y, zero), _mm256_unpacklo_epi8(cb, zero), _mm256_unpacklo_epi8(cr, zero));
        let high =
            colors(_mm256_unpackhi_epi8(y, zero), _mm256_unpackhi_epi8(cb, zero), _mm256_unpackhi_epi8(cr, zero));
        *red = bytemuck::cast(_mm256_packus_epi16(low.0, high.0));
        *green = bytemuck::cast(_mm256_packus_epi16(low.1, high.1));
        *blue = bytemuck::cast(_mm256_packus_epi16(low.2, high.2));
    }
}

/// Sixteen samples of each component as 16-bit numbers.
#[target_feature(enable = "avx2")]
#[inline]
fn colors(y: __m256i, cb: __m256i, cr: __m256i) -> (__m256i, __m256i, __m256i) {
    let middle = _mm256_set1_epi16(128);
    let (cb, cr) = (_mm256_sub_epi16(cb, middle), _mm256_sub_epi16(cr, middle));
    let (cb_twice, cr_twice) = (_mm256_add_epi16(cb, cb), _mm256_add_epi16(cr, cr));
    let weighted = |twice: __m256i, weight: i32| {
        let upper = _mm256_mulhi_epi16(twice, _mm256_set1_epi16(weight as i16));
        _mm256_srai_epi16::<1>(_mm256_add_epi16(upper, _mm256_set1_epi16(1)))
    };
    let red = _mm256_add_epi16(_mm256_add_epi16(y, cr), weighted(cr_twice, color::RED));
    let blue = _mm256_add_epi16(_mm256_add_epi16(y, cb_twice), weighted(cb_twice, color::BLUE));
    let weights = _mm256_set1_epi32(color::GREEN[0] & 0xFFFF | color::GREEN[1] << 16);
    let sum = |pairs: __m256i| {
        let sum = _mm256_add_epi32(_mm256_madd_epi16(pairs, weights), _mm256_set1_epi32(0x8000));
        _mm256_srai_epi32::<16>(sum)
    };
    let sums = _mm256_packs_epi32(sum(_mm256_unpacklo_epi16(cb, cr)), sum(_mm256_unpackhi_epi16(cb, cr)));
    let green = _mm256_add_epi16(_mm256_sub_epi16(y, cr), sums);
    (red, green, blue)
}

#[target_feature(enable = "avx2")]
pub(super) fn interleave(planes: [&[u8]; 3], pixels: &mut [u8]) {
    color::interleave(planes, pixels);
}

/// [`idct::transform`](super::idct::transform)
///
/// A block is read out of zigzag order by byte shuffles, into pairs of rows as the multiplications want them; the columns
/// are done eight at a time, then the rows.
#[target_feature(enable = "avx2")]
pub(super) fn transform(
    row: &[i16],
    blocks: BlockRow,
    quantiser: &[i16; BLOCK],
    samples: &mut [u8],
    stride: usize,
) -> bool {
    // Products of 2^14 and more have an upper half of neither 0 nor -1, once they are multiplied by 4.
    const { assert!(LIMIT == 1 << 14 && STEP_MAX as i32 * 4 <= i16::MAX as i32) };
    let steps = row_pairs(quantiser);
    let steps_times_4 = steps.map(|steps| _mm256_slli_epi16::<2>(steps));
    let ones = _mm256_set1_epi16(1);
    let (mut products, mut sums) = (_mm256_setzero_si256(), _mm256_setzero_si256());
    let Some(mut rows) = rows_of_blocks(samples, stride, blocks.count) else { return false };
    for (number, place) in blocks.places().enumerate() {
        let Some(block) = row.get(place..).and_then(|rest| rest.first_chunk::<BLOCK>()) else { return false };
        let mut input = row_pairs(block);
        for ((input, steps), steps_times_4) in input.iter_mut().zip(steps).zip(steps_times_4) {
            let upper = _mm256_mulhi_epi16(*input, steps_times_4);
            products = _mm256_or_si256(products, _mm256_add_epi16(upper, ones));
            *input = _mm256_mullo_epi16(*input, steps);
        }
        let output = pass::<{ SHIFTS[0] as i32 }>(input, 1 << (SHIFTS[0] - 1));
        let mut packed = [ones; 4];
        for (packed, rows) in packed.iter_mut().zip(output.as_chunks::<2>().0) {
            *packed = _mm256_packs_epi32(rows[0], rows[1]);
            sums = _mm256_max_epu16(sums, _mm256_abs_epi16(*packed));
        }
        let bias = (1 << (SHIFTS[1] - 1)) + (128 << SHIFTS[1]);
        let columns = pass::<{ SHIFTS[1] as i32 }>(column_pairs(packed), bias);
        store_block(columns, &mut rows, number);
    }
    let small = |numbers: __m256i, bits: i16| {
        let rest = _mm256_andnot_si256(_mm256_set1_epi16(bits), numbers);
        _mm256_testz_si256(rest, rest) == 1
    };
    small(products, 1) && small(sums, LIMIT as i16 - 1)
}

/// Eight rows of samples, block by block.
type Rows<'a> = [&'a mut [[u8; 8]]; 8];

fn rows_of_blocks(samples: &mut [u8], stride: usize, count: usize) -> Option<Rows<'_>> {
    let mut rows = samples.chunks_mut(stride).map(|row| row.as_chunks_mut::<8>().0);
    let mut next = || rows.next()?.get_mut(..count);
    Some([next()?, next()?, next()?, next()?, next()?, next()?, next()?, next()?])
}

/// The order of columns in a vector: those that the second pass wants in pairs are neighbours, the odd ones in the upper
/// half.
const COLUMNS: [u8; 8] = [0, 4, 2, 6, 1, 3, 5, 7];

/// Which rows stand beside each other for the columns.
const ROW_PAIRS: [[u8; 2]; 4] = [[0, 4], [2, 6], [1, 3], [5, 7]];

/// For each pair of rows and each eight coefficients in zigzag order: the shuffle that brings those of the pair to their
/// places, and zeros elsewhere.
const UNZIGZAG: [[[u8; VECTOR]; 8]; 4] = {
    let mut shuffles = [[[0x80; VECTOR]; 8]; 4];
    let mut k = 0;
    while k < BLOCK {
        let (y, x) = (NATURAL[k] / 8, NATURAL[k] as usize % 8);
        let mut i = 0;
        while i < 8 {
            let (pair, half) = (i / 2, i % 2);
            if ROW_PAIRS[pair][half] == y {
                let mut column = 0;
                while COLUMNS[column] as usize != x {
                    column += 1;
                }
                let to = 4 * column + 2 * half;
                shuffles[pair][k / 8][to] = (2 * (k % 8)) as u8;
                shuffles[pair][k / 8][to + 1] = (2 * (k % 8) + 1) as u8;
            }
            i += 1;
        }
        k += 1;
    }
    shuffles
};

/// Whether any coefficient of the pair of rows is among the eight.
const fn is_used(pair: usize, eight: usize) -> bool {
    let mut i = 0;
    while i < VECTOR {
        if UNZIGZAG[pair][eight][i] != 0x80 {
            return true;
        }
        i += 1;
    }
    false
}

/// The coefficients of [`ROW_PAIRS`], column by column as [`COLUMNS`] has them: `[pair][column][2]`.
#[target_feature(enable = "avx2")]
#[inline]
fn row_pairs(zigzag: &[i16; BLOCK]) -> [__m256i; 4] {
    let eights: [__m256i; 8] = std::array::from_fn(|i| {
        let eight: [i16; 8] = zigzag.as_chunks::<8>().0[i];
        _mm256_broadcastsi128_si256(bytemuck::cast(eight))
    });
    let [a, b, c, d, e, f, g, h] = eights;
    macro_rules! pair {
        ($pair:literal: $($eight:ident $number:literal)*) => {{
            let mut sum = _mm256_setzero_si256();
            $(if const { is_used($pair, $number) } {
                sum = _mm256_or_si256(sum, _mm256_shuffle_epi8($eight, load(&UNZIGZAG[$pair][$number])));
            })*
            sum
        }};
    }
    [
        pair!(0: a 0 b 1 c 2 d 3 e 4 f 5 g 6 h 7),
        pair!(1: a 0 b 1 c 2 d 3 e 4 f 5 g 6 h 7),
        pair!(2: a 0 b 1 c 2 d 3 e 4 f 5 g 6 h 7),
        pair!(3: a 0 b 1 c 2 d 3 e 4 f 5 g 6 h 7),
    ]
}

/// One pass over eight columns (or rows) at once, given pairs of inputs 0 and 4, 2 and 6, 1 and 3, 5 and 7.
#[target_feature(enable = "avx2")]
#[inline]
fn pass<const SHIFT: i32>([even_04, even_26, odd_13, odd_57]: [__m256i; 4], bias: i32) -> [__m256i; 8] {
    let weights = |a: i16, b: i16| _mm256_set1_epi32(i32::from(a) & 0xFFFF | i32::from(b) << 16);
    let bias = _mm256_set1_epi32(bias);
    let sum_04 = _mm256_add_epi32(_mm256_madd_epi16(even_04, weights(EVEN[0][0], EVEN[0][1])), bias);
    let difference_04 = _mm256_add_epi32(_mm256_madd_epi16(even_04, weights(EVEN[1][0], EVEN[1][1])), bias);
    let outer_26 = _mm256_madd_epi16(even_26, weights(EVEN[0][2], EVEN[0][3]));
    let inner_26 = _mm256_madd_epi16(even_26, weights(EVEN[1][2], EVEN[1][3]));
    let even = [
        _mm256_add_epi32(sum_04, outer_26),
        _mm256_add_epi32(difference_04, inner_26),
        _mm256_sub_epi32(difference_04, inner_26),
        _mm256_sub_epi32(sum_04, outer_26),
    ];
    let mut output = [bias; 8];
    for i in 0..4 {
        let odd = _mm256_add_epi32(
            _mm256_madd_epi16(odd_13, weights(ODD[i][0], ODD[i][1])),
            _mm256_madd_epi16(odd_57, weights(ODD[i][2], ODD[i][3])),
        );
        output[i] = _mm256_srai_epi32::<SHIFT>(_mm256_add_epi32(even[i], odd));
        output[7 - i] = _mm256_srai_epi32::<SHIFT>(_mm256_sub_epi32(even[i], odd));
    }
    output
}

/// From rows 2i and 2i + 1 in each vector (even columns of both, then odd columns, as [`COLUMNS`] has them) to pairs of
/// columns 0 and 4, 2 and 6, 1 and 3, 5 and 7, row by row.
#[target_feature(enable = "avx2")]
#[inline]
fn column_pairs([rows_01, rows_23, rows_45, rows_67]: [__m256i; 4]) -> [__m256i; 4] {
    let float = |rows| _mm256_castsi256_ps(rows);
    let (rows_01, rows_23, rows_45, rows_67) = (float(rows_01), float(rows_23), float(rows_45), float(rows_67));
    // Even columns of rows 0, 1 | 4, 5 and of rows 2, 3 | 6, 7; odd ones.
    let even_01 = _mm256_permute2f128_ps::<0x20>(rows_01, rows_45);
    let even_23 = _mm256_permute2f128_ps::<0x20>(rows_23, rows_67);
    let odd_01 = _mm256_permute2f128_ps::<0x31>(rows_01, rows_45);
    let odd_23 = _mm256_permute2f128_ps::<0x31>(rows_23, rows_67);
    [
        _mm256_castps_si256(_mm256_shuffle_ps::<0b10_00_10_00>(even_01, even_23)),
        _mm256_castps_si256(_mm256_shuffle_ps::<0b11_01_11_01>(even_01, even_23)),
        _mm256_castps_si256(_mm256_shuffle_ps::<0b10_00_10_00>(odd_01, odd_23)),
        _mm256_castps_si256(_mm256_shuffle_ps::<0b11_01_11_01>(odd_01, odd_23)),
    ]
}

/// Four bytes of four columns, as four columns of four rows.
const TRANSPOSE_4X4: [u8; VECTOR] = {
    let mut shuffle = [0; VECTOR];
    let mut i = 0;
    while i < VECTOR {
        shuffle[i] = (i % 16 % 4 * 4 + i % 16 / 4) as u8;
        i += 1;
    }
    shuffle
};

/// Writes a block of which each vector is a column.
#[target_feature(enable = "avx2")]
#[inline]
fn store_block(columns: [__m256i; 8], rows: &mut Rows<'_>, number: usize) {
    let [c0, c1, c2, c3, c4, c5, c6, c7] = columns;
    let bytes = |a: __m256i, b: __m256i, c: __m256i, d: __m256i| {
        let words = _mm256_packus_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
        _mm256_shuffle_epi8(words, load(&TRANSPOSE_4X4))
    };
    let (left, right) = (bytes(c0, c1, c2, c3), bytes(c4, c5, c6, c7));
    // Rows 0, 1 | 4, 5 and rows 2, 3 | 6, 7.
    let [row_0, row_1, row_4, row_5]: [[u8; 8]; 4] = bytemuck::cast(_mm256_unpacklo_epi32(left, right));
    let [row_2, row_3, row_6, row_7]: [[u8; 8]; 4] = bytemuck::cast(_mm256_unpackhi_epi32(left, right));
    for (row, samples) in rows.iter_mut().zip([row_0, row_1, row_2, row_3, row_4, row_5, row_6, row_7]) {
        row[number] = samples;
    }
}
