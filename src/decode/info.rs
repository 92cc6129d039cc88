//! What a header says about an image, before any pixel is decoded.
//!
//! It decides nothing: limits and refusals are the decoder's.

#[cfg(feature = "cuda")]
use super::repair::Repairs;
use super::{DecodeOptions, ImageDecoder, Orientation, jpeg};
use crate::{Error, ErrorKind, Result};

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

    /// The format that the first bytes belong to.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] for a picture of another format, which the message names; [`ErrorKind::Truncated`]
    /// for no bytes at all; [`ErrorKind::Decode`] for bytes that are no picture.
    pub fn of(bytes: &[u8]) -> Result<Self> {
        match bytes {
            [0xFF, 0xD8, ..] => Ok(Self::Jpeg),
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1A, b'\n', ..] => Ok(Self::Png),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Ok(Self::WebP),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Ok(Self::Gif),
            [b'B', b'M', ..] => Ok(Self::Bmp),
            [b'I', b'I', 0x2A, 0, ..] | [b'M', b'M', 0, 0x2A, ..] => Ok(Self::Tiff),
            [b'P', b'1'..=b'7', b' ' | b'\t' | b'\r' | b'\n' | b'#', ..] => Ok(Self::Pnm),
            _ => Err(Self::unknown(bytes)),
        }
    }

    /// Says what the bytes are instead, since a wrong name or a failed download is the usual cause.
    fn unknown(bytes: &[u8]) -> Error {
        let unsupported = |format: &str| {
            Error::new(ErrorKind::Unsupported, format!("the bytes are {format}, which is not supported"))
                .with_hint("store the picture as JPEG, PNG or WebP")
        };
        let no_image = |what: &str| Error::new(ErrorKind::Decode, format!("the bytes are no image: {what}"));
        match bytes {
            [] => Error::new(ErrorKind::Truncated, "the image is empty: it has 0 bytes"),
            [_, _, _, _, b'f', b't', b'y', b'p', brand @ ..] => {
                if brand.starts_with(b"avif") || brand.starts_with(b"avis") {
                    unsupported("an AVIF picture")
                } else if brand.starts_with(b"hei") || brand.starts_with(b"mif1") || brand.starts_with(b"hev") {
                    unsupported("a HEIF picture")
                } else {
                    unsupported("an ISO media file")
                }
            }
            [0, 0, 0, 0x0C, b'j', b'P', b' ' | 0x1A, ..] | [0xFF, 0x4F, 0xFF, 0x51, ..] => {
                unsupported("a JPEG 2000 picture")
            }
            [0xFF, 0x0A, ..] | [0, 0, 0, 0x0C, b'J', b'X', b'L', b' ', ..] => unsupported("a JPEG XL picture"),
            [0, 0, 1 | 2, 0, 1..=63, 0, ..] => unsupported("an ICO picture"),
            [b'8', b'B', b'P', b'S', ..] => unsupported("a Photoshop file"),
            [0x1F, 0x8B, ..] => no_image("they are compressed with gzip"),
            [b'v', b'e', b'r', b's', b'i', b'o', b'n', b' ', b'h', ..] => {
                no_image("they are a Git LFS pointer").with_hint("fetch the files with git lfs pull")
            }
            [b'<', ..] | [b'{', ..] => no_image("they are text, such as an error page of a failed download"),
            _ if bytes.iter().all(|&byte| byte == 0) => no_image("they are all zero"),
            _ => no_image(&format!("they begin with {:02x?}", bytes.get(..8).unwrap_or(bytes))),
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
    /// Identifiers of the components, 0 for those it lacks: without JFIF and Adobe markers, "RGB" says what they are.
    pub component_ids: [u8; 4],
    /// Whether there is a JFIF marker, which makes three components YCbCr.
    pub jfif: bool,
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
        jpeg::sampling_max(&self.sampling)
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
/// [`ErrorKind::Decode`] if the bytes are no image or its header is damaged,
/// [`ErrorKind::Truncated`] if the header is cut,
/// [`ErrorKind::Limit`] if it is larger than the default limits allow.
pub fn image_info(bytes: &[u8]) -> Result<ImageInfo> {
    ImageDecoder::new(DecodeOptions::default())?.info(bytes)
}

#[cfg(feature = "cuda")]
impl ImageInfo {
    /// The header of a JPEG that seems to be whole, read up to its first scan: for threads that choose among many files.
    ///
    /// # Errors
    ///
    /// As [`image_info`], but for limits, and for damage behind the header.
    pub(crate) fn of_jpeg_header(bytes: &[u8]) -> Result<Self> {
        jpeg::peek(bytes, &mut Repairs::default()).map(|header| header.info(bytes))
    }

    /// The same of all of the file: what [`of_jpeg_header`](Self::of_jpeg_header) told is true if this tells it too.
    ///
    /// # Errors
    ///
    /// As [`image_info`], but for limits.
    pub(crate) fn of_whole_jpeg(bytes: &[u8]) -> Result<Self> {
        jpeg::walk(bytes, &mut Repairs::default()).map(|header| header.info(bytes))
    }
}
