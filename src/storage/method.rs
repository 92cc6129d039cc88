//! How bytes come out of a file, by name, and whether a machine can. The reading itself is in `source` and `uring`.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::shard::direct::DirectFile;

/// How bytes come out of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Method {
    /// A memory map of which one byte a page is touched; the kernel reads ahead as it likes.
    #[serde(rename = "mmap")]
    Mmap,
    /// A memory map whose pages are brought in by `madvise`, as the loader's maps are.
    #[serde(rename = "mmap+populate")]
    MmapPopulate,
    /// `pread` through the page cache.
    #[serde(rename = "pread")]
    Pread,
    /// `pread` past the page cache (`O_DIRECT`).
    #[serde(rename = "direct")]
    Direct,
    /// io_uring past the page cache: many requests of one thread at once.
    #[serde(rename = "uring")]
    Uring,
    /// The same into buffers that the kernel knows beforehand.
    #[serde(rename = "uring+registered")]
    UringRegistered,
}

impl Method {
    /// All methods, the simplest first.
    pub const ALL: [Self; 6] =
        [Self::Mmap, Self::MmapPopulate, Self::Pread, Self::Direct, Self::Uring, Self::UringRegistered];

    /// The method as one word, as arguments and documents spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mmap => "mmap",
            Self::MmapPopulate => "mmap+populate",
            Self::Pread => "pread",
            Self::Direct => "direct",
            Self::Uring => "uring",
            Self::UringRegistered => "uring+registered",
        }
    }

    /// Whether bytes pass the page cache by: then there is nothing that could be warm.
    #[must_use]
    pub fn is_direct(self) -> bool {
        matches!(self, Self::Direct | Self::Uring | Self::UringRegistered)
    }

    /// Whether one thread has several requests under way.
    #[must_use]
    pub fn has_depth(self) -> bool {
        matches!(self, Self::Uring | Self::UringRegistered)
    }

    /// Makes sure that this build and this machine can read the file at `path` so.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) that says what is missing; those of opening the file.
    pub fn check(self, path: &Path) -> Result<()> {
        if self.is_direct() {
            DirectFile::open(path)?;
        }
        if self.has_depth() { super::uring::check(self == Self::UringRegistered) } else { Ok(()) }
    }
}
