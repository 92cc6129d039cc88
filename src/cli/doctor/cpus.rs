//! The processors: how many there are and how many this process may use. Their speed is not measured.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use crate::cli::machine::{cores_available, cpu_model};
use crate::cli::system::{System, count_of};

/// The processors of the machine.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Cpus {
    model: String,
    sockets: usize,
    /// Cores, hardware threads of one core counted once; none where the kernel does not tell.
    cores_physical: Option<usize>,
    /// Hardware threads that are online.
    online: usize,
    /// Hardware threads that this process may run on.
    affinity: Option<usize>,
    /// As a list such as `0-7,16`.
    affinity_list: Option<String>,
    /// What affinity and cgroup quota leave: the default number of threads.
    available: usize,
}

impl Cpus {
    pub(super) fn look(system: &System) -> Self {
        let online = system.text("sys/devices/system/cpu/online").map_or(0, |list| count_of(&list));
        let affinity_list = system.value("proc/self/status", "Cpus_allowed_list");
        let topology = Topology::look(system);
        Self {
            model: cpu_model(system),
            sockets: topology.sockets.len().max(1),
            cores_physical: (!topology.cores.is_empty()).then_some(topology.cores.len()),
            online,
            affinity: affinity_list.as_deref().map(count_of),
            affinity_list,
            available: cores_available(),
        }
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { model, sockets, cores_physical, online, affinity_list, available, .. } = self;
        write!(f, "{model}, {online} online")?;
        if let Some(cores) = cores_physical {
            write!(f, " on {cores} cores in {sockets} {}", if *sockets == 1 { "socket" } else { "sockets" })?;
        }
        if let Some(list) = affinity_list {
            write!(f, ", may run on {list}")?;
        }
        write!(f, ", {available} available")
    }
}

/// Which hardware thread belongs to which core and socket.
#[derive(Debug, Default)]
struct Topology {
    sockets: BTreeSet<u64>,
    cores: BTreeSet<(u64, u64)>,
}

impl Topology {
    fn look(system: &System) -> Self {
        let mut topology = Self::default();
        for name in system.names("sys/devices/system/cpu") {
            let is_cpu = name.strip_prefix("cpu").is_some_and(|number| number.parse::<u32>().is_ok());
            let file = |leaf: &str| system.number(format!("sys/devices/system/cpu/{name}/topology/{leaf}"));
            if let (true, Some(socket), Some(core)) = (is_cpu, file("physical_package_id"), file("core_id")) {
                topology.sockets.insert(socket);
                topology.cores.insert((socket, core));
            }
        }
        topology
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::system::fake;

    #[test]
    fn two_threads_of_a_core_are_one_core() {
        let (_folder, system) = fake::machine(&[
            ("proc/cpuinfo", "model name\t: Abacus 9000\n"),
            ("proc/self/status", "Name:\tbrimful\nCpus_allowed:\t5\nCpus_allowed_list:\t0,2\n"),
            ("sys/devices/system/cpu/online", "0-3\n"),
            ("sys/devices/system/cpu/cpu0/topology/physical_package_id", "0\n"),
            ("sys/devices/system/cpu/cpu0/topology/core_id", "0\n"),
            ("sys/devices/system/cpu/cpu1/topology/physical_package_id", "0\n"),
            ("sys/devices/system/cpu/cpu1/topology/core_id", "0\n"),
            ("sys/devices/system/cpu/cpu2/topology/physical_package_id", "1\n"),
            ("sys/devices/system/cpu/cpu2/topology/core_id", "0\n"),
            ("sys/devices/system/cpu/cpufreq/boost", "1\n"),
        ]);
        let cpus = Cpus::look(&system);
        assert_eq!((cpus.sockets, cpus.cores_physical, cpus.online, cpus.affinity), (2, Some(2), 4, Some(2)));
        let text = cpus.to_string();
        assert!(text.starts_with("Abacus 9000, 4 online on 2 cores in 2 sockets, may run on 0,2, "), "{text}");
    }
}
