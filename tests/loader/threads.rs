//! Threads end when told, and nothing is left behind.

use brimful::sample::Shuffle;

use super::made::{epoch_labels, made};

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
