//! The GPU as the tests use it: every transfer is waited for, so nothing runs when the host looks.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brimful::device::kernels::Kernels;
use brimful::device::stream::{DeviceMemory, Gpu};
use cudarc::driver::sys::{CUdeviceptr, CUstream};
use cudarc::driver::{CudaStream, result};

/// The first GPU, a stream, and the kernels loaded on it.
pub(crate) struct Bench {
    gpu: Gpu,
    stream: Arc<CudaStream>,
    pub(crate) kernels: Kernels,
    _in_use: MutexGuard<'static, ()>,
}

impl Bench {
    /// None, with the reason on stderr, where there is no GPU.
    pub(crate) fn open() -> Option<Self> {
        let in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        let gpu = match Gpu::open(0) {
            Ok(gpu) => gpu,
            Err(error) => {
                skip(&format!("skipped, for want of a GPU: {error}"));
                return None;
            }
        };
        let stream = gpu.stream().unwrap();
        let kernels = Kernels::load(gpu.context()).unwrap();
        Some(Self { gpu, stream, kernels, _in_use: in_use })
    }

    pub(crate) fn stream(&self) -> CUstream {
        self.stream.cu_stream()
    }

    /// Device memory that holds `bytes`.
    pub(crate) fn put(&self, bytes: &[u8]) -> DeviceMemory {
        let memory = self.gpu.allocate(&self.stream, bytes.len()).unwrap();
        // SAFETY: the bytes stay borrowed until the stream has been waited for, and nobody else knows the memory.
        unsafe { memory.copy_from(0, bytes, &self.stream) }.unwrap();
        self.wait();
        memory
    }

    /// What `memory` holds once all work has passed.
    pub(crate) fn get(&self, memory: &DeviceMemory) -> Vec<u8> {
        let mut bytes = vec![0; memory.len()];
        // SAFETY: the bytes stay borrowed until the stream has been waited for, and all work is on this stream.
        unsafe { memory.copy_to(0, &mut bytes, &self.stream) }.unwrap();
        self.wait();
        bytes
    }

    pub(crate) fn wait(&self) {
        self.stream.synchronize().unwrap();
    }
}

/// Bytes without any order, the same for the same seed.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(draw).take(len).collect()
}

/// Says why a test passes without having tested anything; where `REQUIRE_GPU` is set that is a failure.
pub(crate) fn skip(reason: &str) {
    assert!(std::env::var_os("REQUIRE_GPU").is_none(), "{reason}");
    eprintln!("{reason}");
}

/// Held by the test that uses the GPU: some measure its free memory.
static IN_USE: Mutex<()> = Mutex::new(());

/// The first GPU and its kernels, for one test alone; says why, if there is none.
pub(crate) fn alone(test: &str) -> Option<(Gpu, Arc<Kernels>, MutexGuard<'static, ()>)> {
    let in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
    let gpu = match Gpu::open(0) {
        Ok(gpu) => gpu,
        Err(error) => {
            skip(&format!("{test}: skipped, {error}"));
            return None;
        }
    };
    let kernels = Kernels::load(gpu.context()).expect("the kernels load where there is a GPU");
    Some((gpu, Arc::new(kernels), in_use))
}

/// Folders in which libraries are looked for: those of `BRIMFUL_LIBRARY_PATH`, separated by colons.
pub(crate) fn folders() -> Vec<PathBuf> {
    std::env::var_os("BRIMFUL_LIBRARY_PATH").map_or_else(Vec::new, |list| std::env::split_paths(&list).collect())
}

/// The bytes at `address`.
///
/// # Safety
/// There must be `len` bytes of memory of this GPU, which nothing writes now.
pub(crate) unsafe fn read(gpu: &Gpu, address: CUdeviceptr, len: usize) -> Vec<u8> {
    gpu.bind().expect("the GPU is there");
    let mut bytes = vec![0; len];
    // SAFETY: the caller vouches for the memory.
    unsafe { result::memcpy_dtoh_sync(&mut bytes, address) }.expect("device memory can be read");
    bytes
}
