//! JPEG through zune-jpeg: the pure-Rust default and the twin of libjpeg-turbo.
//!
//! It always decodes in full, and it knows neither arithmetic coding nor cropping.

use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;
use zune_jpeg::errors::DecodeErrors;

use super::jpeg::Header;
use super::{DecodeOptions, JpegProcess, Truncated};
use crate::{Error, ErrorKind, Result};

/// Whether zune-jpeg decodes this file, and rightly.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`] for arithmetic coding, and for sequential files whose components come in scans of their
/// own with fewer rows than others: zune-jpeg 0.5 returns wrong colours for these.
pub(super) fn check(header: &Header) -> Result<()> {
    let unsupported = |what: &str| {
        Err(Error::new(ErrorKind::Unsupported, format!("{what} is not supported by zune-jpeg"))
            .with_hint("build with --features turbo and choose the backend auto"))
    };
    let jpeg = &header.jpeg;
    if jpeg.process == JpegProcess::Arithmetic {
        return unsupported("a JPEG with arithmetic coding");
    }
    let sequential = jpeg.process != JpegProcess::Progressive;
    if sequential && !jpeg.interleaved && jpeg.sampling_max().1 > 1 {
        return unsupported("a JPEG with vertically subsampled components in scans of their own");
    }
    Ok(())
}

/// All pixels as RGB into the start of `pixels`, tightly packed.
pub(super) fn decode(bytes: &[u8], header: &Header, options: &DecodeOptions, pixels: &mut Vec<u8>) -> Result<()> {
    check(header)?;
    let allow_cut = options.truncated == Truncated::Allow && !header.jpeg.complete;
    let settings = DecoderOptions::default()
        .set_strict_mode(!allow_cut)
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX))
        .jpeg_set_max_scans(usize::try_from(options.scans_max).unwrap_or(usize::MAX))
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), settings);
    decoder.decode_headers().map_err(|error| failed(&error))?;
    let size = header.width as usize * header.height as usize * 3;
    if decoder.dimensions() != Some((header.width as usize, header.height as usize))
        || decoder.output_buffer_size() != Some(size)
    {
        return Err(Error::new(ErrorKind::Decode, "zune-jpeg reads another size from the JPEG than its header says"));
    }
    if pixels.len() < size {
        pixels.resize(size, 0);
    }
    decoder.decode_into(&mut pixels[..size]).map_err(|error| failed(&error))
}

fn failed(error: &DecodeErrors) -> Error {
    let kind = match error {
        DecodeErrors::ExhaustedData | DecodeErrors::IoErrors(_) => ErrorKind::Truncated,
        DecodeErrors::Unsupported(_) => ErrorKind::Unsupported,
        _ => ErrorKind::Decode,
    };
    Error::new(kind, format!("zune-jpeg refuses the JPEG: {}", error.to_string().trim_matches(['"', '\n', ' '])))
}
