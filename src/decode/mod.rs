//! Compressed bytes become pixels: headers, regions, and which library serves which file.
//!
//! It does not know where the bytes come from, and it neither resamples nor flips: a transform asks for a
//! [`Region`] and gets exactly the pixels that a full decode would have had there.
//!
//! | file | served by |
//! |---|---|
//! | JPEG, Huffman or arithmetic coded, 8 bits, grey or YCbCr or RGB | libjpeg-turbo (feature `turbo`), which decodes the region alone |
//! | JPEG with four components, and all Huffman coded JPEG without `turbo` | zune-jpeg, which decodes in full |
//! | PNG, WebP, GIF, BMP, TIFF, PNM | the image crate, which decodes in full |
//!
//! The format is found from the content, never from a name.

mod exif;
mod decoder;
mod info;
mod jobs;
mod options;
mod other;
mod pixels;
mod zune;

pub use decoder::ImageDecoder;
pub use exif::Orientation;
pub use info::{ImageFormat, ImageInfo, JpegInfo, JpegProcess, image_info};
pub use jobs::{Decoder, Jobs, Ticket};
pub use options::{Backend, ColorMode, DecodeOptions, Truncated};
pub use pixels::{Pixels, Region};

/// The decoders that this build contains, in the order in which they are preferred.
#[must_use]
pub fn backends() -> &'static [&'static str] {
    if cfg!(feature = "turbo") { &["turbo", "zune", "image"] } else { &["zune", "image"] }
}
