//! Huffman decoding by the book (F.2.2), a symbol at a time: the plain twin of the lanes, and what helps them over the
//! symbols that their tables do not resolve.
//!
//! DC coefficients stay differences here; [`add_differences`] makes values of them.

use super::Refusal;
use super::header::BLOCK;
use super::huffman::{Code, extend};
use super::lookup::{AC_SIZE_MAX, DC_SIZE_MAX};

/// One symbol with its additional bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Symbol {
    /// Bits of both.
    pub(super) bits: u32,
    /// The coefficient that has `value`, 0 to 63, in zigzag order.
    pub(super) place: usize,
    pub(super) value: i16,
    /// The coefficient that comes next; 64 if the block has ended.
    pub(super) next: usize,
}

/// The symbol at the start of `window` where coefficient `k` of a block is next; none if no encoder writes it.
pub(super) fn symbol(window: u64, k: usize, dc: &Code, ac: &Code) -> Option<Symbol> {
    let top = (window >> 48) as u16;
    if k == 0 {
        let (size, length) = dc.symbol(top)?;
        let size = u32::from(size);
        if size > DC_SIZE_MAX {
            return None;
        }
        return Some(Symbol { bits: length + size, place: 0, value: value(window, length, size), next: 1 });
    }
    let (symbol, length) = ac.symbol(top)?;
    let (run, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
    match (run, size) {
        (0, 0) => Some(Symbol { bits: length, place: BLOCK - 1, value: 0, next: BLOCK }),
        (0..15, 0) => None,
        _ if size > AC_SIZE_MAX || k + run >= BLOCK => None,
        _ => {
            let value = value(window, length, size);
            Some(Symbol { bits: length + size, place: k + run, value, next: k + run + 1 })
        }
    }
}

/// RECEIVE and EXTEND: the value of the `size` bits behind `length` bits.
fn value(window: u64, length: u32, size: u32) -> i16 {
    let bits = (window << length).checked_shr(64 - size).unwrap_or(0);
    extend(bits as u32, size) as i16
}

/// 64 bits from `bit` on, of which at least 57 are data.
///
/// The bytes behind the data are [`PADDING`](super::stuffing::PADDING) ones, in which every decoder stops.
#[cfg(test)]
fn window(bytes: &[u8], bit: u64) -> u64 {
    let at = (bit >> 3) as usize;
    let eight = bytes[at..].first_chunk().unwrap_or(&[0xFF; 8]);
    u64::from_be_bytes(*eight) << (bit & 7)
}

/// Decodes all of `blocks`, which are zeros, whose codes `codes` gives by number, from `bit` on; the bit behind the last.
#[cfg(test)]
pub(super) fn decode<'a>(
    bytes: &[u8],
    mut bit: u64,
    blocks: &mut [i16],
    codes: impl Fn(usize) -> (&'a Code, &'a Code),
) -> Result<u64, Refusal> {
    for (number, block) in blocks.chunks_exact_mut(BLOCK).enumerate() {
        let (dc, ac) = codes(number);
        let mut k = 0;
        while k < BLOCK {
            let symbol = symbol(window(bytes, bit), k, dc, ac).ok_or(Refusal::Data)?;
            block[symbol.place] = symbol.value;
            bit += u64::from(symbol.bits);
            k = symbol.next;
        }
    }
    Ok(bit)
}

/// Makes DC values of the differences in `blocks`, whose components repeat as `pattern` says (F.2.1.3.1).
pub(super) fn add_differences(blocks: &mut [i16], pattern: &[usize], sums: &mut [i32; 3]) -> Result<(), Refusal> {
    let mut extremes = (0, 0);
    for mcu in blocks.chunks_exact_mut(BLOCK * pattern.len()) {
        for (block, &component) in mcu.chunks_exact_mut(BLOCK).zip(pattern) {
            let sum = &mut sums[component];
            *sum += i32::from(block[0]);
            extremes = (extremes.0.min(*sum), extremes.1.max(*sum));
            block[0] = *sum as i16;
        }
    }
    let legal = i32::from(i16::MIN)..=i32::from(i16::MAX);
    if legal.contains(&extremes.0) && legal.contains(&extremes.1) { Ok(()) } else { Err(Refusal::Range) }
}
