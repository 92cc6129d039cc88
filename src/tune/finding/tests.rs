//! Each kind is planted once, and a healthy run has none.

use super::*;

/// A run that is as fast as its model.
fn healthy() -> Readings {
    Readings {
        run_per_s: Some(4_700.0),
        device_per_s: Some(4_750.0),
        storage_per_s: Some(40_000.0),
        decode_per_s: Some(8_500.0),
        loader_per_s: Some(8_300.0),
        decode_threads: Some(16),
        cores: Some(16.0),
        cpu_busy: Some(0.6),
        wait_share: Some(0.004),
        step_s: Some(0.0545),
        exposed_copy_s: Some(0.0),
        copies_are_pinned: Some(true),
        copy_bytes_per_s: Some(52.5e9),
        pinned_bytes_per_s: Some(54.5e9),
        dram: Some(0.47),
        doubled_step_ratio: Some(1.9),
        kernel_share: Some(0.99),
        syncs_per_step: Some(0.0),
        sync_idle_s: Some(0.0),
        exposed_allreduce_s: Some(0.0),
        world_size: Some(1),
        reserved_bytes: Some(13e9),
        allocated_bytes: Some(11.8e9),
        skipped_steps: Some(0.0),
        has_nonfinite: Some(false),
        is_throttled: Some(false),
        sm_clock_mhz: Some(1_900.0),
        sm_clock_max_mhz: Some(1_980.0),
        pcie_width: Some(16),
        pcie_width_max: Some(16),
        pcie_generation: Some(5),
        pcie_generation_max: Some(5),
        other_processes: Some(0),
        ..Readings::default()
    }
}

fn first(readings: &Readings) -> Option<FindingKind> {
    findings(readings).first().map(|finding| finding.kind)
}

#[test]
fn a_healthy_run_has_no_finding() {
    assert_eq!(findings(&healthy()), []);
}

#[test]
fn what_is_not_known_proves_nothing() {
    assert_eq!(findings(&Readings::default()), []);
}

#[test]
fn each_planted_fault_is_named_first() {
    let starved = Readings { run_per_s: Some(900.0), wait_share: Some(0.8), ..healthy() };
    let planted = [
        (FindingKind::Storage, Readings { storage_per_s: Some(950.0), cpu_busy: Some(0.2), ..starved.clone() }),
        (
            FindingKind::Decode,
            Readings { decode_per_s: Some(920.0), decode_threads: Some(1), cpu_busy: Some(0.1), ..starved.clone() },
        ),
        (
            FindingKind::CpuSaturated,
            Readings { decode_per_s: Some(920.0), decode_threads: Some(2), cores: Some(2.0), ..starved.clone() },
        ),
        (
            FindingKind::CopyPageable,
            Readings {
                copies_are_pinned: Some(false),
                copy_bytes_per_s: Some(19e9),
                exposed_copy_s: Some(0.012),
                ..healthy()
            },
        ),
        (FindingKind::CopyShare, Readings { exposed_copy_s: Some(0.02), ..healthy() }),
        (
            FindingKind::DramBound,
            Readings { dram: Some(0.85), tried: [("channels_last".to_owned(), 0.2)].into(), ..healthy() },
        ),
        (FindingKind::LaunchBound, Readings { doubled_step_ratio: Some(1.02), kernel_share: Some(0.35), ..healthy() }),
        (
            FindingKind::SyncInStep,
            Readings { syncs_per_step: Some(3.0), sync_idle_s: Some(0.01), kernel_share: Some(0.8), ..healthy() },
        ),
        (FindingKind::Allreduce, Readings { exposed_allreduce_s: Some(0.02), world_size: Some(4), ..healthy() }),
        (
            FindingKind::Fragmentation,
            Readings { reserved_bytes: Some(60e9), larger_batch_gain: Some(0.08), ..healthy() },
        ),
        (FindingKind::AmpOverflow, Readings { skipped_steps: Some(0.2), ..healthy() }),
        (FindingKind::AmpOverflow, Readings { has_nonfinite: Some(true), ..healthy() }),
        (FindingKind::Throttled, Readings { is_throttled: Some(true), sm_clock_mhz: Some(1_200.0), ..healthy() }),
        (FindingKind::PcieWidth, Readings { pcie_width: Some(4), exposed_copy_s: Some(0.01), ..healthy() }),
        (FindingKind::DevicePermission, Readings { closed_nodes: vec!["/dev/nvidia0".to_owned()], ..healthy() }),
        (FindingKind::VersionMismatch, Readings { version_conflicts: vec!["one".to_owned()], ..healthy() }),
        (FindingKind::SharedGpu, Readings { other_processes: Some(2), ..healthy() }),
    ];
    for (kind, readings) in &planted {
        assert_eq!(first(readings), Some(*kind), "{:?}", findings(readings));
    }
    let kinds: std::collections::BTreeSet<_> = planted.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds.len(), FindingKind::ALL.len(), "every kind is planted");
}

#[test]
fn the_greatest_gain_comes_first() {
    let both = Readings {
        exposed_allreduce_s: Some(0.005),
        world_size: Some(2),
        is_throttled: Some(true),
        sm_clock_mhz: Some(990.0),
        other_processes: Some(1),
        ..healthy()
    };
    let kinds: Vec<_> = findings(&both).into_iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [FindingKind::Throttled, FindingKind::Allreduce, FindingKind::SharedGpu]);
}

#[test]
fn a_gain_is_what_the_next_limit_leaves() {
    let slow = Readings {
        run_per_s: Some(1_000.0),
        wait_share: Some(0.8),
        storage_per_s: Some(1_000.0),
        decode_per_s: Some(3_000.0),
        ..healthy()
    };
    let found = findings(&slow);
    assert!((found[0].gain - 2.0).abs() < 1e-9, "decoding is the next limit: {found:?}");
}

#[test]
fn readings_come_as_json_and_unknown_names_are_refused() {
    let readings: Readings = serde_json::from_str(r#"{"is_throttled":true}"#).unwrap();
    assert_eq!(first(&readings), Some(FindingKind::Throttled));
    assert!(serde_json::from_str::<Readings>(r#"{"is_throtled":true}"#).is_err());
    let json = serde_json::to_value(findings(&readings)).unwrap();
    assert_eq!(json[0]["kind"], "throttled");
}

#[test]
fn no_advice_opens_devices_to_everybody() {
    for kind in FindingKind::ALL {
        let advice = advice::advice(kind);
        assert!(!advice.is_empty() && !advice.contains("666") && !advice.contains("chmod"), "{advice}");
    }
}
