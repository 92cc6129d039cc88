//! JPEG through zune-jpeg: the pure-Rust default and the twin of libjpeg-turbo.
//!
//! It always decodes in full, and it knows neither arithmetic coding nor cropping.

use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;
use zune_jpeg::errors::DecodeErrors;

use super::jpeg::Header;
use super::pixels::room;
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

/// All pixels as RGB into the start of `pixels`, tightly packed, with `copy` as scratch.
pub(super) fn decode(
    bytes: &[u8],
    header: &Header,
    options: &DecodeOptions,
    copy: &mut Vec<u8>,
    pixels: &mut Vec<u8>,
) -> Result<()> {
    check(header)?;
    let size = header.width as usize * header.height as usize * 3;
    let pixels = room(pixels, size);
    let bytes = if guard(bytes, header, copy) { copy.as_slice() } else { bytes };
    let allow_cut = options.truncated == Truncated::Allow && !header.jpeg.complete;
    let settings = DecoderOptions::default()
        .set_strict_mode(!allow_cut)
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX))
        .jpeg_set_max_scans(usize::try_from(options.scans_max).unwrap_or(usize::MAX))
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), settings);
    decoder.decode_headers().map_err(|error| failed(&error))?;
    if decoder.dimensions() != Some((header.width as usize, header.height as usize))
        || decoder.output_buffer_size() != Some(pixels.len())
    {
        return Err(Error::new(ErrorKind::Decode, "zune-jpeg reads another size from the JPEG than its header says"));
    }
    decoder.decode_into(pixels).map_err(|error| failed(&error))
}

/// Eight bytes of ones, each with the zero that tells it from a marker.
const ONES: [u8; 16] = [0xFF, 0, 0xFF, 0, 0xFF, 0, 0xFF, 0, 0xFF, 0, 0xFF, 0, 0xFF, 0, 0xFF, 0];

/// Puts bits that are no code, ones, in the place of the marker that ends a single sequential scan; whether it did.
///
/// zune-jpeg reads zeros for ever after a marker, so a scan that ends too early decodes to something without a word.
/// Ones stop it. They are as many as it may read ahead in a whole file.
fn guard(bytes: &[u8], header: &Header, copy: &mut Vec<u8>) -> bool {
    let scan = bytes.len().checked_sub(header.tail).and_then(|end| bytes.get(..end));
    let (Some(scan), true) = (scan, header.tail > 0 && header.jpeg.scans == 1 && header.jpeg.interleaved) else {
        return false;
    };
    if header.jpeg.process == JpegProcess::Progressive {
        return false;
    }
    copy.clear();
    copy.extend_from_slice(scan);
    copy.extend_from_slice(&ONES);
    true
}

fn failed(error: &DecodeErrors) -> Error {
    let kind = match error {
        DecodeErrors::ExhaustedData | DecodeErrors::IoErrors(_) => ErrorKind::Truncated,
        DecodeErrors::Unsupported(_) => ErrorKind::Unsupported,
        _ => ErrorKind::Decode,
    };
    Error::new(kind, format!("zune-jpeg refuses the JPEG: {}", error.to_string().trim_matches(['"', '\n', ' '])))
}
