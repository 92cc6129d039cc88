//! Pixels to JPEG, and generated photos to have pixels from.
//!
//! It serves `convert`, the demo and the benches; it is not on the route of a training sample and reads no picture.

mod photo;
mod scene;
mod noise;
mod jpeg;
mod forward;
mod scan;
mod coefficients;
mod metadata;
mod profile;
mod frames;
mod huffman;

pub use coefficients::{Rewrite, Turn, rewrite_jpeg};
pub(crate) use frames::has_several;
pub use jpeg::{JpegOptions, PixelKind, Subsampling, encode_jpeg};
pub(crate) use metadata::metadata_in;
pub use metadata::{carry_exif, set_upright, strip_metadata};
pub use photo::{Photo, encode_photo, photo};
pub(crate) use profile::{add_profile, pixels_of, profile_of};
pub use scan::optimise_huffman;
