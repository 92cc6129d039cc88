//! NVIDIA's management library as a probe: activity of the SMs and pipes where the GPU keeps such counters (Hopper and
//! newer), clocks, throttling and memory everywhere. It finds the GPU by its UUID and decides nothing.

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::Clock;
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::gpm::{GpmSample, gpm_metrics_get};
use nvml_wrapper::{Device, Nvml};

use super::probe::{Probe, Reading, Throttle};
use crate::{Error, ErrorKind, Result};

/// Counters that are asked for, in the order in which [`Counters`] takes them.
const METRICS: [GpmMetricId; 16] = [
    GpmMetricId::SmUtil,
    GpmMetricId::SmOccupancy,
    GpmMetricId::AnyTensorUtil,
    GpmMetricId::Fp16Util,
    GpmMetricId::Fp32Util,
    GpmMetricId::DramBwUtil,
    GpmMetricId::PcieTxPerSec,
    GpmMetricId::PcieRxPerSec,
    GpmMetricId::Nvjpg0Util,
    GpmMetricId::Nvjpg1Util,
    GpmMetricId::Nvjpg2Util,
    GpmMetricId::Nvjpg3Util,
    GpmMetricId::Nvjpg4Util,
    GpmMetricId::Nvjpg5Util,
    GpmMetricId::Nvjpg6Util,
    GpmMetricId::Nvjpg7Util,
];

/// A GPU of this machine.
///
/// Invariant: `device`, `parent` and `older` refer to the library that `nvml` holds open, in a box that is neither moved
/// out of nor replaced; fields are dropped in the order in which they stand, so the library goes last.
pub struct GpuProbe {
    older: Option<GpmSample<'static>>,
    device: Device<'static>,
    /// The whole GPU, where `device` is a part of it (MIG), with the number of that part.
    parent: Option<(Device<'static>, u32)>,
    has_counters: bool,
    description: String,
    nvml: Box<Nvml>,
}

impl GpuProbe {
    /// The GPU, or the part of one, with this UUID, as CUDA names it: `GPU-…` or `MIG-…`.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] where the library cannot be loaded, the caller may not ask it, or knows no such GPU: an
    /// ordinary state, in which rates alone decide.
    pub fn open(uuid: &str) -> Result<Self> {
        let nvml =
            Box::new(Nvml::init().map_err(|error| failed("NVIDIA's management library does not start", &error))?);
        let device = nvml.device_by_uuid(uuid).map_err(|error| {
            failed(&format!("NVIDIA's management library knows no GPU {uuid}, or does not tell"), &error)
        })?;
        // SAFETY: by the type's invariant the library outlives the device: it is boxed, stays where it is, and is
        // dropped after it.
        let device = unsafe { std::mem::transmute::<Device<'_>, Device<'static>>(device) };
        let parent = match device.mig_is_mig_device_handle() {
            Ok(true) => {
                let parent = device.mig_parent_device().map_err(|error| failed("the GPU of a MIG part", &error))?;
                Some((parent, instance_of(&nvml, &device)?))
            }
            _ => None,
        };
        let whole = parent.as_ref().map_or(&device, |(parent, _)| parent);
        let support = whole.gpm_support();
        let description = describe(uuid, parent.is_some(), &support);
        Ok(Self { older: None, has_counters: support.unwrap_or(false), device, parent, description, nvml })
    }

    /// The whole GPU: what knows clocks and reasons for lowering them.
    fn whole(&self) -> &Device<'static> {
        self.parent.as_ref().map_or(&self.device, |(parent, _)| parent)
    }

    /// Counters since the last call; `None` the first time, and where the GPU keeps none.
    fn counters(&mut self) -> Option<Counters> {
        if !self.has_counters {
            return None;
        }
        let newer = match &self.parent {
            Some((parent, instance)) => parent.gpm_mig_sample(*instance),
            None => self.device.gpm_sample(),
        };
        let newer = newer.ok()?;
        // SAFETY: by the type's invariant the library outlives the sample, as it does the device.
        let newer = unsafe { std::mem::transmute::<GpmSample<'_>, GpmSample<'static>>(newer) };
        let older = self.older.replace(newer)?;
        let newer = self.older.as_ref()?;
        let results = gpm_metrics_get(newer.nvml(), &older, newer, &METRICS).ok()?;
        let values = results.into_iter().map(|result| {
            let result = result.ok().filter(|result| result.value.is_finite() && result.value >= 0.0)?;
            Some((result.value, unit_bytes(&result.metric_info.unit)))
        });
        Some(Counters(values.collect()))
    }

    /// Share of the time that JPEG engines had work, where no counters tell.
    fn jpeg(&self) -> Option<f64> {
        let ask = self.nvml.lib().nvmlDeviceGetJpgUtilization.as_ref().ok()?;
        let (mut percent, mut period_us) = (0, 0);
        // SAFETY: the handle is the library's own, of a device that the open library knows; both places are valid for
        // the call, which writes one number into each.
        let status = unsafe { ask(self.device.handle(), &raw mut percent, &raw mut period_us) };
        (status == 0).then(|| f64::from(percent) / 100.0)
    }
}

impl std::fmt::Debug for GpuProbe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GpuProbe").field("description", &self.description).finish_non_exhaustive()
    }
}

impl Probe for GpuProbe {
    fn read(&mut self) -> Reading {
        let counters = self.counters();
        let share = |at: usize| counters.as_ref().and_then(|counters| counters.share(at));
        let rate = |at: usize| counters.as_ref().and_then(|counters| counters.rate(at));
        // Both are over a time of the driver's choosing, and unknown for a part of a GPU.
        let utilization = self.device.utilization_rates().ok();
        let clock = |kind| self.whole().clock_info(kind).ok().map(f64::from);
        let memory = self.device.memory_info().ok();
        Reading {
            sm_active: share(0),
            sm_occupancy: share(1),
            tensor: share(2),
            fp16: share(3),
            fp32: share(4),
            dram: share(5),
            pcie_tx_bytes_per_s: rate(6),
            pcie_rx_bytes_per_s: rate(7),
            jpeg: counters.as_ref().and_then(Counters::jpeg).or_else(|| self.jpeg()),
            gpu_busy: utilization.as_ref().map(|busy| f64::from(busy.gpu) / 100.0),
            memory_busy: utilization.as_ref().map(|busy| f64::from(busy.memory) / 100.0),
            sm_clock_mhz: clock(Clock::SM),
            memory_clock_mhz: clock(Clock::Memory),
            memory_used_bytes: memory.as_ref().map(|memory| memory.used),
            memory_total_bytes: memory.as_ref().map(|memory| memory.total),
            processes: self.device.running_compute_processes_count().ok(),
            throttle: self.whole().current_throttle_reasons().map(throttle).unwrap_or_default(),
        }
    }

    fn describe(&self) -> String {
        self.description.clone()
    }
}

/// Values of [`METRICS`], each with the bytes of its unit.
struct Counters(Vec<Option<(f64, f64)>>);

impl Counters {
    fn share(&self, at: usize) -> Option<f64> {
        let (percent, _) = (*self.0.get(at)?)?;
        Some((percent / 100.0).min(1.0))
    }

    fn rate(&self, at: usize) -> Option<f64> {
        let (value, unit) = (*self.0.get(at)?)?;
        Some(value * unit)
    }

    /// The mean of the engines that there are.
    fn jpeg(&self) -> Option<f64> {
        let engines: Vec<f64> = (8..METRICS.len()).filter_map(|at| self.share(at)).collect();
        (!engines.is_empty()).then(|| engines.iter().sum::<f64>() / engines.len() as f64)
    }
}

/// Bytes of a unit that the library names, such as `MiB/sec`; its default for rates is that one.
fn unit_bytes(unit: &str) -> f64 {
    let unit = unit.trim();
    let scales = [("KiB", 1024.0), ("MiB", 1_048_576.0), ("GiB", 1_073_741_824.0)];
    let decimal = [("KB", 1e3), ("MB", 1e6), ("GB", 1e9), ("B", 1.0)];
    let found = scales.into_iter().chain(decimal).find(|(name, _)| unit.starts_with(name));
    found.map_or(1_048_576.0, |(_, bytes)| bytes)
}

/// The number of the GPU instance that a MIG part is.
fn instance_of(nvml: &Nvml, device: &Device<'_>) -> Result<u32> {
    let missing = |what: &str| Error::new(ErrorKind::Device, format!("the number of a MIG part cannot be had: {what}"));
    let ask = nvml.lib().nvmlDeviceGetGpuInstanceId.as_ref().map_err(|_| missing("the driver is too old"))?;
    let mut instance = 0;
    // SAFETY: the handle is the library's own, of a device that the open library knows; the place is valid for the call,
    // which writes one number into it.
    match unsafe { ask(device.handle(), &raw mut instance) } {
        0 => Ok(instance),
        status => Err(missing(&format!("status {status}"))),
    }
}

fn throttle(reasons: ThrottleReasons) -> Throttle {
    Throttle {
        power_cap: reasons.contains(ThrottleReasons::SW_POWER_CAP),
        thermal: reasons.intersects(ThrottleReasons::SW_THERMAL_SLOWDOWN | ThrottleReasons::HW_THERMAL_SLOWDOWN),
        hardware: reasons.intersects(ThrottleReasons::HW_SLOWDOWN | ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN),
    }
}

fn describe(uuid: &str, is_part: bool, support: &std::result::Result<bool, NvmlError>) -> String {
    let counters = match support {
        Ok(true) => "SM activity, occupancy, pipes, memory bandwidth and PCIe from the GPU's counters".to_owned(),
        Ok(false) => "utilisation, clocks and memory; this GPU keeps no counters of SM activity".to_owned(),
        Err(NvmlError::NoPermission) => {
            "utilisation, clocks and memory; counters of SM activity need a permission that this process has not"
                .to_owned()
        }
        Err(error) => format!("utilisation, clocks and memory; counters of SM activity cannot be had: {error}"),
    };
    format!("{uuid}{}: {counters}", if is_part { ", a part of a GPU (MIG)" } else { "" })
}

fn failed(message: &str, error: &NvmlError) -> Error {
    let hint = match error {
        NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound => {
            "libnvidia-ml.so.1 comes with the driver; a container needs the driver capability \"utility\""
        }
        NvmlError::NoPermission => "ask whoever runs the machine for access to the GPU's device nodes",
        _ => "batch sizes are found from step times alone",
    };
    Error::new(ErrorKind::Device, format!("{message}: {error}")).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_library_or_the_gpu_that_is_said() {
        let error = GpuProbe::open("GPU-00000000-0000-0000-0000-000000000000").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Device);
        assert!(error.hint().is_some(), "{error}");
    }

    #[test]
    fn reasons_are_told_apart() {
        let capped = throttle(ThrottleReasons::SW_POWER_CAP | ThrottleReasons::GPU_IDLE);
        assert!(capped.power_cap && !capped.is_harmful());
        assert!(throttle(ThrottleReasons::HW_THERMAL_SLOWDOWN).thermal);
        assert!(throttle(ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN).hardware);
        assert_eq!(throttle(ThrottleReasons::empty()), Throttle::default());
    }

    #[test]
    fn rates_are_in_the_unit_that_the_library_names() {
        for (unit, bytes) in [("MiB/sec", 1_048_576.0), ("GB/s", 1e9), ("B/s", 1.0), ("", 1_048_576.0)] {
            assert_eq!(unit_bytes(unit), bytes);
        }
        let counters = Counters(vec![Some((84.7, 1.0)), None, Some((1e9, 1.0))]);
        assert_eq!((counters.share(0), counters.share(1), counters.share(2)), (Some(0.847), None, Some(1.0)));
        assert_eq!(counters.jpeg(), None);
    }
}
