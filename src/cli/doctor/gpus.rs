//! NVIDIA GPUs as the driver's own files under `/proc` list them. No library is loaded and no device is opened, so this
//! works in every build.

use serde::Serialize;

use crate::cli::system::{System, value_of};

/// The GPUs that were found, and the driver's version.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(super) struct Gpus {
    found: Vec<Gpu>,
    #[serde(skip)]
    driver: Option<String>,
}

/// One GPU.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Gpu {
    model: String,
    uuid: Option<String>,
    /// PCI address.
    bus: String,
    /// The NUMA node it hangs on; none where the machine has but one.
    numa_node: Option<u32>,
    driver: Option<String>,
}

impl Gpus {
    pub(super) fn look(system: &System) -> Self {
        let driver = system.text("proc/driver/nvidia/version").and_then(|text| driver_version(&text));
        let gpus = system.names("proc/driver/nvidia/gpus").into_iter().filter_map(|bus| {
            let information = system.text(format!("proc/driver/nvidia/gpus/{bus}/information"))?;
            Some(Gpu {
                model: value_of(&information, "Model").unwrap_or("unknown").to_owned(),
                // A driver that hides it writes question marks.
                uuid: value_of(&information, "GPU UUID").filter(|uuid| !uuid.contains('?')).map(str::to_owned),
                driver: driver.clone(),
                // The kernel writes -1 where nodes play no part.
                numa_node: system
                    .text(format!("sys/bus/pci/devices/{bus}/numa_node"))
                    .and_then(|node| node.parse().ok()),
                bus,
            })
        });
        Self { found: gpus.collect(), driver }
    }

    /// A line for each, or one that says why there is none.
    pub(super) fn lines(&self) -> Vec<String> {
        if self.found.is_empty() {
            let reason = match &self.driver {
                Some(driver) => format!("none found, though the NVIDIA driver {driver} is loaded"),
                None => "none found: the NVIDIA driver is not loaded; loading and decoding work without".into(),
            };
            return vec![reason];
        }
        let line = |gpu: &Gpu| {
            let driver = gpu.driver.as_deref().unwrap_or("of unknown version");
            let node = gpu.numa_node.map_or_else(String::new, |node| format!(", NUMA node {node}"));
            format!("{} at {}, driver {driver}{node}", gpu.model, gpu.bus)
        };
        self.found.iter().map(line).collect()
    }
}

/// The version in `NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue …`: the first word that is made of
/// numbers and dots.
fn driver_version(text: &str) -> Option<String> {
    let is_version = |word: &&str| {
        word.contains('.') && word.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    };
    text.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::system::fake;

    #[test]
    fn gpus_are_read_from_the_drivers_files() {
        let information =
            "Model: \t\t NVIDIA H200\nIRQ:   \t\t 95\nGPU UUID: \t GPU-1f\nBus Location: \t 0000:0f:00.0\n";
        let (_folder, system) = fake::machine(&[
            (
                "proc/driver/nvidia/version",
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar 5\nGCC\n",
            ),
            ("proc/driver/nvidia/gpus/0000:0f:00.0/information", information),
            ("sys/bus/pci/devices/0000:0f:00.0/numa_node", "1\n"),
        ]);
        let gpus = Gpus::look(&system);
        assert_eq!(gpus.lines(), ["NVIDIA H200 at 0000:0f:00.0, driver 550.54.15, NUMA node 1"]);
        let json = serde_json::to_value(&gpus).unwrap();
        assert_eq!(json[0]["uuid"], "GPU-1f");
    }

    #[test]
    fn no_gpu_is_an_ordinary_answer() {
        let (_folder, system) = fake::machine(&[]);
        let gpus = Gpus::look(&system);
        assert!(gpus.lines()[0].starts_with("none found"));
        assert_eq!(serde_json::to_string(&gpus).unwrap(), "[]");
    }
}
