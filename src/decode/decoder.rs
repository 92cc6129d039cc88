//! The decoder that users make: it sends each image to the library that serves it.
//!
//! It holds no pixels but the last image's, and it decides nothing about geometry.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::jpeg::{self, Header};
use super::pixels::room;
use super::repair::Repairs;
#[cfg(feature = "turbo")]
use super::turbo::{Layout, Turbo};
use super::{
    Backend, ColorMode, DecodeOptions, Decoder, ImageFormat, ImageInfo, Jobs, Orientation, Pixels, Region, color, exif,
    other, zune,
};
use crate::{Error, ErrorKind, Result};

/// Scratch that outlives an image; the memory of larger ones is given back.
const SCRATCH_KEPT_BYTES: usize = 64 << 20;

/// Decodes images of every format that this library knows, one at a time, reusing its memory.
///
/// One per thread: it is `Send`, and all methods take `&mut self`.
#[derive(Debug)]
pub struct ImageDecoder {
    options: DecodeOptions,
    #[cfg(feature = "turbo")]
    turbo: Turbo,
    scratch: Scratch,
}

/// Memory that every image uses again.
#[derive(Debug, Default)]
struct Scratch {
    /// The finished pixels.
    pixels: Vec<u8>,
    /// What a step reads while it writes `pixels`; the two change places.
    raw: Vec<u8>,
    /// What must be mended in a JPEG, and the JPEG mended.
    repairs: Repairs,
    repaired: Vec<u8>,
}

/// An image whose header is read: as stored, and as the caller sees it.
struct Opened {
    stored: ImageInfo,
    jpeg: Option<Header>,
    turn: Orientation,
    seen: ImageInfo,
}

/// Where in `Scratch::pixels` the pixels of `region` lie.
struct Placed {
    region: Region,
    channels: u8,
    start: usize,
    stride: usize,
}

impl ImageDecoder {
    /// A decoder with `options`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] for [`Backend::Turbo`] in a build without libjpeg-turbo,
    /// [`ErrorKind::InvalidOption`] for a limit of 0.
    pub fn new(options: DecodeOptions) -> Result<Self> {
        if options.backend == Backend::Turbo && !cfg!(feature = "turbo") {
            return Err(Error::new(ErrorKind::Unsupported, "this build has no libjpeg-turbo")
                .with_hint("build with --features turbo, which needs cmake and nasm, or choose the backend zune"));
        }
        if options.pixels_max == 0 || options.scans_max == 0 {
            return Err(Error::new(
                ErrorKind::InvalidOption,
                format!("pixels_max {} and scans_max {} must be 1 or more", options.pixels_max, options.scans_max),
            ));
        }
        Ok(Self {
            options,
            #[cfg(feature = "turbo")]
            turbo: Turbo::default(),
            scratch: Scratch::default(),
        })
    }

    /// What serves JPEG here: `"turbo"` or `"zune"`.
    #[must_use]
    pub fn jpeg_backend(&self) -> &'static str {
        if cfg!(feature = "turbo") && self.options.backend != Backend::Zune { "turbo" } else { "zune" }
    }

    /// Reads the header of an image; decodes no pixel.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Decode`] if the bytes are no image or its header is damaged, [`ErrorKind::Truncated`] if the
    /// header is cut, [`ErrorKind::Limit`] if it has more pixels or scans than the options allow,
    /// [`ErrorKind::Unsupported`] for a picture of a format that nothing here reads.
    pub fn info(&mut self, bytes: &[u8]) -> Result<ImageInfo> {
        self.open(bytes).map(|opened| opened.seen)
    }

    /// Decodes `region` of an image, or all of it.
    ///
    /// The pixels are exactly those of a full decode, and stay good until the next call.
    ///
    /// # Errors
    ///
    /// Those of [`info`](Self::info); [`ErrorKind::InvalidOption`] for a region outside the image;
    /// [`ErrorKind::Truncated`] for an image that ends early, wherever the region lies; [`ErrorKind::Decode`] for
    /// a damaged one (damage below the region may stay unseen); [`ErrorKind::Unsupported`] for a coding that
    /// nothing here decodes.
    pub fn decode(&mut self, bytes: &[u8], region: Option<Region>) -> Result<Pixels<'_>> {
        let opened = self.open(bytes)?;
        let region = region.unwrap_or(Region::from(&opened.seen));
        self.decode_opened(bytes, &opened, region)
    }

    fn open(&mut self, bytes: &[u8]) -> Result<Opened> {
        self.guarded(|decoder| open(bytes, &decoder.options, &mut decoder.scratch.repairs))
    }

    fn decode_opened(&mut self, bytes: &[u8], opened: &Opened, region: Region) -> Result<Pixels<'_>> {
        let placed = self.guarded(|decoder| decoder.place(bytes, opened, region))?;
        let data = self.scratch.pixels.get(placed.start..).unwrap_or(&[]);
        Pixels::strided(data, placed.region, placed.channels, placed.stride)
    }

    /// The outer edge of the decoders: a panic in one of them becomes an error.
    ///
    /// They should not panic, and fuzzing looks for it; but they parse hostile bytes, and one picture must not end a
    /// training run of days. What the panic left half done is thrown away. Needs `panic = "unwind"`.
    fn guarded<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if let Ok(result) = catch_unwind(AssertUnwindSafe(|| work(self))) {
            return result;
        }
        self.scratch = Scratch::default();
        #[cfg(feature = "turbo")]
        {
            self.turbo = Turbo::default();
        }
        Err(Error::new(ErrorKind::Decode, "the decoder failed inside on this image: please report it"))
    }

    /// Decodes, brings to the wanted colours, turns upright.
    fn place(&mut self, bytes: &[u8], opened: &Opened, region: Region) -> Result<Placed> {
        self.scratch.trim();
        let stored = &opened.stored;
        let upright = region.inside(opened.seen.width, opened.seen.height)?;
        let region = opened.turn.stored_region(upright, (stored.width, stored.height));
        let decoded = match &opened.jpeg {
            Some(header) => self.jpeg(bytes, header, region)?,
            None => {
                let Scratch { raw, pixels, .. } = &mut self.scratch;
                other::decode(bytes, stored, &self.options, raw, pixels)?;
                (Region::from(stored), self.options.mode.channels())
            }
        };
        self.scratch.finish(decoded, region, upright, opened.turn, self.options.mode)
    }

    /// Decodes `region` or more of a JPEG into the scratch; what of the image that is, and its channels.
    fn jpeg(&mut self, bytes: &[u8], header: &Header, region: Region) -> Result<(Region, u8)> {
        jpeg::check(header, self.options.truncated)?;
        let Scratch { pixels, raw, repairs, repaired } = &mut self.scratch;
        let bytes = if repairs.is_empty() {
            bytes
        } else {
            repairs.apply(bytes, repaired);
            repaired.as_slice()
        };
        #[cfg(feature = "turbo")]
        if self.options.backend != Backend::Zune || zune::check(header).is_err() {
            let layout = match (header.components, self.options.mode) {
                (1, ColorMode::Grey) => Layout::Grey,
                (4, _) => Layout::Cmyk,
                _ => Layout::Rgb,
            };
            let window = self.turbo.decode(bytes, header, region, layout, &self.options, pixels)?;
            return Ok((window, layout.channels()));
        }
        let _ = region; // zune-jpeg cannot crop
        zune::decode(bytes, header, &self.options, raw, pixels)?;
        Ok((Region::full(header.width, header.height), 3))
    }
}

impl Decoder for ImageDecoder {
    fn run(&mut self, jobs: &mut dyn Jobs) {
        while let Some((ticket, bytes)) = jobs.next() {
            let asked = self.open(&bytes).and_then(|opened| Ok((jobs.region(ticket, &opened.seen)?, opened)));
            let result = asked.and_then(|(region, opened)| self.decode_opened(&bytes, &opened, region));
            jobs.done(ticket, result);
        }
    }
}

/// Reads the header and holds it against the limits.
fn open(bytes: &[u8], options: &DecodeOptions, repairs: &mut Repairs) -> Result<Opened> {
    let format = ImageFormat::of(bytes)?;
    let (stored, jpeg) = match format {
        ImageFormat::Jpeg => {
            let header = jpeg::walk(bytes, repairs)?;
            let &Header { width, height, components, bits, .. } = &header;
            let exif = header.exif.clone().and_then(|range| bytes.get(range));
            let orientation = exif.map(exif::orientation).unwrap_or_default();
            let jpeg = Some(header.jpeg.clone());
            (ImageInfo { format, width, height, components, bits, orientation, jpeg }, Some(header))
        }
        _ => (other::info(bytes, format, options)?, None),
    };
    let pixels = u64::from(stored.width) * u64::from(stored.height);
    if pixels == 0 {
        return Err(Error::new(ErrorKind::Decode, format!("the {} has no pixels", format.as_str())));
    }
    if pixels > options.pixels_max {
        let (width, height) = (stored.width, stored.height);
        return Err(Error::new(
            ErrorKind::Limit,
            format!("the image of {width}x{height} is over the limit of {} pixels", options.pixels_max),
        )
        .with_hint("make the image smaller, or leave it out; in Rust, DecodeOptions::pixels_max is the limit"));
    }
    if let Some(jpeg) = &stored.jpeg
        && jpeg.scans > options.scans_max
    {
        return Err(Error::new(
            ErrorKind::Limit,
            format!("the JPEG has {} scans, over the limit of {}", jpeg.scans, options.scans_max),
        )
        .with_hint("raise scans_max if the image is to be trusted"));
    }
    let turn = if options.exif { stored.orientation } else { Orientation::Upright };
    let (width, height) = turn.upright_size((stored.width, stored.height));
    let seen = ImageInfo { width, height, ..stored.clone() };
    Ok(Opened { stored, jpeg, turn, seen })
}

impl Scratch {
    /// Gives back the memory of an unusually large image.
    fn trim(&mut self) {
        for buffer in [&mut self.pixels, &mut self.raw, &mut self.repaired] {
            if buffer.capacity() > SCRATCH_KEPT_BYTES {
                *buffer = Vec::new();
            }
        }
    }

    /// From the decoded `window` to `region` of it, in the wanted colours and upright.
    fn finish(
        &mut self,
        (window, channels): (Region, u8),
        region: Region,
        upright: Region,
        turn: Orientation,
        mode: ColorMode,
    ) -> Result<Placed> {
        let stride = window.width as usize * usize::from(channels);
        let left = (region.x - window.x) as usize * usize::from(channels);
        let start = (region.y - window.y) as usize * stride + left;
        let mut placed = Placed { region, channels, start, stride };
        if placed.channels == 4 {
            placed = self.step(placed, 3, |pixels, packed| by_row(pixels, packed, color::rgb_of_inverted_ink))?;
        }
        if placed.channels != mode.channels() {
            placed = self.step(placed, 1, |pixels, packed| by_row(pixels, packed, color::luma))?;
        }
        if turn != Orientation::Upright {
            placed = self.step(placed, mode.channels(), |pixels, packed| turn.turn(pixels, packed))?;
            placed.stride = upright.width as usize * usize::from(mode.channels());
            placed.region = upright;
        }
        Ok(placed)
    }

    /// Reads the pixels and writes them anew, tightly packed; the buffers change places.
    fn step(&mut self, placed: Placed, channels: u8, work: impl FnOnce(&Pixels<'_>, &mut [u8])) -> Result<Placed> {
        let Placed { region, .. } = placed;
        let data = self.pixels.get(placed.start..).unwrap_or(&[]);
        let pixels = Pixels::strided(data, region, placed.channels, placed.stride)?;
        let stride = region.width as usize * usize::from(channels);
        let size = stride * region.height as usize;
        work(&pixels, room(&mut self.raw, size));
        std::mem::swap(&mut self.raw, &mut self.pixels);
        Ok(Placed { region, channels, start: 0, stride })
    }
}

/// Applies `convert` to each row.
fn by_row(pixels: &Pixels<'_>, packed: &mut [u8], convert: fn(&[u8], &mut [u8])) {
    let row = packed.len() / (pixels.height as usize).max(1);
    pixels.rows().zip(packed.chunks_exact_mut(row.max(1))).for_each(|(stored, packed)| convert(stored, packed));
}
