//! The EXIF orientation: how a stored picture must be turned to stand upright.
//!
//! It reads that one tag and nothing else of EXIF.

/// How the stored rows and columns become an upright picture, named after what must be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Orientation {
    /// 1, or no tag, or an illegal one: nothing is done.
    #[default]
    Upright,
    /// 2: mirror left and right.
    FlipHorizontal,
    /// 3: turn by 180 degrees.
    Rotate180,
    /// 4: mirror top and bottom.
    FlipVertical,
    /// 5: mirror at the main diagonal; rows become columns.
    Transpose,
    /// 6: turn clockwise by 90 degrees.
    Rotate90,
    /// 7: mirror at the other diagonal.
    Transverse,
    /// 8: turn clockwise by 270 degrees.
    Rotate270,
}

impl Orientation {
    /// The orientation of a tag's value; values outside 1 to 8 are upright, as Pillow treats them.
    #[must_use]
    pub fn from_tag(value: u32) -> Self {
        match value {
            2 => Self::FlipHorizontal,
            3 => Self::Rotate180,
            4 => Self::FlipVertical,
            5 => Self::Transpose,
            6 => Self::Rotate90,
            7 => Self::Transverse,
            8 => Self::Rotate270,
            _ => Self::Upright,
        }
    }

    /// Whether width and height change places.
    #[must_use]
    pub fn swaps_axes(self) -> bool {
        matches!(self, Self::Transpose | Self::Rotate90 | Self::Transverse | Self::Rotate270)
    }
}
