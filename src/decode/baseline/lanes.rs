//! Huffman decoding of one picture, or of two at once.
//!
//! Each lookup waits for the one before it, and a processor has room for more: two pictures that have nothing to do with
//! each other fill it. Nothing here branches on the data where a block ends, as branches that cannot be foretold cost
//! more than all else: the end of a block is an OR of the position, and the choice of the next table a conditional move.

use std::hint::select_unpredictable;

use super::Refusal;
use super::entropy::{self, window};
use super::header::{BLOCK, Header};
use super::huffman::Code;
use super::lookup::{ENTRY_BITS_MAX, Entry, INDEX_BITS, TABLE, TableMaker};
use super::stuffing::Unstuffed;

/// Lookups between two loads of the window, which has this many bits or more.
const LOOKUPS: usize = 2;
const WINDOW_BITS: u32 = 57;
const _: () = assert!(LOOKUPS as u32 * ENTRY_BITS_MAX <= WINDOW_BITS);

/// Tables: [`STOP`], then two for each component.
const TABLES: usize = 7;

/// The table of which no entry resolves anything: a lane that is at its end stays there.
const STOP: usize = 0;

/// An array, so that its length is no variable.
type Tables = [Entry; TABLES * TABLE];

/// What a lane has that never had a picture.
static NO_TABLES: Tables = [Entry::NONE; TABLES * TABLE];

/// A picture's entropy-coded data on the way to coefficients, one row of MCUs at a time.
///
/// Invariants: `links` has an entry for each block of the row and one more; its tables, and `table` of the pattern,
/// begin at multiples of [`TABLE`] inside `tables`; `next <= stop <= row.len()`, in coefficients, and `stop` is at the
/// end of a block, whose link leads to the table [`STOP`].
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) data: Unstuffed,
    /// DC and AC code of each component.
    codes: Vec<(Code, Code)>,
    /// The component of each block of an MCU.
    pattern: Vec<usize>,
    tables: Vec<Entry>,
    /// Where the tables of each component begin: DC, AC.
    places: Vec<[usize; 2]>,
    maker: TableMaker,
    /// Coefficients of one row of MCUs in zigzag order, block after block; zeros where nothing is decoded yet.
    row: Vec<i16>,
    /// For each block: its AC table in the lower half, the DC table of the next block in the upper.
    links: Vec<u64>,
    /// The next bit of the data, and the next coefficient of the row.
    bit: u64,
    next: usize,
    stop: usize,
    failed: bool,
    sums: [i32; 3],
}

impl Lane {
    /// Makes ready for a picture whose data are in `data`: tables, and an empty row.
    pub(super) fn begin(&mut self, header: &Header) -> Result<(), Refusal> {
        self.pattern.clear();
        let mut codes = Vec::with_capacity(header.components.len());
        for (number, component) in header.components.iter().enumerate() {
            let slot =
                |slots: &[Option<Code>; 4], slot: usize| slots.get(slot).cloned().flatten().ok_or(Refusal::Tables);
            codes.push((slot(&header.dc, component.dc)?, slot(&header.ac, component.ac)?));
            self.pattern.extend(std::iter::repeat_n(number, component.h * component.v));
        }
        // Pictures of one source may share their tables.
        if self.codes != codes {
            self.codes = codes;
            self.make_tables();
        }
        let blocks = header.mcus_across() * self.pattern.len();
        self.row.clear();
        self.row.resize(blocks * BLOCK, 0);
        self.links.clear();
        for (block, component) in (0..=blocks).zip(self.pattern.iter().cycle()) {
            let ac = self.places[*component][1];
            self.links.push(ac as u64 | (self.dc_table(block + 1) as u64) << 32);
        }
        Ok(())
    }

    /// Two tables for each pair of codes; components that share a pair share them.
    fn make_tables(&mut self) {
        let Self { codes, tables, places, maker, .. } = self;
        tables.resize(TABLES * TABLE, Entry::NONE);
        let mut free = STOP + TABLE;
        places.clear();
        for (number, pair) in codes.iter().enumerate() {
            if let Some(twin) = codes[..number].iter().position(|other| other == pair) {
                places.push(places[twin]);
                continue;
            }
            let (dc, ac) = tables[free..][..2 * TABLE].split_at_mut(TABLE);
            maker.dc_table(&pair.0, &pair.1, dc);
            maker.ac_table(&pair.1, ac);
            places.push([free, free + TABLE]);
            free += 2 * TABLE;
        }
    }

    /// The table for the first coefficient of a block.
    fn dc_table(&self, block: usize) -> usize {
        self.places[self.pattern[block % self.pattern.len()]][0]
    }

    /// Goes to the start of a segment of the data, at MCU `mcu` of the row.
    pub(super) fn enter(&mut self, segment: usize, mcu: usize) -> Result<(), Refusal> {
        let start = self.data.segments.get(segment).ok_or(Refusal::Restarts)?.start;
        self.bit = start as u64 * 8;
        self.next = mcu * self.pattern.len() * BLOCK;
        self.sums = [0; 3];
        Ok(())
    }

    /// Goes back to the start of the row, which becomes zeros.
    pub(super) fn next_row(&mut self) {
        self.row.fill(0);
        self.next = 0;
    }

    /// Has the lane stop before MCU `mcu` of the row, which is behind where it is.
    pub(super) fn stop_at(&mut self, mcu: usize) {
        self.stop = mcu * self.pattern.len() * BLOCK;
        if let Some(link) = self.stop.checked_sub(1).and_then(|last| self.links.get_mut(last / BLOCK)) {
            *link &= u64::from(u32::MAX);
            *link |= (STOP as u64) << 32;
        }
    }

    /// Whether all is decoded up to where the lane was to stop.
    pub(super) fn has_stopped(&self) -> bool {
        self.next == self.stop
    }

    /// Makes values of the DC differences from MCU `from` of the row to the stop, and takes the stop away.
    pub(super) fn settle(&mut self, from: usize) -> Result<(), Refusal> {
        if self.failed {
            self.failed = false;
            return Err(Refusal::Data);
        }
        let table = self.dc_table(0);
        if let Some(link) = self.stop.checked_sub(1).and_then(|last| self.links.get_mut(last / BLOCK)) {
            *link &= u64::from(u32::MAX);
            *link |= (table as u64) << 32;
        }
        let from = from * self.pattern.len() * BLOCK;
        entropy::add_differences(&mut self.row[from..self.stop], &self.pattern, &mut self.sums)
    }

    /// Whether the lane stands at the end of the segment: less than a byte before it.
    pub(super) fn is_at_end_of(&self, segment: usize) -> bool {
        let end = self.data.segments.get(segment).map_or(0, |segment| segment.end as u64 * 8);
        self.bit <= end && end - self.bit < 8
    }

    /// Whether the lane has read past the end of the segment.
    pub(super) fn is_behind(&self, segment: usize) -> bool {
        self.data.segments.get(segment).is_none_or(|segment| self.bit > segment.end as u64 * 8)
    }

    /// The coefficients of the row.
    pub(super) fn row(&self) -> &[i16] {
        &self.row
    }

    /// The table for the next coefficient.
    fn table(&self) -> usize {
        let block = self.next / BLOCK;
        match self.links.get(block) {
            Some(_) if self.next == self.stop => STOP,
            Some(&link) if !self.next.is_multiple_of(BLOCK) => link as u32 as usize,
            _ => self.dc_table(block),
        }
    }

    /// Decodes to the stop by the book: the plain twin of [`advance`].
    #[cfg(test)]
    pub(super) fn advance_by_the_book(&mut self) {
        let Self { data, codes, pattern, row, next, stop, .. } = self;
        let first = *next / BLOCK;
        let codes_of = |block: usize| {
            let (dc, ac) = &codes[pattern[(first + block) % pattern.len()]];
            (dc, ac)
        };
        match entropy::decode(&data.bytes, self.bit, &mut row[*next..*stop], codes_of) {
            Ok(bit) => self.bit = bit,
            Err(_) => self.failed = true,
        }
        self.next = self.stop;
    }
}

/// Decodes until one of the lanes stops.
///
/// Inlined, so that each caller has it compiled for the instructions that it may use.
#[inline(always)]
pub(super) fn advance<const N: usize>(mut lanes: [&mut Lane; N]) {
    let mut bits: [u64; N] = std::array::from_fn(|i| lanes[i].bit);
    let mut nexts: [usize; N] = std::array::from_fn(|i| lanes[i].next);
    let mut places: [usize; N] = std::array::from_fn(|i| lanes[i].table());
    let stops: [usize; N] = std::array::from_fn(|i| lanes[i].stop);
    let mut failed = [false; N];
    // Slices apart from their owners: what is written to a row cannot change where it is.
    let mut parts = lanes.each_mut().map(|lane| {
        let Lane { data, codes, pattern, tables, row, links, .. } = &mut **lane;
        (
            &data.bytes[..],
            tables.first_chunk().unwrap_or(&NO_TABLES),
            &mut row[..],
            &links[..],
            &codes[..],
            &pattern[..],
        )
    });
    let mut stopped = false;
    while !stopped {
        let mut windows: [u64; N] = std::array::from_fn(|i| window(parts[i].0, bits[i]));
        for _ in 0..LOOKUPS {
            for i in 0..N {
                let (bytes, tables, row, links, codes, pattern) = &mut parts[i];
                let here = nexts[i];
                let block = here / BLOCK;
                let entry = tables[places[i] + (windows[i] >> (64 - INDEX_BITS)) as usize];
                let link = links[block];
                let last = here + entry.last_place();
                if last / BLOCK == block {
                    row[here + entry.first_place()] = entry.first_value();
                    let last = last | entry.end_mask();
                    row[last] = entry.last_value(windows[i]);
                    windows[i] = entry.rest(windows[i]);
                    bits[i] += entry.bits();
                    nexts[i] = last + 1;
                    let (ac, dc) = (link as u32 as usize, (link >> 32) as usize);
                    places[i] = select_unpredictable(nexts[i].is_multiple_of(BLOCK), dc, ac);
                    continue;
                }
                if here == stops[i] {
                    stopped = true;
                    continue;
                }
                let codes = &codes[pattern[block % pattern.len()]];
                match step(windows[i], row, here, codes) {
                    Some((used, next)) => {
                        bits[i] += u64::from(used);
                        nexts[i] = next;
                        places[i] =
                            if next.is_multiple_of(BLOCK) { (link >> 32) as usize } else { link as u32 as usize };
                    }
                    None => {
                        (failed[i], stopped) = (true, true);
                        (nexts[i], places[i]) = (stops[i], STOP);
                    }
                }
                windows[i] = window(bytes, bits[i]);
            }
        }
    }
    for (i, lane) in lanes.into_iter().enumerate() {
        (lane.bit, lane.next, lane.failed) = (bits[i], nexts[i], failed[i]);
    }
}

/// Decodes one symbol by the book: its bits, and the next coefficient.
#[cold]
#[inline(never)]
fn step(window: u64, row: &mut [i16], here: usize, (dc, ac): &(Code, Code)) -> Option<(u32, usize)> {
    let symbol = entropy::symbol(window, here % BLOCK, dc, ac)?;
    let block = here / BLOCK * BLOCK;
    row[block + symbol.place] = symbol.value;
    Some((symbol.bits, block + symbol.next))
}
