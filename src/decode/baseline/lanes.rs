//! A picture on the way to coefficients: its data, its tables, one row of MCUs, and where it stands in all of them.
//!
//! It says where a lane begins, stops and goes on; [`advance`](super::advance) decodes what lies between.

use super::Refusal;
use super::advance::{Stand, Track};
use super::entropy;
use super::header::{BLOCK, Header};
use super::huffman::Code;
use super::links::{Link, Links, Place, TABLES};
use super::lookup::{Entry, TABLE, TableMaker};
use super::stuffing::Unstuffed;

/// A picture's entropy-coded data on the way to coefficients, one row of MCUs at a time.
///
/// Invariants: those of a [`Track`], which is a view of it; what [`Place::STOP`] names resolves nothing.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) data: Unstuffed,
    /// DC and AC code of each component.
    codes: Vec<(Code, Code)>,
    /// The component of each block of an MCU.
    pattern: Vec<usize>,
    tables: Vec<Entry>,
    /// Where the tables of each component begin: DC, AC.
    places: Vec<[Place; 2]>,
    maker: TableMaker,
    /// Coefficients of one row of MCUs in zigzag order, block after block; zeros where nothing is decoded yet.
    row: Vec<i16>,
    links: Links,
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
        let Self { links, pattern, places, .. } = self;
        let components = pattern.iter().cycle();
        let followed = components.clone().zip(components.skip(1));
        links.set(followed.take(blocks + 1).map(|(&own, &next)| Link::new(places[own][1], places[next][0])));
        Ok(())
    }

    /// Two tables for each pair of codes; components that share a pair share them.
    fn make_tables(&mut self) {
        let Self { codes, tables, places, maker, .. } = self;
        tables.resize(TABLES * TABLE, Entry::NONE);
        let mut free = 1;
        places.clear();
        for (number, pair) in codes.iter().enumerate() {
            if let Some(twin) = codes[..number].iter().position(|other| other == pair) {
                places.push(places[twin]);
                continue;
            }
            let (dc, ac) = tables[free * TABLE..][..2 * TABLE].split_at_mut(TABLE);
            maker.dc_table(&pair.0, &pair.1, dc);
            maker.ac_table(&pair.1, ac);
            places.push([Place::of(free), Place::of(free + 1)]);
            free += 2;
        }
    }

    /// The table for the first coefficient of a block.
    fn dc_table(&self, block: usize) -> Place {
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
        self.links.lead(self.stop, Place::STOP);
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
        self.links.lead(self.stop, table);
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

    /// What lies between here and the stop; none for a lane that has no picture.
    pub(super) fn track(&mut self) -> Option<Track<'_>> {
        let stand = Stand { bit: self.bit, next: self.next, place: self.place()?, stop: self.stop };
        let Self { data, codes, pattern, tables, row, links, .. } = self;
        Track::new(&data.bytes, (codes, pattern), tables, row, links.as_slice(), stand)
    }

    /// The table for the next coefficient.
    fn place(&self) -> Option<Place> {
        if self.next == self.stop {
            return Some(Place::STOP);
        }
        if self.next.is_multiple_of(BLOCK) {
            return Some(self.dc_table(self.next / BLOCK));
        }
        self.links.get(self.next).map(Link::ac)
    }

    /// Takes where [`advance`](super::advance) has got to; a lane that has failed is at its stop.
    #[inline(always)]
    pub(super) fn reach(&mut self, bit: u64, next: usize, failed: bool) {
        (self.bit, self.failed) = (bit, failed);
        self.next = if failed { self.stop } else { next };
    }

    /// Decodes to the stop by the book: the plain twin of [`advance`](super::advance).
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
