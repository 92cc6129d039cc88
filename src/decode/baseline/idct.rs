//! Dequantisation and the inverse DCT (A.3.3, A.3.4), with the rounding of libjpeg's accurate integer transform.
//!
//! That transform does not round inside its passes, so each pass is a matrix of whole numbers: columns first, then rows.

use super::header::BLOCK;

/// Fraction bits of the constants.
const CONST_BITS: u32 = 13;
/// Fraction bits that the first pass leaves.
const PASS1_BITS: u32 = 2;
/// What the passes divide by, as shifts.
pub(super) const SHIFTS: [u32; 2] = [CONST_BITS - PASS1_BITS, CONST_BITS + PASS1_BITS + 3];

/// Numbers from here on, on the way, are those about which implementations differ: half of what 16 bits hold, as some add
/// two of them in 16 bits.
pub(super) const LIMIT: i32 = 1 << 14;

/// Weights of the even inputs 0, 4, 2, 6 in the sums of outputs 0 and 7, 1 and 6, 2 and 5, 3 and 4.
pub(super) const EVEN: [[i16; 4]; 4] = {
    const ONE: i16 = 1 << CONST_BITS;
    const A: i16 = 4433; // 0.541196100
    const B: i16 = 6270; // 0.765366865
    const C: i16 = 15137; // 1.847759065
    [[ONE, ONE, A + B, A], [ONE, -ONE, A, A - C], [ONE, -ONE, -A, C - A], [ONE, ONE, -A - B, -A]]
};

/// Weights of the odd inputs 1, 3, 5, 7 in what is added for the first of the two outputs, and subtracted for the second.
pub(super) const ODD: [[i16; 4]; 4] = {
    let sum = 9633; // 1.175875602: all four
    let (outer, inner) = (-7373, -20995); // 0.899976223: 1 and 7; 2.562915447: 3 and 5
    let (falling, rising) = (-16069 + sum, -3196 + sum); // 1.961570560: 3 and 7; 0.390180644: 1 and 5
    let own = [12299, 25172, 16819, 2446]; // 1.501321110, 3.072711026, 2.053119869, 0.298631336
    let weights: [[i32; 4]; 4] = [
        [own[0] + outer + rising, sum, rising, outer + sum],
        [sum, own[1] + inner + falling, inner + sum, falling],
        [rising, inner + sum, own[2] + inner + rising, sum],
        [outer + sum, falling, sum, own[3] + outer + falling],
    ];
    let mut narrow = [[0; 4]; 4];
    let mut i = 0;
    while i < 16 {
        narrow[i / 4][i % 4] = weights[i / 4][i % 4] as i16;
        i += 1;
    }
    narrow
};

/// Where the coefficient of each place in zigzag order stands in the block, row by row (figure A.6).
pub(super) const NATURAL: [u8; BLOCK] = {
    let mut natural = [0; BLOCK];
    let (mut x, mut y, mut i) = (0_u8, 0_u8, 0);
    while i < BLOCK {
        natural[i] = y * 8 + x;
        let upwards = (x + y).is_multiple_of(2);
        if upwards && x == 7 || !upwards && y != 7 && x == 0 {
            y += 1;
        } else if upwards && y == 0 || !upwards && y == 7 {
            x += 1;
        } else if upwards {
            (x, y) = (x + 1, y - 1);
        } else {
            (x, y) = (x - 1, y + 1);
        }
        i += 1;
    }
    natural
};

/// The blocks of one component in one row of blocks, among the coefficients of a row of MCUs.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockRow {
    /// The first block.
    pub(super) first: usize,
    /// Blocks from one MCU to the next.
    pub(super) mcu_blocks: usize,
    /// Neighbours in an MCU.
    pub(super) h: usize,
    /// Blocks in all.
    pub(super) count: usize,
}

impl BlockRow {
    /// Where the coefficients of the blocks begin, from left to right.
    #[inline(always)]
    pub(super) fn places(self) -> impl Iterator<Item = usize> {
        let Self { first, mcu_blocks, h, count } = self;
        let (mut mcu, mut inside) = (first, 0);
        (0..count).map(move |_| {
            let place = (mcu + inside) * BLOCK;
            inside += 1;
            if inside == h {
                (mcu, inside) = (mcu + mcu_blocks, 0);
            }
            place
        })
    }
}

/// Samples of the blocks, 8 rows of `stride`; false where numbers on the way were so large that decoders differ.
pub(super) fn transform(
    row: &[i16],
    blocks: BlockRow,
    quantiser: &[i16; BLOCK],
    samples: &mut [u8],
    stride: usize,
) -> bool {
    let mut good = true;
    for (number, place) in blocks.places().enumerate() {
        good &= transform_block(&row[place..][..BLOCK], quantiser, &mut samples[8 * number..], stride);
    }
    good
}

fn transform_block(coefficients: &[i16], quantiser: &[i16; BLOCK], samples: &mut [u8], stride: usize) -> bool {
    let mut block = [0_i32; BLOCK];
    for ((&coefficient, &step), &place) in coefficients.iter().zip(quantiser).zip(&NATURAL) {
        block[usize::from(place)] = i32::from(coefficient) * i32::from(step);
    }
    if !block.iter().all(|product| (-LIMIT..LIMIT).contains(product)) {
        return false;
    }
    for x in 0..8 {
        let column = pass(std::array::from_fn(|y| block[8 * y + x]), SHIFTS[0]);
        column.into_iter().enumerate().for_each(|(y, value)| block[8 * y + x] = value);
    }
    if !block.iter().all(|sum| (1 - LIMIT..LIMIT).contains(sum)) {
        return false;
    }
    for (y, row) in block.chunks_exact(8).enumerate() {
        let row = pass(std::array::from_fn(|x| row[x]), SHIFTS[1]);
        for (sample, value) in samples[y * stride..][..8].iter_mut().zip(row) {
            *sample = (value + 128).clamp(0, 255) as u8;
        }
    }
    true
}

/// One pass over a column or a row of numbers below [`LIMIT`]; larger ones make nonsense, but no panic.
fn pass(input: [i32; 8], shift: u32) -> [i32; 8] {
    let sum = |weights: [i16; 4], inputs: [i32; 4]| {
        weights
            .iter()
            .zip(inputs)
            .fold(0_i32, |sum, (&weight, input)| sum.wrapping_add(i32::from(weight).wrapping_mul(input)))
    };
    let [i0, i1, i2, i3, i4, i5, i6, i7] = input;
    let mut output = [0; 8];
    for i in 0..4 {
        let even = sum(EVEN[i], [i0, i4, i2, i6]).wrapping_add(1 << (shift - 1));
        let odd = sum(ODD[i], [i1, i3, i5, i7]);
        (output[i], output[7 - i]) = (even.wrapping_add(odd) >> shift, even.wrapping_sub(odd) >> shift);
    }
    output
}
