//! Measuring storage, from outside: whether a store of known speed is measured at that speed, and what becomes of files
//! that change and runs that are ended.

use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use brimful::shard::{MemoryStore, Store};
use brimful::storage::{
    Cache, Case, Extent, Layout, Limits, Method, Pattern, Run, Source, cost_of_a_request, drop_all_caches, run,
    run_source,
};
use brimful::{ErrorKind, Result};
use bytes::Bytes;

/// A store that delivers so many bytes a second, whoever asks and however many do.
#[derive(Debug)]
struct Throttled {
    store: MemoryStore,
    bytes_per_s: f64,
    /// When all that was promised so far is delivered; shared by files on one disk.
    free_from: Arc<Mutex<Option<Instant>>>,
}

impl Store for Throttled {
    fn len(&self) -> u64 {
        self.store.len()
    }

    fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let takes = Duration::from_secs_f64((range.end - range.start) as f64 / self.bytes_per_s);
        let mut free_from = self.free_from.lock().unwrap();
        // A thread that sleeps too long is owed the rest: it is the average that is limited.
        let until = free_from.unwrap_or_else(Instant::now) + takes;
        *free_from = Some(until);
        drop(free_from);
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
        self.store.read(range)
    }

    fn prefetch(&self, _range: Range<u64>) {}

    fn populate(&self, _range: Range<u64>) -> Result<()> {
        Ok(())
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// Files of the given sizes with samples of 10,000 bytes.
fn layout(sizes: &[usize]) -> (tempfile::TempDir, Layout) {
    let folder = tempfile::tempdir().unwrap();
    let mut samples = Vec::new();
    let mut paths: Vec<PathBuf> = Vec::new();
    for (file, &size) in sizes.iter().enumerate() {
        let path = folder.path().join(format!("{file}.tar"));
        fs::write(&path, vec![5; size]).unwrap();
        paths.push(path);
        let extent = |offset: usize| Extent { file, offset: offset as u64, len: (size - offset).min(10_000) as u64 };
        samples.extend((0..size).step_by(10_000).map(extent));
    }
    let layout = Layout::new(&paths, samples).unwrap();
    (folder, layout)
}

fn case(method: Method, pattern: Pattern, threads: usize, cache: Cache) -> Case {
    Case { method, pattern, threads, block_bytes: 65_536, queue_depth: 4, cache }
}

fn limits(stop: &AtomicBool, duration: Duration) -> Limits<'_> {
    Limits { warm_up: Duration::ZERO, duration, seed: 1, stop }
}

#[test]
fn a_throttled_store_is_measured_at_its_limit() {
    let stop = AtomicBool::new(false);
    let limit_mb_per_s = 20.0;
    let sizes = [4_000_000, 4_000_000];
    let (_folder, layout) = layout(&sizes);
    for (pattern, threads) in [(Pattern::Sequential, 1), (Pattern::Members, 3), (Pattern::Shuffled, 2)] {
        let free_from = Arc::default();
        let throttled = |size: &usize| -> Box<dyn Store> {
            let store = MemoryStore::new(Bytes::from(vec![5; *size]));
            Box::new(Throttled { store, bytes_per_s: limit_mb_per_s * 1e6, free_from: Arc::clone(&free_from) })
        };
        let source = Source::stores(sizes.iter().map(throttled).collect());
        let case = case(Method::Pread, pattern, threads, Cache::Warm);
        let measured = run_source(&layout, &source, &case, &limits(&stop, Duration::from_millis(1000))).unwrap();
        let ratio = measured.mb_per_s() / limit_mb_per_s;
        assert!((0.95..=1.05).contains(&ratio), "{pattern:?} on {threads} threads: {ratio}");
        let samples = measured.samples_per_s().unwrap() * 10_000.0 / 1e6;
        assert!((samples / measured.mb_per_s() - 1.0).abs() < 0.01, "{pattern:?}: {samples}");
        if pattern == Pattern::Sequential {
            // A block of 65,536 bytes takes 3.28 ms at 20 MB/s; no thread is woken before that.
            assert!(measured.requests.max() >= Duration::from_millis(3), "{:?}", measured.requests.max());
        }
    }
}

#[test]
fn every_method_that_works_here_reads_all_bytes_once_when_cold() {
    let stop = AtomicBool::new(false);
    let (_folder, layout) = layout(&[300_000, 5_000, 123_457]);
    for method in Method::ALL {
        if let Err(error) = layout.paths().try_for_each(|path| method.check(path)) {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{}: {error}", method.as_str());
            continue;
        }
        for pattern in Pattern::ALL {
            let case = case(method, pattern, 1, Cache::Cold);
            let measured = run(&layout, &case, &limits(&stop, Duration::from_secs(20))).unwrap();
            assert_eq!(measured.bytes, layout.bytes(), "{} {pattern:?}", method.as_str());
            let samples = measured.samples.unwrap();
            assert!(
                (samples - layout.samples().len() as f64).abs() < 1e-6,
                "{} {pattern:?}: {samples}",
                method.as_str()
            );
        }
    }
}

#[test]
fn a_warm_run_lasts_as_long_as_it_shall() {
    let stop = AtomicBool::new(false);
    let (_folder, layout) = layout(&[50_000]);
    let case = case(Method::Pread, Pattern::Members, 2, Cache::Warm);
    let limits = Limits { warm_up: Duration::from_millis(20), ..limits(&stop, Duration::from_millis(400)) };
    let measured = run(&layout, &case, &limits).unwrap();
    assert!(measured.time > Duration::ZERO && measured.bytes > layout.bytes(), "{:?}", measured.time);
    assert_eq!(measured.requests.count(), measured.sample_latencies.count());
    assert!(measured.resident_before.is_none_or(|share| share > 0.99));
}

/// Cuts a file as soon as it was begun, and expects that every method says which file it was.
fn check_shrinking(method: Method) {
    let stop = AtomicBool::new(false);
    let (folder, layout) = layout(&[400_000]);
    let path = folder.path().join("0.tar");
    if method.check(&path).is_err() {
        return;
    }
    let source = Source::open(&layout, method, Pattern::Sequential, 2).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(100_000).unwrap();
    let case = case(method, Pattern::Sequential, 1, Cache::Cold);
    let error = run_source(&layout, &source, &case, &limits(&stop, Duration::from_secs(5))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ShardChanged, "{}: {error}", method.as_str());
    assert_eq!(error.place().shard.as_deref().map(Path::new), Some(path.as_path()), "{}", method.as_str());
    let error = run(&layout, &case, &limits(&stop, Duration::from_secs(5))).unwrap_err();
    assert!(error.to_string().contains("shrank from 400000 to 100000"), "{error}");
}

#[test]
fn a_file_that_shrinks_ends_the_run_with_its_name() {
    Method::ALL.into_iter().for_each(check_shrinking);
}

#[test]
fn a_run_that_is_ended_keeps_what_was_counted() {
    let (_folder, layout) = layout(&[80_000]);
    let stop = AtomicBool::new(false);
    let case = case(Method::Pread, Pattern::Members, 2, Cache::Warm);
    let measured: Run = std::thread::scope(|scope| {
        let running = scope.spawn(|| run(&layout, &case, &limits(&stop, Duration::from_secs(600))));
        stop.store(true, Ordering::Relaxed);
        running.join().unwrap().unwrap()
    });
    assert!(measured.time < Duration::from_secs(60));
}

#[test]
fn the_systems_caches_are_dropped_by_what_its_control_file_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let control = folder.path().join("drop_caches");
    fs::write(&control, b"0\n").unwrap();
    drop_all_caches(&control).unwrap();
    assert_eq!(fs::read(&control).unwrap(), b"3\n");
    let error = drop_all_caches(&folder.path().join("no/such")).unwrap_err();
    assert!(error.hint().is_some_and(|hint| hint.contains("--drop-caches")), "{error}");
}

#[test]
fn numbers_out_of_range_are_refused() {
    let stop = AtomicBool::new(false);
    let (_folder, layout) = layout(&[5_000]);
    let base = case(Method::Pread, Pattern::Sequential, 1, Cache::Warm);
    for case in [
        Case { threads: 0, ..base },
        Case { threads: 5000, ..base },
        Case { block_bytes: 0, ..base },
        Case { queue_depth: 0, ..base },
        Case { queue_depth: 1 << 20, ..base },
    ] {
        let error = run(&layout, &case, &limits(&stop, Duration::from_millis(1))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption, "{case:?}");
    }
}

#[test]
fn measuring_a_request_costs_less_than_reading_one() {
    let (_folder, layout) = layout(&[1_000_000]);
    let cost = cost_of_a_request(&layout, 65_536).unwrap();
    // Far above what it is, even in a build without optimisation; a system call alone takes longer than a tenth of it.
    assert!(cost > Duration::ZERO && cost < Duration::from_micros(20), "{cost:?}");
}
