//! One axis of one resampling stage, in whole numbers: which inputs become which outputs.
//!
//! It knows neither pixels nor the other axis; a [`Stage`](super::Stage) holds two of these.

use super::Filter;

/// `in_len` inputs from `origin` on are resampled to `out_len` outputs, of which `count` from `start` on are
/// kept, mirrored if `flip`, and put at `place` of a canvas of `canvas`.
///
/// Invariants: `start + count <= out_len`, `place + count <= canvas`, `in_len > 0`, `out_len > 0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Axis {
    origin: i64,
    in_len: u32,
    out_len: u32,
    start: u32,
    count: u32,
    flip: bool,
    place: u32,
    canvas: u32,
}

/// A part of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) len: u32,
}

impl Axis {
    /// Every input as it is.
    pub(super) fn identity(len: u32) -> Self {
        Self { origin: 0, in_len: len, out_len: len, start: 0, count: len, flip: false, place: 0, canvas: len }
    }

    /// Length of the result.
    pub(super) fn canvas(&self) -> u32 {
        self.canvas
    }

    /// The part of the result that comes from inputs; the rest is fill.
    pub(super) fn content(&self) -> Span {
        Span { start: self.place, len: self.count }
    }

    /// Whether the result is mirrored.
    pub(super) fn is_flipped(&self) -> bool {
        self.flip
    }

    /// Whether inputs change in number.
    pub(super) fn is_scaled(&self) -> bool {
        self.in_len != self.out_len
    }

    /// Whether part of the result is fill.
    pub(super) fn is_padded(&self) -> bool {
        self.count != self.canvas
    }

    /// Keeps `len` places of the result from `start` on; the caller has checked that they exist.
    pub(super) fn crop(&mut self, start: u32, len: u32) {
        let content_end = self.place + self.count;
        let cut_front = start.saturating_sub(self.place).min(self.count);
        let cut_back = content_end.saturating_sub(start.saturating_add(len)).min(self.count - cut_front);
        self.start += if self.flip { cut_back } else { cut_front };
        self.count -= cut_front + cut_back;
        self.place = if self.count == 0 { 0 } else { self.place.saturating_sub(start) };
        self.canvas = len;
    }

    /// Adds fill at both ends; false if the result would be too long to count.
    #[must_use]
    pub(super) fn pad(&mut self, before: u32, after: u32) -> bool {
        let Some(canvas) = self.canvas.checked_add(before).and_then(|canvas| canvas.checked_add(after)) else {
            return false;
        };
        self.canvas = canvas;
        self.place += before;
        true
    }

    /// Mirrors the result.
    pub(super) fn mirror(&mut self) {
        self.flip = !self.flip;
        self.place = self.canvas - self.place - self.count;
    }

    /// Resamples the result to `len`; only for an axis that is neither scaled nor padded.
    pub(super) fn resize(&mut self, len: u32) {
        debug_assert!(!self.is_scaled() && !self.is_padded() && self.count > 0 && len > 0);
        *self = Self {
            origin: self.origin + i64::from(self.start),
            in_len: self.count,
            out_len: len,
            start: 0,
            count: len,
            flip: self.flip,
            place: 0,
            canvas: len,
        };
    }

    /// The inputs that the result depends on; one of them if it depends on none.
    pub(super) fn window(&self, filter: Filter) -> (i64, u32) {
        let Span { start, len } = match self.count {
            0 => Span { start: self.start.min(self.in_len - 1), len: 1 },
            _ if !self.is_scaled() => Span { start: self.start, len: self.count },
            _ => self.support(filter),
        };
        (self.origin + i64::from(start), len)
    }

    /// Counts inputs from `first` on.
    pub(super) fn rebase(&mut self, first: i64) {
        self.origin -= first;
    }

    /// Where the kept outputs lie among the inputs: start and length, fractional, once rebased to the window.
    pub(super) fn source(&self) -> (f64, f64) {
        if !self.is_scaled() {
            return ((self.origin + i64::from(self.start)) as f64, f64::from(self.count));
        }
        let scale = self.scale();
        (self.origin as f64 + f64::from(self.start) * scale, f64::from(self.count) * scale)
    }

    /// For each kept output, mirrored or not, the input under its centre, once rebased to the window.
    ///
    /// The centres are summed up one by one as PIL does it, so that ties between two inputs fall alike.
    pub(super) fn nearest(&self) -> impl Iterator<Item = u32> {
        let (scale, last, origin) = (self.scale(), self.in_len - 1, self.origin);
        let mut centre = scale * 0.5;
        let outputs = (0..self.start + self.count).map(move |_| {
            let input = (centre as u32).min(last);
            centre += scale;
            u32::try_from(origin + i64::from(input)).unwrap_or(0)
        });
        outputs.skip(self.start as usize)
    }

    fn scale(&self) -> f64 {
        f64::from(self.in_len) / f64::from(self.out_len)
    }

    /// The inputs under the filter of the kept outputs, counted from the origin.
    fn support(&self, filter: Filter) -> Span {
        let scale = self.scale();
        let (low, high) = match filter.radius(scale) {
            Some(radius) => {
                // The outputs' own share of the inputs belongs to it even where a narrow filter skips some of it.
                let reach = (radius - 0.5 * scale).max(0.0);
                let (first, end) = (f64::from(self.start) * scale, f64::from(self.start + self.count) * scale);
                ((first - reach).floor().max(0.0) as u32, (end + reach).ceil() as u32)
            }
            None => {
                let origin = Self { origin: 0, ..*self };
                let (mut low, mut high) = (u32::MAX, 0);
                for input in origin.nearest() {
                    low = low.min(input);
                    high = high.max(input + 1);
                }
                (low, high)
            }
        };
        let high = high.min(self.in_len);
        let low = low.min(high.saturating_sub(1));
        Span { start: low, len: high - low }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an axis makes of the inputs 1, 2, 3, ..; 0 is fill.
    fn result(axis: &Axis) -> Vec<u32> {
        let mut result = vec![0; axis.canvas as usize];
        let (first, _) = axis.window(Filter::Nearest);
        let mut local = *axis;
        local.rebase(first);
        let mut content: Vec<u32> = local.nearest().map(|input| input + first as u32 + 1).collect();
        if axis.flip {
            content.reverse();
        }
        result[axis.place as usize..(axis.place + axis.count) as usize].copy_from_slice(&content);
        result
    }

    #[test]
    fn crops_pads_and_mirrors_compose() {
        let mut axis = Axis::identity(5);
        assert!(axis.pad(2, 1));
        assert_eq!(result(&axis), [0, 0, 1, 2, 3, 4, 5, 0]);
        axis.mirror();
        assert_eq!(result(&axis), [0, 5, 4, 3, 2, 1, 0, 0]);
        axis.crop(2, 5);
        assert_eq!(result(&axis), [4, 3, 2, 1, 0]);
        axis.mirror();
        axis.crop(1, 3);
        assert_eq!(result(&axis), [1, 2, 3]);
        axis.resize(6);
        assert_eq!(result(&axis), [1, 1, 2, 2, 3, 3]);
        axis.crop(3, 2);
        assert_eq!(result(&axis), [2, 3]);
    }

    #[test]
    fn a_crop_of_fill_alone_has_no_content() {
        let mut axis = Axis::identity(5);
        assert!(axis.pad(4, 4));
        axis.crop(10, 2);
        assert_eq!(result(&axis), [0, 0]);
        assert_eq!(axis.window(Filter::Nearest), (4, 1));
        axis.mirror();
        axis.crop(0, 1);
        assert_eq!(result(&axis), [0]);
    }

    #[test]
    fn too_long_a_canvas_is_refused() {
        let mut axis = Axis::identity(5);
        assert!(!axis.pad(u32::MAX, 0));
        assert_eq!(axis, Axis::identity(5));
    }

    #[test]
    fn the_window_holds_the_filter_and_stops_at_the_edges() {
        let mut axis = Axis::identity(400);
        axis.resize(100);
        assert_eq!(axis.window(Filter::Bilinear { antialias: true }), (0, 400));
        axis.crop(50, 10);
        assert_eq!(axis.window(Filter::Bilinear { antialias: true }), (198, 44));
        assert_eq!(axis.window(Filter::Bilinear { antialias: false }), (200, 40));
        assert_eq!(axis.window(Filter::Bicubic), (194, 52));
        assert_eq!(axis.window(Filter::Nearest), (202, 37));
    }
}
