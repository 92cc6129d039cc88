//! Pixels to one baseline JPEG file with a single interleaved scan.
//!
//! It is not a general encoder: no progressive files, no CMYK, no metadata.

use jpeg_encoder::{ChromaSubsamplingMethod, ColorType, Encoder, SamplingFactor};

use super::scan::optimise_huffman;
use crate::{Error, ErrorKind, Result};

/// How the two chroma planes are stored beside luma.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Subsampling {
    /// 4:4:4, at full size.
    Full,
    /// 4:2:2, at half width.
    HalfWidth,
    /// 4:2:0, at half width and half height.
    #[default]
    Half,
}

/// What the bytes of the pixels mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PixelKind {
    /// Three bytes a pixel: red, green, blue.
    #[default]
    Rgb,
    /// One byte a pixel.
    Grey,
}

impl PixelKind {
    /// Bytes a pixel.
    #[must_use]
    pub fn channels(self) -> usize {
        match self {
            Self::Rgb => 3,
            Self::Grey => 1,
        }
    }
}

/// The settings of one JPEG file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JpegOptions {
    /// Quality on libjpeg's scale, 1 to 100. Default 90.
    pub quality: u8,
    /// Chroma subsampling; without meaning for grey pictures. Default [`Subsampling::Half`].
    pub subsampling: Subsampling,
    /// Huffman tables made for this picture rather than the standard's: about 5 % fewer bytes. Default on.
    pub optimise: bool,
    /// Minimum coded units (MCUs) between restart markers, 0 for no markers. Default 0.
    pub restart_interval: u16,
}

impl Default for JpegOptions {
    fn default() -> Self {
        Self { quality: 90, subsampling: Subsampling::default(), optimise: true, restart_interval: 0 }
    }
}

/// Encodes `pixels`: `[height, width, channels]`, `u8`, row-major, without padding.
///
/// # Errors
/// [`ErrorKind::InvalidOption`] for a quality outside 1 to 100, a side outside 1 to 65,535 pixels, or a buffer that
/// does not hold exactly `width * height * channels` bytes.
pub fn encode_jpeg(pixels: &[u8], width: u32, height: u32, kind: PixelKind, options: &JpegOptions) -> Result<Vec<u8>> {
    if !(1..=100).contains(&options.quality) {
        return Err(invalid(format!("quality {} is not in 1 to 100", options.quality)));
    }
    let (columns, rows) = (side("width", width)?, side("height", height)?);
    let expected = usize::from(columns) * usize::from(rows) * kind.channels();
    if pixels.len() != expected {
        return Err(invalid(format!(
            "{} bytes of pixels for a picture of {width}x{height} that takes {expected}",
            pixels.len()
        )));
    }

    let mut file = Vec::with_capacity(expected / 3);
    let mut encoder = Encoder::new(&mut file, options.quality);
    encoder.set_sampling_factor(match options.subsampling {
        Subsampling::Full => SamplingFactor::R_4_4_4,
        Subsampling::HalfWidth => SamplingFactor::R_4_2_2,
        Subsampling::Half => SamplingFactor::R_4_2_0,
    });
    encoder.set_chroma_subsampling_method(ChromaSubsamplingMethod::Average);
    encoder.set_restart_interval(options.restart_interval);
    let color = match kind {
        PixelKind::Rgb => ColorType::Rgb,
        PixelKind::Grey => ColorType::Luma,
    };
    encoder
        .encode(pixels, columns, rows, color)
        .map_err(|source| Error::new(ErrorKind::Unsupported, "the picture cannot be encoded").with_source(source))?;
    // The encoder's own optimised tables come with one scan a component, which most decoders read slowly: it writes
    // one interleaved scan under the standard tables, and the tables are replaced afterwards.
    if options.optimise { optimise_huffman(&file) } else { Ok(file) }
}

fn side(name: &str, pixels: u32) -> Result<u16> {
    match u16::try_from(pixels) {
        Ok(side) if side > 0 => Ok(side),
        _ => Err(invalid(format!("{name} {pixels} is not in 1 to 65535"))),
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidOption, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zune_jpeg::JpegDecoder;
    use zune_jpeg::zune_core::bytestream::ZCursor;
    use zune_jpeg::zune_core::colorspace::ColorSpace;
    use zune_jpeg::zune_core::options::DecoderOptions;

    fn decode(file: &[u8], kind: PixelKind) -> (usize, usize, Vec<u8>) {
        let space = if kind == PixelKind::Grey { ColorSpace::Luma } else { ColorSpace::RGB };
        let options = DecoderOptions::default().jpeg_set_out_colorspace(space);
        let mut decoder = JpegDecoder::new_with_options(ZCursor::new(file), options);
        let pixels = decoder.decode().expect("our own files are good");
        let (width, height) = decoder.dimensions().expect("decoded");
        (width, height, pixels)
    }

    fn gradient(width: u32, height: u32, channels: usize) -> Vec<u8> {
        let pixel = |x: u32, y: u32, channel: usize| (x * 3 + y * 2 + channel as u32 * 40).min(255) as u8;
        let rows = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
        rows.flat_map(|(x, y)| (0..channels).map(move |channel| pixel(x, y, channel))).collect()
    }

    fn markers(file: &[u8], marker: u8) -> usize {
        file.windows(2).filter(|pair| pair == &[0xFF, marker]).count()
    }

    #[test]
    fn every_setting_comes_back_as_nearly_the_same_pixels_in_one_scan() {
        for subsampling in [Subsampling::Full, Subsampling::HalfWidth, Subsampling::Half] {
            for kind in [PixelKind::Rgb, PixelKind::Grey] {
                for (optimise, restart_interval) in [(false, 0), (true, 0), (true, 2), (false, 3)] {
                    let options = JpegOptions { quality: 95, subsampling, optimise, restart_interval };
                    let pixels = gradient(37, 21, kind.channels());
                    let file = encode_jpeg(&pixels, 37, 21, kind, &options).expect("legal");
                    let (width, height, decoded) = decode(&file, kind);
                    assert_eq!((width, height, decoded.len()), (37, 21, pixels.len()), "{options:?}");
                    let worst = pixels.iter().zip(&decoded).map(|(a, b)| a.abs_diff(*b)).max();
                    assert!(worst < Some(12), "{worst:?} with {options:?}");
                    assert_eq!(markers(&file, 0xDA), 1, "one scan with {options:?}");
                    assert_eq!(markers(&file, 0xD0) > 0, restart_interval > 0, "{options:?}");
                }
            }
        }
    }

    #[test]
    fn a_lower_quality_makes_a_smaller_file() {
        let pixels = gradient(64, 64, 3);
        let size = |quality| {
            let options = JpegOptions { quality, ..JpegOptions::default() };
            encode_jpeg(&pixels, 64, 64, PixelKind::Rgb, &options).expect("legal").len()
        };
        assert!(size(20) < size(70) && size(70) < size(100));
    }

    #[test]
    fn options_out_of_range_are_errors_that_name_the_value() {
        let check = |pixels: usize, width, height, quality, part: &str| {
            let options = JpegOptions { quality, ..JpegOptions::default() };
            let error = encode_jpeg(&vec![0; pixels], width, height, PixelKind::Rgb, &options).expect_err(part);
            assert_eq!(error.kind(), ErrorKind::InvalidOption);
            assert!(error.to_string().contains(part), "{error}");
        };
        check(12, 2, 2, 0, "quality 0");
        check(12, 2, 2, 101, "quality 101");
        check(0, 0, 2, 90, "width 0");
        check(0, 2, 65_536, 90, "height 65536");
        check(11, 2, 2, 90, "11 bytes");
        check(13, 2, 2, 90, "13 bytes");
    }
}
