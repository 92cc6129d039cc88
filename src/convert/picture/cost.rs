//! How much memory a picture takes that is decoded or changed, as its header lets know.
//!
//! It takes none; the allowance does.

use super::options::{PictureFormat, PictureOptions, smaller};
use crate::decode::{ImageInfo, JpegProcess, Orientation};

/// About how much memory it takes to decode a picture, beside its file: what the decoder keeps, and the pixels.
pub(in crate::convert) fn decoded_bytes(info: &ImageInfo) -> u64 {
    let decoder = match &info.jpeg {
        Some(jpeg) if jpeg.process == JpegProcess::Progressive => COEFFICIENTS,
        Some(_) => 0,
        None => u64::from(info.components) * u64::from(info.bits.div_ceil(8)),
    };
    u64::from(info.width) * u64::from(info.height) * (decoder + PIXEL)
}

/// The same for changing it: copies of the pixels that are turned or packed, or the coefficients of a file that is rewritten
/// without loss.
pub(super) fn work_bytes(info: &ImageInfo, options: &PictureOptions) -> u64 {
    let size = (info.width, info.height);
    let pixels = u64::from(info.width) * u64::from(info.height);
    let is_turned = options.apply_orientation && info.orientation != Orientation::Upright;
    // Which side is which does not matter here.
    let is_smaller = options.resize.is_some_and(|max| smaller(size, max, options.resize_by).is_some());
    let is_encoded = is_smaller || options.format != PictureFormat::Keep;
    let copies = u64::from(is_turned) + u64::from(!is_smaller);
    let encoded = if is_encoded || is_turned { decoded_bytes(info) + copies * PIXEL * pixels } else { 0 };
    let is_rewritten = options.restart_rows.is_some() && !is_smaller || is_turned;
    encoded.max(if is_rewritten { COEFFICIENTS * pixels } else { 0 })
}

/// Bytes of a pixel, and of its coefficients.
const PIXEL: u64 = 3;
const COEFFICIENTS: u64 = 6;
