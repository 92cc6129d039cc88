//! Where a loader stands, in a few bytes: enough to go on with the next sample in another process, on another number
//! of ranks. It holds no order and no buffer; order is a function of what is here.

use serde::{Deserialize, Serialize};

use super::builder::LoaderConfig;
use super::dataset::Dataset;
use super::given::Order;
use crate::sample::{Shuffle, Split};
use crate::transform::SampleRng;
use crate::{Error, ErrorKind, Result};

/// The place of a loader between two samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct State {
    /// Layout of this record; 2 today.
    pub version: u32,
    /// Seed of the loader that made it.
    pub seed: u64,
    /// The epoch in progress.
    pub epoch: u64,
    /// Samples of the epoch that all ranks together had before their number last changed in mid-epoch; 0 where it has
    /// not.
    #[serde(default)]
    pub consumed: u64,
    /// Samples that this rank's consumer has got since then.
    pub position: u64,
    /// Number of ranks that share the epoch since then.
    pub world_size: u64,
    /// Fingerprint of the data set, 0 for a stream.
    pub fingerprint: u64,
}

/// The layout that this code writes; it also reads 1, which knew no `consumed`.
pub(crate) const STATE_VERSION: u32 = 2;

/// A place in an epoch, whoever shares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Start {
    /// Samples that all ranks together had before these ranks shared the rest.
    pub(crate) consumed: usize,
    /// Samples that this rank has had of its share of the rest.
    pub(crate) position: usize,
}

impl State {
    /// # Errors
    /// [`ErrorKind::StateMismatch`] when it was made by another version, seed or data set.
    fn check(&self, seed: u64, fingerprint: u64) -> Result<()> {
        let mismatch =
            |message: String, hint: &str| Err(Error::new(ErrorKind::StateMismatch, message).with_hint(hint.to_owned()));
        if !(1..=STATE_VERSION).contains(&self.version) {
            return mismatch(
                format!("the saved state has version {}, this build reads 1 to {STATE_VERSION}", self.version),
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
        Ok(())
    }

    /// The same where the caller gives the order: as many ranks as before go on from their place in it, however long it
    /// is; another number shares out anew what is left of the `samples` that all of them go through once.
    ///
    /// # Errors
    /// As [`start_under`](Self::start_under).
    pub(crate) fn start_of_given(
        &self,
        split: Split,
        seed: u64,
        fingerprint: u64,
        samples: Option<usize>,
    ) -> Result<Start> {
        if self.world_size != split.world_size as u64 {
            return self.start_under(split, 1, seed, fingerprint, samples);
        }
        self.check(seed, fingerprint)?;
        match (usize::try_from(self.consumed), usize::try_from(self.position)) {
            (Ok(consumed), Ok(position)) => Ok(Start { consumed, position }),
            _ => {
                let message = "the saved position is beyond any data set";
                Err(Error::new(ErrorKind::StateMismatch, message).with_hint("load the state as it was saved"))
            }
        }
    }

    /// The place of this rank's next sample under `split`, which may have another number of ranks; of an index with
    /// `samples`, or of a stream; ranks take `turn` samples at a time.
    ///
    /// All ranks together had a prefix of one global order. As many ranks as before go on in their shares; another
    /// number shares out what is left anew, so that no sample is lost and none comes twice.
    ///
    /// # Errors
    /// [`ErrorKind::StateMismatch`] when it was made by another version, seed or data set, or lies beyond the epoch, or
    /// when a stream's ranks have changed in number.
    pub(crate) fn start_under(
        &self,
        split: Split,
        turn: usize,
        seed: u64,
        fingerprint: u64,
        samples: Option<usize>,
    ) -> Result<Start> {
        let mismatch =
            |message: String, hint: &str| Err(Error::new(ErrorKind::StateMismatch, message).with_hint(hint.to_owned()));
        self.check(seed, fingerprint)?;
        let are_as_many = self.world_size == split.world_size as u64;
        let beyond = |what: &str, most: u64| {
            let message = format!("the saved state has {what}, and the epoch has {most}");
            mismatch(message, "start the epoch anew, or load the state as it was saved")
        };
        let Some(samples) = samples else {
            return match usize::try_from(self.position) {
                Ok(position) if are_as_many => Ok(Start { consumed: 0, position }),
                Ok(_) => mismatch(
                    format!(
                        "the saved state is of {} ranks, and a stream cannot be shared out anew in mid-epoch among {}",
                        self.world_size, split.world_size
                    ),
                    "resume with the same number of ranks, or at the start of an epoch",
                ),
                Err(_) => beyond(&format!("{} samples of a rank", self.position), usize::MAX as u64),
            };
        };
        let all = samples as u64;
        let Some(left) = all.checked_sub(self.consumed) else {
            return beyond(&format!("{} samples of all ranks", self.consumed), all);
        };
        let ranks = self.world_size.max(1);
        let share = left.div_ceil(ranks);
        if self.position > share {
            return beyond(&format!("{} samples of a rank", self.position), share);
        }
        // Longer turns may have been of another length: what is left is shared out from where they ended.
        if are_as_many && turn == 1 {
            return Ok(Start { consumed: (all - left) as usize, position: self.position as usize });
        }
        // What was padded for equal numbers goes beyond the end.
        let had = u128::from(self.position) * u128::from(ranks) + u128::from(self.consumed);
        Ok(Start { consumed: usize::try_from(had).map_or(samples, |had| had.min(samples)), position: 0 })
    }
}

/// The largest shuffle window that is tried to tell a state of another order from one of other shards.
const WINDOWS_TRIED: usize = 4096;

/// How samples are shuffled, behind a verb.
pub(super) fn shuffle_text(shuffle: Option<Shuffle>) -> String {
    let Some(shuffle) = shuffle else { return "in an order that a sampler gives".to_owned() };
    match shuffle {
        Shuffle::None => "in stored order".to_owned(),
        Shuffle::Global => "with all samples shuffled".to_owned(),
        Shuffle::Window { shards } => format!("with a shuffle window of {shards} shards"),
    }
}

/// How a loader shuffles; `None` where the caller gives the order.
pub(super) fn shuffle_of(config: &LoaderConfig) -> Option<Shuffle> {
    (config.order == Order::Planned).then_some(config.shuffle)
}

/// A number that changes with the data set and with everything that decides the order of its samples.
pub(super) fn fingerprint(dataset: &Dataset, config: &LoaderConfig, shuffle: Option<Shuffle>) -> u64 {
    let (kind, window) = match shuffle {
        Some(Shuffle::None) => (0, 0),
        Some(Shuffle::Global) => (1, 0),
        Some(Shuffle::Window { shards }) => (2, shards as u64),
        None => (3, 0),
    };
    let mut parts = vec![dataset.fingerprint(), kind, window];
    if dataset.is_stream() {
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
    if dataset.is_stream() || fingerprint(dataset, config, shuffle_of(config)) == wanted {
        return None;
    }
    let windows = (1..=WINDOWS_TRIED).map(|shards| Shuffle::Window { shards });
    let mut shuffles = [Shuffle::None, Shuffle::Global].into_iter().chain(windows);
    shuffles.find(|&shuffle| fingerprint(dataset, config, Some(shuffle)) == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        State { version: STATE_VERSION, seed: 7, epoch: 3, consumed: 0, position: 100, world_size: 4, fingerprint: 9 }
    }

    fn split(world_size: usize) -> Split {
        Split { world_size, ..Split::whole() }
    }

    fn start(state: State, world_size: usize, samples: Option<usize>) -> Result<(usize, usize)> {
        let start = state.start_under(split(world_size), 1, 7, 9, samples)?;
        Ok((start.consumed, start.position))
    }

    #[test]
    fn as_many_ranks_go_on_in_their_shares_and_others_share_the_rest_anew() {
        let samples = Some(1000);
        assert_eq!(start(state(), 4, samples).unwrap(), (0, 100));
        assert_eq!(start(state(), 8, samples).unwrap(), (400, 0));
        assert_eq!(start(state(), 3, samples).unwrap(), (400, 0));
        let changed = State { consumed: 402, position: 7, world_size: 3, ..state() };
        assert_eq!(start(changed, 3, samples).unwrap(), (402, 7));
        assert_eq!(start(changed, 5, samples).unwrap(), (423, 0));
        let in_batches = changed.start_under(split(3), 7, 7, 9, samples).unwrap();
        assert_eq!(in_batches, Start { consumed: 423, position: 0 });
    }

    #[test]
    fn what_was_padded_is_no_place_beyond_the_epoch() {
        assert_eq!(start(State { position: 100, world_size: 4, ..state() }, 3, Some(398)).unwrap(), (398, 0));
        assert_eq!(start(State { position: 1, world_size: u64::MAX, ..state() }, 3, Some(398)).unwrap(), (398, 0));
    }

    #[test]
    fn a_stream_goes_on_with_as_many_ranks_only() {
        assert_eq!(start(state(), 4, None).unwrap(), (0, 100));
        assert_eq!(start(state(), 3, None).unwrap_err().kind(), ErrorKind::StateMismatch);
    }

    #[test]
    fn a_state_of_something_else_is_refused() {
        for (seed, fingerprint, version) in [(8, 9, 2), (7, 8, 2), (7, 9, 0), (7, 9, 3)] {
            let state = State { version, ..state() };
            let error = state.start_under(split(4), 1, seed, fingerprint, Some(1000)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::StateMismatch);
        }
        for (consumed, position) in [(1001, 0), (u64::MAX, 1), (0, 251), (900, 26), (0, u64::MAX)] {
            let error = start(State { consumed, position, ..state() }, 4, Some(1000)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::StateMismatch, "{consumed} {position}");
        }
    }
}
