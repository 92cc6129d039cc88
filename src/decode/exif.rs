//! The EXIF orientation: how a stored picture must be turned to stand upright.
//!
//! It reads that one tag and nothing else of EXIF, and whatever is odd about the tag means upright.

use super::{Pixels, Region};

/// How the stored rows and columns become an upright picture, named after what must be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Orientation {
    /// 1, or no tag, or an illegal one: nothing is done.
    #[default]
    Upright,
    /// 2: mirror left and right.
    FlipHorizontal,
    /// 3: turn by 180 degrees.
    Rotate180,
    /// 4: mirror top and bottom.
    FlipVertical,
    /// 5: mirror at the main diagonal; rows become columns.
    Transpose,
    /// 6: turn clockwise by 90 degrees.
    Rotate90,
    /// 7: mirror at the other diagonal.
    Transverse,
    /// 8: turn clockwise by 270 degrees.
    Rotate270,
}

impl Orientation {
    /// The orientation of a tag's value; values outside 1 to 8 are upright, as Pillow treats them.
    #[must_use]
    pub fn from_tag(value: u32) -> Self {
        match value {
            2 => Self::FlipHorizontal,
            3 => Self::Rotate180,
            4 => Self::FlipVertical,
            5 => Self::Transpose,
            6 => Self::Rotate90,
            7 => Self::Transverse,
            8 => Self::Rotate270,
            _ => Self::Upright,
        }
    }

    /// The tag's value, 1 to 8.
    #[must_use]
    pub fn tag(self) -> u32 {
        1 + self as u32
    }

    /// Whether width and height change places.
    #[must_use]
    pub fn swaps_axes(self) -> bool {
        matches!(self, Self::Transpose | Self::Rotate90 | Self::Transverse | Self::Rotate270)
    }

    /// Whether the last stored column comes first in the upright picture, be it as a column or as a row.
    fn mirrors_x(self) -> bool {
        matches!(self, Self::FlipHorizontal | Self::Rotate180 | Self::Transverse | Self::Rotate270)
    }

    /// Whether the last stored row comes first in the upright picture, be it as a row or as a column.
    fn mirrors_y(self) -> bool {
        matches!(self, Self::Rotate180 | Self::FlipVertical | Self::Rotate90 | Self::Transverse)
    }

    /// The upright size of a stored picture of `size`, (width, height).
    #[must_use]
    pub fn upright_size(self, (width, height): (u32, u32)) -> (u32, u32) {
        if self.swaps_axes() { (height, width) } else { (width, height) }
    }

    /// The stored region that shows `region` of the upright picture; `stored` is the stored (width, height) and the
    /// region must lie inside the picture.
    #[must_use]
    pub fn stored_region(self, region: Region, stored: (u32, u32)) -> Region {
        let Region { mut x, mut y, mut width, mut height } = region;
        if self.swaps_axes() {
            (x, y, width, height) = (y, x, height, width);
        }
        if self.mirrors_x() {
            x = stored.0.saturating_sub(x.saturating_add(width));
        }
        if self.mirrors_y() {
            y = stored.1.saturating_sub(y.saturating_add(height));
        }
        Region { x, y, width, height }
    }

    /// Writes `pixels` upright and tightly packed into `upright`, which must have just the right length.
    pub(super) fn turn(self, pixels: &Pixels<'_>, upright: &mut [u8]) {
        match pixels.channels {
            1 => self.turn_pixels::<1>(pixels, upright),
            _ => self.turn_pixels::<3>(pixels, upright),
        }
    }

    fn turn_pixels<const CHANNELS: usize>(self, pixels: &Pixels<'_>, upright: &mut [u8]) {
        let (width, _) = self.upright_size((pixels.width, pixels.height));
        let upright = upright.as_chunks_mut::<CHANNELS>().0;
        let lines = upright.chunks_exact_mut((width as usize).max(1));
        if self.swaps_axes() {
            for (x, line) in (0..pixels.width as usize).zip(lines) {
                let column = if self.mirrors_x() { pixels.width as usize - 1 - x } else { x };
                for (y, pixel) in (0..pixels.height).zip(line) {
                    let row = if self.mirrors_y() { pixels.height - 1 - y } else { y };
                    if let Some(stored) = pixels.row(row).as_chunks::<CHANNELS>().0.get(column) {
                        *pixel = *stored;
                    }
                }
            }
        } else {
            for (y, line) in (0..pixels.height).zip(lines) {
                let stored = pixels.row(if self.mirrors_y() { pixels.height - 1 - y } else { y });
                let stored = stored.as_chunks::<CHANNELS>().0;
                if self.mirrors_x() {
                    line.iter_mut().zip(stored.iter().rev()).for_each(|(pixel, stored)| *pixel = *stored);
                } else {
                    line.iter_mut().zip(stored).for_each(|(pixel, stored)| *pixel = *stored);
                }
            }
        }
    }
}

/// The orientation in a TIFF structure, which is what EXIF is; upright if there is none to be read.
pub(super) fn orientation(tiff: &[u8]) -> Orientation {
    read_tag(tiff).map(Orientation::from_tag).unwrap_or_default()
}

/// The orientation in an EXIF block as containers store it: some put the JPEG segment's name before the TIFF part.
pub(super) fn orientation_of_block(block: &[u8]) -> Orientation {
    orientation(block.strip_prefix(b"Exif\0\0").unwrap_or(block))
}

/// The tag 0x0112 of the first directory.
fn read_tag(tiff: &[u8]) -> Option<u32> {
    let big = match tiff.get(..4)? {
        b"MM\0\x2A" => true,
        b"II\x2A\0" => false,
        _ => return None,
    };
    let short = |at: usize| {
        let bytes: [u8; 2] = tiff.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    };
    let long = |at: usize| {
        let bytes: [u8; 4] = tiff.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(if big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    };
    let directory = usize::try_from(long(4)?).ok()?;
    let count = usize::from(short(directory)?);
    for index in 0..count {
        let entry = directory.checked_add(2 + index * 12)?;
        if short(entry)? == 0x0112 {
            let value = entry.checked_add(8)?;
            return match (short(entry + 2)?, long(entry + 4)?) {
                (1, 1) => tiff.get(value).map(|&byte| u32::from(byte)),
                (3, 1) => short(value).map(u32::from),
                (4, 1) => long(value),
                _ => None,
            };
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block(big: bool, kind: u16, value: u32) -> Vec<u8> {
        let short = |value: u16| if big { value.to_be_bytes() } else { value.to_le_bytes() };
        let long = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
        let mut block = if big { b"MM\0\x2A".to_vec() } else { b"II\x2A\0".to_vec() };
        block.extend(long(8));
        block.extend(short(2));
        for (tag, kind, bytes) in [(0x010F, 2, [b'x', 0, 0, 0]), (0x0112, kind, [0; 4])] {
            block.extend(short(tag));
            block.extend(short(kind));
            block.extend(long(1));
            if tag == 0x0112 {
                match kind {
                    3 => block.extend(short(value as u16).into_iter().chain([0; 2])),
                    _ => block.extend(long(value)),
                }
            } else {
                block.extend(bytes);
            }
        }
        block
    }

    #[test]
    fn all_values_are_read_in_both_byte_orders() {
        for value in 1..=8 {
            for big in [false, true] {
                for kind in [3, 4] {
                    let found = orientation(&block(big, kind, value));
                    assert_eq!((found, found.tag()), (Orientation::from_tag(value), value));
                }
            }
        }
        assert_eq!(orientation(&block(true, 3, 9)), Orientation::Upright);
        assert_eq!(orientation_of_block(&[b"Exif\0\0".as_slice(), &block(true, 3, 6)].concat()), Orientation::Rotate90);
    }

    #[test]
    fn every_cut_of_a_block_is_upright_or_whole() {
        let block = block(false, 3, 6);
        let read: Vec<_> = (0..block.len()).map(|end| orientation(&block[..end])).collect();
        assert!(read[..block.len() - 2].iter().all(|&found| found == Orientation::Upright), "{read:?}");
    }

    /// The upright picture by the definition of each value: where the stored first row and column are shown.
    fn upright_by_definition(orientation: Orientation, stored: &[u8], width: usize, height: usize) -> Vec<u8> {
        let (up_width, up_height) = if orientation.swaps_axes() { (height, width) } else { (width, height) };
        let mut upright = Vec::new();
        for y in 0..up_height {
            for x in 0..up_width {
                let (column, row) = match orientation.tag() {
                    2 => (width - 1 - x, y),
                    3 => (width - 1 - x, height - 1 - y),
                    4 => (x, height - 1 - y),
                    5 => (y, x),
                    6 => (y, height - 1 - x),
                    7 => (width - 1 - y, height - 1 - x),
                    8 => (width - 1 - y, x),
                    _ => (x, y),
                };
                upright.extend_from_slice(&stored[(row * width + column) * 3..][..3]);
            }
        }
        upright
    }

    #[test]
    fn regions_and_pixels_turn_as_defined() {
        let stored: Vec<u8> = (0..5 * 7 * 3).collect();
        let pixels = Pixels::packed(&stored, Region::full(5, 7), 3).unwrap();
        for orientation in (1..=8).map(Orientation::from_tag) {
            let whole = upright_by_definition(orientation, &stored, 5, 7);
            let (width, height) = orientation.upright_size((5, 7));
            let upright = Pixels::packed(&whole, Region::full(width, height), 3).unwrap();
            for (x, y) in (0..width).flat_map(|x| (0..height).map(move |y| (x, y))) {
                let region = Region { x, y, width: (width - x).min(3), height: (height - y).min(2) };
                let part = pixels.view(orientation.stored_region(region, (5, 7))).unwrap();
                let mut turned = vec![0; part.row_bytes() * part.height as usize];
                orientation.turn(&part, &mut turned);
                assert_eq!(turned, upright.view(region).unwrap().to_vec(), "{orientation:?} {region}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), big: bool) {
            let _ = orientation(&bytes);
            let magic = if big { b"MM\0\x2A" } else { b"II\x2A\0" };
            bytes.iter_mut().zip(magic).for_each(|(byte, &magic)| *byte = magic);
            let _ = orientation(&bytes);
        }
    }
}
