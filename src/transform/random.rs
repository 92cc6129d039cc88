//! The random numbers of one sample in one epoch.
//!
//! Not a general generator: the n-th number is a pure function of (seed, epoch, sample, n), so that neither
//! threads nor order of arrival can change a crop.

/// The increment of SplitMix64: 2^64 divided by the golden ratio, made odd.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A stream of random numbers keyed by (seed, epoch, sample).
///
/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014) with the
/// finaliser "Mix13" of David Stafford: number n is `mix(key + (n + 1) * golden)`. The key takes in the three
/// numbers one after the other through the same finaliser. The streams are part of what a seed promises: they
/// change only with a major version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampleRng {
    state: u64,
}

impl SampleRng {
    /// The stream of sample number `sample` in epoch `epoch` under `seed`.
    #[must_use]
    pub fn new(seed: u64, epoch: u64, sample: u64) -> Self {
        let absorb = |key: u64, number: u64| mix((key ^ number).wrapping_add(GOLDEN));
        Self { state: absorb(absorb(absorb(0, seed), epoch), sample) }
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        mix(self.state)
    }

    /// The next number, uniform in [0, 1), a multiple of 2^-53.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// The next number, uniform in [`low`, `high`).
    pub fn uniform_in(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// The next number, uniform in 0..`n`; 0 if `n` is 0.
    ///
    /// One draw always: Lemire's multiplication without its rejection, whose bias is below `n` / 2^64.
    pub fn below(&mut self, n: u32) -> u32 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u32
    }

    /// Splits off the next `draws` numbers: they are the returned stream's, this one goes on after them.
    #[must_use]
    pub fn take(&mut self, draws: u64) -> SampleRng {
        let taken = self.clone();
        self.state = self.state.wrapping_add(GOLDEN.wrapping_mul(draws));
        taken
    }
}

/// Stafford's Mix13: a bijection whose every output bit depends on every input bit.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_the_same_across_versions() {
        let mut rng = SampleRng::new(1, 2, 3);
        let numbers: Vec<u64> = (0..4).map(|_| rng.next_u64()).collect();
        let expected: [u64; 4] = [1321962074176129191, 15925659190040627001, 6588988029983277238, 9315241652495780889];
        assert_eq!(numbers, expected);
        assert_eq!(SampleRng { state: 0 }.next_u64(), 0xe220_a839_7b1d_cdaf, "SplitMix64's first number for seed 0");
    }

    #[test]
    fn taking_is_skipping() {
        let mut rng = SampleRng::new(7, 0, 7);
        let mut plain = rng.clone();
        let mut taken = rng.take(3);
        for _ in 0..3 {
            assert_eq!(taken.next_u64(), plain.next_u64());
        }
        assert_eq!(rng, plain);
    }

    #[test]
    fn neighbouring_keys_share_nothing() {
        let first = |seed, epoch, sample| SampleRng::new(seed, epoch, sample).next_u64();
        let mut seen = std::collections::HashSet::new();
        for seed in 0..8 {
            for epoch in 0..8 {
                for sample in 0..64 {
                    assert!(seen.insert(first(seed, epoch, sample)), "{seed} {epoch} {sample}");
                }
            }
        }
    }

    #[test]
    fn draws_are_uniform_and_in_range() {
        let mut rng = SampleRng::new(0, 0, 0);
        let mut counts = [0_u32; 10];
        let mut sum = 0.0;
        for _ in 0..100_000 {
            counts[rng.below(10) as usize] += 1;
            let uniform = rng.uniform();
            assert!((0.0..1.0).contains(&uniform));
            sum += uniform;
        }
        assert!(counts.iter().all(|&count| (9_600..10_400).contains(&count)), "{counts:?}");
        assert!((sum / 100_000.0 - 0.5).abs() < 0.005, "{sum}");
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.below(1), 0);
    }
}
