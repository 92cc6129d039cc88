//! Colours as the caller wants them: luma from RGB, RGB from ink, eight bits from sixteen.
//!
//! Every formula is Pillow's, so that a picture looks the same whichever library loads it.

/// ITU-R 601-2 luma in 16-bit fixed point, as Pillow's `convert("L")`.
pub(super) fn luma(rgb: &[u8], grey: &mut [u8]) {
    for (pixel, grey) in rgb.chunks_exact(3).zip(grey) {
        let sum = 19595 * u32::from(pixel[0]) + 38470 * u32::from(pixel[1]) + 7471 * u32::from(pixel[2]);
        *grey = ((sum + 0x8000) >> 16) as u8;
    }
}

/// RGB of the ink that JPEG files store inverted: 255 is no ink.
pub(super) fn rgb_of_inverted_ink(ink: &[u8], rgb: &mut [u8]) {
    for (ink, rgb) in ink.chunks_exact(4).zip(rgb.chunks_exact_mut(3)) {
        let light = ink[3];
        for (channel, &stored) in rgb.iter_mut().zip(ink) {
            *channel = light.saturating_sub(scaled(255 - stored, light));
        }
    }
}

/// `a * b / 255`, rounded.
fn scaled(a: u8, b: u8) -> u8 {
    let product = u32::from(a) * u32::from(b) + 128;
    (((product >> 8) + product) >> 8) as u8
}

/// Sixteen bits scaled to eight, rounded.
pub(super) fn eight_bits(value: u16) -> u8 {
    ((u32::from(value) * 255 + 32767) / 65535) as u8
}

/// The upper eight of sixteen bits, which Pillow takes where a PNG or TIFF file has colours or alpha.
pub(super) fn upper_bits(value: u16) -> u8 {
    (value >> 8) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bits_are_scaled_and_rounded_not_clipped() {
        for (wide, narrow) in [(0, 0), (128, 0), (129, 1), (257, 1), (32767, 127), (32768, 128), (65535, 255)] {
            assert_eq!(eight_bits(wide), narrow, "{wide}");
        }
    }

    #[test]
    fn upper_bits_are_cut_off_not_rounded() {
        for (wide, narrow) in [(0, 0), (255, 0), (256, 1), (32767, 127), (32768, 128), (65279, 254), (65535, 255)] {
            assert_eq!(upper_bits(wide), narrow, "{wide}");
        }
    }

    #[test]
    fn luma_of_grey_is_itself_and_of_colours_is_pillows() {
        let mut grey = [0; 4];
        luma(&[77, 77, 77, 255, 0, 0, 0, 255, 0, 0, 0, 255], &mut grey);
        assert_eq!(grey, [77, 76, 150, 29]);
        for value in 0..=255 {
            luma(&[value; 3], &mut grey);
            assert_eq!(grey[0], value);
        }
    }

    #[test]
    fn ink_becomes_light() {
        let mut rgb = [9; 12];
        rgb_of_inverted_ink(&[255, 255, 255, 255, 255, 255, 255, 0, 0, 255, 255, 255, 128, 200, 255, 128], &mut rgb);
        assert_eq!(rgb, [255, 255, 255, 0, 0, 0, 0, 255, 255, 64, 100, 128]);
    }
}
