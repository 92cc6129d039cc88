//! How near the GPU kernels come to the speed of the memory they work on: each in turns with a copy on the same device,
//! in the same run. `--json` prints JSON; without a GPU it says so and measures nothing.
#![expect(unsafe_code, reason = "launches, and copies whose order the bench keeps by waiting")]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program whose figures go to its caller")]

use std::sync::Arc;

use brimful::batch::{BatchSpec, Dtype, Layout};
use brimful::device::NumberTable;
use brimful::device::kernels::{CropResizeBatch, CropResizeTask, Kernels, NormalizeTask, Picture};
use brimful::device::stream::{DeviceMemory, Gpu};
use brimful::transform::{self, Compose, Normalize, SampleRng, ValueOps};
use brimful::{Error, Result};
use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaStream, result};

const BATCH: usize = 1024;
const SIDE: usize = 224;
/// Launches between two looks at the clock.
const LAUNCHES: u32 = 10;
/// Times that each kernel and the copy take turns; the median counts.
const ROUNDS: usize = 7;
/// Pictures of a crop and resize launch, and their size: photos as they lie in shards.
const PICTURES: usize = 64;
const PICTURE_SIZE: (u32, u32) = (500, 375);

fn main() -> Result<()> {
    let is_json = std::env::args().any(|argument| argument == "--json");
    match Gpu::open(0) {
        Ok(gpu) => measure(&gpu, is_json),
        Err(error) => {
            eprintln!("nothing measured, for want of a GPU: {error}");
            Ok(())
        }
    }
}

/// One kernel's figures.
struct Row {
    name: String,
    /// Bytes read and written a launch.
    bytes: u64,
    seconds: f64,
    copy_seconds: f64,
}

impl Row {
    fn gb_per_s(&self) -> f64 {
        self.bytes as f64 / self.seconds / 1e9
    }

    /// Its throughput by that of the copy, which moves as many bytes.
    fn share_of_copy(&self) -> f64 {
        self.copy_seconds / self.seconds
    }
}

fn measure(gpu: &Gpu, is_json: bool) -> Result<()> {
    let bench = Bench { gpu, stream: gpu.stream()?, kernels: Kernels::load(gpu.context())? };
    let name = gpu.context().name().unwrap_or_default();
    if !is_json {
        println!("{name}, batches of {BATCH} x {SIDE} x {SIDE} x 3; GB/s read and written, and share of a copy's");
    }
    let mut rows = Vec::new();
    // Noise is the worst that a lookup can meet; slopes are nearer to photos.
    for (content, byte) in [("noise", noise as fn(usize) -> u8), ("slopes", slope)] {
        let images: Vec<u8> = (0..BATCH * SIDE * SIDE * 3).map(byte).collect();
        let images = bench.put(&images)?;
        for dtype in [Dtype::U8, Dtype::F16, Dtype::BF16, Dtype::F32] {
            for (source, layout) in [
                (Layout::Nhwc, Layout::Nchw),
                (Layout::Nhwc, Layout::ChannelsLast),
                (Layout::Nchw, Layout::Nchw),
                (Layout::Nchw, Layout::ChannelsLast),
            ] {
                let spec = BatchSpec { batch_size: BATCH, height: SIDE, width: SIDE, channels: 3, dtype, layout };
                let row = bench.normalize(&spec, source, &images, content)?;
                if !is_json {
                    println!("{:48} {:7.0} {:6.1} %", row.name, row.gb_per_s(), 100.0 * row.share_of_copy());
                }
                rows.push(row);
            }
        }
    }
    let pictures = bench.pictures()?;
    if is_json {
        let results = rows.iter().map(|row| {
            let copy = row.bytes as f64 / row.copy_seconds / 1e9;
            serde_json::json!({"name": row.name, "gb_per_s": row.gb_per_s(), "copy_gb_per_s": copy,
                "share_of_copy": row.share_of_copy()})
        });
        let results: Vec<_> = results
            .chain(
                pictures
                    .iter()
                    .map(|(name, images_per_s)| serde_json::json!({"name": name, "images_per_s": images_per_s})),
            )
            .collect();
        println!(
            "{}",
            serde_json::json!({"version": env!("CARGO_PKG_VERSION"), "gpu": name, "batch": BATCH, "results": results})
        );
    } else {
        for (name, images_per_s) in pictures {
            println!("{name:48} {images_per_s:7.0} images/s");
        }
    }
    Ok(())
}

struct Bench<'a> {
    gpu: &'a Gpu,
    stream: Arc<CudaStream>,
    kernels: Kernels,
}

impl Bench<'_> {
    fn normalize(&self, spec: &BatchSpec, source: Layout, images: &DeviceMemory, content: &str) -> Result<Row> {
        let ops = match spec.dtype {
            Dtype::U8 => ValueOps::default(),
            _ => {
                let normalize = Normalize { mean: vec![0.485, 0.456, 0.406], std: vec![0.229, 0.224, 0.225] };
                ValueOps {
                    dtype: transform::Dtype::F32,
                    scale: true,
                    normalize: Some(normalize),
                    ..ValueOps::default()
                }
            }
        };
        let task = NormalizeTask::new(spec, BATCH, source)?;
        let sources: Vec<u64> = (0..BATCH).map(|row| images.address() + (row * task.source_bytes()) as u64).collect();
        let sources = self.put(bytemuck::cast_slice(&sources))?;
        let table = NumberTable::new(&ops, spec.dtype, 3)?.map(|table| self.put(bytemuck::cast_slice(table.words())));
        let table = table.transpose()?;
        let table_address = table.as_ref().map_or(0, DeviceMemory::address);
        let out = self.gpu.allocate(&self.stream, task.out_bytes())?;
        let bytes = (BATCH * task.source_bytes() + task.out_bytes()) as u64;
        let half = (bytes / 2) as usize;
        let [from, to] = [self.gpu.allocate(&self.stream, half)?, self.gpu.allocate(&self.stream, half)?];
        let stream = self.stream.cu_stream();
        // SAFETY: all memory is as long as the task says and lives until `turns` has waited for the stream.
        let kernel =
            || unsafe { self.kernels.normalize(&task, sources.address(), out.address(), table_address, stream) };
        // SAFETY: both allocations have `half` bytes and live as long.
        let copy = || unsafe { result::memcpy_dtod_async(to.address(), from.address(), half, stream) }.map_err(failed);
        let (seconds, copy_seconds) = self.turns(kernel, copy)?;
        let name = format!("{} {} to {}, {content}", spec.dtype, order(source), order(spec.layout));
        Ok(Row { name, bytes, seconds, copy_seconds })
    }

    /// Crop and resize, and poisoning with probing, in images a second.
    fn pictures(&self) -> Result<[(&'static str, f64); 2]> {
        let (width, height) = PICTURE_SIZE;
        let pitch = width * 3;
        let bytes: Vec<u8> = (0..(pitch * height) as usize).map(noise).collect();
        let compose =
            Compose::from_json(r#"[{"name": "RandomResizedCrop", "size": 224}, {"name": "RandomHorizontalFlip"}]"#)?;
        let out = self.gpu.allocate(&self.stream, PICTURES * SIDE * SIDE * 3)?;
        let (mut batch, mut memories, mut pictures) = (CropResizeBatch::new(3), Vec::new(), Vec::new());
        for number in 0..PICTURES {
            let memory = self.put(&bytes)?;
            let picture = Picture { pixels: memory.address(), pitch, width, height, salt: number as u32 };
            let geometry = compose.geometry(width, height, &mut SampleRng::new(0, 0, number as u64))?;
            let row = out.address() + (number * SIDE * SIDE * 3) as u64;
            if let Some(single) = geometry.as_single_resample() {
                assert!(
                    batch.push(CropResizeTask::new(&picture, 3, &single, row)?, u64::MAX),
                    "scratch without a limit"
                );
            }
            memories.push(memory);
            pictures.push(picture);
        }
        let scratch = self.gpu.allocate(&self.stream, batch.scratch_bytes() as usize)?;
        batch.place(scratch.address())?;
        let tasks = self.put(batch.bytes())?;
        let list = self.put(bytemuck::cast_slice(&pictures))?;
        let counts = self.gpu.allocate(&self.stream, 4 * PICTURES)?;
        let stream = self.stream.cu_stream();
        // SAFETY: all memory is as long as the tasks say and lives until `turns` has waited for the stream.
        let crop_resize = || unsafe { self.kernels.crop_resize(&batch, tasks.address(), stream) };
        let count = PICTURES as u32;
        // SAFETY: as above.
        let prove = || unsafe {
            self.kernels.poison(list.address(), count, stream)?;
            self.kernels.probe(list.address(), count, counts.address(), stream)
        };
        let (crop_resize, prove) = self.turns(crop_resize, prove)?;
        Ok([("crop and resize", PICTURES as f64 / crop_resize), ("poison and probe", PICTURES as f64 / prove)])
    }

    /// Median seconds of one call of each, taken in turns.
    fn turns(&self, one: impl Fn() -> Result<()>, other: impl Fn() -> Result<()>) -> Result<(f64, f64)> {
        let mut seconds = [Vec::new(), Vec::new()];
        self.time(&one)?;
        self.time(&other)?;
        for _ in 0..ROUNDS {
            seconds[0].push(self.time(&one)?);
            seconds[1].push(self.time(&other)?);
        }
        let [one, other] = seconds.map(|mut seconds| {
            seconds.sort_by(f64::total_cmp);
            seconds[ROUNDS / 2]
        });
        Ok((one, other))
    }

    /// Seconds of one call by the GPU's own clock, over [`LAUNCHES`] of them.
    fn time(&self, call: impl Fn() -> Result<()>) -> Result<f64> {
        let event = || self.gpu.context().new_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).map_err(failed);
        let (start, end) = (event()?, event()?);
        start.record(&self.stream).map_err(failed)?;
        for _ in 0..LAUNCHES {
            call()?;
        }
        end.record(&self.stream).map_err(failed)?;
        let milliseconds = start.elapsed_ms(&end).map_err(failed)?;
        Ok(f64::from(milliseconds) / 1e3 / f64::from(LAUNCHES))
    }

    /// Device memory that holds `bytes`.
    fn put(&self, bytes: &[u8]) -> Result<DeviceMemory> {
        let memory = self.gpu.allocate(&self.stream, bytes.len())?;
        // SAFETY: the bytes stay borrowed until the stream has been waited for, and nobody else knows the memory.
        unsafe { memory.copy_from(0, bytes, &self.stream) }?;
        self.stream.synchronize().map_err(failed)?;
        Ok(memory)
    }
}

fn failed(error: cudarc::driver::DriverError) -> Error {
    Error::new(brimful::ErrorKind::Device, format!("the driver says {:?}", error.0))
}

fn order(layout: Layout) -> &'static str {
    if layout.is_interleaved() { "channels last" } else { "NCHW" }
}

fn noise(at: usize) -> u8 {
    ((at as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
        ^ (at as u64).wrapping_mul(0xD6E8_FEB8_6659_FD93).to_be_bytes()[1]
}

/// Three slopes that rise by one every eight pixels or so.
fn slope(at: usize) -> u8 {
    (at / (3 * SIDE) + at % (3 * SIDE) / 24 + at % 3 * 40) as u8
}
