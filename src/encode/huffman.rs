//! Huffman tables of JPEG files: one for reading a given table, one made for counted symbols.
//!
//! It knows nothing of files and scans: those are `scan`'s.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::{Error, ErrorKind, Result};

/// Bits that one look-up resolves; longer codes take the slow way.
const FAST_BITS: u32 = 9;
/// The longest code that JPEG allows.
const CODE_BITS_MAX: usize = 16;

/// A Huffman table for reading.
pub(super) struct Table {
    /// By the next bits: length and symbol, 0 where the code is longer than [`FAST_BITS`].
    fast: Box<[u16; 1 << FAST_BITS]>,
    /// Per length: the first code past the codes of that length, left-aligned in 16 bits, and how to get its symbol.
    limits: [(u32, i32); CODE_BITS_MAX],
    symbols: Vec<u8>,
}

impl Table {
    pub(super) fn new(lengths: &[u8; CODE_BITS_MAX], symbols: &[u8]) -> Result<Self> {
        let mut fast = Box::new([0; 1 << FAST_BITS]);
        let mut limits = [(0, 0); CODE_BITS_MAX];
        let (mut code, mut index) = (0usize, 0usize);
        for (length, &count) in (1u32..).zip(lengths) {
            limits[length as usize - 1].1 = index as i32 - code as i32;
            for &symbol in symbols.iter().skip(index).take(usize::from(count)) {
                if length <= FAST_BITS {
                    let spread = 1 << (FAST_BITS - length);
                    let entries = fast.get_mut(code * spread..(code + 1) * spread);
                    entries.ok_or_else(too_many)?.fill((length as u16) << 8 | u16::from(symbol));
                }
                code += 1;
            }
            index += usize::from(count);
            if code > 1 << length {
                return Err(too_many());
            }
            limits[length as usize - 1].0 = (code as u32) << (CODE_BITS_MAX as u32 - length);
            code <<= 1;
        }
        Ok(Self { fast, limits, symbols: symbols.to_vec() })
    }

    /// The symbol that `window` begins with, most significant bit first, and the bits of its code.
    #[inline]
    pub(super) fn find(&self, window: u64) -> Option<(u8, u32)> {
        match self.fast[(window >> (64 - FAST_BITS)) as usize] {
            0 => self.slow(window),
            fast => Some((fast as u8, u32::from(fast >> 8))),
        }
    }

    /// The symbol and its length where the code is longer than [`FAST_BITS`].
    #[cold]
    fn slow(&self, window: u64) -> Option<(u8, u32)> {
        let code = (window >> 48) as u32;
        let at = self.limits.iter().position(|(limit, _)| code < *limit)?;
        let length = at as u32 + 1;
        let index = (code >> (16 - length)) as i32 + self.limits[at].1;
        let symbol = self.symbols.get(usize::try_from(index).ok()?)?;
        Some((*symbol, length))
    }
}

/// A Huffman code for writing.
pub(super) struct Code {
    lengths: [u8; CODE_BITS_MAX],
    symbols: Vec<u8>,
    /// By symbol: the code word and its bits.
    words: Box<[(u16, u8); 256]>,
}

impl Code {
    /// The code of a table as a file writes it: how many words of each length there are, and their symbols.
    pub(super) fn of_table(lengths: &[u8; CODE_BITS_MAX], symbols: &[u8]) -> Self {
        let mut words = Box::new([(0, 0); 256]);
        let (mut code, mut rest) = (0u16, symbols.iter());
        for (length, &count) in (1u8..).zip(lengths) {
            for &symbol in rest.by_ref().take(usize::from(count)) {
                words[usize::from(symbol)] = (code, length);
                code += 1;
            }
            code <<= 1;
        }
        Self { lengths: *lengths, symbols: symbols.to_vec(), words }
    }

    /// The best code within 16 bits for symbols that occur `counts` times; `None` where none occurs.
    pub(super) fn for_counts(counts: &[u32; 256]) -> Option<Self> {
        let depths = depths(counts)?;
        let mut symbols: Vec<u8> = (0..=255).filter(|&symbol| depths[usize::from(symbol)] > 0).collect();
        symbols.sort_by_key(|&symbol| depths[usize::from(symbol)]);
        let mut at_depth = [0usize; 257];
        for &depth in depths.iter().filter(|depth| **depth > 0) {
            at_depth[usize::from(depth)] += 1;
        }
        // The word of ones alone is no legal code: `depths` counted one symbol more, which now gives its place up.
        shorten(&mut at_depth);
        let last = at_depth.iter().rposition(|&count| count > 0)?;
        at_depth[last] -= 1;

        let lengths = std::array::from_fn(|length| at_depth[length + 1] as u8);
        Some(Self::of_table(&lengths, &symbols))
    }

    /// Appends the code as a table segment names it; `head` holds its class and number.
    pub(super) fn write_segment(&self, head: u8, out: &mut Vec<u8>) {
        let length = 2 + 17 + self.symbols.len() as u16;
        out.extend_from_slice(&[0xFF, 0xC4]);
        out.extend_from_slice(&length.to_be_bytes());
        out.push(head);
        out.extend_from_slice(&self.lengths);
        out.extend_from_slice(&self.symbols);
    }

    /// The code word of `symbol` and its bits.
    #[inline]
    pub(super) fn word(&self, symbol: u8) -> (u16, u8) {
        self.words[usize::from(symbol)]
    }
}

/// Depth of each symbol in the Huffman tree, 0 for those that do not occur. The last entry is a symbol that never
/// occurs but takes part, as the deepest leaf.
fn depths(counts: &[u32; 256]) -> Option<[u16; 257]> {
    let mut parents = [0usize; 513];
    let mut heap = BinaryHeap::new();
    heap.push(Reverse((0u64, 256usize)));
    heap.extend((0..256).filter(|&leaf| counts[leaf] > 0).map(|leaf| Reverse((u64::from(counts[leaf]), leaf))));
    if heap.len() < 2 {
        return None;
    }
    let mut next = 257;
    while let (Some(Reverse((least, left))), Some(Reverse((second, right)))) = (heap.pop(), heap.pop()) {
        (parents[left], parents[right]) = (next, next);
        heap.push(Reverse((least + second, next)));
        next += 1;
        if heap.len() == 1 {
            break;
        }
    }
    let root = next - 1;
    let depth = |mut node: usize| {
        let mut depth = 0;
        while node != root {
            node = parents[node];
            depth += 1;
        }
        depth
    };
    Some(std::array::from_fn(|leaf| if leaf == 256 || counts[leaf] > 0 { depth(leaf) } else { 0 }))
}

/// Moves leaves deeper than 16 up: two siblings leave, one takes their parent's place, and the other hangs beside the
/// deepest leaf that still has room below it.
fn shorten(at_depth: &mut [usize; 257]) {
    for depth in (CODE_BITS_MAX + 1..at_depth.len()).rev() {
        while at_depth[depth] > 0 {
            let Some(host) = at_depth[..depth - 1].iter().rposition(|&count| count > 0) else { return };
            at_depth[depth] -= 2;
            at_depth[depth - 1] += 1;
            at_depth[host] -= 1;
            at_depth[host + 1] += 2;
        }
    }
}

fn too_many() -> Error {
    Error::new(ErrorKind::Decode, "a Huffman table with more codes than fit")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reads every symbol's word back through a table made from the code's own segment.
    fn check(counts: &[u32; 256]) {
        let Some(code) = Code::for_counts(counts) else {
            assert!(counts.iter().all(|&count| count == 0));
            return;
        };
        let table = Table::new(&code.lengths, &code.symbols).expect("a legal table");
        for (symbol, _) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let (word, length) = code.word(symbol as u8);
            let window = u64::from(word) << (64 - u32::from(length));
            assert_eq!(table.find(window), Some((symbol as u8, u32::from(length))));
            assert!(u32::from(word) != (1 << length) - 1, "a code word of ones");
        }
    }

    #[test]
    fn every_word_reads_back_as_its_symbol() {
        let only = |symbol: usize| std::array::from_fn(|at| u32::from(at == symbol));
        check(&[0; 256]);
        check(&only(0));
        check(&only(255));
        check(&[1; 256]);
        // Counts that grow as Fibonacci's numbers make the deepest tree there is: it must be cut to 16 bits.
        let (mut last, mut now) = (1u32, 1u32);
        check(&std::array::from_fn(|at| {
            (last, now) = (now, last.saturating_add(now));
            if at < 60 { last } else { 0 }
        }));
    }

    #[test]
    fn a_table_with_more_codes_than_fit_is_an_error() {
        let mut lengths = [0; CODE_BITS_MAX];
        lengths[0] = 3;
        assert!(Table::new(&lengths, &[1, 2, 3]).is_err());
    }

    proptest! {
        #[test]
        fn any_counts_make_a_code_that_reads_back(counts in proptest::collection::vec(0u32..100_000, 256)) {
            let counts: Vec<u32> = counts.iter().map(|count| count.saturating_sub(60_000)).collect();
            check(counts.as_slice().first_chunk().expect("256 counts"));
        }

        #[test]
        fn any_table_is_read_or_refused(lengths: [u8; 16], symbols in proptest::collection::vec(0u8.., 0..300), window: u64) {
            if let Ok(table) = Table::new(&lengths, &symbols) {
                table.find(window);
            }
        }
    }
}
