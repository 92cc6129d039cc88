//! From what a user asks to a configuration that is known to work. All checks that need no file happen here.

use std::path::PathBuf;
use std::sync::Arc;

use super::Loader;
use super::assembly::Delivery;
use super::dataset::{Dataset, thread_count};
use super::given::Order;
use super::gpu::GpuPath;
use super::policy::{ErrorBudget, OnError};
use super::route::RouteMode;
use super::run::Threads;
use super::turns::Arrival;
use crate::batch::{BatchSpec, BufferPool, Dtype, HostAllocator, Layout, PageableAllocator};
use crate::decode::{Backend, ColorMode};
use crate::device::{Device, RowWriter};
use crate::sample::{EpochPlan, Shuffle, Split};
use crate::shard::{IoMethod, filesystem_of};
use crate::transform;
use crate::{Error, ErrorKind, Result};

/// Batches in flight beside the one in the consumer's hands, unless asked otherwise.
const PREFETCH_DEFAULT: usize = 3;

/// The same for a GPU: page-locked copies are taken from finished batches only.
const PREFETCH_DEVICE: usize = 5;

/// The same where JPEG engines may help: an image waits for its sub-batch and for the ones before it, while the threads
/// have done several batches' worth of others.
const PREFETCH_ENGINES: usize = 8;

/// Samples that should be in flight for each decode thread, so that small batches do not starve them.
const SAMPLES_PER_THREAD: usize = 16;

/// More batches in flight than this help nobody.
const PREFETCH_MAX: usize = 1024;

/// Batches that a consumer may hold on a GPU unless asked otherwise: more are held by mistake, not by plan.
const HELD_MAX_DEFAULT: usize = 16;

/// Bytes of images of free size in flight unless asked otherwise: a few batches of photos at full size.
const LOOSE_BYTES_MAX_DEFAULT: u64 = 256 << 20;

/// Rows of a batch at most.
pub(crate) const BATCH_SIZE_MAX: usize = 1 << 20;

/// Decode threads at most.
const THREADS_MAX: usize = 1024;

/// Reader threads for storage that answers slowly but many requests at once.
const READERS_REMOTE: usize = 8;

/// Decode threads that one reader of mapped shards keeps busy, with room to spare: bringing the pages of a photo into
/// reach takes a fiftieth of decoding it, more on virtual machines.
const DECODERS_PER_READER: usize = 24;

/// Samples that each reader asks storage for ahead of its own reading, unless asked otherwise.
const SAMPLES_AHEAD_DEFAULT: usize = 32;

/// More samples asked for ahead than this are dropped from the cache before their turn.
const SAMPLES_AHEAD_MAX: usize = 1024;

/// Collects the options of a [`Loader`]; [`build`](Self::build) checks them.
#[derive(Debug)]
#[must_use = "a builder does nothing until build()"]
pub struct LoaderBuilder {
    dataset: Dataset,
    config: LoaderConfig,
    threads: usize,
    readers: usize,
    samples_ahead: usize,
    prefetch: usize,
    dtype: Option<Dtype>,
    budget: ErrorBudget,
    on_error: OnError,
    quarantine: Option<PathBuf>,
    allocator: Option<Arc<dyn HostAllocator>>,
}

/// Checked options of a loader.
#[derive(Debug, Clone)]
pub(crate) struct LoaderConfig {
    pub(crate) batch_size: usize,
    /// What the batch size may be changed to at most.
    pub(crate) batch_size_max: usize,
    pub(crate) drop_last: bool,
    pub(crate) delivery: Delivery,
    pub(crate) loose_bytes_max: u64,
    pub(crate) shuffle: Shuffle,
    pub(crate) shuffle_samples: usize,
    pub(crate) split: Split,
    pub(crate) order: Order,
    pub(crate) arrival: Arrival,
    pub(crate) turn: usize,
    pub(crate) seed: u64,
    pub(crate) dtype: Dtype,
    pub(crate) layout: Layout,
    pub(crate) spec: Option<BatchSpec>,
    pub(crate) prefetch: usize,
    pub(crate) threads: Threads,
    pub(crate) device: Device,
    /// Batches that a consumer may hold on the device beside those in flight.
    pub(crate) held_max: usize,
    pub(crate) route: RouteMode,
    pub(crate) nvjpeg_folders: Vec<PathBuf>,
    pub(crate) nvtx: bool,
}

impl LoaderConfig {
    /// Type and order of images in host memory: final where the host is the device, else bytes as decoders make them.
    pub(crate) fn host_form(&self) -> (Dtype, Layout) {
        match self.device {
            Device::Cpu => (self.dtype, self.layout),
            _ => (Dtype::U8, Layout::Nhwc),
        }
    }
}

impl LoaderBuilder {
    pub(crate) fn new(dataset: Dataset) -> Self {
        let config = LoaderConfig {
            batch_size: 1,
            batch_size_max: 0,
            drop_last: false,
            delivery: Delivery::default(),
            loose_bytes_max: LOOSE_BYTES_MAX_DEFAULT,
            shuffle: Shuffle::None,
            shuffle_samples: 1000,
            split: Split::whole(),
            order: Order::Planned,
            arrival: Arrival::InOrder,
            turn: 1,
            seed: 0,
            dtype: Dtype::U8,
            layout: Layout::Nchw,
            spec: None,
            prefetch: 0,
            threads: Threads::default(),
            device: Device::Cpu,
            held_max: HELD_MAX_DEFAULT,
            route: RouteMode::Auto,
            nvjpeg_folders: Vec::new(),
            nvtx: false,
        };
        Self {
            dataset,
            config,
            threads: 0,
            readers: 0,
            samples_ahead: 0,
            prefetch: 0,
            dtype: None,
            budget: ErrorBudget::default(),
            on_error: OnError::default(),
            quarantine: None,
            allocator: None,
        }
    }

    /// Rows of a batch, 1 to 1,048,576. Default 1.
    pub fn batch_size(mut self, batch_size: usize) -> Self {
        self.config.batch_size = batch_size;
        self
    }

    /// Rows that [`Loader::set_batch_size`] may ask for at most, 1 to 1,048,576. Default: the batch size.
    pub fn batch_size_max(mut self, batch_size_max: usize) -> Self {
        self.config.batch_size_max = batch_size_max;
        self
    }

    /// Whether a last batch that is not full is left out. Default no.
    pub fn drop_last(mut self, drop_last: bool) -> Self {
        self.config.drop_last = drop_last;
        self
    }

    /// What becomes of finished rows. Default: batches.
    pub fn delivery(mut self, delivery: Delivery) -> Self {
        self.config.delivery = delivery;
        self
    }

    /// Bytes of decoded images in flight from which no further batch is begun, where the transform leaves their size
    /// free; there may be one batch more, and there is always one. Default 256 MiB.
    pub fn loose_bytes_max(mut self, bytes: u64) -> Self {
        self.config.loose_bytes_max = bytes;
        self
    }

    /// The order of samples. Default: as in the shards.
    pub fn shuffle(mut self, shuffle: Shuffle) -> Self {
        self.config.shuffle = shuffle;
        self
    }

    /// Samples in the shuffle window of a stream. Default 1,000.
    pub fn shuffle_samples(mut self, samples: usize) -> Self {
        self.config.shuffle_samples = samples;
        self
    }

    /// Which part of the samples this rank gets. Default: all.
    pub fn split(mut self, split: Split) -> Self {
        self.config.split = split;
        self
    }

    /// Who decides in which order samples come. Under [`Order::Given`] the caller hands over the numbers of each batch;
    /// shuffling, split and `drop_last` are the caller's then, and the split only says how many ranks share a state.
    /// Default [`Order::Planned`].
    pub fn order(mut self, order: Order) -> Self {
        self.config.order = order;
        self
    }

    /// Whether a finished batch waits for those before it. Default [`Arrival::InOrder`].
    pub fn arrival(mut self, arrival: Arrival) -> Self {
        self.config.arrival = arrival;
        self
    }

    /// Neighbouring samples of the epoch's order that a rank takes at its turn; 1 by default, at least 1. With as many
    /// as a batch has, batches rather than samples are dealt out: see [`EpochPlan::in_turns_of`]. A stream deals one by
    /// one.
    pub fn turn(mut self, samples: usize) -> Self {
        self.config.turn = samples.max(1);
        self
    }

    /// What order and augmentation derive from, with epoch and sample. Default 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.config.seed = seed;
        self
    }

    /// Threads that decode, 0 for all cores this process may use, but one where batches go to a GPU. Default 0.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Threads that read, 0 for as many as decode threads and JPEG engines need: one on streams, one for every 24 decode
    /// threads on mapped shards and one more for engines, 8 on others. Default 0.
    pub fn readers(mut self, readers: usize) -> Self {
        self.readers = readers;
        self
    }

    /// Samples that each reader asks storage for ahead of its own reading, 1 to 1,024, or 0 for 32. Default 0.
    pub fn samples_ahead(mut self, samples: usize) -> Self {
        self.samples_ahead = samples;
        self
    }

    /// Batches in flight beside the consumer's, 0 for 3 (for a GPU 5), or more where batches are small. Default 0.
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.prefetch = batches;
        self
    }

    /// Element type of images: `U8`, `F16`, `BF16` or `F32`. Default: what the transform's last value step makes.
    pub fn dtype(mut self, dtype: Dtype) -> Self {
        self.dtype = Some(dtype);
        self
    }

    /// Memory order of images. Default `[N, C, H, W]`.
    pub fn layout(mut self, layout: Layout) -> Self {
        self.config.layout = layout;
        self
    }

    /// What bad samples lead to. Default: an error.
    pub fn on_error(mut self, on_error: OnError, budget: ErrorBudget) -> Self {
        self.on_error = on_error;
        self.budget = budget;
        self
    }

    /// A file that gets a JSON line for every bad sample. Default: none.
    pub fn quarantine(mut self, path: Option<PathBuf>) -> Self {
        self.quarantine = path;
        self
    }

    /// Where batch memory comes from. Default: ordinary memory, for a GPU page-locked memory.
    pub fn allocator(mut self, allocator: Arc<dyn HostAllocator>) -> Self {
        self.allocator = Some(allocator);
        self
    }

    /// Where batches are delivered. Default: host memory.
    pub fn device(mut self, device: Device) -> Self {
        self.config.device = device;
        self
    }

    /// Batches that the consumer may hold on a GPU, beside those in flight, before that is an error; 1 to 1,024.
    /// Default 16.
    pub fn held_max(mut self, batches: usize) -> Self {
        self.config.held_max = batches;
        self
    }

    /// Who decodes JPEG files for a GPU: threads, the GPU's engines, or both as measured rates decide. Default: both.
    /// Without a GPU it has no effect.
    pub fn route(mut self, route: RouteMode) -> Self {
        self.config.route = route;
        self
    }

    /// Folders in which nvJPEG, the library of the GPU's JPEG engines, is looked for before the system's. Default: none.
    pub fn nvjpeg_folders(mut self, folders: Vec<PathBuf>) -> Self {
        self.config.nvjpeg_folders = folders;
        self
    }

    /// Whether the stages show as named ranges in NVIDIA's profilers. Only for a GPU. Default no.
    pub fn nvtx(mut self, nvtx: bool) -> Self {
        self.config.nvtx = nvtx;
        self
    }

    /// Checks the options and makes the loader; no thread starts before the first epoch.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] naming the option, its value and the legal range.
    pub fn build(mut self) -> Result<Loader> {
        let in_range = |name: &str, value: usize, max: usize| match (1..=max).contains(&value) {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::InvalidOption, format!("{name}={value} is not between 1 and {max}"))),
        };
        in_range("batch_size", self.config.batch_size, BATCH_SIZE_MAX)?;
        if self.config.order == Order::Given {
            if self.dataset.len().is_none() {
                let error =
                    Error::new(ErrorKind::InvalidOption, "a stream has no samples that could be named by number");
                return Err(error.with_hint("open it with access=\"indexed\""));
            }
            self.config.drop_last = false;
            self.config.shuffle = Shuffle::None;
        }
        if self.config.batch_size_max == 0 {
            self.config.batch_size_max = self.config.batch_size;
        }
        in_range("batch_size_max", self.config.batch_size_max, BATCH_SIZE_MAX)?;
        self.config.split.check()?;
        self.fit_batch()?;
        if self.on_error == OnError::Replace && self.dataset.len().is_none() {
            let error = Error::new(ErrorKind::InvalidOption, "a stream has no other sample to replace a bad one with");
            return Err(error.with_hint("use on_error=\"skip\", or an index: access=\"indexed\""));
        }
        // Any order that cannot be is refused here, not at the first epoch.
        EpochPlan::new(&[], self.config.shuffle, self.config.seed, 0, self.config.split)?;
        if self.on_error == OnError::Raise && (self.budget != ErrorBudget::Unlimited || self.quarantine.is_some()) {
            let message = "an error budget and a quarantine list have no effect while bad samples are errors";
            let hint = "use on_error=\"skip\" or \"replace\" with them";
            return Err(Error::new(ErrorKind::InvalidOption, message).with_hint(hint));
        }
        self.config.spec = self.image_spec()?;
        let decode = match (self.threads, self.config.device) {
            (0, Device::Cpu) => thread_count(0),
            // The thread that launches kernels, and those that serve the GPU, find a core free when they wake.
            (0, _) => thread_count(0).saturating_sub(1).max(1),
            (threads, _) => threads,
        };
        in_range("threads", decode, THREADS_MAX)?;
        if self.config.route == RouteMode::Auto && self.dataset.options().decode.backend != Backend::Auto {
            // Who names a library wants its pixels.
            self.config.route = RouteMode::Cpu;
        }
        let least = match self.config.device {
            Device::Cpu => PREFETCH_DEFAULT,
            _ if self.may_use_engines() => PREFETCH_ENGINES,
            _ => PREFETCH_DEVICE,
        };
        // Batches that will grow are not many and small for long, and each in flight is one more to wait for at a change.
        let most = if self.config.batch_size_max > self.config.batch_size { 2 * least } else { PREFETCH_MAX };
        let wanted = (decode * SAMPLES_PER_THREAD).div_ceil(self.config.batch_size).clamp(least, most);
        let prefetch = if self.prefetch == 0 { wanted.min(PREFETCH_MAX) } else { self.prefetch };
        in_range("prefetch", prefetch, PREFETCH_MAX)?;
        let read = match (self.readers, self.dataset.options().shards.io) {
            // A stream is read by one thread at a time.
            (0, _) if self.dataset.len().is_none() => 1,
            (0, _) if self.dataset.opens_each_sample() => READERS_REMOTE,
            (0, IoMethod::Read | IoMethod::Direct) => READERS_REMOTE,
            (0, IoMethod::Auto) if self.is_remote() => READERS_REMOTE,
            // JPEG engines take as many images again as the threads.
            (0, _) => decode.div_ceil(DECODERS_PER_READER) + usize::from(self.may_use_engines()),
            (readers, _) => readers,
        };
        in_range("readers", read, THREADS_MAX)?;
        let ahead = if self.samples_ahead == 0 { SAMPLES_AHEAD_DEFAULT } else { self.samples_ahead };
        in_range("samples_ahead", ahead, SAMPLES_AHEAD_MAX)?;
        self.config.prefetch = prefetch;
        self.config.threads = Threads { decode, read, prefetch, ahead };
        in_range("held_max", self.config.held_max, PREFETCH_MAX)?;
        if self.config.route == RouteMode::Engine && self.config.device == Device::Cpu {
            let message = "decoder=\"gpu\" decodes on a GPU, and batches go to the CPU";
            return Err(Error::new(ErrorKind::InvalidOption, message).with_hint("give device=\"cuda\" with it"));
        }
        if self.config.route == RouteMode::Engine {
            self.check_engines_serve()?;
        }
        if self.config.nvtx && self.config.device == Device::Cpu {
            let error = Error::new(ErrorKind::InvalidOption, "nvtx ranges are for loaders that deliver to a GPU");
            return Err(error.with_hint("give device=\"cuda\" with it"));
        }
        if self.config.loose_bytes_max == 0 {
            let message = "loose_bytes_max=0 would let no batch begin; it is at least 1";
            return Err(Error::new(ErrorKind::InvalidOption, message));
        }
        if self.config.delivery == Delivery::Rows && self.config.device != Device::Cpu {
            let message = "rows are delivered in host memory";
            return Err(Error::new(ErrorKind::InvalidOption, message).with_hint("give device=\"cpu\" with them"));
        }
        let gpu = match self.config.device {
            Device::Cpu => None,
            Device::Cuda(ordinal) => {
                Some(GpuPath::open(ordinal, &self.config, self.dataset.options().transform.value())?)
            }
        };
        let allocator = self.allocator.or_else(|| gpu.as_ref().map(GpuPath::allocator));
        let allocator = allocator.unwrap_or_else(|| Arc::new(PageableAllocator));
        // Those in flight, one in the consumer's hands, one it has not let go of yet.
        let pool = BufferPool::new(allocator, self.config.prefetch + 2);
        Loader::assemble(self.dataset, self.config, self.on_error, self.budget, self.quarantine, pool, gpu)
    }

    /// No batch has more rows than an epoch has samples: memory for the rest would never be used.
    fn fit_batch(&mut self) -> Result<()> {
        let is_open = self.config.drop_last || self.config.order == Order::Given;
        if is_open || self.dataset.is_stream() {
            return Ok(());
        }
        let LoaderConfig { shuffle, seed, split, .. } = self.config;
        let samples = EpochPlan::new(&self.dataset.shard_lens(), shuffle, seed, 0, split)?.len();
        self.config.batch_size = self.config.batch_size.min(samples.max(1));
        self.config.batch_size_max = self.config.batch_size_max.min(samples.max(1));
        Ok(())
    }

    /// The JPEG engines alone must be able to serve every sample of the data set, as far as its options tell.
    fn check_engines_serve(&self) -> Result<()> {
        let images = self.dataset.fields().iter().filter(|field| field.is_image()).count();
        let served = match (images, self.dataset.options().decode.mode) {
            (1, ColorMode::Rgb) => return Ok(()),
            (1, ColorMode::Grey) => "in colour, and mode=\"L\" asks for grey".to_owned(),
            (images, _) => format!("of samples with one image field, and this data set has {images}"),
        };
        let message = format!("decoder=\"gpu\" serves images {served}");
        Err(Error::new(ErrorKind::InvalidOption, message).with_hint("use decoder=\"cpu\" or \"auto\""))
    }

    /// Whether the shards lie on storage that is read rather than mapped.
    /// Whether JPEG engines may decode a part of the images.
    fn may_use_engines(&self) -> bool {
        self.config.device != Device::Cpu && self.config.route != RouteMode::Cpu
    }

    fn is_remote(&self) -> bool {
        let first = self.dataset.paths().first();
        first.and_then(|path| filesystem_of(path).ok()).is_some_and(|filesystem| filesystem.is_network)
    }

    /// The fixed shape of image columns, where the transform fixes one.
    fn image_spec(&mut self) -> Result<Option<BatchSpec>> {
        let options = self.dataset.options();
        let made = match options.transform.value().dtype {
            transform::Dtype::U8 => Dtype::U8,
            _ => Dtype::F32,
        };
        self.config.dtype = self.dtype.unwrap_or(made);
        let LoaderConfig { batch_size, dtype, layout, .. } = self.config;
        let channels = usize::from(options.decode.mode.channels());
        let (height, width) = options.transform.output_size().unwrap_or((1, 1));
        let spec = BatchSpec { batch_size, height: height as usize, width: width as usize, channels, dtype, layout };
        // Made here for its checks: whether dtype and transform agree, whether a batch fits in memory.
        RowWriter::new(spec, options.transform.value())?;
        BatchSpec { batch_size: self.config.batch_size_max, ..spec }.batch_bytes()?;
        Ok(options.transform.output_size().map(|_| spec))
    }
}
