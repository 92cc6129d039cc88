//! Where the command keeps its files, from the environment. It creates no folder.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The cache folder: `$XDG_CACHE_HOME/brimful`, or `~/.cache/brimful`; the system's folder for temporary files where
/// neither is set.
pub(super) fn cache() -> PathBuf {
    cache_from(env::var_os("XDG_CACHE_HOME"), env::var_os("HOME")).unwrap_or_else(|| env::temp_dir().join("brimful"))
}

fn cache_from(cache_home: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    // A path that is not absolute is to be ignored, says the rule for these variables.
    let absolute = |folder: Option<OsString>| folder.map(PathBuf::from).filter(|folder| folder.is_absolute());
    let cache = absolute(cache_home).or_else(|| Some(absolute(home)?.join(".cache")))?;
    Some(cache.join("brimful"))
}

/// Folders in which nvJPEG is looked for first: those of `BRIMFUL_NVJPEG_PATH`, which the wheel's command sets to where
/// Python packages keep it.
pub(super) fn nvjpeg() -> Vec<PathBuf> {
    env::var_os("BRIMFUL_NVJPEG_PATH").map_or_else(Vec::new, |list| env::split_paths(&list).collect())
}

/// The nearest folder at or above `path` that exists.
pub(super) fn existing(path: &Path) -> Option<&Path> {
    path.ancestors().find(|path| path.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_follows_the_environment() {
        let check = |cache_home: Option<&str>, home: Option<&str>, expected: Option<&str>| {
            assert_eq!(cache_from(cache_home.map(Into::into), home.map(Into::into)), expected.map(PathBuf::from));
        };
        check(Some("/c"), Some("/h"), Some("/c/brimful"));
        check(None, Some("/h"), Some("/h/.cache/brimful"));
        check(Some(""), Some("/h"), Some("/h/.cache/brimful"));
        check(Some("relative"), None, None);
    }
}
