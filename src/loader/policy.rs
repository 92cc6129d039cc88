//! What happens to bad samples: raise, skip or replace, within a budget, with a list of what was left out. It decides;
//! it never repairs and never prints.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::notices::{NAMED_MAX, Notices};
use super::process::PerProcess;
use crate::{Error, ErrorKind, Result};

/// What a sample that cannot be read or decoded leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnError {
    /// Its batch is an error, and the epoch ends there.
    #[default]
    Raise,
    /// The batch comes without it: shorter by one row.
    ///
    /// In a stream, a shard that cannot be read on counts as one bad sample, whatever it still held: nobody knows.
    Skip,
    /// Another sample of the same epoch takes its row, chosen by (seed, epoch, sample) alone.
    Replace,
}

/// How many bad samples an epoch may have under [`OnError::Skip`] and [`OnError::Replace`].
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum ErrorBudget {
    /// Any number.
    #[default]
    Unlimited,
    /// At most this many an epoch.
    Count(u64),
    /// At most this share of the epoch's samples, 0 to 1.
    Share(f64),
}

/// One sample that was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadSample {
    /// Path of the shard.
    pub shard: String,
    /// Key, undecodable bytes escaped.
    pub key: String,
    /// Field, where one is to blame.
    pub field: Option<String>,
    /// Kind of the error.
    pub kind: ErrorKind,
    /// Whether it stands for all that was left of a stream's shard: how many samples that were is unknown.
    pub is_shard: bool,
    /// Byte offset in the shard, where known.
    pub offset: Option<u64>,
    /// The whole message.
    pub message: String,
}

impl BadSample {
    /// What is bad, in a word: `shard`, or the kind of the sample's error.
    #[must_use]
    pub fn what(&self) -> &'static str {
        if self.is_shard { "shard" } else { self.kind.as_str() }
    }
}

/// Names kept in memory for those who ask; the file gets them all.
const KEPT_MAX: usize = 1000;

/// Bad samples that are recognised when they come again; beyond it a line may stand twice in the file.
const SEEN_MAX: usize = 1 << 20;

/// Epochs whose bad samples are counted at a time; tiny data sets may have many in flight.
const EPOCHS_MAX: usize = 64;

/// The bad samples of a loader: counted, listed once each, written to a file where one is named.
#[derive(Debug)]
pub(crate) struct Quarantine {
    on_error: OnError,
    budget: ErrorBudget,
    path: Option<PathBuf>,
    notices: Arc<Notices>,
    state: PerProcess<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Hashes of shard and key of those that were listed.
    seen: HashSet<u64>,
    list: Vec<BadSample>,
    file: Option<File>,
    /// How many were met, each once, by what is bad; and how many at the last summary.
    counts: BTreeMap<&'static str, u64>,
    summed_up: u64,
}

/// The bad samples of one run: for each epoch in progress, the places where one stood. At a boundary there are two.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<BTreeMap<u64, HashSet<usize>>>);

impl Tally {
    /// Counts the place once, whatever was tried for it; how many places of the epoch are bad now.
    fn count(&self, epoch: u64, position: usize) -> u64 {
        let mut epochs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let places = epochs.entry(epoch).or_default();
        places.insert(position);
        let bad = places.len() as u64;
        if epochs.len() > EPOCHS_MAX {
            epochs.pop_first();
        }
        bad
    }
}

impl Quarantine {
    pub(crate) fn new(
        on_error: OnError,
        budget: ErrorBudget,
        path: Option<PathBuf>,
        notices: Arc<Notices>,
    ) -> Result<Self> {
        if let ErrorBudget::Share(share) = budget
            && !(0.0..=1.0).contains(&share)
        {
            return Err(Error::new(
                ErrorKind::InvalidOption,
                format!("max_errors={share} is no share between 0 and 1"),
            ));
        }
        Ok(Self { on_error, budget, path, notices, state: PerProcess::new(Mutex::default()) })
    }

    pub(crate) fn on_error(&self) -> OnError {
        self.on_error
    }

    /// Takes note of a bad sample of `epoch`, which has `samples` samples.
    ///
    /// # Errors
    /// The sample's own error under [`OnError::Raise`]; [`ErrorKind::TooManyErrors`] over the budget; an I/O error
    /// when the list cannot be written.
    pub(crate) fn admit(&self, tally: &Tally, error: Error, epoch: u64, position: usize, samples: u64) -> Result<()> {
        if self.on_error == OnError::Raise {
            return Err(error);
        }
        let bad = tally.count(epoch, position);
        let allowed = match self.budget {
            ErrorBudget::Unlimited => u64::MAX,
            ErrorBudget::Count(count) => count,
            ErrorBudget::Share(share) => (share * samples as f64).floor() as u64,
        };
        if bad > allowed {
            let message = format!("more than {allowed} bad samples in one epoch; the last one: {}", error.message());
            let mut over = Error::new(ErrorKind::TooManyErrors, message)
                .with_hint("raise max_errors, or look at the shards with `brimful ls`");
            let place = error.place();
            if let Some(shard) = &place.shard {
                over = over.in_shard(Arc::clone(shard));
            }
            if let Some(key) = &place.key {
                over = over.at_key(key);
            }
            if let Some(field) = &place.field {
                over = over.in_field(field.clone());
            }
            return Err(over);
        }
        self.list(&mut self.state(), &error)
    }

    /// The bad samples so far, each once, at most the first 1,000.
    pub(crate) fn bad_samples(&self) -> Vec<BadSample> {
        self.state().list.clone()
    }

    /// Sums up the bad samples that were not named one by one, unless there are none since the last time.
    pub(crate) fn epoch_ended(&self) {
        let mut state = self.state();
        let met: u64 = state.counts.values().sum();
        if met > state.summed_up.max(NAMED_MAX) {
            state.summed_up = met;
            let counts: Vec<String> = state.counts.iter().map(|(what, count)| format!("{what} {count}")).collect();
            self.notices.push(format!(
                "{met} bad samples so far, of which {NAMED_MAX} were named ({}): bad_samples() lists them",
                counts.join(", ")
            ));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.get(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn list(&self, state: &mut State, error: &Error) -> Result<()> {
        let place = error.place();
        // All that belongs to a sample has a key: without one it is the reading of a stream's shard that failed.
        let is_shard = place.key.is_none();
        let rest = if is_shard {
            "; what was left of the shard is lost, and how many samples that were is unknown"
        } else {
            ""
        };
        let bad = BadSample {
            shard: place.shard.as_deref().unwrap_or_default().to_owned(),
            key: place.key.clone().unwrap_or_default(),
            field: place.field.clone(),
            kind: error.kind(),
            is_shard,
            offset: place.offset,
            message: format!("{error}{rest}"),
        };
        let mut hasher = DefaultHasher::new();
        (&bad.shard, &bad.key).hash(&mut hasher);
        if state.seen.len() < SEEN_MAX && !state.seen.insert(hasher.finish()) {
            return Ok(());
        }
        *state.counts.entry(bad.what()).or_default() += 1;
        if state.counts.values().sum::<u64>() <= NAMED_MAX {
            let word = if self.on_error == OnError::Replace { "replaced" } else { "left out" };
            self.notices.push(format!("{word}: {}", bad.message));
        }
        if let Some(path) = &self.path {
            let named = |e| Error::io(format!("cannot write the quarantine list {}", path.display()), e);
            let file = match &mut state.file {
                Some(file) => file,
                none => none.insert(File::options().create(true).append(true).open(path).map_err(named)?),
            };
            // One write a line: several ranks may share the file.
            let mut line = serde_json::json!({
                "shard": bad.shard, "key": bad.key, "field": bad.field, "kind": bad.what(),
                "cause": bad.is_shard.then(|| bad.kind.as_str()), "offset": bad.offset, "message": bad.message,
            })
            .to_string();
            line.push('\n');
            file.write_all(line.as_bytes()).map_err(named)?;
        }
        if state.list.len() < KEPT_MAX {
            state.list.push(bad);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(on_error: OnError, budget: ErrorBudget, path: Option<PathBuf>) -> Result<Quarantine> {
        Quarantine::new(on_error, budget, path, Arc::new(Notices::new()))
    }

    fn bad(key: &str) -> Error {
        Error::new(ErrorKind::Decode, "no image").in_shard("a.tar").at_key(key)
    }

    #[test]
    fn raising_gives_the_error_back() {
        let quarantine = policy(OnError::Raise, ErrorBudget::Unlimited, None).unwrap();
        let error = quarantine.admit(&Tally::default(), bad("a"), 0, 0, 10).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Decode);
    }

    #[test]
    fn a_budget_counts_each_epoch_anew() {
        let quarantine = policy(OnError::Skip, ErrorBudget::Count(2), None).unwrap();
        let tally = Tally::default();
        for epoch in 0..3 {
            quarantine.admit(&tally, bad("a"), epoch, 4, 10).unwrap();
            quarantine.admit(&tally, bad("b"), epoch, 7, 10).unwrap();
            // Another sample that was tried for the same place does not count again.
            quarantine.admit(&tally, bad("d"), epoch, 7, 10).unwrap();
            let error = quarantine.admit(&tally, bad("c"), epoch, 9, 10).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TooManyErrors);
            assert_eq!((error.place().shard.as_deref(), error.place().key.as_deref()), (Some("a.tar"), Some("c")));
        }
        assert_eq!(quarantine.bad_samples().len(), 3);
        // Another pass over the same epoch begins at nothing.
        quarantine.admit(&Tally::default(), bad("a"), 0, 4, 10).unwrap();
    }

    #[test]
    fn a_share_is_of_the_samples_of_the_epoch() {
        let quarantine = policy(OnError::Skip, ErrorBudget::Share(0.01), None).unwrap();
        let tally = Tally::default();
        quarantine.admit(&tally, bad("a"), 0, 0, 199).unwrap();
        assert!(quarantine.admit(&tally, bad("b"), 0, 1, 199).is_err());
        assert!(policy(OnError::Skip, ErrorBudget::Share(1.5), None).is_err());
    }

    #[test]
    fn the_list_on_disk_has_one_line_a_sample() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bad.jsonl");
        let quarantine = policy(OnError::Skip, ErrorBudget::Unlimited, Some(path.clone())).unwrap();
        for key in ["a", "b", "a"] {
            quarantine.admit(&Tally::default(), bad(key), 0, 0, 10).unwrap();
        }
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text.lines().count(), 2);
        let line: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!((&line["key"], &line["kind"]), (&"a".into(), &"decode".into()));
    }

    #[test]
    fn the_first_few_are_named_and_the_rest_summed_up_once() {
        let quarantine = policy(OnError::Skip, ErrorBudget::Unlimited, None).unwrap();
        let pass = |keys: std::ops::Range<usize>| {
            for key in keys {
                quarantine.admit(&Tally::default(), bad(&key.to_string()), 0, key, 100).unwrap();
            }
            quarantine.epoch_ended();
            quarantine.notices.take()
        };
        let told = pass(0..3);
        assert!(told.len() == 3 && told[2].starts_with("left out: a.tar: sample '2'"), "{told:?}");
        let told = pass(0..20);
        assert_eq!(told.len(), 3);
        assert!(told[2].starts_with("20 bad samples so far") && told[2].contains("decode 20"), "{told:?}");
        assert!(pass(0..20).is_empty());
        assert_eq!(pass(0..21).len(), 1);
    }

    #[test]
    fn what_has_no_key_is_the_rest_of_a_shard() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bad.jsonl");
        let quarantine = policy(OnError::Skip, ErrorBudget::Unlimited, Some(path.clone())).unwrap();
        let error = Error::new(ErrorKind::Truncated, "the gzip shard is cut").in_shard("a.tar.gz");
        quarantine.admit(&Tally::default(), error, 0, 0, 10).unwrap();
        let line: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        assert_eq!((&line["kind"], &line["cause"]), (&"shard".into(), &"truncated".into()));
        assert!(line["message"].as_str().unwrap().contains("unknown"));
    }
}
