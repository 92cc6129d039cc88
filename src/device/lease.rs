//! Tensors on a GPU and who may still be reading them. A slot comes back to its ring when the last owner let go; that
//! never waits and takes no lock that a waiting thread could hold.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam::channel::Sender;
use cudarc::driver::{CudaEvent, CudaStream};

use super::handover::Handover;
use super::ring::Room;
use super::stream::{DeviceMemory, Gpu, KeepCurrent, StreamHandle, failed};
use crate::Result;
use crate::batch::{DeviceArray, Dtype};

/// Room for one batch on the GPU.
#[derive(Debug)]
pub struct Slot {
    /// Freed in the order of the copy stream, after what `drop` makes that wait for.
    memory: DeviceMemory,
    stream: Arc<CudaStream>,
    order: Handover<CudaEvent>,
}

impl Slot {
    /// A slot of `bytes`, to be filled on `stream`.
    ///
    /// # Errors
    /// When the GPU has no such memory.
    pub fn new(gpu: &Gpu, stream: &Arc<CudaStream>, bytes: usize) -> Result<Self> {
        let memory = gpu.allocate(stream, bytes)?;
        Ok(Self { memory, stream: Arc::clone(stream), order: Handover::new(gpu.event()?, gpu.event()?) })
    }

    /// Makes the copy stream wait until whoever had the slot before is through with it.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn reclaim(&mut self) -> Result<()> {
        let settle = || self.stream.context().synchronize().map_err(|error| failed("the GPU failed", error));
        self.order.reclaim(StreamHandle::of(&self.stream), settle)
    }

    /// Its memory.
    #[must_use]
    pub fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    /// Says that all that was begun on the copy stream until now completes the batch.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn complete(&self) -> Result<()> {
        self.order.complete(StreamHandle::of(&self.stream))
    }
}

impl Room for Slot {
    fn room_bytes(&self) -> usize {
        self.memory.len()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.reclaim().is_err() {
            // Work that nobody can wait for may still read it.
            self.memory.abandon();
        }
    }
}

/// A filled slot in the hands of a consumer; it goes back when the last tensor and the last lease of it are gone.
#[derive(Debug)]
pub struct Filled {
    slot: Mutex<Option<Slot>>,
    address: u64,
    gpu: Gpu,
    ready: Arc<Readiness>,
    give_back: Sender<Slot>,
}

/// Counts how often a consumer asked for a batch before it was complete on the GPU.
#[derive(Debug, Default)]
pub struct Readiness {
    lent: AtomicU64,
    early: AtomicU64,
}

impl Readiness {
    /// (batches that were lent, those of them that the GPU had not completed by then).
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.lent.load(Ordering::Relaxed), self.early.load(Ordering::Relaxed))
    }
}

impl Filled {
    /// Takes over a slot whose batch is on its way, to be sent to `give_back` in the end.
    #[must_use]
    pub fn new(gpu: Gpu, slot: Slot, ready: Arc<Readiness>, give_back: Sender<Slot>) -> Arc<Self> {
        let address = slot.memory.address();
        Arc::new(Self { slot: Mutex::new(Some(slot)), address, gpu, ready, give_back })
    }

    /// Runs `work` on the slot; the lock is held for a few calls of the driver that do not wait.
    fn with<T>(&self, work: impl FnOnce(&mut Slot) -> T) -> Option<T> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(work)
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        let _keep = KeepCurrent::here();
        if let Some(slot) = self.slot.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            // The ring may be gone, with its loader: then the slot ends here.
            let _ = self.give_back.send(slot);
        }
    }
}

/// A dense tensor in the memory of a GPU: part of a [`Filled`] slot.
#[derive(Debug)]
pub struct DeviceTensor {
    filled: Arc<Filled>,
    offset: usize,
    dtype: Dtype,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

impl DeviceTensor {
    /// The tensor of `shape`, with `strides` in elements, that begins `offset` bytes into the slot.
    #[must_use]
    pub fn new(filled: Arc<Filled>, offset: usize, dtype: Dtype, shape: Vec<usize>, strides: Vec<usize>) -> Self {
        Self { filled, offset, dtype, shape, strides }
    }

    /// Address of its first element on the GPU.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.filled.address + self.offset as u64
    }

    /// The number of its GPU, as CUDA counts.
    #[must_use]
    pub fn ordinal(&self) -> usize {
        self.filled.gpu.ordinal()
    }

    /// Lends it to work on `stream`, which is made to wait until the batch is complete; no thread waits.
    ///
    /// # Errors
    /// [`ErrorKind::Device`](crate::ErrorKind::Device) when the stream cannot wait, as while it is captured into a
    /// graph.
    pub fn lend(&self, stream: StreamHandle) -> Result<Lease> {
        let _keep = KeepCurrent::here();
        let is_complete = self.filled.with(|slot| slot.order.lend(stream)).transpose()?.unwrap_or(true);
        self.filled.ready.lent.fetch_add(1, Ordering::Relaxed);
        self.filled.ready.early.fetch_add(u64::from(!is_complete), Ordering::Relaxed);
        // CUDA's own stream of a thread is another one on the thread that ends the lease.
        let stream = Some(stream).filter(|&stream| stream != StreamHandle::PER_THREAD);
        Ok(Lease { filled: Arc::clone(&self.filled), stream })
    }

    /// Lends it to a consumer that orders its work after the batch by itself, on a stream that it does not name.
    #[must_use]
    pub fn lend_unordered(&self) -> Lease {
        Lease { filled: Arc::clone(&self.filled), stream: None }
    }

    /// Waits for the batch and copies the tensor into host memory, dense and in memory order.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn to_host(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0u8; self.shape.iter().product::<usize>() * self.dtype.size_bytes()];
        let copied = self.filled.with(|slot| {
            // SAFETY: the copy runs on the copy stream, where the batch was made, and is over before this returns.
            unsafe { slot.memory.copy_to(self.offset, &mut bytes, &slot.stream) }?;
            slot.stream.synchronize().map_err(|error| failed("the GPU failed", error))
        });
        copied.transpose()?;
        Ok(bytes)
    }
}

impl DeviceArray for DeviceTensor {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn strides(&self) -> &[usize] {
        &self.strides
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn std::any::Any + Send + Sync> {
        self
    }
}

/// A tensor in use by work on one stream; dropping it says that no more such work will be begun.
#[derive(Debug)]
pub struct Lease {
    filled: Arc<Filled>,
    /// `None` where nobody knows it.
    stream: Option<StreamHandle>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let _keep = KeepCurrent::here();
        self.filled.with(|slot| match self.stream {
            Some(stream) => slot.order.end(stream),
            None => slot.order.end_unknown(),
        });
    }
}
