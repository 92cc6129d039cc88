//! The normalise kernels against their twin on the host, over dtypes, orders, sizes, alignments and rows left out.

use brimful::batch::{BatchSpec, Dtype, Layout};
use brimful::device::kernels::NormalizeTask;
use brimful::device::{NumberTable, RowWriter};
use brimful::transform::{self, Normalize, ValueOps};

use crate::gpu::{Bench, noise};

/// What the output holds where nobody may write.
const UNTOUCHED: u8 = 0xA5;
const ROWS: usize = 7;
/// A row without a source.
const LEFT_OUT: usize = 4;

#[test]
fn every_dtype_order_and_size_equals_the_host_to_the_last_bit() {
    let Some(bench) = Bench::open() else { return };
    let sizes = [(1, 1), (7, 5), (16, 16), (15, 17), (33, 64), (61, 128), (96, 96), (224, 224)];
    for dtype in [Dtype::U8, Dtype::F16, Dtype::BF16, Dtype::F32] {
        for (source, layout) in orders() {
            for (height, width) in sizes {
                for channels in [3, 1] {
                    let spec = BatchSpec { batch_size: ROWS, height, width, channels, dtype, layout };
                    for (gap, out_gap) in [(0, 0), (3, 0), (0, 1)] {
                        check(&bench, &spec, source, gap, out_gap);
                    }
                }
            }
        }
    }
}

#[test]
fn a_large_batch_equals_the_host_to_the_last_bit() {
    let Some(bench) = Bench::open() else { return };
    for (source, layout) in orders() {
        for dtype in [Dtype::U8, Dtype::BF16, Dtype::F32] {
            let spec = BatchSpec { batch_size: 64, height: 224, width: 224, channels: 3, dtype, layout };
            check(&bench, &spec, source, 0, 0);
        }
    }
}

fn orders() -> impl Iterator<Item = (Layout, Layout)> {
    let both = [Layout::Nhwc, Layout::Nchw];
    both.into_iter().flat_map(move |source| both.map(|layout| (source, layout)))
}

/// Images lie in reverse, `gap` bytes off the alignment that a picture of its own would have; the output begins
/// `out_gap` numbers off.
fn check(bench: &Bench, spec: &BatchSpec, source: Layout, gap: usize, out_gap: usize) {
    let rows = spec.batch_size;
    let ops = value_ops(spec);
    let task = NormalizeTask::new(spec, rows, source).unwrap();
    let (image_len, row_len) = (task.source_bytes(), spec.row_bytes().unwrap());
    let distance = image_len.next_multiple_of(256) + gap;
    let writer = RowWriter::new(*spec, &ops).unwrap();

    let front = out_gap * spec.dtype.size_bytes();
    let mut images = vec![0; rows * distance];
    let mut expected = vec![UNTOUCHED; front + rows * row_len + 64];
    // The host writes numbers where they are aligned, and the expectation may not be.
    let mut aligned = vec![0_u32; row_len.div_ceil(4)];
    for row in 0..rows {
        let image = noise(row as u64, image_len);
        let place = (rows - 1 - row) * distance;
        images[place..][..image_len].copy_from_slice(&ordered(&image, spec.channels, source));
        if row != LEFT_OUT {
            let numbers = &mut bytemuck::cast_slice_mut(&mut aligned)[..row_len];
            writer.write(&image, numbers).unwrap();
            expected[front + row * row_len..][..row_len].copy_from_slice(numbers);
        }
    }

    let images = bench.put(&images);
    let out = bench.put(&vec![UNTOUCHED; expected.len()]);
    let table = NumberTable::new(&ops, spec.dtype, spec.channels).unwrap();
    let table = table.map(|table| bench.put(bytemuck::cast_slice(table.words())));
    let sources: Vec<u64> = (0..rows)
        .map(|row| if row == LEFT_OUT { 0 } else { images.address() + ((rows - 1 - row) * distance) as u64 })
        .collect();
    let sources = bench.put(bytemuck::cast_slice(&sources));
    let table_address = table.as_ref().map_or(0, |table| table.address());
    // SAFETY: everything is as long as the task says, and lives until `get` has waited for the stream.
    unsafe {
        let out = out.address() + front as u64;
        bench.kernels.normalize(&task, sources.address(), out, table_address, bench.stream()).unwrap();
    }
    let found = bench.get(&out);
    let wrong = found.iter().zip(&expected).position(|(found, expected)| found != expected);
    assert_eq!(wrong, None, "{spec} {:?} to {:?}, gaps {gap} and {out_gap}", source, spec.layout);
}

fn value_ops(spec: &BatchSpec) -> ValueOps {
    if spec.dtype == Dtype::U8 {
        return ValueOps::default();
    }
    let (mean, std) = (vec![0.485, 0.456, 0.406], vec![0.229, 0.224, 0.225]);
    let normalize = Normalize { mean: mean[..spec.channels].to_vec(), std: std[..spec.channels].to_vec() };
    ValueOps { dtype: transform::Dtype::F32, scale: true, normalize: Some(normalize), ..ValueOps::default() }
}

/// The bytes of an interleaved image in the order of `layout`.
fn ordered(image: &[u8], channels: usize, layout: Layout) -> Vec<u8> {
    match layout.is_interleaved() {
        true => image.to_vec(),
        false => (0..channels).flat_map(|channel| image.iter().skip(channel).step_by(channels).copied()).collect(),
    }
}
