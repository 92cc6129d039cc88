//! Paths that match a glob: `*`, `?`, `[a-z]` within a name, `**` for any folders between.
//!
//! It walks folders itself, so that names of any bytes pass: what is no UTF-8 in a name counts as characters that
//! only `*`, `?` and `[!a]` match.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern, PatternError};

const OPTIONS: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };

/// One glob, cut at its slashes.
#[derive(Debug)]
pub(super) struct Glob {
    root: PathBuf,
    parts: Vec<Part>,
    /// Whether it ends with a slash, so that only folders match.
    folders_only: bool,
}

#[derive(Debug)]
enum Part {
    /// A name without a glob's characters, which need not be searched for.
    Name(String),
    Match(Pattern),
    /// `**`: no folder, or any folders within each other.
    Folders,
}

/// A folder that cannot be listed.
#[derive(Debug)]
pub(super) struct Unlisted {
    pub(super) folder: PathBuf,
    pub(super) error: io::Error,
}

impl Glob {
    /// Parses `text`, in which `[*]` stands for a star that is meant.
    ///
    /// # Errors
    /// When a set has no end, or `**` is no whole name.
    pub(super) fn parse(text: &str) -> Result<Self, PatternError> {
        let mut parts = Vec::new();
        for part in text.split('/').filter(|part| !part.is_empty()) {
            let pattern = Pattern::new(part)?;
            match part {
                "**" if matches!(parts.last(), Some(Part::Folders)) => {}
                "**" => parts.push(Part::Folders),
                _ if part.contains(['*', '?', '[']) => parts.push(Part::Match(pattern)),
                _ => parts.push(Part::Name(part.to_owned())),
            }
        }
        let root = if text.starts_with('/') { PathBuf::from("/") } else { PathBuf::new() };
        let folders_only = text.ends_with('/') || matches!(parts.last(), Some(Part::Folders));
        Ok(Self { root, parts, folders_only })
    }

    /// Hands every path that matches to `found`, in no order; goes on until that gives an error.
    pub(super) fn find<E: From<Unlisted>>(&self, mut found: impl FnMut(PathBuf) -> Result<(), E>) -> Result<(), E> {
        self.walk(&self.root, &self.parts, &mut Vec::new(), &mut found)
    }

    fn walk<E: From<Unlisted>>(
        &self,
        path: &Path,
        parts: &[Part],
        above: &mut Vec<(u64, u64)>,
        found: &mut impl FnMut(PathBuf) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some((part, rest)) = parts.split_first() else {
            return match !self.folders_only || path.is_dir() {
                true => found(path.to_owned()),
                false => Ok(()),
            };
        };
        match part {
            Part::Name(name) => {
                let path = path.join(name);
                match fs::symlink_metadata(&path) {
                    Ok(_) => self.walk(&path, rest, &mut Vec::new(), found),
                    Err(_) => Ok(()),
                }
            }
            Part::Match(pattern) => {
                for name in names_in(path)? {
                    if pattern.matches_with(&name.to_string_lossy(), OPTIONS) {
                        self.walk(&path.join(name), rest, &mut Vec::new(), found)?;
                    }
                }
                Ok(())
            }
            Part::Folders => {
                // A link may lead back to a folder above it.
                let Ok(here) = fs::metadata(listed(path)) else { return Ok(()) };
                let here = (here.dev(), here.ino());
                if above.contains(&here) {
                    return Ok(());
                }
                if !rest.is_empty() {
                    self.walk(path, rest, &mut Vec::new(), found)?;
                }
                above.push(here);
                for name in names_in(path)? {
                    let path = path.join(&name);
                    if !name.as_encoded_bytes().starts_with(b".") && path.is_dir() {
                        if rest.is_empty() {
                            found(path.clone())?;
                        }
                        self.walk(&path, parts, above, found)?;
                    }
                }
                above.pop();
                Ok(())
            }
        }
    }
}

/// The names in a folder; none where `path` is no folder.
fn names_in(path: &Path) -> Result<Vec<std::ffi::OsString>, Unlisted> {
    let folder = listed(path);
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let list =
        || fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.file_name())).collect::<io::Result<Vec<_>>>();
    list().map_err(|error| Unlisted { folder: folder.to_owned(), error })
}

/// The folder that an empty path means.
fn listed(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    impl From<Unlisted> for io::Error {
        fn from(unlisted: Unlisted) -> Self {
            unlisted.error
        }
    }

    fn find(root: &Path, pattern: &str) -> Vec<PathBuf> {
        let glob = Glob::parse(&format!("{}/{pattern}", root.display())).unwrap();
        let mut all = Vec::new();
        glob.find(|path| {
            all.push(path.strip_prefix(root).unwrap().to_owned());
            io::Result::Ok(())
        })
        .unwrap();
        all.sort();
        all
    }

    #[test]
    fn names_that_are_no_utf_8_match_like_any_other() {
        let folder = tempfile::tempdir().unwrap();
        let odd = Path::new(OsStr::from_bytes(b"\xff"));
        fs::create_dir(folder.path().join(odd)).unwrap();
        for name in [Path::new("a.tar"), Path::new(OsStr::from_bytes(b"\xfe.tar")), &odd.join("b.tar")] {
            fs::write(folder.path().join(name), b"").unwrap();
        }
        let bad = PathBuf::from(OsStr::from_bytes(b"\xfe.tar"));
        assert_eq!(find(folder.path(), "*.tar"), [PathBuf::from("a.tar"), bad.clone()]);
        assert_eq!(find(folder.path(), "?.tar"), [PathBuf::from("a.tar"), bad.clone()]);
        assert_eq!(find(folder.path(), "[a-z].tar"), [PathBuf::from("a.tar")]);
        assert_eq!(find(folder.path(), "*/b.tar"), [odd.join("b.tar")]);
        assert_eq!(find(folder.path(), "**/*.tar"), [PathBuf::from("a.tar"), bad, odd.join("b.tar")]);
    }

    #[test]
    fn a_circle_of_links_is_walked_once() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        fs::write(folder.path().join("a/b/c.tar"), b"").unwrap();
        std::os::unix::fs::symlink(folder.path(), folder.path().join("a/up")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("a/b"), folder.path().join("side")).unwrap();
        assert_eq!(find(folder.path(), "**/*.tar"), [Path::new("a/b/c.tar"), Path::new("side/c.tar")]);
        assert_eq!(find(folder.path(), "a/**"), ["a/b", "a/up", "a/up/a", "a/up/side"].map(Path::new));
    }

    #[test]
    fn hidden_names_match_only_where_the_dot_is_written() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(".git")).unwrap();
        for name in [".a.tar", "a.tar", ".git/b.tar"] {
            fs::write(folder.path().join(name), b"").unwrap();
        }
        assert_eq!(find(folder.path(), "**/*.tar"), [Path::new("a.tar")]);
        assert_eq!(find(folder.path(), ".*.tar"), [Path::new(".a.tar")]);
    }
}
