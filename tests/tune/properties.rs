//! What holds for any device, any noise, any bounds.

use brimful::tune::{BatchSizeController, Measurement, Options, Phase, Sizes};
use proptest::prelude::*;

use crate::device::{Device, GB, calm, search};

fn devices() -> impl Strategy<Value = Device> {
    (0.0f64..0.05, 0.0f64..0.02, 1e-6f64..1e-3, 4.0f64..141.0, 0.0f64..0.2, any::<bool>(), 0.0f64..1.0).prop_map(
        |(launch_s, fixed_s, sample_s, memory_gb, step_noise, knows_activity, data)| Device {
            memory_bytes: memory_gb * GB,
            step_noise,
            window_noise: step_noise / 10.0,
            knows_activity,
            data_rate: if data < 0.3 { 100.0 + 20_000.0 * data } else { f64::INFINITY },
            ..Device::made(launch_s, fixed_s, sample_s)
        },
    )
}

fn measurements() -> impl Strategy<Value = Measurement> {
    let number = prop_oneof![Just(f64::NAN), Just(-1.0), Just(0.0), Just(1e300), 1e-6f64..10.0];
    (0usize..2000, number, 0.0f64..1.0, any::<u64>(), any::<bool>()).prop_map(|(size, step_s, share, bytes, odd)| {
        Measurement {
            batch_size: size,
            steps: 10,
            step_s,
            error: share / 10.0,
            wait_share: share,
            memory_bytes: odd.then_some(bytes),
            memory_limit_bytes: odd.then_some(bytes / 2),
            sm_active: odd.then_some(share),
            gpu_busy: None,
            is_throttled: odd,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_search_ends_within_its_bounds(device in devices(), min in 1usize..64, span in 8usize..4000, seed in 1u64..1000) {
        let Ok(sizes) = Sizes::multiples(min, min + span, 8) else { return Ok(()) };
        let outcome = search(&device, Options::new(sizes.clone()), seed, 0, calm);
        let phase = outcome.controller.phase();
        prop_assert!(phase == Phase::Settled || (phase == Phase::Failed && outcome.ran.is_empty()), "{:?}", phase);
        prop_assert!(outcome.decisions.len() < 80);
        for decision in &outcome.decisions {
            prop_assert!(sizes.contains(decision.batch_size));
            prop_assert!(decision.change.is_none_or(|change| change.from != change.to));
        }
        // It stays only at a size that it has run.
        prop_assert!(phase == Phase::Failed || outcome.ran.contains(&outcome.size));
    }

    #[test]
    fn the_same_measurements_lead_to_the_same_sizes_also_through_a_saved_state(
        made in prop::collection::vec((measurements(), any::<bool>()), 0..60),
        cut in 0usize..60,
    ) {
        let sizes = Sizes::multiples(8, 1024, 8).unwrap();
        let mut one = BatchSizeController::new(Options::new(sizes)).unwrap();
        let mut other = one.clone();
        for (at, (mut made, is_for_now)) in made.into_iter().enumerate() {
            if at == cut {
                let state = serde_json::to_string(&other).unwrap();
                other = serde_json::from_str(&state).unwrap();
            }
            if is_for_now {
                made.batch_size = one.batch_size();
            }
            if made.wait_share > 0.97 {
                let size = one.batch_size();
                prop_assert_eq!(one.out_of_memory(size), other.out_of_memory(size));
            }
            prop_assert_eq!(one.observe(&made), other.observe(&made));
        }
        prop_assert_eq!(one, other);
    }

    #[test]
    fn no_measurement_breaks_it(made in prop::collection::vec(measurements(), 0..100)) {
        let sizes = Sizes::multiples(1, 2000, 1).unwrap();
        let mut controller = BatchSizeController::new(Options::new(sizes)).unwrap();
        for mut made in made {
            made.batch_size = controller.batch_size();
            let decision = controller.observe(&made);
            prop_assert!((1..=2000).contains(&decision.batch_size));
        }
    }
}
