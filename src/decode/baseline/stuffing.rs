//! Byte stuffing and restart markers out of the entropy-coded data (B.1.1.5, F.1.2.3), before any of it is decoded.
//!
//! The pass sees the whole scan, so a picture whose scan does not end in an end-of-image marker never reaches the
//! decoder, wherever the wanted region lies; and the decoder need not look for markers.

use std::ops::Range;

use super::Refusal;
use super::instructions::Instructions;

/// Bytes of ones behind the data. No code is all ones, so the decoder stops in them; it reads 8 bytes at a time and
/// gets past the end by less than 8.
pub(super) const PADDING: usize = 32;

/// Entropy-coded data without stuffing: bits, in segments that a restart marker stood between.
///
/// Invariants: segments follow one another and lie in `bytes`, behind which are [`PADDING`] bytes of ones.
#[derive(Debug, Default)]
pub(super) struct Unstuffed {
    pub(super) bytes: Vec<u8>,
    pub(super) segments: Vec<Range<usize>>,
}

impl Unstuffed {
    /// Takes the data from the start of `scan` to the end-of-image marker, which must be the first marker but for
    /// restart markers in their order.
    pub(super) fn fill(&mut self, scan: &[u8], instructions: Instructions) -> Result<(), Refusal> {
        let room = scan.len() + PADDING;
        if self.bytes.len() < room {
            self.bytes = vec![0; room];
        }
        self.segments.clear();
        let mut pass = Pass { from: 0, to: 0 };
        let mut start = 0;
        loop {
            instructions.copy_data(scan, &mut self.bytes, &mut pass);
            let Pass { from, to } = pass;
            match *scan.get(from..).unwrap_or(&[]) {
                [0xFF, code @ 0xD0..=0xD7, ..] => {
                    if usize::from(code & 7) != self.segments.len() % 8 {
                        return Err(Refusal::Restarts);
                    }
                    self.segments.push(start..to);
                    start = to;
                    pass.from += 2;
                }
                [0xFF, 0xD9, ..] => break,
                // Fill bytes before a marker; before data they would be none.
                [0xFF, 0xFF, ref rest @ ..] if rest.iter().find(|&&byte| byte != 0xFF) != Some(&0) => pass.from += 1,
                [] | [_] => return Err(Refusal::Cut),
                _ => return Err(Refusal::Scans),
            }
        }
        self.segments.push(start..pass.to);
        self.bytes[pass.to..][..PADDING].fill(0xFF);
        Ok(())
    }
}

/// Where a pass over the scan is: the next byte to look at, and where it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pass {
    pub(super) from: usize,
    pub(super) to: usize,
}

/// Copies data without their stuffing, up to a marker or the end; both slices have room for it.
pub(super) fn copy_data(scan: &[u8], bytes: &mut [u8], pass: &mut Pass) {
    loop {
        let rest = scan.get(pass.from..).unwrap_or(&[]);
        let plain = memchr::memchr(0xFF, rest).unwrap_or(rest.len());
        bytes[pass.to..][..plain].copy_from_slice(&rest[..plain]);
        pass.from += plain;
        pass.to += plain;
        if rest.get(plain + 1) != Some(&0) {
            return;
        }
        bytes[pass.to] = 0xFF;
        pass.from += 2;
        pass.to += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unstuffed(scan: &[u8], instructions: Instructions) -> Result<(Vec<u8>, Vec<Range<usize>>), Refusal> {
        let mut data = Unstuffed::default();
        data.fill(scan, instructions)?;
        let end = data.segments.last().map_or(0, |segment| segment.end);
        assert_eq!(data.bytes[end..][..PADDING], [0xFF; PADDING]);
        data.bytes.truncate(end);
        Ok((data.bytes, data.segments))
    }

    #[test]
    fn stuffing_goes_and_restart_markers_part_segments() {
        let scan = b"ab\xFF\0c\xFF\xD0d\xFF\0\xFF\xFF\xD1\xFF\0\xFF\xFF\xFF\xD9rest";
        for instructions in Instructions::all() {
            let (bytes, segments) = unstuffed(scan, instructions).unwrap();
            assert_eq!(bytes, b"ab\xFFcd\xFF\xFF");
            assert_eq!(segments, [0..4, 4..6, 6..7]);
        }
    }

    #[test]
    fn a_scan_that_does_not_end_as_it_should_is_refused() {
        for (scan, refusal) in [
            (&b"abc"[..], Refusal::Cut),
            (b"abc\xFF", Refusal::Cut),
            (b"abc\xFF\xFF", Refusal::Cut),
            (b"abc\xFF\xDA", Refusal::Scans),
            (b"abc\xFF\xFF\0\xFF\xD9", Refusal::Scans),
            (b"abc\xFF\xD1\xFF\xD9", Refusal::Restarts),
            (b"abc\xFF\xD0\xFF\xD0\xFF\xD9", Refusal::Restarts),
        ] {
            for instructions in Instructions::all() {
                assert_eq!(unstuffed(scan, instructions).unwrap_err(), refusal, "{scan:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn all_instructions_agree(scan in prop::collection::vec(prop_oneof![4 => any::<u8>(), 1 => Just(0xFF), 1 => Just(0)], 0..300)) {
            let scan = [&scan[..], b"\xFF\xD9"].concat();
            let plain = unstuffed(&scan, Instructions::SCALAR);
            for instructions in Instructions::all() {
                prop_assert_eq!(&unstuffed(&scan, instructions), &plain);
            }
        }
    }
}
