//! Made-up devices: what holds them back is told apart, and disturbances lead neither astray nor around.

use brimful::tune::{BatchSizeController, Limit, Measurement, Options, Phase, Reason, Sizes};

use crate::device::{Device, Disturbed, GB, calm, options, search};

/// A device that reaches 95 % of its best within 16 to 1,024 somewhere near 300.
fn device() -> Device {
    Device { step_noise: 0.03, window_noise: 0.003, ..Device::made(0.008, 0.002, 1e-4) }
}

fn check(device: &Device, options: &Options, seed: u64, disturb: impl Fn(f64) -> Disturbed) -> usize {
    let outcome = search(device, options.clone(), seed, 40, disturb);
    let exact = device.exhaustive(&options.sizes, options.target);
    let ratio = outcome.size as f64 / exact as f64;
    assert!((0.75..=1.33).contains(&ratio), "seed {seed}: {} for {exact}: {:?}", outcome.size, outcome.decisions);
    outcome.decisions.iter().filter(|decision| decision.change.is_some()).count()
}

#[test]
fn a_device_that_slows_down_evenly_is_judged_as_one_that_does_not() {
    for seed in 1..=30 {
        for drift in [0.004, -0.004, 0.01] {
            let warming = |seconds: f64| Disturbed { slower: 1.0 + drift * seconds.min(15.0), is_throttled: false };
            check(&device(), &options(16, 1024), seed, warming);
        }
    }
}

#[test]
fn throttling_for_a_while_does_not_end_the_search() {
    for seed in 1..=30 {
        for begin in [0.2, 0.6, 1.5, 3.0] {
            let hot = |seconds: f64| {
                let is_throttled = (begin..begin + 0.8).contains(&seconds);
                Disturbed { slower: if is_throttled { 1.6 } else { 1.0 }, is_throttled }
            };
            check(&device(), &options(16, 1024), seed, hot);
        }
    }
}

#[test]
fn a_neighbour_that_comes_and_goes_does_not_end_the_search() {
    for seed in 1..=30 {
        for begin in [0.3, 1.0, 2.5] {
            // Another process takes a third of the device for a moment, and nobody says so.
            let shared = |seconds: f64| {
                let slower = if (begin..begin + 0.35).contains(&seconds) { 1.5 } else { 1.0 };
                Disturbed { slower, is_throttled: false }
            };
            check(&device(), &options(16, 1024), seed, shared);
        }
    }
}

#[test]
fn a_settled_size_stays_through_noise_and_short_disturbances() {
    for seed in 1..=20 {
        let bursts = |seconds: f64| {
            let is_burst = seconds > 20.0 && seconds % 7.0 < 1.0;
            Disturbed { slower: if is_burst { 1.4 } else { 1.0 }, is_throttled: false }
        };
        let outcome = search(&device(), options(16, 1024), seed, 400, bursts);
        let settled = outcome.decisions.iter().position(|decision| decision.phase == Phase::Settled).unwrap();
        let changes = outcome.decisions[settled..].iter().filter(|decision| decision.change.is_some()).count();
        assert_eq!(changes, 0, "seed {seed}");
    }
}

#[test]
fn a_lasting_change_leads_to_one_new_search() {
    let heavier = |seconds: f64| Disturbed { slower: if seconds > 60.0 { 2.0 } else { 1.0 }, is_throttled: false };
    let outcome = search(&device(), options(16, 1024), 3, 300, heavier);
    let again = outcome
        .decisions
        .iter()
        .filter(|decision| decision.change.is_some_and(|change| matches!(change.reason, Reason::LastingChange { .. })));
    assert_eq!(again.count(), 1);
    assert_eq!(outcome.controller.phase(), Phase::Settled);
}

#[test]
fn waiting_for_data_is_told_from_waiting_for_launches() {
    let slow_data = Device { data_rate: 2500.0, ..device() };
    let outcome = search(&slow_data, options(16, 1024), 1, 0, calm);
    assert_eq!(outcome.controller.limit(), Limit::Data);
    assert!(outcome.size <= 64, "a larger batch would not help: {:?}", outcome);

    let launches = Device::made(0.2, 0.0, 1e-5);
    let outcome = search(&launches, options(16, 512), 1, 0, calm);
    assert_eq!((outcome.controller.limit(), outcome.size), (Limit::Launch, 512));

    let outcome = search(&device(), options(16, 1024), 1, 0, calm);
    assert_eq!(outcome.controller.limit(), Limit::Compute, "{outcome:?}");
    let outcome = search(&device(), options(16, 128), 1, 0, calm);
    assert_eq!(outcome.controller.limit(), Limit::Bounds);
}

#[test]
fn memory_bounds_the_size_before_it_runs_out() {
    let small = Device { memory_bytes: 8.0 * GB, ..device() };
    let outcome = search(&small, options(16, 1024), 1, 0, calm);
    assert_eq!((outcome.out_of_memory, outcome.controller.limit()), (0, Limit::Memory));
    let most = outcome.ran.iter().map(|&size| small.memory(size)).fold(0.0, f64::max);
    assert!(most <= 0.9 * 8.0 * GB, "{most}");
}

#[test]
fn running_out_of_memory_is_survived_and_not_repeated() {
    let mut controller = BatchSizeController::new(options(16, 1024)).unwrap();
    let made = |size: usize| Measurement {
        batch_size: size,
        steps: 10,
        step_s: 0.01 + size as f64 * 1e-4,
        ..Measurement::default()
    };
    let mut failures = 0;
    for _ in 0..40 {
        let size = controller.batch_size();
        // Memory is unknown, and batches from 300 on do not fit.
        if size >= 300 {
            failures += 1;
            controller.out_of_memory(size);
        } else {
            controller.observe(&made(size));
        }
    }
    assert_eq!(controller.phase(), Phase::Settled);
    assert!(controller.batch_size() < 300 && controller.batch_size() >= 128, "{}", controller.batch_size());
    assert!(failures <= 2, "{failures}");
}

#[test]
fn a_model_that_never_fits_fails_and_does_not_hang() {
    let mut controller = BatchSizeController::new(options(16, 64)).unwrap();
    assert_eq!(controller.out_of_memory(16).phase, Phase::Failed);
    assert_eq!(
        controller.observe(&Measurement { batch_size: 16, step_s: 1.0, ..Measurement::default() }).phase,
        Phase::Failed
    );
}

#[test]
fn divisors_bound_the_search_to_steps_of_one_global_batch() {
    let sizes = Sizes::divisors(768, 16, 1024, 8).unwrap();
    let options = Options::new(sizes.clone());
    let outcome = search(&device(), options, 5, 3, calm);
    assert!(sizes.contains(outcome.size), "{}", outcome.size);
}
