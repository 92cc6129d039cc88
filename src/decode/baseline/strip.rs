//! The rows of samples between the transform and the pixels: as few as upsampling needs, so that they stay in cache.
//!
//! A strip covers the MCUs that the wanted region needs, and no others.

use std::ops::Range;

use super::Refusal;
use super::color::CHUNK;
use super::header::Header;
use super::idct::BlockRow;
use super::instructions::Instructions;
use super::output::Output;
use super::upsample::Upsampling;
use crate::decode::Region;

/// The samples of one or two rows of MCUs, and which of the region's rows have been made of them.
#[derive(Debug, Default)]
pub(super) struct Strip {
    geometry: Geometry,
    planes: [Plane; 3],
    /// One row of each chroma component at the size of luma.
    wide: [Vec<u8>; 2],
    sums: Vec<u16>,
    /// The next row of the picture to make.
    next_row: usize,
}

/// What of the picture is needed, in samples of luma and in MCUs.
#[derive(Debug, Clone, Default)]
pub(super) struct Geometry {
    pub(super) rows: Range<usize>,
    pub(super) columns: Range<usize>,
    pub(super) mcu_rows: Range<usize>,
    mcu_columns: Range<usize>,
    mcu_size: (usize, usize),
    height: usize,
    mcu_blocks: usize,
    /// Whether chroma is halved across and down.
    halved: (bool, bool),
    /// Real samples of a chroma row, from the first needed MCU on, and of a chroma column.
    chroma: (usize, usize),
    upsampling: Upsampling,
}

/// Samples of one component: `[rows, stride]`, `u8`, `slots` rows of MCUs, used in turn.
#[derive(Debug, Default)]
struct Plane {
    samples: Vec<u8>,
    stride: usize,
    mcu_height: usize,
    slots: usize,
}

impl Geometry {
    pub(super) fn new(header: &Header, region: Region) -> Self {
        let rows = region.y as usize..region.bottom() as usize;
        let columns = region.x as usize..region.right() as usize;
        let chroma = header.components.get(1).map_or((header.h_max, header.v_max), |chroma| (chroma.h, chroma.v));
        let halved = (chroma.0 < header.h_max, chroma.1 < header.v_max);
        let mcu_size = (8 * header.h_max, 8 * header.v_max);
        let chroma_size = |size: usize, is_halved: bool| if is_halved { size.div_ceil(2) } else { size };
        let chroma_columns = chroma_size(header.width, halved.0);
        let mcu_columns = needed(&columns, header.width, mcu_size.0, halved.0);
        let upsampling = match halved {
            (false, false) => Upsampling::None,
            (false, true) => Upsampling::Down,
            (true, _) if chroma_columns <= 2 => Upsampling::Repeat,
            (true, false) => Upsampling::Across,
            (true, true) => Upsampling::Both,
        };
        Self {
            mcu_rows: needed(&rows, header.height, mcu_size.1, halved.1),
            mcu_blocks: header.components.iter().map(|component| component.h * component.v).sum(),
            chroma: (chroma_columns - mcu_columns.start * 8 * chroma.0, chroma_size(header.height, halved.1)),
            height: header.height,
            rows,
            columns,
            mcu_columns,
            mcu_size,
            halved,
            upsampling,
        }
    }

    /// Columns of luma from the first needed MCU on.
    fn width(&self) -> usize {
        self.mcu_columns.len() * self.mcu_size.0
    }
}

/// The MCUs that `wanted` needs: upsampling looks at the neighbours of the samples that each two pixels share.
fn needed(wanted: &Range<usize>, size: usize, mcu: usize, is_halved: bool) -> Range<usize> {
    let margin = usize::from(is_halved);
    let last = ((wanted.end - 1) | margin) + margin;
    wanted.start.saturating_sub(margin) / mcu..last.min(size - 1) / mcu + 1
}

impl Strip {
    /// Makes ready for a picture.
    pub(super) fn begin(&mut self, header: &Header, geometry: Geometry) {
        let slots = if geometry.halved.1 { 2 } else { 1 };
        for (plane, component) in self.planes.iter_mut().zip(&header.components) {
            plane.stride = geometry.mcu_columns.len() * component.h * 8 + CHUNK;
            plane.mcu_height = component.v * 8;
            plane.slots = slots;
            grow(&mut plane.samples, plane.stride * plane.mcu_height * slots + CHUNK);
        }
        for wide in &mut self.wide {
            grow(wide, geometry.width() + CHUNK);
        }
        if self.sums.len() < geometry.width() {
            self.sums = vec![0; geometry.width()];
        }
        self.next_row = geometry.rows.start;
        self.geometry = geometry;
    }

    pub(super) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Takes the coefficients of MCU row `mcu_row` and makes the rows of pixels that are complete with it.
    pub(super) fn take(
        &mut self,
        row: &[i16],
        mcu_row: usize,
        header: &Header,
        output: &mut Output,
        instructions: Instructions,
    ) -> Result<(), Refusal> {
        let Geometry { mcu_columns, mcu_blocks, .. } = &self.geometry;
        let mut first = mcu_columns.start * mcu_blocks;
        for (plane, component) in self.planes.iter_mut().zip(&header.components) {
            for v in 0..component.v {
                let blocks = BlockRow {
                    first: first + v * component.h,
                    mcu_blocks: *mcu_blocks,
                    h: component.h,
                    count: mcu_columns.len() * component.h,
                };
                let start = plane.start_of(mcu_row * plane.mcu_height + v * 8);
                let samples = &mut plane.samples[start..];
                if !instructions.transform(row, blocks, &component.quantiser, samples, plane.stride) {
                    return Err(Refusal::Range);
                }
            }
            first += component.h * component.v;
        }
        let bottom = (mcu_row + 1) * self.geometry.mcu_size.1;
        // The last row of chroma waits for the one below.
        let ready = if bottom >= self.geometry.height { bottom } else { bottom - usize::from(self.geometry.halved.1) };
        for y in self.next_row..ready.min(self.geometry.rows.end) {
            self.emit(y, output, instructions);
        }
        self.next_row = self.next_row.max(ready.min(self.geometry.rows.end));
        Ok(())
    }

    /// Makes one row of pixels.
    fn emit(&mut self, y: usize, output: &mut Output, instructions: Instructions) {
        let Self { geometry, planes, wide, sums, .. } = self;
        let left = geometry.columns.start - geometry.mcu_columns.start * geometry.mcu_size.0;
        let width = geometry.columns.len().next_multiple_of(CHUNK);
        let [luma, chroma @ ..] = &*planes;
        let luma = &luma.row(y)[left..][..width];
        let row = y - geometry.rows.start;
        if chroma[0].stride == 0 || output.is_grey_source() {
            return output.grey(row, luma, instructions);
        }
        let [cb, cr] = if geometry.upsampling == Upsampling::None {
            [&chroma[0].row(y)[left..][..width], &chroma[1].row(y)[left..][..width]]
        } else {
            let [cb, cr] = wide;
            for (plane, wide) in chroma.iter().zip([&mut *cb, &mut *cr]) {
                geometry.upsample(plane, y, sums, wide, instructions);
            }
            [&cb[left..][..width], &cr[left..][..width]]
        };
        output.color(row, [luma, cb, cr], instructions);
    }
}

impl Geometry {
    /// One row of a chroma plane for row `y` of luma.
    fn upsample(&self, plane: &Plane, y: usize, sums: &mut [u16], wide: &mut [u8], instructions: Instructions) {
        let (columns, rows) = self.chroma;
        let columns = columns.min(plane.stride - CHUNK);
        let (near, is_upper) = if self.halved.1 { (y / 2, y.is_multiple_of(2)) } else { (y, true) };
        // Past the edges of the picture the last row stands for its neighbour.
        let far = if is_upper { near.saturating_sub(1) } else { (near + 1).min(rows - 1) };
        let near = &plane.row(near)[..columns];
        match self.upsampling {
            Upsampling::None => {}
            Upsampling::Across => instructions.across(near, wide),
            Upsampling::Down => instructions.down(near, &plane.row(far)[..columns], is_upper, wide),
            Upsampling::Both => instructions.both(near, &plane.row(far)[..columns], sums, wide),
            Upsampling::Repeat => super::upsample::repeat(near, wide),
        }
    }
}

impl Plane {
    /// Where row `y` of the component begins, if its row of MCUs is one of the last.
    fn start_of(&self, y: usize) -> usize {
        y % (self.mcu_height * self.slots) * self.stride
    }

    fn row(&self, y: usize) -> &[u8] {
        &self.samples[self.start_of(y)..]
    }
}

fn grow(samples: &mut Vec<u8>, len: usize) {
    if samples.len() < len {
        *samples = vec![0; len];
    }
}
