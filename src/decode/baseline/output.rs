//! Where finished rows go: pixels of one or three bytes, or planes of red, green and blue.

use super::color::CHUNK;
use super::instructions::Instructions;
use crate::decode::Region;

/// How pixels are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::decode) enum Form {
    /// One byte a pixel; only of a picture of one component.
    Grey,
    /// Three bytes a pixel.
    #[default]
    Pixels,
    /// Three planes one after the other.
    Planes,
}

/// The pixels of a region; keeps its memory.
///
/// `data` is `[height, width, 1 or 3]`, contiguous, or `[3, height, stride]`, `u8`.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) data: Vec<u8>,
    pub(super) form: Form,
    width: usize,
    height: usize,
    is_grey: bool,
    /// A row of planes on the way to pixels.
    lines: [Vec<u8>; 3],
    needs: Needs,
}

/// How much the pictures of late needed: memory that a rare large one took is given back.
#[derive(Debug, Default)]
struct Needs {
    /// The most of this period, and of the one before.
    most: [usize; 2],
    pictures: u32,
}

impl Needs {
    /// Pictures of a period.
    const PERIOD: u32 = 64;

    /// Counts a picture that needs `len` bytes; the capacity from which on memory is too much.
    fn count(&mut self, len: usize) -> usize {
        if self.pictures == Self::PERIOD {
            self.most = [0, self.most[0]];
            self.pictures = 0;
        }
        self.pictures += 1;
        self.most[0] = self.most[0].max(len);
        4 * self.most[0].max(self.most[1])
    }
}

impl Output {
    /// Makes room for `region` of a picture that is or is not grey.
    pub(super) fn begin(&mut self, region: Region, form: Form, is_grey: bool) {
        (self.width, self.height) = (region.width as usize, region.height as usize);
        (self.form, self.is_grey) = (form, is_grey);
        let len = match form {
            Form::Grey => self.width * self.height,
            Form::Pixels => 3 * self.width * self.height,
            Form::Planes => 3 * self.stride() * self.height,
        };
        let most = self.needs.count(len);
        if self.data.len() < len || self.data.capacity() > most {
            self.data = vec![0; len];
        }
        let stride = self.stride();
        for line in self.lines.iter_mut().filter(|line| line.len() < stride) {
            *line = vec![0; stride];
        }
    }

    /// Samples from one row of a plane to the next.
    pub(super) fn stride(&self) -> usize {
        self.width.next_multiple_of(CHUNK)
    }

    /// Whether the picture has no colours.
    pub(super) fn is_grey_source(&self) -> bool {
        self.is_grey
    }

    /// Row `row` of luma alone.
    pub(super) fn grey(&mut self, row: usize, luma: &[u8], instructions: Instructions) {
        let (width, stride) = (self.width, self.stride());
        match self.form {
            Form::Grey => self.data[row * width..][..width].copy_from_slice(&luma[..width]),
            Form::Pixels => instructions.interleave([luma; 3], &mut self.data[3 * row * width..][..3 * width]),
            Form::Planes => {
                for plane in self.data.chunks_exact_mut(stride * self.height).take(3) {
                    plane[row * stride..][..stride].copy_from_slice(luma);
                }
            }
        }
    }

    /// Row `row` of a picture in colour, its three components at one size, a whole number of chunks long.
    pub(super) fn color(&mut self, row: usize, ycc: [&[u8]; 3], instructions: Instructions) {
        let (width, stride) = (self.width, self.stride());
        if self.form == Form::Planes {
            let mut planes = self.data.chunks_exact_mut(stride * self.height);
            if let (Some(red), Some(green), Some(blue)) = (planes.next(), planes.next(), planes.next()) {
                let rgb = [red, green, blue].map(|plane| &mut plane[row * stride..][..stride]);
                instructions.rgb_planes(ycc, rgb);
            }
            return;
        }
        let [red, green, blue] = &mut self.lines;
        instructions.rgb_planes(ycc, [&mut red[..stride], &mut green[..stride], &mut blue[..stride]]);
        let planes = [&red[..stride], &green[..stride], &blue[..stride]];
        instructions.interleave(planes, &mut self.data[3 * row * width..][..3 * width]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_rare_large_picture_is_given_back() {
        let mut output = Output::default();
        let mut begin = |side| {
            let region = Region { x: 0, y: 0, width: side, height: side };
            output.begin(region, Form::Pixels, false);
            output.data.capacity()
        };
        let (small, large) = (begin(100), begin(1000));
        assert!(large >= 3_000_000);
        let after: Vec<_> = (0..3 * Needs::PERIOD).map(|_| begin(100)).collect();
        assert_eq!(after[..Needs::PERIOD as usize / 2], vec![large; Needs::PERIOD as usize / 2]);
        assert_eq!(after.last(), Some(&small));
        // Pictures that are all large keep theirs.
        let kept: Vec<_> = (0..3 * Needs::PERIOD).map(|i| begin(if i % 16 == 0 { 1000 } else { 400 })).collect();
        assert_eq!(kept, vec![large; kept.len()]);
    }
}
