//! Compressed bytes become pixels: headers, regions, and which library serves which file.
//!
//! It does not know where the bytes come from, and it neither resamples nor flips: a transform asks for a
//! [`Region`] and gets exactly the pixels that a full decode would have had there.
//!
//! | file | served by |
//! |---|---|
//! | plain baseline JPEG | our own decoder (`baseline`), which decodes the region alone |
//! | other JPEG of 8 bits, sequential or progressive | libjpeg-turbo (feature `turbo`), which decodes the region alone |
//! | the same without `turbo`, but for arithmetic coding | zune-jpeg, which decodes in full |
//! | PNG, WebP, GIF, BMP, TIFF, PNM | the image crate, which decodes in full |
//!
//! The format is found from the content, never from a name.

mod color;
mod exif;
mod decoder;
mod info;
mod jobs;
mod jpeg;
mod options;
mod other;
mod pixels;
mod repair;
#[cfg(feature = "turbo")]
#[expect(unsafe_code, reason = "libjpeg-turbo is called through its C interface")]
mod turbo;
mod zune;
mod baseline;

pub(crate) use baseline::Instructions;
pub use baseline::{Fallbacks, Refusal};
pub use decoder::ImageDecoder;
pub use exif::Orientation;
pub use info::{ImageFormat, ImageInfo, JpegInfo, JpegProcess, image_info};
pub use jobs::{Decoder, Jobs, Ticket};
pub use options::{Backend, ColorMode, DecodeOptions, Truncated};
pub use pixels::{Pixels, Planes, Region};

/// The decoders that this build contains, in the order in which they are preferred.
#[must_use]
pub fn backends() -> &'static [&'static str] {
    if cfg!(feature = "turbo") { &["baseline", "turbo", "zune", "image"] } else { &["baseline", "zune", "image"] }
}
