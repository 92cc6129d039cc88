//! One GPU as a loader uses it: its context, a copy stream of our own, and memory in it. Order comes from events alone;
//! it knows no batches and chooses nothing.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUdeviceptr};
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError, result};

use super::handover::OrderEvent;
use crate::{Error, ErrorKind, Result};

/// A GPU: its primary context, the one that frameworks in the same process use too.
#[derive(Debug, Clone)]
pub struct Gpu {
    context: Arc<CudaContext>,
}

impl Gpu {
    /// The GPU number `ordinal`, as CUDA counts those visible to the process.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] when there is no driver or no such GPU.
    pub fn open(ordinal: usize) -> Result<Self> {
        let count = gpu_count()?;
        if ordinal >= count {
            let message = format!("there is no GPU number {ordinal}: {count} can be seen");
            let hint = "device=\"cuda:0\" is the first; CUDA_VISIBLE_DEVICES decides which ones are seen";
            return Err(Error::new(ErrorKind::Device, message).with_hint(hint));
        }
        let _keep = KeepCurrent::here();
        let context = CudaContext::new(ordinal).map_err(|error| failed("cannot open a context on the GPU", error))?;
        // SAFETY: tracking orders slices of the crate across streams; this library makes no such slice, and orders
        // its own memory by its own events.
        unsafe { context.disable_event_tracking() };
        Ok(Self { context })
    }

    /// The number it was opened with.
    #[must_use]
    pub fn ordinal(&self) -> usize {
        self.context.ordinal()
    }

    /// The context, for libraries that need its handle.
    #[must_use]
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// Makes this GPU the calling thread's; needed before any raw call.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] when the driver refuses, as at the end of the process.
    pub fn bind(&self) -> Result<()> {
        self.context.bind_to_thread().map_err(|error| failed("the GPU's context is gone", error))
    }

    /// Makes this GPU the calling thread's, for a thread of our own: its calls are then also allowed while another
    /// thread captures a CUDA graph, which they are no part of.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] when the driver refuses.
    pub fn enter(&self) -> Result<()> {
        self.bind()?;
        exchange_capture_mode(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).map(drop)
    }

    /// Runs `work` as a thread that [entered](Self::enter) this GPU would, on a thread that is not ours to change.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] when the driver refuses.
    pub fn with_context<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        let _keep = KeepCurrent::here();
        self.bind()?;
        let former = exchange_capture_mode(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)?;
        let done = work();
        exchange_capture_mode(former)?;
        Ok(done)
    }

    /// A stream that waits for no other one.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] when the driver refuses.
    pub fn stream(&self) -> Result<Arc<CudaStream>> {
        self.context.new_stream().map_err(|error| failed("cannot make a stream", error))
    }

    /// An event without a clock, on which a thread may sleep.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] when the driver refuses.
    pub fn event(&self) -> Result<CudaEvent> {
        self.context.new_event(None).map_err(|error| failed("cannot make an event", error))
    }

    /// Bytes of device memory that are free, and all bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] when the driver refuses.
    pub fn memory(&self) -> Result<(usize, usize)> {
        self.context.mem_get_info().map_err(|error| failed("cannot ask for free memory", error))
    }

    /// `len` bytes of device memory, with unspecified content.
    ///
    /// # Errors
    /// [`ErrorKind::Limit`] naming what was asked for and what is free.
    pub fn allocate(&self, stream: &Arc<CudaStream>, len: usize) -> Result<DeviceMemory> {
        self.bind()?;
        // SAFETY: the context is current on this thread; the result is checked.
        let allocated = unsafe {
            match self.context.has_async_alloc() {
                true => result::malloc_async(stream.cu_stream(), len.max(1)),
                false => result::malloc_sync(len.max(1)),
            }
        };
        match allocated {
            Ok(ptr) => Ok(DeviceMemory { ptr, len, stream: Arc::clone(stream) }),
            Err(error) => {
                let free = self.memory().map_or(0, |(free, _)| free);
                let message = format!("{len} bytes of GPU memory were asked for and {free} are free");
                let hint = "use a smaller batch size or fewer prefetched batches, or free memory on the GPU";
                Err(Error::new(ErrorKind::Limit, message).with_hint(hint).with_source(Status(error)))
            }
        }
    }
}

/// Memory of a GPU.
///
/// Invariant: `ptr` is an allocation of at least `len` bytes, made on `stream`, that only this value frees. Work on
/// other streams that uses it has been ordered before `stream` by an event when it is dropped.
#[derive(Debug)]
pub struct DeviceMemory {
    ptr: CUdeviceptr,
    len: usize,
    stream: Arc<CudaStream>,
}

impl DeviceMemory {
    /// Its address on the GPU.
    #[must_use]
    pub fn address(&self) -> CUdeviceptr {
        self.ptr
    }

    /// Its size in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Begins to copy `bytes` to `offset`, in the order of `stream`.
    ///
    /// # Errors
    /// [`ErrorKind::Limit`] when they do not fit, [`ErrorKind::Device`] when the driver refuses.
    ///
    /// # Safety
    /// Until an event recorded on `stream` after this call has passed, `bytes` must stay where they are, unwritten,
    /// and nothing outside the order of `stream` may use that part of this memory.
    pub unsafe fn copy_from(&self, offset: usize, bytes: &[u8], stream: &CudaStream) -> Result<()> {
        let end = offset.checked_add(bytes.len()).filter(|&end| end <= self.len);
        if end.is_none() {
            let message = format!("{} bytes at {offset} do not fit in {} bytes of GPU memory", bytes.len(), self.len);
            return Err(Error::new(ErrorKind::Limit, message));
        }
        stream.context().bind_to_thread().map_err(|error| failed("the GPU's context is gone", error))?;
        // SAFETY: the range lies inside this allocation (checked above); lifetime and order are the caller's promise.
        unsafe { result::memcpy_htod_async(self.ptr + offset as u64, bytes, stream.cu_stream()) }
            .map_err(|error| failed("cannot copy to the GPU", error))
    }

    /// Begins to copy the bytes from `offset` on into `bytes`, in the order of `stream`.
    ///
    /// # Errors
    /// [`ErrorKind::Limit`] when there are not so many, [`ErrorKind::Device`] when the driver refuses.
    ///
    /// # Safety
    /// Until an event recorded on `stream` after this call has passed, `bytes` must stay where they are, unread and
    /// unwritten, and nothing outside the order of `stream` may write that part of this memory.
    pub unsafe fn copy_to(&self, offset: usize, bytes: &mut [u8], stream: &CudaStream) -> Result<()> {
        let end = offset.checked_add(bytes.len()).filter(|&end| end <= self.len);
        if end.is_none() {
            let message = format!("{} bytes from {offset} on are not in {} bytes of GPU memory", bytes.len(), self.len);
            return Err(Error::new(ErrorKind::Limit, message));
        }
        stream.context().bind_to_thread().map_err(|error| failed("the GPU's context is gone", error))?;
        // SAFETY: the range lies inside this allocation (checked above); lifetime and order are the caller's promise.
        unsafe { result::memcpy_dtoh_async(bytes, self.ptr + offset as u64, stream.cu_stream()) }
            .map_err(|error| failed("cannot copy from the GPU", error))
    }
}

impl DeviceMemory {
    /// Leaves the memory to the end of the process: for where nobody knows whether it is still read.
    pub fn abandon(&mut self) {
        self.ptr = 0;
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.ptr == 0 {
            return;
        }
        let _keep = KeepCurrent::here();
        let context = self.stream.context();
        // At the end of the process the driver may be gone, and the memory with it.
        if context.bind_to_thread().is_err() {
            return;
        }
        // SAFETY: by the type's invariant this is the only time the allocation is freed, and work that uses it comes
        // before this point of `stream`; freeing without a stream waits for all work by itself. There is nobody to
        // tell about a failure.
        let _ = unsafe {
            match context.has_async_alloc() {
                true => result::free_async(self.ptr, self.stream.cu_stream()),
                false => result::free_sync(self.ptr),
            }
        };
    }
}

/// Gives the calling thread back, when dropped, the context that was current on it: whoever trains on one GPU must not
/// find itself on another after a batch came from there.
#[derive(Debug)]
pub struct KeepCurrent {
    former: Option<sys::CUcontext>,
}

impl KeepCurrent {
    /// Notes the context that is current now; for threads that are not ours, once CUDA is in use.
    #[must_use]
    pub fn here() -> Self {
        Self { former: result::ctx::get_current().ok().map(|current| current.unwrap_or(std::ptr::null_mut())) }
    }
}

impl Drop for KeepCurrent {
    fn drop(&mut self) {
        if let Some(former) = self.former {
            // SAFETY: it was current on this thread when this value was made, or there was none. Whoever destroys a
            // context meanwhile gets an error status here, which is dropped.
            let _ = unsafe { result::ctx::set_current(former) };
        }
    }
}

/// Sets which calls the thread may make while any thread captures a CUDA graph; gives what was set before.
fn exchange_capture_mode(mut mode: sys::CUstreamCaptureMode) -> Result<sys::CUstreamCaptureMode> {
    // SAFETY: `mode` is a valid place that the driver swaps with the thread's mode.
    unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) }
        .result()
        .map_err(|error| failed("cannot set the thread's capture mode", error))?;
    Ok(mode)
}

/// How many GPUs this process can use.
///
/// # Errors
/// [`ErrorKind::Device`] when there is no driver, or it does not work.
pub fn gpu_count() -> Result<usize> {
    // SAFETY: it tries to load the driver's library and has no other effect; the driver's own start-up code is what
    // every CUDA program runs.
    if !unsafe { sys::is_culib_present() } {
        let error = Error::new(ErrorKind::Device, "the NVIDIA driver (libcuda.so.1) cannot be loaded");
        return Err(error.with_hint("install the driver, or use device=\"cpu\"; `brimful doctor` shows what is found"));
    }
    let count = CudaContext::device_count().map_err(|error| failed("the NVIDIA driver does not start", error))?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// A stream of this or another library, by its handle.
///
/// Invariant: it exists, in the primary context of the GPU whose events it is used with, for as long as it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamHandle(usize);

impl StreamHandle {
    /// CUDA's own stream that all others wait for, unless they were made not to.
    pub const LEGACY: Self = Self(1);

    /// CUDA's own stream of the calling thread.
    pub const PER_THREAD: Self = Self(2);

    /// A stream of another library.
    ///
    /// # Safety
    /// `handle` must be the driver's handle of a stream of the GPU's primary context, which must exist until the last
    /// use of this value and of what was lent to it.
    #[must_use]
    pub unsafe fn from_raw(handle: usize) -> Self {
        Self(handle)
    }

    /// The handle of one of our own streams, for as long as that lives.
    pub(crate) fn of(stream: &CudaStream) -> Self {
        Self(stream.cu_stream() as usize)
    }

    /// The driver's handle.
    #[must_use]
    pub fn as_raw(self) -> sys::CUstream {
        self.0 as sys::CUstream
    }

    #[cfg(test)]
    pub(crate) fn fake(number: usize) -> Self {
        Self(number)
    }
}

impl OrderEvent for CudaEvent {
    fn record(&self, stream: StreamHandle) -> Result<()> {
        self.context().bind_to_thread().map_err(|error| failed("the GPU's context is gone", error))?;
        // A stream that is being captured takes the event into its graph, where it marks no point in time.
        // SAFETY: the stream exists by the invariant of its handle.
        let status = unsafe { result::stream::is_capturing(stream.as_raw()) };
        match status.map_err(|error| failed("a stream does not answer", error))? {
            sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE => {}
            _ => return Err(Error::new(ErrorKind::Device, "the stream is being captured into a CUDA graph")),
        }
        // SAFETY: the event lives in `self`; the stream exists by the invariant of its handle.
        unsafe { result::event::record(self.cu_event(), stream.as_raw()) }
            .map_err(|error| failed("cannot record an event on a stream", error))
    }

    fn hold(&self, stream: StreamHandle) -> Result<()> {
        self.context().bind_to_thread().map_err(|error| failed("the GPU's context is gone", error))?;
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: the event lives in `self`; the stream exists by the invariant of its handle.
        unsafe { result::stream::wait_event(stream.as_raw(), self.cu_event(), flags) }.map_err(|error| {
            let error = failed("a stream cannot wait for the batch", error);
            error.with_hint("while a CUDA graph is captured, copy batches into a static tensor outside the capture")
        })
    }

    fn has_passed(&self) -> bool {
        self.try_is_complete().unwrap_or(false)
    }
}

/// A call of the driver that did not succeed, as an error of this library.
pub(crate) fn failed(message: &str, error: DriverError) -> Error {
    Error::new(ErrorKind::Device, message).with_source(Status(error))
}

/// The driver's status by name: its own way to print needs the library that may be what is missing.
struct Status(DriverError);

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0.0)
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Status {}
