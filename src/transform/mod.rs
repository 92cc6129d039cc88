//! What torchvision's image transforms do to a picture, decided before its pixels exist: geometry, then numbers.
//!
//! A [`Compose`] resolves, for one image and one random stream, into a [`Geometry`]: the region to decode and
//! how to resample it. It is not a tensor library: it neither decodes nor fills batches, and transforms that
//! mix colours or warp are not here.
//!
//! # Rules
//!
//! Names, defaults and sampling rules are torchvision's (v1 and v2). Consecutive entries are folded into one
//! resampling *stage* wherever that leaves torchvision's pixels unchanged up to rounding: crops, flips, padding
//! and at most one resize. `Resize(256), CenterCrop(224)` is one stage that reads only the pixels that its
//! filter needs; `Resize, Resize` and `Pad, Resize` are two.
//!
//! Geometry is done on `u8`, as torchvision does it on PIL images, and the value entries follow at the end:
//!
//! | order | accepted |
//! |---|---|
//! | `ToImage`, `PILToTensor`, `ToDtype(uint8)` before geometry | yes, the same pixels (`antialias` then counts, as for torchvision's tensors) |
//! | `ToTensor`, `ConvertImageDtype`, `ToDtype(float32)` before crops, flips, padding | yes, exactly the same |
//! | the same before a bilinear or nearest resize | yes: torchvision would resample in floating point, so values differ by up to one step of `u8` (1/255) a resize |
//! | the same before a bicubic resize | refused: floating point keeps the overshoot that `u8` clips |
//! | `Normalize` before crops inside the image, flips, bilinear and nearest resizes | yes, as above |
//! | `Normalize` before anything that may pad or before a bicubic resize | refused |
//! | `Normalize` on a picture that no entry made a tensor | yes, short for `ToTensor, Normalize` |
//! | `Normalize` on `uint8` tensors | refused, as in torchvision |
//!
//! Before the first entry that makes a tensor `antialias` is ignored and resizing is antialiased, as
//! torchvision does with PIL images.
//!
//! # The JSON form
//!
//! [`Compose::from_json`] reads an array of objects, one a transform, in order; [`Compose::to_json`] writes it.
//! `name` is torchvision's class name, the other members are its arguments under torchvision's names; those
//! left out have torchvision's defaults, unknown ones are errors.
//!
//! ```
//! use brimful::transform::Compose;
//!
//! let compose = Compose::from_json(
//!     r#"[{"name": "RandomResizedCrop", "size": [224, 224]},
//!         {"name": "RandomHorizontalFlip", "p": 0.5},
//!         {"name": "ToTensor"},
//!         {"name": "Normalize", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}]"#,
//! )?;
//! assert_eq!(compose.output_size(), Some((224, 224)));
//! # Ok::<(), brimful::Error>(())
//! ```
//!
//! | name | members and defaults |
//! |---|---|
//! | `RandomResizedCrop` | `size`, `scale` [0.08, 1.0], `ratio` [3/4, 4/3], `interpolation` "bilinear", `antialias` true |
//! | `RandomCrop` | `size`, `padding` null, `pad_if_needed` false, `fill` 0, `padding_mode` "constant" |
//! | `CenterCrop` | `size` |
//! | `Resize` | `size`, `interpolation` "bilinear", `max_size` null, `antialias` true |
//! | `Pad` | `padding`, `fill` 0, `padding_mode` "constant" |
//! | `RandomHorizontalFlip`, `RandomVerticalFlip` | `p` 0.5 |
//! | `ToTensor`, `PILToTensor`, `ToImage` | |
//! | `ConvertImageDtype` | `dtype` "float32" (torchvision v1: divides by 255) |
//! | `ToDtype` | `dtype`, `scale` false (torchvision v2: multiplies by 1/255; also for v2's `ConvertImageDtype`, with `scale` true) |
//! | `Normalize` | `mean`, `std` (numbers or arrays) |
//!
//! `size` is `n`, `[n]` or `[height, width]`; in `Resize` the first two mean the shorter side, and `null` leaves
//! it to `max_size`. `padding` is `n`, `[n]`, `[left and right, top and bottom]` or `[left, top, right, bottom]`.
//! `fill` is a number or `[r, g, b]`. `interpolation` is "nearest", "nearest-exact", "bilinear" or "bicubic".
//! `dtype` is "uint8" or "float32". `antialias` is true, false or null.

mod compose;
mod arguments;
mod random;
mod step;
mod geometry;
mod axis;
mod crop;
mod size;
mod resize;
mod single;
mod value;

pub use arguments::{Fill, Interpolation, Padding, PaddingMode, ResizeSize, Size};
pub use compose::Compose;
pub use geometry::{Filter, Geometry, Stage};
pub use random::SampleRng;
pub use resize::Resampler;
pub use single::{ResampledAxis, SingleResample};
pub use value::{Dtype, Normalize, ValueOps, ValueTable};

use serde::{Deserialize, Serialize};

/// One entry of a [`Compose`]: a torchvision transform with its arguments, not yet validated.
///
/// The functions of this type make the common ones with torchvision's defaults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", deny_unknown_fields)]
#[non_exhaustive]
pub enum Transform {
    /// A crop of random area and aspect ratio, resized to `size`.
    RandomResizedCrop {
        /// Output size.
        size: Size,
        /// Least and greatest share of the image's area.
        #[serde(default = "arguments::default_scale")]
        scale: [f64; 2],
        /// Least and greatest aspect ratio, width by height, drawn on a logarithmic scale.
        #[serde(default = "arguments::default_ratio")]
        ratio: [f64; 2],
        /// The filter.
        #[serde(default)]
        interpolation: Interpolation,
        /// Whether the filter widens when it shrinks the image; counts for tensors only.
        #[serde(default = "arguments::default_antialias")]
        antialias: Option<bool>,
    },
    /// A crop of `size` at a random place.
    RandomCrop {
        /// Output size.
        size: Size,
        /// Padding added before the crop.
        #[serde(default)]
        padding: Option<Padding>,
        /// Whether images smaller than `size` are padded instead of refused.
        #[serde(default)]
        pad_if_needed: bool,
        /// The padding's value.
        #[serde(default)]
        fill: Fill,
        /// The padding's kind.
        #[serde(default)]
        padding_mode: PaddingMode,
    },
    /// The middle of the image; a side that is too short is padded with 0.
    CenterCrop {
        /// Output size.
        size: Size,
    },
    /// A resize of the whole image.
    Resize {
        /// Output size.
        size: ResizeSize,
        /// The filter.
        #[serde(default)]
        interpolation: Interpolation,
        /// Longest side allowed, in pixels; not with an exact size.
        #[serde(default)]
        max_size: Option<u32>,
        /// Whether the filter widens when it shrinks the image; counts for tensors only.
        #[serde(default = "arguments::default_antialias")]
        antialias: Option<bool>,
    },
    /// Borders around the image.
    Pad {
        /// Their widths in pixels.
        padding: Padding,
        /// Their value.
        #[serde(default)]
        fill: Fill,
        /// Their kind.
        #[serde(default)]
        padding_mode: PaddingMode,
    },
    /// Swaps left and right.
    RandomHorizontalFlip {
        /// How often, 0 to 1.
        #[serde(default = "arguments::default_probability")]
        p: f64,
    },
    /// Swaps top and bottom.
    RandomVerticalFlip {
        /// How often, 0 to 1.
        #[serde(default = "arguments::default_probability")]
        p: f64,
    },
    /// `f32` in [0, 1]: divided by 255.
    ToTensor {},
    /// A tensor of `u8`, numbers as they are.
    #[serde(rename = "PILToTensor")]
    PilToTensor {},
    /// A tensor of `u8`, numbers as they are.
    ToImage {},
    /// Another dtype; to floating point it divides by 255.
    ConvertImageDtype {
        /// The new dtype.
        #[serde(default)]
        dtype: Dtype,
    },
    /// Another dtype; to floating point it multiplies by 1/255 if `scale`.
    ToDtype {
        /// The new dtype.
        dtype: Dtype,
        /// Whether [0, 255] becomes [0, 1].
        #[serde(default)]
        scale: bool,
    },
    /// Subtracts `mean`, then divides by `std`, a value for each channel or one for all.
    Normalize {
        /// What is subtracted.
        #[serde(deserialize_with = "arguments::one_or_many")]
        mean: Vec<f64>,
        /// What is divided by, not 0.
        #[serde(deserialize_with = "arguments::one_or_many")]
        std: Vec<f64>,
    },
}

impl Transform {
    /// `RandomResizedCrop(size)`: area 0.08 to 1, aspect ratio 3/4 to 4/3, bilinear.
    #[must_use]
    pub fn random_resized_crop(size: impl Into<Size>) -> Self {
        Self::RandomResizedCrop {
            size: size.into(),
            scale: arguments::default_scale(),
            ratio: arguments::default_ratio(),
            interpolation: Interpolation::default(),
            antialias: arguments::default_antialias(),
        }
    }

    /// `RandomCrop(size)` without padding.
    #[must_use]
    pub fn random_crop(size: impl Into<Size>) -> Self {
        Self::RandomCrop {
            size: size.into(),
            padding: None,
            pad_if_needed: false,
            fill: Fill::default(),
            padding_mode: PaddingMode::default(),
        }
    }

    /// `CenterCrop(size)`.
    #[must_use]
    pub fn center_crop(size: impl Into<Size>) -> Self {
        Self::CenterCrop { size: size.into() }
    }

    /// `Resize(size)`, bilinear: a number is the shorter side, a pair is exact.
    #[must_use]
    pub fn resize(size: impl Into<ResizeSize>) -> Self {
        Self::Resize {
            size: size.into(),
            interpolation: Interpolation::default(),
            max_size: None,
            antialias: arguments::default_antialias(),
        }
    }

    /// `RandomHorizontalFlip(p)`.
    #[must_use]
    pub fn random_horizontal_flip(p: f64) -> Self {
        Self::RandomHorizontalFlip { p }
    }

    /// `Normalize(mean, std)`.
    #[must_use]
    pub fn normalize(mean: &[f64], std: &[f64]) -> Self {
        Self::Normalize { mean: mean.to_vec(), std: std.to_vec() }
    }

    /// Every `name` of the JSON form.
    pub const NAMES: [&'static str; 13] = [
        "RandomResizedCrop",
        "RandomCrop",
        "CenterCrop",
        "Resize",
        "Pad",
        "RandomHorizontalFlip",
        "RandomVerticalFlip",
        "ToTensor",
        "PILToTensor",
        "ToImage",
        "ConvertImageDtype",
        "ToDtype",
        "Normalize",
    ];

    /// The transform's `name` in the JSON form.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::RandomResizedCrop { .. } => "RandomResizedCrop",
            Self::RandomCrop { .. } => "RandomCrop",
            Self::CenterCrop { .. } => "CenterCrop",
            Self::Resize { .. } => "Resize",
            Self::Pad { .. } => "Pad",
            Self::RandomHorizontalFlip { .. } => "RandomHorizontalFlip",
            Self::RandomVerticalFlip { .. } => "RandomVerticalFlip",
            Self::ToTensor {} => "ToTensor",
            Self::PilToTensor {} => "PILToTensor",
            Self::ToImage {} => "ToImage",
            Self::ConvertImageDtype { .. } => "ConvertImageDtype",
            Self::ToDtype { .. } => "ToDtype",
            Self::Normalize { .. } => "Normalize",
        }
    }
}
