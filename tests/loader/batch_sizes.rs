//! Batch sizes that change while an epoch runs: every sample still comes once, and the change comes at the same batch
//! whatever the threads do.

use brimful::loader::{Batch, Loader};
use brimful::sample::Shuffle;

use crate::made::made;

/// Sizes of the batches of `epochs` epochs, and their samples; before batch `n` is taken, `asked(n)` is asked for.
fn take(loader: &Loader, epochs: usize, asked: impl Fn(usize) -> Option<usize>) -> (Vec<usize>, Vec<Vec<u64>>) {
    let (mut sizes, mut samples, mut taken) = (Vec::new(), Vec::new(), 0);
    for _ in 0..epochs {
        let mut epoch = loader.epoch().unwrap();
        let mut seen = Vec::new();
        loop {
            if let Some(rows) = asked(taken) {
                loader.set_batch_size(rows).unwrap();
            }
            let Some(batch) = epoch.next().map(Result::<Batch, _>::unwrap) else { break };
            sizes.push(batch.len());
            seen.extend(batch.samples.iter().copied());
            taken += 1;
        }
        samples.push(seen);
    }
    (sizes, samples)
}

fn asked(taken: usize) -> Option<usize> {
    match taken {
        2 => Some(8),
        9 => Some(3),
        20 => Some(16),
        _ => None,
    }
}

#[test]
fn sizes_change_at_the_same_batch_for_any_number_of_threads() {
    let data = made(&[40, 61]);
    for drop_last in [false, true] {
        let mut first = None;
        for threads in [1, 2, 4] {
            for readers in [1, 3] {
                let loader = data.loader(|builder| {
                    let builder = builder.batch_size(4).batch_size_max(16).prefetch(3).shuffle(Shuffle::Global);
                    builder.threads(threads).readers(readers).drop_last(drop_last)
                });
                let taken = take(&loader, 3, asked);
                // The batch that is asked before, then as many as are in flight, then the new size.
                assert_eq!(taken.0[..8], [4, 4, 4, 4, 4, 4, 8, 8], "{threads} threads");
                assert_eq!(*first.get_or_insert_with(|| taken.clone()), taken, "{threads} threads, {readers} readers");
            }
        }
    }
}

#[test]
fn every_sample_comes_once_whatever_the_sizes() {
    let data = made(&[40, 61]);
    let loader = data.loader(|b| b.batch_size(4).batch_size_max(16).prefetch(3).shuffle(Shuffle::Global));
    let (_, epochs) = take(&loader, 3, asked);
    let plain = data.loader(|b| b.batch_size(5).shuffle(Shuffle::Global));
    for (number, epoch) in epochs.iter().enumerate() {
        let expected: Vec<u64> = plain.epoch().unwrap().flat_map(|batch| batch.unwrap().samples).collect();
        assert_eq!(*epoch, expected, "epoch {number}");
    }
}

#[test]
fn a_loader_resumes_in_the_middle_of_changing_sizes() {
    let data = made(&[101]);
    let build = || data.loader(|b| b.batch_size(4).batch_size_max(16).prefetch(2).shuffle(Shuffle::Global));
    let loader = build();
    let mut epoch = loader.epoch().unwrap();
    let mut seen: Vec<u64> = Vec::new();
    for taken in 0..9 {
        if taken == 1 {
            loader.set_batch_size(8).unwrap();
        }
        seen.extend(epoch.next().unwrap().unwrap().samples);
    }
    let resumed = build();
    resumed.load_state(&loader.state()).unwrap();
    resumed.set_batch_size(16).unwrap();
    let rest: Vec<Batch> = resumed.epoch().unwrap().map(Result::unwrap).collect();
    assert_eq!(rest[0].len(), 16, "a run that begins anew has the size that is wanted");
    seen.extend(rest.iter().flat_map(|batch| batch.samples.iter().copied()));
    let all: Vec<u64> = build().epoch().unwrap().flat_map(|batch| batch.unwrap().samples).collect();
    assert_eq!(seen, all);
}

#[test]
fn sizes_beyond_the_bound_are_refused() {
    let data = made(&[20]);
    let loader = data.loader(|b| b.batch_size(4).batch_size_max(8));
    for rows in [0, 9] {
        assert!(loader.set_batch_size(rows).is_err());
    }
    assert_eq!(loader.len(), Some(5));
    loader.set_batch_size(8).unwrap();
    assert_eq!((loader.len(), loader.batch_size()), (Some(3), 8));
    let plain = data.loader(|b| b.batch_size(4));
    assert!(plain.set_batch_size(5).is_err(), "without a bound of its own the size is the bound");
}
