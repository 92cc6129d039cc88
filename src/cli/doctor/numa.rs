//! NUMA nodes: which processors and how much memory belong together. Where the kernel lists none there is none to tell.

use std::fmt;

use serde::Serialize;

use crate::cli::output::bytes_text;
use crate::cli::system::System;

/// One node.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct NumaNode {
    node: u32,
    /// A list such as `0-7,16-23`.
    cpus: String,
    memory_bytes: Option<u64>,
}

impl fmt::Display for NumaNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory = self.memory_bytes.map_or_else(|| "unknown".into(), bytes_text);
        let cpus = if self.cpus.is_empty() { "none" } else { &self.cpus };
        write!(f, "node {}: cpus {cpus}, memory {memory}", self.node)
    }
}

/// All nodes by number.
pub(super) fn look(system: &System) -> Vec<NumaNode> {
    let numbers = system.names("sys/devices/system/node").into_iter();
    let mut nodes: Vec<NumaNode> = numbers
        .filter_map(|name| {
            let node: u32 = name.strip_prefix("node")?.parse().ok()?;
            let folder = format!("sys/devices/system/node/{name}");
            let cpus = system.text(format!("{folder}/cpulist")).unwrap_or_default();
            let memory_bytes = system.kilobytes(format!("{folder}/meminfo"), &format!("Node {node} MemTotal"));
            Some(NumaNode { node, cpus, memory_bytes })
        })
        .collect();
    nodes.sort_by_key(|node| node.node);
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::system::fake;

    #[test]
    fn nodes_are_listed_by_number() {
        let (_folder, system) = fake::machine(&[
            ("sys/devices/system/node/node10/cpulist", "\n"),
            ("sys/devices/system/node/node2/cpulist", "4-7\n"),
            ("sys/devices/system/node/node2/meminfo", "Node 2 MemTotal:       2048 kB\nNode 2 MemFree: 1 kB\n"),
            ("sys/devices/system/node/online", "2,10\n"),
        ]);
        let nodes = look(&system);
        assert_eq!(nodes.iter().map(|node| node.node).collect::<Vec<_>>(), [2, 10]);
        assert_eq!((nodes[0].cpus.as_str(), nodes[0].memory_bytes), ("4-7", Some(2 << 20)));
        assert_eq!(nodes[1].to_string(), "node 10: cpus none, memory unknown");
    }
}
