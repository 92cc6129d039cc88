//! Huffman codes as a file defines them (annex C), and the procedure that decodes one symbol (F.2.2.3).
//!
//! The fast tables are made from these; what a fast table cannot resolve comes back here.

/// Bits of the longest code.
const LENGTH_MAX: usize = 16;

/// A code: which symbol stands behind which bits.
///
/// Invariants: no code is a prefix of another, no code is all ones, and there are at most 256 symbols.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Code {
    /// BITS: how many codes there are of each length from 1 on.
    counts: [u8; LENGTH_MAX],
    /// HUFFVAL: symbols in the order of their codes.
    symbols: Vec<u8>,
    /// For each length, the first 16-bit number that is past the codes of that length.
    limits: [u32; LENGTH_MAX],
    /// For each length, the place of its first symbol, less its first code.
    offsets: [i32; LENGTH_MAX],
}

impl Code {
    /// The code at the start of `bytes`, and what comes behind it; none if it is cut, overfull, or has a code of ones only.
    ///
    /// Bits of ones fill the end of the data, so a code of ones would be read there for ever; encoders leave it out (C.2).
    pub(super) fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (counts, rest) = bytes.split_first_chunk::<LENGTH_MAX>()?;
        let total = counts.iter().map(|&count| usize::from(count)).sum();
        let (symbols, rest) = rest.split_at_checked(total)?;
        if total > 256 {
            return None;
        }
        let (mut limits, mut offsets) = ([0; LENGTH_MAX], [0; LENGTH_MAX]);
        let (mut code, mut place) = (0_u32, 0_i32);
        for (index, &count) in counts.iter().enumerate() {
            offsets[index] = place - code as i32;
            code += u32::from(count);
            place += i32::from(count);
            if code >= 1 << (index + 1) {
                return None;
            }
            limits[index] = code << (LENGTH_MAX - 1 - index);
            code <<= 1;
        }
        Some((Self { counts: *counts, symbols: symbols.to_vec(), limits, offsets }, rest))
    }

    /// DECODE: the symbol whose code `bits` begin with, and the code's length; none if they begin with no code.
    pub(super) fn symbol(&self, bits: u16) -> Option<(u8, u32)> {
        // The limits never fall, so that those reached are the first ones: counted without a branch.
        let index = self.limits.iter().filter(|&&limit| u32::from(bits) >= limit).count();
        let code = i32::from(bits >> LENGTH_MAX.checked_sub(1 + index)?);
        let place = usize::try_from(code + self.offsets[index]).ok()?;
        Some((*self.symbols.get(place)?, index as u32 + 1))
    }

    /// Every symbol with its code, left-aligned in 16 bits, and the code's length, in the order of the codes.
    pub(super) fn codes(&self) -> impl Iterator<Item = (u8, u32, u32)> + '_ {
        let lengths = self.counts.iter().zip(1..).flat_map(|(&count, length)| (0..count).map(move |_| length));
        let mut next = 0_u32;
        self.symbols.iter().zip(lengths).map(move |(&symbol, length)| {
            let code = next;
            next += 1 << (LENGTH_MAX as u32 - length);
            (symbol, code, length)
        })
    }
}

/// EXTEND (F.2.2.1): the value that `size` additional bits mean.
pub(super) fn extend(bits: u32, size: u32) -> i32 {
    let bits = bits as i32;
    match size {
        0 => 0,
        _ if bits >> (size - 1) != 0 => bits,
        _ => bits - (1 << size) + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(counts: &[u8], symbols: &[u8]) -> Option<Code> {
        let mut bytes = [0; LENGTH_MAX].to_vec();
        bytes[..counts.len()].copy_from_slice(counts);
        bytes.extend_from_slice(symbols);
        Code::read(&bytes).map(|(code, rest)| {
            assert!(rest.is_empty());
            code
        })
    }

    #[test]
    fn symbols_stand_behind_their_codes() {
        // 00 -> 5, 01 -> 6, 100 -> 7, 1010 -> 8
        let code = code(&[0, 2, 1, 1], &[5, 6, 7, 8]).unwrap();
        let all: Vec<_> = code.codes().collect();
        assert_eq!(all, [(5, 0, 2), (6, 0x4000, 2), (7, 0x8000, 3), (8, 0xA000, 4)]);
        for (bits, expected) in [
            (0x0000, Some((5, 2))),
            (0x3FFF, Some((5, 2))),
            (0x7123, Some((6, 2))),
            (0x9FFF, Some((7, 3))),
            (0xAFFF, Some((8, 4))),
            (0xB000, None),
            (0xFFFF, None),
        ] {
            assert_eq!(code.symbol(bits), expected, "{bits:#x}");
        }
    }

    #[test]
    fn overfull_codes_and_codes_of_ones_are_refused() {
        assert!(code(&[0, 3], &[1, 2, 3]).is_some());
        assert!(code(&[0, 4], &[1, 2, 3, 4]).is_none(), "the last code is all ones");
        assert!(code(&[3], &[1, 2, 3]).is_none());
        assert!(code(&[1, 1, 1, 2], &[1, 2, 3, 4, 5]).is_none());
        assert!(Code::read(&[0; 15]).is_none());
        assert!(Code::read(&[1; 20]).is_none(), "symbols are missing");
    }

    #[test]
    fn additional_bits_mean_both_signs() {
        for (bits, size, value) in [(0, 0, 0), (0, 1, -1), (1, 1, 1), (0, 3, -7), (3, 3, -4), (4, 3, 4), (7, 3, 7)] {
            assert_eq!(extend(bits, size), value);
        }
    }
}
