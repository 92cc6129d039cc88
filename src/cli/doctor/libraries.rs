//! Shared libraries that optional parts look for at run time: where they lie. None is loaded, so a file that is found
//! may still be the wrong one.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::cli::system::System;

/// What is looked for: the beginning of the file's name, and what it is.
const WANTED: [(&str, &str); 3] =
    [("libcuda.so.1", "CUDA driver"), ("libnvidia-ml.so.1", "GPU monitoring"), ("libnvjpeg.so", "GPU JPEG decoding")];

/// Where Linux distributions, containers and NVIDIA's installers put libraries.
const FOLDERS: [&str; 9] = [
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "lib/x86_64-linux-gnu",
    "usr/local/nvidia/lib64",
    "usr/local/cuda/lib64",
    "usr/local/cuda/targets/x86_64-linux/lib",
    "usr/lib/wsl/lib",
];

/// A library and where it is.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Library {
    name: &'static str,
    purpose: &'static str,
    path: Option<PathBuf>,
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): ", self.name, self.purpose)?;
        match &self.path {
            Some(path) => write!(f, "{}", path.display()),
            None => f.write_str("not found"),
        }
    }
}

/// Looks in `library_path`, a list of folders between colons, and then in the usual folders.
pub(super) fn look(system: &System, library_path: &OsStr) -> Vec<Library> {
    let given = std::env::split_paths(library_path).filter(|folder| folder.is_absolute());
    let folders: Vec<PathBuf> = given.chain(FOLDERS.map(|folder| Path::new("/").join(folder))).collect();
    let find = |name: &str| {
        folders.iter().find_map(|folder| {
            let file = system.names(folder).into_iter().find(|file| file.starts_with(name))?;
            Some(folder.join(file))
        })
    };
    WANTED.map(|(name, purpose)| Library { name, purpose, path: find(name) }).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::system::fake;

    #[test]
    fn the_users_folders_come_first() {
        let (_folder, system) = fake::machine(&[
            ("usr/lib64/libcuda.so.1", ""),
            ("opt/nv/libcuda.so.1.1", ""),
            ("opt/nv/libnvjpeg.so.12", ""),
            ("usr/lib64/libnvidia-ml.so", ""),
        ]);
        let paths = |library_path: &str| -> Vec<Option<String>> {
            let found = look(&system, OsStr::new(library_path)).into_iter();
            found.map(|library| library.path.map(|path| path.display().to_string())).collect()
        };
        let text = |path: &str| Some(path.to_owned());
        assert_eq!(paths(""), [text("/usr/lib64/libcuda.so.1"), None, None]);
        assert_eq!(paths("/opt/nv:"), [text("/opt/nv/libcuda.so.1.1"), None, text("/opt/nv/libnvjpeg.so.12")]);
    }
}
