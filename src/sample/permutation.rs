//! A keyed pseudo-random permutation of the numbers below `n`, computed one position at a time.
//!
//! It keeps no table and needs no state, so a shuffle of any size costs nothing to set up and can be entered
//! anywhere. It is not cryptography: it must look random to a training run, not to an attacker.
//!
//! Construction: a balanced Feistel network (M. Luby and C. Rackoff, "How to construct pseudorandom permutations from
//! pseudorandom functions", 1988) permutes the `2^(2b)` numbers of the next even power of two; results outside the
//! range go through it again until they fall inside ("cycle walking": J. Black and P. Rogaway, "Ciphers with arbitrary
//! finite domains", 2002), which stays a permutation. The domain is below four times the range (above 256), so four
//! passes are the most to expect on average. The round function is SplitMix64's finaliser.

/// Weyl increment of SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", 2014).
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// Four rounds suffice in theory with perfect round functions on wide halves; halves here can be four bits narrow.
const ROUNDS: usize = 8;

/// The narrowest half in bits. With two, the orders of five values come up unevenly at this number of rounds (15
/// standard deviations); with three or more, no test here can tell.
const HALF_BITS_MIN: u32 = 4;

/// The finaliser of SplitMix64: a bijection of 64-bit words in which every input bit reaches every output bit.
pub(super) fn mix64(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// One key from several words, each of which changes it all.
pub(super) fn derive_key(words: &[u64]) -> u64 {
    words.iter().fold(GAMMA, |key, word| mix64(key ^ word).wrapping_add(GAMMA))
}

/// SplitMix64 itself: the `index`-th word of the stream with this key.
pub(super) fn random_word(key: u64, index: u64) -> u64 {
    mix64(key.wrapping_add(GAMMA.wrapping_mul(index.wrapping_add(1))))
}

/// A number below `bound` from a random word, by the high half of their product; its bias is below `bound / 2^64`.
pub(super) fn below(word: u64, bound: usize) -> usize {
    ((u128::from(word) * bound as u128) >> 64) as usize
}

/// A permutation of `0..len`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Permutation {
    len: u64,
    half_bits: u32,
    half_mask: u64,
    round_keys: [u64; ROUNDS],
}

impl Permutation {
    /// The permutation that `key` selects.
    pub(super) fn new(len: usize, key: u64) -> Self {
        let len = len as u64;
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        let half_bits = bits.div_ceil(2).max(HALF_BITS_MIN);
        let round_keys = std::array::from_fn(|round| random_word(key, round as u64));
        Self { len, half_bits, half_mask: (1 << half_bits) - 1, round_keys }
    }

    /// Where `position` goes. Positions of `len` or above have no place in the permutation and come out unchanged.
    pub(super) fn at(&self, position: usize) -> usize {
        let mut word = position as u64;
        if word >= self.len {
            return position;
        }
        // Ends: the network is a bijection of its domain, so walking from inside the range must come back to it.
        loop {
            word = self.permute_domain(word);
            if word < self.len {
                return word as usize;
            }
        }
    }

    fn permute_domain(&self, word: u64) -> u64 {
        let (mut left, mut right) = (word >> self.half_bits, word & self.half_mask);
        for round_key in self.round_keys {
            (left, right) = (right, left ^ (mix64(right ^ round_key) & self.half_mask));
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn assert_bijection(len: usize, key: u64) {
        let permutation = Permutation::new(len, key);
        let mut seen = vec![false; len];
        for position in 0..len {
            let value = permutation.at(position);
            assert!(value < len && !std::mem::replace(&mut seen[value], true), "len {len}, position {position}");
        }
    }

    #[test]
    fn small_ranges_are_permuted_exactly() {
        (0..300).for_each(|len| assert_bijection(len, 7));
        [1023, 1024, 1025, 4095, 4096, 4097].into_iter().for_each(|len| assert_bijection(len, u64::MAX));
    }

    proptest! {
        #[test]
        fn any_range_is_permuted_exactly(len in 0_usize..5000, key: u64) {
            assert_bijection(len, key);
        }

        #[test]
        fn huge_ranges_stay_in_bounds(len in 1_usize.., key: u64, position: usize) {
            let permutation = Permutation::new(len, key);
            prop_assert!(permutation.at(position % len) < len);
        }
    }

    /// Pearson's statistic of counts that should be equal.
    fn chi_square(counts: &[u64]) -> f64 {
        let expected = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
        counts.iter().map(|&count| (count as f64 - expected).powi(2) / expected).sum()
    }

    /// Whether the statistic lies within six standard deviations of its mean: generous, and the keys are fixed.
    fn assert_even(name: &str, counts: &[u64]) {
        let freedom = counts.len() as f64 - 1.0;
        let distance = (chi_square(counts) - freedom) / (2.0 * freedom).sqrt();
        assert!(distance.abs() < 6.0, "{name}: {distance:.1} standard deviations from even");
    }

    #[test]
    fn every_value_is_as_likely_in_every_place() {
        for len in [2, 3, 5, 10, 31, 32, 33, 100, 1000] {
            for position in [0, 1, len / 2, len - 1] {
                let mut counts = vec![0; len];
                (0..200 * len as u64).for_each(|seed| {
                    counts[Permutation::new(len, derive_key(&[seed])).at(position)] += 1;
                });
                assert_even(&format!("{len} values at position {position}"), &counts);
            }
        }
    }

    #[test]
    fn neighbours_in_place_are_no_neighbours_in_value() {
        for len in [5, 10, 40] {
            let mut counts = vec![0; len * len];
            (0..100 * (len * len) as u64).for_each(|seed| {
                let permutation = Permutation::new(len, derive_key(&[seed]));
                counts[permutation.at(0) * len + permutation.at(1)] += 1;
            });
            let pairs: Vec<u64> = (0..len * len).filter(|at| at / len != at % len).map(|at| counts[at]).collect();
            assert_even(&format!("pairs of {len} values"), &pairs);
        }
    }

    #[test]
    fn all_orders_of_five_values_come_up() {
        let mut counts = std::collections::BTreeMap::new();
        for seed in 0..24_000_u64 {
            let permutation = Permutation::new(5, derive_key(&[seed]));
            let order: Vec<usize> = (0..5).map(|position| permutation.at(position)).collect();
            *counts.entry(order).or_insert(0_u64) += 1;
        }
        let counts: Vec<u64> = counts.into_values().collect();
        assert_eq!(counts.len(), 120);
        assert_even("orders of five values", &counts);
    }

    #[test]
    fn numbers_below_a_bound_are_even() {
        let mut counts = [0; 7];
        (0..70_000).for_each(|index| counts[below(random_word(1, index), 7)] += 1);
        assert_even("numbers below seven", &counts);
        assert_eq!(below(u64::MAX, usize::MAX), usize::MAX - 1);
        assert_eq!(below(u64::MAX, 0), 0);
    }
}
