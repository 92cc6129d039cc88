//! What holds a run back, in order of what mending it would gain: each with the numbers that show it and what to do. It
//! measures nothing; every rule is a function of readings, and a reading that is missing proves nothing.

mod advice;
mod rules;

use serde::{Deserialize, Serialize};

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// Storage gives bytes more slowly than the rest could take them.
    Storage,
    /// Too few threads decode, while processors are idle.
    Decode,
    /// All processors are busy, and still batches are waited for.
    CpuSaturated,
    /// Copies to the device start from memory that is not page-locked.
    CopyPageable,
    /// Copies that training waits for take more than 30 % of a step.
    CopyShare,
    /// Device memory is as busy as it can be.
    DramBound,
    /// The device waits for the program to launch kernels.
    LaunchBound,
    /// Something in the step waits for the device.
    SyncInStep,
    /// Steps wait for gradients of other ranks.
    Allreduce,
    /// The allocator holds far more memory than tensors use.
    Fragmentation,
    /// The gradient scaler skips steps, or numbers are no longer finite.
    AmpOverflow,
    /// Heat or the power supply slows the device down.
    Throttled,
    /// The device hangs on fewer or slower lanes than it could.
    PcieWidth,
    /// Device nodes cannot be opened.
    DevicePermission,
    /// Driver and libraries do not fit together.
    VersionMismatch,
    /// Other processes use the same device.
    SharedGpu,
}

impl FindingKind {
    /// Every kind, in the order of the route: where gains are equal, earlier ones come first.
    pub const ALL: [Self; 16] = [
        Self::Storage,
        Self::Decode,
        Self::CpuSaturated,
        Self::CopyPageable,
        Self::CopyShare,
        Self::DramBound,
        Self::LaunchBound,
        Self::SyncInStep,
        Self::Allreduce,
        Self::Fragmentation,
        Self::AmpOverflow,
        Self::Throttled,
        Self::PcieWidth,
        Self::DevicePermission,
        Self::VersionMismatch,
        Self::SharedGpu,
    ];
}

/// One thing that holds a run back.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// What it is.
    pub kind: FindingKind,
    /// The numbers that show it, in a sentence.
    pub evidence: String,
    /// What to do about it.
    pub advice: &'static str,
    /// Samples a second to be gained, as a share of the present rate: 0.25 is a quarter more. 0 where it is not known to
    /// cost anything now.
    pub gain: f64,
}

/// What was measured of a run. Rates are samples a second, times seconds, shares 0 to 1; `None` is not known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Readings {
    /// The whole run: model and data together.
    pub run_per_s: Option<f64>,
    /// The model alone, on data that is on the device already.
    pub device_per_s: Option<f64>,
    /// Storage alone.
    pub storage_per_s: Option<f64>,
    /// Decoding alone, on the threads of the loader.
    pub decode_per_s: Option<f64>,
    /// The whole loader alone.
    pub loader_per_s: Option<f64>,
    /// Threads that decode.
    pub decode_threads: Option<u32>,
    /// Processors that this process may use, a quota counted.
    pub cores: Option<f64>,
    /// Share of these that was busy while the whole run ran.
    pub cpu_busy: Option<f64>,
    /// Share of a step that the consumer waited for its batch.
    pub wait_share: Option<f64>,
    /// Time of a step.
    pub step_s: Option<f64>,
    /// How much of it a copy to the device took that nothing else ran beside.
    pub exposed_copy_s: Option<f64>,
    /// Whether copies start from page-locked memory.
    pub copies_are_pinned: Option<bool>,
    /// Bytes a second of copies as they are done, and from page-locked memory.
    pub copy_bytes_per_s: Option<f64>,
    /// See `copy_bytes_per_s`.
    pub pinned_bytes_per_s: Option<f64>,
    /// Share of the bandwidth of device memory.
    pub dram: Option<f64>,
    /// Step time at twice the batch size, over the present one.
    pub doubled_step_ratio: Option<f64>,
    /// Share of a step in which any kernel ran.
    pub kernel_share: Option<f64>,
    /// Calls in a step that wait for the device.
    pub syncs_per_step: Option<f64>,
    /// Step time in which the device was idle after such a call.
    pub sync_idle_s: Option<f64>,
    /// How much of a step was an all-reduce that nothing else ran beside.
    pub exposed_allreduce_s: Option<f64>,
    /// Ranks of the job.
    pub world_size: Option<u32>,
    /// Most memory that the allocator held.
    pub reserved_bytes: Option<f64>,
    /// Most memory that tensors used.
    pub allocated_bytes: Option<f64>,
    /// What a batch that fits into the difference would gain, a share.
    pub larger_batch_gain: Option<f64>,
    /// Share of optimiser steps that the gradient scaler skipped, after its first hundred.
    pub skipped_steps: Option<f64>,
    /// Whether an output or a loss was infinite or no number.
    pub has_nonfinite: Option<bool>,
    /// Whether heat or the power supply lowered clocks.
    pub is_throttled: Option<bool>,
    /// Clock of the SMs during the run, and the highest that this load reached without throttling, in MHz.
    pub sm_clock_mhz: Option<f64>,
    /// See `sm_clock_mhz`.
    pub sm_clock_max_mhz: Option<f64>,
    /// Lanes and generation of the link while it was busy, and those that device and slot could have.
    pub pcie_width: Option<u32>,
    /// See `pcie_width`.
    pub pcie_width_max: Option<u32>,
    /// See `pcie_width`.
    pub pcie_generation: Option<u32>,
    /// See `pcie_width`.
    pub pcie_generation_max: Option<u32>,
    /// Device nodes that this process cannot open.
    pub closed_nodes: Vec<String>,
    /// Versions that do not fit, one sentence each.
    pub version_conflicts: Vec<String>,
    /// Other processes on the device.
    pub other_processes: Option<u32>,
    /// Measured gains of changes that were tried, by name: `compile`, `channels_last`, `amp`, `cudagraphs`.
    pub tried: std::collections::BTreeMap<String, f64>,
}

/// What holds the run back, the greatest gain first.
#[must_use]
pub fn findings(readings: &Readings) -> Vec<Finding> {
    let mut found: Vec<Finding> = FindingKind::ALL
        .into_iter()
        .filter_map(|kind| {
            let (evidence, gain) = rules::judge(kind, readings)?;
            let gain = if gain.is_finite() { gain.max(0.0) } else { 0.0 };
            Some(Finding { kind, evidence, advice: advice::advice(kind), gain })
        })
        .collect();
    // Stable: equal gains keep the order of the route.
    found.sort_by(|one, other| other.gain.total_cmp(&one.gain));
    found
}

#[cfg(test)]
mod tests;
