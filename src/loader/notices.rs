//! Sentences about the data that a user should hear while a loader works: kept until somebody asks for them.
//!
//! It shows nothing, and it counts nothing but what it had no room for.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::process::PerProcess;

/// Sentences that wait for somebody to ask; of further ones only the number is kept.
const WAITING_MAX: usize = 32;

/// How many findings of one kind are told one by one; the rest are summed up at the end of an epoch.
pub(crate) const NAMED_MAX: u64 = 5;

/// The sentences of one loader that were not told yet.
#[derive(Debug)]
pub(crate) struct Notices(PerProcess<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    sentences: VecDeque<String>,
    more: u64,
}

impl Notices {
    pub(crate) fn new() -> Self {
        Self(PerProcess::new(Mutex::default()))
    }

    pub(crate) fn push(&self, sentence: String) {
        tracing::debug!(sentence, "notice");
        let mut waiting = self.waiting();
        match waiting.sentences.len() < WAITING_MAX {
            true => waiting.sentences.push_back(sentence),
            false => waiting.more += 1,
        }
    }

    /// What has come up since the last call, in order.
    pub(crate) fn take(&self) -> Vec<String> {
        let Waiting { sentences, more } = std::mem::take(&mut *self.waiting());
        let rest = (more > 0).then(|| format!("{more} more findings were not told"));
        sentences.into_iter().chain(rest).collect()
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.get(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_asks_for_takes_no_more_room() {
        let notices = Notices::new();
        (0..100).for_each(|number| notices.push(number.to_string()));
        let told = notices.take();
        assert_eq!((told.len(), told[0].as_str()), (WAITING_MAX + 1, "0"));
        assert!(told[WAITING_MAX].starts_with("68 more"));
        assert!(notices.take().is_empty());
    }
}
