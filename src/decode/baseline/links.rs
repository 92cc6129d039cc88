//! Which table comes next: after each coefficient of a block the same, after its last one the next block's first.
//!
//! It holds places of tables, not tables.

use super::header::BLOCK;
use super::lookup::TABLE;

/// Tables of a picture: [`Place::STOP`]'s, then two for each component.
pub(super) const TABLES: usize = 7;

/// Where a table begins among those of a picture, in entries.
///
/// Invariant: a multiple of [`TABLE`], below [`TABLES`] times that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(u32);

impl Place {
    /// The table of which no entry resolves anything: a lane that is at its end stays there.
    pub(super) const STOP: Self = Self(0);

    /// The place of table `number`, below [`TABLES`].
    pub(super) fn of(number: usize) -> Self {
        assert!(number < TABLES, "a picture has {TABLES} tables");
        Self((number * TABLE) as u32)
    }

    #[inline(always)]
    pub(super) fn entry(self) -> usize {
        self.0 as usize
    }
}

/// Two places in one number, since a choice between two loads is a load that waits for the choice.
///
/// Invariant: the lower half is the place of the block's AC table, the upper that of the next block's DC table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link(u64);

impl Link {
    /// Leads nowhere.
    pub(super) const STOP: Self = Self(0);

    pub(super) fn new(ac: Place, next_dc: Place) -> Self {
        Self(u64::from(ac.0) | u64::from(next_dc.0) << 32)
    }

    /// The table for what comes behind a coefficient of the block, which is not its last.
    #[inline(always)]
    pub(super) fn ac(self) -> Place {
        Place(self.0 as u32)
    }

    /// The table for the first coefficient of the next block.
    #[inline(always)]
    pub(super) fn next_dc(self) -> Place {
        Place((self.0 >> 32) as u32)
    }
}

/// A link for each block of a row, and one more.
#[derive(Debug, Default)]
pub(super) struct Links(Vec<Link>);

impl Links {
    /// Links of other blocks instead of those that there are.
    pub(super) fn set(&mut self, links: impl Iterator<Item = Link>) {
        self.0.clear();
        self.0.extend(links);
    }

    pub(super) fn as_slice(&self) -> &[Link] {
        &self.0
    }

    /// The link of the block that coefficient `at` of the row is in.
    pub(super) fn get(&self, at: usize) -> Option<Link> {
        self.0.get(at / BLOCK).copied()
    }

    /// Has the block before coefficient `stop`, which is a block's first, lead to the table at `place`.
    pub(super) fn lead(&mut self, stop: usize, place: Place) {
        if let Some(link) = (stop / BLOCK).checked_sub(1).and_then(|last| self.0.get_mut(last)) {
            *link = Link::new(link.ac(), place);
        }
    }
}
