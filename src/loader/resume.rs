//! Where a loader stands, in a few bytes: enough to go on with the next sample in another process, on another number
//! of ranks. It holds no order and no buffer; order is a function of what is here.

use serde::{Deserialize, Serialize};

use super::builder::LoaderConfig;
use super::dataset::Dataset;
use crate::sample::{Shuffle, Split};
use crate::transform::SampleRng;
use crate::{Error, ErrorKind, Result};

/// The place of a loader between two samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct State {
    /// Layout of this record; 1 today.
    pub version: u32,
    /// Seed of the loader that made it.
    pub seed: u64,
    /// The epoch in progress.
    pub epoch: u64,
    /// Samples of the epoch that this rank's consumer has got.
    pub position: u64,
    /// Number of ranks that shared the epoch.
    pub world_size: u64,
    /// Fingerprint of the data set, 0 for a stream.
    pub fingerprint: u64,
}

/// The layout that this code writes and reads.
pub(crate) const STATE_VERSION: u32 = 1;

impl State {
    /// The place of this rank's next sample under `split`, which may have another number of ranks.
    ///
    /// All ranks together had `position * world_size` samples of one global order; each goes on after its share of
    /// them, rounded down: where the numbers do not divide, up to one sample a rank comes twice, none is lost.
    ///
    /// # Errors
    /// [`ErrorKind::StateMismatch`] when it was made by another version, seed or data set.
    pub(crate) fn position_under(&self, split: Split, seed: u64, fingerprint: u64) -> Result<usize> {
        let mismatch =
            |message: String, hint: &str| Err(Error::new(ErrorKind::StateMismatch, message).with_hint(hint.to_owned()));
        if self.version != STATE_VERSION {
            return mismatch(
                format!("the saved state has version {}, this build reads {STATE_VERSION}", self.version),
                "load it with the version of brimful that saved it",
            );
        }
        if self.seed != seed {
            return mismatch(
                format!("the saved state was made with seed {}, this loader has seed {seed}", self.seed),
                "build the loader with the same seed",
            );
        }
        if self.fingerprint != fingerprint {
            return mismatch(
                "the saved state belongs to other shards or another order, or the shards were changed".to_owned(),
                "start the epoch anew, or use the shards and the shuffling it was saved with",
            );
        }
        let all = u128::from(self.position) * u128::from(self.world_size.max(1));
        usize::try_from(all / split.world_size.max(1) as u128)
            .map_err(|_| Error::new(ErrorKind::StateMismatch, "the saved position is beyond any data set"))
    }
}

/// The largest shuffle window that is tried to tell a state of another order from one of other shards.
const WINDOWS_TRIED: usize = 4096;

/// How samples are shuffled, behind a verb.
pub(super) fn shuffle_text(shuffle: Shuffle) -> String {
    match shuffle {
        Shuffle::None => "in stored order".to_owned(),
        Shuffle::Global => "with all samples shuffled".to_owned(),
        Shuffle::Window { shards } => format!("with a shuffle window of {shards} shards"),
    }
}

/// A number that changes with the data set and with everything that decides the order of its samples.
pub(super) fn fingerprint(dataset: &Dataset, config: &LoaderConfig, shuffle: Shuffle) -> u64 {
    let (kind, window) = match shuffle {
        Shuffle::None => (0, 0),
        Shuffle::Global => (1, 0),
        Shuffle::Window { shards } => (2, shards as u64),
    };
    let mut parts = vec![dataset.fingerprint(), kind, window];
    if dataset.index().is_none() {
        parts.push(config.shuffle_samples as u64);
        let bytes = dataset.paths().iter().flat_map(|path| path.as_os_str().as_encoded_bytes());
        parts.extend(bytes.map(|&byte| u64::from(byte)));
    }
    // Any mixer does that is the same in every version; the sample's random stream is one.
    parts.into_iter().fold(0, |mixed, part| SampleRng::new(mixed, part, 0).next_u64())
}

/// How the same data set is shuffled under a fingerprint that is not this loader's; `None` for other shards, and for
/// streams, whose fingerprints have more parts.
pub(super) fn other_shuffle(dataset: &Dataset, config: &LoaderConfig, wanted: u64) -> Option<Shuffle> {
    if dataset.index().is_none() || fingerprint(dataset, config, config.shuffle) == wanted {
        return None;
    }
    let windows = (1..=WINDOWS_TRIED).map(|shards| Shuffle::Window { shards });
    let mut shuffles = [Shuffle::None, Shuffle::Global].into_iter().chain(windows);
    shuffles.find(|&shuffle| fingerprint(dataset, config, shuffle) == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        State { version: STATE_VERSION, seed: 7, epoch: 3, position: 100, world_size: 4, fingerprint: 9 }
    }

    fn split(world_size: usize) -> Split {
        Split { world_size, ..Split::whole() }
    }

    #[test]
    fn another_number_of_ranks_goes_on_without_losing_a_sample() {
        assert_eq!(state().position_under(split(4), 7, 9).unwrap(), 100);
        assert_eq!(state().position_under(split(8), 7, 9).unwrap(), 50);
        assert_eq!(state().position_under(split(3), 7, 9).unwrap(), 133);
    }

    #[test]
    fn a_state_of_something_else_is_refused() {
        for (seed, fingerprint, version) in [(8, 9, 1), (7, 8, 1), (7, 9, 2)] {
            let state = State { version, ..state() };
            let error = state.position_under(split(4), seed, fingerprint).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::StateMismatch);
        }
    }
}
