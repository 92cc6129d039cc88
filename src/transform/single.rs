//! A geometry that is one resampling and nothing more, in plain numbers: what a GPU can be told in a launch.
//!
//! It resamples nothing itself. The numbers are those that [`Resampler`](super::Resampler) works with, so whoever
//! follows them by the same arithmetic makes the same pixels.

use super::axis::Axis;
use super::geometry::{Filter, Geometry};
use super::resize::fit;
use crate::decode::Region;

/// One crop, one resampling, and mirrors: all of a [`Geometry`] for which
/// [`as_single_resample`](Geometry::as_single_resample) has an answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SingleResample {
    /// The pixels of the image that are read; the axes count from its first one.
    pub window: Region,
    /// Across.
    pub x: ResampledAxis,
    /// Down.
    pub y: ResampledAxis,
    /// How pixels between pixels are made, on axes that are scaled; never [`Filter::Nearest`] there.
    pub filter: Filter,
    /// Whether left and right of the result are swapped.
    pub mirror_x: bool,
    /// Whether top and bottom of the result are swapped.
    pub mirror_y: bool,
}

/// One axis of a [`SingleResample`]: `outputs` made of the inputs between `start` and `end`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ResampledAxis {
    /// Where the first output begins, 0 to `inputs`; a whole number if the axis is not scaled.
    pub start: f64,
    /// Where the last output ends, `start` to `inputs`.
    pub end: f64,
    /// Inputs that there are, at least 1; filters end at the last.
    pub inputs: u32,
    /// Outputs, at least 1.
    pub outputs: u32,
    /// Whether inputs change in number; if not, they are copied.
    pub is_scaled: bool,
}

impl ResampledAxis {
    fn new(axis: &Axis, inputs: u32) -> Self {
        let (start, len) = axis.source();
        let (start, len) = if axis.is_scaled() { fit(start, len, inputs) } else { (start, len) };
        Self { start, end: start + len, inputs, outputs: axis.content().len, is_scaled: axis.is_scaled() }
    }

    /// Inputs that weigh in an output, at most.
    #[must_use]
    pub fn taps(&self, filter: Filter) -> u32 {
        let scale = (self.end - self.start) / f64::from(self.outputs);
        match filter.radius(scale) {
            Some(radius) if self.is_scaled => (radius.ceil() as u32).saturating_mul(2).saturating_add(1),
            _ => 1,
        }
    }
}

impl SingleResample {
    /// Whether planes are resampled faster than pixels: by the bilinear filter that widens, along one axis at least.
    pub(super) fn takes_planes(&self) -> bool {
        self.filter == Filter::Bilinear { antialias: true } && (self.x.is_scaled || self.y.is_scaled)
    }
}

impl Geometry {
    /// Whether a [`Resampler`](super::Resampler) takes planes of this image rather than pixels.
    #[must_use]
    pub fn takes_planes(&self) -> bool {
        self.as_single_resample().is_some_and(|single| single.takes_planes())
    }

    /// The geometry as one resampling, if it is that: one stage, without fill, bilinear, bicubic or a mere copy.
    ///
    /// So are `RandomResizedCrop`, `Resize` with or without a crop, and crops inside the image, with flips. Borders,
    /// the nearest filter and a second resize are not.
    #[must_use]
    pub fn as_single_resample(&self) -> Option<SingleResample> {
        let stage = self.last();
        let is_nearest = stage.filter() == Filter::Nearest && !stage.is_copy();
        if !self.earlier().is_empty() || stage.is_padded() || is_nearest || stage.content().width == 0 {
            return None;
        }
        let window = self.source;
        let (mirror_x, mirror_y) = stage.flips();
        Some(SingleResample {
            window,
            x: ResampledAxis::new(&stage.x, window.width),
            y: ResampledAxis::new(&stage.y, window.height),
            filter: stage.filter(),
            mirror_x,
            mirror_y,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Compose, SampleRng};
    use super::*;

    fn single(json: &str, width: u32, height: u32) -> Option<SingleResample> {
        let compose = Compose::from_json(json).unwrap();
        let mut rng = SampleRng::new(1, 0, 0);
        compose.geometry(width, height, &mut rng).unwrap().as_single_resample()
    }

    #[test]
    fn usual_recipes_are_single_and_the_others_are_not() {
        let check = |json, expected| assert_eq!(single(json, 500, 375).is_some(), expected, "{json}");
        check(r#"[{"name": "RandomResizedCrop", "size": 224}, {"name": "RandomHorizontalFlip"}]"#, true);
        check(r#"[{"name": "Resize", "size": 256}, {"name": "CenterCrop", "size": 224}]"#, true);
        check(r#"[{"name": "Resize", "size": [60, 70], "interpolation": "bicubic"}]"#, true);
        check(r#"[{"name": "CenterCrop", "size": 224}, {"name": "RandomVerticalFlip", "p": 1}]"#, true);
        check("[]", true);
        check(r#"[{"name": "CenterCrop", "size": 600}]"#, false);
        check(r#"[{"name": "Pad", "padding": 2}]"#, false);
        check(r#"[{"name": "Resize", "size": 256, "interpolation": "nearest"}]"#, false);
        check(r#"[{"name": "Resize", "size": 256}, {"name": "Resize", "size": 224}]"#, false);
    }

    #[test]
    fn its_numbers_are_those_of_the_stage() {
        let json = r#"[{"name": "Resize", "size": [100, 250]}, {"name": "CenterCrop", "size": [100, 50]},
                       {"name": "RandomHorizontalFlip", "p": 1}]"#;
        let SingleResample { window, x, y, filter, mirror_x, mirror_y } = single(json, 500, 100).unwrap();
        // Outputs 100 to 150 across lie over inputs 200 to 300, of which the filter reads one more on each side.
        assert_eq!(
            (window, filter),
            (Region { x: 199, y: 0, width: 102, height: 100 }, Filter::Bilinear { antialias: true })
        );
        assert_eq!(x, ResampledAxis { start: 1.0, end: 101.0, inputs: 102, outputs: 50, is_scaled: true });
        assert_eq!(y, ResampledAxis { start: 0.0, end: 100.0, inputs: 100, outputs: 100, is_scaled: false });
        assert_eq!(
            (mirror_x, mirror_y, x.taps(filter), y.taps(filter), x.taps(Filter::Bicubic)),
            (true, false, 5, 1, 9)
        );
    }
}
