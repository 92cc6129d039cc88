//! What each stage of a loader did and how long: items, failures, busy and waiting time, and from these the bottleneck.
//! Counters only; nothing here decides how work is done.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::losses::StreamStats;
use crate::decode::{Fallbacks, Refusal};

/// A stage of the loader, in the order a sample passes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Bringing a sample's bytes into memory.
    Read,
    /// Compressed bytes to pixels.
    Decode,
    /// Crop, resample, flip, convert, normalise.
    Transform,
    /// Labels and other fields; rows into columns.
    Batch,
    /// Host memory to device memory.
    Copy,
    /// The consumer waiting for a batch.
    Wait,
}

impl Stage {
    /// Every stage, in order.
    pub const ALL: [Self; 6] = [Self::Read, Self::Decode, Self::Transform, Self::Batch, Self::Copy, Self::Wait];

    /// The stage's name in tables and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Decode => "decode",
            Self::Transform => "transform",
            Self::Batch => "batch",
            Self::Copy => "copy",
            Self::Wait => "wait",
        }
    }
}

/// Counters of one stage; written by many threads.
#[derive(Debug, Default)]
struct Counter {
    items: AtomicU64,
    failures: AtomicU64,
    busy_ns: AtomicU64,
}

/// Counters that only grow.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    pub(crate) waited_ns: u64,
    pub(crate) cpu_images: u64,
    pub(crate) cpu_busy_ns: u64,
    /// Images that came back from the engines, refused ones included.
    pub(crate) engine_images: u64,
    pub(crate) engine_refused: u64,
    /// Images that the engines said they had decoded, and had not.
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only a GPU has engines"))]
    pub(crate) engine_unwritten: u64,
    pub(crate) engine_busy_ns: u64,
    pub(crate) unsupported: u64,
}

/// The live counters of a loader.
#[derive(Debug)]
pub(crate) struct Counters {
    stages: [Counter; 6],
    bytes: AtomicU64,
    /// Time decode threads spent waiting for a job.
    starved_ns: AtomicU64,
    /// Time the reader spent waiting because every batch in flight was full: the consumer is behind.
    blocked_ns: AtomicU64,
    /// Time the reader spent waiting for a place in the job queue: the decode threads are behind.
    queued_ns: AtomicU64,
    engine_images: AtomicU64,
    engine_refused: AtomicU64,
    engine_busy_ns: AtomicU64,
    engine_unwritten: AtomicU64,
    unsupported: AtomicU64,
    /// Images that the baseline decoder left to another, by reason.
    fallbacks: [AtomicU64; Refusal::ALL.len()],
    batches: AtomicU64,
    skipped: AtomicU64,
    replaced: AtomicU64,
    /// Nanoseconds from `started` to the first batch, 0 while there is none.
    first_batch_ns: AtomicU64,
    started: Instant,
    decode_threads: usize,
    read_threads: usize,
}

impl Counters {
    pub(crate) fn new(decode_threads: usize, read_threads: usize) -> Self {
        Self {
            stages: Default::default(),
            bytes: AtomicU64::new(0),
            starved_ns: AtomicU64::new(0),
            blocked_ns: AtomicU64::new(0),
            queued_ns: AtomicU64::new(0),
            engine_images: AtomicU64::new(0),
            engine_refused: AtomicU64::new(0),
            engine_busy_ns: AtomicU64::new(0),
            engine_unwritten: AtomicU64::new(0),
            unsupported: AtomicU64::new(0),
            fallbacks: Default::default(),
            batches: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            replaced: AtomicU64::new(0),
            first_batch_ns: AtomicU64::new(0),
            started: Instant::now(),
            decode_threads,
            read_threads,
        }
    }

    pub(crate) fn busy(&self, stage: Stage, time: Duration, items: u64) {
        let counter = &self.stages[stage as usize];
        counter.busy_ns.fetch_add(nanos(time), Relaxed);
        counter.items.fetch_add(items, Relaxed);
    }

    pub(crate) fn failure(&self, stage: Stage) {
        self.stages[stage as usize].failures.fetch_add(1, Relaxed);
    }

    /// The baseline decoder left an image to another.
    pub(crate) fn fell_back(&self, refusal: Refusal) {
        self.fallbacks[refusal as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn read_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// A decode thread waited for a job.
    pub(crate) fn starved(&self, time: Duration) {
        self.starved_ns.fetch_add(nanos(time), Relaxed);
    }

    /// A reader waited for the consumer to take a batch.
    pub(crate) fn blocked(&self, time: Duration) {
        self.blocked_ns.fetch_add(nanos(time), Relaxed);
    }

    /// A reader waited for a place in the job queue.
    pub(crate) fn queued(&self, time: Duration) {
        self.queued_ns.fetch_add(nanos(time), Relaxed);
    }

    /// A batch that was delivered had rows left out, and rows that stand in for others.
    pub(crate) fn bad_rows(&self, skipped: usize, replaced: usize) {
        self.skipped.fetch_add(skipped as u64, Relaxed);
        self.replaced.fetch_add(replaced as u64, Relaxed);
    }

    /// The consumer waited for `time` and got nothing yet.
    pub(crate) fn waited(&self, time: Duration) {
        self.stages[Stage::Wait as usize].busy_ns.fetch_add(nanos(time), Relaxed);
    }

    /// The consumer got a batch after waiting for `time`.
    pub(crate) fn delivered(&self, time: Duration) {
        self.batches.fetch_add(1, Relaxed);
        let counter = &self.stages[Stage::Wait as usize];
        counter.items.fetch_add(1, Relaxed);
        counter.busy_ns.fetch_add(nanos(time), Relaxed);
        let _ = self.first_batch_ns.compare_exchange(0, nanos(self.started.elapsed()).max(1), Relaxed, Relaxed);
    }

    /// What the JPEG engines did since the last call.
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only a GPU has engines"))]
    pub(crate) fn engine_did(&self, images: u64, refused: u64, unwritten: u64, busy: Duration) {
        self.engine_images.fetch_add(images, Relaxed);
        self.engine_refused.fetch_add(refused, Relaxed);
        self.engine_unwritten.fetch_add(unwritten, Relaxed);
        self.engine_busy_ns.fetch_add(nanos(busy), Relaxed);
    }

    /// An image is not of a kind that the engines take.
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only a GPU has engines"))]
    pub(crate) fn engine_unsupported(&self) {
        self.unsupported.fetch_add(1, Relaxed);
    }

    /// What a router looks at.
    pub(crate) fn totals(&self) -> Totals {
        let decode = &self.stages[Stage::Decode as usize];
        let transform = &self.stages[Stage::Transform as usize];
        Totals {
            waited_ns: self.stages[Stage::Wait as usize].busy_ns.load(Relaxed),
            cpu_images: decode.items.load(Relaxed),
            cpu_busy_ns: decode.busy_ns.load(Relaxed) + transform.busy_ns.load(Relaxed),
            engine_images: self.engine_images.load(Relaxed),
            engine_refused: self.engine_refused.load(Relaxed),
            engine_unwritten: self.engine_unwritten.load(Relaxed),
            engine_busy_ns: self.engine_busy_ns.load(Relaxed),
            unsupported: self.unsupported.load(Relaxed),
        }
    }

    pub(crate) fn snapshot(&self) -> Stats {
        let wall = self.started.elapsed();
        let seconds = |counter: &AtomicU64| counter.load(Relaxed) as f64 * 1e-9;
        let share = |time_s: f64, threads: usize| {
            (time_s / (wall.as_secs_f64() * threads.max(1) as f64).max(1e-9)).clamp(0.0, 1.0)
        };
        let waits = |stage| match stage {
            Stage::Read => (seconds(&self.blocked_ns) + seconds(&self.queued_ns), self.read_threads),
            Stage::Decode => (seconds(&self.starved_ns), self.decode_threads),
            Stage::Transform | Stage::Batch => (0.0, self.decode_threads),
            Stage::Copy | Stage::Wait => (0.0, 1),
        };
        let stages = Stage::ALL.map(|stage| {
            let counter = &self.stages[stage as usize];
            let (wait_s, threads) = waits(stage);
            let busy_s = seconds(&counter.busy_ns);
            StageStats {
                stage,
                items: counter.items.load(Relaxed),
                failures: counter.failures.load(Relaxed),
                busy_share: share(busy_s, threads),
                wait_share: share(wait_s, threads),
            }
        });
        let first = self.first_batch_ns.load(Relaxed);
        let mut stats = Stats {
            wall,
            samples: stages[Stage::Batch as usize].items,
            batches: self.batches.load(Relaxed),
            bytes_read: self.bytes.load(Relaxed),
            skipped: self.skipped.load(Relaxed),
            replaced: self.replaced.load(Relaxed),
            time_to_first_batch: (first > 0).then(|| Duration::from_nanos(first)),
            decode_threads: self.decode_threads,
            read_threads: self.read_threads,
            consumer_behind_share: share(seconds(&self.blocked_ns), self.read_threads),
            engines_busy_share: share(seconds(&self.engine_busy_ns), 1),
            stages,
            fallbacks: Fallbacks::from(self.fallbacks.each_ref().map(|count| count.load(Relaxed))),
            device: None,
            bottleneck: Bottleneck::Unknown,
            stream: None,
        };
        stats.bottleneck = Bottleneck::of(&stats);
        stats
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A snapshot of a loader's work since it was built.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Time since the threads were started.
    pub wall: Duration,
    /// Samples that were finished.
    pub samples: u64,
    /// Batches that were delivered.
    pub batches: u64,
    /// Bytes of the fields that were read.
    pub bytes_read: u64,
    /// Samples left out of the batches delivered because they were bad.
    pub skipped: u64,
    /// Samples in the batches delivered that stand in for bad ones.
    pub replaced: u64,
    /// From the start of the threads to the first batch in the consumer's hands.
    pub time_to_first_batch: Option<Duration>,
    /// Threads that decode and transform.
    pub decode_threads: usize,
    /// Threads that read.
    pub read_threads: usize,
    /// Share of the time that the readers stood still because no batch was taken, 0 to 1.
    pub consumer_behind_share: f64,
    /// Share of the time that the GPU's JPEG engines were at work, 0 to 1.
    pub engines_busy_share: f64,
    /// One row a stage, in order.
    pub stages: [StageStats; 6],
    /// Images that the baseline decoder left to another one, by reason.
    pub fallbacks: Fallbacks,
    /// What stands on the GPU; `None` where batches stay in host memory.
    pub device: Option<DeviceStats>,
    /// The stage that limits throughput.
    pub bottleneck: Bottleneck,
    /// What the shards of a stream held, since the loader was made; `None` where there is an index, which was checked
    /// when the data set was opened.
    pub stream: Option<StreamStats>,
}

impl Stats {
    /// The row of one stage.
    #[must_use]
    pub fn stage(&self, stage: Stage) -> &StageStats {
        &self.stages[stage as usize]
    }
}

/// A loader's memory on its GPU, and how batches fared there.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct DeviceStats {
    /// Number of the GPU, as CUDA counts.
    pub ordinal: usize,
    /// Slots that exist: room for one batch each.
    pub slots: usize,
    /// Slots that are filled: on their way or in the consumer's hands.
    pub slots_held: usize,
    /// Bytes of a slot.
    pub slot_bytes: u64,
    /// Bytes copied from host to device.
    pub copied_bytes: u64,
    /// Tensors that were handed to a consumer's stream.
    pub tensors_lent: u64,
    /// Tensors among them that were not complete at that moment: the stream had to wait for its data.
    pub tensors_early: u64,
    /// Images that the GPU's JPEG engines decoded.
    pub engine_images: u64,
    /// Images that the engines were given and did not decode; the threads did.
    pub engine_refused: u64,
    /// Images among those that the engines claimed to have decoded, and of which pixels were missing.
    pub engine_unwritten: u64,
    /// Bytes of GPU memory that the engines take, but for what their library takes by itself.
    pub engine_bytes: u64,
    /// Share of all images that goes to the engines now, 0 to 1.
    pub engine_share: f64,
    /// The engines in use, or why they are not; `None` before they were needed.
    pub engines: Option<String>,
}

/// What one stage did.
#[derive(Debug, Clone, PartialEq)]
pub struct StageStats {
    /// Which stage.
    pub stage: Stage,
    /// Items that passed: samples, and batches for `wait`.
    pub items: u64,
    /// Items that failed.
    pub failures: u64,
    /// Thread-seconds at work over threads times wall time, 0 to 1. For `wait`: the consumer's waiting time.
    pub busy_share: f64,
    /// Thread-seconds spent waiting for another stage over threads times wall time, 0 to 1.
    pub wait_share: f64,
}

/// What limits a loader's throughput.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Bottleneck {
    /// Too little has happened to tell.
    Unknown,
    /// Storage delivers slower than the decode threads work: they wait for bytes.
    Read,
    /// The decode threads are busy all the time, mostly decoding.
    Decode,
    /// The decode threads are busy all the time, mostly resampling and converting.
    Transform,
    /// The GPU's JPEG engines are busy all the time, and the decode threads are not.
    Engines,
    /// Copying to the device takes longer than making batches.
    Copy,
    /// Batches wait for the consumer: the loader is faster than what it feeds.
    Consumer,
}

impl Bottleneck {
    /// The word that tables and JSON use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Read => "read",
            Self::Decode => "decode",
            Self::Transform => "transform",
            Self::Engines => "engines",
            Self::Copy => "copy",
            Self::Consumer => "consumer",
        }
    }

    /// The rule: whoever makes the others wait, and is at work meanwhile. The decode threads stand between storage and consumer, so their idle
    /// time tells that they are not the limit, and who keeps the readers waiting tells which side is.
    fn of(stats: &Stats) -> Self {
        if stats.batches == 0 {
            return Self::Unknown;
        }
        let decode = stats.stage(Stage::Decode);
        let transform = stats.stage(Stage::Transform);
        let waits = stats.stage(Stage::Wait).busy_share;
        if stats.stage(Stage::Copy).busy_share > SATURATED_SHARE {
            return Self::Copy;
        }
        if decode.wait_share > IDLE_SHARE {
            // The consumer's own waiting settles it where both sides had idle moments.
            if stats.consumer_behind_share > waits {
                return Self::Consumer;
            }
            if stats.engines_busy_share > SATURATED_SHARE {
                return Self::Engines;
            }
            // Where the readers have nothing to do either, all threads wait for processors: more than there are.
            if stats.stage(Stage::Read).busy_share > IDLE_SHARE {
                return Self::Read;
            }
        }
        if transform.busy_share > decode.busy_share { Self::Transform } else { Self::Decode }
    }
}

/// Decode threads that wait for more than this share of the time are not the limit.
const IDLE_SHARE: f64 = 0.25;

/// A copy stream that is busy for more than this share of the time is the limit, and so are JPEG engines.
const SATURATED_SHARE: f64 = 0.85;

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(read: f64, starved: f64, blocked: f64, consumer_waits: f64, decode: f64, transform: f64) -> Bottleneck {
        let counters = Counters::new(1, 1);
        let mut stats = counters.snapshot();
        stats.batches = 10;
        stats.consumer_behind_share = blocked;
        stats.stages[Stage::Read as usize].busy_share = read;
        stats.stages[Stage::Decode as usize].wait_share = starved;
        stats.stages[Stage::Decode as usize].busy_share = decode;
        stats.stages[Stage::Transform as usize].busy_share = transform;
        stats.stages[Stage::Wait as usize].busy_share = consumer_waits;
        Bottleneck::of(&stats)
    }

    #[test]
    fn whoever_makes_the_others_wait_is_the_bottleneck() {
        assert_eq!(stats(0.9, 0.9, 0.0, 0.9, 0.1, 0.0), Bottleneck::Read);
        assert_eq!(stats(0.1, 0.8, 0.9, 0.0, 0.2, 0.0), Bottleneck::Consumer);
        assert_eq!(stats(0.1, 0.02, 0.0, 0.9, 0.9, 0.05), Bottleneck::Decode);
        assert_eq!(stats(0.1, 0.02, 0.0, 0.9, 0.3, 0.6), Bottleneck::Transform);
    }

    #[test]
    fn engines_that_work_all_the_time_beside_idle_threads_are_the_bottleneck() {
        let mut stats = Counters::new(1, 1).snapshot();
        stats.batches = 10;
        stats.stages[Stage::Decode as usize].wait_share = 0.9;
        stats.stages[Stage::Wait as usize].busy_share = 0.9;
        stats.engines_busy_share = 0.97;
        assert_eq!(Bottleneck::of(&stats), Bottleneck::Engines);
        stats.stages[Stage::Decode as usize].wait_share = 0.0;
        assert_eq!(Bottleneck::of(&stats), Bottleneck::Decode, "threads that are busy too can be helped");
    }

    #[test]
    fn readers_that_hardly_work_are_not_the_bottleneck() {
        // Eight threads on two processors: each waits for its turn, and none for bytes.
        assert_eq!(stats(0.02, 0.6, 0.0, 0.9, 0.2, 0.1), Bottleneck::Decode);
    }

    #[test]
    fn shares_never_leave_zero_to_one() {
        let counters = Counters::new(2, 1);
        counters.busy(Stage::Decode, Duration::from_secs(1000), 1);
        counters.delivered(Duration::ZERO);
        let stats = counters.snapshot();
        assert!(
            stats.stages.iter().all(|s| (0.0..=1.0).contains(&s.busy_share) && (0.0..=1.0).contains(&s.wait_share))
        );
        assert!(stats.time_to_first_batch.is_some());
    }
}
