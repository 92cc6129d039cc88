//! A baseline JPEG file rewritten under Huffman tables made for it: fewer bytes, the same coefficients.
//!
//! It reads symbols, never pixels, and knows one interleaved scan only; every other kind of JPEG is refused.

use super::huffman::{Code, Table};
use crate::{Error, ErrorKind, Result};

/// Table slots: four DC tables, then four AC tables.
pub(super) const SLOTS: usize = 8;

/// Rewrites `jpeg` with optimised Huffman tables; pixels, restart markers and all other segments stay as they are.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for anything but a baseline file with one scan of all its components;
/// [`ErrorKind::Decode`] or [`ErrorKind::Truncated`] for a damaged one.
pub fn optimise_huffman(jpeg: &[u8]) -> Result<Vec<u8>> {
    let file = File::parse(jpeg)?;
    let mut counts = Box::new([[0u32; 256]; SLOTS]);
    file.walk(&mut |symbol: Symbol| {
        if let Symbol::Coded { slot, symbol, .. } = symbol {
            counts[slot][usize::from(symbol)] += 1;
        }
    })?;

    let mut out = Vec::with_capacity(jpeg.len() + 1024);
    out.extend_from_slice(&file.head);
    write_scan(out, &codes_for(&counts), file.scan_header, |visit| file.walk(visit))
}

/// A code for each table slot.
pub(super) type Codes = [Option<Code>; SLOTS];

/// The best codes for symbols that occur `counts` times.
pub(super) fn codes_for(counts: &[[u32; 256]; SLOTS]) -> Codes {
    std::array::from_fn(|slot| Code::for_counts(&counts[slot]))
}

/// Appends a scan to `out`: its tables, its header, the symbols that `walk` visits, and the end of the file.
pub(super) fn write_scan(
    mut out: Vec<u8>,
    codes: &Codes,
    scan_header: &[u8],
    walk: impl FnOnce(&mut dyn FnMut(Symbol)) -> Result<()>,
) -> Result<Vec<u8>> {
    for (slot, code) in codes.iter().enumerate() {
        if let Some(code) = code {
            code.write_segment(((slot / 4 * 16) + slot % 4) as u8, &mut out);
        }
    }
    out.extend_from_slice(scan_header);
    let mut bits = BitWriter { out, buffer: 0, count: 0 };
    walk(&mut |symbol| match symbol {
        Symbol::Coded { slot, symbol, extra, extra_bits } => {
            if let Some(code) = &codes[slot] {
                let (word, word_bits) = code.word(symbol);
                bits.put(u64::from(word) << extra_bits | u64::from(extra), u32::from(word_bits) + extra_bits);
            }
        }
        Symbol::Restart(number) => {
            bits.align();
            bits.out.extend_from_slice(&[0xFF, 0xD0 | number]);
        }
    })?;
    bits.align();
    bits.out.extend_from_slice(&[0xFF, 0xD9]);
    Ok(bits.out)
}

/// What stands in a scan, in order.
pub(super) enum Symbol {
    /// A Huffman-coded symbol and the plain bits behind it.
    Coded { slot: usize, symbol: u8, extra: u16, extra_bits: u32 },
    /// A restart marker with its number, 0 to 7.
    Restart(u8),
}

/// One block of an MCU: the slots of its two tables.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub(super) dc: usize,
    pub(super) ac: usize,
    /// Its component's place in the frame header.
    pub(super) component: usize,
}

/// A parsed file: everything before the scan except its Huffman tables, and the scan.
pub(super) struct File<'a> {
    pub(super) head: Vec<u8>,
    pub(super) scan_header: &'a [u8],
    scan: &'a [u8],
    tables: [Option<Table>; SLOTS],
    pub(super) blocks: Vec<Block>,
    mcus: usize,
    restart_interval: usize,
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) components: Vec<Component>,
}

/// A component of the frame and its sampling factors.
#[derive(Clone, Copy)]
pub(super) struct Component {
    pub(super) id: u8,
    pub(super) h: usize,
    pub(super) v: usize,
}

impl<'a> File<'a> {
    pub(super) fn parse(jpeg: &'a [u8]) -> Result<Self> {
        if !jpeg.starts_with(&[0xFF, 0xD8]) {
            return Err(unsupported("the file does not begin as a JPEG file"));
        }
        let mut head = vec![0xFF, 0xD8];
        let mut tables = [const { None }; SLOTS];
        let mut frame: Option<(usize, usize, Vec<Component>)> = None;
        let mut restart_interval = 0;
        let mut at = 2;
        loop {
            let (marker, segment) = segment(jpeg, at)?;
            let payload = &segment[4..];
            at += segment.len();
            match marker {
                0xC4 => read_tables(payload, &mut tables)?,
                0xC0 | 0xC1 => {
                    frame = Some(read_frame(payload)?);
                    head.extend_from_slice(segment);
                }
                0xC2..=0xCF => return Err(unsupported("the file is not baseline")),
                0xDA => {
                    let (width, height, components) =
                        frame.ok_or_else(|| damaged("the scan comes before the frame header"))?;
                    let (blocks, mcus) = scan_layout(payload, width, height, &components)?;
                    let end = scan_end(jpeg, at)?;
                    if jpeg.get(end + 1) != Some(&0xD9) {
                        return Err(unsupported("the file has more than one scan"));
                    }
                    let scan = &jpeg[at..end];
                    let file = Self {
                        head,
                        scan_header: segment,
                        scan,
                        tables,
                        blocks,
                        mcus,
                        restart_interval,
                        width,
                        height,
                        components,
                    };
                    return Ok(file);
                }
                0xDD => {
                    let &[high, low] = payload else { return Err(damaged("a restart interval of the wrong length")) };
                    restart_interval = usize::from(u16::from_be_bytes([high, low]));
                    head.extend_from_slice(segment);
                }
                _ => head.extend_from_slice(segment),
            }
        }
    }

    /// MCUs between two restart markers, 0 for none.
    pub(super) fn restart_interval(&self) -> usize {
        self.restart_interval
    }

    /// Calls `visit` for every symbol and restart marker of the scan.
    pub(super) fn walk(&self, visit: &mut (impl FnMut(Symbol) + ?Sized)) -> Result<()> {
        let mut clean = Vec::with_capacity(self.scan.len() + 8);
        let mut rest = self.scan;
        let mut mcus_left = self.mcus;
        let mut number = 0;
        loop {
            rest = unstuff(rest, &mut clean);
            let mcus = if self.restart_interval == 0 { mcus_left } else { mcus_left.min(self.restart_interval) };
            self.walk_interval(&clean, mcus, visit)?;
            mcus_left -= mcus;
            if mcus_left == 0 {
                return Ok(());
            }
            let &[0xFF, marker, ref tail @ ..] = rest else {
                return Err(Error::new(ErrorKind::Truncated, "the scan ends before its last block"));
            };
            if marker != 0xD0 | number {
                return Err(damaged("a restart marker out of order"));
            }
            visit(Symbol::Restart(number));
            number = (number + 1) & 7;
            rest = tail;
        }
    }

    fn walk_interval(&self, clean: &[u8], mcus: usize, visit: &mut (impl FnMut(Symbol) + ?Sized)) -> Result<()> {
        let mut bits = BitReader { bytes: clean, at: 0 };
        for _ in 0..mcus {
            for &Block { dc, ac, .. } in &self.blocks {
                let (Some(dc_table), Some(ac_table)) = (&self.tables[dc], &self.tables[ac]) else {
                    return Err(damaged("the scan names a Huffman table that is not there"));
                };
                let (symbol, extra) = bits.symbol(dc_table, |symbol| symbol)?;
                visit(Symbol::Coded { slot: dc, symbol, extra, extra_bits: u32::from(symbol) });
                let mut filled = 1;
                while filled < 64 {
                    let (symbol, extra) = bits.symbol(ac_table, |symbol| symbol & 15)?;
                    visit(Symbol::Coded { slot: ac, symbol, extra, extra_bits: u32::from(symbol & 15) });
                    match symbol {
                        0x00 => break,
                        // Baseline has runs without a coefficient of 16 only; decoders take others for a block's end.
                        _ if symbol & 15 == 0 && symbol != 0xF0 => {
                            return Err(damaged("a run of zeros that baseline does not have"));
                        }
                        _ => filled += usize::from(symbol >> 4) + 1,
                    }
                }
                if filled > 64 {
                    return Err(damaged("a block of more than 64 coefficients"));
                }
            }
            if bits.at > clean.len() * 8 {
                return Err(Error::new(ErrorKind::Truncated, "the scan ends before its last block"));
            }
        }
        Ok(())
    }
}

/// The marker and the whole segment at `at`: marker, length and payload.
fn segment(jpeg: &[u8], at: usize) -> Result<(u8, &[u8])> {
    let cut = || Error::new(ErrorKind::Truncated, "the header ends early").at_offset(at as u64);
    let &[0xFF, marker, high, low, ..] = jpeg.get(at..).unwrap_or_default() else {
        return Err(if jpeg.len() < at + 4 { cut() } else { damaged("no marker where one is due") });
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length < 2 || matches!(marker, 0x00 | 0x01 | 0xD0..=0xD9 | 0xFF) {
        return Err(damaged("a segment that is none"));
    }
    Ok((marker, jpeg.get(at..at + 2 + length).ok_or_else(cut)?))
}

fn read_tables(mut payload: &[u8], tables: &mut [Option<Table>; SLOTS]) -> Result<()> {
    while let Some((&head, rest)) = payload.split_first() {
        let (Some(lengths), true) = (rest.first_chunk::<16>(), head & 0xEC == 0) else {
            return Err(damaged("a Huffman table with a wrong head"));
        };
        let values: usize = lengths.iter().map(|&count| usize::from(count)).sum();
        let symbols = rest.get(16..16 + values).ok_or_else(|| damaged("a Huffman table that ends early"))?;
        tables[slot(head)] = Some(Table::new(lengths, symbols)?);
        payload = &rest[16 + values..];
    }
    Ok(())
}

/// Class and number of a table, as the file writes them, to a slot.
fn slot(head: u8) -> usize {
    usize::from(head >> 4 & 1) * 4 + usize::from(head & 3)
}

fn read_frame(payload: &[u8]) -> Result<(usize, usize, Vec<Component>)> {
    let Some((&[bits, y1, y0, x1, x0, count], rest)) = payload.split_first_chunk::<6>() else {
        return Err(damaged("a frame header that ends early"));
    };
    let (width, height) = (usize::from(u16::from_be_bytes([x1, x0])), usize::from(u16::from_be_bytes([y1, y0])));
    if bits != 8 || width == 0 || height == 0 {
        return Err(unsupported("the file is not of 8 bits with a known size"));
    }
    if !matches!(count, 1 | 3 | 4) || rest.len() != usize::from(count) * 3 {
        return Err(damaged("a frame header with a wrong number of components"));
    }
    let component =
        |entry: &[u8]| Component { id: entry[0], h: usize::from(entry[1] >> 4), v: usize::from(entry[1] & 15) };
    let components: Vec<_> = rest.chunks_exact(3).map(component).collect();
    if components.iter().any(|component| !(1..=4).contains(&component.h) || !(1..=4).contains(&component.v)) {
        return Err(damaged("a sampling factor outside 1 to 4"));
    }
    Ok((width, height, components))
}

/// The blocks of one MCU in the order of the scan, and the number of MCUs.
fn scan_layout(payload: &[u8], width: usize, height: usize, frame: &[Component]) -> Result<(Vec<Block>, usize)> {
    let count = frame.len();
    if payload.first().map(|&count| usize::from(count)) != Some(count) {
        return Err(unsupported("the file's first scan does not hold all components"));
    }
    if payload.len() != 4 + 2 * count || payload[1 + 2 * count..] != [0, 63, 0] {
        return Err(damaged("a scan header that is not baseline"));
    }
    let mut blocks = Vec::new();
    for entry in payload[1..=2 * count].chunks_exact(2) {
        let place = frame
            .iter()
            .position(|component| component.id == entry[0])
            .ok_or_else(|| damaged("the scan names a component that is not there"))?;
        let component = frame[place];
        let block = Block { dc: usize::from(entry[1] >> 4 & 3), ac: 4 + usize::from(entry[1] & 3), component: place };
        // A scan of one component is stored block by block whatever its sampling factors say.
        let times = if count == 1 { 1 } else { component.h * component.v };
        blocks.extend(std::iter::repeat_n(block, times));
    }
    let most = |factor: fn(&Component) -> usize| match count {
        1 => 1,
        _ => frame.iter().map(factor).max().unwrap_or(1),
    };
    let columns = width.div_ceil(8 * most(|component| component.h));
    let rows = height.div_ceil(8 * most(|component| component.v));
    Ok((blocks, columns * rows))
}

/// The offset of the first marker from `at` on that is no restart marker.
fn scan_end(jpeg: &[u8], mut at: usize) -> Result<usize> {
    let truncated = || Error::new(ErrorKind::Truncated, "the scan has no end");
    loop {
        let step = memchr::memchr(0xFF, jpeg.get(at..).unwrap_or_default()).ok_or_else(truncated)?;
        at += step;
        match jpeg.get(at + 1) {
            Some(0x00 | 0xD0..=0xD7) => at += 2,
            Some(_) => return Ok(at),
            None => return Err(truncated()),
        }
    }
}

/// Copies the bytes up to the next marker without their stuffing and returns what follows, the marker first.
fn unstuff<'a>(mut scan: &'a [u8], clean: &mut Vec<u8>) -> &'a [u8] {
    clean.clear();
    while let Some(at) = memchr::memchr(0xFF, scan) {
        if scan.get(at + 1) != Some(&0) {
            clean.extend_from_slice(&scan[..at]);
            return &scan[at..];
        }
        clean.extend_from_slice(&scan[..=at]);
        scan = &scan[at + 2..];
    }
    clean.extend_from_slice(scan);
    &[]
}

struct BitReader<'a> {
    bytes: &'a [u8],
    /// Position in bits; past the end the bytes read as zero, and the caller checks.
    at: usize,
}

impl BitReader<'_> {
    /// The next symbol and the plain bits behind it, as many as `extra_bits` says.
    #[inline]
    fn symbol(&mut self, table: &Table, extra_bits: impl Fn(u8) -> u8) -> Result<(u8, u16)> {
        let window = self.window();
        let (symbol, length) = table.find(window).ok_or_else(|| damaged("a code that no Huffman table holds"))?;
        let bits = u32::from(extra_bits(symbol));
        if bits > 15 {
            return Err(damaged("a coefficient of more than 15 bits"));
        }
        let extra = (window << length >> 1 >> (63 - bits)) as u16;
        self.at += (length + bits) as usize;
        Ok((symbol, extra))
    }

    #[inline]
    fn window(&self) -> u64 {
        let tail = self.bytes.get(self.at / 8..).unwrap_or_default();
        let word = match tail.first_chunk::<8>() {
            Some(word) => u64::from_be_bytes(*word),
            None => {
                let mut word = [0; 8];
                word[..tail.len()].copy_from_slice(tail);
                u64::from_be_bytes(word)
            }
        };
        word << (self.at % 8)
    }
}

struct BitWriter {
    out: Vec<u8>,
    buffer: u64,
    /// Bits in the buffer, below 32 between calls.
    count: u32,
}

impl BitWriter {
    /// Appends the low `count` bits of `bits`, at most 31.
    #[inline]
    fn put(&mut self, bits: u64, count: u32) {
        self.buffer = self.buffer << count | bits;
        self.count += count;
        if self.count >= 32 {
            self.count -= 32;
            let word = ((self.buffer >> self.count) as u32).to_be_bytes();
            if word.contains(&0xFF) {
                self.stuff(&word);
            } else {
                self.out.extend_from_slice(&word);
            }
        }
    }

    /// Fills the last byte up with ones and writes it.
    fn align(&mut self) {
        let fill = (8 - self.count % 8) % 8;
        self.buffer = self.buffer << fill | ((1 << fill) - 1);
        self.count += fill;
        let bytes = self.count as usize / 8;
        let word = (self.buffer as u32).to_be_bytes();
        self.stuff(&word[4 - bytes..]);
        self.count = 0;
    }

    fn stuff(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.out.push(byte);
            if byte == 0xFF {
                self.out.push(0);
            }
        }
    }
}

pub(super) fn unsupported(message: &str) -> Error {
    Error::new(ErrorKind::Unsupported, message)
}

pub(super) fn damaged(message: &str) -> Error {
    Error::new(ErrorKind::Decode, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::{JpegOptions, PixelKind, Subsampling, encode_jpeg};
    use proptest::prelude::*;
    use zune_jpeg::JpegDecoder;
    use zune_jpeg::zune_core::bytestream::ZCursor;

    fn plain_file(kind: PixelKind, subsampling: Subsampling, restart_interval: u16) -> Vec<u8> {
        let mut pixels = vec![0; 45 * 39 * kind.channels()];
        let mut noise = 1u32;
        for (at, pixel) in pixels.iter_mut().enumerate() {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *pixel = (at / 20) as u8 ^ (noise >> 27) as u8;
        }
        let options = JpegOptions { quality: 92, subsampling, optimise: false, restart_interval };
        encode_jpeg(&pixels, 45, 39, kind, &options).expect("legal")
    }

    fn decode(file: &[u8]) -> Vec<u8> {
        JpegDecoder::new(ZCursor::new(file)).decode().expect("our own files are good")
    }

    #[test]
    fn the_rewritten_file_is_smaller_and_has_the_same_pixels() {
        for kind in [PixelKind::Rgb, PixelKind::Grey] {
            for subsampling in [Subsampling::Full, Subsampling::HalfWidth, Subsampling::Half] {
                for restart_interval in [0, 1, 4] {
                    let plain = plain_file(kind, subsampling, restart_interval);
                    let optimised = optimise_huffman(&plain).expect("baseline");
                    assert!(optimised.len() < plain.len());
                    assert_eq!(decode(&optimised), decode(&plain), "{kind:?} {subsampling:?} {restart_interval}");
                    assert_eq!(optimise_huffman(&optimised).expect("baseline"), optimised, "twice is as once");
                }
            }
        }
    }

    #[test]
    fn a_run_of_zeros_that_decoders_take_for_the_end_of_a_block_is_refused() {
        // One grey block: DC code 0 is a difference of 0; AC code 00 a run of three zeros without a coefficient, 01 the
        // end of the block.
        let jpeg = b"\xFF\xD8\xFF\xC0\0\x0B\x08\0\x08\0\x08\x01\x01\x11\0\
            \xFF\xC4\0\x14\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
            \xFF\xC4\0\x15\x10\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x30\0\
            \xFF\xDA\0\x08\x01\x01\0\0\x3F\0\x0F\xFF\xD9";
        let error = optimise_huffman(jpeg).expect_err("0x30 is no symbol of baseline");
        assert_eq!((error.kind(), error.message()), (ErrorKind::Decode, "a run of zeros that baseline does not have"));
    }

    #[test]
    fn a_cut_file_is_an_error_wherever_it_is_cut() {
        let plain = plain_file(PixelKind::Rgb, Subsampling::Half, 2);
        for length in 0..plain.len() {
            assert!(optimise_huffman(&plain[..length]).is_err(), "cut to {length} bytes");
        }
    }

    #[test]
    fn other_kinds_of_jpeg_are_refused_as_unsupported() {
        let plain = plain_file(PixelKind::Rgb, Subsampling::Full, 0);
        let frame = plain.windows(2).position(|pair| pair == [0xFF, 0xC0]).expect("a frame");
        let mut progressive = plain.clone();
        progressive[frame + 1] = 0xC2;
        let two_scans = [&plain[..plain.len() - 2], &[0xFF, 0xDA, 0, 2, 0xFF, 0xD9]].concat();
        for file in [progressive, two_scans, b"\x89PNG\r\n".to_vec()] {
            assert_eq!(optimise_huffman(&file).expect_err("unsupported").kind(), ErrorKind::Unsupported);
        }
    }

    proptest! {
        #[test]
        fn damage_never_panics(at in 0usize..2000, byte: u8, restart_interval in 0u16..3) {
            let mut file = plain_file(PixelKind::Rgb, Subsampling::Half, restart_interval);
            let at = at % file.len();
            file[at] = byte;
            let _ = optimise_huffman(&file);
        }
    }
}
