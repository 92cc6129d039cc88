//! An axis: its label, its scale, and where round numbers lie on it. It knows nothing of pixels: places on it go from
//! 0 to 1.

use serde::{Deserialize, Serialize};

use super::number::short_text;

/// Tick marks of an axis at most, whatever is asked for.
const TICKS_MAX: usize = 32;

/// Values beyond this on either side have no place: rounding the ends of an axis up would leave the floats.
const MAGNITUDE_MAX: f64 = 1e300;

/// What a direction of a chart means.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Axis {
    /// What is counted, with its unit: `MB/s`, `threads`.
    pub label: String,
    /// How numbers become places; linear unless given.
    pub scale: Scale,
    /// The least value shown; on a linear axis 0 unless given or values are negative, otherwise as the values are.
    pub min: Option<f64>,
    /// The greatest value shown; as the values are unless given.
    pub max: Option<f64>,
    /// Names of the values 0, 1, 2 …; only for [`Scale::Names`].
    pub names: Vec<String>,
}

/// How numbers become places on an axis.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Equal steps are equal distances.
    #[default]
    Linear,
    /// Doublings are equal distances; what is not above 0 has no place.
    Log2,
    /// Tenfold steps are equal distances; what is not above 0 has no place.
    Log10,
    /// Values are the numbers of names.
    Names,
}

impl Axis {
    /// A linear axis.
    pub fn new(label: impl Into<String>) -> Self {
        Self { label: label.into(), ..Self::default() }
    }

    /// An axis of names instead of numbers.
    pub fn names(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let names = names.into_iter().map(Into::into).collect();
        Self { scale: Scale::Names, names, ..Self::default() }
    }

    /// The same on a scale of doublings.
    #[must_use]
    pub fn log2(self) -> Self {
        Self { scale: Scale::Log2, ..self }
    }

    /// The same on a scale of tenfold steps.
    #[must_use]
    pub fn log10(self) -> Self {
        Self { scale: Scale::Log10, ..self }
    }

    /// The same showing `min` to `max` whatever the values.
    #[must_use]
    pub fn range(self, min: f64, max: f64) -> Self {
        Self { min: Some(min), max: Some(max), ..self }
    }

    /// The axis over `values`; those that have no place are passed over.
    pub(super) fn over(&self, values: impl IntoIterator<Item = f64>) -> Ruler {
        if self.scale == Scale::Names {
            return Ruler { scale: Scale::Names, low: 0.0, high: self.names.len().max(1) as f64, step: 1.0 };
        }
        let placed = |value: &f64| value.abs() <= MAGNITUDE_MAX && (self.scale == Scale::Linear || *value > 0.0);
        let given = [self.min, self.max].into_iter().flatten();
        let range = values.into_iter().chain(given).filter(placed).fold(None, |range: Option<(f64, f64)>, value| {
            let (low, high) = range.unwrap_or((value, value));
            Some((low.min(value), high.max(value)))
        });
        let (mut low, mut high) = range.unwrap_or((1.0, 1.0));
        if self.scale == Scale::Linear && self.min.is_none() {
            low = low.min(0.0);
            high = high.max(0.0);
        }
        low = self.min.filter(placed).unwrap_or(low);
        high = self.max.filter(placed).unwrap_or(high);
        Ruler::new(self.scale, low, high, self.min.is_none(), self.max.is_none())
    }
}

/// An axis with its ends: places from 0 to 1, and round numbers.
///
/// Invariant: `low < high`, both finite, and above 0 on logarithmic scales.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ruler {
    scale: Scale,
    low: f64,
    high: f64,
    /// Distance of neighbouring ticks: a difference on a linear scale, a factor on others.
    step: f64,
}

impl Ruler {
    fn new(scale: Scale, mut low: f64, mut high: f64, widen_low: bool, widen_high: bool) -> Self {
        if low >= high {
            (low, high) = match scale {
                Scale::Linear => (low.min(high), low.min(high) + low.abs().max(1.0)),
                _ => (high.min(low) / 2.0, high.min(low) * 2.0),
            };
        }
        if !(low < high && (high - low).is_finite() && (scale == Scale::Linear || low > 0.0)) {
            // Beyond what floats can tell apart, such as 1e308 on both sides of 0.
            return Self { scale, low: 1.0, high: 2.0, step: if scale == Scale::Linear { 1.0 } else { 2.0 } };
        }
        let step = match scale {
            Scale::Linear => nice((high - low) / 5.0),
            Scale::Log2 => 2_f64.powf(((high / low).log2() / 9.0).ceil().max(1.0)),
            _ => 10_f64.powf(((high / low).log10() / 7.0).ceil().max(1.0)),
        };
        if scale == Scale::Linear {
            // Ends on round numbers, so that the last value stands below a line.
            low = if widen_low { (low / step).floor() * step } else { low };
            high = if widen_high { (high / step - 1e-9).ceil() * step } else { high };
        }
        Self { scale, low, high, step }
    }

    /// Where `value` lies, 0 at the low end and 1 at the high one; `None` where it has no place.
    pub(super) fn at(&self, value: f64) -> Option<f64> {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Names => (value + 0.5) / self.high,
            _ if value <= 0.0 => return None,
            _ => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        (-1e-9..=1.0 + 1e-9).contains(&share).then(|| share.clamp(0.0, 1.0))
    }

    /// Round numbers on the axis, ascending, with their texts.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let mut ticks: Vec<f64> = Vec::new();
        match self.scale {
            Scale::Names => {}
            Scale::Linear => {
                let first = (self.low / self.step - 1e-9).ceil();
                for number in 0..TICKS_MAX {
                    let value = (first + number as f64) * self.step;
                    if value > self.high + self.step * 1e-9 {
                        break;
                    }
                    ticks.push(if value.abs() < self.step * 1e-9 { 0.0 } else { value });
                }
            }
            Scale::Log2 | Scale::Log10 => {
                let base: f64 = if self.scale == Scale::Log2 { 2.0 } else { 10.0 };
                let mut power = (self.low.ln() / base.ln() - 1e-9).ceil();
                let stride = (self.step.ln() / base.ln()).round().max(1.0);
                while ticks.len() < TICKS_MAX && base.powf(power) <= self.high * (1.0 + 1e-9) {
                    ticks.push(base.powf(power));
                    power += stride;
                }
                if ticks.len() < 3 && self.scale == Scale::Log10 {
                    let low = 10_f64.powf(self.low.log10().floor());
                    let fine = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0];
                    ticks = fine.iter().map(|digit| digit * low).filter(|value| self.at(*value).is_some()).collect();
                }
            }
        }
        if ticks.is_empty() && self.scale != Scale::Names {
            ticks = vec![self.low, self.high];
        }
        ticks.into_iter().filter(|value| value.is_finite()).map(|value| (value, short_text(value))).collect()
    }
}

/// The least of 1, 2, 2.5, 5 times a power of ten that is not below `rough`.
fn nice(rough: f64) -> f64 {
    let power = 10_f64.powf(rough.log10().floor());
    let digit = [1.0, 2.0, 2.5, 5.0].into_iter().find(|digit| digit * power >= rough * (1.0 - 1e-9)).unwrap_or(10.0);
    (digit * power).max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(axis: &Axis, values: &[f64]) -> Vec<String> {
        axis.over(values.iter().copied()).ticks().into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        let linear = Axis::new("x");
        assert_eq!(texts(&linear, &[3.0, 9.7]), ["0", "2", "4", "6", "8", "10"]);
        assert_eq!(texts(&linear, &[910.0]), ["0", "200", "400", "600", "800", "1,000"]);
        assert_eq!(texts(&linear, &[-2.0, 2.0]), ["-2", "-1", "0", "1", "2"]);
        assert_eq!(texts(&linear, &[]), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(texts(&linear.clone().log2(), &[1.0, 8.0]), ["1", "2", "4", "8"]);
        assert_eq!(texts(&linear.clone().log10(), &[0.01, 50.0]), ["0.01", "0.1", "1", "10"]);
        assert_eq!(texts(&linear.clone().log10(), &[1.5, 6.0]), ["2", "5"]);
        assert_eq!(texts(&linear.clone().log2(), &[0.0, -1.0, f64::NAN]), ["0.5", "1", "2"]);
        assert_eq!(texts(&linear.range(0.8, 1.2), &[1.0]), ["0.8", "0.9", "1", "1.1", "1.2"]);
    }

    #[test]
    fn what_has_no_place_on_an_axis_has_none() {
        let ruler = Axis::new("x").log10().over([1.0, 100.0]);
        assert_eq!(ruler.at(10.0).map(|at| (at * 1e6).round()), Some(5e5));
        for value in [0.0, -1.0, 0.9, 101.0, f64::NAN] {
            assert_eq!(ruler.at(value), None, "{value}");
        }
        let names = Axis::names(["a", "b"]).over([]);
        assert_eq!((names.at(0.0), names.at(1.0), names.at(2.0)), (Some(0.25), Some(0.75), None));
    }

    proptest! {
        #[test]
        fn every_value_with_a_place_is_between_the_ends(
            values in proptest::collection::vec(proptest::num::f64::ANY, 0..20),
            scale in prop_oneof![Just(Scale::Linear), Just(Scale::Log2), Just(Scale::Log10)],
        ) {
            let axis = Axis { scale, ..Axis::new("x") };
            let ruler = axis.over(values.iter().copied());
            prop_assert!(ruler.low < ruler.high && ruler.low.is_finite() && ruler.high.is_finite());
            let ticks = ruler.ticks();
            prop_assert!(!ticks.is_empty() && ticks.len() <= TICKS_MAX);
            prop_assert!(ticks.windows(2).all(|pair| pair[0].0 < pair[1].0), "{:?}", ticks);
            let sane = |value: &&f64| value.abs() < 1e100 && value.abs() > 1e-100;
            if values.iter().all(|value| sane(&value)) {
                for value in values.iter().filter(|value| scale == Scale::Linear || **value > 0.0) {
                    prop_assert!(ruler.at(*value).is_some(), "{} on {:?}", value, ruler);
                }
            }
        }
    }
}
