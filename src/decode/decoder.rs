//! The decoder that users make: it sends each image to the library that serves it.
//!
//! It holds no pixels but the last image's, and it decides nothing about geometry.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;

use super::baseline::{Baseline, Fallbacks, Form, LANES, Refusal};
use super::jpeg::{self, Header};
use super::pixels::room;
use super::repair::Repairs;
#[cfg(feature = "turbo")]
use super::turbo::{Layout, Turbo};
use super::{
    Backend, ColorMode, DecodeOptions, Decoder, ImageFormat, ImageInfo, Jobs, Orientation, Pixels, Planes, Region,
    Ticket, color, other, zune,
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
    baseline: Baseline,
    #[cfg(feature = "turbo")]
    turbo: Turbo,
    scratch: Scratch,
    fallbacks: Fallbacks,
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

/// The part of an image that is wanted, as the caller sees it and as it is stored; inside the image.
struct Asked {
    upright: Region,
    stored: Region,
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
            baseline: Baseline::default(),
            #[cfg(feature = "turbo")]
            turbo: Turbo::default(),
            scratch: Scratch::default(),
            fallbacks: Fallbacks::default(),
        })
    }

    /// What serves plain JPEG here: `"baseline"`, `"turbo"` or `"zune"`.
    #[must_use]
    pub fn jpeg_backend(&self) -> &'static str {
        match self.options.backend {
            Backend::Auto | Backend::Baseline => "baseline",
            Backend::Turbo => "turbo",
            Backend::Zune => "zune",
        }
    }

    /// How many images the baseline decoder has left to others so far, by reason.
    #[must_use]
    pub fn fallbacks(&self) -> Fallbacks {
        self.fallbacks
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
        let placed = self.guarded(|decoder| {
            decoder.scratch.trim();
            let asked = decoder.ask(opened, region)?;
            match decoder.begin(0, bytes, opened, &asked, false) {
                Some(Ok(())) => match decoder.baseline.advance([true, false]) {
                    Some((lane, Ok(()))) => return decoder.collect(lane, opened, &asked),
                    Some((_, Err(refusal))) => decoder.fallbacks.count(refusal),
                    None => {}
                },
                Some(Err(refusal)) => decoder.fallbacks.count(refusal),
                None => {}
            }
            decoder.place(bytes, opened, &asked)
        })?;
        self.pixels(placed)
    }

    fn pixels(&self, placed: Placed) -> Result<Pixels<'_>> {
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
        self.baseline = Baseline::default();
        #[cfg(feature = "turbo")]
        {
            self.turbo = Turbo::default();
        }
        Err(Error::new(ErrorKind::Decode, "the decoder failed inside on this image: please report it"))
    }

    /// What of an image is wanted, if it has it and if it may be decoded.
    fn ask(&self, opened: &Opened, upright: Region) -> Result<Asked> {
        let upright = upright.inside(opened.seen.width, opened.seen.height)?;
        if let Some(header) = &opened.jpeg {
            jpeg::check(header, self.options.truncated)?;
        }
        let stored = opened.turn.stored_region(upright, (opened.stored.width, opened.stored.height));
        Ok(Asked { upright, stored })
    }

    /// Begins the image that was opened last in a lane of the baseline decoder; `None` if it is not asked to.
    fn begin(
        &mut self,
        lane: usize,
        bytes: &[u8],
        opened: &Opened,
        asked: &Asked,
        takes_planes: bool,
    ) -> Option<Result<(), Refusal>> {
        let header = opened.jpeg.as_ref()?;
        if !matches!(self.options.backend, Backend::Auto | Backend::Baseline) {
            return None;
        }
        if !header.jpeg.complete {
            return Some(Err(Refusal::Cut));
        }
        let form = match (header.components, self.options.mode) {
            (1, ColorMode::Grey) => Form::Grey,
            (_, ColorMode::Rgb) if takes_planes && opened.turn == Orientation::Upright => Form::Planes,
            _ => Form::Pixels,
        };
        let bytes = self.scratch.mended(bytes);
        Some(self.baseline.begin(lane, bytes, asked.stored, form))
    }

    /// Takes the pixels out of a lane that is done, brings them to the wanted colours and turns them upright.
    fn collect(&mut self, lane: usize, opened: &Opened, asked: &Asked) -> Result<Placed> {
        let form = self.baseline.swap_output(lane, &mut self.scratch.pixels);
        let channels = if form == Form::Grey { 1 } else { 3 };
        self.scratch.finish((asked.stored, channels), asked, opened.turn, self.options.mode)
    }

    /// Decodes with another decoder than the baseline one, brings to the wanted colours, turns upright.
    fn place(&mut self, bytes: &[u8], opened: &Opened, asked: &Asked) -> Result<Placed> {
        let decoded = match &opened.jpeg {
            Some(header) => self.jpeg(bytes, header, asked.stored)?,
            None => {
                let Scratch { raw, pixels, .. } = &mut self.scratch;
                other::decode(bytes, &opened.stored, &self.options, raw, pixels)?;
                (Region::from(&opened.stored), self.options.mode.channels())
            }
        };
        self.scratch.finish(decoded, asked, opened.turn, self.options.mode)
    }

    /// Decodes `region` or more of a JPEG into the scratch; what of the image that is, and its channels.
    fn jpeg(&mut self, bytes: &[u8], header: &Header, region: Region) -> Result<(Region, u8)> {
        let Scratch { pixels, raw, repairs, repaired } = &mut self.scratch;
        let bytes = repairs.mended(bytes, repaired);
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

/// An image in a lane of the baseline decoder.
struct Held {
    ticket: Ticket,
    bytes: Bytes,
    opened: Opened,
    asked: Asked,
}

impl Decoder for ImageDecoder {
    fn run(&mut self, jobs: &mut dyn Jobs) {
        let mut held: [Option<Held>; LANES] = Default::default();
        loop {
            while let Some(lane) = held.iter().position(Option::is_none) {
                let Some((ticket, bytes)) = jobs.next() else { break };
                held[lane] = self.take(lane, ticket, bytes, jobs);
            }
            let taken = held.each_ref().map(Option::is_some);
            match self.guarded(|decoder| Ok(decoder.baseline.advance(taken))) {
                Ok(None) => return,
                Ok(Some((lane, outcome))) => {
                    if let Some(held) = held[lane].take() {
                        self.give_back(lane, held, outcome, jobs);
                    }
                }
                // What all lanes held is lost.
                Err(_) => {
                    for held in held.iter_mut().filter_map(Option::take) {
                        self.fall_back(held, Refusal::Data, jobs);
                    }
                }
            }
        }
    }
}

impl ImageDecoder {
    /// Begins a job in a free lane; one that the baseline decoder does not take is done at once.
    fn take(&mut self, lane: usize, ticket: Ticket, bytes: Bytes, jobs: &mut dyn Jobs) -> Option<Held> {
        let opened = self.open(&bytes).and_then(|opened| Ok((jobs.region(ticket, &opened.seen)?, opened)));
        let asked = opened.and_then(|(region, opened)| Ok((self.ask(&opened, region)?, opened)));
        let (asked, opened) = match asked {
            Ok(asked) => asked,
            Err(error) => {
                jobs.done(ticket, Err(error));
                return None;
            }
        };
        let takes_planes = jobs.takes_planes(ticket);
        let begun = self.guarded(|decoder| Ok(decoder.begin(lane, &bytes, &opened, &asked, takes_planes)));
        let held = Held { ticket, bytes, opened, asked };
        match begun {
            Ok(Some(Ok(()))) => return Some(held),
            Ok(Some(Err(refusal))) => self.fall_back(held, refusal, jobs),
            Ok(None) | Err(_) => self.decode_otherwise(held, jobs),
        }
        None
    }

    /// Ends a job whose lane is done.
    fn give_back(&mut self, lane: usize, held: Held, outcome: Result<(), Refusal>, jobs: &mut dyn Jobs) {
        if let Err(refusal) = outcome {
            return self.fall_back(held, refusal, jobs);
        }
        if self.baseline.form(lane) == Form::Planes {
            let stride = self.baseline.stride(lane);
            match Planes::new(self.baseline.data(lane), held.asked.stored, stride) {
                Ok(planes) => jobs.done_planes(held.ticket, planes),
                Err(error) => jobs.done(held.ticket, Err(error)),
            }
            return;
        }
        let placed = self.guarded(|decoder| {
            decoder.scratch.trim();
            decoder.collect(lane, &held.opened, &held.asked)
        });
        jobs.done(held.ticket, placed.and_then(|placed| self.pixels(placed)));
    }

    /// Ends a job that the baseline decoder has refused.
    fn fall_back(&mut self, held: Held, refusal: Refusal, jobs: &mut dyn Jobs) {
        self.fallbacks.count(refusal);
        jobs.fell_back(held.ticket, refusal);
        self.decode_otherwise(held, jobs);
    }

    /// Ends a job with another decoder.
    fn decode_otherwise(&mut self, held: Held, jobs: &mut dyn Jobs) {
        let Held { ticket, bytes, asked, .. } = held;
        // Opened again, because what must be mended is known of the last image only.
        let placed = self.open(&bytes).and_then(|opened| {
            self.guarded(|decoder| {
                decoder.scratch.trim();
                decoder.place(&bytes, &opened, &asked)
            })
        });
        jobs.done(ticket, placed.and_then(|placed| self.pixels(placed)));
    }
}

/// Reads the header and holds it against the limits.
fn open(bytes: &[u8], options: &DecodeOptions, repairs: &mut Repairs) -> Result<Opened> {
    let format = ImageFormat::of(bytes)?;
    let (stored, jpeg) = match format {
        ImageFormat::Jpeg => {
            let header = jpeg::walk(bytes, repairs)?;
            (header.info(bytes), Some(header))
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

    /// The JPEG that was opened last, mended where it must be.
    fn mended<'a>(&'a mut self, bytes: &'a [u8]) -> &'a [u8] {
        self.repairs.mended(bytes, &mut self.repaired)
    }

    /// From the decoded `window` to the part of it that was asked for, in the wanted colours and upright.
    fn finish(
        &mut self,
        (window, channels): (Region, u8),
        &Asked { upright, stored: region }: &Asked,
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
