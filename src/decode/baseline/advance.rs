//! Huffman decoding of one picture, or of two at once.
//!
//! Each lookup waits for the one before it, and a processor has room for more: two pictures that have nothing to do with
//! each other fill it. Nothing here branches on the data where a block ends, as branches that cannot be foretold cost
//! more than all else: the end of a block is an OR of the position, and the choice of the next table a conditional move.
//!
//! Bounds that hold by construction are not looked at again for each lookup, which would cost a tenth of the speed; builds
//! with debug assertions do.

use std::hint::select_unpredictable;

use super::entropy;
use super::header::BLOCK;
use super::huffman::Code;
use super::lanes::Lane;
use super::links::{Link, Place, TABLES};
use super::lookup::{ENTRY_BITS_MAX, Entry, INDEX_BITS, TABLE};

/// Lookups between two loads of the window, which has this many bits or more.
const LOOKUPS: usize = 2;
const WINDOW_BITS: u32 = 57;
const _: () = assert!(LOOKUPS as u32 * ENTRY_BITS_MAX <= WINDOW_BITS);

/// An array, so that its length is no variable.
type Tables = [Entry; TABLES * TABLE];

/// What a lane has that never had a picture.
static NO_TABLES: Tables = [Entry::NONE; TABLES * TABLE];

/// What a lane decodes from and into, and how far.
///
/// Invariants: `bytes` has 8 bytes or more; `row` is whole blocks, and `links` has one for each of them and another;
/// `next <= stop <= row.len()`, both in coefficients; `stop` is the first of a block; where `next == stop`, `place` is
/// [`Place::STOP`], and the link of the block before `stop` leads there.
pub(super) struct Track<'a> {
    bytes: &'a [u8],
    tables: &'a Tables,
    row: &'a mut [i16],
    links: &'a [Link],
    codes: &'a [(Code, Code)],
    pattern: &'a [usize],
    bit: u64,
    next: usize,
    place: Place,
    stop: usize,
    failed: bool,
}

/// Where a track stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stand {
    /// The next bit of the data.
    pub(super) bit: u64,
    /// The next coefficient of the row.
    pub(super) next: usize,
    /// The table for it.
    pub(super) place: Place,
    /// The coefficient to stop before.
    pub(super) stop: usize,
}

impl<'a> Track<'a> {
    /// A track over `bytes`, whose codes are those of the components in `pattern`; none if it would lead anywhere else
    /// than to its stop.
    pub(super) fn new(
        bytes: &'a [u8],
        (codes, pattern): (&'a [(Code, Code)], &'a [usize]),
        tables: &'a [Entry],
        row: &'a mut [i16],
        links: &'a [Link],
        stand: Stand,
    ) -> Option<Self> {
        let Stand { bit, next, place, stop } = stand;
        let last = (stop / BLOCK).checked_sub(1);
        let is_good = bytes.len() >= 8
            && row.len().is_multiple_of(BLOCK)
            && links.len() > row.len() / BLOCK
            && next <= stop
            && stop <= row.len()
            && stop.is_multiple_of(BLOCK)
            && (next < stop || place == Place::STOP)
            && last.is_none_or(|last| links[last].next_dc() == Place::STOP);
        let tables = tables.first_chunk()?;
        is_good.then_some(Self { bytes, tables, row, links, codes, pattern, bit, next, place, stop, failed: false })
    }

    /// A track that ends where it begins and has failed.
    fn closed() -> Self {
        Self {
            bytes: &[0xFF; 8],
            tables: &NO_TABLES,
            row: &mut [],
            links: &[Link::STOP],
            codes: &[],
            pattern: &[],
            bit: 0,
            next: 0,
            place: Place::STOP,
            stop: 0,
            failed: true,
        }
    }

    /// 64 bits of the data from `bit` on, of which at least 57 are data, or ones behind them.
    #[inline(always)]
    fn window(&self, bit: u64) -> u64 {
        let at = ((bit >> 3) as usize).min(self.bytes.len() - 8);
        // SAFETY: there are 8 bytes or more, and from the last place before the last 7 on there are 8.
        let eight = unsafe { self.bytes.get_unchecked(at..at + 8) };
        u64::from_be_bytes(eight.try_into().unwrap_or([0xFF; 8])) << (bit & 7)
    }

    /// What the table at `place` has for what `window` begins with.
    #[inline(always)]
    fn entry(&self, place: Place, window: u64) -> &'a Entry {
        let at = place.entry() + (window >> (64 - INDEX_BITS)) as usize;
        debug_assert!(at < self.tables.len());
        // SAFETY: a place is the first entry of one of the tables, and so many bits index a table.
        unsafe { self.tables.get_unchecked(at) }
    }

    /// The link of the block that coefficient `at` is in.
    ///
    /// # Safety
    /// `at` is `row.len()` at the most.
    #[inline(always)]
    unsafe fn link(&self, at: usize) -> Link {
        debug_assert!(at / BLOCK < self.links.len());
        // SAFETY: there is a link for each block of the row and another.
        unsafe { *self.links.get_unchecked(at / BLOCK) }
    }

    /// Sets coefficient `at` of the row.
    ///
    /// # Safety
    /// `at` is below `row.len()`.
    #[inline(always)]
    unsafe fn set(&mut self, at: usize, value: i16) {
        debug_assert!(at < self.row.len());
        // SAFETY: the caller's promise.
        unsafe { *self.row.get_unchecked_mut(at) = value };
    }
}

/// Decodes until one of the lanes stops.
///
/// Inlined, so that each caller has it compiled for the instructions that it may use.
#[inline(always)]
pub(super) fn advance<const N: usize>(mut lanes: [&mut Lane; N]) {
    let mut tracks = lanes.each_mut().map(|lane| lane.track().unwrap_or_else(Track::closed));
    // In arrays of their own, which are registers.
    let mut bits: [u64; N] = std::array::from_fn(|i| tracks[i].bit);
    let mut nexts: [usize; N] = std::array::from_fn(|i| tracks[i].next);
    let mut places: [Place; N] = std::array::from_fn(|i| tracks[i].place);
    let stops: [usize; N] = std::array::from_fn(|i| tracks[i].stop);
    let mut failed: [bool; N] = std::array::from_fn(|i| tracks[i].failed);
    let mut stopped = false;
    while !stopped {
        let mut windows: [u64; N] = std::array::from_fn(|i| tracks[i].window(bits[i]));
        for _ in 0..LOOKUPS {
            for i in 0..N {
                let track = &mut tracks[i];
                let here = nexts[i];
                let entry = track.entry(places[i], windows[i]);
                let last = here + entry.last_place();
                if last ^ here < BLOCK {
                    // SAFETY: `here` is never behind the stop: it gets there from a block before it, one block at a time,
                    // and from the last of these with the table in which nothing is resolved.
                    let link = unsafe { track.link(here) };
                    let first = here + entry.first_place();
                    // SAFETY: something is resolved, so `here` is before the stop, and the block that it is in is part of
                    // the row. `last` is in this block, and `first` between the two.
                    unsafe { track.set(first, entry.first_value()) };
                    let last = last | entry.end_mask();
                    // SAFETY: setting lower bits leads to another coefficient of the same block.
                    unsafe { track.set(last, entry.last_value(windows[i])) };
                    windows[i] = entry.rest(windows[i]);
                    bits[i] += entry.bits();
                    nexts[i] = last + 1;
                    places[i] = select_unpredictable(nexts[i].is_multiple_of(BLOCK), link.next_dc(), link.ac());
                    continue;
                }
                if here == stops[i] {
                    stopped = true;
                    continue;
                }
                // SAFETY: as above.
                let link = unsafe { track.link(here) };
                let codes = &track.codes[track.pattern[here / BLOCK % track.pattern.len()]];
                match step(windows[i], track.row, here, codes) {
                    Some((used, next)) => {
                        bits[i] += used;
                        nexts[i] = next;
                        places[i] = if next.is_multiple_of(BLOCK) { link.next_dc() } else { link.ac() };
                    }
                    None => {
                        (failed[i], stopped) = (true, true);
                        (nexts[i], places[i]) = (stops[i], Place::STOP);
                    }
                }
                windows[i] = track.window(bits[i]);
            }
        }
    }
    for (i, lane) in lanes.into_iter().enumerate() {
        lane.reach(bits[i], nexts[i], failed[i]);
    }
}

/// Decodes one symbol by the book: its bits, and the next coefficient.
///
/// It gets the parts that it needs: a track whose address is known elsewhere would not stay in registers.
#[cold]
#[inline(never)]
fn step(window: u64, row: &mut [i16], here: usize, (dc, ac): &(Code, Code)) -> Option<(u64, usize)> {
    let symbol = entropy::symbol(window, here % BLOCK, dc, ac)?;
    let block = here / BLOCK * BLOCK;
    row[block + symbol.place] = symbol.value;
    Some((u64::from(symbol.bits), block + symbol.next))
}
