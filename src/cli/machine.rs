//! The machine in five values, so that a number in a document is never without it. `doctor` says more.

use serde::Serialize;

use super::system::{System, count_of};

/// What every JSON document says about the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Machine {
    /// Model of the processor.
    pub(super) cpu: String,
    /// Processors that are online, hardware threads counted singly.
    pub(super) cores: usize,
    /// Processors that this process may use: affinity and cgroup quota considered.
    pub(super) cores_available: usize,
    /// Release of the kernel.
    pub(super) kernel: String,
    /// Memory of the machine.
    pub(super) memory_bytes: u64,
}

impl Machine {
    /// This machine.
    pub(super) fn here() -> Self {
        Self { cores_available: cores_available(), ..Self::read(&System::here()) }
    }

    fn read(system: &System) -> Self {
        let online = system.text("sys/devices/system/cpu/online").map_or(0, |list| count_of(&list));
        Self {
            cpu: cpu_model(system),
            cores: if online > 0 { online } else { cores_available() },
            cores_available: 0,
            kernel: system.text("proc/sys/kernel/osrelease").unwrap_or_else(|| std::env::consts::OS.into()),
            memory_bytes: system.kilobytes("proc/meminfo", "MemTotal").unwrap_or(0),
        }
    }
}

/// The processor as it names itself; the architecture where it has no name.
pub(super) fn cpu_model(system: &System) -> String {
    let named = |name| system.value("proc/cpuinfo", name).filter(|model| !model.is_empty());
    named("model name").or_else(|| named("Model")).unwrap_or_else(|| std::env::consts::ARCH.into())
}

/// Processors that this process may use.
pub(super) fn cores_available() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::system::fake;

    #[test]
    fn the_machine_is_read_from_the_kernel() {
        let (_folder, system) = fake::machine(&[
            (
                "proc/cpuinfo",
                "processor\t: 0\nmodel name\t: Abacus 9000\n\nprocessor\t: 1\nmodel name\t: Abacus 9000\n",
            ),
            ("proc/meminfo", "MemTotal:  2048 kB\n"),
            ("proc/sys/kernel/osrelease", "6.1.0\n"),
            ("sys/devices/system/cpu/online", "0-1\n"),
        ]);
        let machine = Machine::read(&system);
        assert_eq!((machine.cpu.as_str(), machine.cores), ("Abacus 9000", 2));
        assert_eq!((machine.kernel.as_str(), machine.memory_bytes), ("6.1.0", 2 << 20));
    }

    #[test]
    fn a_machine_that_says_nothing_is_described_all_the_same() {
        let (_folder, system) = fake::machine(&[]);
        let machine = Machine::read(&system);
        assert_eq!(machine.cpu, std::env::consts::ARCH);
        assert!(machine.cores >= 1);
    }
}
