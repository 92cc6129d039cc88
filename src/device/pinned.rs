//! Page-locked host memory: batches filled here are copied to the GPU by its copy engine, at full rate and without the
//! CPU. It is cached memory, since decode threads read what they wrote; it pools nothing.

use std::ptr::NonNull;

use cudarc::driver::{result, sys};

use super::stream::{Gpu, failed};
use crate::batch::{HostAllocator, HostMemory};
use crate::{Error, ErrorKind, Result};

/// Gives page-locked memory, usable by every GPU of the process.
///
/// Page-locking is slow (the driver locks page by page, under a lock of its own): take slabs of whole batches and keep
/// them, as [`BufferPool`](crate::batch::BufferPool) does.
#[derive(Debug, Clone)]
pub struct PinnedAllocator {
    gpu: Gpu,
}

impl PinnedAllocator {
    /// An allocator that works in the context of `gpu`.
    #[must_use]
    pub fn new(gpu: Gpu) -> Self {
        Self { gpu }
    }
}

impl HostAllocator for PinnedAllocator {
    fn allocate(&self, len: usize) -> Result<HostMemory> {
        // SAFETY: the context is current on this thread; the result is checked.
        let work = || unsafe { result::malloc_host(len.max(1), sys::CU_MEMHOSTALLOC_PORTABLE) };
        let allocated = self.gpu.with_context(work)?;
        let ptr = allocated.map_err(|error| {
            let error = failed(&format!("no page-locked memory for a batch of {len} bytes"), error);
            error.with_hint("use a smaller batch size or fewer prefetched batches; containers may limit locked memory")
        })?;
        let ptr = NonNull::new(ptr.cast::<u8>())
            .ok_or_else(|| Error::new(ErrorKind::Device, "the driver gave no page-locked memory and no error"))?;
        // SAFETY: the driver gave `len` bytes at `ptr`, to this call alone; bytes of any value may be overwritten.
        unsafe { ptr.write_bytes(0, len) };
        let gpu = self.gpu.clone();
        let release = move |ptr: NonNull<u8>, _len: usize| {
            // At the end of the process the driver may be gone, and the lock on the pages with it.
            let _ = gpu.with_context(|| {
                // SAFETY: called once, by the owner of the block, with the address that the driver gave. Copies from
                // it are over: whoever starts one keeps the block until its event has passed.
                unsafe { result::free_host(ptr.as_ptr().cast()) }
            });
        };
        // SAFETY: `len` zeroed bytes, page-aligned as the driver gives them, owned by nobody else; `release` frees
        // them and binds the context itself, so any thread may call it.
        Ok(unsafe { HostMemory::from_raw(ptr, len, Box::new(release)) })
    }
}
