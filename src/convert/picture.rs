//! What is done to pictures on their way into shards: made smaller, turned upright, encoded anew, given restart markers, freed
//! of metadata. Whatever can be done without loss is; without an option that asks for it, no byte changes.
//!
//! Nothing is dropped in silence: what a new file could not hold (transparency, more than 8 bits, an orientation) is an error
//! that names the option which allows it.

use image::ImageEncoder;
use image::codecs::png::PngEncoder;
use image::codecs::webp::WebPEncoder;
use serde::{Deserialize, Serialize};

use super::allowance::Memory;
use super::extension::is_picture_field;
use super::sample::{Field, Fields};
use crate::decode::{ColorMode, DecodeOptions, ImageDecoder, ImageFormat, ImageInfo, JpegProcess, Orientation};
use crate::encode::{
    JpegOptions, PixelKind, Rewrite, Turn, add_profile, carry_exif, encode_jpeg, has_several, metadata_in, pixels_of,
    profile_of, rewrite_jpeg, set_upright, strip_metadata,
};
use crate::error::{Error, ErrorKind, Result};
use crate::transform::{Compose, Interpolation, Resampler, ResizeSize, SampleRng, Size, Transform};

/// What is done to pictures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PictureOptions {
    /// Makes pictures whose side is longer smaller, to this many pixels; none is ever made larger.
    pub resize: Option<u32>,
    /// Which side that is; the longer one by default.
    pub resize_by: ResizeBy,
    /// The quality of JPEG files that are encoded anew, 1 to 100; 90 by default.
    pub quality: u8,
    /// The format that pictures of other formats become; by default each keeps its own.
    pub format: PictureFormat,
    /// A restart marker before every so many rows of MCUs in baseline JPEG files, without loss; none by default.
    pub restart_rows: Option<u16>,
    /// Takes EXIF, comments, colour profiles and what stands behind the picture out.
    pub strip_metadata: bool,
    /// Turns pictures upright as their EXIF says: JPEG files without loss where their sides are whole MCUs.
    pub apply_orientation: bool,
    /// Extensions of the fields that all this is done to, in lower case. None, the default, means the one picture whose
    /// extension is its format alone: `jpg`, but not `seg.png`, which may be a mask.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
}

/// Which side of a picture is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ResizeBy {
    /// The longer one: both sides are at most as long as asked for.
    #[default]
    Longer,
    /// The shorter one, as for training crops.
    Shorter,
}

/// A format that pictures become.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PictureFormat {
    /// Each keeps its own; JPEG, PNG and WebP can be encoded anew, WebP without loss only.
    #[default]
    Keep,
    /// JPEG.
    Jpg,
    /// WebP without loss.
    WebP,
}

/// What was done to pictures, in numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PictureTally {
    /// Pictures that are other bytes than in the source.
    pub changed: u64,
    /// Of these, those whose pixels were encoded anew.
    pub encoded: u64,
    /// Pictures that were turned upright without loss.
    pub turned_lossless: u64,
    /// JPEG files that got restart markers.
    pub marked: u64,
    /// JPEG files that could not get any, such as progressive ones: they stay as they are.
    pub unmarked: u64,
    /// Pictures encoded anew whose new file lacks metadata of the old one, though they were not to be taken out: comments,
    /// EXIF data in another format than JPEG, a profile of other colours.
    #[serde(default)]
    pub bared: u64,
    /// Pictures in other fields than those that are changed.
    #[serde(default)]
    pub left_alone: u64,
    /// Bytes of all pictures in the source.
    pub bytes_before: u64,
    /// Bytes of all pictures in the shards.
    pub bytes_after: u64,
}

impl Default for PictureOptions {
    fn default() -> Self {
        Self {
            resize: None,
            resize_by: ResizeBy::default(),
            quality: 90,
            format: PictureFormat::default(),
            restart_rows: None,
            strip_metadata: false,
            apply_orientation: false,
            fields: Vec::new(),
        }
    }
}

impl PictureOptions {
    pub(super) fn check(&self) -> Result<()> {
        let invalid = |message: String| Err(Error::new(ErrorKind::InvalidOption, message));
        match *self {
            Self { resize: Some(0), .. } => invalid("a picture cannot be resized to 0 pixels".into()),
            Self { restart_rows: Some(0), .. } => {
                invalid("restart markers stand before every 1 row of MCUs or more, not 0".into())
            }
            Self { quality, .. } if !(1..=100).contains(&quality) => {
                invalid(format!("quality {quality} is not in 1 to 100"))
            }
            _ => Ok(()),
        }
    }
}

impl PictureOptions {
    /// Whether anything is to be done.
    #[must_use]
    pub fn change_pictures(&self) -> bool {
        *self != Self { fields: self.fields.clone(), ..Self::default() }
    }

    /// Whether it is to be done to this field.
    fn concern(&self, ext: &str) -> bool {
        match self.fields.as_slice() {
            [] => !ext.contains('.'),
            fields => fields.iter().any(|field| field == ext),
        }
    }
}

impl PictureTally {
    pub(super) fn add(&mut self, other: &Self) {
        let Self { changed, encoded, turned_lossless, marked, unmarked, bared, left_alone, bytes_before, bytes_after } =
            other;
        self.changed += changed;
        self.encoded += encoded;
        self.turned_lossless += turned_lossless;
        self.marked += marked;
        self.unmarked += unmarked;
        self.bared += bared;
        self.left_alone += left_alone;
        self.bytes_before += bytes_before;
        self.bytes_after += bytes_after;
    }
}

/// Does to pictures what is asked for; keeps its memory from one to the next.
#[derive(Default)]
pub(super) struct Painter {
    /// Decoders for colour and grey, upright and as stored.
    decoders: [Option<ImageDecoder>; 4],
    resampler: Resampler,
    resized: Vec<u8>,
}

impl Painter {
    /// Changes the pictures among `fields` as `options` ask.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for what this build cannot do or a new file could not hold; those of decoding.
    pub(super) fn paint(
        &mut self,
        fields: &mut Fields,
        options: &PictureOptions,
        memory: &Memory,
    ) -> Result<PictureTally> {
        let mut tally = PictureTally::default();
        if !options.change_pictures() {
            return Ok(tally);
        }
        if options.fields.is_empty() {
            refuse_choice(fields)?;
        }
        for field in fields.iter_mut().filter(|field| is_picture_field(&field.ext)) {
            if !options.concern(&field.ext) {
                tally.left_alone += 1;
                continue;
            }
            let ext = field.ext.clone();
            self.paint_one(field, options, memory, &mut tally).map_err(|error| error.in_field(ext))?;
        }
        Ok(tally)
    }

    /// Changes one picture, with memory that it takes before and gives back after.
    fn paint_one(
        &mut self,
        field: &mut Field,
        options: &PictureOptions,
        memory: &Memory,
        tally: &mut PictureTally,
    ) -> Result<()> {
        let info = self.decoder(ColorMode::Rgb, false)?.info(&field.bytes)?;
        let bytes = work_bytes(&info, options);
        if bytes <= memory.hand_picture_bytes {
            return self.change(field, &info, options, tally);
        }
        let _taken = memory.pictures.take(bytes);
        let changed = self.change(field, &info, options, tally);
        // Buffers of that size are not kept beyond what was taken for them.
        *self = Self::default();
        changed
    }

    fn change(
        &mut self,
        field: &mut Field,
        info: &ImageInfo,
        options: &PictureOptions,
        tally: &mut PictureTally,
    ) -> Result<()> {
        tally.bytes_before += field.bytes.len() as u64;
        let must_turn = options.apply_orientation && info.orientation != Orientation::Upright;
        let upright = if must_turn {
            info.orientation.upright_size((info.width, info.height))
        } else {
            (info.width, info.height)
        };
        let smaller = options.resize.and_then(|max| smaller(upright, max, options.resize_by));
        let target = match options.format {
            PictureFormat::Keep => info.format,
            PictureFormat::Jpg => ImageFormat::Jpeg,
            PictureFormat::WebP => ImageFormat::WebP,
        };
        let mut new = None;
        let must_encode = smaller.is_some() || target != info.format;
        if must_turn && !must_encode && info.format == ImageFormat::Jpeg {
            let rewrite = Rewrite { turn: turn_of(info.orientation), restart_rows: None };
            match rewrite_jpeg(&field.bytes, &rewrite) {
                Ok(turned) => {
                    new = Some(turned);
                    tally.turned_lossless += 1;
                }
                Err(error) if error.kind() == ErrorKind::Unsupported => {}
                Err(error) => return Err(error),
            }
        }
        if must_encode || must_turn && new.is_none() {
            let made = self.encode(&field.bytes, info, smaller, target, must_turn, options)?;
            let is_bared = !options.strip_metadata && !metadata_in(&field.bytes).is_in(metadata_in(&made));
            tally.bared += u64::from(is_bared);
            tally.encoded += 1;
            new = Some(made);
        }
        if must_turn && let Some(turned) = &mut new {
            set_upright(turned);
        }
        if options.strip_metadata {
            if info.orientation != Orientation::Upright && !options.apply_orientation {
                return Err(loses(
                    "an EXIF orientation, which would go with the metadata",
                    "--apply-orientation turns such pictures",
                ));
            }
            if let Some(stripped) = strip_metadata(new.as_deref().unwrap_or(&field.bytes))? {
                new = Some(stripped);
            }
        }
        if options.restart_rows.is_some() && target == ImageFormat::Jpeg {
            let rewrite = Rewrite { turn: Turn::default(), restart_rows: options.restart_rows };
            match rewrite_jpeg(new.as_deref().unwrap_or(&field.bytes), &rewrite) {
                Ok(marked) => {
                    new = Some(marked);
                    tally.marked += 1;
                }
                Err(error) if error.kind() == ErrorKind::Unsupported => tally.unmarked += 1,
                Err(error) => return Err(error),
            }
        }
        if let Some(new) = new {
            tally.changed += u64::from(new != field.bytes);
            field.bytes = new;
            if target != info.format {
                field.ext = renamed(&field.ext, target);
            }
        }
        tally.bytes_after += field.bytes.len() as u64;
        Ok(())
    }

    /// Decodes a picture, makes it smaller, and encodes it.
    fn encode(
        &mut self,
        bytes: &[u8],
        info: &ImageInfo,
        smaller: Option<(u32, u32)>,
        target: ImageFormat,
        must_turn: bool,
        options: &PictureOptions,
    ) -> Result<Vec<u8>> {
        let is_carried = info.format == ImageFormat::Jpeg && target == ImageFormat::Jpeg;
        refuse_losses(info, is_carried && !options.strip_metadata || must_turn, options)?;
        if has_several(bytes) {
            let message = "the file holds several pictures, of which one would be left";
            return Err(Error::new(ErrorKind::Unsupported, message)
                .with_hint("leave animations out with --max-errors, or make pictures of their frames first"));
        }
        let mode = if info.components <= 2 { ColorMode::Grey } else { ColorMode::Rgb };
        let kind = if mode == ColorMode::Grey { PixelKind::Grey } else { PixelKind::Rgb };
        let Self { decoders, resampler, resized } = self;
        let pixels = decoder_of(decoders, mode, must_turn)?.decode(bytes, None)?;
        let (width, height) = smaller.unwrap_or((pixels.width, pixels.height));
        let packed;
        let data: &[u8] = if smaller.is_some() {
            let resize = Transform::Resize {
                size: ResizeSize::Exact(Size { height, width }),
                interpolation: Interpolation::Bicubic,
                max_size: None,
                antialias: Some(true),
            };
            let geometry =
                Compose::new(vec![resize])?.geometry(pixels.width, pixels.height, &mut SampleRng::new(0, 0, 0))?;
            resized.resize(width as usize * height as usize * kind.channels(), 0);
            resampler.apply(&pixels, &geometry, resized)?;
            resized
        } else {
            packed = pixels.to_vec();
            &packed
        };
        // A profile for other colours, such as CMYK, would be wrong for the pixels.
        let profile = if options.strip_metadata { None } else { profile_of(bytes) };
        let profile = profile.filter(|profile| pixels_of(profile) == Some(kind));
        match target {
            ImageFormat::Jpeg => {
                let jpeg = JpegOptions { quality: options.quality, ..JpegOptions::default() };
                let mut made = encode_jpeg(data, width, height, kind, &jpeg)?;
                if let Some(profile) = profile {
                    made = add_profile(&made, &profile);
                }
                if is_carried && !options.strip_metadata {
                    made = carry_exif(bytes, &made)?;
                }
                Ok(made)
            }
            ImageFormat::Png => {
                let mut file = Vec::new();
                write_by(PngEncoder::new(&mut file), data, (width, height), kind, profile)?;
                Ok(file)
            }
            ImageFormat::WebP => {
                let mut file = Vec::new();
                write_by(WebPEncoder::new_lossless(&mut file), data, (width, height), kind, profile)?;
                Ok(file)
            }
            other => {
                let message = format!("this build cannot encode {}", other.as_str());
                Err(Error::new(ErrorKind::Unsupported, message).with_hint("choose --format jpg or --format webp"))
            }
        }
    }

    fn decoder(&mut self, mode: ColorMode, exif: bool) -> Result<&mut ImageDecoder> {
        decoder_of(&mut self.decoders, mode, exif)
    }
}

fn decoder_of(decoders: &mut [Option<ImageDecoder>; 4], mode: ColorMode, exif: bool) -> Result<&mut ImageDecoder> {
    let place = &mut decoders[usize::from(mode == ColorMode::Grey) * 2 + usize::from(exif)];
    Ok(match place {
        Some(decoder) => decoder,
        None => place.insert(ImageDecoder::new(DecodeOptions { mode, exif, ..DecodeOptions::default() })?),
    })
}

/// About how much memory it takes to decode a picture, beside its file: what the decoder keeps, and the pixels.
pub(super) fn decoded_bytes(info: &ImageInfo) -> u64 {
    let decoder = match &info.jpeg {
        Some(jpeg) if jpeg.process == JpegProcess::Progressive => COEFFICIENTS,
        Some(_) => 0,
        None => u64::from(info.components) * u64::from(info.bits.div_ceil(8)),
    };
    u64::from(info.width) * u64::from(info.height) * (decoder + PIXEL)
}

/// The same for changing it: copies of the pixels that are turned or packed, or the coefficients of a file that is rewritten
/// without loss.
fn work_bytes(info: &ImageInfo, options: &PictureOptions) -> u64 {
    let size = (info.width, info.height);
    let pixels = u64::from(info.width) * u64::from(info.height);
    let is_turned = options.apply_orientation && info.orientation != Orientation::Upright;
    // Which side is which does not matter here.
    let is_smaller = options.resize.is_some_and(|max| smaller(size, max, options.resize_by).is_some());
    let is_encoded = is_smaller || options.format != PictureFormat::Keep;
    let copies = u64::from(is_turned) + u64::from(!is_smaller);
    let encoded = if is_encoded || is_turned { decoded_bytes(info) + copies * PIXEL * pixels } else { 0 };
    let is_rewritten = options.restart_rows.is_some() && !is_smaller || is_turned;
    encoded.max(if is_rewritten { COEFFICIENTS * pixels } else { 0 })
}

/// Bytes of a pixel, and of its coefficients.
const PIXEL: u64 = 3;
const COEFFICIENTS: u64 = 6;

/// Writes pixels by an encoder of the image crate.
fn write_by(
    mut encoder: impl ImageEncoder,
    data: &[u8],
    (width, height): (u32, u32),
    kind: PixelKind,
    profile: Option<Vec<u8>>,
) -> Result<()> {
    let failed = |error: image::ImageError| {
        Error::new(ErrorKind::Unsupported, "the picture cannot be encoded").with_source(error)
    };
    if let Some(profile) = profile {
        encoder.set_icc_profile(profile).map_err(|error| failed(image::ImageError::Unsupported(error)))?;
    }
    let color = match kind {
        PixelKind::Rgb => image::ExtendedColorType::Rgb8,
        PixelKind::Grey => image::ExtendedColorType::L8,
    };
    encoder.write_image(data, width, height, color).map_err(failed)
}

/// Refuses to choose between pictures: of a `jpg` and a `png` either may be a mask.
fn refuse_choice(fields: &Fields) -> Result<()> {
    let plain = fields.iter().map(|field| field.ext.as_str()).filter(|ext| !ext.contains('.') && is_picture_field(ext));
    let plain: Vec<&str> = plain.collect();
    if plain.len() < 2 {
        return Ok(());
    }
    let message = format!("the sample has several pictures: {}", plain.join(", "));
    Err(Error::new(ErrorKind::Unsupported, message)
        .with_hint(format!("--fields names those that are changed, such as --fields {}", plain[0])))
}

/// Refuses to encode what the new file would lack without a word.
fn refuse_losses(info: &ImageInfo, keeps_orientation: bool, options: &PictureOptions) -> Result<()> {
    let is_asked = options.format == PictureFormat::Jpg;
    if info.format != ImageFormat::Jpeg && matches!(info.components, 2 | 4) && !is_asked {
        return Err(loses("an alpha channel, which would be lost", "--format jpg drops it"));
    }
    if info.bits > 8 && !is_asked {
        return Err(loses("more than 8 bits a channel, which would be lost", "--format jpg drops them"));
    }
    if info.orientation != Orientation::Upright && !keeps_orientation {
        return Err(loses("an EXIF orientation, which would be lost", "--apply-orientation turns such pictures"));
    }
    Ok(())
}

fn loses(what: &str, hint: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("the picture has {what}")).with_hint(hint)
}

/// The size that a picture of `size` is to get; `None` where it is small enough.
fn smaller((width, height): (u32, u32), max: u32, by: ResizeBy) -> Option<(u32, u32)> {
    let side = match by {
        ResizeBy::Longer => width.max(height),
        ResizeBy::Shorter => width.min(height),
    };
    if side <= max {
        return None;
    }
    let scaled = |length: u32| {
        ((u64::from(length) * u64::from(max) * 2 + u64::from(side)) / (2 * u64::from(side))).max(1) as u32
    };
    Some((scaled(width), scaled(height)))
}

/// How a stored picture of this orientation is turned upright.
fn turn_of(orientation: Orientation) -> Turn {
    let (flip_x, flip_y) = match orientation {
        Orientation::Upright | Orientation::Transpose => (false, false),
        Orientation::FlipHorizontal | Orientation::Rotate270 => (true, false),
        Orientation::FlipVertical | Orientation::Rotate90 => (false, true),
        Orientation::Rotate180 | Orientation::Transverse => (true, true),
    };
    Turn { flip_x, flip_y, transpose: orientation.swaps_axes() }
}

/// The extension with its last part changed to that of `format`.
fn renamed(ext: &str, format: ImageFormat) -> String {
    let new = match format {
        ImageFormat::Jpeg => "jpg",
        ImageFormat::WebP => "webp",
        other => other.as_str(),
    };
    match ext.rsplit_once('.') {
        Some((before, _)) => format!("{before}.{new}"),
        None => new.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_made_smaller_and_never_larger() {
        let check = |size, max, by, expected| assert_eq!(smaller(size, max, by), expected, "{size:?} {max} {by:?}");
        check((500, 375), 256, ResizeBy::Longer, Some((256, 192)));
        check((375, 500), 256, ResizeBy::Shorter, Some((256, 341)));
        check((256, 100), 256, ResizeBy::Longer, None);
        check((10_000, 2), 256, ResizeBy::Longer, Some((256, 1)));
        check((300, 256), 256, ResizeBy::Shorter, None);
    }

    #[test]
    fn the_last_part_of_an_extension_names_the_format() {
        assert_eq!(renamed("left.png", ImageFormat::Jpeg), "left.jpg");
        assert_eq!(renamed("jpg", ImageFormat::WebP), "webp");
    }
}
