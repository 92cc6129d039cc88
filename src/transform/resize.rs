//! Resampling decoded pixels into the output, one pass a stage, straight into the caller's slice.
//!
//! What to resample is a [`Geometry`]'s decision; the filters' arithmetic is fast_image_resize's, which follows
//! PIL's rule: the filter widens by the factor of the shrinking, its weights add up to 1, across comes before
//! down, rounding to `u8` happens after each. Against Pillow 13, on photos, 0.2 to 1.6 % of the bytes differ, by
//! 1 or 2; only bicubic resizes of tall pictures, which that version does down first, differ by more where
//! overshoots are clipped (0.002 % of the bytes). Nearest, copies and fill are the same bytes.

mod weights;
#[expect(unsafe_code, reason = "functions compiled for instructions that were found at run time are called")]
mod planes;
#[cfg(target_arch = "x86_64")]
mod x86;

use fast_image_resize as fir;
use fast_image_resize::images::{TypedCroppedImage, TypedCroppedImageMut, TypedImage, TypedImageRef};

use super::arguments::Size;
use super::geometry::{Filter, Geometry, Stage};
use super::single;
use crate::decode::{Pixels, Planes, Region};
use crate::{Error, ErrorKind, Result};

/// Resamples pictures; keeps its buffers from one to the next, so each thread has its own.
///
/// Once the buffers have grown to the largest picture, the only memory still asked for is the tables of
/// filter weights, some tens of kilobytes a resize. A copy asks for none.
#[derive(Debug, Default)]
pub struct Resampler {
    /// Outputs of all stages but the last: the one being read and the one being written.
    pictures: [Vec<u8>; 2],
    /// Input rows side by side, for strides that are no whole number of pixels.
    packed: Vec<u8>,
    kernels: Kernels,
    planes: planes::PlaneResampler,
}

/// What the filters need besides pixels.
#[derive(Debug, Default)]
struct Kernels {
    resizer: fir::Resizer,
    /// The picture resampled across but not yet down.
    across: Vec<u8>,
    /// Input column of each output column, for the nearest filter.
    columns: Vec<u32>,
}

impl Resampler {
    /// A resampler without buffers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes what `geometry` makes of `pixels` to `out`: `[height, width, channels]`, `u8`, row-major,
    /// contiguous, (height, width) being the geometry's output size.
    ///
    /// The result depends on the pixels in `geometry.source` alone, whatever else `pixels` holds.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`] if `pixels` does not hold the geometry's source, has another number of
    /// channels than 1 or 3, or if `out` has another length; also for a fill in colour around grey pixels.
    pub fn apply(&mut self, pixels: &Pixels<'_>, geometry: &Geometry, out: &mut [u8]) -> Result<()> {
        check(pixels, geometry, out)?;
        let channels = usize::from(pixels.channels);
        let Self { pictures: [read, written], packed, kernels, .. } = self;
        let (mut read, mut written) = (read, written);
        let mut size = None;
        for stage in geometry.earlier() {
            let input = match size {
                None => Input::decoded(pixels, geometry.source, packed)?,
                Some(size) => Input::whole(read, size, channels),
            };
            let (height, width) = stage.output_size();
            let len = height as usize * width as usize * channels;
            if written.len() < len {
                written.resize(len, 0);
            }
            input.run(stage, kernels, &mut written[..len])?;
            std::mem::swap(&mut read, &mut written);
            size = Some(Size { height, width });
        }
        let input = match size {
            None => Input::decoded(pixels, geometry.source, packed)?,
            Some(size) => Input::whole(read, size, channels),
        };
        input.run(geometry.last(), kernels, out)
    }

    /// The same for planes, which must be exactly the geometry's source; `out` is `[height, width, 3]`.
    ///
    /// Where [`Geometry::takes_planes`] says so it takes a third of the time that pixels take.
    ///
    /// # Errors
    ///
    /// As [`apply`](Self::apply).
    pub fn apply_planes(&mut self, planes: &Planes<'_>, geometry: &Geometry, out: &mut [u8]) -> Result<()> {
        if planes.region == geometry.source
            && let Some(single) = geometry.as_single_resample().filter(single::SingleResample::takes_planes)
            && out.len() as u64 == 3 * u64::from(single.x.outputs) * u64::from(single.y.outputs)
        {
            self.planes.run(planes, &single, out);
            return Ok(());
        }
        let mut pixels = Vec::new();
        planes.to_pixels(&mut pixels);
        self.apply(&Pixels::packed(&pixels, planes.region, 3)?, geometry, out)
    }
}

/// Whether `out` is as long as the output, and the fill can be painted with the channels that there are.
fn check(pixels: &Pixels<'_>, geometry: &Geometry, out: &[u8]) -> Result<()> {
    let invalid = |message| Err(Error::new(ErrorKind::InvalidOption, message));
    let (height, width) = geometry.output_size();
    let expected = u64::from(height) * u64::from(width) * u64::from(pixels.channels);
    if !matches!(pixels.channels, 1 | 3) {
        return invalid(format!("pixels of {} channels are not resampled, only of 1 or 3", pixels.channels));
    }
    if out.len() as u64 != expected {
        return invalid(format!("the output of {width}x{height} has {expected} bytes, not {}", out.len()));
    }
    let grey = |[red, green, blue]: [u8; 3]| red == green && green == blue;
    if pixels.channels == 1 && geometry.stages().any(|stage| stage.is_padded() && !grey(stage.fill())) {
        return invalid("a fill of three numbers cannot surround a grey image".into());
    }
    Ok(())
}

/// What a stage reads: `window` of a picture whose rows are `row_pixels` pixels apart.
struct Input<'a> {
    data: &'a [u8],
    channels: usize,
    row_pixels: u32,
    rows: u32,
    window: Region,
}

impl<'a> Input<'a> {
    /// The `source` of decoded pixels; packs them where their rows do not begin at whole pixels.
    fn decoded(pixels: &Pixels<'a>, source: Region, packed: &'a mut Vec<u8>) -> Result<Self> {
        let view = pixels.view(source)?;
        let channels = usize::from(pixels.channels);
        let row_pixels = (pixels.stride / channels) as u32;
        if pixels.stride.is_multiple_of(channels) && pixels.data.len() >= pixels.stride * pixels.height as usize {
            let window = Region { x: source.x - pixels.region.x, y: source.y - pixels.region.y, ..source };
            return Ok(Self { data: pixels.data, channels, row_pixels, rows: pixels.height, window });
        }
        packed.clear();
        view.rows().for_each(|row| packed.extend_from_slice(row));
        let Region { width, height, .. } = source;
        Ok(Self::whole(packed, Size { height, width }, channels))
    }

    /// All of a contiguous picture.
    fn whole(data: &'a [u8], Size { height, width }: Size, channels: usize) -> Self {
        Self { data, channels, row_pixels: width, rows: height, window: Region::full(width, height) }
    }

    /// Does `stage` to it.
    fn run(&self, stage: &Stage, kernels: &mut Kernels, out: &mut [u8]) -> Result<()> {
        let content = stage.content();
        let mut output = Output { row_bytes: stage.output_size().1 as usize * self.channels, data: out, content };
        if stage.is_padded() {
            output.fill(stage.fill(), self.channels);
        }
        if content.width == 0 || content.height == 0 {
            return Ok(());
        }
        match (self.channels, stage.filter()) {
            (1, _) if stage.is_copy() => self.copy::<1>(stage, &mut output),
            (_, _) if stage.is_copy() => self.copy::<3>(stage, &mut output),
            (1, Filter::Nearest) => self.pick::<1>(stage, &mut kernels.columns, &mut output),
            (_, Filter::Nearest) => self.pick::<3>(stage, &mut kernels.columns, &mut output),
            (1, filter) => self.convolve::<1, fir::pixels::U8>(stage, filter, kernels, &mut output)?,
            (_, filter) => self.convolve::<3, fir::pixels::U8x3>(stage, filter, kernels, &mut output)?,
        }
        Ok(())
    }

    /// Copies the content, mirrored as the stage says.
    fn copy<const N: usize>(&self, stage: &Stage, output: &mut Output<'_>) {
        let (mirror_x, mirror_y) = stage.flips();
        let [left, top, ..] = stage.source_box().map(|offset| offset as u32);
        let Region { width, height, .. } = output.content;
        for (number, to) in output.rows::<N>().enumerate() {
            let number = number as u32;
            let from = self.row::<N>(top + if mirror_y { height - 1 - number } else { number });
            let from = &from[left as usize..][..width as usize];
            if mirror_x {
                to.iter_mut().zip(from.iter().rev()).for_each(|(to, from)| *to = *from);
            } else {
                to.copy_from_slice(from);
            }
        }
    }

    /// Copies the nearest pixels, mirrored as the stage says.
    fn pick<const N: usize>(&self, stage: &Stage, columns: &mut Vec<u32>, output: &mut Output<'_>) {
        let (mirror_x, mirror_y) = stage.flips();
        columns.clear();
        columns.extend(stage.x.nearest());
        if mirror_x {
            columns.reverse();
        }
        let gather = |to: &mut [[u8; N]], row: u32| {
            let from = self.row::<N>(row);
            to.iter_mut().zip(&*columns).for_each(|(to, &column)| *to = from[column as usize]);
        };
        if mirror_y {
            // The input's rows come from top to bottom: the output's are written from bottom to top.
            output.rows::<N>().rev().zip(stage.y.nearest()).for_each(|(to, row)| gather(to, row));
        } else {
            output.rows::<N>().zip(stage.y.nearest()).for_each(|(to, row)| gather(to, row));
        }
    }

    /// Resamples with a filter, then mirrors in place while the output is still in cache.
    ///
    /// `P` is the pixel type of `N` channels: naming it keeps the resampler's code for its other types out of the build.
    fn convolve<const N: usize, P: fir::PixelTrait>(
        &self,
        stage: &Stage,
        filter: Filter,
        Kernels { resizer, across, .. }: &mut Kernels,
        output: &mut Output<'_>,
    ) -> Result<()> {
        let [left, top, width, height] = stage.source_box();
        if stage.x.is_scaled() && stage.y.is_scaled() {
            // Across first, as PIL does it: the numbers between the axes are rounded and clipped, so the order
            // shows. It costs no time: the fewer columns make up for the rows that are done twice.
            let rows = self.window.height;
            let size = Size { height: rows, width: output.content.width };
            let row_bytes = size.width as usize * N;
            let len = row_bytes * rows as usize;
            if across.len() < len {
                across.resize(len, 0);
            }
            let content = Region::full(size.width, size.height);
            let mut middle = Output { data: &mut across[..len], row_bytes, content };
            self.filter::<N, P>([left, 0.0, width, f64::from(rows)], filter, resizer, &mut middle)?;
            let middle = Input::whole(&across[..len], size, N);
            middle.filter::<N, P>([0.0, top, f64::from(size.width), height], filter, resizer, output)?;
        } else {
            self.filter::<N, P>([left, top, width, height], filter, resizer, output)?;
        }
        let (mirror_x, mirror_y) = stage.flips();
        if mirror_x {
            output.rows::<N>().for_each(reverse);
        }
        if mirror_y {
            output.mirror_y::<N>();
        }
        Ok(())
    }

    /// Resamples `[left, top, width, height]` of the window to the whole content.
    fn filter<const N: usize, P: fir::PixelTrait>(
        &self,
        [left, top, box_width, box_height]: [f64; 4],
        filter: Filter,
        resizer: &mut fir::Resizer,
        output: &mut Output<'_>,
    ) -> Result<()> {
        let failed = |error: &dyn std::fmt::Display| {
            Error::new(ErrorKind::InvalidOption, format!("the resize of {} was refused: {error}", self.window))
        };
        let algorithm = match filter {
            Filter::Bilinear { antialias: false } => fir::ResizeAlg::Interpolation(fir::FilterType::Bilinear),
            Filter::Bicubic => fir::ResizeAlg::Convolution(fir::FilterType::CatmullRom),
            _ => fir::ResizeAlg::Convolution(fir::FilterType::Bilinear),
        };
        let Region { x, y, width, height } = self.window;
        let (left, box_width) = fit(left, box_width, width);
        let (top, box_height) = fit(top, box_height, height);
        let options =
            fir::ResizeOptions::new().resize_alg(algorithm).use_alpha(false).crop(left, top, box_width, box_height);

        let picture =
            TypedImageRef::<P>::from_buffer(self.row_pixels, self.rows, self.data).map_err(|error| failed(&error))?;
        let window = TypedCroppedImage::from_ref(&picture, x, y, width, height).map_err(|error| failed(&error))?;
        let Region { x, y, width, height } = output.content;
        let out_width = (output.row_bytes / N) as u32;
        let out_height = (output.data.len() / output.row_bytes) as u32;
        let mut canvas =
            TypedImage::<P>::from_buffer(out_width, out_height, output.data).map_err(|error| failed(&error))?;
        let mut content =
            TypedCroppedImageMut::from_ref(&mut canvas, x, y, width, height).map_err(|error| failed(&error))?;
        resizer.resize_typed(&window, &mut content, &options).map_err(|error| failed(&error))
    }

    /// Row `y` of the window.
    fn row<const N: usize>(&self, y: u32) -> &'a [[u8; N]] {
        let start = (self.window.y + y) as usize * self.row_pixels as usize + self.window.x as usize;
        &self.data.as_chunks::<N>().0[start..][..self.window.width as usize]
    }
}

/// A box of which rounding must not put an edge outside the `limit` inputs that there are.
pub(super) fn fit(start: f64, len: f64, limit: u32) -> (f64, f64) {
    let limit = f64::from(limit);
    let start = start.max(0.0);
    let mut len = len;
    while start + len > limit && len > 0.0 {
        len = (limit - start).min(len.next_down());
    }
    (start, len)
}

/// Where a stage writes: a contiguous picture of rows of `row_bytes`, of which `content` comes from the input.
struct Output<'a> {
    data: &'a mut [u8],
    row_bytes: usize,
    content: Region,
}

impl Output<'_> {
    /// The content's rows.
    fn rows<const N: usize>(&mut self) -> impl DoubleEndedIterator<Item = &mut [[u8; N]]> {
        let Region { x, y, width, height } = self.content;
        let rows = self.data.chunks_exact_mut(self.row_bytes).skip(y as usize).take(height as usize);
        rows.map(move |row| &mut row.as_chunks_mut::<N>().0[x as usize..][..width as usize])
    }

    /// Swaps top and bottom of the content.
    fn mirror_y<const N: usize>(&mut self) {
        let mut rows = self.rows::<N>();
        while let (Some(upper), Some(lower)) = (rows.next(), rows.next_back()) {
            upper.swap_with_slice(lower);
        }
    }

    /// Paints everything but the content.
    fn fill(&mut self, fill: [u8; 3], channels: usize) {
        let Region { x, y, width, height } = self.content;
        let (left, right) = (x as usize * channels, (x + width) as usize * channels);
        let (top, bottom) = (y as usize, (y + height) as usize);
        for (number, row) in self.data.chunks_exact_mut(self.row_bytes).enumerate() {
            if (top..bottom).contains(&number) {
                paint(&mut row[..left], fill, channels);
                paint(&mut row[right..], fill, channels);
            } else {
                paint(row, fill, channels);
            }
        }
    }
}

/// Reverses a row, four pixels at a time: a quarter faster than one at a time.
fn reverse<const N: usize>(row: &mut [[u8; N]]) {
    let half = row.len() / 2;
    let (front, rest) = row.split_at_mut(half);
    let back_start = rest.len() - half;
    let (front_blocks, front_rest) = front.as_chunks_mut::<4>();
    let (back_rest, back_blocks) = rest[back_start..].as_rchunks_mut::<4>();
    let turned = |&[a, b, c, d]: &[[u8; N]; 4]| [d, c, b, a];
    for (front, back) in front_blocks.iter_mut().zip(back_blocks.iter_mut().rev()) {
        (*front, *back) = (turned(back), turned(front));
    }
    for (front, back) in front_rest.iter_mut().zip(back_rest.iter_mut().rev()) {
        std::mem::swap(front, back);
    }
}

fn paint(pixels: &mut [u8], fill: [u8; 3], channels: usize) {
    match channels {
        3 => pixels.as_chunks_mut::<3>().0.fill(fill),
        _ => pixels.fill(fill[0]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_any_length_are_reversed() {
        for len in 0..40_u8 {
            let mut row: Vec<[u8; 3]> = (0..len).map(|i| [i, i + 1, i + 2]).collect();
            let expected: Vec<[u8; 3]> = row.iter().rev().copied().collect();
            reverse(&mut row);
            assert_eq!(row, expected);
        }
    }

    #[test]
    fn a_box_never_ends_outside() {
        let (start, len) = fit(0.1, 10.0, 10);
        assert!(start + len <= 10.0 && len > 9.8);
        assert_eq!(fit(-1e-14, 5.0, 10), (0.0, 5.0));
    }
}
