//! What several runs say together: medians, intervals, and whether two sets of runs differ. It throws no run away.

/// The middle of the values, or the mean of the two in the middle; 0 for none.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        count => (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0,
    }
}

/// A value and the range in which it lies with 95 % confidence.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Interval {
    /// The best guess.
    pub value: f64,
    /// The low end.
    pub low: f64,
    /// The high end.
    pub high: f64,
}

impl Interval {
    /// Whether `value` lies in the range.
    #[must_use]
    pub fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// How many times larger `b` is than `a`, from runs of each that need not be pairs: Welch's interval of the difference
/// of the logarithms' means, so that twice and half are equally far from 1. `None` with fewer than two runs on a side,
/// or where a run is not above 0.
#[must_use]
pub fn ratio(a: &[f64], b: &[f64]) -> Option<Interval> {
    let (mean_a, variance_a) = log_moments(a)?;
    let (mean_b, variance_b) = log_moments(b)?;
    let (count_a, count_b) = (a.len() as f64, b.len() as f64);
    let (part_a, part_b) = (variance_a / count_a, variance_b / count_b);
    let difference = mean_b - mean_a;
    let error = (part_a + part_b).sqrt();
    let spread = part_a.powi(2) / (count_a - 1.0) + part_b.powi(2) / (count_b - 1.0);
    // Without any spread there is nothing to weigh: the interval is a point.
    let freedom = if spread > 0.0 { (part_a + part_b).powi(2) / spread } else { count_a + count_b - 2.0 };
    Some(around(difference, error * student_95(freedom)))
}

/// How many times larger the second of each pair is than the first, from runs that took turns.
#[must_use]
pub fn paired_ratio(pairs: &[(f64, f64)]) -> Option<Interval> {
    let ratios: Vec<f64> = pairs.iter().map(|(a, b)| b / a).collect();
    let (mean, variance) = log_moments(&ratios)?;
    let count = ratios.len() as f64;
    Some(around(mean, (variance / count).sqrt() * student_95(count - 1.0)))
}

fn around(log: f64, margin: f64) -> Interval {
    Interval { value: log.exp(), low: (log - margin).exp(), high: (log + margin).exp() }
}

/// Mean and variance of the logarithms of two values or more, all above 0.
fn log_moments(values: &[f64]) -> Option<(f64, f64)> {
    if values.len() < 2 || !values.iter().all(|value| value.is_finite() && *value > 0.0) {
        return None;
    }
    let count = values.len() as f64;
    let mean = values.iter().map(|value| value.ln()).sum::<f64>() / count;
    let variance = values.iter().map(|value| (value.ln() - mean).powi(2)).sum::<f64>() / (count - 1.0);
    Some((mean, variance))
}

/// How many standard errors reach 95 % of Student's distribution on both sides of 0, with `freedom` degrees of freedom.
fn student_95(freedom: f64) -> f64 {
    // Beyond these the limit changes by less than a hundredth.
    let freedom = freedom.clamp(1.0, 500.0);
    // With t = tan(a) sqrt(n) the share between -t and t is the integral of cos^(n-1) from 0 to the angle a over the
    // same to a right angle.
    let whole = power_of_cosine(std::f64::consts::FRAC_PI_2, freedom - 1.0);
    let (mut low, mut high) = (0.0, 13.0);
    while high - low > 1e-6 {
        let middle = (low + high) / 2.0;
        let angle = (middle / freedom.sqrt()).atan();
        if power_of_cosine(angle, freedom - 1.0) < 0.95 * whole { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

/// The integral of a power of the cosine from 0 to an angle, by Simpson's rule.
fn power_of_cosine(to: f64, power: f64) -> f64 {
    const STEPS: usize = 500;
    let step = to / STEPS as f64;
    let at = |place: usize| (place as f64 * step).cos().max(0.0).powf(power);
    let inner: f64 = (1..STEPS).map(|place| at(place) * if place % 2 == 1 { 4.0 } else { 2.0 }).sum();
    (at(0) + inner + at(STEPS)) * step / 3.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn students_limits_are_those_of_the_tables() {
        for (freedom, expected) in [(1.0, 12.7062), (2.0, 4.3027), (4.0, 2.7764), (9.0, 2.2622), (30.0, 2.0423)] {
            let found = student_95(freedom);
            assert!((found - expected).abs() < 2e-3, "{freedom}: {found}");
        }
        assert!((student_95(1e5) - 1.95996).abs() < 1e-2);
    }

    #[test]
    fn a_clear_difference_is_seen_and_noise_is_not() {
        let clear = ratio(&[100.0, 102.0, 98.0], &[200.0, 205.0, 196.0]).unwrap();
        assert!(clear.low > 1.85 && clear.high < 2.15 && !clear.holds(1.0), "{clear:?}");
        assert!(ratio(&[100.0, 120.0, 80.0], &[104.0, 118.0, 90.0]).unwrap().holds(1.0));
        assert_eq!(ratio(&[100.0], &[100.0, 101.0]), None);
        assert_eq!(ratio(&[0.0, 1.0], &[100.0, 101.0]), None);
        let same = ratio(&[5.0, 5.0], &[10.0, 10.0]).unwrap();
        assert!((same.value - 2.0).abs() < 1e-12 && (same.low - 2.0).abs() < 1e-9);
    }

    #[test]
    fn pairs_cancel_what_both_sides_share() {
        let pairs = [(100.0, 101.0), (200.0, 203.0), (50.0, 50.4), (400.0, 405.0)];
        let paired = paired_ratio(&pairs).unwrap();
        assert!(paired.low > 1.0 && paired.high < 1.02, "{paired:?}");
        assert_eq!(paired_ratio(&pairs[..1]), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn the_median_has_as_many_below_as_above(values in proptest::collection::vec(-1e9_f64..1e9, 1..40)) {
            let middle = median(&values);
            let below = values.iter().filter(|value| **value < middle).count();
            let above = values.iter().filter(|value| **value > middle).count();
            prop_assert!(below <= values.len() / 2 && above <= values.len() / 2);
        }

        #[test]
        fn swapping_the_sides_turns_the_ratio_over(
            a in proptest::collection::vec(1.0_f64..1e6, 2..10),
            b in proptest::collection::vec(1.0_f64..1e6, 2..10),
        ) {
            let (there, back) = (ratio(&a, &b).unwrap(), ratio(&b, &a).unwrap());
            prop_assert!(there.low <= there.value && there.value <= there.high);
            prop_assert!((there.value * back.value - 1.0).abs() < 1e-9);
            prop_assert!((there.low * back.high - 1.0).abs() < 1e-6, "{:?} {:?}", there, back);
        }
    }
}
