//! Threads end when told, and nothing is left behind.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use brimful::loader::{Access, DatasetOptions, Loader, Poll};
use brimful::sample::Shuffle;
use brimful::shard::{ShardOptions, Store};

use super::made::{epoch_labels, made, options, shard_path};

/// Entries of a folder under /proc/self.
fn count(folder: &str) -> usize {
    std::fs::read_dir(format!("/proc/self/{folder}")).map_or(0, Iterator::count)
}

/// Waits until `condition` holds; threads that were told to end need a moment to be gone from the list.
fn eventually(condition: impl Fn() -> bool) -> bool {
    let started = std::time::Instant::now();
    while started.elapsed() < std::time::Duration::from_secs(10) {
        if condition() {
            return true;
        }
        std::thread::yield_now();
    }
    false
}

#[test]
fn leaving_early_two_hundred_times_leaks_neither_thread_nor_descriptor() {
    let data = made(&[30, 30]);
    let loader = data.loader(|b| b.shuffle(Shuffle::Global));
    loader.epoch().unwrap().next();
    let files = count("fd");
    for _ in 0..200 {
        let mut epoch = loader.epoch().unwrap();
        epoch.next().unwrap().unwrap();
    }
    drop(loader);
    assert!(count("fd") <= files);
    let own = |thread: &std::fs::DirEntry| {
        std::fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name.starts_with("brimful-"))
    };
    let ours = || std::fs::read_dir("/proc/self/task").map_or(0, |tasks| tasks.flatten().filter(own).count());
    assert!(eventually(|| ours() == 0), "{} threads are left", ours());
}

#[test]
fn a_loader_that_is_never_iterated_starts_no_thread() {
    let data = made(&[4]);
    let before = count("task");
    let loader = data.loader(|b| b.threads(8));
    assert!(count("task") <= before + 1);
    drop(loader);
}

#[test]
fn buffers_are_reused_from_epoch_to_epoch() {
    let data = made(&[64]);
    let loader = data.loader(|b| b.batch_size(8));
    let mut addresses = std::collections::HashSet::new();
    for _ in 0..6 {
        for batch in loader.epoch().unwrap() {
            addresses.insert(super::made::pixels(&batch.unwrap()).as_ptr() as usize);
        }
    }
    let (threads, _) = loader.threads();
    let in_flight = (threads * 16_usize).div_ceil(8).max(3);
    assert!(addresses.len() <= in_flight + 2, "{} buffers for {in_flight} batches in flight", addresses.len());
}

#[test]
fn batches_may_outlive_their_loader() {
    let data = made(&[8]);
    let batches: Vec<_> = {
        let loader = data.loader(|b| b);
        loader.epoch().unwrap().map(Result::unwrap).collect()
    };
    drop(data);
    assert_eq!(batches.iter().flat_map(super::made::labels).collect::<Vec<_>>(), (0..8).collect::<Vec<i64>>());
}

#[test]
fn single_samples_equal_those_of_a_batch() {
    let data = made(&[9]);
    let loader = data.loader(|b| b.batch_size(9));
    let batch = loader.epoch().unwrap().next().unwrap().unwrap();
    let whole = super::made::pixels(&batch);
    for (row, bytes) in whole.chunks(whole.len() / 9).enumerate() {
        let single = loader.fetch(&[row], 0).unwrap();
        assert_eq!(super::made::pixels(&single), bytes);
        assert_eq!(super::made::labels(&single), [row as i64]);
    }
    assert!(loader.fetch(&[9], 0).is_err());
    assert!(loader.fetch(&[], 0).is_err());
}

#[test]
fn an_empty_data_set_has_no_batches() {
    let data = made(&[]);
    std::fs::write(super::made::shard_path(data.folder.path(), 0), [0; 1024]).unwrap();
    let loader = data.loader(|b| b);
    assert_eq!(loader.len(), Some(0));
    assert!(epoch_labels(&loader).is_empty());
    assert!(epoch_labels(&loader).is_empty());
}

/// How long leaving may take: half a second for threads that hang, and a busy machine.
const LEAVING_MAX: Duration = Duration::from_millis(1500);

/// A store on a mount that does not answer until it is told to.
#[derive(Debug)]
struct Hanging(Box<dyn Store>);

static ANSWERS: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());
static HANGING: AtomicUsize = AtomicUsize::new(0);
static CLOSED: AtomicUsize = AtomicUsize::new(0);

impl Store for Hanging {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read(&self, range: Range<u64>) -> brimful::Result<bytes::Bytes> {
        self.0.read(range)
    }

    fn prefetch(&self, _range: Range<u64>) {}

    fn populate(&self, _range: Range<u64>) -> brimful::Result<()> {
        HANGING.fetch_add(1, Ordering::SeqCst);
        let answers = ANSWERS.0.lock().unwrap();
        drop(ANSWERS.1.wait_while(answers, |answers| !*answers).unwrap());
        Ok(())
    }

    fn check(&self) -> brimful::Result<()> {
        self.0.check()
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        CLOSED.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn leaving_does_not_wait_for_storage_that_does_not_answer() {
    let data = made(&[9]);
    let shards = ShardOptions { wrap: Some(|store| Box::new(Hanging(store))), ..ShardOptions::default() };
    let dataset = data.dataset(DatasetOptions { shards, ..options() }).unwrap();
    let opened_before = CLOSED.load(Ordering::SeqCst);
    let loader = Loader::builder(dataset).threads(2).build().unwrap();
    let mut epoch = loader.epoch().unwrap();
    assert!(eventually(|| HANGING.load(Ordering::SeqCst) > 0));
    assert!(matches!(epoch.poll(Duration::from_millis(1)), Poll::Pending));
    let leaving = Instant::now();
    drop((epoch, loader));
    assert!(leaving.elapsed() < LEAVING_MAX, "{:?}", leaving.elapsed());
    // The thread that was left behind ends once it is let go, and what it held goes with it.
    assert_eq!(CLOSED.load(Ordering::SeqCst), opened_before);
    *ANSWERS.0.lock().unwrap() = true;
    ANSWERS.1.notify_all();
    assert!(eventually(|| CLOSED.load(Ordering::SeqCst) == opened_before + 1));
}

fn make_pipe(path: &Path) {
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
}

#[test]
fn a_pipe_is_read_in_a_stream_and_left_while_nobody_writes() {
    let data = made(&[5]);
    let shard = shard_path(data.folder.path(), 0);
    let bytes = std::fs::read(&shard).unwrap();
    std::fs::remove_file(&shard).unwrap();
    make_pipe(&shard);
    let error = data.dataset(options()).unwrap_err();
    assert_eq!(error.kind(), brimful::ErrorKind::Unsupported);

    let dataset = data.dataset(DatasetOptions { access: Access::Stream, ..options() }).unwrap();
    let loader = Loader::builder(dataset).threads(2).batch_size(2).build().unwrap();
    let mut epoch = loader.epoch().unwrap();
    assert!(matches!(epoch.poll(Duration::from_millis(1)), Poll::Pending));
    let leaving = Instant::now();
    drop(epoch);
    assert!(leaving.elapsed() < LEAVING_MAX, "{:?}", leaving.elapsed());

    let epoch = loader.epoch().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| std::fs::write(&shard, bytes).unwrap());
        let labels: Vec<i64> = epoch.flat_map(|batch| super::made::labels(&batch.unwrap())).collect();
        assert_eq!(labels, [0, 1, 2, 3, 4]);
    });
}
