//! The coefficients of a baseline JPEG file, and the same file with restart markers or turned upright: every coefficient stays
//! what it is, so every pixel does.
//!
//! It computes no pixels and quantises nothing; what it cannot do without that, it refuses.

use super::scan::{Component, File, SLOTS, Symbol, codes_for, damaged, unsupported, write_scan};
use crate::Result;

/// What becomes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rewrite {
    /// Turns the picture; not at all by default.
    pub turn: Turn,
    /// A restart marker before every so many rows of MCUs, 1 or more; `None`, the default, leaves no markers in a picture that
    /// is turned, and those that there are in others.
    pub restart_rows: Option<u16>,
}

/// How a picture is turned: mirrored first, then transposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Turn {
    /// The last column comes first.
    pub flip_x: bool,
    /// The last row comes first.
    pub flip_y: bool,
    /// Rows become columns.
    pub transpose: bool,
}

impl Turn {
    fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// Rewrites `jpeg` under Huffman tables made for it.
///
/// # Errors
/// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for anything but a baseline file with one scan of all its
/// components, for a mirrored side that is no whole number of MCUs, and for more than 65,535 MCUs between two markers;
/// [`ErrorKind::Decode`](crate::ErrorKind::Decode) or [`ErrorKind::Truncated`](crate::ErrorKind::Truncated) for a damaged
/// file.
pub fn rewrite_jpeg(jpeg: &[u8], rewrite: &Rewrite) -> Result<Vec<u8>> {
    let file = File::parse(jpeg)?;
    let mut planes = Planes::read(&file)?;
    let mut head = file.head.clone();
    if !rewrite.turn.is_none() {
        planes.turn(rewrite.turn)?;
        drop_segments(&mut head, 0xDD);
        if rewrite.turn.transpose {
            transpose_head(&mut head);
        }
    }
    let mut interval = file.restart_interval();
    if !rewrite.turn.is_none() {
        interval = 0;
    }
    if let Some(rows) = rewrite.restart_rows {
        let mcus = usize::from(rows) * planes.columns;
        interval = u16::try_from(mcus)
            .ok()
            .filter(|&mcus| mcus > 0)
            .ok_or_else(|| unsupported("more than 65,535 MCUs, or none, would stand between two restart markers"))?
            .into();
        drop_segments(&mut head, 0xDD);
        let [high, low] = (interval as u16).to_be_bytes();
        head.extend_from_slice(&[0xFF, 0xDD, 0, 4, high, low]);
    }
    let codes = codes_for(&planes.counts(interval));
    head.reserve(jpeg.len());
    write_scan(head, &codes, file.scan_header, |visit| {
        planes.visit(interval, visit);
        Ok(())
    })
}

/// Coefficients of one block, in rows of eight.
pub(super) type Coefficients = [i16; 64];

/// All coefficients of a file.
pub(super) struct Planes {
    /// By place in the frame header.
    planes: Vec<Plane>,
    /// The blocks of an MCU in the order of the scan: plane, column and row within the MCU, and slots of tables.
    order: Vec<Place>,
    /// MCUs in a row and in a column.
    columns: usize,
    rows: usize,
    width: usize,
    height: usize,
}

struct Plane {
    component: Component,
    /// Blocks in a row, those that only fill MCUs up included.
    across: usize,
    blocks: Vec<Coefficients>,
}

#[derive(Clone, Copy)]
struct Place {
    plane: usize,
    x: usize,
    y: usize,
    dc: usize,
    ac: usize,
}

/// The place in rows of eight of each coefficient, in the order of the file.
pub(super) const ZIGZAG: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21,
    28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54,
    47, 55, 62, 63,
];

/// Blocks of a file at most: those of 65,535 x 65,535 pixels would be 8 GiB and more.
const BLOCKS_MAX: usize = 1 << 24;

impl Planes {
    fn read(file: &File<'_>) -> Result<Self> {
        let is_single = file.components.len() == 1;
        let factor = |of: fn(&Component) -> usize| match is_single {
            true => 1,
            false => file.components.iter().map(of).max().unwrap_or(1),
        };
        let columns = file.width.div_ceil(8 * factor(|component| component.h));
        let rows = file.height.div_ceil(8 * factor(|component| component.v));
        let planes = file.components.iter().map(|&component| {
            // A scan of one component is stored block by block, whatever its sampling factors say.
            let component = if is_single { Component { h: 1, v: 1, ..component } } else { component };
            let (across, down) = (columns * component.h, rows * component.v);
            Plane {
                component,
                across,
                blocks: vec![[0; 64]; if across * down <= BLOCKS_MAX { across * down } else { 0 }],
            }
        });
        let planes: Vec<Plane> = planes.collect();
        if planes.iter().any(|plane| plane.blocks.is_empty()) {
            return Err(unsupported("the picture is too large to be rewritten"));
        }
        let mut met = vec![0; planes.len()];
        let order = file.blocks.iter().map(|block| {
            let number = met[block.component];
            met[block.component] += 1;
            let h = planes[block.component].component.h;
            Place { plane: block.component, x: number % h, y: number / h, dc: block.dc, ac: block.ac }
        });
        let order = order.collect();
        let mut read = Self { planes, order, columns, rows, width: file.width, height: file.height };
        read.fill(file)?;
        Ok(read)
    }

    /// Planes of nothing but zeros: luma first, under tables of its own, the others under those for chroma.
    pub(super) fn zero(width: usize, height: usize, components: &[Component]) -> Self {
        let first = components[0];
        let (columns, rows) = (width.div_ceil(8 * first.h), height.div_ceil(8 * first.v));
        let plane = |&component: &Component| {
            let (across, down) = (columns * component.h, rows * component.v);
            Plane { component, across, blocks: vec![[0; 64]; across * down] }
        };
        let places = |(plane, component): (usize, &Component)| {
            let (h, table) = (component.h, usize::from(plane > 0));
            (0..h * component.v).map(move |block| Place {
                plane,
                x: block % h,
                y: block / h,
                dc: table,
                ac: SLOTS / 2 + table,
            })
        };
        let order = components.iter().enumerate().flat_map(places).collect();
        Self { planes: components.iter().map(plane).collect(), order, columns, rows, width, height }
    }

    /// Sampling factors of the first component, which no other one has more of.
    pub(super) fn factors(&self) -> (usize, usize) {
        let Component { h, v, .. } = self.planes[0].component;
        (h, v)
    }

    /// MCUs in a row and in a column.
    pub(super) fn mcus(&self) -> (usize, usize) {
        (self.columns, self.rows)
    }

    /// The blocks of one plane in a row of MCUs, row by row.
    pub(super) fn block_rows(&mut self, plane: usize, mcu_row: usize) -> &mut [Coefficients] {
        let Plane { component, across, blocks } = &mut self.planes[plane];
        let count = *across * component.v;
        &mut blocks[mcu_row * count..][..count]
    }

    /// How often each symbol occurs, by the slot of its table.
    pub(super) fn counts(&self, interval: usize) -> Box<[[u32; 256]; SLOTS]> {
        let mut counts = Box::new([[0u32; 256]; SLOTS]);
        self.visit(interval, &mut |symbol: Symbol| {
            if let Symbol::Coded { slot, symbol, .. } = symbol {
                counts[slot][usize::from(symbol)] += 1;
            }
        });
        counts
    }

    /// Takes the coefficients out of the scan.
    fn fill(&mut self, file: &File<'_>) -> Result<()> {
        let mut last = vec![0i32; self.planes.len()];
        // The block that is being read: its number in the scan, and how many of its coefficients are there.
        let (mut number, mut filled) = (0usize, 0usize);
        let mut is_odd = false;
        let Self { planes, order, columns, .. } = self;
        file.walk(&mut |symbol| match symbol {
            Symbol::Restart(_) => last.fill(0),
            Symbol::Coded { symbol, extra, extra_bits, .. } => {
                let place = order[number % order.len()];
                let plane = &mut planes[place.plane];
                let block = plane.block(number / order.len(), *columns, place);
                let value = extend(extra, extra_bits);
                if filled == 0 {
                    last[place.plane] += value;
                    is_odd |= !(-2048..2048).contains(&last[place.plane]);
                    block[0] = last[place.plane] as i16;
                    filled = 1;
                    return;
                }
                let at = filled + usize::from(symbol >> 4);
                match symbol {
                    0x00 => filled = 64,
                    _ => {
                        if symbol & 15 != 0
                            && let Some(&natural) = ZIGZAG.get(at)
                        {
                            block[usize::from(natural)] = value as i16;
                            is_odd |= !(-1023..=1023).contains(&value);
                        }
                        filled = at + 1;
                    }
                }
                if filled >= 64 {
                    (number, filled) = (number + 1, 0);
                }
            }
        })?;
        // Where a block's 64th coefficient is there, no symbol ends it; so each block has ended.
        if is_odd {
            return Err(damaged("a coefficient beyond what baseline can have"));
        }
        Ok(())
    }

    /// Visits all symbols, with a restart marker before every `interval` MCUs, 0 for none.
    pub(super) fn visit(&self, interval: usize, visit: &mut (impl FnMut(Symbol) + ?Sized)) {
        let mut last = vec![0i32; self.planes.len()];
        for mcu in 0..self.columns * self.rows {
            if interval > 0 && mcu > 0 && mcu % interval == 0 {
                visit(Symbol::Restart(((mcu / interval - 1) & 7) as u8));
                last.fill(0);
            }
            for &place in &self.order {
                let block = self.planes[place.plane].at(mcu, self.columns, place);
                let dc = i32::from(block[0]);
                let (bits, extra) = reduce(dc - last[place.plane]);
                last[place.plane] = dc;
                visit(Symbol::Coded { slot: place.dc, symbol: bits, extra, extra_bits: bits.into() });
                visit_ac(block, place.ac, visit);
            }
        }
    }

    fn turn(&mut self, turn: Turn) -> Result<()> {
        let most =
            |of: fn(&Component) -> usize| self.planes.iter().map(|plane| of(&plane.component)).max().unwrap_or(1);
        let is_whole = |pixels: usize, factor: usize| pixels.is_multiple_of(8 * factor);
        if turn.flip_x && !is_whole(self.width, most(|component| component.h))
            || turn.flip_y && !is_whole(self.height, most(|component| component.v))
        {
            return Err(unsupported("a side that is mirrored is no whole number of MCUs"));
        }
        self.planes.iter_mut().for_each(|plane| plane.turn(turn));
        if turn.transpose {
            std::mem::swap(&mut self.columns, &mut self.rows);
            std::mem::swap(&mut self.width, &mut self.height);
            // The blocks of an MCU stand row by row again.
            let mut met = vec![0; self.planes.len()];
            for place in &mut self.order {
                let h = self.planes[place.plane].component.h;
                let number: usize = met[place.plane];
                met[place.plane] += 1;
                (place.x, place.y) = (number % h, number / h);
            }
        }
        Ok(())
    }
}

impl Plane {
    fn number(&self, mcu: usize, columns: usize, place: Place) -> usize {
        let (x, y) = (mcu % columns * self.component.h + place.x, mcu / columns * self.component.v + place.y);
        y * self.across + x
    }

    fn at(&self, mcu: usize, columns: usize, place: Place) -> &Coefficients {
        &self.blocks[self.number(mcu, columns, place)]
    }

    fn block(&mut self, mcu: usize, columns: usize, place: Place) -> &mut Coefficients {
        let number = self.number(mcu, columns, place);
        &mut self.blocks[number]
    }

    fn turn(&mut self, turn: Turn) {
        let (across, down) = (self.across, self.blocks.len() / self.across.max(1));
        let mut turned = Vec::with_capacity(self.blocks.len());
        let (new_across, new_down) = if turn.transpose { (down, across) } else { (across, down) };
        for y in 0..new_down {
            for x in 0..new_across {
                let (from_x, from_y) = if turn.transpose { (y, x) } else { (x, y) };
                let from_x = if turn.flip_x { across - 1 - from_x } else { from_x };
                let from_y = if turn.flip_y { down - 1 - from_y } else { from_y };
                turned.push(turn_block(&self.blocks[from_y * across + from_x], turn));
            }
        }
        self.blocks = turned;
        self.across = new_across;
        if turn.transpose {
            std::mem::swap(&mut self.component.h, &mut self.component.v);
        }
    }
}

/// A mirrored block has the signs of its odd frequencies changed; a transposed one its frequencies swapped.
fn turn_block(block: &Coefficients, turn: Turn) -> Coefficients {
    std::array::from_fn(|at| {
        let (row, column) = (at / 8, at % 8);
        let (row, column) = if turn.transpose { (column, row) } else { (row, column) };
        let is_negative = (turn.flip_x && column % 2 == 1) != (turn.flip_y && row % 2 == 1);
        let value = block[row * 8 + column];
        if is_negative { -value } else { value }
    })
}

fn visit_ac(block: &Coefficients, slot: usize, visit: &mut (impl FnMut(Symbol) + ?Sized)) {
    let mut zeros = 0u8;
    for &natural in &ZIGZAG[1..] {
        let value = i32::from(block[usize::from(natural)]);
        if value == 0 {
            zeros += 1;
            continue;
        }
        while zeros > 15 {
            visit(Symbol::Coded { slot, symbol: 0xF0, extra: 0, extra_bits: 0 });
            zeros -= 16;
        }
        let (bits, extra) = reduce(value);
        visit(Symbol::Coded { slot, symbol: zeros << 4 | bits, extra, extra_bits: bits.into() });
        zeros = 0;
    }
    if zeros > 0 {
        visit(Symbol::Coded { slot, symbol: 0, extra: 0, extra_bits: 0 });
    }
}

/// The value that `bits` plain bits stand for.
fn extend(extra: u16, bits: u32) -> i32 {
    match bits {
        0 => 0,
        _ if extra >> (bits - 1) & 1 == 1 => extra.into(),
        _ => i32::from(extra) - (1 << bits) + 1,
    }
}

/// How many plain bits a value takes, and these bits.
fn reduce(value: i32) -> (u8, u16) {
    let bits = 32 - value.unsigned_abs().leading_zeros();
    let extra = if value < 0 { value + (1 << bits) - 1 } else { value };
    (bits as u8, extra as u16)
}

/// Where segments of the head begin and end, with their markers; the parser has seen that they are whole.
fn segments(head: &[u8]) -> Vec<(u8, std::ops::Range<usize>)> {
    let mut segments = Vec::new();
    let mut at = 2;
    while let Some(&[0xFF, marker, high, low]) = head.get(at..at + 4) {
        let end = at + 2 + usize::from(u16::from_be_bytes([high, low]));
        segments.push((marker, at..end.min(head.len())));
        at = end;
    }
    segments
}

fn drop_segments(head: &mut Vec<u8>, marker: u8) {
    for (_, range) in segments(head).into_iter().rev().filter(|(found, _)| *found == marker) {
        head.drain(range);
    }
}

/// Swaps the sides and sampling factors of the frame, and rows and columns of the quantisation tables.
fn transpose_head(head: &mut [u8]) {
    for (marker, range) in segments(head) {
        let Some(payload) = head.get_mut(range).and_then(|segment| segment.get_mut(4..)) else { continue };
        match marker {
            0xC0 | 0xC1 if payload.len() >= 6 => {
                let (sides, components) = payload.split_at_mut(6);
                sides[1..5].rotate_left(2);
                components.chunks_exact_mut(3).for_each(|component| component[1] = component[1].rotate_left(4));
            }
            0xDB => transpose_tables(payload),
            _ => {}
        }
    }
}

fn transpose_tables(mut payload: &mut [u8]) {
    while let Some((&mut head, rest)) = std::mem::take(&mut payload).split_first_mut() {
        let wide = if head >> 4 == 0 { 1 } else { 2 };
        let Some((table, rest)) = rest.split_at_mut_checked(64 * wide) else { return };
        let before = table.to_vec();
        for (at, &natural) in ZIGZAG.iter().enumerate() {
            let swapped = natural % 8 * 8 + natural / 8;
            let from = ZIGZAG.iter().position(|&other| other == swapped).unwrap_or(at);
            table[at * wide..(at + 1) * wide].copy_from_slice(&before[from * wide..(from + 1) * wide]);
        }
        payload = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use crate::encode::{JpegOptions, PixelKind, Subsampling, encode_jpeg};
    use proptest::prelude::*;
    use zune_jpeg::JpegDecoder;
    use zune_jpeg::zune_core::bytestream::ZCursor;

    fn file(width: u32, height: u32, kind: PixelKind, subsampling: Subsampling, restart_interval: u16) -> Vec<u8> {
        let mut noise = 1u32;
        let pixels: Vec<u8> = (0..width as usize * height as usize * kind.channels())
            .map(|at| {
                noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                40 + (at / 31 % 97) as u8 + (noise >> 28) as u8
            })
            .collect();
        let options = JpegOptions { quality: 90, subsampling, optimise: false, restart_interval };
        encode_jpeg(&pixels, width, height, kind, &options).expect("legal")
    }

    /// Side lengths and grey or RGB pixels.
    fn decode(file: &[u8]) -> (usize, usize, Vec<u8>) {
        let mut decoder = JpegDecoder::new(ZCursor::new(file));
        let pixels = decoder.decode().expect("our own files are good");
        let (width, height) = decoder.dimensions().expect("decoded");
        (width, height, pixels)
    }

    const KINDS: [(PixelKind, Subsampling); 4] = [
        (PixelKind::Grey, Subsampling::Full),
        (PixelKind::Rgb, Subsampling::Full),
        (PixelKind::Rgb, Subsampling::HalfWidth),
        (PixelKind::Rgb, Subsampling::Half),
    ];

    #[test]
    fn restart_markers_change_no_pixel() {
        for (kind, subsampling) in KINDS {
            for before in [0, 3] {
                let plain = file(75, 61, kind, subsampling, before);
                for rows in [1, 2, 200] {
                    let rewrite = Rewrite { restart_rows: Some(rows), ..Rewrite::default() };
                    let marked = rewrite_jpeg(&plain, &rewrite).expect("baseline");
                    assert_eq!(decode(&marked), decode(&plain), "{kind:?} {subsampling:?} {rows}");
                    assert_eq!(rewrite_jpeg(&marked, &rewrite).expect("baseline"), marked, "twice is as once");
                }
                assert_eq!(decode(&rewrite_jpeg(&plain, &Rewrite::default()).expect("baseline")), decode(&plain));
            }
        }
        let marked = rewrite_jpeg(
            &file(75, 61, PixelKind::Rgb, Subsampling::Half, 0),
            &Rewrite { restart_rows: Some(1), ..Rewrite::default() },
        );
        let marked = marked.expect("baseline");
        let markers = marked.windows(2).filter(|pair| pair[0] == 0xFF && (0xD0..0xD8).contains(&pair[1])).count();
        assert_eq!(markers, 3, "four rows of MCUs");
    }

    #[test]
    fn every_turn_is_undone_by_its_opposite() {
        for (kind, subsampling) in &KINDS[..2] {
            let plain = file(64, 48, *kind, *subsampling, 2);
            let (width, height, pixels) = decode(&plain);
            for bits in 1..8 {
                let turn = Turn { flip_x: bits & 1 > 0, flip_y: bits & 2 > 0, transpose: bits & 4 > 0 };
                let turned = rewrite_jpeg(&plain, &Rewrite { turn, restart_rows: None }).expect("whole MCUs");
                let (new_width, new_height, found) = decode(&turned);
                assert_eq!((new_width, new_height), if turn.transpose { (height, width) } else { (width, height) });
                assert_ne!(found, pixels, "{turn:?}");
                let back =
                    if turn.transpose { Turn { flip_x: turn.flip_y, flip_y: turn.flip_x, ..turn } } else { turn };
                let again = rewrite_jpeg(&turned, &Rewrite { turn: back, restart_rows: None }).expect("whole MCUs");
                assert_eq!(decode(&again), (width, height, pixels.clone()), "{turn:?} and back");
            }
        }
    }

    #[test]
    fn turns_of_subsampled_pictures_undo_themselves() {
        for (kind, subsampling) in KINDS {
            let plain = file(96, 64, kind, subsampling, 0);
            for turn in
                [Turn { transpose: true, ..Turn::default() }, Turn { flip_x: true, flip_y: true, transpose: false }]
            {
                let rewrite = Rewrite { turn, restart_rows: Some(1) };
                let turned = rewrite_jpeg(&plain, &rewrite).expect("whole MCUs");
                assert_ne!(decode(&turned), decode(&plain));
                assert_eq!(decode(&rewrite_jpeg(&turned, &rewrite).expect("whole MCUs")), decode(&plain), "{turn:?}");
            }
        }
    }

    #[test]
    fn a_mirrored_side_must_be_whole_mcus() {
        let plain = file(70, 48, PixelKind::Rgb, Subsampling::Half, 0);
        let turned = |flip_x, flip_y| {
            let turn = Turn { flip_x, flip_y, transpose: true };
            rewrite_jpeg(&plain, &Rewrite { turn, restart_rows: None }).map(|file| decode(&file))
        };
        assert_eq!(turned(true, false).unwrap_err().kind(), ErrorKind::Unsupported);
        assert!(turned(false, true).is_ok() && turned(false, false).is_ok());
        let none = Rewrite { restart_rows: Some(0), ..Rewrite::default() };
        assert_eq!(rewrite_jpeg(&plain, &none).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    proptest! {
        #[test]
        fn damage_never_panics(at in 0usize..4000, byte: u8, bits in 0u8..8) {
            let mut file = file(45, 39, PixelKind::Rgb, Subsampling::Half, 2);
            let at = at % file.len();
            file[at] = byte;
            let turn = Turn { flip_x: bits & 1 > 0, flip_y: bits & 2 > 0, transpose: bits & 4 > 0 };
            let _ = rewrite_jpeg(&file, &Rewrite { turn, restart_rows: Some(1) });
        }
    }
}
