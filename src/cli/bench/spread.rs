//! Several measurements of one thing: the median, and how far they lie apart. It does not throw any away.

use serde::Serialize;

/// Rates or ratios of several runs, at least one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
    /// In the order of the runs.
    pub(super) runs: Vec<f64>,
}

impl Spread {
    /// All zero for no runs.
    pub(super) fn of(runs: Vec<f64>) -> Self {
        let mut sorted = runs.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |place: usize| sorted.get(place).copied().unwrap_or(0.0);
        let (below, above) = (sorted.len().saturating_sub(1) / 2, sorted.len() / 2);
        let median = if sorted.is_empty() { 0.0 } else { (at(below) + at(above)) / 2.0 };
        Self { median, min: at(0), max: at(sorted.len().saturating_sub(1)), runs }
    }

    /// How far the runs lie from the median at most, in percent of it.
    pub(super) fn percent(&self) -> f64 {
        let farthest = (self.max - self.median).max(self.median - self.min);
        if self.median > 0.0 { 100.0 * farthest / self.median } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        let check = |runs: &[f64], median, min, max| {
            let spread = Spread::of(runs.to_vec());
            assert_eq!((spread.median, spread.min, spread.max), (median, min, max), "{runs:?}");
        };
        check(&[], 0.0, 0.0, 0.0);
        check(&[7.0], 7.0, 7.0, 7.0);
        check(&[9.0, 1.0], 5.0, 1.0, 9.0);
        check(&[9.0, 1.0, 2.0], 2.0, 1.0, 9.0);
        assert_eq!(Spread::of(vec![90.0, 100.0, 120.0]).percent(), 20.0);
    }
}
