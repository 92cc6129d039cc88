//! What a GPU says of itself at one moment, and whoever can be asked for it. It measures no training step.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Reasons for which a GPU's clocks are lowered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Throttle {
    /// The power cap: ordinary under full load.
    pub power_cap: bool,
    /// Heat.
    pub thermal: bool,
    /// The hardware's own brake: heat or the power supply.
    pub hardware: bool,
}

impl Throttle {
    /// Whether the device is slower than its load explains.
    #[must_use]
    pub fn is_harmful(self) -> bool {
        self.thermal || self.hardware
    }
}

/// One look at a GPU. What the driver, the GPU or the permissions do not give is `None`. Shares are 0 to 1.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reading {
    /// Share of the time that an SM had work.
    pub sm_active: Option<f64>,
    /// Share of the places for warps that were taken.
    pub sm_occupancy: Option<f64>,
    /// Share of the time that tensor cores had work.
    pub tensor: Option<f64>,
    /// The same of the pipes for 16-bit floats.
    pub fp16: Option<f64>,
    /// The same of the pipes for 32-bit floats.
    pub fp32: Option<f64>,
    /// Share of the bandwidth of device memory.
    pub dram: Option<f64>,
    /// Bytes a second to the host.
    pub pcie_tx_bytes_per_s: Option<f64>,
    /// Bytes a second from the host.
    pub pcie_rx_bytes_per_s: Option<f64>,
    /// Share of the time that JPEG engines had work, the mean of all engines.
    pub jpeg: Option<f64>,
    /// Share of the time that any kernel ran, which says little: one block keeps it at 1.
    pub gpu_busy: Option<f64>,
    /// Share of the time that device memory was read or written.
    pub memory_busy: Option<f64>,
    /// Clock of the SMs in MHz.
    pub sm_clock_mhz: Option<f64>,
    /// Clock of the memory in MHz.
    pub memory_clock_mhz: Option<f64>,
    /// Device memory in use, by everyone, in bytes.
    pub memory_used_bytes: Option<u64>,
    /// Device memory that there is, in bytes.
    pub memory_total_bytes: Option<u64>,
    /// Processes that use the GPU's compute engines, this one counted.
    pub processes: Option<u32>,
    /// Why clocks are lowered.
    pub throttle: Throttle,
}

/// A GPU that can be asked.
pub trait Probe: Send {
    /// What it says now. It never fails: what cannot be had is `None`.
    fn read(&mut self) -> Reading;

    /// What is read and what is not, and why, in a sentence.
    fn describe(&self) -> String;
}

/// Gives recorded readings again, one a call, the last one for ever.
#[derive(Debug, Clone)]
pub struct ReplayProbe {
    readings: VecDeque<Reading>,
}

impl ReplayProbe {
    /// A probe that gives `readings` in order; without any, readings that know nothing.
    #[must_use]
    pub fn new(readings: impl IntoIterator<Item = Reading>) -> Self {
        Self { readings: readings.into_iter().collect() }
    }
}

impl Probe for ReplayProbe {
    fn read(&mut self) -> Reading {
        match self.readings.len() {
            0 | 1 => self.readings.front().cloned().unwrap_or_default(),
            _ => self.readings.pop_front().unwrap_or_default(),
        }
    }

    fn describe(&self) -> String {
        "recorded readings, not those of a GPU".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_readings_come_in_order_and_the_last_one_stays() {
        let reading = |share| Reading { sm_active: Some(share), ..Reading::default() };
        let mut probe = ReplayProbe::new([reading(0.1), reading(0.2)]);
        let seen: Vec<_> = (0..4).map(|_| probe.read().sm_active).collect();
        assert_eq!(seen, [Some(0.1), Some(0.2), Some(0.2), Some(0.2)]);
        assert_eq!(ReplayProbe::new([]).read(), Reading::default());
    }

    #[test]
    fn a_power_cap_is_no_harm() {
        assert!(!Throttle { power_cap: true, ..Throttle::default() }.is_harmful());
        assert!(Throttle { thermal: true, ..Throttle::default() }.is_harmful());
        assert!(Throttle { hardware: true, ..Throttle::default() }.is_harmful());
    }
}
