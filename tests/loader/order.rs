//! Which sample comes when: never a matter of threads or time.

use brimful::loader::State;
use brimful::sample::{Remainder, Shuffle, Split};

use super::made::{Made, epoch_labels, labels, made, pixels};

#[test]
fn without_shuffling_samples_come_as_they_lie() {
    let data = made(&[5, 3]);
    assert_eq!(epoch_labels(&data.loader(|b| b)), (0..8).collect::<Vec<i64>>());
}

#[test]
fn every_sample_comes_once_an_epoch_and_epochs_differ() {
    let data = made(&[7, 6, 8]);
    let loader = data.loader(|b| b.shuffle(Shuffle::Global).seed(3));
    let epochs: Vec<Vec<i64>> = (0..3).map(|_| epoch_labels(&loader)).collect();
    for epoch in &epochs {
        let mut sorted = epoch.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..21).collect::<Vec<i64>>());
    }
    assert_ne!(epochs[0], epochs[1]);
    assert_ne!(epochs[1], epochs[2]);
}

#[test]
fn batches_are_the_same_for_any_number_of_threads() {
    let data = made(&[9, 14]);
    let run = |threads: usize, readers: usize| -> Vec<(Vec<i64>, Vec<u8>)> {
        let loader = data.loader(|b| b.shuffle(Shuffle::Global).seed(11).threads(threads).readers(readers));
        let epochs = (0..2).flat_map(|_| loader.epoch().unwrap().collect::<Vec<_>>());
        epochs.map(|batch| batch.unwrap()).map(|batch| (labels(&batch), pixels(&batch).to_vec())).collect()
    };
    let one = run(1, 1);
    assert_eq!(one.len(), 12);
    assert_eq!(one, run(2, 1));
    assert_eq!(one, run(7, 3));
}

#[test]
fn a_set_epoch_comes_again_bit_for_bit() {
    let data = made(&[13]);
    let loader = data.loader(|b| b.shuffle(Shuffle::Window { shards: 2 }));
    let first: Vec<_> = loader.epoch().unwrap().map(|batch| pixels(&batch.unwrap()).to_vec()).collect();
    let second: Vec<_> = loader.epoch().unwrap().map(|batch| pixels(&batch.unwrap()).to_vec()).collect();
    assert_ne!(first, second);
    loader.set_epoch(0);
    let again: Vec<_> = loader.epoch().unwrap().map(|batch| pixels(&batch.unwrap()).to_vec()).collect();
    assert_eq!(first, again);
    assert_eq!(loader.epoch().unwrap().number(), 1);
}

#[test]
fn a_resumed_loader_goes_on_as_if_nothing_had_happened() {
    let data = made(&[10, 9]);
    let build = || data.loader(|b| b.shuffle(Shuffle::Global).seed(5));
    let whole: Vec<Vec<u8>> = {
        let loader = build();
        let two = (0..2).flat_map(|_| loader.epoch().unwrap().collect::<Vec<_>>());
        two.map(|batch| pixels(&batch.unwrap()).to_vec()).collect()
    };
    for delivered in 0..whole.len() {
        let loader = build();
        let mut got = Vec::new();
        'pass: loop {
            for batch in loader.epoch().unwrap() {
                if got.len() == delivered {
                    break 'pass;
                }
                got.push(pixels(&batch.unwrap()).to_vec());
            }
        }
        // The batch that made us leave was delivered too.
        let seen = delivered + 1;
        let state = loader.state();
        let resumed = build();
        resumed.load_state(&state).unwrap();
        let mut rest = Vec::new();
        while rest.len() < whole.len() - seen {
            rest.extend(resumed.epoch().unwrap().map(|batch| pixels(&batch.unwrap()).to_vec()));
        }
        assert_eq!(rest[..whole.len() - seen], whole[seen..], "after {seen} batches");
    }
}

#[test]
fn setting_the_resumed_epoch_keeps_the_resumed_place() {
    let data = made(&[20]);
    let build = || data.loader(|b| b.shuffle(Shuffle::Global));
    let loader = build();
    let mut epoch = loader.epoch().unwrap();
    epoch.next().unwrap().unwrap();
    let rest: Vec<i64> =
        loader.state().position.checked_sub(4).map(|_| epoch.flat_map(|b| labels(&b.unwrap())).collect()).unwrap();
    let state = State { position: 4, epoch: 0, ..loader.state() };
    let resumed = build();
    resumed.load_state(&state).unwrap();
    resumed.set_epoch(0);
    assert_eq!(epoch_labels(&resumed), rest);
}

#[test]
fn an_epoch_that_is_set_twice_is_replayed_whole() {
    let data = made(&[20]);
    let build = || data.loader(|b| b.shuffle(Shuffle::Global));
    let loader = build();
    loader.set_epoch(2);
    let whole = epoch_labels(&loader);
    loader.set_epoch(2);
    loader.set_epoch(2);
    assert_eq!(epoch_labels(&loader), whole);
    // A loaded place is kept once, for the epoch that goes on from it.
    let state = State { position: 4, epoch: 2, ..build().state() };
    loader.load_state(&state).unwrap();
    loader.set_epoch(2);
    assert_eq!(epoch_labels(&loader), whole[4..]);
    loader.set_epoch(2);
    assert_eq!(epoch_labels(&loader), whole);
    // Whoever leaves an epoch early and sets the next one stands at its start.
    loader.set_epoch(2);
    loader.epoch().unwrap().next().unwrap().unwrap();
    loader.set_epoch(3);
    assert_eq!((loader.state().epoch, loader.state().position), (3, 0));
}

#[test]
fn a_short_epoch_that_is_resumed_at_its_end_is_followed_by_whole_ones() {
    let data = made(&[3]);
    let loader = data.loader(|b| b.batch_size(8));
    let mut epoch = loader.epoch().unwrap();
    epoch.next().unwrap().unwrap();
    let resumed = data.loader(|b| b.batch_size(8));
    resumed.load_state(&loader.state()).unwrap();
    assert!(epoch_labels(&resumed).is_empty(), "nothing of the epoch was left");
    assert_eq!(epoch_labels(&resumed).len(), 3);
    assert_eq!(epoch_labels(&resumed).len(), 3);
}

#[test]
fn a_state_of_another_order_is_refused() {
    let data = made(&[20]);
    let state = data.loader(|b| b.shuffle(Shuffle::Global)).state();
    for shuffle in [Shuffle::None, Shuffle::Window { shards: 2 }] {
        let error = data.loader(|b| b.shuffle(shuffle)).load_state(&state).unwrap_err();
        assert_eq!(error.kind(), brimful::ErrorKind::StateMismatch);
        assert!(error.to_string().contains("was made with all samples shuffled"), "{error}");
    }
    let windowed = data.loader(|b| b.shuffle(Shuffle::Window { shards: 7 })).state();
    let error = data.loader(|b| b).load_state(&windowed).unwrap_err();
    assert!(error.to_string().contains("was made with a shuffle window of 7 shards"), "{error}");
    let error = made(&[21]).loader(|b| b.shuffle(Shuffle::Global)).load_state(&state).unwrap_err();
    assert!(error.to_string().contains("belongs to other shards"), "{error}");
}

#[test]
fn a_position_beyond_the_epoch_is_refused_and_its_very_end_is_not() {
    let data = made(&[20]);
    let loader = data.loader(|b| b);
    let state = loader.state();
    let at = |position, world_size| State { position, world_size, ..state };
    for (position, world_size) in [(20, 1), (7, 3), (3, 8)] {
        loader.load_state(&at(position, world_size)).unwrap();
        // What was padded for equal ranks does not make a place that cannot be loaded again.
        loader.load_state(&loader.state()).unwrap();
    }
    for (position, world_size) in [(21, 1), (8, 3), (1_000_000_000, 1), (1, u64::MAX - 1), (u64::MAX, 0)] {
        let refused = loader.load_state(&at(position, world_size)).map_err(|error| error.kind());
        // One sample a rank is what more ranks than samples have.
        let expected = if position == 1 { Ok(()) } else { Err(brimful::ErrorKind::StateMismatch) };
        assert_eq!(refused, expected, "{position} of {world_size}");
    }
}

/// Labels of `batches` batches of each of `world_size` ranks that go on from `state`, and the state after them.
fn go_on(
    data: &Made,
    state: Option<State>,
    world_size: usize,
    remainder: Remainder,
    batches: usize,
) -> (Vec<i64>, State) {
    let mut seen = Vec::new();
    let mut states = Vec::new();
    for rank in 0..world_size {
        let split = Split { rank, world_size, remainder };
        let loader = data.loader(|b| b.batch_size(3).shuffle(Shuffle::Global).seed(8).split(split));
        if let Some(state) = state {
            loader.load_state(&state).unwrap();
        }
        let epoch = loader.epoch().unwrap();
        seen.extend(epoch.take(batches).flat_map(|batch| labels(&batch.unwrap())));
        states.push(loader.state());
    }
    assert!(states.iter().all(|state| *state == states[0]), "one state serves every rank: {states:?}");
    (seen, states[0])
}

#[test]
fn a_changing_number_of_ranks_loses_and_repeats_no_sample_within_the_epoch() {
    let data = made(&[40, 31, 32]);
    for worlds in [[4, 3, 5], [1, 4, 1], [3, 2, 7], [5, 1, 3], [7, 5, 4]] {
        let (mut seen, state) = go_on(&data, None, worlds[0], Remainder::Pad, 2);
        let (more, state) = go_on(&data, Some(state), worlds[1], Remainder::Pad, 1);
        seen.extend(more);
        // A state that is loaded and saved again without a batch says the same.
        let (none, state) = go_on(&data, Some(state), worlds[1], Remainder::Pad, 0);
        assert!(none.is_empty());
        let had = seen.len();
        assert_eq!(had, (2 * worlds[0] + worlds[1]) * 3);
        let (rest, _) = go_on(&data, Some(state), worlds[2], Remainder::Pad, usize::MAX);
        // Only what makes the ranks equal at the very end comes twice.
        assert_eq!(rest.len(), (103 - had).div_ceil(worlds[2]) * worlds[2], "{worlds:?}");
        seen.extend(rest);
        let mut all = seen.clone();
        all.sort_unstable();
        all.dedup();
        assert_eq!((all.len(), seen.len() - all.len()), (103, seen.len() - 103), "{worlds:?}");
        let mut first: Vec<i64> = seen[..had].to_vec();
        first.sort_unstable();
        first.dedup();
        assert_eq!(first.len(), had, "{worlds:?}");
    }
}

#[test]
fn pixels_of_a_sample_are_the_same_for_any_ranks_and_batches() {
    let data = made(&[9, 10]);
    let run = |world_size: usize, batch_size: usize| {
        let mut rows = std::collections::BTreeMap::new();
        for rank in 0..world_size {
            let split = Split { rank, world_size, remainder: Remainder::Drop };
            let loader = data.loader(|b| b.batch_size(batch_size).split(split).shuffle(Shuffle::Global).seed(4));
            for batch in loader.epoch().unwrap() {
                let batch = batch.unwrap();
                let row_bytes = pixels(&batch).len() / batch.len();
                let images = pixels(&batch).chunks_exact(row_bytes).map(<[u8]>::to_vec);
                rows.extend(labels(&batch).into_iter().zip(images));
            }
        }
        rows
    };
    let one = run(1, 4);
    assert_eq!(one.len(), 19);
    for (world_size, batch_size) in [(1, 7), (2, 3), (5, 1)] {
        let rows = run(world_size, batch_size);
        assert_eq!(rows.len(), 19 / world_size * world_size);
        assert!(rows.iter().all(|(label, image)| one[label] == *image), "{world_size} ranks, batches of {batch_size}");
    }
}

#[test]
fn prefetched_batches_are_not_in_the_state() {
    let data = made(&[40]);
    let loader = data.loader(|b| b.prefetch(6));
    let mut epoch = loader.epoch().unwrap();
    epoch.next().unwrap().unwrap();
    epoch.next().unwrap().unwrap();
    assert_eq!((loader.state().epoch, loader.state().position), (0, 8));
}

#[test]
fn a_finished_epoch_resumes_at_the_next() {
    let data = made(&[6]);
    let loader = data.loader(|b| b);
    epoch_labels(&loader);
    assert_eq!((loader.state().epoch, loader.state().position), (1, 0));
}

#[test]
fn ranks_share_the_samples_in_equal_counts() {
    let data = made(&[5, 5, 7]);
    for (remainder, count) in [(Remainder::Drop, 4), (Remainder::Pad, 5)] {
        let ranks: Vec<Vec<i64>> = (0..4)
            .map(|rank| {
                let split = Split { rank, world_size: 4, remainder };
                epoch_labels(&data.loader(|b| b.shuffle(Shuffle::Global).split(split)))
            })
            .collect();
        assert!(ranks.iter().all(|labels| labels.len() == count), "{remainder:?}: {ranks:?}");
        let mut all: Vec<i64> = ranks.concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), if remainder == Remainder::Drop { 16 } else { 17 });
    }
}

#[test]
fn a_short_last_batch_is_kept_or_dropped_as_asked() {
    let data = made(&[10]);
    let lens = |drop_last: bool| -> Vec<usize> {
        let loader = data.loader(|b| b.drop_last(drop_last));
        let lens: Vec<usize> = loader.epoch().unwrap().map(|batch| batch.unwrap().len()).collect();
        assert_eq!(Some(lens.len()), loader.len());
        lens
    };
    assert_eq!(lens(false), [4, 4, 2]);
    assert_eq!(lens(true), [4, 4]);
}

#[test]
fn two_live_iterators_are_independent() {
    let data = made(&[12]);
    let loader = data.loader(|b| b.shuffle(Shuffle::Global));
    let (mut first, mut second) = (loader.epoch().unwrap(), loader.epoch().unwrap());
    let mut seen = [Vec::new(), Vec::new()];
    for _ in 0..3 {
        seen[0].extend(labels(&first.next().unwrap().unwrap()));
        seen[1].extend(labels(&second.next().unwrap().unwrap()));
    }
    assert!(first.next().is_none() && second.next().is_none());
    assert_ne!(seen[0], seen[1]);
    seen.iter_mut().for_each(|labels| labels.sort_unstable());
    assert_eq!(seen[0], seen[1]);
}
