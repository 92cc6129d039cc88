//! Decoded pixels and the rectangle of an image that they are.
//!
//! Nothing here owns memory: pixels are a view of a decoder's scratch, good until its next image.

use super::ImageInfo;
use crate::{Error, ErrorKind, Result};

/// A rectangle of an image, in pixels; `x` grows to the right, `y` downwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Region {
    /// First column.
    pub x: u32,
    /// First row.
    pub y: u32,
    /// Columns; a region that is decoded has at least one.
    pub width: u32,
    /// Rows; a region that is decoded has at least one.
    pub height: u32,
}

impl Region {
    /// The whole of an image of `width` x `height`.
    #[must_use]
    pub fn full(width: u32, height: u32) -> Self {
        Self { x: 0, y: 0, width, height }
    }

    /// The column after the last one, wide enough never to overflow.
    #[must_use]
    pub fn right(&self) -> u64 {
        u64::from(self.x) + u64::from(self.width)
    }

    /// The row after the last one, wide enough never to overflow.
    #[must_use]
    pub fn bottom(&self) -> u64 {
        u64::from(self.y) + u64::from(self.height)
    }

    /// Whether every pixel of `inner` is one of `self`.
    #[must_use]
    pub fn contains(&self, inner: &Region) -> bool {
        inner.x >= self.x && inner.y >= self.y && inner.right() <= self.right() && inner.bottom() <= self.bottom()
    }

    /// The region itself, if it has pixels and lies inside an image of `width` x `height`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`] for an empty region and for one that reaches outside.
    pub fn inside(self, width: u32, height: u32) -> Result<Self> {
        if self.width == 0 || self.height == 0 || !Self::full(width, height).contains(&self) {
            return Err(Error::new(
                ErrorKind::InvalidOption,
                format!("the region {self} is empty or outside the image of {width}x{height}"),
            ));
        }
        Ok(self)
    }
}

/// Prints as `WIDTHxHEIGHT+X+Y`.
impl std::fmt::Display for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}+{}+{}", self.width, self.height, self.x, self.y)
    }
}

impl From<&ImageInfo> for Region {
    fn from(info: &ImageInfo) -> Self {
        Self::full(info.width, info.height)
    }
}

/// Pixels of one image: `[height, width, channels]`, `u8`, row-major, rows `stride` bytes apart, borrowed.
///
/// `data` begins at the first pixel and is at least `(height - 1) * stride + width * channels` bytes long;
/// what lies between two rows means nothing.
#[derive(Debug, Clone, Copy)]
pub struct Pixels<'a> {
    /// The bytes, from the first pixel on.
    pub data: &'a [u8],
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// 3 (red, green, blue) or 1 (grey).
    pub channels: u8,
    /// Bytes from one row to the next, at least `width * channels`.
    pub stride: usize,
    /// Which rectangle of the image these pixels are; it contains the region that was asked for.
    pub region: Region,
}

impl<'a> Pixels<'a> {
    /// Tightly packed pixels of `region`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`] if `data` is too short for them.
    pub fn packed(data: &'a [u8], region: Region, channels: u8) -> Result<Self> {
        let stride = region.width as usize * usize::from(channels);
        Self::strided(data, region, channels, stride)
    }

    /// Pixels of `region` in rows `stride` bytes apart.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`] if the region is empty, `stride` too small, or `data` too short.
    pub fn strided(data: &'a [u8], region: Region, channels: u8, stride: usize) -> Result<Self> {
        let Region { width, height, .. } = region;
        let row_bytes = (width as usize).checked_mul(usize::from(channels));
        let needed = row_bytes.and_then(|row| {
            let above = (height as usize).checked_sub(1)?.checked_mul(stride)?;
            (row > 0 && row <= stride).then(|| above.checked_add(row))?
        });
        match needed {
            Some(needed) if needed <= data.len() => Ok(Self { data, width, height, channels, stride, region }),
            _ => Err(Error::new(
                ErrorKind::InvalidOption,
                format!(
                    "{} bytes with rows of {stride} cannot hold {width}x{height} pixels of {channels} bytes",
                    data.len()
                ),
            )),
        }
    }

    /// Bytes of one row that are pixels.
    #[must_use]
    pub fn row_bytes(&self) -> usize {
        self.width as usize * usize::from(self.channels)
    }

    /// Row `y` of these pixels; empty if there is no such row.
    #[must_use]
    pub fn row(&self, y: u32) -> &'a [u8] {
        let start = (y as usize).saturating_mul(self.stride);
        let end = start.saturating_add(self.row_bytes());
        if y < self.height { self.data.get(start..end).unwrap_or(&[]) } else { &[] }
    }

    /// The rows from top to bottom.
    pub fn rows(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let pixels = *self;
        (0..self.height).map(move |y| pixels.row(y))
    }

    /// The part of these pixels that is `region` of the image; copies nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`] if `region` is empty or not wholly among these pixels.
    pub fn view(&self, region: Region) -> Result<Self> {
        if region.width == 0 || region.height == 0 || !self.region.contains(&region) {
            return Err(Error::new(
                ErrorKind::InvalidOption,
                format!("the region {region} is not within the decoded pixels {}", self.region),
            ));
        }
        let (left, above) = ((region.x - self.region.x) as usize, (region.y - self.region.y) as usize);
        let start = above * self.stride + left * usize::from(self.channels);
        Self::strided(self.data.get(start..).unwrap_or(&[]), region, self.channels, self.stride)
    }

    /// The pixels in one vector, tightly packed.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut packed = Vec::with_capacity(self.row_bytes() * self.height as usize);
        self.rows().for_each(|row| packed.extend_from_slice(row));
        packed
    }
}

/// Pixels of one image as planes of red, green and blue: `[3, height, stride]`, `u8`, row-major, borrowed.
///
/// Only the first `width` samples of a row are pixels. Invariant: `stride` is a multiple of [`Planes::ALIGNMENT`] and at
/// least `width`, and `data` is exactly three planes long.
#[derive(Debug, Clone, Copy)]
pub struct Planes<'a> {
    data: &'a [u8],
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Samples from one row to the next.
    pub stride: usize,
    /// Which rectangle of the image these pixels are.
    pub region: Region,
}

impl<'a> Planes<'a> {
    /// What the length of a row in memory is a multiple of.
    pub const ALIGNMENT: usize = 32;

    /// Planes of `region` in rows of `stride` samples at the start of `data`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`] if the region is empty, `stride` too small or uneven, or `data` too short.
    pub fn new(data: &'a [u8], region: Region, stride: usize) -> Result<Self> {
        let Region { width, height, .. } = region;
        let len = stride.checked_mul(height as usize).and_then(|plane| plane.checked_mul(3));
        let is_legal = width > 0 && height > 0 && stride >= width as usize && stride.is_multiple_of(Self::ALIGNMENT);
        match len.and_then(|len| data.get(..len)).filter(|_| is_legal) {
            Some(data) => Ok(Self { data, width, height, stride, region }),
            None => Err(Error::new(
                ErrorKind::InvalidOption,
                format!("{} bytes with rows of {stride} cannot hold three planes of {width}x{height}", data.len()),
            )),
        }
    }

    /// Plane `number` of red, green, blue; empty if there is no such plane.
    #[must_use]
    pub fn plane(&self, number: usize) -> &'a [u8] {
        self.data.chunks_exact(self.stride * self.height as usize).nth(number).unwrap_or(&[])
    }

    /// The same as pixels of three bytes, tightly packed, in the place of what `pixels` held.
    pub fn to_pixels(&self, pixels: &mut Vec<u8>) {
        pixels.clear();
        let rows = |number| self.plane(number).chunks_exact(self.stride);
        for ((red, green), blue) in rows(0).zip(rows(1)).zip(rows(2)) {
            let columns = red.iter().zip(green).zip(blue).take(self.width as usize);
            columns.for_each(|((&red, &green), &blue)| pixels.extend_from_slice(&[red, green, blue]));
        }
    }
}

/// The first `size` bytes of a scratch buffer, which grows if it must; what it held may be lost.
pub(super) fn room(buffer: &mut Vec<u8>, size: usize) -> &mut [u8] {
    if buffer.len() < size {
        // Not resized: that would copy the old bytes and write zeros that the system gives for nothing.
        *buffer = vec![0; size];
    }
    &mut buffer[..size]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_the_same_pixels_at_another_place() {
        let data: Vec<u8> = (0..60).collect();
        let pixels = Pixels::packed(&data, Region { x: 10, y: 20, width: 5, height: 4 }, 3).unwrap();
        let view = pixels.view(Region { x: 12, y: 21, width: 2, height: 2 }).unwrap();
        assert_eq!(view.to_vec(), [21, 22, 23, 24, 25, 26, 36, 37, 38, 39, 40, 41]);
        assert_eq!((view.width, view.height, view.stride), (2, 2, 15));
    }

    #[test]
    fn a_view_outside_and_short_data_are_errors() {
        let data = [0; 60];
        let pixels = Pixels::packed(&data, Region::full(5, 4), 3).unwrap();
        assert!(pixels.view(Region { x: 4, y: 0, width: 2, height: 1 }).is_err());
        assert!(pixels.view(Region { x: 4, y: 0, width: 0, height: 1 }).is_err());
        assert!(Pixels::packed(&data[..59], Region::full(5, 4), 3).is_err());
        assert!(Pixels::strided(&data, Region::full(u32::MAX, u32::MAX), 3, usize::MAX).is_err());
    }

    #[test]
    fn a_region_must_have_pixels_inside_the_image() {
        assert!(Region::full(3, 2).inside(3, 2).is_ok());
        for region in [
            Region { x: 0, y: 0, width: 0, height: 1 },
            Region { x: 2, y: 0, width: 2, height: 1 },
            Region { x: u32::MAX, y: u32::MAX, width: u32::MAX, height: u32::MAX },
        ] {
            assert_eq!(region.inside(3, 2).unwrap_err().kind(), ErrorKind::InvalidOption, "{region}");
        }
    }
}
