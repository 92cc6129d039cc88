//! What is asked for to be done to pictures, and to which of a sample's fields.
//!
//! What a picture is and whether it can be done, `picture` says.

use serde::Serialize;

use crate::error::{Error, ErrorKind, Result};

/// What is done to pictures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PictureOptions {
    /// Makes pictures whose side is longer smaller, to this many pixels; none is ever made larger.
    pub resize: Option<u32>,
    /// Which side that is; the longer one by default.
    pub resize_by: ResizeBy,
    /// The quality of JPEG files that are encoded anew, 1 to 100; 90 by default.
    pub quality: u8,
    /// The format that pictures of other formats become; by default each keeps its own.
    pub format: PictureFormat,
    /// A restart marker before every so many rows of MCUs in baseline JPEG files, without loss; none by default.
    pub restart_rows: Option<u16>,
    /// Takes EXIF, comments, colour profiles and what stands behind the picture out.
    pub strip_metadata: bool,
    /// Turns pictures upright as their EXIF says: JPEG files without loss where their sides are whole MCUs.
    pub apply_orientation: bool,
    /// Extensions of the fields that all this is done to, in lower case. None, the default, means the one picture whose
    /// extension is its format alone: `jpg`, but not `seg.png`, which may be a mask.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
}

/// Which side of a picture is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ResizeBy {
    /// The longer one: both sides are at most as long as asked for.
    #[default]
    Longer,
    /// The shorter one, as for training crops.
    Shorter,
}

/// A format that pictures become.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PictureFormat {
    /// Each keeps its own; JPEG, PNG and WebP can be encoded anew, WebP without loss only.
    #[default]
    Keep,
    /// JPEG.
    Jpg,
    /// WebP without loss.
    WebP,
}

impl Default for PictureOptions {
    fn default() -> Self {
        Self {
            resize: None,
            resize_by: ResizeBy::default(),
            quality: 90,
            format: PictureFormat::default(),
            restart_rows: None,
            strip_metadata: false,
            apply_orientation: false,
            fields: Vec::new(),
        }
    }
}

impl PictureOptions {
    pub(in crate::convert) fn check(&self) -> Result<()> {
        let invalid = |message: String| Err(Error::new(ErrorKind::InvalidOption, message));
        match *self {
            Self { resize: Some(0), .. } => invalid("a picture cannot be resized to 0 pixels".into()),
            Self { restart_rows: Some(0), .. } => {
                invalid("restart markers stand before every 1 row of MCUs or more, not 0".into())
            }
            Self { quality, .. } if !(1..=100).contains(&quality) => {
                invalid(format!("quality {quality} is not in 1 to 100"))
            }
            _ => Ok(()),
        }
    }
}

impl PictureOptions {
    /// Whether anything is to be done.
    #[must_use]
    pub fn change_pictures(&self) -> bool {
        *self != Self { fields: self.fields.clone(), ..Self::default() }
    }

    /// Whether it is to be done to this field.
    pub(super) fn concern(&self, ext: &str) -> bool {
        match self.fields.as_slice() {
            [] => !ext.contains('.'),
            fields => fields.iter().any(|field| field == ext),
        }
    }
}

/// The size that a picture of `size` is to get; `None` where it is small enough.
pub(super) fn smaller((width, height): (u32, u32), max: u32, by: ResizeBy) -> Option<(u32, u32)> {
    let side = match by {
        ResizeBy::Longer => width.max(height),
        ResizeBy::Shorter => width.min(height),
    };
    if side <= max {
        return None;
    }
    let scaled = |length: u32| {
        ((u64::from(length) * u64::from(max) * 2 + u64::from(side)) / (2 * u64::from(side))).max(1) as u32
    };
    Some((scaled(width), scaled(height)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_made_smaller_and_never_larger() {
        let check = |size, max, by, expected| assert_eq!(smaller(size, max, by), expected, "{size:?} {max} {by:?}");
        check((500, 375), 256, ResizeBy::Longer, Some((256, 192)));
        check((375, 500), 256, ResizeBy::Shorter, Some((256, 341)));
        check((256, 100), 256, ResizeBy::Longer, None);
        check((10_000, 2), 256, ResizeBy::Longer, Some((256, 1)));
        check((300, 256), 256, ResizeBy::Shorter, None);
    }
}
