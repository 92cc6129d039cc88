//! The members of a shard, one after the other.
//!
//! It reads headers only; data of members are read through the shard, by whoever wants them.

use std::iter::FusedIterator;

use bytes::{Bytes, BytesMut};

use super::tar::window::PageWindow;
use super::tar::{ScanReport, Scanner};
use super::{Member, Shard};
use crate::error::Result;

/// How many bytes of names share one allocation.
const NAMES_BYTES: usize = 16 << 10;

/// Iterates over the members of a shard; an error ends it.
#[derive(Debug)]
pub struct Members {
    shard: Shard,
    window: PageWindow,
    scanner: Scanner,
    names: BytesMut,
    ended: bool,
}

impl Members {
    pub(super) fn new(shard: Shard) -> Self {
        let window = PageWindow::new(shard.clone());
        let scanner = Scanner::new(shard.damage());
        Self { shard, window, scanner, names: BytesMut::new(), ended: false }
    }

    /// What was met so far besides good members; complete once the iterator has ended.
    #[must_use]
    pub fn report(&self) -> &ScanReport {
        self.scanner.report()
    }
}

impl Iterator for Members {
    type Item = Result<Member>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = match self.scanner.next(&mut self.window) {
            Ok(Some(found)) => return Some(Ok(found.into_member(share(&mut self.names, self.scanner.name())))),
            Ok(None) => Ok(()),
            Err(error) => Err(error.in_shard(self.shard.name().clone())),
        };
        self.ended = true;
        // A file that shrank looks as if it ended, one that was rewritten as if it were damaged.
        self.shard.check().and(next).err().map(Err)
    }
}

impl FusedIterator for Members {}

/// A copy of `name` that shares its allocation with its neighbours.
pub(super) fn share(names: &mut BytesMut, name: &[u8]) -> Bytes {
    if names.capacity() < name.len() {
        *names = BytesMut::with_capacity(NAMES_BYTES.max(name.len()));
    }
    names.extend_from_slice(name);
    names.split().freeze()
}
