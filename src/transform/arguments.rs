//! The shapes that torchvision's arguments come in: sizes, padding, fill values, interpolation.
//!
//! Only their form is checked here; whether values make sense is [`Compose`](super::Compose)'s to say.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// A height and a width in pixels; a single number is both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "OneOrMany<u32>", into = "[u32; 2]")]
pub struct Size {
    /// Rows.
    pub height: u32,
    /// Columns.
    pub width: u32,
}

/// What `Resize` makes of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Option<OneOrMany<u32>>", into = "Option<OneOrMany<u32>>")]
pub enum ResizeSize {
    /// The shorter side becomes so many pixels, the aspect ratio stays.
    Shorter(u32),
    /// The longer side becomes `max_size` pixels, the aspect ratio stays.
    Longer,
    /// Exactly this size.
    Exact(Size),
}

/// Widths of the borders around an image, in pixels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "OneOrMany<u32>", into = "[u32; 4]")]
pub struct Padding {
    /// Columns before the first.
    pub left: u32,
    /// Rows above the first.
    pub top: u32,
    /// Columns after the last.
    pub right: u32,
    /// Rows below the last.
    pub bottom: u32,
}

/// What padding is filled with: one number for all channels, or red, green and blue.
///
/// In the units of the values where it stands: 0 to 255, or 0 to 1 once an entry has scaled them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Option<OneOrMany<f64>>", into = "OneOrMany<f64>")]
pub struct Fill(pub [f64; 3]);

/// How padding is made. Only `Constant` can be compiled; the others are refused by `Compose`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum PaddingMode {
    /// One value.
    #[default]
    Constant,
    /// The pixel at the edge, repeated.
    Edge,
    /// Mirrored without the pixel at the edge.
    Reflect,
    /// Mirrored with the pixel at the edge.
    Symmetric,
}

/// How pixels between pixels are made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Interpolation {
    /// The pixel under the centre of the new one.
    Nearest,
    /// The same under the name that torchvision has for it on tensors.
    NearestExact,
    /// The triangle filter.
    #[default]
    Bilinear,
    /// The cubic filter with a = -0.5, PIL's.
    Bicubic,
    /// Refused by `Compose`.
    Box,
    /// Refused by `Compose`.
    Hamming,
    /// Refused by `Compose`.
    Lanczos,
}

/// A number, or an array of them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a number that is not negative or an array of such numbers")]
pub(super) enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T: Copy> OneOrMany<T> {
    fn as_slice(&self) -> &[T] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

impl From<u32> for Size {
    fn from(side: u32) -> Self {
        Self { height: side, width: side }
    }
}

impl From<(u32, u32)> for Size {
    /// (height, width), as torchvision orders them.
    fn from((height, width): (u32, u32)) -> Self {
        Self { height, width }
    }
}

impl From<Size> for [u32; 2] {
    fn from(size: Size) -> Self {
        [size.height, size.width]
    }
}

impl TryFrom<OneOrMany<u32>> for Size {
    type Error = String;

    fn try_from(size: OneOrMany<u32>) -> Result<Self, String> {
        match *size.as_slice() {
            [side] => Ok(side.into()),
            [height, width] => Ok(Self { height, width }),
            _ => Err("a size is one number or [height, width]".into()),
        }
    }
}

impl From<u32> for ResizeSize {
    fn from(shorter: u32) -> Self {
        Self::Shorter(shorter)
    }
}

impl From<(u32, u32)> for ResizeSize {
    /// (height, width), as torchvision orders them.
    fn from(size: (u32, u32)) -> Self {
        Self::Exact(size.into())
    }
}

impl From<ResizeSize> for Option<OneOrMany<u32>> {
    fn from(size: ResizeSize) -> Self {
        match size {
            ResizeSize::Shorter(side) => Some(OneOrMany::One(side)),
            ResizeSize::Longer => None,
            ResizeSize::Exact(Size { height, width }) => Some(OneOrMany::Many(vec![height, width])),
        }
    }
}

impl TryFrom<Option<OneOrMany<u32>>> for ResizeSize {
    type Error = String;

    fn try_from(size: Option<OneOrMany<u32>>) -> Result<Self, String> {
        let Some(size) = size else { return Ok(Self::Longer) };
        match *size.as_slice() {
            [side] => Ok(Self::Shorter(side)),
            [height, width] => Ok(Self::Exact(Size { height, width })),
            _ => Err("a size is one number, [height, width] or null".into()),
        }
    }
}

impl From<u32> for Padding {
    fn from(all: u32) -> Self {
        Self { left: all, top: all, right: all, bottom: all }
    }
}

impl From<Padding> for [u32; 4] {
    fn from(padding: Padding) -> Self {
        [padding.left, padding.top, padding.right, padding.bottom]
    }
}

impl TryFrom<OneOrMany<u32>> for Padding {
    type Error = String;

    fn try_from(padding: OneOrMany<u32>) -> Result<Self, String> {
        match *padding.as_slice() {
            [all] => Ok(all.into()),
            [x, y] => Ok(Self { left: x, top: y, right: x, bottom: y }),
            [left, top, right, bottom] => Ok(Self { left, top, right, bottom }),
            _ => Err("padding is 1, 2 or 4 numbers".into()),
        }
    }
}

impl Default for Fill {
    fn default() -> Self {
        Self([0.0; 3])
    }
}

impl From<f64> for Fill {
    fn from(all: f64) -> Self {
        Self([all; 3])
    }
}

impl From<Fill> for OneOrMany<f64> {
    fn from(Fill([red, green, blue]): Fill) -> Self {
        if red == green && green == blue { Self::One(red) } else { Self::Many(vec![red, green, blue]) }
    }
}

impl TryFrom<Option<OneOrMany<f64>>> for Fill {
    type Error = String;

    fn try_from(fill: Option<OneOrMany<f64>>) -> Result<Self, String> {
        let Some(fill) = fill else { return Ok(Self::default()) };
        match *fill.as_slice() {
            [all] => Ok(all.into()),
            [red, green, blue] => Ok(Self([red, green, blue])),
            _ => Err("a fill is one number or [red, green, blue]".into()),
        }
    }
}

/// Share of the area that `RandomResizedCrop` keeps.
pub(super) fn default_scale() -> [f64; 2] {
    [0.08, 1.0]
}

/// Aspect ratios of `RandomResizedCrop`.
pub(super) fn default_ratio() -> [f64; 2] {
    [3.0 / 4.0, 4.0 / 3.0]
}

/// `antialias` of torchvision's resizing transforms.
#[expect(clippy::unnecessary_wraps, reason = "the default of an optional member")]
pub(super) fn default_antialias() -> Option<bool> {
    Some(true)
}

/// How often a random flip flips.
pub(super) fn default_probability() -> f64 {
    0.5
}

/// A vector that may be written as one number.
pub(super) fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
    let numbers = OneOrMany::<f64>::deserialize(deserializer)?;
    match numbers.as_slice() {
        [] => Err(D::Error::custom("an empty array")),
        numbers => Ok(numbers.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: for<'de> Deserialize<'de> + PartialEq + std::fmt::Debug>(json: &str, expected: Option<T>) {
        assert_eq!(serde_json::from_str(json).ok(), expected, "{json}");
    }

    #[test]
    fn sizes_come_in_torchvisions_forms() {
        check("7", Some(Size { height: 7, width: 7 }));
        check("[7]", Some(Size { height: 7, width: 7 }));
        check("[7, 9]", Some(Size { height: 7, width: 9 }));
        check::<Size>("[7, 9, 1]", None);
        check::<Size>("-7", None);
        check("7", Some(ResizeSize::Shorter(7)));
        check("[7]", Some(ResizeSize::Shorter(7)));
        check("null", Some(ResizeSize::Longer));
        check("[7, 7]", Some(ResizeSize::Exact(7.into())));
    }

    #[test]
    fn padding_and_fill_come_in_torchvisions_forms() {
        check("3", Some(Padding::from(3)));
        check("[1, 2]", Some(Padding { left: 1, top: 2, right: 1, bottom: 2 }));
        check("[1, 2, 3, 4]", Some(Padding { left: 1, top: 2, right: 3, bottom: 4 }));
        check::<Padding>("[1, 2, 3]", None);
        check("0.5", Some(Fill([0.5; 3])));
        check("[1, 2, 3]", Some(Fill([1.0, 2.0, 3.0])));
        check("null", Some(Fill::default()));
        check::<Fill>("[1, 2]", None);
    }
}
