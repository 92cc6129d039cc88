//! One rule a kind: what readings show it, and what mending it would gain. A rule speaks only when every number that it
//! needs is there.

use super::{FindingKind, Readings};

/// The data path holds a run back from this share of waiting on.
const WAITS: f64 = 0.05;

/// A stage is the slowest one unless another is within this share of it.
const SAME: f64 = 1.05;

/// Processors are saturated from this share on.
const SATURATED: f64 = 0.9;

/// Copies that are waited for matter from this share of a step on.
const COPY_SHARE: f64 = 0.3;

/// Device memory is as busy as it gets from this share of its bandwidth on.
const DRAM_BUSY: f64 = 0.75;

/// A step is launch-bound where twice the batch takes at most this much longer, and kernels run for at most this share.
const FLAT: f64 = 1.2;
const KERNELS_MOST: f64 = 0.9;

/// What is below this share of a step is not worth a word.
const WORTH: f64 = 0.03;

/// The allocator holds this many times what tensors use.
const HELD: f64 = 1.4;

/// Scalers skip a step now and then to find their scale.
const SKIPPED: f64 = 0.01;

/// Evidence and gain, where the readings show this kind.
pub(super) fn judge(kind: FindingKind, r: &Readings) -> Option<(String, f64)> {
    match kind {
        FindingKind::Storage => storage(r),
        FindingKind::Decode => decode(r),
        FindingKind::CpuSaturated => cpu_saturated(r),
        FindingKind::CopyPageable => copy_pageable(r),
        FindingKind::CopyShare => copy_share(r),
        FindingKind::DramBound => dram_bound(r),
        FindingKind::LaunchBound => launch_bound(r),
        FindingKind::SyncInStep => sync_in_step(r),
        FindingKind::Allreduce => allreduce(r),
        FindingKind::Fragmentation => fragmentation(r),
        FindingKind::AmpOverflow => amp_overflow(r),
        FindingKind::Throttled => throttled(r),
        FindingKind::PcieWidth => pcie_width(r),
        FindingKind::DevicePermission => {
            (!r.closed_nodes.is_empty()).then(|| (format!("cannot open {}", r.closed_nodes.join(", ")), 0.0))
        }
        FindingKind::VersionMismatch => {
            (!r.version_conflicts.is_empty()).then(|| (r.version_conflicts.join("; "), 0.0))
        }
        FindingKind::SharedGpu => {
            let others = r.other_processes.filter(|&others| others > 0)?;
            Some((format!("{others} other process(es) use this GPU: rates change with what they do"), 0.0))
        }
    }
}

/// What the run would do if the data path were no limit; `None` where it is none.
fn wanted(r: &Readings) -> Option<(f64, f64)> {
    let (run, device) = (r.run_per_s?, r.device_per_s?);
    let waits = r.wait_share.is_none_or(|share| share >= WAITS);
    (waits && run > 0.0 && device > run * SAME).then_some((run, device))
}

fn storage(r: &Readings) -> Option<(String, f64)> {
    let (run, device) = wanted(r)?;
    let (storage, decode) = (r.storage_per_s?, r.decode_per_s?);
    if storage * SAME > decode || storage > device {
        return None;
    }
    let evidence = format!(
        "storage gives {storage:.0} samples/s, decoding could take {decode:.0} and the model {device:.0}; the run does \
         {run:.0}"
    );
    Some((evidence, decode.min(device) / run - 1.0))
}

/// Decoding is what limits, with so many threads on so many processors.
fn decode_limits(r: &Readings) -> Option<(f64, f64, f64, u32, f64)> {
    let (run, device) = wanted(r)?;
    let (decode, threads, cores) = (r.decode_per_s?, r.decode_threads?, r.cores?);
    let storage = r.storage_per_s.unwrap_or(f64::MAX);
    (decode <= device && storage * SAME > decode).then_some((run, device.min(storage), decode, threads, cores))
}

fn decode(r: &Readings) -> Option<(String, f64)> {
    let (run, most, decode, threads, cores) = decode_limits(r)?;
    let threads_more = cores / f64::from(threads.max(1));
    if threads_more < SAME || r.cpu_busy.is_some_and(|busy| busy >= SATURATED) {
        return None;
    }
    let evidence = format!(
        "{threads} thread(s) decode {decode:.0} samples/s, and {cores:.1} processors may be used; the model could take \
         {most:.0}, the run does {run:.0}"
    );
    Some((evidence, (decode * threads_more).min(most) / run - 1.0))
}

fn cpu_saturated(r: &Readings) -> Option<(String, f64)> {
    let (run, most, decode, threads, cores) = decode_limits(r)?;
    let is_full = f64::from(threads) * SAME >= cores || r.cpu_busy.is_some_and(|busy| busy >= SATURATED);
    if !is_full {
        return None;
    }
    let evidence = format!(
        "all {cores:.1} processors decode {decode:.0} samples/s with {threads} thread(s); the model could take \
         {most:.0}, the run does {run:.0}"
    );
    Some((evidence, most / run - 1.0))
}

fn copy_pageable(r: &Readings) -> Option<(String, f64)> {
    if r.copies_are_pinned? {
        return None;
    }
    let (now, pinned) = (r.copy_bytes_per_s?, r.pinned_bytes_per_s?);
    let (step, copy) = (r.step_s?, r.exposed_copy_s?);
    // From page-locked memory a copy runs beside the step, and only what is longer than the step is left of it.
    let left = (copy * now / pinned - (step - copy)).max(0.0);
    let evidence = format!(
        "copies from pageable memory run at {:.1} GB/s, page-locked ones at {:.1}; they hold up {:.1} of {:.1} ms",
        now / 1e9,
        pinned / 1e9,
        copy * 1e3,
        step * 1e3
    );
    (pinned > now * SAME).then(|| (evidence, step / (step - copy + left).max(1e-9) - 1.0))
}

fn copy_share(r: &Readings) -> Option<(String, f64)> {
    let (step, copy) = (r.step_s?, r.exposed_copy_s?);
    // Of pageable copies another finding speaks.
    if copy / step <= COPY_SHARE || r.copies_are_pinned == Some(false) {
        return None;
    }
    let beside = step / (step - copy).max(copy) - 1.0;
    Some((format!("copies hold up {:.1} of {:.1} ms a step", copy * 1e3, step * 1e3), beside))
}

fn dram_bound(r: &Readings) -> Option<(String, f64)> {
    let busy = r.dram.filter(|&busy| busy >= DRAM_BUSY)?;
    let gain = r.tried.values().copied().fold(0.0, f64::max);
    Some((format!("device memory moves {:.0} % of what it can", busy * 100.0), gain))
}

fn launch_bound(r: &Readings) -> Option<(String, f64)> {
    let (ratio, kernels) = (r.doubled_step_ratio?, r.kernel_share?);
    // Idle after a synchronising call, or for want of data, is not launching.
    let step = r.step_s?;
    let other = r.sync_idle_s.unwrap_or(0.0) / step + r.wait_share.unwrap_or(0.0);
    let idle = 1.0 - kernels - other;
    if ratio > FLAT || kernels > KERNELS_MOST || idle < WORTH || other > idle {
        return None;
    }
    let evidence = format!(
        "a step takes {ratio:.2} times as long at twice the batch, and kernels run for {:.0} % of it",
        kernels * 100.0
    );
    Some((evidence, 1.0 / (1.0 - idle).max(0.05) - 1.0))
}

fn sync_in_step(r: &Readings) -> Option<(String, f64)> {
    let (calls, idle, step) = (r.syncs_per_step?, r.sync_idle_s?, r.step_s?);
    if calls < 0.5 || idle / step < WORTH {
        return None;
    }
    let evidence = format!(
        "{calls:.1} call(s) a step wait for the GPU, which is then idle for {:.1} of {:.1} ms",
        idle * 1e3,
        step * 1e3
    );
    Some((evidence, step / (step - idle).max(1e-9) - 1.0))
}

fn allreduce(r: &Readings) -> Option<(String, f64)> {
    let (exposed, step) = (r.exposed_allreduce_s?, r.step_s?);
    if exposed / step < WORTH || r.world_size.is_some_and(|size| size < 2) {
        return None;
    }
    let evidence = format!("steps wait {:.1} of {:.1} ms for gradients of other ranks", exposed * 1e3, step * 1e3);
    Some((evidence, step / (step - exposed).max(1e-9) - 1.0))
}

fn fragmentation(r: &Readings) -> Option<(String, f64)> {
    let (reserved, allocated) = (r.reserved_bytes?, r.allocated_bytes?);
    if allocated <= 0.0 || reserved < allocated * HELD {
        return None;
    }
    let evidence =
        format!("the allocator holds {:.1} GB, of which tensors use {:.1} GB at most", reserved / 1e9, allocated / 1e9);
    Some((evidence, r.larger_batch_gain.unwrap_or(0.0)))
}

fn amp_overflow(r: &Readings) -> Option<(String, f64)> {
    let skipped = r.skipped_steps.unwrap_or(0.0);
    let has_nonfinite = r.has_nonfinite.unwrap_or(false);
    if skipped <= SKIPPED && !has_nonfinite {
        return None;
    }
    let numbers = if has_nonfinite { "outputs or losses are not finite" } else { "outputs stay finite" };
    let evidence = format!("the gradient scaler skipped {:.1} % of the steps, and {numbers}", skipped * 100.0);
    Some((evidence, skipped.min(0.95) / (1.0 - skipped.min(0.95))))
}

fn throttled(r: &Readings) -> Option<(String, f64)> {
    if !r.is_throttled? {
        return None;
    }
    match (r.sm_clock_mhz, r.sm_clock_max_mhz) {
        (Some(now), Some(most)) if now > 0.0 => {
            Some((format!("heat or power supply holds the SMs at {now:.0} of {most:.0} MHz"), most / now - 1.0))
        }
        _ => Some(("the driver says that heat or power supply lowers the clocks".to_owned(), 0.0)),
    }
}

fn pcie_width(r: &Readings) -> Option<(String, f64)> {
    let (width, width_max) = (r.pcie_width?, r.pcie_width_max?);
    let (generation, generation_max) = (r.pcie_generation.unwrap_or(0), r.pcie_generation_max.unwrap_or(0));
    if width == 0 || (width >= width_max && generation >= generation_max) {
        return None;
    }
    let slower = f64::from(width) / f64::from(width_max.max(width))
        * 0.5f64.powi(i32::try_from(generation_max.saturating_sub(generation)).unwrap_or(0));
    let gain = match (r.step_s, r.exposed_copy_s) {
        (Some(step), Some(copy)) => step / (step - copy * (1.0 - slower)).max(1e-9) - 1.0,
        _ => 0.0,
    };
    let evidence = format!(
        "the link runs with {width} of {width_max} lanes{}",
        if generation < generation_max {
            format!(", generation {generation} of {generation_max}")
        } else {
            String::new()
        }
    );
    Some((evidence, gain))
}
