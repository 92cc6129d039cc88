//! The cgroup that this process runs in: how much processor time and memory it may use. Versions 1 and 2; controllers
//! other than `cpu` and `memory` do not matter here.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::limit_text;
use crate::cli::output::bytes_text;
use crate::cli::system::System;

/// Version 1 writes a number near the largest one where there is no limit.
const NO_LIMIT_BYTES: u64 = 1 << 60;

/// What the cgroup allows and uses.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct Cgroup {
    /// 1 or 2; none where there are no cgroups.
    version: Option<u8>,
    /// The group's path, as the kernel names it.
    path: Option<String>,
    /// Processors' worth of time a period, none without a quota.
    cpu_quota_cores: Option<f64>,
    memory_limit_bytes: Option<u64>,
    memory_used_bytes: Option<u64>,
}

impl Cgroup {
    pub(super) fn look(system: &System) -> Self {
        let groups = system.text("proc/self/cgroup").unwrap_or_default();
        let groups: Vec<(&str, &str)> = groups.lines().filter_map(controllers_and_path).collect();
        let unified = system.has("sys/fs/cgroup/cgroup.controllers");
        match groups.iter().find(|(controllers, _)| controllers.is_empty()) {
            Some((_, path)) if unified => Self::version_2(system, path),
            _ => Self::version_1(system, &groups),
        }
    }

    fn version_2(system: &System, path: &str) -> Self {
        let levels = levels(system, Path::new("sys/fs/cgroup"), path);
        Self {
            version: Some(2),
            path: Some(path.to_owned()),
            cpu_quota_cores: least(&levels, |level| quota(&system.text(level.join("cpu.max"))?)),
            memory_limit_bytes: levels.iter().filter_map(|level| system.number(level.join("memory.max"))).min(),
            memory_used_bytes: levels.iter().find_map(|level| system.number(level.join("memory.current"))),
        }
    }

    fn version_1(system: &System, groups: &[(&str, &str)]) -> Self {
        let of = |controller: &str| {
            let (controllers, path) =
                groups.iter().find(|(controllers, _)| controllers.split(',').any(|name| name == controller))?;
            let mounts = [*controllers, controller].map(|name| Path::new("sys/fs/cgroup").join(name));
            let mount = mounts.into_iter().find(|mount| system.has(mount))?;
            Some(((*path).to_owned(), levels(system, &mount, path)))
        };
        let (Some((path, cpu)), memory) = (of("cpu").or_else(|| of("memory")), of("memory")) else {
            return Self::default();
        };
        let memory = memory.map(|(_, levels)| levels).unwrap_or_default();
        let memory_limit = memory.iter().filter_map(|level| system.number(level.join("memory.limit_in_bytes"))).min();
        Self {
            version: Some(1),
            path: Some(path),
            cpu_quota_cores: least(&cpu, |level| {
                let quota_us: i64 = system.text(level.join("cpu.cfs_quota_us"))?.parse().ok()?;
                let period_us = system.number(level.join("cpu.cfs_period_us"))?;
                (quota_us > 0 && period_us > 0).then(|| quota_us as f64 / period_us as f64)
            }),
            memory_limit_bytes: memory_limit.filter(|&limit| limit < NO_LIMIT_BYTES),
            memory_used_bytes: memory.iter().find_map(|level| system.number(level.join("memory.usage_in_bytes"))),
        }
    }
}

impl fmt::Display for Cgroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(version) = self.version else { return f.write_str("none found") };
        write!(f, "version {version}, cpu quota ")?;
        match self.cpu_quota_cores {
            Some(cores) => write!(f, "{cores:.2} cores")?,
            None => f.write_str("none")?,
        }
        write!(f, ", memory {}", limit_text(self.memory_limit_bytes))?;
        match self.memory_used_bytes {
            Some(used) => write!(f, ", {} used", bytes_text(used)),
            None => Ok(()),
        }
    }
}

/// Controllers and path of a line such as `4:cpu,cpuacct:/docker/1f`.
fn controllers_and_path(line: &str) -> Option<(&str, &str)> {
    let (_, rest) = line.split_once(':')?;
    rest.split_once(':')
}

/// The folders of the group and of those above it, innermost first: a limit of any of them holds. In a container the
/// path may be the host's, which does not exist here; then the root of the mount is the container's own group.
fn levels(system: &System, mount: &Path, path: &str) -> Vec<PathBuf> {
    let relative = Path::new(path.trim_start_matches('/'));
    let folders = relative.ancestors().map(|level| mount.join(level));
    folders.filter(|folder| system.has(folder)).collect()
}

/// `QUOTA PERIOD` in microseconds, or `max PERIOD`.
fn quota(text: &str) -> Option<f64> {
    let (quota, period) = text.split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.trim().parse().ok()?);
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

fn least(levels: &[PathBuf], quota_of: impl Fn(&Path) -> Option<f64>) -> Option<f64> {
    levels.iter().filter_map(|level| quota_of(level)).reduce(f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::system::fake;

    fn check(files: &[(&str, &str)], version: Option<u8>, quota: Option<f64>, memory: Option<u64>) {
        let (_folder, system) = fake::machine(files);
        let cgroup = Cgroup::look(&system);
        assert_eq!(
            (cgroup.version, cgroup.cpu_quota_cores, cgroup.memory_limit_bytes),
            (version, quota, memory),
            "{files:?}"
        );
    }

    #[test]
    fn version_2_takes_the_least_of_all_levels() {
        let files = [
            ("proc/self/cgroup", "0::/outer/inner\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpu memory\n"),
            ("sys/fs/cgroup/outer/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/outer/memory.max", "max\n"),
            ("sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/outer/inner/memory.max", "1048576\n"),
        ];
        check(&files, Some(2), Some(1.5), Some(1 << 20));
    }

    #[test]
    fn a_path_of_the_host_falls_back_to_the_root_of_the_mount() {
        let files = [
            ("proc/self/cgroup", "0::/docker/4f2\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpu\n"),
            ("sys/fs/cgroup/cpu.max", "200000 100000\n"),
        ];
        check(&files, Some(2), Some(2.0), None);
    }

    #[test]
    fn version_1_has_a_mount_for_each_controller() {
        let files = [
            ("proc/self/cgroup", "5:memory:/job\n4:cpu,cpuacct:/job\n0::/job\n"),
            ("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "50000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "2097152\n"),
        ];
        check(&files, Some(1), Some(0.5), Some(2 << 20));
    }

    #[test]
    fn no_quota_and_no_cgroup_are_ordinary() {
        let files = [
            ("proc/self/cgroup", "4:cpu:/\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
        ];
        check(&files, Some(1), None, None);
        check(&[], None, None, None);
        check(&[("proc/self/cgroup", "rubbish\n::\n")], None, None, None);
    }
}
