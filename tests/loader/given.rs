//! Orders that the caller gives: each batch as named, repeats drawn anew, resumed at any batch, taken no faster than
//! batches are; and batches that overtake each other where that is allowed.

use brimful::ErrorKind;
use brimful::loader::{Arrival, Batch, Loader, OnError, Order};
use proptest::prelude::*;

use super::made::{Made, labels, made, pixels, sample, shard_path, write_shard};

/// One epoch over `batches`, of which the first `passed` were delivered before.
fn epoch_of(loader: &Loader, batches: &[Vec<usize>], passed: usize) -> Vec<Batch> {
    let mut epoch = loader.epoch().unwrap();
    let (before, after) = batches.split_at(passed);
    let orders = epoch.orders().unwrap();
    before.iter().for_each(|batch| orders.pass_over(batch).unwrap());
    let mut order = after.iter();
    let mut got = Vec::new();
    loop {
        while orders.has_room() {
            match order.next() {
                Some(batch) => orders.give(batch.clone()).unwrap(),
                None => orders.end(),
            }
        }
        match epoch.next() {
            Some(batch) => got.push(batch.unwrap()),
            None => return got,
        }
    }
}

fn given(made: &Made, threads: usize) -> Loader {
    made.loader(|builder| builder.order(Order::Given).threads(threads).prefetch(3))
}

fn all_labels(batches: &[Batch]) -> Vec<Vec<i64>> {
    batches.iter().map(labels).collect()
}

fn as_labels(batches: &[Vec<usize>]) -> Vec<Vec<i64>> {
    batches.iter().map(|batch| batch.iter().map(|&number| number as i64).collect()).collect()
}

#[test]
fn a_plan_given_by_number_gives_the_batches_of_the_plan() {
    let made = made(&[5, 6]);
    let planned: Vec<Batch> = made.loader(|builder| builder).epoch().unwrap().map(Result::unwrap).collect();
    let order: Vec<Vec<usize>> = (0..11).collect::<Vec<_>>().chunks(4).map(<[usize]>::to_vec).collect();
    let ours = epoch_of(&given(&made, 2), &order, 0);
    assert_eq!(all_labels(&ours), all_labels(&planned));
    assert!(ours.iter().zip(&planned).all(|(a, b)| pixels(a) == pixels(b) && a.index == b.index));
}

#[test]
fn epochs_follow_each_other_on_the_same_threads_and_empty_ones_are_short() {
    let made = made(&[6]);
    let loader = given(&made, 2);
    for (epoch, order) in [vec![vec![1, 2], vec![3]], vec![], vec![vec![5]]].iter().enumerate() {
        let batches = epoch_of(&loader, order, 0);
        assert_eq!(all_labels(&batches), as_labels(order));
        assert!(batches.iter().all(|batch| batch.epoch == epoch as u64));
    }
}

#[test]
fn a_sample_that_comes_again_is_augmented_in_another_way() {
    let made = made(&[4]);
    let batches = epoch_of(&given(&made, 1), &[vec![2, 2], vec![2]], 0);
    let row = pixels(&batches[0]).len() / 2;
    let (first, second) = pixels(&batches[0]).split_at(row);
    assert!(first != second && second != pixels(&batches[1]) && first != pixels(&batches[1]));
}

#[test]
fn an_order_without_end_is_taken_as_fast_as_batches_are() {
    let made = made(&[4]);
    let loader = given(&made, 2);
    let mut epoch = loader.epoch().unwrap();
    let orders = epoch.orders().unwrap();
    let mut taken = 0;
    for delivered in 0..10 {
        while orders.has_room() {
            orders.give(vec![taken % 4]).unwrap();
            taken += 1;
        }
        assert_eq!(taken, delivered + 3, "three batches are in flight");
        assert_eq!(labels(&epoch.next().unwrap().unwrap()), [(delivered % 4) as i64]);
    }
}

#[test]
fn what_cannot_be_given_is_refused_with_advice() {
    let made = made(&[4]);
    let loader = given(&made, 1);
    let epoch = loader.epoch().unwrap();
    let orders = epoch.orders().unwrap();
    for (numbers, word) in [(vec![], "no samples"), (vec![4], "no sample 4")] {
        let error = orders.give(numbers).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption);
        assert!(error.to_string().contains(word), "{error}");
    }
    let planned = made.loader(|builder| builder);
    assert!(planned.epoch().unwrap().orders().is_none());
    orders.end();
    drop(epoch);
    assert!(orders.give(vec![1]).is_err(), "an order that has ended takes nothing more");
}

#[test]
fn a_state_of_another_order_is_refused() {
    let made = made(&[4]);
    let state = made.loader(|builder| builder).state();
    let error = given(&made, 1).load_state(&state).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StateMismatch);
    assert!(error.to_string().contains("sampler"), "{error}");
}

#[test]
fn a_bad_sample_is_replaced_by_one_of_the_order_and_the_same_one_each_time() {
    let made = made(&[0]);
    let samples = (0..6).map(|number| {
        let (key, mut fields) = sample(number);
        if number == 3 {
            fields[0].1 = b"no picture".to_vec();
        }
        (key, fields)
    });
    write_shard(&shard_path(made.folder.path(), 0), samples);
    let replaced = |threads| {
        let budget = brimful::loader::ErrorBudget::Unlimited;
        let loader = made.loader(|b| b.order(Order::Given).threads(threads).on_error(OnError::Replace, budget));
        all_labels(&epoch_of(&loader, &[vec![1, 3], vec![3, 2]], 0))
    };
    let one = replaced(1);
    assert_eq!(one, replaced(3));
    assert!(one.iter().flatten().all(|label| [1, 2].contains(label)), "{one:?}");
}

#[test]
fn batches_that_overtake_each_other_make_whole_epochs() {
    let made = made(&[40]);
    let loader = made.loader(|builder| builder.arrival(Arrival::AsReady).threads(3).prefetch(6));
    for _ in 0..4 {
        let mut all: Vec<i64> = loader.epoch().unwrap().flat_map(|batch| labels(&batch.unwrap())).collect();
        all.sort_unstable();
        assert_eq!(all, (0..40).collect::<Vec<_>>());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn batches_come_as_named_for_any_threads_and_go_on_from_any_batch(
        order in prop::collection::vec(prop::collection::vec(0_usize..9, 1..6), 1..8),
        threads in 1_usize..4,
        passed in 0_usize..8,
    ) {
        let made = made(&[4, 5]);
        let whole = epoch_of(&given(&made, threads), &order, 0);
        prop_assert_eq!(all_labels(&whole), as_labels(&order));
        let passed = passed.min(order.len());

        let first = given(&made, 2);
        let mut epoch = first.epoch().unwrap();
        for batch in &order[..passed] {
            epoch.orders().unwrap().give(batch.clone()).unwrap();
            epoch.next().unwrap().unwrap();
        }
        let state = first.state();
        prop_assert_eq!(state.position as usize, order[..passed].iter().map(Vec::len).sum::<usize>());
        let second = given(&made, 1);
        second.load_state(&state).unwrap();
        let rest = epoch_of(&second, &order, passed);
        prop_assert_eq!(rest.len(), order.len() - passed);
        for (ours, theirs) in rest.iter().zip(&whole[passed..]) {
            prop_assert_eq!(labels(ours), labels(theirs));
            prop_assert!(pixels(ours) == pixels(theirs));
            prop_assert_eq!(ours.index, theirs.index);
        }
    }
}
