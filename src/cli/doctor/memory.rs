//! Memory of the machine, and the kernel's limits that a loader meets: page size, huge pages, open files. What a cgroup
//! allows is told elsewhere.

use std::fmt;

use rustix::process::{Resource, getrlimit};
use serde::Serialize;

use super::limit_text;
use crate::cli::output::{bytes_text, count_text};
use crate::cli::system::System;

/// Memory of the machine.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Memory {
    total_bytes: Option<u64>,
    /// What could be used without swapping.
    available_bytes: Option<u64>,
    /// What may be locked in memory; none without a limit.
    locked_bytes_max: Option<u64>,
}

impl Memory {
    pub(super) fn look(system: &System) -> Self {
        Self {
            total_bytes: system.kilobytes("proc/meminfo", "MemTotal"),
            available_bytes: system.kilobytes("proc/meminfo", "MemAvailable"),
            locked_bytes_max: getrlimit(Resource::Memlock).current,
        }
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: Option<u64>| bytes.map_or_else(|| "unknown".into(), bytes_text);
        write!(f, "{} in all, {} available", text(self.total_bytes), text(self.available_bytes))?;
        write!(f, ", locked memory: {}", limit_text(self.locked_bytes_max))
    }
}

/// Limits of the kernel.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Limits {
    page_bytes: usize,
    /// `always`, `madvise` or `never`; none where the kernel has no transparent huge pages.
    transparent_huge_pages: Option<String>,
    /// The limit in force; none without one.
    open_files: Option<u64>,
    /// What the limit may be raised to.
    open_files_max: Option<u64>,
}

impl Limits {
    pub(super) fn look(system: &System) -> Self {
        let files = getrlimit(Resource::Nofile);
        Self {
            page_bytes: rustix::param::page_size(),
            transparent_huge_pages: system
                .text("sys/kernel/mm/transparent_hugepage/enabled")
                .and_then(|text| chosen(&text)),
            open_files: files.current,
            open_files_max: files.maximum,
        }
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = |limit: Option<u64>| limit.map_or_else(|| "without limit".into(), count_text);
        let huge = self.transparent_huge_pages.as_deref().unwrap_or("not there");
        write!(f, "pages of {} bytes, transparent huge pages: {huge}", self.page_bytes)?;
        write!(f, ", open files: {} (at most {})", files(self.open_files), files(self.open_files_max))
    }
}

/// The word in brackets of `always [madvise] never`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::system::fake;

    #[test]
    fn the_setting_in_brackets_holds() {
        let (_folder, system) =
            fake::machine(&[("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")]);
        let limits = Limits::look(&system);
        assert_eq!(limits.transparent_huge_pages.as_deref(), Some("madvise"));
        assert!(limits.page_bytes >= 4096);
        assert_eq!(chosen("always"), None);
    }

    #[test]
    fn memory_is_told_in_bytes() {
        let (_folder, system) = fake::machine(&[("proc/meminfo", "MemTotal: 2 kB\nMemAvailable: 1 kB\n")]);
        let memory = Memory::look(&system);
        assert_eq!((memory.total_bytes, memory.available_bytes), (Some(2048), Some(1024)));
    }
}
