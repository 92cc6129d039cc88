//! A loader of the library and its epochs as Python objects. Waiting lets other Python threads run and looks for
//! signals; order, threads and errors are the library's.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use brimful::batch::{Dtype, Layout};
use brimful::loader::{self, Arrival, Delivery, ErrorBudget, OnError, Order, Orders, Poll, RouteMode, State};
use brimful::sample::{Remainder, Shuffle, Split};
use pyo3::exceptions::{PyRuntimeError, PyTimeoutError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::batch::{Batch, Mark};
use crate::dataset::Dataset;
use crate::error::{choice, raise};
use crate::waiting::{SIGNAL_INTERVAL, interruptible};

/// Samples of one data set in batches, epoch after epoch.
#[pyclass(frozen, module = "brimful._native")]
pub(crate) struct Loader {
    loader: Detached<loader::Loader>,
}

/// A value whose end waits for threads: it is dropped without the interpreter's lock, which these may need to end.
struct Detached<T: Send>(Option<T>);

impl<T: Send> Detached<T> {
    fn new(value: T) -> Self {
        Self(Some(value))
    }
}

impl<T: Send> std::ops::Deref for Detached<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // Only `drop` takes the value away.
        self.0.as_ref().unwrap_or_else(|| unreachable!("used after its end"))
    }
}

impl<T: Send> Drop for Detached<T> {
    fn drop(&mut self) {
        let Some(value) = self.0.take() else { return };
        let mut value = Some(value);
        if Python::try_attach(|py| py.detach(|| drop(value.take()))).is_none() {
            drop(value);
        }
    }
}

/// Element types that a batch of images may have.
const DTYPES: [(&str, Dtype); 4] =
    [("float32", Dtype::F32), ("float16", Dtype::F16), ("bfloat16", Dtype::BF16), ("uint8", Dtype::U8)];

#[pymethods]
impl Loader {
    #[new]
    #[pyo3(signature = (
        dataset, *, batch_size, batch_size_max, drop_last, order, in_order, shuffle, shuffle_window, shuffle_samples,
        seed, threads, readers, prefetch, dtype, layout, on_error, max_errors, quarantine, rank, world_size, turn,
        remainder, device, device_batches_max,
        route, nvjpeg_folders, nvtx, delivery
    ))]
    #[expect(clippy::too_many_arguments, reason = "the keywords of one constructor, each passed on as it is")]
    fn new(
        py: Python<'_>,
        dataset: &Dataset,
        batch_size: usize,
        batch_size_max: usize,
        drop_last: bool,
        order: &str,
        in_order: bool,
        shuffle: bool,
        shuffle_window: Option<usize>,
        shuffle_samples: usize,
        seed: u64,
        threads: usize,
        readers: usize,
        prefetch: usize,
        dtype: Option<&str>,
        layout: &str,
        on_error: &str,
        max_errors: Option<MaxErrors>,
        quarantine: Option<PathBuf>,
        rank: usize,
        world_size: usize,
        turn: usize,
        remainder: &str,
        device: &str,
        device_batches_max: usize,
        route: &str,
        nvjpeg_folders: Vec<PathBuf>,
        nvtx: bool,
        delivery: &str,
    ) -> PyResult<Self> {
        let shuffle = match (shuffle, shuffle_window) {
            (false, _) => Shuffle::None,
            (true, None) => Shuffle::Global,
            (true, Some(shards)) => Shuffle::Window { shards },
        };
        let remainder = choice("remainder", remainder, &[("pad", Remainder::Pad), ("drop", Remainder::Drop)])?;
        let layouts = [("NCHW", Layout::Nchw), ("channels_last", Layout::ChannelsLast), ("NHWC", Layout::Nhwc)];
        let routes = [("auto", RouteMode::Auto), ("cpu", RouteMode::Cpu), ("gpu", RouteMode::Engine)];
        let policies = [("raise", OnError::Raise), ("skip", OnError::Skip), ("replace", OnError::Replace)];
        let deliveries = [("batches", Delivery::Batches), ("rows", Delivery::Rows)];
        let mut builder = loader::Loader::builder(dataset.shards.clone())
            .batch_size(batch_size)
            .batch_size_max(batch_size_max)
            .delivery(choice("delivery", delivery, &deliveries)?)
            .drop_last(drop_last)
            .order(choice("order", order, &[("planned", Order::Planned), ("given", Order::Given)])?)
            .arrival(if in_order { Arrival::InOrder } else { Arrival::AsReady })
            .shuffle(shuffle)
            .shuffle_samples(shuffle_samples)
            .split(Split { rank, world_size, remainder })
            .turn(turn)
            .seed(seed)
            .threads(threads)
            .readers(if readers == 0 { dataset.readers } else { readers })
            .samples_ahead(dataset.samples_ahead)
            .prefetch(prefetch)
            .layout(choice("layout", layout, &layouts)?)
            .on_error(choice("on_error", on_error, &policies)?, budget(max_errors))
            .quarantine(quarantine)
            .device(device.parse().map_err(raise)?)
            .held_max(device_batches_max)
            .route(choice("decoder", route, &routes)?)
            .nvjpeg_folders(nvjpeg_folders)
            .nvtx(nvtx);
        if let Some(dtype) = dtype {
            builder = builder.dtype(choice("dtype", dtype, &DTYPES)?);
        }
        // It asks the system where the shards lie, and a mount may not answer.
        let loader = interruptible(py, move || builder.build())?.map_err(raise)?;
        Ok(Self { loader: Detached::new(loader) })
    }

    /// Starts the next epoch.
    fn epoch(&self, py: Python<'_>) -> PyResult<Epoch> {
        let loader = &*self.loader;
        let epoch = py.detach(|| loader.epoch()).map_err(raise)?;
        let (number, start, orders) = (epoch.number(), epoch.start(), epoch.orders());
        Ok(Epoch { number, start, orders, epoch: Detached::new(Mutex::new(epoch)) })
    }

    /// Makes `epoch` the next one.
    fn set_epoch(&self, epoch: u64) {
        self.loader.set_epoch(epoch);
    }

    /// Moves the place of a loader of rows to what its consumer has got.
    fn confirm(&self, mark: &Mark) {
        self.loader.confirm(mark.0);
    }

    /// Makes batches of `rows` rows from now on, after those in flight.
    fn set_batch_size(&self, rows: usize) -> PyResult<()> {
        self.loader.set_batch_size(rows).map_err(raise)
    }

    /// Rows of the batches that are begun from now on.
    #[getter]
    fn batch_size(&self) -> usize {
        self.loader.batch_size()
    }

    /// Batches in flight beside the consumer's.
    #[getter]
    fn prefetch(&self) -> usize {
        self.loader.prefetch()
    }

    /// Batches of a whole epoch; `None` for a stream.
    #[getter]
    fn batches(&self) -> Option<usize> {
        self.loader.len()
    }

    /// Samples of an epoch of this rank; `None` for a stream.
    #[getter]
    fn samples(&self) -> Option<usize> {
        self.loader.samples_per_epoch()
    }

    /// Numbers of this rank's samples in the order of `epoch`; `None` for a stream.
    fn order(&self, py: Python<'_>, epoch: u64) -> PyResult<Option<Vec<usize>>> {
        let loader = &*self.loader;
        py.detach(|| Ok(loader.order(epoch)?.map(|plan| plan.iter().collect()))).map_err(raise)
    }

    /// Threads that decode, and threads that read.
    #[getter]
    fn threads(&self) -> (usize, usize) {
        self.loader.threads()
    }

    /// Where batches are delivered: `cpu` or `cuda:N`.
    #[getter]
    fn device(&self) -> String {
        self.loader.device().to_string()
    }

    /// Gives idle device memory back; the number of batches it had room for.
    fn release_idle(&self, py: Python<'_>) -> usize {
        let loader = &*self.loader;
        py.detach(|| loader.release_idle())
    }

    /// The samples numbered `ordinals` as one batch, made on the calling thread.
    fn fetch(&self, py: Python<'_>, ordinals: Vec<usize>, epoch: u64) -> PyResult<Batch> {
        let loader = &*self.loader;
        let batch = py.detach(|| loader.fetch(&ordinals, epoch)).map_err(raise)?;
        Batch::new(py, batch)
    }

    /// The place after the last batch that was delivered.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let State { version, seed, epoch, consumed, position, world_size, fingerprint } = self.loader.state();
        let state = PyDict::new(py);
        state.set_item("version", version)?;
        state.set_item("seed", seed)?;
        state.set_item("epoch", epoch)?;
        state.set_item("consumed", consumed)?;
        state.set_item("position", position)?;
        state.set_item("world_size", world_size)?;
        state.set_item("fingerprint", fingerprint)?;
        Ok(state)
    }

    /// Makes the next epoch go on where a state was taken.
    #[pyo3(signature = (*, version, seed, epoch, position, world_size, fingerprint, consumed=0))]
    #[expect(clippy::too_many_arguments, reason = "the keywords are the keys of a state, each passed on as it is")]
    fn load_state(
        &self,
        version: u32,
        seed: u64,
        epoch: u64,
        position: u64,
        world_size: u64,
        fingerprint: u64,
        consumed: u64,
    ) -> PyResult<()> {
        let state = State { version, seed, epoch, consumed, position, world_size, fingerprint };
        self.loader.load_state(&state).map_err(raise)
    }

    /// What each stage did since the threads of the latest run were started.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let loader = &*self.loader;
        crate::stats::document(py, &py.detach(|| loader.stats()))
    }

    /// What has come up in the data since the last call, one sentence each.
    fn notices(&self) -> Vec<String> {
        self.loader.notices()
    }

    /// Samples that were left out because they were bad, each once.
    fn bad_samples<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.loader.bad_samples().iter().map(|bad| crate::stats::bad_sample(py, bad)).collect()
    }
}

/// The batches of one epoch, in order.
#[pyclass(frozen, module = "brimful._native")]
pub(crate) struct Epoch {
    /// Which epoch this is.
    #[pyo3(get)]
    number: u64,
    /// Samples that were delivered before it was taken up: of all ranks together, and of this one since.
    #[pyo3(get)]
    start: (usize, usize),
    /// Where sample numbers are handed over, if the caller gives the order.
    orders: Option<Orders>,
    epoch: Detached<Mutex<loader::Epoch>>,
}

#[pymethods]
impl Epoch {
    /// Waits for the next batch; `None` at the end of the epoch.
    ///
    /// Raises `TimeoutError` after `timeout_s` seconds.
    #[pyo3(signature = (timeout_s=None))]
    fn next_batch(&self, py: Python<'_>, timeout_s: Option<f64>) -> PyResult<Option<Batch>> {
        let started = Instant::now();
        let limit = timeout_s.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        loop {
            let left = limit.map_or(Duration::MAX, |limit| limit.saturating_sub(started.elapsed()));
            let epoch = &*self.epoch;
            let polled = py.detach(|| {
                let mut epoch = epoch.lock().unwrap_or_else(PoisonError::into_inner);
                epoch.poll(left.min(SIGNAL_INTERVAL))
            });
            match polled {
                Poll::Ready(Ok(batch)) => return Batch::new(py, batch).map(Some),
                Poll::Ready(Err(error)) => return Err(raise(error)),
                Poll::Done => return Ok(None),
                Poll::Pending => py.check_signals()?,
            }
            if limit.is_some_and(|limit| started.elapsed() >= limit) {
                return Err(PyTimeoutError::new_err("no batch within the time allowed"));
            }
        }
    }

    /// The loader's place after what this epoch has given: after its end, the start of the next.
    fn mark(&self, py: Python<'_>) -> Mark {
        let epoch = &*self.epoch;
        Mark(py.detach(|| epoch.lock().unwrap_or_else(PoisonError::into_inner).mark()))
    }

    /// Whether another batch may be given now.
    fn has_room(&self) -> bool {
        self.orders.as_ref().is_some_and(Orders::has_room)
    }

    /// Hands over the sample numbers of the next batch.
    fn give(&self, numbers: Vec<usize>) -> PyResult<()> {
        self.orders()?.give(numbers).map_err(raise)
    }

    /// Counts a batch that was delivered before a state was saved.
    fn pass_over(&self, numbers: Vec<usize>) -> PyResult<()> {
        self.orders()?.pass_over(&numbers).map_err(raise)
    }

    /// Says that no more batches will be given.
    fn end(&self) -> PyResult<()> {
        self.orders()?.end();
        Ok(())
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        self.next_batch(py, None)
    }
}

impl Epoch {
    fn orders(&self) -> PyResult<&Orders> {
        self.orders.as_ref().ok_or_else(|| PyRuntimeError::new_err("the loader makes the order of samples itself"))
    }
}

/// A number of bad samples, or a share of all samples.
#[derive(FromPyObject)]
enum MaxErrors {
    Count(u64),
    Share(f64),
}

fn budget(max_errors: Option<MaxErrors>) -> ErrorBudget {
    match max_errors {
        None => ErrorBudget::Unlimited,
        Some(MaxErrors::Count(count)) => ErrorBudget::Count(count),
        Some(MaxErrors::Share(share)) => ErrorBudget::Share(share),
    }
}
