//! Where a loader stands, in a few bytes: enough to go on with the next sample in another process, on another number
//! of ranks. It holds no order and no buffer; order is a function of what is here.

use serde::{Deserialize, Serialize};

use crate::sample::Split;
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
                "the saved state belongs to other shards, or these were changed".to_owned(),
                "start the epoch anew, or use the shards it was saved with",
            );
        }
        let all = u128::from(self.position) * u128::from(self.world_size.max(1));
        usize::try_from(all / split.world_size.max(1) as u128)
            .map_err(|_| Error::new(ErrorKind::StateMismatch, "the saved position is beyond any data set"))
    }
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
