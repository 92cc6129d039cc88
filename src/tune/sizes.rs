//! The batch sizes that may be chosen: multiples of a number within bounds, or divisors of a fixed number of samples.
//! It knows nothing of what a size is worth.

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind, Result};

/// The largest size of all.
const SIZE_MAX: usize = 1 << 20;

/// How many sizes a message lists.
const LISTED: usize = 4;

/// Batch sizes in ascending order, at least one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes(Vec<usize>);

impl Sizes {
    /// All multiples of `of` from `min` to `max`, `max` at most 1,048,576.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] when a bound is 0 or too large, the bounds are the wrong way round, or no multiple
    /// lies between them: then with the nearest.
    pub fn multiples(min: usize, max: usize, of: usize) -> Result<Self> {
        check_bounds(min, max, of)?;
        let sizes: Vec<usize> = (min.next_multiple_of(of)..=max).step_by(of).collect();
        if sizes.is_empty() {
            let (below, above) = (max / of * of, min.next_multiple_of(of));
            let near = if below == 0 { above.to_string() } else { format!("{below} and {above}") };
            let message = format!("no multiple of {of} lies between min={min} and max={max}");
            return Err(refused(message, format!("the nearest are {near}: widen the bounds, or give multiple_of=1")));
        }
        Ok(Self(sizes))
    }

    /// The divisors of `per_rank`, the samples of one optimiser step on one rank, that are multiples of `of` from `min`
    /// to `max`: any of them times a whole number of accumulation steps makes the same step.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] as for [`multiples`](Self::multiples); where no divisor serves, with the nearest
    /// that would.
    pub fn divisors(per_rank: usize, min: usize, max: usize, of: usize) -> Result<Self> {
        check_bounds(min, max, of)?;
        if per_rank == 0 || per_rank > SIZE_MAX * 1024 {
            return Err(refused(
                format!("{per_rank} samples a rank and step are not between 1 and {}", SIZE_MAX * 1024),
                "global_batch counts the samples of one optimiser step over all ranks".to_owned(),
            ));
        }
        let all: Vec<usize> = (1..=max.max(min).saturating_mul(16).min(per_rank))
            .filter(|size| per_rank.is_multiple_of(*size))
            .chain([per_rank])
            .collect();
        let mut sizes: Vec<usize> =
            all.iter().copied().filter(|size| (min..=max).contains(size) && size.is_multiple_of(of)).collect();
        sizes.dedup();
        if sizes.is_empty() {
            let mut near: Vec<usize> = all.iter().copied().filter(|size| size.is_multiple_of(of)).collect();
            if near.is_empty() {
                near = all;
            }
            near.dedup();
            near.sort_by_key(|size| min.saturating_sub(*size).max(size.saturating_sub(max)));
            near.truncate(LISTED);
            near.sort_unstable();
            let listed: Vec<String> = near.iter().map(usize::to_string).collect();
            let message = format!(
                "{per_rank} samples a rank and step have no divisor that is a multiple of {of} between min={min} and \
                 max={max}"
            );
            let hint =
                format!("the nearest divisors are {}: move the bounds, multiple_of or global_batch", listed.join(", "));
            return Err(refused(message, hint));
        }
        Ok(Self(sizes))
    }

    /// The smallest size.
    #[must_use]
    pub fn min(&self) -> usize {
        self.0.first().copied().unwrap_or(1)
    }

    /// The largest size.
    #[must_use]
    pub fn max(&self) -> usize {
        self.0.last().copied().unwrap_or(1)
    }

    /// All sizes in ascending order.
    #[must_use]
    pub fn as_slice(&self) -> &[usize] {
        &self.0
    }

    /// Whether `size` is one of them.
    #[must_use]
    pub fn contains(&self, size: usize) -> bool {
        self.0.binary_search(&size).is_ok()
    }

    /// The largest size of at most `limit`.
    #[must_use]
    pub fn at_most(&self, limit: usize) -> Option<usize> {
        let after = self.0.partition_point(|&size| size <= limit);
        after.checked_sub(1).map(|at| self.0[at])
    }

    /// The smallest size of at least `limit`.
    #[must_use]
    pub fn at_least(&self, limit: usize) -> Option<usize> {
        self.0.get(self.0.partition_point(|&size| size < limit)).copied()
    }

    /// The next size when growing from `size` geometrically: about twice as large, and always larger.
    #[must_use]
    pub fn grown(&self, size: usize) -> Option<usize> {
        self.at_most(size.saturating_mul(2)).filter(|&next| next > size).or_else(|| self.at_least(size + 1))
    }

    /// The size nearest to `wanted` that lies strictly between two others.
    #[must_use]
    pub fn between(&self, low: usize, high: usize, wanted: f64) -> Option<usize> {
        let start = self.0.partition_point(|&size| size <= low);
        let end = self.0.partition_point(|&size| size < high);
        let inside = self.0.get(start..end)?;
        let at = inside.partition_point(|&size| (size as f64) < wanted);
        inside.get(at).or(inside.last()).copied()
    }
}

fn check_bounds(min: usize, max: usize, of: usize) -> Result<()> {
    for (name, value) in [("min", min), ("max", max), ("multiple_of", of)] {
        if !(1..=SIZE_MAX).contains(&value) {
            let hint = "batch sizes count samples".to_owned();
            return Err(refused(format!("{name}={value} is not between 1 and {SIZE_MAX}"), hint));
        }
    }
    if min > max {
        return Err(refused(format!("min={min} is larger than max={max}"), "swap them".to_owned()));
    }
    Ok(())
}

fn refused(message: String, hint: String) -> Error {
    Error::new(ErrorKind::InvalidOption, message).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn multiples_keep_to_their_bounds() {
        let sizes = Sizes::multiples(12, 50, 8).unwrap();
        assert_eq!(sizes.as_slice(), [16, 24, 32, 40, 48]);
        assert_eq!(sizes.grown(16), Some(32));
        assert_eq!(sizes.grown(32), Some(48));
        assert_eq!(sizes.grown(48), None);
        assert_eq!(sizes.between(16, 48, 33.0), Some(40));
        assert_eq!(sizes.between(16, 24, 20.0), None);
    }

    #[test]
    fn divisors_are_sizes_whose_steps_add_up() {
        let sizes = Sizes::divisors(768, 16, 256, 8).unwrap();
        assert_eq!(sizes.as_slice(), [16, 24, 32, 48, 64, 96, 128, 192, 256]);
        assert_eq!(Sizes::divisors(64, 16, 1024, 8).unwrap().as_slice(), [16, 32, 64]);
    }

    #[test]
    fn where_no_size_serves_the_nearest_are_named() {
        let error = Sizes::divisors(1009, 16, 512, 8).unwrap_err();
        assert!(error.to_string().contains("no divisor"), "{error}");
        assert!(error.hint().unwrap_or_default().contains("1, 1009"), "{error:?}");
        let error = Sizes::divisors(1000, 300, 400, 8).unwrap_err();
        assert!(error.hint().unwrap_or_default().contains("200"), "{error:?}");
        let error = Sizes::multiples(17, 23, 8).unwrap_err();
        assert!(error.hint().unwrap_or_default().contains("16 and 24"), "{error:?}");
    }

    #[test]
    fn bounds_that_make_no_sense_are_refused() {
        for (min, max, of) in [(0, 8, 8), (8, 0, 8), (8, 16, 0), (32, 16, 8), (8, usize::MAX, 8)] {
            assert_eq!(Sizes::multiples(min, max, of).unwrap_err().kind(), ErrorKind::InvalidOption);
            assert_eq!(Sizes::divisors(64, min, max, of).unwrap_err().kind(), ErrorKind::InvalidOption);
        }
        assert!(Sizes::divisors(0, 8, 16, 8).is_err());
    }

    proptest! {
        #[test]
        fn growing_reaches_the_largest_size(min in 1usize..64, span in 0usize..2000, of in 1usize..17) {
            let Ok(sizes) = Sizes::multiples(min, min + span, of) else { return Ok(()) };
            let mut size = sizes.min();
            while let Some(next) = sizes.grown(size) {
                prop_assert!(next > size && sizes.contains(next));
                size = next;
            }
            prop_assert_eq!(size, sizes.max());
        }

        #[test]
        fn every_divisor_divides(per_rank in 1usize..5000, min in 1usize..64, span in 0usize..600) {
            let Ok(sizes) = Sizes::divisors(per_rank, min, min + span, 1) else { return Ok(()) };
            for size in sizes.as_slice() {
                prop_assert_eq!(per_rank % size, 0);
                prop_assert!((min..=min + span).contains(size));
            }
        }
    }
}
