//! What a walk along an archive met besides good members: counted, never silent.
//!
//! It is no list of findings with advice; whoever shows it to people words it.

use serde::{Deserialize, Serialize};

use crate::shard::MemberKind;

/// The most losses whose place is kept; further ones are only counted.
const LOSSES_MAX: usize = 64;

/// Zeros that an archive may end with: its end blocks and the rest of the largest record that tar writes by itself.
const END_BYTES_MAX: u64 = (1 << 20) + 1024;

/// What was met in an archive, as far as it has been read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ScanReport {
    /// Regular files.
    pub files: u64,
    /// Directories.
    pub dirs: u64,
    /// Symbolic and hard links.
    pub links: u64,
    /// Members of any other kind.
    pub others: u64,
    /// Sparse members that were passed over; under [`Damage::Strict`](super::super::Damage) they are errors.
    pub sparse: u64,
    /// The first of these, in order. Only a walk tells them: indexes do not keep them.
    #[serde(skip)]
    pub sparse_members: Vec<Loss>,
    /// Further archives behind the end of the first: shards joined end to end.
    pub archives_more: u64,
    /// Lone zero blocks: one where an archive's end has two, with or without members after it.
    pub zero_blocks: u64,
    /// Bytes behind the end that are neither zero blocks nor members.
    pub trailing_bytes: u64,
    /// The longest run of zeros where members may have stood, if it has more than an archive's end can have: a copy that was
    /// cut and filled up. Only a walk tells it: indexes do not keep it.
    #[serde(skip)]
    pub zero_run: Option<Loss>,
    /// Whether the archive ends without end blocks, as one that was cut does.
    pub missing_end: bool,
    /// Places where damage was passed over.
    pub resyncs: u64,
    /// Bytes that were passed over there, headers included.
    pub lost_bytes: u64,
    /// The first of these places, in order.
    pub losses: Vec<Loss>,
}

/// A range of an archive that was passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Loss {
    /// Where it begins, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

impl ScanReport {
    /// Whether nothing was lost, as far as an archive can tell.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.resyncs == 0 && self.sparse == 0 && !self.missing_end
    }

    /// Takes note of zeros between members or at the end.
    pub(super) fn note_zeros(&mut self, offset: u64, bytes: u64) {
        let is_longest = self.zero_run.is_none_or(|longest| bytes > longest.bytes);
        if bytes > END_BYTES_MAX && is_longest {
            self.zero_run = Some(Loss { offset, bytes });
        }
    }

    pub(super) fn count(&mut self, kind: MemberKind) {
        *self.counter(kind) += 1;
    }

    /// Takes back what was counted last.
    pub(super) fn uncount(&mut self, kind: MemberKind) {
        *self.counter(kind) -= 1;
    }

    fn counter(&mut self, kind: MemberKind) -> &mut u64 {
        match kind {
            MemberKind::File => &mut self.files,
            MemberKind::Dir => &mut self.dirs,
            MemberKind::Symlink | MemberKind::HardLink => &mut self.links,
            MemberKind::Other(_) => &mut self.others,
        }
    }

    pub(super) fn pass_over_sparse(&mut self, offset: u64, bytes: u64) {
        self.sparse += 1;
        if self.sparse_members.len() < LOSSES_MAX {
            self.sparse_members.push(Loss { offset, bytes });
        }
    }

    pub(super) fn lose(&mut self, offset: u64, bytes: u64) {
        self.resyncs += 1;
        self.lost_bytes += bytes;
        if self.losses.len() < LOSSES_MAX {
            self.losses.push(Loss { offset, bytes });
        }
    }
}
