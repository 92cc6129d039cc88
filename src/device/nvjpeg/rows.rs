//! Rows that the JPEG engines' sub-batches were made into, and the memory they lie in: a buffer a sub-batch, lent until
//! its last row is let go of, then written again. It decodes nothing and waits for nothing on the host.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaEvent, CudaStream};

use crate::Result;
use crate::device::stream::{DeviceMemory, Gpu, failed};

/// One finished image: `[H, W, 3]`, `u8`, contiguous, in device memory.
///
/// It may be read by any stream from the moment it is there. Before it is dropped its readers must be over, or known:
/// see [`read_by`](Self::read_by).
#[derive(Debug, Clone)]
pub struct EngineRow {
    rows: Arc<EngineRows>,
    index: usize,
}

impl EngineRow {
    pub(super) fn new(rows: &Arc<EngineRows>, index: usize) -> Self {
        Self { rows: Arc::clone(rows), index }
    }

    /// Address of its first byte.
    #[must_use]
    pub fn address(&self) -> CUdeviceptr {
        self.rows.address(self.index)
    }

    /// Its size in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.row_bytes
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.row_bytes == 0
    }

    /// Its place in the sub-batch.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Says that work before `event` reads rows of this sub-batch: it can be dropped at once then, and the memory is
    /// written again only after the event has passed.
    ///
    /// Record the event first. One call for all rows of a sub-batch that the same work reads is enough.
    pub fn read_by(&self, event: &Arc<CudaEvent>) {
        let mut readers = self.rows.readers.lock().unwrap_or_else(PoisonError::into_inner);
        if !readers.iter().any(|known| Arc::ptr_eq(known, event)) {
            readers.push(Arc::clone(event));
        }
    }
}

/// The rows of one sub-batch.
#[derive(Debug)]
pub(super) struct EngineRows {
    /// There until the drop.
    buffer: Option<DeviceMemory>,
    row_bytes: usize,
    readers: Mutex<Vec<Arc<CudaEvent>>>,
    /// Readers of what lay there before, and whether a writer waits for them.
    former: Vec<Arc<CudaEvent>>,
    is_open: AtomicBool,
    pool: Weak<RowPool>,
    stream: Arc<CudaStream>,
}

impl EngineRows {
    /// Has `writer` wait for the readers of what lay there before; from then on it may write.
    ///
    /// # Errors
    /// What the driver says.
    pub(super) fn open_to(&self, writer: &CudaStream) -> Result<()> {
        let wait = |event: &Arc<CudaEvent>| writer.wait(event);
        self.former.iter().try_for_each(wait).map_err(|error| failed("cannot wait for readers of rows", error))?;
        self.is_open.store(true, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn address(&self, index: usize) -> CUdeviceptr {
        self.buffer.as_ref().map_or(0, |buffer| buffer.address() + (index * self.row_bytes) as u64)
    }
}

impl Drop for EngineRows {
    fn drop(&mut self) {
        let Some(buffer) = self.buffer.take() else { return };
        let mut readers = std::mem::take(self.readers.get_mut().unwrap_or_else(PoisonError::into_inner));
        // The writer waited for the former ones, and its slot for the writer; unless it failed before.
        if !*self.is_open.get_mut() {
            readers.append(&mut self.former);
        }
        match self.pool.upgrade() {
            Some(pool) => pool.give_back(buffer, readers),
            None => free_after(buffer, &readers, &self.stream),
        }
    }
}

/// Buffers for the rows of sub-batches.
#[derive(Debug)]
pub(super) struct RowPool {
    gpu: Gpu,
    /// Buffers are allocated and freed in its order; nothing else runs on it.
    stream: Arc<CudaStream>,
    buffer_bytes: usize,
    row_bytes: usize,
    buffers_max: usize,
    idle: Mutex<Idle>,
}

#[derive(Debug, Default)]
struct Idle {
    buffers: Vec<(DeviceMemory, Vec<Arc<CudaEvent>>)>,
    /// Buffers that exist, lent ones included.
    made: usize,
}

impl RowPool {
    /// A pool of at most `buffers_max` buffers of `rows` rows.
    pub(super) fn new(gpu: &Gpu, rows: usize, row_bytes: usize, buffers_max: usize) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            gpu: gpu.clone(),
            stream: gpu.stream()?,
            buffer_bytes: rows * row_bytes,
            row_bytes,
            buffers_max,
            idle: Mutex::default(),
        }))
    }

    /// A buffer for the rows of one sub-batch; `None` when all are lent.
    ///
    /// # Errors
    /// [`ErrorKind::Limit`](crate::ErrorKind::Limit) when there is no memory, or what the driver says.
    pub(super) fn take(self: &Arc<Self>) -> Result<Option<Arc<EngineRows>>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let (buffer, former) = match idle.buffers.pop() {
            Some(known) => known,
            None if idle.made == self.buffers_max => return Ok(None),
            None => {
                let buffer = self.gpu.allocate(&self.stream, self.buffer_bytes)?;
                // Other streams will use it: the allocation must be there before. It happens a few times in all.
                self.stream.synchronize().map_err(|error| failed("cannot wait for memory", error))?;
                idle.made += 1;
                (buffer, Vec::new())
            }
        };
        Ok(Some(Arc::new(EngineRows {
            buffer: Some(buffer),
            row_bytes: self.row_bytes,
            readers: Mutex::default(),
            former,
            is_open: AtomicBool::new(false),
            pool: Arc::downgrade(self),
            stream: Arc::clone(&self.stream),
        })))
    }

    /// Bytes of all buffers.
    pub(super) fn bytes(&self) -> usize {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).made * self.buffer_bytes
    }

    fn give_back(&self, buffer: DeviceMemory, readers: Vec<Arc<CudaEvent>>) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).buffers.push((buffer, readers));
    }
}

impl Drop for RowPool {
    fn drop(&mut self) {
        let idle = std::mem::take(self.idle.get_mut().unwrap_or_else(PoisonError::into_inner));
        for (buffer, readers) in idle.buffers {
            free_after(buffer, &readers, &self.stream);
        }
    }
}

/// Frees a buffer of `stream` once its readers are over, without waiting for them here.
fn free_after(buffer: DeviceMemory, readers: &[Arc<CudaEvent>], stream: &Arc<CudaStream>) {
    for event in readers {
        if stream.wait(event).is_err() {
            // The driver is gone, or the GPU is: nothing reads any more.
            break;
        }
    }
    drop(buffer);
}
