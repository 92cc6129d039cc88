//! The kernel's text files under `/proc` and `/sys`, below a root that tests replace by a folder of their own. It
//! understands none of them.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// No file of the kernel that is read here is longer.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The files of a machine below a root folder.
#[derive(Debug, Clone)]
pub(super) struct System {
    root: PathBuf,
}

impl System {
    /// This machine.
    pub(super) fn here() -> Self {
        Self::at("/")
    }

    /// A machine whose files lie below `root`.
    pub(super) fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The path of a file as this process can open it; `path` may begin with a slash.
    pub(super) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The text of a file, without white space at its ends; `None` where it cannot be read.
    pub(super) fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let mut bytes = Vec::new();
        File::open(self.path(path)).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// The number that a file holds and nothing else.
    pub(super) fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// The value of the first line `NAME: VALUE` of a file, as in `/proc/cpuinfo`.
    pub(super) fn value(&self, path: impl AsRef<Path>, name: &str) -> Option<String> {
        value_of(&self.text(path)?, name).map(str::to_owned)
    }

    /// A value in kB of such a file, in bytes.
    pub(super) fn kilobytes(&self, path: impl AsRef<Path>, name: &str) -> Option<u64> {
        let value = self.value(path, name)?;
        value.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
    }

    /// The names in a folder, sorted; none where it cannot be read.
    pub(super) fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Whether there is such a file or folder.
    pub(super) fn has(&self, path: impl AsRef<Path>) -> bool {
        self.path(path).exists()
    }
}

/// The value of the first line `NAME: VALUE` of `text`.
pub(super) fn value_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        (found.trim() == name).then(|| value.trim())
    })
}

/// The numbers in a list such as `0-3,8`, as the kernel writes sets of CPUs; counted, not kept.
pub(super) fn count_of(list: &str) -> usize {
    let ranges = list.split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    });
    ranges.fold(0, usize::saturating_add)
}

#[cfg(test)]
pub(super) mod fake {
    use super::*;

    /// A machine made of the given files.
    pub(in crate::cli) fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, System) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let system = System::at(folder.path());
        (folder, system)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_below_the_root() {
        let (_folder, system) =
            fake::machine(&[("proc/meminfo", "MemTotal:   1024 kB\nMemFree: 1 kB\n"), ("a/n", "7\n")]);
        assert_eq!(system.kilobytes("/proc/meminfo", "MemTotal"), Some(1 << 20));
        assert_eq!(system.kilobytes("proc/meminfo", "MemAvailable"), None);
        assert_eq!(system.number("a/n"), Some(7));
        assert_eq!(system.names("a"), ["n"]);
        assert_eq!(system.names("b"), [] as [String; 0]);
        assert!(system.has("a") && !system.has("b"));
    }

    #[test]
    fn lists_of_cpus_are_counted() {
        let check = |list, expected| assert_eq!(count_of(list), expected, "{list}");
        check("", 0);
        check("0", 1);
        check("0-3,8,10-11", 7);
        check("3-1", 0);
        check("0-18446744073709551615", 0);
        check("x,1", 1);
    }
}
