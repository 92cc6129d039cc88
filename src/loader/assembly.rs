//! A batch while it is being filled: rows arrive from many threads in any order, and whoever lets go of it last makes
//! the batch. There is no barrier and no counter: the reference count is both.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::in_flight::InFlight;
use super::{Batch, Mark};
use crate::batch::{BatchSpec, BufferPool, Column, Dtype, HostTensor, RowValue, Slots, apart, collate};
use crate::device::DeviceRow;
use crate::sample::Key;
use crate::{Error, ErrorKind, Result};

/// What became of one row.
#[derive(Debug)]
pub(crate) enum Row {
    /// The values of its columns that are no images, in column order, and whether it stands in for a bad sample.
    Good {
        key: Key,
        /// A number from (seed, epoch, sample).
        draw: u64,
        values: Vec<RowValue>,
        is_replacement: bool,
        /// Its pixels in the first image column, where they are on the GPU and not in the host buffer.
        on_device: Option<DeviceRow>,
    },
    /// It was left out.
    Skipped,
    /// It ends the batch.
    Failed(Error),
}

/// Where the images of one column go.
#[derive(Debug)]
pub(crate) enum ImageColumn {
    /// All of one size: rows of one buffer.
    Fixed(Slots),
    /// Each of its own size; for a batch they are stacked at the end if they agree.
    Loose(Vec<Mutex<Option<HostTensor>>>),
}

/// A batch in progress.
#[derive(Debug)]
pub(crate) struct Assembly {
    pub(crate) sequence: u64,
    pub(crate) epoch: u64,
    pub(crate) index: usize,
    spec: Option<BatchSpec>,
    is_image: Arc<[bool]>,
    names: Arc<[String]>,
    images: Vec<ImageColumn>,
    rows: Vec<OnceLock<Row>>,
    ordinals: Vec<OnceLock<u64>>,
    delivery: Delivery,
    /// Bytes of images of free size in it.
    loose_bytes: AtomicU64,
    discarded: AtomicBool,
}

/// What becomes of finished rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Delivery {
    /// One tensor or list a column, as torch's default collate makes them.
    #[default]
    Batches,
    /// The rows themselves, for someone who goes on with each of them: images of any size, values as they were read,
    /// keys, and for each a number to draw from. The place of the loader moves when [`Loader::confirm`](super::Loader::confirm) is called, since whoever
    /// goes on with rows takes them ahead of the consumer.
    Rows,
}

/// The shape of the batches of one loader.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Rows of a full batch.
    pub(crate) batch_size: usize,
    /// The images' fixed shape; `None` when the transform leaves sizes free.
    pub(crate) spec: Option<BatchSpec>,
    /// For each column, whether it holds images.
    pub(crate) is_image: Arc<[bool]>,
    /// For each column, the field as the user wrote it.
    pub(crate) names: Arc<[String]>,
    pub(crate) delivery: Delivery,
}

impl Assembly {
    /// An empty batch of `plan.batch_size` rows.
    pub(crate) fn new(
        plan: &Plan,
        pool: &Arc<BufferPool>,
        sequence: u64,
        epoch: u64,
        index: usize,
    ) -> Result<Arc<Self>> {
        let rows = plan.batch_size;
        let images = plan.is_image.iter().filter(|&&is_image| is_image).map(|_| match &plan.spec {
            Some(spec) => {
                let spec = BatchSpec { batch_size: rows, ..*spec };
                Ok(ImageColumn::Fixed(Slots::new(pool.take(spec.batch_bytes()?)?, rows, spec.row_bytes()?)?))
            }
            None => Ok(ImageColumn::Loose((0..rows).map(|_| Mutex::default()).collect())),
        });
        Ok(Arc::new(Self {
            sequence,
            epoch,
            index,
            spec: plan.spec,
            is_image: Arc::clone(&plan.is_image),
            names: Arc::clone(&plan.names),
            images: images.collect::<Result<_>>()?,
            rows: (0..rows).map(|_| OnceLock::new()).collect(),
            ordinals: (0..rows).map(|_| OnceLock::new()).collect(),
            delivery: plan.delivery,
            loose_bytes: AtomicU64::new(0),
            discarded: AtomicBool::new(false),
        }))
    }

    /// The place of the `n`-th image column.
    pub(crate) fn images(&self, n: usize) -> &ImageColumn {
        &self.images[n]
    }

    /// Says what became of `row`; later words on the same row are ignored.
    pub(crate) fn settle(&self, row: usize, ordinal: u64, outcome: Row) {
        if let (Some(place), Some(number)) = (self.rows.get(row), self.ordinals.get(row)) {
            let _ = number.set(ordinal);
            let _ = place.set(outcome);
        }
    }

    /// Puts an image of free size into its row of the `n`-th image column; `false` where it has no place.
    pub(crate) fn put_loose(&self, n: usize, row: usize, image: HostTensor, in_flight: &InFlight) -> bool {
        let Some(ImageColumn::Loose(rows)) = self.images.get(n) else { return false };
        let Some(place) = rows.get(row) else { return false };
        let bytes = image.data.len() as u64;
        let former = place.lock().unwrap_or_else(PoisonError::into_inner).replace(image);
        let freed = former.map_or(0, |former| former.data.len() as u64);
        in_flight.add(bytes);
        in_flight.subtract(freed);
        self.loose_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.loose_bytes.fetch_sub(freed, Ordering::Relaxed);
        true
    }

    /// Decides that nobody will get this batch: it turned out too short.
    pub(crate) fn discard(&self) {
        self.discarded.store(true, Ordering::Relaxed);
    }

    /// Lets go of the batch; the last one to do so gets it finished.
    pub(crate) fn release(assembly: Arc<Self>, small: &Arc<BufferPool>) -> Option<Finished> {
        let assembly = Arc::into_inner(assembly)?;
        let (sequence, epoch, index) = (assembly.sequence, assembly.epoch, assembly.index);
        let loose_bytes = assembly.loose_bytes.load(Ordering::Relaxed);
        let batch = match assembly.discarded.load(Ordering::Relaxed) {
            true => None,
            false => Some(assembly.finish(small, epoch, index)),
        };
        Some(Finished { sequence, batch, loose_bytes })
    }

    fn finish(self, small: &Arc<BufferPool>, epoch: u64, index: usize) -> Result<Batch> {
        let mut good = Vec::with_capacity(self.rows.len());
        let mut samples = Vec::with_capacity(self.rows.len());
        let mut values = Vec::with_capacity(self.rows.len());
        let (mut planned, mut replaced) = (0, 0);
        let mut rows_on_device = Vec::new();
        let (mut keys, mut draws) = (Vec::new(), Vec::new());
        for (row, (outcome, ordinal)) in self.rows.into_iter().zip(self.ordinals).enumerate() {
            match outcome.into_inner() {
                None => {}
                Some(Row::Failed(error)) => return Err(error),
                Some(Row::Skipped) => planned += 1,
                Some(Row::Good { key, draw, values: row_values, is_replacement, on_device }) => {
                    planned += 1;
                    // Rows close up where samples were left out.
                    rows_on_device.extend(on_device.map(|pixels| (good.len(), pixels)));
                    replaced += usize::from(is_replacement);
                    good.push(row);
                    if self.delivery == Delivery::Rows {
                        keys.push(key);
                        draws.push(draw);
                    }
                    values.push(row_values.into_iter());
                    samples.extend(ordinal.into_inner());
                }
            }
        }
        let mut images = self.images.into_iter();
        let mut columns = Vec::with_capacity(self.is_image.len());
        for (&is_image, name) in self.is_image.iter().zip(self.names.iter()) {
            let column = match (is_image, self.delivery) {
                (true, delivery) => image_column(images.next(), self.spec.as_ref(), &good, small, delivery),
                (false, Delivery::Rows) => apart(values.iter_mut().filter_map(Iterator::next).collect(), small),
                (false, Delivery::Batches) => collate(values.iter_mut().filter_map(Iterator::next).collect(), small),
            };
            columns.push(column.map_err(|error| error.in_field(name.clone()))?);
        }
        let (len, mark) = (good.len(), Mark::default());
        Ok(Batch { epoch, index, len, planned, replaced, mark, samples, keys, draws, columns, rows_on_device })
    }
}

/// A batch that left its assembly, in the order in which batches were begun.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) sequence: u64,
    /// `None` where the batch was discarded.
    pub(crate) batch: Option<Result<Batch>>,
    /// What it adds to the bytes in flight until the consumer has it.
    pub(crate) loose_bytes: u64,
}

impl Finished {
    /// Samples whose turn has come with it: good ones, and those that were left out of it.
    pub(crate) fn samples(&self) -> usize {
        self.batch.as_ref().and_then(|batch| batch.as_ref().ok()).map_or(0, |batch| batch.planned)
    }
}

fn image_column(
    column: Option<ImageColumn>,
    spec: Option<&BatchSpec>,
    good: &[usize],
    pool: &Arc<BufferPool>,
    delivery: Delivery,
) -> Result<Column> {
    match (column, spec) {
        (Some(ImageColumn::Fixed(slots)), Some(spec)) => {
            let row_bytes = spec.row_bytes()?;
            let mut data = slots.into_buffer();
            for (to, &from) in good.iter().enumerate().filter(|(to, from)| to != *from) {
                data.copy_within(from * row_bytes..(from + 1) * row_bytes, to * row_bytes);
            }
            let (shape, strides) = spec.shape_and_strides(good.len());
            Ok(Column::Tensor(HostTensor { data, dtype: spec.dtype, shape, strides }))
        }
        (Some(ImageColumn::Loose(rows)), _) => {
            let mut rows: Vec<Option<HostTensor>> =
                rows.into_iter().map(|row| row.into_inner().unwrap_or_else(PoisonError::into_inner)).collect();
            // Only rows that are good in every column: a sample may have been left out after this image of it.
            let images: Vec<HostTensor> = good.iter().filter_map(|&row| rows.get_mut(row)?.take()).collect();
            if images.len() != good.len() {
                return Err(Error::new(ErrorKind::Decode, "an image of a finished sample is missing"));
            }
            match delivery {
                Delivery::Rows => Ok(Column::Tensors(images)),
                Delivery::Batches => stack(images, pool),
            }
        }
        _ => Err(Error::new(ErrorKind::InvalidOption, "an image column has no place in the batch")),
    }
}

/// Images of free size share a column only if their sizes happen to agree.
fn stack(images: Vec<HostTensor>, pool: &Arc<BufferPool>) -> Result<Column> {
    let Some(first) = images.first() else {
        return Ok(Column::Tensor(HostTensor::contiguous(pool.take(0)?, Dtype::U8, vec![0])?));
    };
    let unequal = images.iter().enumerate().find(|(_, image)| image.shape != first.shape);
    if let Some((row, other)) = unequal {
        let message =
            format!("images of unequal size in one batch: row 0 is {:?}, row {row} is {:?}", first.shape, other.shape);
        let hint = "end the transform with a fixed size, such as RandomResizedCrop(224) or Resize((224, 224))";
        return Err(Error::new(ErrorKind::InvalidOption, message).with_hint(hint));
    }
    let row_bytes = first.bytes().len();
    let shape: Vec<usize> = std::iter::once(images.len()).chain(first.shape.iter().copied()).collect();
    let strides = std::iter::once(first.shape.iter().product()).chain(first.strides.iter().copied()).collect();
    let dtype = first.dtype;
    let mut data = pool.take(row_bytes * images.len())?;
    for (place, image) in data.chunks_exact_mut(row_bytes.max(1)).zip(&images) {
        place.copy_from_slice(image.bytes());
    }
    Ok(Column::Tensor(HostTensor { data, dtype, shape, strides }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Layout, PageableAllocator};

    fn plan() -> Plan {
        let spec =
            BatchSpec { batch_size: 4, height: 1, width: 2, channels: 1, dtype: Dtype::U8, layout: Layout::Nhwc };
        Plan {
            batch_size: 4,
            spec: Some(spec),
            is_image: [true, false].into(),
            names: ["jpg".to_owned(), "cls".to_owned()].into(),
            delivery: Delivery::Batches,
        }
    }

    fn fill(outcomes: Vec<Option<Row>>) -> Result<Batch> {
        fill_for(&plan(), outcomes)
    }

    fn fill_for(plan: &Plan, outcomes: Vec<Option<Row>>) -> Result<Batch> {
        let pool = BufferPool::new(Arc::new(PageableAllocator), 1);
        let in_flight = InFlight::new(1);
        let assembly = Assembly::new(plan, &pool, 0, 3, 5).unwrap();
        for (row, outcome) in outcomes.into_iter().enumerate() {
            let Some(outcome) = outcome else { continue };
            match assembly.images(0) {
                ImageColumn::Fixed(slots) => slots.claim(row).unwrap().fill(row as u8),
                ImageColumn::Loose(_) => {
                    let data = pool.take(row + 1).unwrap();
                    let image = HostTensor::contiguous(data, Dtype::U8, vec![1, row + 1]).unwrap();
                    assert!(assembly.put_loose(0, row, image, &in_flight));
                }
            }
            assembly.settle(row, 100 + row as u64, outcome);
        }
        let other = Arc::clone(&assembly);
        assert!(Assembly::release(other, &pool).is_none(), "it is still held");
        let finished = Assembly::release(assembly, &pool).unwrap();
        assert_eq!(finished.loose_bytes, in_flight.bytes());
        finished.batch.unwrap()
    }

    fn good(label: i64) -> Option<Row> {
        let key = Key::new(label.to_string().into_bytes());
        Some(Row::Good { key, draw: 3, values: vec![RowValue::Int(label)], is_replacement: false, on_device: None })
    }

    fn bytes(batch: &Batch, column: usize) -> &[u8] {
        let Column::Tensor(tensor) = &batch.columns[column] else { panic!("no tensor") };
        tensor.bytes()
    }

    #[test]
    fn the_last_holder_makes_the_batch() {
        let batch = fill(vec![good(7), good(8), good(9), good(10)]).unwrap();
        assert_eq!((batch.epoch, batch.index, batch.len()), (3, 5, 4));
        assert_eq!(bytes(&batch, 0), [0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!(batch.samples, [100, 101, 102, 103]);
    }

    #[test]
    fn skipped_rows_close_up() {
        let batch = fill(vec![Some(Row::Skipped), good(8), Some(Row::Skipped), good(10)]).unwrap();
        assert_eq!(bytes(&batch, 0), [1, 1, 3, 3]);
        assert_eq!(bytes(&batch, 1), [8i64.to_le_bytes(), 10i64.to_le_bytes()].concat());
        assert_eq!((batch.len(), batch.planned), (2, 4));
    }

    #[test]
    fn rows_on_the_gpu_close_up_with_the_others() {
        let on_device = |label: i64| {
            let pixels = DeviceRow { address: label as u64, owner: Arc::new(()) };
            let key = Key::new(Vec::new());
            Some(Row::Good {
                key,
                draw: 3,
                values: vec![RowValue::Int(label)],
                is_replacement: false,
                on_device: Some(pixels),
            })
        };
        let batch = fill(vec![Some(Row::Skipped), on_device(8), good(9), on_device(10)]).unwrap();
        let rows: Vec<_> = batch.rows_on_device.iter().map(|(row, pixels)| (*row, pixels.address)).collect();
        assert_eq!(rows, [(0, 8), (2, 10)]);
    }

    #[test]
    fn a_short_last_batch_has_only_its_rows() {
        let batch = fill(vec![good(7), None, None, None]).unwrap();
        assert_eq!(bytes(&batch, 0), [0, 0]);
        assert_eq!(batch.planned, 1);
    }

    #[test]
    fn rows_keep_their_sizes_values_and_keys() {
        let rows = Plan { spec: None, delivery: Delivery::Rows, ..plan() };
        let batch = fill_for(&rows, vec![good(7), Some(Row::Skipped), good(9), good(10)]).unwrap();
        let Column::Tensors(images) = &batch.columns[0] else { panic!("no images") };
        assert_eq!(images.iter().map(|image| image.shape[1]).collect::<Vec<_>>(), [1, 3, 4]);
        let Column::Values(values) = &batch.columns[1] else { panic!("no values") };
        assert_eq!(values, &[RowValue::Int(7), RowValue::Int(9), RowValue::Int(10)]);
        assert_eq!(batch.keys.iter().map(|key| key.as_bytes().to_vec()).collect::<Vec<_>>(), [&b"7"[..], b"9", b"10"]);
        assert_eq!(batch.len(), 3);
    }

    #[test]
    fn rows_of_one_size_share_a_buffer() {
        let rows = Plan { delivery: Delivery::Rows, ..plan() };
        let batch = fill_for(&rows, vec![good(7), good(8), good(9), good(10)]).unwrap();
        assert_eq!(bytes(&batch, 0), [0, 0, 1, 1, 2, 2, 3, 3]);
        assert!(matches!(batch.columns[1], Column::Values(_)));
    }

    #[test]
    fn the_first_failed_row_is_the_error() {
        let failed = |word: &str| Some(Row::Failed(Error::new(ErrorKind::Decode, word)));
        let error = fill(vec![good(7), failed("second row"), failed("third row"), good(1)]).unwrap_err();
        assert_eq!(error.message(), "second row");
    }
}
