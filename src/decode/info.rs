//! What a header says about an image, before any pixel is decoded.
//!
//! It decides nothing: limits and refusals are the decoder's.

use super::{DecodeOptions, ImageDecoder, Orientation};
use crate::Result;

/// The container format, found from the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ImageFormat {
    /// JPEG in any of its processes.
    Jpeg,
    /// PNG, also animated ones (the default image counts).
    Png,
    /// WebP, lossy or lossless (first frame).
    WebP,
    /// GIF (first frame).
    Gif,
    /// Windows bitmap.
    Bmp,
    /// TIFF (first image).
    Tiff,
    /// PBM, PGM, PPM or PAM.
    Pnm,
}

impl ImageFormat {
    /// The format as one lower-case word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Jpeg => "jpeg",
            Self::Png => "png",
            Self::WebP => "webp",
            Self::Gif => "gif",
            Self::Bmp => "bmp",
            Self::Tiff => "tiff",
            Self::Pnm => "pnm",
        }
    }
}

/// How a JPEG is coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JpegProcess {
    /// SOF0: sequential, Huffman.
    Baseline,
    /// SOF1: sequential, Huffman, up to 12 bits and four tables.
    Extended,
    /// SOF2: progressive, Huffman.
    Progressive,
    /// SOF9 and SOF10: sequential or progressive, arithmetic coding.
    Arithmetic,
    /// SOF3 and SOF11.
    Lossless,
    /// SOF5 to SOF7 and SOF13 to SOF15: differential frames.
    Hierarchical,
}

/// What only a JPEG's header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JpegInfo {
    /// How it is coded.
    pub process: JpegProcess,
    /// Horizontal and vertical sampling factors of each component, 1 to 4; (0, 0) for those it lacks.
    pub sampling: [(u8, u8); 4],
    /// The transform byte of an Adobe marker, if there is one: 0 = RGB or CMYK, 1 = YCbCr, 2 = YCCK.
    pub adobe_transform: Option<u8>,
    /// Scans in the file.
    pub scans: u32,
    /// Whether the first scan holds all components.
    pub interleaved: bool,
    /// MCUs between restart markers in the first scan, 0 for none.
    pub restart_interval: u16,
    /// Whether the end-of-image marker is there; a file without it is cut.
    pub complete: bool,
}

impl JpegInfo {
    /// The greatest horizontal and vertical sampling factors, which give the size of an MCU.
    #[must_use]
    pub fn sampling_max(&self) -> (u8, u8) {
        self.sampling.iter().fold((1, 1), |(h, v), &(a, b)| (h.max(a), v.max(b)))
    }
}

/// The header of an image.
///
/// `width` and `height` are those of the stored image; a decoder that applies the EXIF orientation gives
/// those of the upright one instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageInfo {
    /// Container format.
    pub format: ImageFormat,
    /// Columns, 1 or more.
    pub width: u32,
    /// Rows, 1 or more.
    pub height: u32,
    /// Stored components of a pixel, 1 to 4; palettes count as the colours they stand for.
    pub components: u8,
    /// Stored bits of a component.
    pub bits: u8,
    /// EXIF orientation, as stored.
    pub orientation: Orientation,
    /// More about a JPEG.
    pub jpeg: Option<JpegInfo>,
}

/// Reads the header of an image of any format that this library knows; decodes no pixel.
///
/// # Errors
///
/// [`ErrorKind::Decode`](crate::ErrorKind::Decode) if the bytes are no image or its header is damaged,
/// [`ErrorKind::Truncated`](crate::ErrorKind::Truncated) if the header is cut,
/// [`ErrorKind::Limit`](crate::ErrorKind::Limit) if it is larger than the default limits allow.
pub fn image_info(bytes: &[u8]) -> Result<ImageInfo> {
    ImageDecoder::new(DecodeOptions::default())?.info(bytes)
}
