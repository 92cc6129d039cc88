//! What happens to bad samples: raise, skip or replace, within a budget, with a list of what was left out. It decides;
//! it never repairs and never prints.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::PoisonError;

use crate::{Error, ErrorKind, Result};

/// What a sample that cannot be read or decoded leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnError {
    /// Its batch is an error, and the epoch ends there.
    #[default]
    Raise,
    /// The batch comes without it: shorter by one row.
    Skip,
    /// Another sample of the same epoch takes its row, chosen by (seed, epoch, position) alone.
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
    /// Byte offset in the shard, where known.
    pub offset: Option<u64>,
    /// The whole message.
    pub message: String,
}

/// Names kept in memory; the count goes on beyond it.
const KEPT_MAX: usize = 1000;

/// Epochs whose bad samples are counted at a time; tiny data sets may have many in flight.
const EPOCHS_MAX: usize = 64;

/// The bad samples of a loader: counted, listed once each, written to a file where one is named.
#[derive(Debug)]
pub(crate) struct Quarantine {
    on_error: OnError,
    budget: ErrorBudget,
    path: Option<PathBuf>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Bad samples of each epoch in progress: at a boundary there are two.
    bad: BTreeMap<u64, u64>,
    seen: HashSet<(String, String)>,
    list: Vec<BadSample>,
    file: Option<File>,
}

impl Quarantine {
    pub(crate) fn new(on_error: OnError, budget: ErrorBudget, path: Option<PathBuf>) -> Result<Self> {
        if let ErrorBudget::Share(share) = budget
            && !(0.0..=1.0).contains(&share)
        {
            return Err(Error::new(
                ErrorKind::InvalidOption,
                format!("max_errors={share} is no share between 0 and 1"),
            ));
        }
        Ok(Self { on_error, budget, path, state: Mutex::default() })
    }

    pub(crate) fn on_error(&self) -> OnError {
        self.on_error
    }

    /// Takes note of a bad sample of `epoch`, which has `samples` samples.
    ///
    /// # Errors
    /// The sample's own error under [`OnError::Raise`]; [`ErrorKind::TooManyErrors`] over the budget; an I/O error
    /// when the list cannot be written.
    pub(crate) fn admit(&self, error: Error, epoch: u64, samples: u64) -> Result<()> {
        if self.on_error == OnError::Raise {
            return Err(error);
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let bad = state.bad.entry(epoch).or_default();
        *bad += 1;
        let bad = *bad;
        if state.bad.len() > EPOCHS_MAX {
            state.bad.pop_first();
        }
        let allowed = match self.budget {
            ErrorBudget::Unlimited => u64::MAX,
            ErrorBudget::Count(count) => count,
            ErrorBudget::Share(share) => (share * samples as f64).floor() as u64,
        };
        if bad > allowed {
            let message = format!("more than {allowed} bad samples in one epoch; the last one: {error}");
            let error = Error::new(ErrorKind::TooManyErrors, message);
            return Err(error.with_hint("raise max_errors, or look at the shards with `brimful ls`"));
        }
        tracing::debug!(%error, "bad sample left out");
        self.list(&mut state, &error)
    }

    /// The bad samples so far, each once, at most the first 1,000.
    pub(crate) fn bad_samples(&self) -> Vec<BadSample> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).list.clone()
    }

    fn list(&self, state: &mut State, error: &Error) -> Result<()> {
        let place = error.place();
        let bad = BadSample {
            shard: place.shard.as_deref().unwrap_or_default().to_owned(),
            key: place.key.clone().unwrap_or_default(),
            field: place.field.clone(),
            kind: error.kind(),
            offset: place.offset,
            message: error.to_string(),
        };
        if state.seen.len() >= KEPT_MAX || !state.seen.insert((bad.shard.clone(), bad.key.clone())) {
            return Ok(());
        }
        if let Some(path) = &self.path {
            let named = |e| Error::io(format!("cannot write the quarantine list {}", path.display()), e);
            let file = match &mut state.file {
                Some(file) => file,
                none => none.insert(File::options().create(true).append(true).open(path).map_err(named)?),
            };
            let line = serde_json::json!({
                "shard": bad.shard, "key": bad.key, "field": bad.field, "kind": bad.kind.as_str(),
                "offset": bad.offset, "message": bad.message,
            });
            writeln!(file, "{line}").map_err(named)?;
        }
        state.list.push(bad);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad(key: &str) -> Error {
        Error::new(ErrorKind::Decode, "no image").in_shard("a.tar").at_key(key)
    }

    #[test]
    fn raising_gives_the_error_back() {
        let quarantine = Quarantine::new(OnError::Raise, ErrorBudget::Unlimited, None).unwrap();
        assert_eq!(quarantine.admit(bad("a"), 0, 10).unwrap_err().kind(), ErrorKind::Decode);
    }

    #[test]
    fn a_budget_counts_each_epoch_anew() {
        let quarantine = Quarantine::new(OnError::Skip, ErrorBudget::Count(2), None).unwrap();
        for epoch in 0..3 {
            quarantine.admit(bad("a"), epoch, 10).unwrap();
            quarantine.admit(bad("b"), epoch, 10).unwrap();
            assert_eq!(quarantine.admit(bad("c"), epoch, 10).unwrap_err().kind(), ErrorKind::TooManyErrors);
        }
        assert_eq!(quarantine.bad_samples().len(), 2);
    }

    #[test]
    fn a_share_is_of_the_samples_of_the_epoch() {
        let quarantine = Quarantine::new(OnError::Skip, ErrorBudget::Share(0.01), None).unwrap();
        quarantine.admit(bad("a"), 0, 199).unwrap();
        assert!(quarantine.admit(bad("b"), 0, 199).is_err());
        assert!(Quarantine::new(OnError::Skip, ErrorBudget::Share(1.5), None).is_err());
    }

    #[test]
    fn the_list_on_disk_has_one_line_a_sample() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bad.jsonl");
        let quarantine = Quarantine::new(OnError::Skip, ErrorBudget::Unlimited, Some(path.clone())).unwrap();
        for key in ["a", "b", "a"] {
            quarantine.admit(bad(key), 0, 10).unwrap();
        }
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text.lines().count(), 2);
        let line: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!((&line["key"], &line["kind"]), (&"a".into(), &"decode".into()));
    }
}
