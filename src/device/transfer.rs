//! Batches from page-locked memory into device slots: copies and the normalise kernel on a stream of its own. It decides
//! nothing and waits for nothing but a slot; who gets a batch when is the loader's business.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cudarc::driver::{CudaEvent, CudaStream, sys};

use super::DeviceRow;
use super::kernels::{Kernels, NormalizeTask};
use super::lease::{DeviceTensor, Filled, Readiness, Slot};
use super::pinned::PinnedAllocator;
use super::ring::{Ring, Room};
use super::stream::{DeviceMemory, Gpu, failed};
use super::table::NumberTable;
use crate::batch::{BatchSpec, Column, HostAllocator, HostBuffer, HostMemory, HostTensor};
use crate::transform::ValueOps;
use crate::{Error, ErrorKind, Result};

/// Tensors in a slot begin at multiples of this, in bytes: what the widest access of a kernel needs, and more.
const TENSOR_ALIGN: usize = 512;

/// Copies whose host memory has not come back yet: more than this many, and the oldest is waited for. A copy takes a
/// fraction of the time in which a batch is made, so this wait is for a GPU that is stuck or far behind.
const FLIGHTS_MAX: usize = 8;

/// Page-locked memory beside a batch's rows, at least: labels of a few thousand samples.
const SCRATCH_BYTES: usize = 64 << 10;

/// Rows between two stretches that need no copy, for which one copy more is not worth its call.
const GAP_ROWS: usize = 8;

/// How long a batch waits for a slot while the consumer holds them all, before that is an error.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a batch needs to know to be put on a GPU.
#[derive(Debug, Clone)]
pub struct TransferSpec {
    /// The rows as the host wrote them: `u8`, `[H, W, C]`.
    pub host: BatchSpec,
    /// The images as the consumer wants them.
    pub device: BatchSpec,
    /// What becomes of each number.
    pub value: ValueOps,
    /// Bytes of a slot at least.
    pub room: usize,
}

/// The slots of one loader; they outlive its runs.
pub type Slots = Arc<Mutex<Ring<Slot>>>;

/// Puts batches on a GPU, one after the other, for one thread.
pub struct Transfer {
    gpu: Gpu,
    stream: Arc<CudaStream>,
    kernels: Kernels,
    spec: TransferSpec,
    /// What each byte of each channel becomes; `None` where bytes stay bytes.
    table: Option<DeviceMemory>,
    /// Between copy and kernel. One is enough: all that touches it is on one stream.
    staging: Option<Staging>,
    slots: Slots,
    readiness: Arc<Readiness>,
    scratch: Vec<HostMemory>,
    events: Vec<(CudaEvent, CudaEvent)>,
    flights: VecDeque<Flight>,
}

/// What copies took, of those that ended since the last look.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Copied {
    /// Batches.
    pub batches: u64,
    /// Bytes from host to device.
    pub bytes: u64,
    /// Time of the copy stream, kernels included.
    pub time: Duration,
}

impl Transfer {
    /// A transfer of batches of `spec` into slots of `slots`, all of which were made on `stream`: a slot is ordered by
    /// the stream that it is filled on.
    ///
    /// # Errors
    /// [`ErrorKind::Limit`] when the GPU has not enough memory, [`ErrorKind::Device`] when it fails.
    pub fn new(
        gpu: &Gpu,
        stream: Arc<CudaStream>,
        spec: TransferSpec,
        slots: Slots,
        readiness: Arc<Readiness>,
    ) -> Result<Self> {
        gpu.enter()?;
        let mut transfer = Self {
            gpu: gpu.clone(),
            stream,
            kernels: Kernels::load(gpu.context())?,
            table: None,
            staging: None,
            slots,
            readiness,
            scratch: Vec::new(),
            events: Vec::new(),
            flights: VecDeque::new(),
            spec,
        };
        let BatchSpec { dtype, channels, .. } = transfer.spec.device;
        if let Some(table) = NumberTable::new(&transfer.spec.value, dtype, channels)? {
            transfer.table = Some(transfer.put(bytemuck::cast_slice(table.words()))?);
        }
        Ok(transfer)
    }

    /// Begins to put the columns of one batch on the GPU and returns them; nothing is waited for but a slot.
    ///
    /// The first image column may have rows that are on the GPU already: `rows`, by row number. Columns that are no
    /// tensors stay as they are.
    ///
    /// # Errors
    /// [`ErrorKind::Limit`] without memory or when the consumer holds every slot; [`ErrorKind::Device`] when the GPU
    /// fails; [`ErrorKind::Cancelled`] when `is_stopped` says so in between.
    pub fn upload(
        &mut self,
        columns: Vec<Column>,
        is_image: &[bool],
        rows: Vec<(usize, DeviceRow)>,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Vec<Column>> {
        let (places, room) = self.places(&columns, is_image);
        let mut slot = self.take_slot(room, is_stopped)?;
        let flight = slot.reclaim().and_then(|()| self.begin_flight(&columns, is_image, &rows));
        let mut flight = match flight {
            Ok(flight) => flight,
            Err(error) => return Err(self.unused(slot, error)),
        };
        let begun = self.begin(&slot, &columns, is_image, &places, &rows, &mut flight);
        let begun = begun.and_then(|()| slot.complete()).and_then(|()| self.record(&flight.events.1));
        if let Err(error) = begun {
            // What was begun reads host memory that is about to be given up, and writes the slot.
            let _ = self.stream.synchronize();
            return Err(self.unused(slot, error));
        }
        let filled = Filled::new(self.gpu.clone(), slot, Arc::clone(&self.readiness), self.ring().give_back());
        flight.rows = rows.into_iter().map(|(_, row)| row).collect();
        let columns = columns.into_iter().zip(places).map(|(column, place)| match (column, place) {
            (Column::Tensor(tensor), Some(Place { offset, spec, .. })) => {
                let HostTensor { data, dtype, shape, strides } = tensor;
                flight.buffers.push(data);
                let (dtype, shape, strides) = match spec {
                    Some(spec) => {
                        let (shape, strides) = spec.shape_and_strides(shape.first().copied().unwrap_or(0));
                        (spec.dtype, shape, strides)
                    }
                    None => (dtype, shape, strides),
                };
                Column::Device(Arc::new(DeviceTensor::new(Arc::clone(&filled), offset, dtype, shape, strides)))
            }
            (column, _) => column,
        });
        let columns = columns.collect();
        self.flights.push_back(flight);
        Ok(columns)
    }

    /// Takes back the host memory of copies that are over, and says what they took.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] when a copy or kernel failed.
    pub fn reap(&mut self) -> Result<Copied> {
        let mut copied = Copied::default();
        while let Some(flight) = self.flights.front() {
            let must_wait = self.flights.len() > FLIGHTS_MAX;
            let is_over =
                flight.events.1.try_is_complete().map_err(|error| failed("a copy to the GPU failed", error))?;
            if !is_over && !must_wait {
                break;
            }
            // Waits if the copy is not over: only then may what it reads be given back, so the flight stays whole and in
            // its place until then.
            let took_ms = flight.took_ms()?;
            let Some(Flight { events, bytes, scratch, .. }) = self.flights.pop_front() else { break };
            copied.batches += 1;
            copied.bytes += bytes as u64;
            copied.time += Duration::from_secs_f32(took_ms.max(0.0) / 1e3);
            self.events.push(events);
            self.scratch.push(scratch);
        }
        Ok(copied)
    }

    /// Where each tensor goes in a slot, and the bytes of all of them with the addresses of rows behind them.
    fn places(&self, columns: &[Column], is_image: &[bool]) -> (Vec<Option<Place>>, usize) {
        let mut room = 0;
        let places = columns.iter().zip(is_image).map(|(column, &is_image)| {
            let Column::Tensor(tensor) = column else { return None };
            let spec = is_image.then_some(self.spec.device);
            let elements: usize = tensor.shape.iter().product();
            let len = elements * spec.map_or(tensor.dtype, |spec| spec.dtype).size_bytes();
            let offset = room;
            room = (offset + len).next_multiple_of(TENSOR_ALIGN);
            Some(Place { offset, spec })
        });
        let places = places.collect();
        (places, room + self.rows_max(columns, is_image) * size_of::<u64>())
    }

    /// Rows that an image column of this batch may have: batches may grow beyond what the loader began with.
    fn rows_max(&self, columns: &[Column], is_image: &[bool]) -> usize {
        let rows = columns.iter().zip(is_image).filter_map(|(column, &is_image)| match column {
            Column::Tensor(tensor) if is_image => tensor.shape.first().copied(),
            _ => None,
        });
        rows.max().unwrap_or(0).max(self.spec.device.batch_size)
    }

    fn take_slot(&self, room: usize, is_stopped: &dyn Fn() -> bool) -> Result<Slot> {
        let make = |room| Slot::new(&self.gpu, &self.stream, room);
        Ring::take(&self.slots, room.max(self.spec.room), PATIENCE, is_stopped, make)
    }

    /// Gives a slot back that no batch went into.
    fn unused(&self, slot: Slot, error: Error) -> Error {
        let _ = self.ring().give_back().send(slot);
        error
    }

    fn ring(&self) -> MutexGuard<'_, Ring<Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Events, and page-locked memory for what is too small to have its own: small tensors and addresses of rows.
    fn begin_flight(&mut self, columns: &[Column], is_image: &[bool], rows: &[(usize, DeviceRow)]) -> Result<Flight> {
        let small = columns.iter().zip(is_image).map(|(column, &is_image)| match column {
            Column::Tensor(tensor) if !is_image => tensor.bytes().len(),
            _ => 0,
        });
        let addresses = if rows.is_empty() { 0 } else { self.rows_max(columns, is_image) * size_of::<u64>() };
        let small: usize = small.map(|len| len.next_multiple_of(16)).sum();
        let len = small + addresses;
        let scratch = match self.scratch.iter().position(|scratch| scratch.len() >= len) {
            Some(fitting) => self.scratch.swap_remove(fitting),
            None => PinnedAllocator::new(self.gpu.clone()).allocate(len.next_power_of_two().max(SCRATCH_BYTES))?,
        };
        let events = match self.events.pop() {
            Some(events) => events,
            None => (self.clock()?, self.clock()?),
        };
        Ok(Flight {
            events,
            is_timed: false,
            bytes: 0,
            scratch,
            scratch_used: 0,
            buffers: Vec::new(),
            rows: Vec::new(),
        })
    }

    fn clock(&self) -> Result<CudaEvent> {
        let flags = sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC;
        self.gpu.context().new_event(Some(flags)).map_err(|error| failed("cannot make an event", error))
    }

    fn record(&self, event: &CudaEvent) -> Result<()> {
        event.record(&self.stream).map_err(|error| failed("cannot record an event", error))
    }

    /// Begins every copy and kernel of one batch.
    fn begin(
        &mut self,
        slot: &Slot,
        columns: &[Column],
        is_image: &[bool],
        places: &[Option<Place>],
        rows: &[(usize, DeviceRow)],
        flight: &mut Flight,
    ) -> Result<()> {
        let mut rows = Some(rows);
        let tensors = || {
            let placed = columns.iter().zip(places).zip(is_image);
            placed.filter_map(|((column, place), &is_image)| match (column, place) {
                (Column::Tensor(tensor), Some(place)) => Some((tensor, place, is_image)),
                _ => None,
            })
        };
        // Images first: while they are copied, the rest is handed over.
        for (tensor, place, _) in tensors().filter(|(_, _, is_image)| *is_image) {
            self.begin_images(slot, place, tensor, rows.take().unwrap_or_default(), flight)?;
        }
        for (tensor, place, _) in tensors().filter(|(_, _, is_image)| !is_image) {
            self.begin_clock(flight)?;
            flight.send(tensor.bytes(), slot.memory(), place.offset, &self.stream)?;
        }
        self.begin_clock(flight)
    }

    /// Starts the clock of a flight with its first copy: what the host does before that is no copying.
    fn begin_clock(&self, flight: &mut Flight) -> Result<()> {
        if std::mem::replace(&mut flight.is_timed, true) {
            return Ok(());
        }
        self.record(&flight.events.0)
    }

    /// Begins the copies of one image column's rows and the kernel that makes the tensor of them.
    fn begin_images(
        &mut self,
        slot: &Slot,
        place: &Place,
        tensor: &HostTensor,
        elsewhere: &[(usize, DeviceRow)],
        flight: &mut Flight,
    ) -> Result<()> {
        let rows = tensor.shape.first().copied().unwrap_or(0);
        let row_bytes = self.spec.host.row_bytes()?;
        if rows == 0 {
            return Ok(());
        }
        if self.table.is_none() && self.spec.device.layout.is_interleaved() && elsewhere.is_empty() {
            flight.bytes += tensor.bytes().len();
            self.begin_clock(flight)?;
            // SAFETY: the tensor's memory goes into `flight`, which is kept until the event behind this copy passed;
            // the slot is this batch's alone.
            return unsafe { slot.memory().copy_from(place.offset, tensor.bytes(), &self.stream) };
        }
        self.grow_staging(rows.max(self.spec.host.batch_size), row_bytes)?;
        self.begin_clock(flight)?;
        let Some(Staging { memory, sources }) = &self.staging else { return Ok(()) };
        for stretch in stretches(rows, elsewhere) {
            let bytes = stretch.start * row_bytes..stretch.end * row_bytes;
            let part = tensor.bytes().get(bytes.clone()).unwrap_or_default();
            flight.bytes += part.len();
            // SAFETY: as above; whatever uses the staging memory does so in the order of this one stream.
            unsafe { memory.copy_from(bytes.start, part, &self.stream)? };
        }
        let sources = match elsewhere.is_empty() {
            true => sources.address(),
            false => {
                let staged = (0..rows).map(|row| memory.address() + (row * row_bytes) as u64);
                let mut addresses: Vec<u64> = staged.collect();
                for (row, source) in elsewhere {
                    if let Some(address) = addresses.get_mut(*row) {
                        *address = source.address;
                    }
                }
                let offset = slot.room_bytes() - rows * size_of::<u64>();
                flight.send(bytemuck::cast_slice(&addresses), slot.memory(), offset, &self.stream)?;
                slot.memory().address() + offset as u64
            }
        };
        let task = NormalizeTask::new(&self.spec.device, rows, self.spec.host.layout)?;
        let output = slot.memory().address() + place.offset as u64;
        let table = self.table.as_ref().map_or(0, DeviceMemory::address);
        // SAFETY: `sources` holds `rows` addresses of rows of the host's spec, each in staging memory or owned by
        // `elsewhere`, which `flight` keeps; the output has room for `rows` rows (see `places`); the table has a word
        // for each byte of each channel. All was written earlier in the order of this stream, or before it began.
        unsafe { self.kernels.normalize(&task, sources, output, table, self.stream.cu_stream()) }
    }

    /// Makes room for the rows of one batch as the host wrote them.
    fn grow_staging(&mut self, rows: usize, row_bytes: usize) -> Result<()> {
        if self.staging.as_ref().is_some_and(|staging| staging.memory.len() >= rows * row_bytes) {
            return Ok(());
        }
        self.staging = None;
        let memory = self.gpu.allocate(&self.stream, rows * row_bytes)?;
        let addresses: Vec<u64> = (0..rows).map(|row| memory.address() + (row * row_bytes) as u64).collect();
        let sources = self.put(bytemuck::cast_slice(&addresses))?;
        self.staging = Some(Staging { memory, sources });
        Ok(())
    }

    /// Copies a few bytes to memory of their own, and waits for it.
    fn put(&self, bytes: &[u8]) -> Result<DeviceMemory> {
        let memory = self.gpu.allocate(&self.stream, bytes.len())?;
        // SAFETY: the copy is over before `bytes` can change: the stream is waited for.
        unsafe { memory.copy_from(0, bytes, &self.stream)? };
        self.stream.synchronize().map_err(|error| failed("cannot copy to the GPU", error))?;
        Ok(memory)
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        // Copies that are under way read host memory that ends with `flights`.
        let _ = self.stream.synchronize();
    }
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer")
            .field("spec", &self.spec)
            .field("flights", &self.flights.len())
            .finish_non_exhaustive()
    }
}

/// Where one tensor lies in a slot.
#[derive(Debug, Clone, Copy)]
struct Place {
    offset: usize,
    /// For images, what they become.
    spec: Option<BatchSpec>,
}

/// The host's rows on the GPU, and the address of each.
#[derive(Debug)]
struct Staging {
    memory: DeviceMemory,
    sources: DeviceMemory,
}

/// One batch whose copies may not be over.
struct Flight {
    /// Around the batch's work on the copy stream; with clocks.
    events: (CudaEvent, CudaEvent),
    is_timed: bool,
    bytes: usize,
    scratch: HostMemory,
    scratch_used: usize,
    /// What the copies read: given back when they are over.
    buffers: Vec<HostBuffer>,
    /// Rows that were on the GPU already.
    rows: Vec<DeviceRow>,
}

impl Flight {
    /// Waits for the end of the copies; how long they took, kernels included.
    fn took_ms(&self) -> Result<f32> {
        self.events.0.elapsed_ms(&self.events.1).map_err(|error| failed("a copy to the GPU failed", error))
    }

    /// Begins to copy a few bytes by way of the page-locked scratch memory.
    fn send(&mut self, bytes: &[u8], to: &DeviceMemory, offset: usize, stream: &CudaStream) -> Result<()> {
        let (from, end) = (self.scratch_used, self.scratch_used + bytes.len());
        let Some(part) = self.scratch.get_mut(from..end) else {
            return Err(Error::new(ErrorKind::Limit, format!("{} bytes do not fit beside a batch", bytes.len())));
        };
        part.copy_from_slice(bytes);
        self.scratch_used = end.next_multiple_of(16);
        self.bytes += bytes.len();
        // SAFETY: this part of the scratch memory is written once a flight, and the flight is kept until the event
        // behind this copy passed; the slot is this batch's alone.
        unsafe { to.copy_from(offset, part, stream) }
    }
}

/// The rows that must be copied, in stretches: all of `0..rows` but those that are elsewhere, short gaps closed.
fn stretches(rows: usize, elsewhere: &[(usize, DeviceRow)]) -> Vec<Range<usize>> {
    let mut is_elsewhere = vec![false; rows];
    for (row, _) in elsewhere {
        if let Some(place) = is_elsewhere.get_mut(*row) {
            *place = true;
        }
    }
    let mut stretches: Vec<Range<usize>> = Vec::new();
    for row in (0..rows).filter(|&row| !is_elsewhere[row]) {
        match stretches.last_mut() {
            Some(last) if row - last.end < GAP_ROWS => last.end = row + 1,
            _ => stretches.push(row..row + 1),
        }
    }
    stretches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rows: usize, elsewhere: &[usize], expected: &[(usize, usize)]) {
        let elsewhere: Vec<_> =
            elsewhere.iter().map(|&row| (row, DeviceRow { address: 1, owner: Arc::new(()) })).collect();
        let found: Vec<_> = stretches(rows, &elsewhere).iter().map(|rows| (rows.start, rows.end)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn only_rows_that_the_host_made_are_copied_and_short_gaps_are_not_worth_a_call() {
        check(4, &[], &[(0, 4)]);
        check(4, &[0, 1, 2, 3], &[]);
        check(4, &[0, 3], &[(1, 3)]);
        check(4, &[1], &[(0, 4)]);
        check(40, &(1..30).collect::<Vec<_>>(), &[(0, 1), (30, 40)]);
        check(0, &[], &[]);
        check(2, &[7], &[(0, 2)]);
    }
}
