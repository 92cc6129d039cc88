//! Tables that resolve one or two symbols at once, made for each picture from its codes.
//!
//! Only the codes of the symbols and the additional bits of the first one must fit the index; the additional bits of the
//! last symbol are taken from the window by arithmetic. So most lookups bring two symbols, and hardly any finds none.

use super::header::BLOCK;
use super::huffman::{Code, extend};

/// Bits of the window that index a table.
pub(super) const INDEX_BITS: u32 = 10;
/// Bits that an entry resolves at the most.
pub(super) const ENTRY_BITS_MAX: u32 = INDEX_BITS + AC_SIZE_MAX;
/// Entries of a table.
pub(super) const TABLE: usize = 1 << INDEX_BITS;

/// A symbol that the tables do not resolve stands this many coefficients behind the next: in no block.
const ESCAPE: u8 = 127;

/// What an index resolves to, at a place in a block whose next coefficient is `k`.
///
/// Fields of a byte each, since a processor loads a byte as fast as it shifts it out of a register, and has more room to
/// load than to shift.
///
/// Invariant: if the last symbol's coefficient is in the block of `k`, so is the first's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(8))]
pub(super) struct Entry {
    /// Bits of all that is resolved.
    bits: u8,
    /// The last symbol's coefficient, less `k`; [`ESCAPE`] if nothing is resolved.
    last: u8,
    /// Bits before the last symbol's additional bits.
    before: u8,
    /// 63 less the number of these.
    shift: u8,
    /// The first of two symbols' coefficient, less `k`.
    first: u8,
    /// 63 if the last symbol ends the block, else 0.
    end: u8,
    /// The first symbol's value.
    value: i16,
}

/// What EXTEND adds to additional bits that begin with a 0, by [`Entry::shift`]: 1 - 2^size.
static EXTENSIONS: [i32; 256] = {
    let mut extensions = [0; 256];
    let mut size = 1;
    while size <= DC_SIZE_MAX {
        extensions[63 - size as usize] = 1 - (1 << size);
        size += 1;
    }
    extensions
};

impl Entry {
    /// Nothing is resolved.
    pub(super) const NONE: Self = Self { bits: 0, last: ESCAPE, before: 0, shift: 63, first: 0, end: 0, value: 0 };

    /// The last symbol at `place`, whose `size` additional bits come behind `bits` bits; nothing before it.
    fn one(bits: u32, place: u32, size: u32) -> Self {
        Self {
            bits: (bits + size) as u8,
            last: place as u8,
            before: bits as u8,
            shift: (63 - size) as u8,
            ..Self::NONE
        }
    }

    /// The same, ending the block, which brings no value.
    fn end(bits: u32, place: u32) -> Self {
        Self { end: (BLOCK - 1) as u8, ..Self::one(bits, place, 0) }
    }

    /// With `value` at `place` before the last symbol.
    fn with_first(self, place: u32, value: i32) -> Self {
        Self { first: place as u8, value: value as i16, ..self }
    }

    #[inline(always)]
    pub(super) fn bits(&self) -> u64 {
        u64::from(self.bits)
    }

    /// The last symbol's coefficient, less `k`.
    #[inline(always)]
    pub(super) fn last_place(&self) -> usize {
        usize::from(self.last)
    }

    #[inline(always)]
    pub(super) fn first_place(&self) -> usize {
        usize::from(self.first)
    }

    #[inline(always)]
    pub(super) fn first_value(&self) -> i16 {
        self.value
    }

    /// What to set in the last place so that it is the block's last; 0 if the block goes on.
    #[inline(always)]
    pub(super) fn end_mask(&self) -> usize {
        usize::from(self.end)
    }

    /// The last symbol's value: EXTEND without a branch.
    #[inline(always)]
    pub(super) fn last_value(&self, window: u64) -> i16 {
        let bits = window.wrapping_shl(u32::from(self.before));
        let magnitude = (bits >> 1).wrapping_shr(u32::from(self.shift)) as i32;
        // All ones if the value is positive, which a first bit of 1 says.
        let positive = ((bits as i64) >> 63) as i32;
        magnitude.wrapping_add(EXTENSIONS[usize::from(self.shift)] & !positive) as i16
    }

    /// The window behind all that is resolved.
    #[inline(always)]
    pub(super) fn rest(&self, window: u64) -> u64 {
        window.wrapping_shl(u32::from(self.bits))
    }
}

/// Longest additional bits of a DC difference and of an AC coefficient in 8-bit pictures (tables F.1, F.2).
pub(super) const DC_SIZE_MAX: u32 = 11;
pub(super) const AC_SIZE_MAX: u32 = 10;

/// What a symbol is good for in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// Zeros, then a value of so many additional bits; sixteen zeros are fifteen and the value 0 of none.
    Value {
        run: u32,
        size: u32,
    },
    End,
    /// No table resolves it.
    Strange,
}

/// The largest DC differences are left out, so that no entry resolves more than [`ENTRY_BITS_MAX`].
fn meaning_dc(symbol: u8) -> Meaning {
    match u32::from(symbol) {
        size @ 0..DC_SIZE_MAX => Meaning::Value { run: 0, size },
        _ => Meaning::Strange,
    }
}

fn meaning_ac(symbol: u8) -> Meaning {
    match (u32::from(symbol >> 4), u32::from(symbol & 15)) {
        (0, 0) => Meaning::End,
        (run, size @ 1..=AC_SIZE_MAX) => Meaning::Value { run, size },
        (run @ 15, size @ 0) => Meaning::Value { run, size },
        _ => Meaning::Strange,
    }
}

/// A code whose whole lies in an index: where its indices begin, how many bits it has, what it means.
#[derive(Debug, Clone, Copy)]
struct Short {
    index: usize,
    length: u32,
    meaning: Meaning,
}

/// Makes tables; keeps its scratch.
#[derive(Debug, Default)]
pub(super) struct TableMaker {
    first: Vec<Short>,
    second: Vec<Short>,
}

impl TableMaker {
    /// The table for the first coefficient of a block, whose AC coefficients follow in `ac`.
    pub(super) fn dc_table(&mut self, dc: &Code, ac: &Code, table: &mut [Entry]) {
        short_codes(dc, meaning_dc, &mut self.first);
        short_codes(ac, meaning_ac, &mut self.second);
        fill(&self.first, &self.second, table);
    }

    /// The table for all others.
    pub(super) fn ac_table(&mut self, ac: &Code, table: &mut [Entry]) {
        short_codes(ac, meaning_ac, &mut self.second);
        fill(&self.second, &self.second, table);
    }
}

fn short_codes(code: &Code, meaning: fn(u8) -> Meaning, short: &mut Vec<Short>) {
    short.clear();
    let codes = code.codes().take_while(|&(_, _, length)| length <= INDEX_BITS);
    short.extend(codes.map(|(symbol, bits, length)| Short {
        index: (bits >> (16 - INDEX_BITS)) as usize,
        length,
        meaning: meaning(symbol),
    }));
}

/// Fills `table` for a symbol of `first` and one of `second` behind it.
fn fill(first: &[Short], second: &[Short], table: &mut [Entry]) {
    table.fill(Entry::NONE);
    for &Short { index, length, meaning } in first {
        let indices = &mut table[index..][..1 << (INDEX_BITS - length)];
        match meaning {
            Meaning::Strange => {}
            Meaning::End => indices.fill(Entry::end(length, 0)),
            Meaning::Value { run, size } => {
                indices.fill(Entry::one(length, run, size));
                // The first value must fit the index with its code, and a signed byte.
                if length + size < INDEX_BITS && size <= 7 {
                    let used = length + size;
                    for (bits, indices) in indices.chunks_exact_mut(1 << (INDEX_BITS - used)).enumerate() {
                        let value = extend(bits as u32, size);
                        add_second(second, used, |entry| entry.with_first(run, value), run, indices);
                    }
                }
            }
        }
    }
}

/// Fills `indices`, which share `used` bits that are a first symbol and its value, with the second symbols behind it.
fn add_second(second: &[Short], used: u32, with_first: impl Fn(Entry) -> Entry, run: u32, indices: &mut [Entry]) {
    let rest = INDEX_BITS - used;
    for &Short { index, length, meaning } in second.iter().take_while(|short| short.length <= rest) {
        let entry = match meaning {
            Meaning::End => Entry::end(used + length, run + 1),
            Meaning::Value { run: more, size } => Entry::one(used + length, run + 1 + more, size),
            Meaning::Strange => continue,
        };
        indices[index >> used..][..1 << (rest - length)].fill(with_first(entry));
    }
}
