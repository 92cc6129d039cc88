//! PNG, WebP, GIF, BMP, TIFF and PNM through the image crate.
//!
//! It always decodes in full, and only the first frame.

use std::io::Cursor;

use image::{DynamicImage, ImageReader};

use super::ImageFormat;
use crate::{Error, ErrorKind, Result};

/// The format that the first bytes belong to.
pub(super) fn format(bytes: &[u8]) -> Option<ImageFormat> {
    match image::guess_format(bytes).ok()? {
        image::ImageFormat::Jpeg => Some(ImageFormat::Jpeg),
        image::ImageFormat::Png => Some(ImageFormat::Png),
        image::ImageFormat::WebP => Some(ImageFormat::WebP),
        image::ImageFormat::Gif => Some(ImageFormat::Gif),
        image::ImageFormat::Bmp => Some(ImageFormat::Bmp),
        image::ImageFormat::Tiff => Some(ImageFormat::Tiff),
        image::ImageFormat::Pnm => Some(ImageFormat::Pnm),
        _ => None,
    }
}

/// Width and height from the header.
pub(super) fn size(bytes: &[u8]) -> Result<(u32, u32)> {
    reader(bytes)?.into_dimensions().map_err(failed)
}

/// All pixels as RGB into `pixels`, which keeps its memory.
pub(super) fn decode(bytes: &[u8], pixels: &mut Vec<u8>) -> Result<()> {
    let image: DynamicImage = reader(bytes)?.decode().map_err(failed)?;
    pixels.clear();
    pixels.extend_from_slice(image.to_rgb8().as_raw());
    Ok(())
}

fn reader(bytes: &[u8]) -> Result<ImageReader<Cursor<&[u8]>>> {
    let reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format();
    reader.map_err(|error| Error::new(ErrorKind::Decode, "cannot read the image").with_source(error))
}

fn failed(error: image::ImageError) -> Error {
    let kind = match &error {
        image::ImageError::Unsupported(_) => ErrorKind::Unsupported,
        image::ImageError::Limits(_) => ErrorKind::Limit,
        image::ImageError::IoError(_) => ErrorKind::Truncated,
        _ => ErrorKind::Decode,
    };
    Error::new(kind, "cannot decode the image").with_source(error)
}
