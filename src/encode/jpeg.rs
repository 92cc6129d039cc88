//! Pixels to one baseline JPEG file with a single interleaved scan.
//!
//! It is not a general encoder: no progressive files, no CMYK, no metadata.

use super::coefficients::{Planes, ZIGZAG};
use super::forward::{Quantisation, fill};
use super::huffman::Code;
use super::scan::{Codes, Component, codes_for, write_scan};
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

    let tables = Quantisation::at(options.quality);
    let components = components(kind, options.subsampling);
    let mut planes = Planes::zero(usize::from(columns), usize::from(rows), &components);
    fill(&mut planes, pixels, usize::from(columns), kind, &tables);
    let interval = usize::from(options.restart_interval);
    let codes = if options.optimise { codes_for(&planes.counts(interval)) } else { standard_codes(kind) };
    let head = head(columns, rows, &components, &tables, options.restart_interval);
    write_scan(head, &codes, &scan_header(&components), |visit| {
        planes.visit(interval, visit);
        Ok(())
    })
}

fn components(kind: PixelKind, subsampling: Subsampling) -> Vec<Component> {
    let (h, v) = match (kind, subsampling) {
        (PixelKind::Grey, _) | (_, Subsampling::Full) => (1, 1),
        (_, Subsampling::HalfWidth) => (2, 1),
        (_, Subsampling::Half) => (2, 2),
    };
    let chroma = [2, 3].map(|id| Component { id, h: 1, v: 1 });
    let chroma = if kind == PixelKind::Grey { &[][..] } else { &chroma };
    std::iter::once(Component { id: 1, h, v }).chain(chroma.iter().copied()).collect()
}

/// Everything before the Huffman tables.
fn head(
    columns: u16,
    rows: u16,
    components: &[Component],
    tables: &[Quantisation; 2],
    restart_interval: u16,
) -> Vec<u8> {
    let mut head = b"\xFF\xD8\xFF\xE0\0\x10JFIF\0\x01\x02\0\0\x01\0\x01\0\0".to_vec();
    for (number, quantisation) in (0u8..).zip(tables).take(components.len()) {
        head.extend_from_slice(&[0xFF, 0xDB, 0, 67, number]);
        head.extend(ZIGZAG.iter().map(|&place| quantisation.table[usize::from(place)]));
    }
    let count = components.len() as u8;
    head.extend_from_slice(&[0xFF, 0xC0, 0, 8 + 3 * count, 8]);
    head.extend_from_slice(&rows.to_be_bytes());
    head.extend_from_slice(&columns.to_be_bytes());
    head.push(count);
    for (number, &Component { id, h, v }) in components.iter().enumerate() {
        head.extend_from_slice(&[id, (h << 4 | v) as u8, u8::from(number > 0)]);
    }
    if restart_interval > 0 {
        head.extend_from_slice(&[0xFF, 0xDD, 0, 4]);
        head.extend_from_slice(&restart_interval.to_be_bytes());
    }
    head
}

fn scan_header(components: &[Component]) -> Vec<u8> {
    let count = components.len() as u8;
    let mut header = vec![0xFF, 0xDA, 0, 6 + 2 * count, count];
    for (number, component) in components.iter().enumerate() {
        header.extend_from_slice(&[component.id, if number > 0 { 0x11 } else { 0 }]);
    }
    header.extend_from_slice(&[0, 63, 0]);
    header
}

/// The codes of the standard's annex K.
fn standard_codes(kind: PixelKind) -> Codes {
    let [luma_dc, chroma_dc, luma_ac, chroma_ac] = STANDARD.map(|(lengths, symbols)| Code::of_table(lengths, symbols));
    match kind {
        PixelKind::Grey => [Some(luma_dc), None, None, None, Some(luma_ac), None, None, None],
        PixelKind::Rgb => [Some(luma_dc), Some(chroma_dc), None, None, Some(luma_ac), Some(chroma_ac), None, None],
    }
}

/// Words of each length and their symbols: differences of luma and chroma, then coefficients of luma and chroma.
const STANDARD: [(&[u8; 16], &[u8]); 4] = [
    (&[0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
    (&[0, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
    (
        &[0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 0x7D],
        b"\x01\x02\x03\x00\x04\x11\x05\x12\x21\x31\x41\x06\x13\x51\x61\x07\x22\x71\x14\x32\x81\x91\xa1\x08\x23\x42\xb1\xc1\
        \x15\x52\xd1\xf0\x24\x33\x62\x72\x82\x09\x0a\x16\x17\x18\x19\x1a\x25\x26\x27\x28\x29\x2a\x34\x35\x36\x37\x38\x39\x3a\
        \x43\x44\x45\x46\x47\x48\x49\x4a\x53\x54\x55\x56\x57\x58\x59\x5a\x63\x64\x65\x66\x67\x68\x69\x6a\x73\x74\x75\x76\x77\
        \x78\x79\x7a\x83\x84\x85\x86\x87\x88\x89\x8a\x92\x93\x94\x95\x96\x97\x98\x99\x9a\xa2\xa3\xa4\xa5\xa6\xa7\xa8\xa9\xaa\
        \xb2\xb3\xb4\xb5\xb6\xb7\xb8\xb9\xba\xc2\xc3\xc4\xc5\xc6\xc7\xc8\xc9\xca\xd2\xd3\xd4\xd5\xd6\xd7\xd8\xd9\xda\xe1\xe2\
        \xe3\xe4\xe5\xe6\xe7\xe8\xe9\xea\xf1\xf2\xf3\xf4\xf5\xf6\xf7\xf8\xf9\xfa",
    ),
    (
        &[0, 2, 1, 2, 4, 4, 3, 4, 7, 5, 4, 4, 0, 1, 2, 0x77],
        b"\x00\x01\x02\x03\x11\x04\x05\x21\x31\x06\x12\x41\x51\x07\x61\x71\x13\x22\x32\x81\x08\x14\x42\x91\xa1\xb1\xc1\x09\
        \x23\x33\x52\xf0\x15\x62\x72\xd1\x0a\x16\x24\x34\xe1\x25\xf1\x17\x18\x19\x1a\x26\x27\x28\x29\x2a\x35\x36\x37\x38\x39\
        \x3a\x43\x44\x45\x46\x47\x48\x49\x4a\x53\x54\x55\x56\x57\x58\x59\x5a\x63\x64\x65\x66\x67\x68\x69\x6a\x73\x74\x75\x76\
        \x77\x78\x79\x7a\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x92\x93\x94\x95\x96\x97\x98\x99\x9a\xa2\xa3\xa4\xa5\xa6\xa7\xa8\
        \xa9\xaa\xb2\xb3\xb4\xb5\xb6\xb7\xb8\xb9\xba\xc2\xc3\xc4\xc5\xc6\xc7\xc8\xc9\xca\xd2\xd3\xd4\xd5\xd6\xd7\xd8\xd9\xda\
        \xe2\xe3\xe4\xe5\xe6\xe7\xe8\xe9\xea\xf2\xf3\xf4\xf5\xf6\xf7\xf8\xf9\xfa",
    ),
];

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
