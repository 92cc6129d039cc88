//! Host memory for whole batches: allocated by a [`HostAllocator`], reused through a [`BufferPool`], filled by many
//! threads through disjoint [`Slot`]s. It knows bytes and rows, not what they mean.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Error, ErrorKind, Result};

/// Alignment of every host buffer in bytes: a page, so that no two buffers share one.
pub const BUFFER_ALIGN: usize = 4096;

/// Buffers from this size on ask for huge pages: a batch of float images spans tens of thousands of small ones.
#[cfg(all(target_os = "linux", not(miri)))]
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Where batch memory comes from: ordinary memory here, page-locked memory in the device layer.
pub trait HostAllocator: Send + Sync + fmt::Debug {
    /// Allocates `len` zeroed bytes aligned to [`BUFFER_ALIGN`].
    ///
    /// # Errors
    /// [`ErrorKind::Limit`] when the memory cannot be had.
    fn allocate(&self, len: usize) -> Result<HostMemory>;
}

/// One owned, zero-initialised block of host memory.
///
/// Invariant: `ptr` points to `len` initialised bytes that nothing else reads or writes while this value lives,
/// and `release` frees exactly them.
pub struct HostMemory {
    ptr: NonNull<u8>,
    len: usize,
    release: Option<Release>,
}

/// Frees one block, given its address and length, on whichever thread lets go of it.
pub type Release = Box<dyn FnOnce(NonNull<u8>, usize) + Send + Sync>;

// SAFETY: by the type's invariant the block is owned by this value alone, like a `Box<[u8]>`.
unsafe impl Send for HostMemory {}
// SAFETY: a shared reference gives only shared access to the bytes, like `&[u8]`.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// Wraps a block made by an allocator.
    ///
    /// # Safety
    /// `ptr` must point to `len` initialised bytes, aligned to [`BUFFER_ALIGN`], owned by the caller alone and given
    /// up to the new value; `release(ptr, len)` must free them and be callable from any thread.
    #[must_use]
    pub unsafe fn from_raw(ptr: NonNull<u8>, len: usize, release: Release) -> Self {
        Self { ptr, len, release: Some(release) }
    }
}

impl Deref for HostMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the type's invariant: `len` initialised bytes, owned by `self`.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for HostMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the type's invariant, and `&mut self` excludes every other access.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            release(self.ptr, self.len);
        }
    }
}

impl fmt::Debug for HostMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostMemory").field("len", &self.len).finish()
    }
}

/// Ordinary pageable memory, with huge pages where the system gives them.
#[derive(Debug, Clone, Copy, Default)]
pub struct PageableAllocator;

impl HostAllocator for PageableAllocator {
    fn allocate(&self, len: usize) -> Result<HostMemory> {
        #[cfg(all(target_os = "linux", not(miri)))]
        if len >= HUGE_PAGE_BYTES {
            return map_pages(len);
        }
        let layout = std::alloc::Layout::from_size_align(len.max(1), BUFFER_ALIGN)
            .map_err(|_| Error::new(ErrorKind::Limit, format!("a batch of {len} bytes is too large to allocate")))?;
        // SAFETY: the layout has a size of at least one byte.
        let ptr = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).ok_or_else(|| no_memory(len))?;
        // SAFETY: `alloc_zeroed` gave us `len` zeroed bytes of this layout, which `free_pageable` frees.
        Ok(unsafe { HostMemory::from_raw(ptr, len, Box::new(free_pageable)) })
    }
}

/// Pages that the system zeroes when they are first touched: by the many threads that fill a batch, where the allocator
/// would have the one that asks for it zero them all before the first row can begin.
#[cfg(all(target_os = "linux", not(miri)))]
fn map_pages(len: usize) -> Result<HostMemory> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    fn unmap_pages(ptr: NonNull<u8>, len: usize) {
        // SAFETY: called once, by `HostMemory::drop`, with the whole of a mapping that nothing else refers to.
        let _ = unsafe { munmap(ptr.as_ptr().cast(), len) };
    }

    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a mapping of its own, at an address that the system chooses, takes the place of no other.
    let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, MapFlags::PRIVATE) };
    let ptr = mapped.ok().and_then(|ptr| NonNull::new(ptr.cast::<u8>())).ok_or_else(|| no_memory(len))?;
    // SAFETY: the range is exactly the mapping above; this advice changes no contents. A refusal costs only speed, so
    // its result is dropped.
    let _ = unsafe { madvise(ptr.as_ptr().cast(), len, Advice::LinuxHugepage) };
    // SAFETY: `len` bytes that read as zeros, at the start of a page, known to nobody else; `unmap_pages` frees them.
    Ok(unsafe { HostMemory::from_raw(ptr, len, Box::new(unmap_pages)) })
}

fn no_memory(len: usize) -> Error {
    Error::new(ErrorKind::Limit, format!("no memory for a batch of {len} bytes"))
        .with_hint("use a smaller batch size, fewer prefetched batches or a smaller image")
}

fn free_pageable(ptr: NonNull<u8>, len: usize) {
    if let Ok(layout) = std::alloc::Layout::from_size_align(len.max(1), BUFFER_ALIGN) {
        // SAFETY: called once, by `HostMemory::drop`, with the pointer and length that `allocate` made it of.
        unsafe { std::alloc::dealloc(ptr.as_ptr(), layout) };
    }
}

/// Keeps host memory for reuse: batches come and go, pages stay mapped.
///
/// It bounds what is *kept*, never what is lent: a user may hold as many batches as memory allows, while the number in
/// flight inside a loader is bounded by the loader itself.
#[derive(Debug)]
pub struct BufferPool {
    allocator: Arc<dyn HostAllocator>,
    kept_max: usize,
    kept: Mutex<Vec<HostMemory>>,
    allocated: AtomicUsize,
}

impl BufferPool {
    /// A pool over `allocator` that keeps at most `kept_max` free buffers.
    #[must_use]
    pub fn new(allocator: Arc<dyn HostAllocator>, kept_max: usize) -> Arc<Self> {
        Arc::new(Self { allocator, kept_max, kept: Mutex::new(Vec::new()), allocated: AtomicUsize::new(0) })
    }

    /// Lends a buffer of exactly `len` bytes; its content is unspecified (zero or a former batch).
    ///
    /// # Errors
    /// [`ErrorKind::Limit`] when the memory cannot be had.
    pub fn take(self: &Arc<Self>, len: usize) -> Result<HostBuffer> {
        let reused = {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.iter().position(|memory| memory.len() == len).map(|i| kept.swap_remove(i))
        };
        let memory = match reused {
            Some(memory) => memory,
            None => {
                self.allocated.fetch_add(1, Ordering::Relaxed);
                self.allocator.allocate(len)?
            }
        };
        Ok(HostBuffer { memory: Some(memory), pool: Arc::clone(self) })
    }

    /// How many buffers were ever allocated rather than reused.
    #[must_use]
    pub fn allocations(&self) -> usize {
        self.allocated.load(Ordering::Relaxed)
    }

    fn give_back(&self, memory: HostMemory) {
        if self.kept_max == 0 {
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= self.kept_max {
            // The oldest goes: after a change of the batch size it is the one of the wrong length.
            drop(kept.remove(0));
        }
        kept.push(memory);
    }
}

/// A lent buffer; it returns to its pool when dropped.
pub struct HostBuffer {
    memory: Option<HostMemory>,
    pool: Arc<BufferPool>,
}

impl Deref for HostBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.as_deref().unwrap_or_default()
    }
}

impl DerefMut for HostBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.memory.as_deref_mut().unwrap_or_default()
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.pool.give_back(memory);
        }
    }
}

impl fmt::Debug for HostBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostBuffer").field("len", &self.len()).finish()
    }
}

/// A buffer cut into `rows` equal slots that different threads fill at the same time.
///
/// Invariant: bit `r` of `claimed` is set by whoever makes the [`Slot`] of row `r` and cleared only when that slot is
/// dropped, so at most one slot of each row exists at any time.
pub struct Slots {
    buffer: HostBuffer,
    base: NonNull<u8>,
    row_bytes: usize,
    rows: usize,
    claimed: Box<[AtomicU64]>,
}

// SAFETY: `base` points into `buffer`, which is `Send`; access through it is handed out once a row.
unsafe impl Send for Slots {}
// SAFETY: `&Slots` gives mutable access to a row only through `claim`, and by the invariant to one slot at a time.
unsafe impl Sync for Slots {}

impl Slots {
    /// Cuts `buffer` into `rows` slots of `row_bytes` each.
    ///
    /// # Errors
    /// [`ErrorKind::Limit`] when the buffer is smaller than `rows * row_bytes`.
    pub fn new(mut buffer: HostBuffer, rows: usize, row_bytes: usize) -> Result<Self> {
        if rows.checked_mul(row_bytes).is_none_or(|bytes| bytes > buffer.len()) {
            let have = buffer.len();
            return Err(Error::new(
                ErrorKind::Limit,
                format!("{rows} rows of {row_bytes} bytes need more than {have}"),
            ));
        }
        let base = NonNull::from(&mut *buffer).cast();
        let claimed = (0..rows.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Ok(Self { buffer, base, row_bytes, rows, claimed })
    }

    /// The bytes of row `row`; `None` when the row does not exist or its slot is in someone's hands.
    #[must_use]
    pub fn claim(&self, row: usize) -> Option<Slot<'_>> {
        let word = self.claimed.get(row / 64).filter(|_| row < self.rows)?;
        let bit = 1u64 << (row % 64);
        // Acquire: what the row's former holder wrote is seen by this one.
        if word.fetch_or(bit, Ordering::Acquire) & bit != 0 {
            return None;
        }
        // SAFETY: `row < rows`, so the range lies inside the buffer (checked in `new`); by the type's invariant this
        // is the only slot of the row now, and rows do not overlap. The buffer lives as long as the borrow of `self`.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(row * self.row_bytes), self.row_bytes) };
        Some(Slot { bytes, word, bit })
    }

    /// The whole buffer, once no slot is borrowed any more.
    #[must_use]
    pub fn into_buffer(self) -> HostBuffer {
        self.buffer
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots").field("rows", &self.rows).field("row_bytes", &self.row_bytes).finish()
    }
}

/// Exclusive access to one row of a batch, given back when dropped.
#[derive(Debug)]
pub struct Slot<'a> {
    bytes: &'a mut [u8],
    word: &'a AtomicU64,
    bit: u64,
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.word.fetch_and(!self.bit, Ordering::Release);
    }
}

impl Deref for Slot<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl DerefMut for Slot<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(kept_max: usize) -> Arc<BufferPool> {
        BufferPool::new(Arc::new(PageableAllocator), kept_max)
    }

    #[test]
    fn a_row_has_one_holder_at_a_time() {
        let slots = Slots::new(pool(1).take(130 * 4).unwrap(), 130, 4).unwrap();
        let held = slots.claim(129);
        assert!(held.is_some());
        assert!(slots.claim(129).is_none());
        drop(held);
        assert!(slots.claim(129).is_some());
        assert!(slots.claim(130).is_none());
    }

    #[test]
    fn rows_filled_by_many_threads_do_not_overlap() {
        let slots = Slots::new(pool(1).take(64 * 100).unwrap(), 100, 64).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let slots = &slots;
                scope.spawn(move || {
                    for row in (thread..100).step_by(4) {
                        slots.claim(row).unwrap().fill(row as u8);
                    }
                });
            }
        });
        let buffer = slots.into_buffer();
        assert!(buffer.chunks(64).enumerate().all(|(row, bytes)| bytes.iter().all(|&b| b == row as u8)));
    }

    #[test]
    fn a_dropped_buffer_is_reused_and_the_pool_is_bounded() {
        let pool = pool(2);
        let first = pool.take(4096).unwrap().as_ptr();
        assert_eq!(pool.take(4096).unwrap().as_ptr(), first);
        let held: Vec<_> = (0..5).map(|_| pool.take(4096).unwrap()).collect();
        drop(held);
        assert_eq!(pool.kept.lock().unwrap().len(), 2);
        assert_eq!(pool.allocations(), 5);
    }

    #[test]
    fn a_buffer_of_another_length_is_not_reused() {
        let pool = pool(2);
        drop(pool.take(4096).unwrap());
        assert_eq!(pool.take(100).unwrap().len(), 100);
    }

    #[test]
    fn slots_larger_than_the_buffer_are_refused() {
        let buffer = pool(1).take(100).unwrap();
        assert_eq!(Slots::new(buffer, 26, 4).unwrap_err().kind(), ErrorKind::Limit);
        let buffer = pool(1).take(100).unwrap();
        assert_eq!(Slots::new(buffer, usize::MAX, 4).unwrap_err().kind(), ErrorKind::Limit);
    }

    #[test]
    fn memory_is_aligned_and_zeroed() {
        for len in [0, 1, 5000, (2 << 20) - 1, 2 << 20, (3 << 20) + 1] {
            let mut memory = PageableAllocator.allocate(len).unwrap();
            assert_eq!((memory.len(), memory.as_ptr() as usize % BUFFER_ALIGN), (len, 0));
            // Miri would take minutes to look at every byte.
            assert!(memory.iter().step_by(if cfg!(miri) { 4099 } else { 1 }).all(|&b| b == 0));
            memory.fill(7);
        }
    }

    #[test]
    #[cfg(not(miri))]
    fn more_memory_than_there_is_addresses_for_is_an_error() {
        for len in [usize::MAX, isize::MAX as usize - 4096] {
            assert_eq!(PageableAllocator.allocate(len).unwrap_err().kind(), ErrorKind::Limit);
        }
    }
}
