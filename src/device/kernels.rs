//! The GPU's share of a batch: the compiled kernels of `kernels/`, what each is told, and how each is launched. It owns
//! no memory and no stream and orders nothing; who calls it does.

mod crop_resize;
mod normalize;

use std::ffi::{CString, c_void};
use std::sync::Arc;

use cudarc::driver::sys::{self, CUdevice_attribute, CUdeviceptr, CUfunction, CUstream};
use cudarc::driver::{CudaContext, result};

pub use crop_resize::{CropResizeBatch, CropResizeTask, Picture};
pub use normalize::{NormalizeTask, Variant};

use super::stream::failed;
use crate::{Error, ErrorKind, Result};

/// The kernels of `kernels/`, as `scripts/ptx.sh` compiles them: for compute capability 7.0 and up, drivers from 525 on.
const NORMALIZE_PTX: &str = include_str!("../../kernels/normalize.ptx");
const CROP_RESIZE_PTX: &str = include_str!("../../kernels/crop_resize.ptx");

/// Every kernel, loaded on one GPU.
///
/// Invariant: the functions belong to `modules`, which were loaded in the context of `context` and are unloaded when
/// this is dropped, and not before.
#[derive(Debug)]
pub struct Kernels {
    modules: [Module; 2],
    normalize: [Resident; Variant::ALL.len()],
    weights: Function,
    across: [Function; 2],
    down: [Function; 2],
    poison: Function,
    probe: Function,
}

/// A kernel, and how many blocks of it the whole GPU can run at once.
#[derive(Debug, Clone, Copy)]
struct Resident {
    function: Function,
    blocks: u32,
}

/// A kernel of one of the [`Module`]s beside it.
#[derive(Debug, Clone, Copy)]
struct Function(CUfunction);

// SAFETY: it is a handle that the driver lets any thread launch in the context it belongs to; each launch makes that
// context current first.
unsafe impl Send for Function {}
// SAFETY: as above; nothing is written through the handle.
unsafe impl Sync for Function {}

/// Blocks and threads of a launch, and bytes of shared memory of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Grid {
    blocks: (u32, u32, u32),
    threads: (u32, u32, u32),
    shared_bytes: u32,
}

impl Kernels {
    /// Loads the kernels on the GPU of `context`; the driver translates them, which takes a moment the first time.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] when the driver or the GPU is too old for them, or out of memory.
    pub fn load(context: &Arc<CudaContext>) -> Result<Self> {
        let modules = [Module::load(context, NORMALIZE_PTX)?, Module::load(context, CROP_RESIZE_PTX)?];
        let [normalizing, cropping] = &modules;
        let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        let processors = context.attribute(attribute).map_err(|error| failed("cannot ask what the GPU is", error))?;
        let processors = u32::try_from(processors).unwrap_or(1);
        let mut normalize = Vec::with_capacity(Variant::ALL.len());
        for variant in Variant::ALL {
            let function = normalizing.function(variant.name())?;
            let blocks = function.resident_blocks(normalize::THREADS, variant.shared_bytes(3))?;
            normalize.push(Resident { function, blocks: blocks.saturating_mul(processors).max(1) });
        }
        let kernel = |name| cropping.function(name);
        Ok(Self {
            normalize: normalize.try_into().map_err(|_| Error::new(ErrorKind::Device, "a kernel is missing"))?,
            weights: kernel("crop_resize_weights")?,
            across: [kernel("crop_resize_across_1")?, kernel("crop_resize_across_3")?],
            down: [kernel("crop_resize_down_1")?, kernel("crop_resize_down_3")?],
            poison: kernel("poison")?,
            probe: kernel("probe")?,
            modules,
        })
    }

    /// Queues `task` on `stream`: images of bytes into rows of a batch.
    ///
    /// `sources` is an array of [`rows`](NormalizeTask::rows) addresses, one an image, 0 for a row that is left alone;
    /// `out` the first row of the batch, [`out_bytes`](NormalizeTask::out_bytes) long; `table` the words of a
    /// [`NumberTable`](super::NumberTable) for the task's dtype and channels, not read for bytes (0 will do). Fastest
    /// where images and `out` are aligned to 16 bytes and a plane is a multiple of 16 pixels.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] when the driver refuses.
    ///
    /// # Safety
    /// All addresses are of device memory that this GPU can reach, `sources` aligned to 8 bytes, `table` to 4 and `out`
    /// to an element, as long as written here; images of [`source_bytes`](NormalizeTask::source_bytes). They stay so,
    /// and nothing else writes them or uses `out`, until the work queued here has passed on `stream`, a living stream of
    /// the context that the kernels were loaded in.
    pub unsafe fn normalize(
        &self,
        task: &NormalizeTask,
        sources: CUdeviceptr,
        out: CUdeviceptr,
        table: CUdeviceptr,
        stream: CUstream,
    ) -> Result<()> {
        let kernel = &self.normalize[task.variant().index()];
        let Some(grid) = task.grid(kernel.blocks) else { return Ok(()) };
        let (mut sources, mut out, mut table) = (sources, out, table);
        let [mut rows, mut plane, mut channels] = task.counts();
        let arguments =
            &mut [at(&mut sources), at(&mut out), at(&mut table), at(&mut rows), at(&mut plane), at(&mut channels)];
        // SAFETY: the kernel takes three addresses and three counts, in this order; it reads and writes the ranges
        // that the caller vouches for, which `counts` and `grid` describe.
        unsafe { self.launch(kernel.function, grid, arguments, stream) }
    }

    /// Queues `batch` on `stream`: pictures cropped, resampled and mirrored into rows of bytes.
    ///
    /// `tasks` is where the batch's [`bytes`](CropResizeBatch::bytes) have been copied to.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] for a batch without scratch, [`ErrorKind::Device`] when the driver refuses.
    ///
    /// # Safety
    /// `tasks` is device memory aligned to 8 bytes that holds these bytes when the work begins; pictures, rows and
    /// scratch that the tasks name are device memory of this GPU as long as the tasks say. They stay so, and nothing
    /// else writes them or uses rows and scratch, until the work queued here has passed on `stream`, a living stream of
    /// the context that the kernels were loaded in.
    pub unsafe fn crop_resize(&self, batch: &CropResizeBatch, tasks: CUdeviceptr, stream: CUstream) -> Result<()> {
        let Some([weights, across, down]) = batch.grids()? else { return Ok(()) };
        let of_channels = usize::from(batch.channels() == 3);
        let mut tasks = tasks;
        let mut count = batch.len() as u32;
        // SAFETY: the kernels take the tasks' address, the first one their number too; there are as many tasks as the
        // grids have pictures, and what they name is what the caller vouches for.
        unsafe {
            self.launch(self.weights, weights, &mut [at(&mut tasks), at(&mut count)], stream)?;
            self.launch(self.across[of_channels], across, &mut [at(&mut tasks)], stream)?;
            self.launch(self.down[of_channels], down, &mut [at(&mut tasks)], stream)
        }
    }

    /// Queues on `stream` the writing of a pattern over every eighth column and row, and the last, of `count` pictures.
    ///
    /// `pictures` is an array of [`Picture`]s.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] when the driver refuses.
    ///
    /// # Safety
    /// `pictures` is device memory aligned to 8 bytes and holds `count` pictures when the work begins; what they name is
    /// device memory of this GPU. It stays so, and nothing else uses it, until the work queued here has passed on
    /// `stream`, a living stream of the context that the kernels were loaded in.
    pub unsafe fn poison(&self, pictures: CUdeviceptr, count: u32, stream: CUstream) -> Result<()> {
        let Some(grid) = crop_resize::probe_grid(count) else { return Ok(()) };
        let mut pictures = pictures;
        // SAFETY: the kernel takes one address, of as many pictures as the grid has blocks; the caller vouches for it.
        unsafe { self.launch(self.poison, grid, &mut [at(&mut pictures)], stream) }
    }

    /// Queues on `stream` the counting, for each of `count` pictures, of the pixels that [`poison`](Self::poison) wrote
    /// and nobody has since; the counts go to `unwritten`, an array of `u32`.
    ///
    /// A picture that has been written whole shows 0, and by accident more in one of 16,777,216 for each of its
    /// [`probes`](Picture::probes).
    ///
    /// # Errors
    /// [`ErrorKind::Device`] when the driver refuses.
    ///
    /// # Safety
    /// As for [`poison`](Self::poison); `unwritten` is device memory for `count` numbers, aligned to 4 bytes.
    pub unsafe fn probe(
        &self,
        pictures: CUdeviceptr,
        count: u32,
        unwritten: CUdeviceptr,
        stream: CUstream,
    ) -> Result<()> {
        let Some(grid) = crop_resize::probe_grid(count) else { return Ok(()) };
        let (mut pictures, mut unwritten) = (pictures, unwritten);
        // SAFETY: the kernel takes two addresses, of as many pictures and counts as the grid has blocks; the caller
        // vouches for them.
        unsafe { self.launch(self.probe, grid, &mut [at(&mut pictures), at(&mut unwritten)], stream) }
    }

    /// Queues one kernel.
    ///
    /// # Safety
    /// `arguments` point to what the kernel's parameters are, in number, order and type; what the kernel then touches
    /// must be there.
    unsafe fn launch(
        &self,
        Function(function): Function,
        Grid { blocks, threads, shared_bytes }: Grid,
        arguments: &mut [*mut c_void],
        stream: CUstream,
    ) -> Result<()> {
        let [Module { context, .. }, _] = &self.modules;
        context.bind_to_thread().map_err(|error| failed("the GPU's context is gone", error))?;
        // SAFETY: the function is loaded as long as `self` lives; the rest is the caller's promise.
        unsafe { result::launch_kernel(function, blocks, threads, shared_bytes, stream, arguments) }
            .map_err(|error| failed("the GPU refuses a kernel", error))
    }
}

/// A kernel's parameter, as the driver wants it: where it lies.
fn at<T>(parameter: &mut T) -> *mut c_void {
    std::ptr::from_mut(parameter).cast()
}

impl Function {
    /// Blocks that one multiprocessor can run at once.
    fn resident_blocks(self, threads: u32, shared_bytes: u32) -> Result<u32> {
        // SAFETY: the function was just taken from a module that is loaded.
        let blocks = unsafe {
            result::occupancy::max_active_block_per_multiprocessor(self.0, threads as i32, shared_bytes as usize)
        };
        let blocks = blocks.map_err(|error| failed("cannot ask how many blocks the GPU runs at once", error))?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }
}

/// Compiled code, loaded on one GPU.
///
/// Invariant: `handle` was loaded in the context of `context`, and only the drop unloads it.
#[derive(Debug)]
struct Module {
    handle: sys::CUmodule,
    context: Arc<CudaContext>,
}

// SAFETY: a handle that the driver lets any thread use in its context; whoever uses it makes that current first.
unsafe impl Send for Module {}
// SAFETY: as above; looking functions up is all that a shared reference allows.
unsafe impl Sync for Module {}

impl Module {
    fn load(context: &Arc<CudaContext>, ptx: &str) -> Result<Self> {
        context.bind_to_thread().map_err(|error| failed("the GPU's context is gone", error))?;
        let text = CString::new(ptx).map_err(|_| Error::new(ErrorKind::Device, "a compiled kernel is damaged"))?;
        // SAFETY: the driver reads a text that ends with a zero, which a C string does.
        let handle = unsafe { result::module::load_data(text.as_ptr().cast()) }.map_err(|error| {
            failed("the GPU does not take the kernels", error)
                .with_hint("driver 525 or newer and a GPU of compute capability 7.0 or newer are needed")
        })?;
        Ok(Self { handle, context: Arc::clone(context) })
    }

    fn function(&self, name: &str) -> Result<Function> {
        let text = CString::new(name).map_err(|_| Error::new(ErrorKind::Device, "a kernel's name holds a zero"))?;
        // SAFETY: by the type's invariant the module is loaded.
        let function = unsafe { result::module::get_function(self.handle, text) };
        function.map(Function).map_err(|error| failed(&format!("there is no kernel '{name}'"), error))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // At the end of the process the driver may be gone, and the module with it.
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: by the type's invariant it is loaded and this is the only time it is unloaded; the driver waits
            // for kernels that still run. There is nobody to tell about a failure.
            let _ = unsafe { result::module::unload(self.handle) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernels that a compiled file offers.
    fn entries(ptx: &str) -> Vec<&str> {
        let names = ptx.lines().filter_map(|line| line.split_once(".visible .entry "));
        names.map(|(_, name)| name.trim_end_matches('(')).collect()
    }

    #[test]
    fn the_compiled_files_hold_every_kernel_and_no_other() {
        let mut expected: Vec<&str> = Variant::ALL.iter().map(|variant| variant.name()).collect();
        let mut found = entries(NORMALIZE_PTX);
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, expected);
        let mut found = entries(CROP_RESIZE_PTX);
        found.sort_unstable();
        let steps = ["across_1", "across_3", "down_1", "down_3", "weights"].map(|step| format!("crop_resize_{step}"));
        let expected: Vec<&str> = steps.iter().map(String::as_str).chain(["poison", "probe"]).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn the_compiled_files_are_for_old_drivers_and_gpus_too() {
        for ptx in [NORMALIZE_PTX, CROP_RESIZE_PTX] {
            assert!(ptx.contains("\n.version 8.0\n") && ptx.contains("\n.target sm_70\n"));
            assert!(!ptx.contains("fma.rn.f"), "host and device would round differently");
        }
    }
}
