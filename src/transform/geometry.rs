//! The geometry of one image, resolved: the region to decode and the stages that make the output of it.
//!
//! It touches no pixel: a [`Resampler`](super::Resampler) or a GPU does what it says.

use super::arguments::Padding;
use super::axis::{Axis, Span};
use crate::decode::Region;
use crate::{Error, ErrorKind, Result};

/// Pixels of the largest picture that a stage may make, as many as the decoders' default limit.
const PIXELS_MAX: u64 = 178_956_970;

/// How a stage makes pixels between pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// The pixel under the centre of the new one.
    Nearest,
    /// The triangle filter.
    Bilinear {
        /// Whether it widens when the picture shrinks, as PIL's does.
        antialias: bool,
    },
    /// The cubic filter with a = -0.5, widened when the picture shrinks.
    Bicubic,
}

impl Filter {
    /// Half the width of the filter, in inputs, at `scale` inputs an output.
    pub(super) fn radius(self, scale: f64) -> Option<f64> {
        match self {
            Self::Nearest => None,
            Self::Bilinear { antialias: true } => Some(scale.max(1.0)),
            Self::Bilinear { antialias: false } => Some(1.0),
            Self::Bicubic => Some(2.0 * scale.max(1.0)),
        }
    }
}

/// What becomes of one image: made by [`Compose::geometry`](super::Compose::geometry).
#[derive(Debug, Clone, PartialEq)]
pub struct Geometry {
    /// The pixels that must be decoded: filters included, always inside the image, never empty.
    pub source: Region,
    earlier: Vec<Stage>,
    last: Stage,
}

impl Geometry {
    /// (height, width) of the output.
    #[must_use]
    pub fn output_size(&self) -> (u32, u32) {
        (self.last.y.canvas(), self.last.x.canvas())
    }

    /// The stages in order, at least one; the input of the first is [`source`](Self::source), of each other
    /// the output of the one before.
    pub fn stages(&self) -> impl Iterator<Item = &Stage> {
        self.earlier.iter().chain([&self.last])
    }

    pub(super) fn earlier(&self) -> &[Stage] {
        &self.earlier
    }

    pub(super) fn last(&self) -> &Stage {
        &self.last
    }
}

/// One resampling with a crop before or after it, flips, and fill around the result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stage {
    pub(super) x: Axis,
    pub(super) y: Axis,
    filter: Filter,
    fill: [u8; 3],
}

impl Stage {
    fn identity(width: u32, height: u32) -> Self {
        Self {
            x: Axis::identity(width),
            y: Axis::identity(height),
            filter: Filter::Bilinear { antialias: true },
            fill: [0; 3],
        }
    }

    /// The part of the input that is resampled, `[left, top, width, height]` in pixels; the filter reads
    /// pixels around it as far as the input goes.
    #[must_use]
    pub fn source_box(&self) -> [f64; 4] {
        let ((left, width), (top, height)) = (self.x.source(), self.y.source());
        [left, top, width, height]
    }

    /// The part of the output that is made from the input; empty if all of it is fill.
    #[must_use]
    pub fn content(&self) -> Region {
        let (x, y) = (self.x.content(), self.y.content());
        if x.len == 0 || y.len == 0 {
            return Region { x: 0, y: 0, width: 0, height: 0 };
        }
        Region { x: x.start, y: y.start, width: x.len, height: y.len }
    }

    /// (height, width) of the output, fill included.
    #[must_use]
    pub fn output_size(&self) -> (u32, u32) {
        (self.y.canvas(), self.x.canvas())
    }

    /// Whether left and right, top and bottom of the content are swapped.
    #[must_use]
    pub fn flips(&self) -> (bool, bool) {
        (self.x.is_flipped(), self.y.is_flipped())
    }

    /// Whether pixels are only copied.
    #[must_use]
    pub fn is_copy(&self) -> bool {
        !self.x.is_scaled() && !self.y.is_scaled()
    }

    /// The filter; without meaning for a copy.
    #[must_use]
    pub fn filter(&self) -> Filter {
        self.filter
    }

    /// Red, green and blue of what is not content; grey images have all three alike.
    #[must_use]
    pub fn fill(&self) -> [u8; 3] {
        self.fill
    }

    /// Whether some of the output is not content.
    #[must_use]
    pub fn is_padded(&self) -> bool {
        self.x.is_padded() || self.y.is_padded()
    }

    fn crop(&mut self, x: Span, y: Span) {
        self.x.crop(x.start, x.len);
        self.y.crop(y.start, y.len);
    }
}

/// A geometry in the making: the picture as it looks after the transforms so far.
#[derive(Debug)]
pub(super) struct Canvas {
    earlier: Vec<Stage>,
    last: Stage,
}

impl Canvas {
    /// An image as it is decoded.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Decode`] if it has no pixels.
    pub(super) fn new(width: u32, height: u32) -> Result<Self> {
        if width == 0 || height == 0 {
            return Err(Error::new(ErrorKind::Decode, format!("an image of {width}x{height} has no pixels")));
        }
        Ok(Self { earlier: Vec::new(), last: Stage::identity(width, height) })
    }

    pub(super) fn width(&self) -> u32 {
        self.last.x.canvas()
    }

    pub(super) fn height(&self) -> u32 {
        self.last.y.canvas()
    }

    /// Keeps `region`; the caller has checked that it is inside.
    pub(super) fn crop(&mut self, region: Region) {
        self.last.crop(Span { start: region.x, len: region.width }, Span { start: region.y, len: region.height });
    }

    /// Resamples to `width` x `height`, both at least 1.
    pub(super) fn resize(&mut self, width: u32, height: u32, filter: Filter) {
        if (width, height) == (self.width(), self.height()) {
            return;
        }
        let (flip_x, flip_y) = self.last.flips();
        let mirrored_ties = filter == Filter::Nearest && (flip_x || flip_y);
        if !self.last.is_copy() || self.last.is_padded() || mirrored_ties {
            self.next_stage();
        }
        self.last.x.resize(width);
        self.last.y.resize(height);
        self.last.filter = filter;
    }

    /// Adds borders.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Limit`] if the picture becomes too large to count its pixels.
    pub(super) fn pad(&mut self, padding: Padding, fill: [u8; 3]) -> Result<()> {
        let Padding { left, top, right, bottom } = padding;
        if padding == Padding::default() {
            return Ok(());
        }
        if self.last.is_padded() && self.last.fill != fill {
            self.next_stage();
        }
        self.last.fill = fill;
        if self.last.x.pad(left, right) && self.last.y.pad(top, bottom) {
            Ok(())
        } else {
            Err(Error::new(ErrorKind::Limit, "padding makes the image larger than 4294967295 pixels on a side"))
        }
    }

    /// Swaps left and right.
    pub(super) fn mirror_x(&mut self) {
        self.last.x.mirror();
    }

    /// Swaps top and bottom.
    pub(super) fn mirror_y(&mut self) {
        self.last.y.mirror();
    }

    /// The finished geometry: every stage makes only what the next one reads.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Limit`] if a picture on the way has too many pixels.
    pub(super) fn finish(mut self) -> Result<Geometry> {
        let mut source = narrow(&mut self.last)?;
        for stage in self.earlier.iter_mut().rev() {
            let read = |start, len| Span { start, len };
            stage.crop(read(source.x, source.width), read(source.y, source.height));
            source = narrow(stage)?;
        }
        Ok(Geometry { source, earlier: self.earlier, last: self.last })
    }

    fn next_stage(&mut self) {
        self.earlier.push(self.last);
        self.last = Stage::identity(self.last.x.canvas(), self.last.y.canvas());
    }
}

/// Rebases `stage` to the part of its input that it reads, which is returned.
fn narrow(stage: &mut Stage) -> Result<Region> {
    let (height, width) = stage.output_size();
    if u64::from(width) * u64::from(height) > PIXELS_MAX {
        let message =
            format!("the transforms make a picture of {width}x{height}, over the limit of {PIXELS_MAX} pixels");
        return Err(Error::new(ErrorKind::Limit, message));
    }
    let read = |axis: &mut Axis| {
        let (first, len) = axis.window(stage.filter);
        axis.rebase(first);
        (u32::try_from(first).unwrap_or(0), len)
    };
    let ((x, width), (y, height)) = (read(&mut stage.x), read(&mut stage.y));
    Ok(Region { x, y, width, height })
}
