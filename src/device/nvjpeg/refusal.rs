//! Why an image is not decoded by the JPEG engines. It says nothing about what becomes of the image instead.

use std::fmt;

/// A reason; printed, it completes "the engines did not decode it: ".
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// It is no JPEG.
    Format,
    /// It is no baseline JPEG of 8 bits with one scan.
    Coding,
    /// The file is cut.
    Incomplete,
    /// It has other components than grey or three of YCbCr.
    Colors,
    /// Its chroma is subsampled in a way that the engines do not read.
    Sampling,
    /// It must be turned by its EXIF orientation, which happens after decoding on the CPU.
    Orientation,
    /// Decoded it takes more bytes than one image may.
    Size {
        /// Bytes that it would take.
        bytes: usize,
        /// Most bytes of one image.
        max: usize,
    },
    /// Its markers are damaged, behind its header or in it.
    Damaged,
    /// Its file is larger than one image's may be.
    FileSize {
        /// Bytes of the file.
        bytes: usize,
        /// Most bytes of one file.
        max: usize,
    },
    /// Its transform is more than one crop, resize and flip, or its result has another size than the rows.
    Geometry,
    /// The sub-batch had no room left for it.
    Full,
    /// The library does not take it, whatever its header says here; with the library's status if there is one.
    Unsupported(Option<String>),
    /// Its bytes changed while they were read.
    Changed,
    /// So many rows are held by batches that there is no memory for more.
    RowsHeld,
    /// The sub-batch that it was in failed, with the library's status.
    Batch(String),
    /// The engines reported success, and some of its pixels were never written.
    Unwritten {
        /// Probed pixels that still held the pattern.
        pixels: u32,
    },
    /// The GPU or its driver failed.
    Device(String),
}

impl Refusal {
    /// Whether the engines failed at an image that they should have decoded. The others are no surprise: such images
    /// belong on the CPU.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::Batch(_) | Self::Unwritten { .. } | Self::Device(_))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format => f.write_str("it is no JPEG"),
            Self::Coding => f.write_str("it is no baseline JPEG of 8 bits with one scan"),
            Self::Incomplete => f.write_str("the file is cut"),
            Self::Colors => f.write_str("its colours are neither grey nor YCbCr"),
            Self::Sampling => f.write_str("its chroma subsampling is none of 4:4:4, 4:2:2, 4:2:0 and 4:4:0"),
            Self::Orientation => f.write_str("it must be turned upright"),
            Self::Size { bytes, max } => write!(f, "decoded it takes {bytes} bytes, and one image may take {max}"),
            Self::FileSize { bytes, max } => write!(f, "its file has {bytes} bytes, and one file may have {max}"),
            Self::Geometry => f.write_str("its transform is not one crop, resize and flip to the rows' size"),
            Self::Full => f.write_str("the sub-batch had no room left"),
            Self::Unsupported(None) => f.write_str("nvJPEG says that the engines do not take it"),
            Self::Unsupported(Some(status)) => write!(f, "nvJPEG does not take it ({status})"),
            Self::Damaged => f.write_str("its markers are damaged"),
            Self::Changed => f.write_str("its bytes changed while they were read"),
            Self::RowsHeld => f.write_str("batches hold as many rows as there may be"),
            Self::Batch(status) => write!(f, "its sub-batch failed ({status})"),
            Self::Unwritten { pixels } => {
                write!(f, "the engines reported success and left it unwritten ({pixels} probed pixels)")
            }
            Self::Device(what) => write!(f, "the GPU failed ({what})"),
        }
    }
}
