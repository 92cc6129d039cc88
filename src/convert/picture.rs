//! What is done to pictures on their way into shards: made smaller, turned upright, encoded anew, given restart markers, freed
//! of metadata. Whatever can be done without loss is; without an option that asks for it, no byte changes.
//!
//! Nothing is dropped in silence: what a new file could not hold (transparency, more than 8 bits, an orientation) is an error
//! that names the option which allows it.

mod options;
mod tally;
mod loss;
mod cost;

use image::ImageEncoder;
use image::codecs::png::PngEncoder;
use image::codecs::webp::WebPEncoder;

use super::allowance::Memory;
use super::extension::is_picture_field;
use super::sample::{Field, Fields};
use crate::decode::{ColorMode, DecodeOptions, ImageDecoder, ImageFormat, ImageInfo, Orientation};
use crate::encode::{
    JpegOptions, PixelKind, Rewrite, Turn, add_profile, carry_exif, encode_jpeg, has_several, metadata_in, pixels_of,
    profile_of, rewrite_jpeg, set_upright, strip_metadata,
};
use crate::error::{Error, ErrorKind, Result};
use crate::transform::{Compose, Interpolation, Resampler, ResizeSize, SampleRng, Size, Transform};

pub(super) use cost::decoded_bytes;
pub use options::{PictureFormat, PictureOptions, ResizeBy};
pub use tally::PictureTally;

use cost::work_bytes;
use loss::{loses, refuse_choice, refuse_losses};
use options::smaller;

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
    fn the_last_part_of_an_extension_names_the_format() {
        assert_eq!(renamed("left.png", ImageFormat::Jpeg), "left.jpg");
        assert_eq!(renamed("jpg", ImageFormat::WebP), "webp");
    }
}
