//! Reads by io_uring: one thread has many requests under way. Without the feature `io-uring`, or where the kernel forbids
//! it, it says so and reads nothing.

/// Requests under way in one thread at most.
pub const DEPTH_MAX: usize = 1024;

#[cfg(all(feature = "io-uring", target_os = "linux"))]
mod ring;
#[cfg(all(feature = "io-uring", target_os = "linux"))]
mod store;

#[cfg(all(feature = "io-uring", target_os = "linux"))]
pub(super) use ring::{Queue, check};
#[cfg(all(feature = "io-uring", target_os = "linux"))]
use store::UringStore;

#[cfg(not(all(feature = "io-uring", target_os = "linux")))]
mod absent;

#[cfg(not(all(feature = "io-uring", target_os = "linux")))]
pub(super) use absent::{Queue, check};

use std::path::Path;

use crate::error::Result;
use crate::shard::Store;

/// Opens the file at `path` as a shard's store that reads by io_uring past the page cache.
///
/// # Errors
/// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) where this build, the kernel or the file system cannot; those of opening the file.
pub fn open_store(path: &Path) -> Result<Box<dyn Store>> {
    #[cfg(all(feature = "io-uring", target_os = "linux"))]
    return Ok(Box::new(UringStore::open(path)?));
    #[cfg(not(all(feature = "io-uring", target_os = "linux")))]
    {
        let _ = path;
        Err(absent::error())
    }
}
