//! nvJPEG's objects, each behind one owner: the library's handle on the engines, a state for each sub-batch in flight,
//! a reader of files. It knows nothing of rows, patterns and order.

use std::ffi::{c_int, c_uint};
use std::ptr;
use std::sync::Arc;

use cudarc::driver::CudaStream;

use super::abi::{
    ARCH_MISMATCH, BACKEND_HARDWARE, FLAG_INTERPOLATE_CHROMA, FLAGS_NONE, Functions, Image, OUTPUT_RGB_INTERLEAVED,
    RawHandle, RawParams, RawState, RawStream, SUCCESS, Status, status_name,
};
use super::library::{Library, has_video_library};
use super::refusal::Refusal;
use crate::decode::ImageInfo;
use crate::device::stream::Gpu;
use crate::{Error, ErrorKind, Result};

/// Threads of its own that the library may use for a batch; the engines need none.
const LIBRARY_THREADS: c_int = 1;

/// The JPEG engines of one GPU.
///
/// Invariant: `raw` is a handle that `functions.create` made in the context of `gpu`, destroyed by this value alone.
#[derive(Debug)]
pub(super) struct Handle {
    functions: Functions,
    raw: RawHandle,
    gpu: Gpu,
}

// SAFETY: the library allows one handle to be used from many threads; what it forbids to share are the objects below.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    /// The engines of `gpu`.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] when it has none, or they cannot be reached; the hint says which.
    pub(super) fn open(gpu: &Gpu, library: &Library, interpolate: bool) -> Result<Arc<Self>> {
        gpu.bind()?;
        let create = |flags: c_uint| {
            let mut raw: RawHandle = ptr::null_mut();
            // SAFETY: the context is current on this thread; null allocators mean the library's own.
            let status = unsafe {
                (library.functions.create)(BACKEND_HARDWARE, ptr::null_mut(), ptr::null_mut(), flags, &raw mut raw)
            };
            if status == SUCCESS && !raw.is_null() { Ok(raw) } else { Err(status) }
        };
        let wanted = if interpolate { FLAG_INTERPOLATE_CHROMA } else { FLAGS_NONE };
        // A library older than the flag refuses it; the engines work without.
        let raw = create(wanted).or_else(|status| if wanted == FLAGS_NONE { Err(status) } else { create(FLAGS_NONE) });
        let raw = raw.map_err(|status| unusable(status, library))?;
        Ok(Arc::new(Self { functions: library.functions, raw, gpu: gpu.clone() }))
    }

    /// How many engines there are, and cores of each, if the library tells.
    pub(super) fn engines(&self) -> Option<(u32, u32)> {
        let ask = self.functions.hardware_info?;
        let (mut engines, mut cores): (c_uint, c_uint) = (0, 0);
        self.gpu.bind().ok()?;
        // SAFETY: the handle is live; it writes two numbers to the places that it is given.
        let status = unsafe { ask(self.raw, &raw mut engines, &raw mut cores) };
        (status == SUCCESS).then_some((engines, cores))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // At the end of the process the driver may be gone, and everything in it.
        if self.gpu.bind().is_ok() {
            // SAFETY: by the invariant this is the only time; states and parsers keep the handle alive, so none is left.
            let _ = unsafe { (self.functions.destroy)(self.raw) };
        }
    }
}

/// What the library keeps for one sub-batch.
///
/// Invariant: `raw` is a state of `handle`, destroyed by this value alone; `batch` is the size that it was last
/// initialised for, 0 for none.
#[derive(Debug)]
pub(super) struct State {
    handle: Arc<Handle>,
    raw: RawState,
    batch: usize,
}

// SAFETY: the library asks that a state is used by one thread at a time, not always by the same one.
unsafe impl Send for State {}

impl State {
    pub(super) fn new(handle: &Arc<Handle>) -> Result<Self> {
        handle.gpu.bind()?;
        let mut raw: RawState = ptr::null_mut();
        // SAFETY: the handle is live and the context current; it writes the state's address.
        let status = unsafe { (handle.functions.state_create)(handle.raw, &raw mut raw) };
        check(status, "nvJPEG makes no state for another sub-batch")?;
        Ok(Self { handle: Arc::clone(handle), raw, batch: 0 })
    }

    /// Begins to decode images, each a file and where its pixels go, on the engines and `stream`.
    ///
    /// # Errors
    /// The library's status; some outputs may be written, and the state must be made anew.
    ///
    /// # Safety
    /// The context is current. The decode that this state began before is over. The files stay unwritten until an
    /// event recorded on `stream` after this call has passed. Each output is device memory with room for the image that
    /// its file's header tells, and nothing uses it *now*: the order of `stream` does not hold the engines back. It may
    /// be used by what follows on `stream`.
    pub(super) unsafe fn decode(&mut self, images: &[(&[u8], Image)], stream: &CudaStream) -> Result<(), Status> {
        let functions = &self.handle.functions;
        if self.batch != images.len() {
            self.batch = 0;
            let size = c_int::try_from(images.len()).unwrap_or(c_int::MAX);
            let raw = self.handle.raw;
            // SAFETY: handle and state are live, and no decode of this state is under way by the caller's promise.
            let status =
                unsafe { (functions.batch_initialize)(raw, self.raw, size, LIBRARY_THREADS, OUTPUT_RGB_INTERLEAVED) };
            if status != SUCCESS {
                return Err(status);
            }
            self.batch = images.len();
        }
        let files: Vec<*const u8> = images.iter().map(|(file, _)| file.as_ptr()).collect();
        let lengths: Vec<usize> = images.iter().map(|(file, _)| file.len()).collect();
        let mut outputs: Vec<Image> = images.iter().map(|&(_, output)| output).collect();
        // SAFETY: the arrays have as many entries as the state was initialised for; what they point to is the caller's
        // promise. The library copies the arrays before it returns.
        let status = unsafe {
            (functions.batch_decode)(
                self.handle.raw,
                self.raw,
                files.as_ptr(),
                lengths.as_ptr(),
                outputs.as_mut_ptr(),
                stream.cu_stream(),
            )
        };
        if status == SUCCESS { Ok(()) } else { Err(status) }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if self.handle.gpu.bind().is_ok() {
            // SAFETY: by the invariant this is the only time; the handle outlives the state.
            let _ = unsafe { (self.handle.functions.state_destroy)(self.raw) };
        }
    }
}

/// Reads headers of files as the library does, without decoding them.
///
/// Invariant: `stream` and `params` are objects of `handle`, destroyed by this value alone.
#[derive(Debug)]
pub(super) struct Parser {
    handle: Arc<Handle>,
    stream: RawStream,
    params: RawParams,
}

// SAFETY: as for states: one thread at a time, which `&mut self` sees to.
unsafe impl Send for Parser {}

impl Parser {
    pub(super) fn new(handle: &Arc<Handle>) -> Result<Self> {
        handle.gpu.bind()?;
        let functions = &handle.functions;
        let mut parser = Self { handle: Arc::clone(handle), stream: ptr::null_mut(), params: ptr::null_mut() };
        let what = "nvJPEG makes no reader of files";
        // SAFETY: the handle is live; each call writes the address of a new object, which `parser` owns from then on.
        check(unsafe { (functions.stream_create)(handle.raw, &raw mut parser.stream) }, what)?;
        // SAFETY: as above.
        check(unsafe { (functions.params_create)(handle.raw, &raw mut parser.params) }, what)?;
        // SAFETY: the parameters are live.
        check(unsafe { (functions.params_set_output)(parser.params, OUTPUT_RGB_INTERLEAVED) }, what)?;
        Ok(parser)
    }

    /// Whether `file`, by its header, is an image of the size in `info` that a batch may hold. No GPU is asked.
    ///
    /// # Errors
    /// The reason why not.
    pub(super) fn check(&mut self, file: &[u8], info: &ImageInfo) -> Result<(), Refusal> {
        let functions = &self.handle.functions;
        let told = |status: Status| {
            if status == SUCCESS { Ok(()) } else { Err(Refusal::Unsupported(Some(status_name(status)))) }
        };
        let raw = self.handle.raw;
        // SAFETY: handle and reader are live, and `file` is as long as it says; nothing of it is kept.
        told(unsafe { (functions.stream_parse_header)(raw, file.as_ptr(), file.len(), self.stream) })?;
        let (mut parsed_width, mut parsed_height): (c_uint, c_uint) = (0, 0);
        // SAFETY: the reader is live and has a header; it writes two numbers to the places that it is given.
        told(unsafe { (functions.stream_size)(self.stream, &raw mut parsed_width, &raw mut parsed_height) })?;
        if (parsed_width, parsed_height) != (info.width, info.height) {
            return Err(Refusal::Changed);
        }
        let mut refused: c_int = -1;
        // SAFETY: all three are live; it writes one number to the place that it is given.
        told(unsafe { (functions.batch_supported)(raw, self.stream, self.params, &raw mut refused) })?;
        if refused == 0 { Ok(()) } else { Err(Refusal::Unsupported(None)) }
    }
}

impl Drop for Parser {
    fn drop(&mut self) {
        if self.handle.gpu.bind().is_err() {
            return;
        }
        let functions = &self.handle.functions;
        if !self.params.is_null() {
            // SAFETY: by the invariant this is the only time, and the handle outlives it.
            let _ = unsafe { (functions.params_destroy)(self.params) };
        }
        if !self.stream.is_null() {
            // SAFETY: as above.
            let _ = unsafe { (functions.stream_destroy)(self.stream) };
        }
    }
}

fn check(status: Status, message: &str) -> Result<()> {
    match status {
        SUCCESS => Ok(()),
        status => Err(Error::new(ErrorKind::Device, format!("{message}: {}", status_name(status)))),
    }
}

/// Why there is no handle on the engines.
fn unusable(status: Status, library: &Library) -> Error {
    let (major, minor, patch) = library.version();
    let status_text = status_name(status);
    let message = match status {
        ARCH_MISMATCH => {
            format!("this GPU has no JPEG engines that nvJPEG {major}.{minor}.{patch} can use ({status_text})")
        }
        _ => format!("nvJPEG {major}.{minor}.{patch} cannot open the GPU's JPEG engines: {status_text}"),
    };
    let hint = if has_video_library() {
        "A100, A30, H100, H200 and later data-centre GPUs have them; decoder=\"cpu\" does without"
    } else {
        "nvJPEG reaches them through the driver's libnvcuvid.so.1, which cannot be loaded: a container must be given the \
         capability 'video' (NVIDIA_DRIVER_CAPABILITIES=compute,utility,video)"
    };
    Error::new(ErrorKind::Device, message).with_hint(hint)
}
