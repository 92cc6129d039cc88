//! PNG, WebP, GIF, BMP, TIFF and PNM through the image crate.
//!
//! It always decodes in full, only the first frame, and only to eight bits; alpha is dropped, not blended.

use std::io::Cursor;

use image::{ColorType, ImageDecoder as _, ImageError, ImageReader, Limits};

use super::pixels::room;
use super::{ColorMode, DecodeOptions, ImageFormat, ImageInfo, Orientation, color, exif};
use crate::{Error, ErrorKind, Result};

/// Bytes that the largest pixel of a decoded picture takes: four channels of 32 bits.
const PIXEL_BYTES_MAX: u64 = 16;

/// The header of an image of `format`.
pub(super) fn info(bytes: &[u8], format: ImageFormat, options: &DecodeOptions) -> Result<ImageInfo> {
    let mut decoder = open(bytes, format, options)?;
    let (width, height) = decoder.dimensions();
    let stored = decoder.original_color_type();
    let components = stored.channel_count();
    // The bits of one component; where the crate does not know, those that it would deliver.
    let bits = stored.bits_per_pixel().checked_div(u16::from(components)).unwrap_or(8);
    let orientation = match format {
        ImageFormat::Tiff => exif::orientation(bytes),
        // A damaged EXIF block is no reason to refuse the picture.
        ImageFormat::Png | ImageFormat::WebP => {
            decoder.exif_metadata().ok().flatten().map(|block| exif::orientation_of_block(&block)).unwrap_or_default()
        }
        _ => Orientation::Upright,
    };
    Ok(ImageInfo { format, width, height, components, bits: bits.min(64) as u8, orientation, jpeg: None })
}

/// All pixels in the colours of `options` into the start of `pixels`, tightly packed, with `raw` as scratch.
pub(super) fn decode(
    bytes: &[u8],
    info: &ImageInfo,
    options: &DecodeOptions,
    raw: &mut Vec<u8>,
    pixels: &mut Vec<u8>,
) -> Result<()> {
    let decoder = open(bytes, info.format, options)?;
    if decoder.dimensions() != (info.width, info.height) {
        return Err(Error::new(ErrorKind::Decode, "the image changed while it was decoded"));
    }
    let color = decoder.color_type();
    let size = usize::try_from(decoder.total_bytes()).map_err(|_| too_large(info))?;
    let raw = room(raw, size);
    decoder.read_image(raw).map_err(|error| failed(error, info.format))?;
    // Colours and alpha as Pillow reads them from each format; grey it would clip, so that is scaled in all of them.
    let upper = matches!(info.format, ImageFormat::Png | ImageFormat::Tiff) && color != ColorType::L16;
    let to_eight = if upper { color::upper_bits } else { color::eight_bits };
    narrow(raw, color, to_eight, options.mode, pixels)
}

/// Brings any of the crate's pixels to eight bits of RGB or grey, those of sixteen bits by `to_eight`.
fn narrow(raw: &[u8], color: ColorType, to_eight: fn(u16) -> u8, mode: ColorMode, pixels: &mut Vec<u8>) -> Result<()> {
    let channels = usize::from(color.channel_count());
    let pixel_bytes = usize::from(color.bytes_per_pixel());
    let count = raw.len() / pixel_bytes.max(1);
    let pixels = room(pixels, count * usize::from(mode.channels()));
    let wide = |bytes: &[u8], channel: usize| -> u8 {
        match (pixel_bytes / channels.max(1), bytes.get(channel * 2..channel * 2 + 2)) {
            (2, Some(&[low, high])) => to_eight(u16::from_ne_bytes([low, high])),
            _ => bytes.get(channel).copied().unwrap_or(0),
        }
    };
    match (color, mode) {
        (ColorType::Rgb8, ColorMode::Rgb) | (ColorType::L8, ColorMode::Grey) => pixels.copy_from_slice(raw),
        (ColorType::Rgb8, ColorMode::Grey) => color::luma(raw, pixels),
        (ColorType::L8 | ColorType::La8 | ColorType::L16 | ColorType::La16, _) => {
            let per_pixel = pixels.chunks_exact_mut(usize::from(mode.channels()));
            raw.chunks_exact(pixel_bytes).zip(per_pixel).for_each(|(raw, pixel)| pixel.fill(wide(raw, 0)));
        }
        (ColorType::Rgba8 | ColorType::Rgb16 | ColorType::Rgba16, _) => {
            let per_pixel = pixels.chunks_exact_mut(usize::from(mode.channels()));
            for (raw, pixel) in raw.chunks_exact(pixel_bytes).zip(per_pixel) {
                let rgb = [wide(raw, 0), wide(raw, 1), wide(raw, 2)];
                match mode {
                    ColorMode::Rgb => pixel.copy_from_slice(&rgb),
                    ColorMode::Grey => color::luma(&rgb, pixel),
                }
            }
        }
        _ => {
            return Err(Error::new(ErrorKind::Unsupported, format!("images of {color:?} pixels are not supported"))
                .with_hint("store the picture with 8 or 16 bits a channel"));
        }
    }
    Ok(())
}

fn open<'a>(
    bytes: &'a [u8],
    format: ImageFormat,
    options: &DecodeOptions,
) -> Result<impl image::ImageDecoder + use<'a>> {
    let known = match format {
        ImageFormat::Jpeg => image::ImageFormat::Jpeg,
        ImageFormat::Png => image::ImageFormat::Png,
        ImageFormat::WebP => image::ImageFormat::WebP,
        ImageFormat::Gif => image::ImageFormat::Gif,
        ImageFormat::Bmp => image::ImageFormat::Bmp,
        ImageFormat::Tiff => image::ImageFormat::Tiff,
        ImageFormat::Pnm => image::ImageFormat::Pnm,
    };
    let mut reader = ImageReader::with_format(Cursor::new(bytes), known);
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(options.pixels_max.saturating_mul(PIXEL_BYTES_MAX));
    reader.limits(limits);
    reader.into_decoder().map_err(|error| failed(error, format))
}

fn failed(error: ImageError, format: ImageFormat) -> Error {
    let cut = |error: &std::io::Error| error.kind() == std::io::ErrorKind::UnexpectedEof;
    let kind = match &error {
        ImageError::Unsupported(_) => ErrorKind::Unsupported,
        ImageError::Limits(_) => ErrorKind::Limit,
        ImageError::IoError(error) if cut(error) => ErrorKind::Truncated,
        _ => ErrorKind::Decode,
    };
    Error::new(kind, format!("cannot decode the {}", format.as_str())).with_source(error)
}

fn too_large(info: &ImageInfo) -> Error {
    Error::new(ErrorKind::Limit, format!("the image of {}x{} is too large to decode", info.width, info.height))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_grey_and_alpha_pixels_are_narrowed() {
        let wide: Vec<u8> =
            [0_u16, 32768, 65535, 129, 7, 9, 1, 2].iter().flat_map(|value| value.to_ne_bytes()).collect();
        let check = |raw: &[u8], color, mode, expected: &[u8]| {
            let mut pixels = Vec::new();
            narrow(raw, color, color::eight_bits, mode, &mut pixels).unwrap();
            assert_eq!(pixels, expected, "{color:?} {mode:?}");
        };
        check(&wide, ColorType::Rgba16, ColorMode::Rgb, &[0, 128, 255, 0, 0, 0]);
        check(&wide[..6], ColorType::Rgb16, ColorMode::Rgb, &[0, 128, 255]);
        check(&wide[..4], ColorType::La16, ColorMode::Rgb, &[0, 0, 0]);
        check(&wide[2..4], ColorType::L16, ColorMode::Grey, &[128]);
        check(&[9, 0, 8, 255], ColorType::La8, ColorMode::Rgb, &[9, 9, 9, 8, 8, 8]);
        check(&[255, 0, 0, 9], ColorType::Rgba8, ColorMode::Grey, &[76]);
        assert!(narrow(&[0; 12], ColorType::Rgb32F, color::eight_bits, ColorMode::Rgb, &mut Vec::new()).is_err());
    }

    #[test]
    fn sixteen_bits_are_cut_in_png_and_tiff_colours_and_scaled_in_pnm_and_grey() {
        use image::{DynamicImage, ImageBuffer, Luma, Rgb, Rgba};

        let decoded = |image: &DynamicImage, crates, format| {
            let mut bytes = Cursor::new(Vec::new());
            image.write_to(&mut bytes, crates).unwrap();
            let (bytes, options) = (bytes.into_inner(), DecodeOptions::default());
            let (mut raw, mut pixels) = (Vec::new(), Vec::new());
            let info = info(&bytes, format, &options).unwrap();
            decode(&bytes, &info, &options, &mut raw, &mut pixels).unwrap();
            pixels
        };
        let rgb = DynamicImage::from(ImageBuffer::from_pixel(1, 1, Rgb([255_u16, 33_000, 65_000])));
        let rgba = DynamicImage::from(ImageBuffer::from_pixel(1, 1, Rgba([255_u16, 33_000, 65_000, 9])));
        let grey = DynamicImage::from(ImageBuffer::from_pixel(1, 1, Luma([255_u16])));
        let (png, tiff, pnm) = (image::ImageFormat::Png, image::ImageFormat::Tiff, image::ImageFormat::Pnm);
        for picture in [&rgb, &rgba] {
            assert_eq!(decoded(picture, png, ImageFormat::Png), [0, 128, 253]);
            assert_eq!(decoded(picture, tiff, ImageFormat::Tiff), [0, 128, 253]);
        }
        assert_eq!(decoded(&rgb, pnm, ImageFormat::Pnm), [1, 128, 253]);
        assert_eq!(decoded(&grey, png, ImageFormat::Png), [1, 1, 1]);
    }
}
