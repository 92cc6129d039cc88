//! What was lost or looked odd in the shards of a stream, known when a shard has been read: summed up, and put into
//! words once. Samples that are bad by themselves are the policy's business.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::notices::{NAMED_MAX, Notices};
use super::process::PerProcess;
use crate::sample::GroupReport;
use crate::shard::ScanReport;

/// What the shards of a stream held, each counted when it was first read to its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamStats {
    /// Shards that were read as far as they can be.
    pub shards: u64,
    /// Those of them that an error cut short: how many samples lay behind it nobody knows.
    pub lost_shards: u64,
    /// Shards in which something was passed over.
    pub damaged_shards: u64,
    /// Places where damage was passed over.
    pub resyncs: u64,
    /// Bytes that were passed over there.
    pub lost_bytes: u64,
    /// Sparse members that were passed over.
    pub sparse: u64,
    /// Archives without end blocks.
    pub missing_ends: u64,
    /// What grouping met.
    pub groups: GroupReport,
}

/// The losses of one loader.
#[derive(Debug)]
pub(crate) struct Losses {
    notices: Arc<Notices>,
    state: PerProcess<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    stats: StreamStats,
    /// Shards by number that were read once, and those that were lost once.
    read: HashSet<usize>,
    lost: HashSet<usize>,
    /// What was told of grouping: each kind of oddity once.
    oddities: HashSet<&'static str>,
    /// Damaged shards at the last summary.
    summed_up: u64,
}

impl Losses {
    pub(crate) fn new(notices: Arc<Notices>) -> Self {
        Self { notices, state: PerProcess::new(Mutex::default()) }
    }

    /// Takes note of a shard that was read to its end, or to the error that ends it.
    pub(crate) fn shard_ended(&self, shard: usize, path: &Path, scan: &ScanReport, groups: &GroupReport, lost: bool) {
        let mut state = self.state();
        if lost && state.lost.insert(shard) {
            state.stats.lost_shards += 1;
        }
        if !state.read.insert(shard) {
            return;
        }
        let stats = &mut state.stats;
        stats.shards += 1;
        stats.resyncs += scan.resyncs;
        stats.lost_bytes += scan.lost_bytes;
        stats.sparse += scan.sparse;
        stats.missing_ends += u64::from(scan.missing_end);
        stats.groups.merge(groups);
        if let Some(sentence) = passed_over(path, scan) {
            stats.damaged_shards += 1;
            if stats.damaged_shards <= NAMED_MAX {
                self.notices.push(sentence);
            }
        }
        for (kind, sentence) in groups.oddities() {
            // The sample in which reading failed is told of with its shard.
            if !(lost && kind == GroupReport::CUT_SAMPLES) && state.oddities.insert(kind) {
                self.notices.push(format!("{}: {sentence}", path.display()));
            }
        }
    }

    /// Sums up what was not told shard by shard.
    pub(crate) fn epoch_ended(&self) {
        let mut state = self.state();
        let StreamStats { damaged_shards, lost_bytes, resyncs, sparse, .. } = state.stats;
        if damaged_shards > state.summed_up.max(NAMED_MAX) {
            state.summed_up = damaged_shards;
            self.notices.push(format!(
                "{damaged_shards} shards so far are damaged, of which {NAMED_MAX} were named: {lost_bytes} bytes in \
                 {resyncs} places and {sparse} sparse members were passed over"
            ));
        }
    }

    pub(crate) fn stats(&self) -> StreamStats {
        self.state().stats.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.get(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was passed over in a shard, as a sentence, if anything was.
pub(crate) fn passed_over(path: &Path, scan: &ScanReport) -> Option<String> {
    let end = if scan.missing_end { "; the end of the archive is missing" } else { "" };
    (!scan.is_whole()).then(|| {
        format!(
            "{}: {} bytes in {} damaged places and {} sparse members were passed over{end}",
            path.display(),
            scan.lost_bytes,
            scan.resyncs,
            scan.sparse,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn damaged() -> ScanReport {
        ScanReport { resyncs: 1, lost_bytes: 512, ..ScanReport::default() }
    }

    #[test]
    fn a_shard_is_counted_and_told_once_and_many_are_summed_up() {
        let notices = Arc::new(Notices::new());
        let losses = Losses::new(Arc::clone(&notices));
        let pass = |lost| {
            for shard in 0..9 {
                losses.shard_ended(shard, Path::new("a.tar.gz"), &damaged(), &GroupReport::default(), lost);
            }
            losses.epoch_ended();
        };
        pass(false);
        let told = notices.take();
        assert_eq!(told.len(), NAMED_MAX as usize + 1);
        assert!(told[0].starts_with("a.tar.gz: 512 bytes in 1 damaged places"), "{told:?}");
        assert!(told[5].starts_with("9 shards so far"), "{told:?}");
        pass(true);
        assert!(notices.take().is_empty());
        let stats = losses.stats();
        assert_eq!((stats.shards, stats.damaged_shards, stats.lost_bytes, stats.lost_shards), (9, 9, 9 * 512, 9));
    }

    #[test]
    fn an_oddity_of_grouping_is_told_of_its_first_shard() {
        let notices = Arc::new(Notices::new());
        let losses = Losses::new(Arc::clone(&notices));
        let groups = GroupReport { duplicate_fields: 2, ..GroupReport::default() };
        for shard in 0..3 {
            losses.shard_ended(shard, Path::new("b.tar.gz"), &ScanReport::default(), &groups, false);
        }
        let told = notices.take();
        assert!(told.len() == 1 && told[0].starts_with("b.tar.gz: 2 fields are given twice"), "{told:?}");
        assert_eq!(losses.stats().groups.duplicate_fields, 6);
    }
}
