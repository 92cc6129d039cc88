//! Chroma brought to the size of luma, with libjpeg's "fancy" triangle filter (A.1.1 leaves the method open).
//!
//! A sample weighs 3/4, its neighbour 1/4; where both ways are halved, 9/16, 3/16, 3/16, 1/16. Rounding alternates between
//! up and down, as libjpeg's does. The functions are inlined into callers that compile them for wider instructions.

/// How often chroma has fewer samples than luma.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Upsampling {
    /// 4:4:4
    #[default]
    None,
    /// 4:2:2
    Across,
    /// 4:4:0
    Down,
    /// 4:2:0
    Both,
    /// 4:2:2 or 4:2:0 of no more than two columns: samples are repeated.
    Repeat,
}

/// Twice as many samples of a row as there are in `near`; `wide` has room for them.
#[inline(always)]
pub(super) fn across(near: &[u8], wide: &mut [u8]) {
    let (Some(&first), Some(&last)) = (near.first(), near.last()) else { return };
    let count = near.len();
    let wide = &mut wide[..2 * count];
    wide[0] = first;
    wide[2 * count - 1] = last;
    // Between two neighbours lie two outputs.
    for (pair, out) in near.windows(2).zip(wide[1..].as_chunks_mut::<2>().0) {
        let [left, right] = [u16::from(pair[0]), u16::from(pair[1])];
        *out = [(3 * left + right + 2) >> 2, (3 * right + left + 1) >> 2].map(|sample| sample as u8);
    }
}

/// A row between two rows, nearer to `near`: the upper or the lower of the two that come of it.
#[inline(always)]
pub(super) fn down(near: &[u8], far: &[u8], is_upper: bool, out: &mut [u8]) {
    let bias = if is_upper { 1 } else { 2 };
    for ((out, &near), &far) in out.iter_mut().zip(near).zip(far) {
        *out = ((3 * u16::from(near) + u16::from(far) + bias) >> 2) as u8;
    }
}

/// Both: `sums` is scratch as long as `near`.
#[inline(always)]
pub(super) fn both(near: &[u8], far: &[u8], sums: &mut [u16], wide: &mut [u8]) {
    let count = near.len();
    let sums = &mut sums[..count];
    for ((sum, &near), &far) in sums.iter_mut().zip(near).zip(far) {
        *sum = 3 * u16::from(near) + u16::from(far);
    }
    let (Some(&first), Some(&last)) = (sums.first(), sums.last()) else { return };
    let wide = &mut wide[..2 * count];
    wide[0] = ((4 * first + 8) >> 4) as u8;
    wide[2 * count - 1] = ((4 * last + 7) >> 4) as u8;
    for (pair, out) in sums.windows(2).zip(wide[1..].as_chunks_mut::<2>().0) {
        let [left, right] = [pair[0], pair[1]];
        *out = [(3 * left + right + 7) >> 4, (3 * right + left + 8) >> 4].map(|sample| sample as u8);
    }
}

/// Each sample twice.
#[inline(always)]
pub(super) fn repeat(near: &[u8], wide: &mut [u8]) {
    for (&sample, out) in near.iter().zip(wide.as_chunks_mut::<2>().0) {
        *out = [sample; 2];
    }
}
