//! The segments before the scan (B.2): frame, tables, restart interval, scan header.
//!
//! Strict where the walk over the markers is lenient: whatever a plain file would not have is refused, so that only
//! files of one shape reach the stages behind it.

use super::Refusal;
use super::huffman::Code;

/// Coefficients of a block.
pub(super) const BLOCK: usize = 64;

/// Greatest quantiser step that is taken: 8-bit tables end at 255, and no encoder of 8-bit pictures goes beyond.
pub(super) const STEP_MAX: i16 = 8191;

/// Blocks that an interleaved MCU may have (B.2.3).
const MCU_BLOCKS_MAX: usize = 10;

/// A picture of one scan, and the tables that it uses.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) width: usize,
    pub(super) height: usize,
    /// One (grey) or three (YCbCr).
    pub(super) components: Vec<Component>,
    /// The greatest sampling factors; (1, 1) for grey.
    pub(super) h_max: usize,
    pub(super) v_max: usize,
    /// MCUs between restart markers, 0 for none.
    pub(super) restart_interval: usize,
    /// Codes by table slot.
    pub(super) dc: [Option<Code>; 4],
    pub(super) ac: [Option<Code>; 4],
    /// Where the entropy-coded data begin.
    pub(super) scan: usize,
}

/// A component and the tables it names; the slots of `dc` and `ac` are filled in the header.
#[derive(Debug)]
pub(super) struct Component {
    pub(super) h: usize,
    pub(super) v: usize,
    /// Quantiser steps, 0 to [`STEP_MAX`], in zigzag order.
    pub(super) quantiser: [i16; BLOCK],
    pub(super) dc: usize,
    pub(super) ac: usize,
}

impl Header {
    /// Reads all segments from the start of the image to the scan.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Refusal> {
        let mut segments = Segments::default();
        let mut at = 2;
        if !bytes.starts_with(&[0xFF, 0xD8]) {
            return Err(Refusal::Markers);
        }
        loop {
            let (code, body, end) = segment(bytes, at).ok_or(Refusal::Markers)?;
            at = end;
            match code {
                0xC0 | 0xC1 => segments.frame(body)?,
                0xC4 => segments.huffman(body)?,
                0xDB => segments.quantisers(body)?,
                0xDD => segments.restart(body)?,
                0xDA => return segments.scan(body, end),
                0xE0 if body.starts_with(b"JFIF\0") && body.len() >= 14 => segments.jfif = true,
                0xEE if body.starts_with(b"Adobe") && body.len() >= 12 => segments.adobe = Some(body[11]),
                0xE0..=0xEF | 0xFE => {}
                0xC2..=0xCF => return Err(Refusal::Process),
                _ => return Err(Refusal::Markers),
            }
        }
    }

    /// MCUs of a row.
    pub(super) fn mcus_across(&self) -> usize {
        self.width.div_ceil(8 * self.h_max)
    }

    /// Rows of MCUs.
    pub(super) fn mcus_down(&self) -> usize {
        self.height.div_ceil(8 * self.v_max)
    }
}

/// The marker segment at `at`: code, parameters, and where it ends. Fill bytes may come before it (B.1.1.2).
fn segment(bytes: &[u8], at: usize) -> Option<(u8, &[u8], usize)> {
    let rest = bytes.get(at..)?;
    let fill = rest.iter().take_while(|&&byte| byte == 0xFF).count();
    if fill == 0 {
        return None;
    }
    let &[code, high, low, ..] = rest.get(fill..)? else { return None };
    let body = at + fill + 3;
    let end = at + fill + 1 + usize::from(u16::from_be_bytes([high, low]));
    Some((code, bytes.get(body..end)?, end))
}

/// What the segments have said so far.
#[derive(Default)]
struct Segments {
    frame: Option<Frame>,
    quantisers: [Option<[i16; BLOCK]>; 4],
    dc: [Option<Code>; 4],
    ac: [Option<Code>; 4],
    restart_interval: Option<usize>,
    jfif: bool,
    adobe: Option<u8>,
}

struct Frame {
    width: usize,
    height: usize,
    /// Identifier, horizontal and vertical sampling, quantiser slot.
    components: Vec<(u8, usize, usize, usize)>,
}

impl Segments {
    fn frame(&mut self, body: &[u8]) -> Result<(), Refusal> {
        let &[bits, y1, y0, x1, x0, count, ref list @ ..] = body else { return Err(Refusal::Markers) };
        let [height, width] = [[y1, y0], [x1, x0]].map(|side| usize::from(u16::from_be_bytes(side)));
        if self.frame.is_some() || list.len() != 3 * usize::from(count) || width == 0 || height == 0 {
            return Err(Refusal::Markers);
        }
        if bits != 8 {
            return Err(Refusal::Process);
        }
        if !matches!(count, 1 | 3) {
            return Err(Refusal::Components);
        }
        let component = |part: &[u8]| {
            let [h, v] = [part[1] >> 4, part[1] & 15].map(usize::from);
            (part[0], h, v, usize::from(part[2]))
        };
        let components = list.chunks_exact(3).map(component).collect();
        self.frame = Some(Frame { width, height, components });
        Ok(())
    }

    /// Quantisation tables (B.2.4.1).
    fn quantisers(&mut self, mut body: &[u8]) -> Result<(), Refusal> {
        while let [kind, rest @ ..] = body {
            let wide = match kind >> 4 {
                0 => 1,
                1 => 2,
                _ => return Err(Refusal::Tables),
            };
            let (steps, rest) = rest.split_at_checked(BLOCK * wide).ok_or(Refusal::Tables)?;
            let slot = self.quantisers.get_mut(usize::from(kind & 15)).ok_or(Refusal::Tables)?;
            let mut table = [0; BLOCK];
            for (step, bytes) in table.iter_mut().zip(steps.chunks_exact(wide)) {
                let value = bytes.iter().fold(0, |value, &byte| value << 8 | u16::from(byte));
                *step = i16::try_from(value).ok().filter(|&step| step <= STEP_MAX).ok_or(Refusal::Range)?;
            }
            if slot.replace(table).is_some() {
                return Err(Refusal::Tables);
            }
            body = rest;
        }
        Ok(())
    }

    /// Huffman tables (B.2.4.2).
    fn huffman(&mut self, mut body: &[u8]) -> Result<(), Refusal> {
        while let [kind, rest @ ..] = body {
            let (code, rest) = Code::read(rest).ok_or(Refusal::Tables)?;
            let class = match kind >> 4 {
                0 => &mut self.dc,
                1 => &mut self.ac,
                _ => return Err(Refusal::Tables),
            };
            let slot = class.get_mut(usize::from(kind & 15)).ok_or(Refusal::Tables)?;
            if slot.replace(code).is_some() {
                return Err(Refusal::Tables);
            }
            body = rest;
        }
        Ok(())
    }

    fn restart(&mut self, body: &[u8]) -> Result<(), Refusal> {
        let &[high, low] = body else { return Err(Refusal::Markers) };
        match self.restart_interval.replace(usize::from(u16::from_be_bytes([high, low]))) {
            None => Ok(()),
            Some(_) => Err(Refusal::Markers),
        }
    }

    /// The scan header (B.2.3), behind which everything is known.
    fn scan(mut self, body: &[u8], end: usize) -> Result<Header, Refusal> {
        let frame = self.frame.take().ok_or(Refusal::Markers)?;
        let count = frame.components.len();
        if usize::from(*body.first().ok_or(Refusal::Markers)?) != count {
            return Err(Refusal::Scans);
        }
        let (list, parameters) = body[1..].split_at_checked(2 * count).ok_or(Refusal::Markers)?;
        if parameters != [0, 63, 0] {
            return Err(Refusal::Markers);
        }
        let mut components = Vec::with_capacity(count);
        for (&(id, h, v, slot), named) in frame.components.iter().zip(list.chunks_exact(2)) {
            if named[0] != id {
                return Err(Refusal::Scans);
            }
            let quantiser = self.quantisers.get(slot).copied().flatten().ok_or(Refusal::Tables)?;
            let [dc, ac] = [named[1] >> 4, named[1] & 15].map(usize::from);
            let known = |codes: &[Option<Code>; 4], slot: usize| codes.get(slot).is_some_and(Option::is_some);
            if !known(&self.dc, dc) || !known(&self.ac, ac) {
                return Err(Refusal::Tables);
            }
            components.push(Component { h, v, quantiser, dc, ac });
        }
        self.check_color(&frame)?;
        let (h_max, v_max) = check_sampling(&mut components)?;
        Ok(Header {
            width: frame.width,
            height: frame.height,
            components,
            h_max,
            v_max,
            restart_interval: self.restart_interval.unwrap_or(0),
            dc: self.dc,
            ac: self.ac,
            scan: end,
        })
    }

    /// Whether three components are YCbCr, as libjpeg decides it: JFIF says so, else Adobe's transform does, else the
    /// identifiers.
    fn check_color(&self, frame: &Frame) -> Result<(), Refusal> {
        let [(first, ..), (second, ..), (third, ..)] = frame.components[..] else { return Ok(()) };
        if first == second || second == third || first == third {
            return Err(Refusal::Markers);
        }
        let is_ycbcr = match (self.jfif, self.adobe) {
            (true, _) => true,
            (false, Some(transform)) => transform == 1,
            (false, None) => [first, second, third] != *b"RGB",
        };
        if is_ycbcr { Ok(()) } else { Err(Refusal::Color) }
    }
}

/// The greatest sampling factors, if luma has them and chroma has half of them at the least.
fn check_sampling(components: &mut [Component]) -> Result<(usize, usize), Refusal> {
    if let [grey] = components {
        // A scan of one component is not interleaved: its MCU is one block, whatever the factors say (A.2.2).
        (grey.h, grey.v) = (1, 1);
    }
    let legal = |factor: usize| (1..=4).contains(&factor);
    let blocks: usize = components.iter().map(|component| component.h * component.v).sum();
    if components.iter().any(|component| !legal(component.h) || !legal(component.v)) || blocks > MCU_BLOCKS_MAX {
        return Err(Refusal::Sampling);
    }
    let max = (components[0].h, components[0].v);
    let whole_or_half = |factor: usize, max: usize| factor == max || 2 * factor == max;
    let chroma = components.get(1..).unwrap_or(&[]);
    if chroma.iter().any(|component| !whole_or_half(component.h, max.0) || !whole_or_half(component.v, max.1))
        || chroma.windows(2).any(|pair| (pair[0].h, pair[0].v) != (pair[1].h, pair[1].v))
    {
        return Err(Refusal::Sampling);
    }
    Ok(max)
}
