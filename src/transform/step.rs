//! One geometric transform, validated: arguments in their legal range, filter chosen, fill as `u8`.
//!
//! The order of transforms and what they do to numbers are [`Compose`](super::Compose)'s.

use super::arguments::{Fill, Interpolation, Padding, PaddingMode, ResizeSize, Size};
use super::geometry::{Canvas, Filter};
use super::value::{Dtype, ValueOps};
use super::{SampleRng, Transform, crop, size};
use crate::decode::Region;
use crate::{Error, ErrorKind, Result};

/// Longest side that a transform may ask for, in pixels.
const SIDE_MAX: u32 = 65_535;

/// A geometric transform.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    RandomResizedCrop { size: Size, scale: [f64; 2], ratio: [f64; 2], filter: Filter },
    RandomCrop { size: Size, padding: Padding, pad_if_needed: bool, fill: [u8; 3] },
    CenterCrop { size: Size },
    Resize { size: ResizeSize, max_size: Option<u32>, filter: Filter },
    Pad { padding: Padding, fill: [u8; 3] },
    MirrorX { p: f64 },
    MirrorY { p: f64 },
}

impl Step {
    /// The step that `transform` is after the value entries `before` it; nothing if it is a value entry itself.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`] for arguments out of range, [`ErrorKind::Unsupported`] for legal ones that
    /// are not served or cannot be after `before`.
    pub(super) fn new(transform: &Transform, before: &ValueOps) -> Result<Option<Self>> {
        let step = match *transform {
            Transform::RandomResizedCrop { size, scale, ratio, interpolation, antialias } => {
                range_of("scale", scale, 0.0)?;
                range_of("ratio", ratio, f64::MIN_POSITIVE)?;
                let filter = filter(interpolation, antialias, before)?;
                Self::RandomResizedCrop { size: sides(size)?, scale, ratio, filter }
            }
            Transform::RandomCrop { size, padding, pad_if_needed, fill, padding_mode } => {
                let padding = padding.unwrap_or_default();
                let fill = if pad_if_needed || padding != Padding::default() {
                    pad(padding, fill, padding_mode, before)?
                } else {
                    [0; 3]
                };
                Self::RandomCrop { size: sides(size)?, padding, pad_if_needed, fill }
            }
            Transform::CenterCrop { size } => {
                pad(Padding::default(), Fill::default(), PaddingMode::Constant, before)?;
                Self::CenterCrop { size: sides(size)? }
            }
            Transform::Resize { size, interpolation, max_size, antialias } => {
                check_resize(size, max_size)?;
                Self::Resize { size, max_size, filter: filter(interpolation, antialias, before)? }
            }
            Transform::Pad { padding, fill, padding_mode } => {
                Self::Pad { padding, fill: pad(padding, fill, padding_mode, before)? }
            }
            Transform::RandomHorizontalFlip { p } => Self::MirrorX { p: probability(p)? },
            Transform::RandomVerticalFlip { p } => Self::MirrorY { p: probability(p)? },
            _ => return Ok(None),
        };
        Ok(Some(step))
    }

    /// Does it to `canvas`, with a number of draws that depends on nothing but the step.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`] if the image is too small for a crop or vanishes in a resize,
    /// [`ErrorKind::Limit`] if it becomes too large.
    pub(super) fn apply(&self, canvas: &mut Canvas, rng: &mut SampleRng) -> Result<()> {
        let (width, height) = (canvas.width(), canvas.height());
        match *self {
            Self::RandomResizedCrop { size, scale, ratio, filter } => {
                canvas.crop(crop::random_resized_crop(width, height, scale, ratio, rng));
                canvas.resize(size.width, size.height, filter);
            }
            Self::RandomCrop { size, padding, pad_if_needed, fill } => {
                canvas.pad(padding, fill)?;
                if pad_if_needed {
                    canvas.pad(crop::padding_if_needed(canvas.width(), canvas.height(), size), fill)?;
                }
                let region = crop::random_crop(canvas.width(), canvas.height(), size, rng);
                canvas.crop(region.ok_or_else(|| too_small(canvas, size))?);
            }
            Self::CenterCrop { size } => {
                canvas.pad(crop::center_padding(width, height, size), [0; 3])?;
                canvas.crop(crop::center_crop(canvas.width(), canvas.height(), size));
            }
            Self::Resize { size, max_size, filter } => {
                let Size { width, height } = size::resized(width, height, size, max_size)?;
                canvas.resize(width, height, filter);
            }
            Self::Pad { padding, fill } => canvas.pad(padding, fill)?,
            Self::MirrorX { p } => {
                if rng.uniform() < p {
                    canvas.mirror_x();
                }
            }
            Self::MirrorY { p } => {
                if rng.uniform() < p {
                    canvas.mirror_y();
                }
            }
        }
        Ok(())
    }

    /// The size after this step where that does not depend on the image, given the size `before` it.
    pub(super) fn output_size(&self, before: Option<Size>) -> Option<Size> {
        match *self {
            Self::RandomResizedCrop { size, .. }
            | Self::RandomCrop { size, .. }
            | Self::CenterCrop { size }
            | Self::Resize { size: ResizeSize::Exact(size), .. } => Some(size),
            Self::Resize { size, max_size, .. } => {
                before.and_then(|Size { width, height }| size::resized(width, height, size, max_size).ok())
            }
            Self::Pad { padding: Padding { left, top, right, bottom }, .. } => {
                let Size { width, height } = before?;
                let width = width.checked_add(left)?.checked_add(right)?;
                Some(Size { height: height.checked_add(top)?.checked_add(bottom)?, width })
            }
            Self::MirrorX { .. } | Self::MirrorY { .. } => before,
        }
    }
}

fn too_small(canvas: &Canvas, size: Size) -> Error {
    let Region { width, height, .. } = Region::full(canvas.width(), canvas.height());
    let message = format!("an image of {width}x{height} is smaller than its crop of {}x{}", size.width, size.height);
    Error::new(ErrorKind::InvalidOption, message).with_hint("set pad_if_needed, or resize before the crop")
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOption, message)
}

fn sides(size: Size) -> Result<Size> {
    let legal = 1..=SIDE_MAX;
    if legal.contains(&size.height) && legal.contains(&size.width) {
        return Ok(size);
    }
    Err(invalid(format!("size ({}, {}) is not within 1 to {SIDE_MAX}", size.height, size.width)))
}

fn check_resize(size: ResizeSize, max_size: Option<u32>) -> Result<()> {
    let max_size = max_size.map(|side| sides(side.into()).map(|_| side)).transpose()?;
    match (size, max_size) {
        (ResizeSize::Exact(size), None) => sides(size).map(drop),
        (ResizeSize::Exact(_), Some(_)) => Err(invalid("max_size goes with a size of one number, not with two")),
        (ResizeSize::Longer, None) => Err(invalid("a size of null needs max_size")),
        (ResizeSize::Longer, Some(_)) => Ok(()),
        (ResizeSize::Shorter(side), Some(max_size)) if max_size <= side => {
            Err(invalid(format!("max_size {max_size} is not greater than size {side}")))
        }
        (ResizeSize::Shorter(side), _) => sides(side.into()).map(drop),
    }
}

fn range_of(name: &str, [low, high]: [f64; 2], least: f64) -> Result<()> {
    if low >= least && low <= high && high.is_finite() {
        return Ok(());
    }
    Err(invalid(format!("{name} ({low}, {high}) is not two positive numbers in ascending order")))
}

fn probability(p: f64) -> Result<f64> {
    if (0.0..=1.0).contains(&p) { Ok(p) } else { Err(invalid(format!("p = {p} is not within 0 to 1"))) }
}

/// The filter that torchvision would use after the value entries `before`.
fn filter(interpolation: Interpolation, antialias: Option<bool>, before: &ValueOps) -> Result<Filter> {
    let unsupported = |message: &str, hint: &str| Err(Error::new(ErrorKind::Unsupported, message).with_hint(hint));
    // PIL always antialiases, and torchvision takes null for false on tensors.
    let antialias = before.picture || antialias.unwrap_or(false);
    match interpolation {
        Interpolation::Bilinear => Ok(Filter::Bilinear { antialias }),
        Interpolation::NearestExact => Ok(Filter::Nearest),
        Interpolation::Nearest if before.picture => Ok(Filter::Nearest),
        Interpolation::Nearest => unsupported(
            "nearest interpolation of tensors is off by half a pixel and not served",
            "take nearest-exact, or resize before the image becomes a tensor",
        ),
        Interpolation::Bicubic if before.dtype != Dtype::U8 => unsupported(
            "bicubic interpolation of floating point keeps overshoots that 8 bits clip",
            "put the value transforms after the geometry",
        ),
        Interpolation::Bicubic if !antialias => unsupported(
            "bicubic interpolation without antialiasing is not served",
            "set antialias=True, or resize before the image becomes a tensor",
        ),
        Interpolation::Bicubic => Ok(Filter::Bicubic),
        Interpolation::Box | Interpolation::Hamming | Interpolation::Lanczos => {
            unsupported("this interpolation is not served", "take bilinear, bicubic or nearest")
        }
    }
}

/// `fill` as pixels, for padding after the value entries `before`.
fn pad(padding: Padding, fill: Fill, mode: PaddingMode, before: &ValueOps) -> Result<[u8; 3]> {
    let Padding { left, top, right, bottom } = padding;
    if let Some(border) = [left, top, right, bottom].into_iter().find(|&border| border > SIDE_MAX) {
        return Err(invalid(format!("padding of {border} is over {SIDE_MAX}")));
    }
    if mode != PaddingMode::Constant {
        return Err(Error::new(ErrorKind::Unsupported, "only padding_mode \"constant\" is served"));
    }
    if before.normalize.is_some() {
        return Err(Error::new(ErrorKind::Unsupported, "padding after Normalize would be a value that no pixel has")
            .with_hint("put Normalize after the geometry"));
    }
    let white = if before.scale { 255.0 } else { 1.0 };
    let mut pixels = [0; 3];
    for (pixel, value) in pixels.iter_mut().zip(fill.0) {
        let level = value * white;
        if !(level.round() - level).abs().le(&1e-3) || !(0.0..=255.0).contains(&level.round()) {
            return Err(invalid(format!("fill {value} is not one of the 256 values of a pixel")));
        }
        *pixel = level.round() as u8;
    }
    Ok(pixels)
}
