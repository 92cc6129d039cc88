//! Crops, resizes and mirrors of the GPU against the CPU's resampler, on the same pixels.

use brimful::decode::{Pixels, Region};
use brimful::device::kernels::{CropResizeBatch, CropResizeTask, Picture};
use brimful::device::stream::DeviceMemory;
use brimful::transform::{Compose, Resampler, SampleRng};

use crate::gpu::{Bench, noise};

const PICTURES: u64 = 12;

/// What is promised: no byte further off than this, and no more on average.
const DIFFERENCE_MAX: u8 = 1;
const DIFFERENCE_MEAN_MAX: f64 = 0.05;

const RECIPES: [&str; 9] = [
    r#"[{"name": "RandomResizedCrop", "size": 224}, {"name": "RandomHorizontalFlip"}]"#,
    r#"[{"name": "RandomResizedCrop", "size": [61, 97]}, {"name": "RandomVerticalFlip"}]"#,
    r#"[{"name": "RandomResizedCrop", "size": 160, "interpolation": "bicubic"}, {"name": "RandomHorizontalFlip"}]"#,
    r#"[{"name": "Resize", "size": 256}, {"name": "CenterCrop", "size": 224}]"#,
    r#"[{"name": "Resize", "size": [70, 300], "interpolation": "bicubic"}, {"name": "RandomVerticalFlip"}]"#,
    r#"[{"name": "RandomCrop", "size": [31, 33]}, {"name": "RandomHorizontalFlip"}]"#,
    r#"[{"name": "ToImage"}, {"name": "Resize", "size": [64, 80], "antialias": false}]"#,
    r#"[{"name": "CenterCrop", "size": [33, 40]}, {"name": "Resize", "size": [33, 90]}]"#,
    "[]",
];

#[test]
fn every_geometry_is_within_the_promise_of_the_cpus_pixels() {
    let Some(bench) = Bench::open() else { return };
    for channels in [3, 1] {
        for (number, json) in RECIPES.into_iter().enumerate() {
            check(&bench, channels, number as u64, json);
        }
    }
}

/// A picture on the GPU, its row there, and what the CPU makes of it.
struct Case {
    _picture: DeviceMemory,
    row: DeviceMemory,
    expected: Vec<u8>,
}

fn check(bench: &Bench, channels: u32, seed: u64, json: &str) {
    let compose = Compose::from_json(json).unwrap();
    let mut batch = CropResizeBatch::new(channels);
    let cases: Vec<Case> = (0..PICTURES).map(|i| case(bench, &compose, &mut batch, seed, i)).collect();
    let scratch = bench.put(&vec![0xEE; batch.scratch_bytes() as usize]);
    batch.place(scratch.address()).unwrap();
    let tasks = bench.put(batch.bytes());
    // SAFETY: pictures, rows, scratch and tasks live until `get` has waited for the stream.
    unsafe { bench.kernels.crop_resize(&batch, tasks.address(), bench.stream()) }.unwrap();

    let (mut largest, mut sum, mut count) = (0, 0, 0);
    for Case { row, expected, .. } in &cases {
        for (found, expected) in bench.get(row).iter().zip(expected) {
            let difference = found.abs_diff(*expected);
            largest = largest.max(difference);
            sum += u64::from(difference);
            count += 1;
        }
    }
    let mean = sum as f64 / f64::from(count);
    eprintln!("{channels} channels, {json}: differences at most {largest}, {mean:.6} on average of {count} bytes");
    assert!(largest <= DIFFERENCE_MAX && mean <= DIFFERENCE_MEAN_MAX, "{json}");
}

fn case(bench: &Bench, compose: &Compose, batch: &mut CropResizeBatch, seed: u64, number: u64) -> Case {
    let channels = batch.channels();
    let draws = noise(seed * 1000 + number, 6);
    let [width, height] = [0, 2].map(|at| 40 + u32::from(draws[at]) * 2 + u32::from(draws[at + 1]) / 128);
    let pitch = width * channels + u32::from(draws[4] % 3) * 5;
    let len = pitch as usize * height as usize;
    // Half of the pictures are noise, where rounding shows most; half are slopes.
    let bytes = match number % 2 {
        0 => noise(seed + number, len),
        _ => (0..len).map(|at| (at / pitch as usize * 2 + at % pitch as usize) as u8).collect(),
    };
    let geometry = compose.geometry(width, height, &mut SampleRng::new(seed, 0, number)).unwrap();
    let (out_height, out_width) = geometry.output_size();
    let mut expected = vec![0; out_height as usize * out_width as usize * channels as usize];
    let pixels = Pixels::strided(&bytes, Region::full(width, height), channels as u8, pitch as usize).unwrap();
    Resampler::new().apply(&pixels, &geometry, &mut expected).unwrap();

    let memory = bench.put(&bytes);
    let row = bench.put(&vec![0; expected.len()]);
    let picture = Picture { pixels: memory.address(), pitch, width, height, salt: 0 };
    let single = geometry.as_single_resample().unwrap();
    let task = CropResizeTask::new(&picture, channels, &single, row.address()).unwrap();
    assert!(batch.push(task, u64::MAX));
    Case { _picture: memory, row, expected }
}
