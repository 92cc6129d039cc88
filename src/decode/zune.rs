//! JPEG through zune-jpeg: the pure-Rust default and the twin of libjpeg-turbo.
//!
//! It always decodes in full.

use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;
use zune_jpeg::errors::DecodeErrors;

use crate::{Error, ErrorKind, Result};

/// Width and height from the header.
pub(super) fn size(bytes: &[u8]) -> Result<(u32, u32)> {
    let mut decoder = decoder(bytes);
    decoder.decode_headers().map_err(|error| failed(&error))?;
    match decoder.info() {
        Some(info) => Ok((u32::from(info.width), u32::from(info.height))),
        None => Err(Error::new(ErrorKind::Decode, "the JPEG has no frame header")),
    }
}

/// All pixels as RGB into `pixels`, which keeps its memory.
pub(super) fn decode(bytes: &[u8], pixels: &mut Vec<u8>) -> Result<()> {
    let mut decoder = decoder(bytes);
    decoder.decode_headers().map_err(|error| failed(&error))?;
    let size = decoder.output_buffer_size();
    let size = size.ok_or_else(|| Error::new(ErrorKind::Decode, "the JPEG has no frame header"))?;
    pixels.resize(size, 0);
    decoder.decode_into(pixels).map_err(|error| failed(&error))
}

fn decoder(bytes: &[u8]) -> JpegDecoder<ZCursor<&[u8]>> {
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX))
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    JpegDecoder::new_with_options(ZCursor::new(bytes), options)
}

fn failed(error: &DecodeErrors) -> Error {
    let kind = match error {
        DecodeErrors::ExhaustedData | DecodeErrors::IoErrors(_) => ErrorKind::Truncated,
        DecodeErrors::Unsupported(_) => ErrorKind::Unsupported,
        _ => ErrorKind::Decode,
    };
    Error::new(kind, format!("cannot decode the JPEG: {error}"))
}
