//! YCbCr to RGB (JFIF's conversion), with libjpeg's 16-bit fixed point, and planes to pixels.
//!
//! The functions are inlined into callers that compile them for wider instructions; rows are whole numbers of
//! [`CHUNK`] samples there, so nothing is left over.

/// Samples that are converted at once: rows on the way are multiples of it.
pub(super) const CHUNK: usize = super::super::Planes::ALIGNMENT;

/// Weights of chroma, 16 bits of fraction, less whole multiples so that they fit a signed 16-bit number: red is
/// `y + cr + RED * cr`, green `y - cr + GREEN[0] * cb + GREEN[1] * cr`, blue `y + 2 * cb + BLUE * cb`.
pub(super) const RED: i32 = 91881 - 65536; // 1.40200
pub(super) const GREEN: [i32; 2] = [-22554, 65536 - 46802]; // 0.34414, 0.71414
pub(super) const BLUE: i32 = 116_130 - 131_072; // 1.77200

/// Planes of red, green and blue from rows of the same length.
#[inline(always)]
pub(super) fn rgb_planes(ycc: [&[u8]; 3], rgb: [&mut [u8]; 3]) {
    let [y, cb, cr] = ycc.map(|row| row.as_chunks::<CHUNK>().0);
    let [red, green, blue] = rgb.map(|row| row.as_chunks_mut::<CHUNK>().0);
    for ((((y, cb), cr), red), (green, blue)) in y.iter().zip(cb).zip(cr).zip(red).zip(green.iter_mut().zip(blue)) {
        for i in 0..CHUNK {
            let [y, cb, cr] = [i16::from(y[i]), i16::from(cb[i]) - 128, i16::from(cr[i]) - 128];
            let clamp = |value: i16| value.clamp(0, 255) as u8;
            red[i] = clamp(y + cr + half(high(2 * cr, RED) + 1));
            let green_of =
                |cb: i16, cr: i16| ((i32::from(cb) * GREEN[0] + i32::from(cr) * GREEN[1] + 0x8000) >> 16) as i16;
            green[i] = clamp(y - cr + green_of(cb, cr));
            blue[i] = clamp(y + 2 * cb + half(high(2 * cb, BLUE) + 1));
        }
    }
}

/// The upper half of a product of 16-bit numbers: with twice the value it is the rounded one, once halved.
#[inline(always)]
fn high(value: i16, weight: i32) -> i16 {
    ((i32::from(value) * weight) >> 16) as i16
}

#[inline(always)]
fn half(value: i16) -> i16 {
    value >> 1
}

/// Pixels of three bytes from three planes of at least as many samples.
#[inline(always)]
pub(super) fn interleave(planes: [&[u8]; 3], pixels: &mut [u8]) {
    let [red, green, blue] = planes;
    for (((pixel, &red), &green), &blue) in pixels.as_chunks_mut::<3>().0.iter_mut().zip(red).zip(green).zip(blue) {
        *pixel = [red, green, blue];
    }
}
