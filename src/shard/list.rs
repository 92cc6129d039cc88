//! The shards of a data set by path: brace patterns, globs, folders, and lists of them.
//!
//! It looks at names, never into files; and it keeps the order that was written, so that a list is the same everywhere.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::brace::{self, EXPANSIONS_MAX};
use super::glob::{Glob, Unlisted};
use crate::error::{Error, ErrorKind, Result};

/// What names of shards end with: a folder stands for all files with one of these.
pub const SHARD_SUFFIXES: [&str; 6] = [".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz"];

/// Paths of shards, all of which existed, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardList(Vec<PathBuf>);

impl ShardList {
    /// The shards that `pattern` stands for.
    ///
    /// - Braces expand as in bash, see [`expand_braces`](super::expand_braces): `train-{000000..000146}.tar`.
    /// - `*`, `?`, `[a-z]` and `**` match files and folders, in byte order of the paths.
    /// - A folder stands for its files that end with one of [`SHARD_SUFFIXES`], in byte order, hidden ones left out.
    /// - `a::b` is the list of both. A leading `file:` says nothing.
    /// - A path that exists as it is written is taken as written, whatever characters it has.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for the first shard that does not exist, and for a glob or folder without any;
    /// [`ErrorKind::InvalidOption`] for an empty pattern; [`ErrorKind::Limit`] for more than [`EXPANSIONS_MAX`]
    /// shards; [`ErrorKind::Unsupported`] for what is no local file: `https:`, `s3:`, `pipe:`, `-`.
    pub fn parse(pattern: &str) -> Result<Self> {
        Self::from_patterns(&[pattern])
    }

    /// The shards of several patterns, one after the other. One that is not UTF-8 is a path as it is written.
    ///
    /// # Errors
    /// As [`parse`](Self::parse); no pattern at all is [`ErrorKind::InvalidOption`].
    pub fn from_patterns<P: AsRef<OsStr>>(patterns: &[P]) -> Result<Self> {
        let mut paths = Vec::new();
        for pattern in patterns {
            let Some(pattern) = pattern.as_ref().to_str() else {
                let path = Path::new(pattern.as_ref());
                let found = fs::metadata(path)
                    .map_err(|error| Error::io(format!("no shard at '{}'", path.display()), error))
                    .and_then(|_| Part { pattern: &path.to_string_lossy(), text: "" }.take(path, &mut paths));
                found.map_err(|error| error.with_hint("a pattern that is not UTF-8 is taken as a path"))?;
                continue;
            };
            for part in pattern.split("::") {
                Part { pattern, text: local(part)? }.find(&mut paths)?;
            }
        }
        if paths.is_empty() {
            return Err(Error::new(ErrorKind::InvalidOption, "no pattern of shards was given"));
        }
        Ok(Self(paths))
    }

    /// The paths in order.
    #[must_use]
    pub fn paths(&self) -> &[PathBuf] {
        &self.0
    }

    /// How many shards there are: at least one.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a list is never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The paths in order, for keeps.
    #[must_use]
    pub fn into_paths(self) -> Vec<PathBuf> {
        self.0
    }
}

/// `text` without `file:`; what is no local file is refused.
fn local(text: &str) -> Result<&str> {
    if text.is_empty() {
        return Err(Error::new(ErrorKind::InvalidOption, "a pattern of shards is empty")
            .with_hint("give a path, a pattern such as 'train-{0000..0146}.tar', or a folder"));
    }
    if let Some(path) = text.strip_prefix("file:") {
        return local(path.strip_prefix("//").unwrap_or(path));
    }
    if text == "-" || text.starts_with("pipe:") || text.contains("://") {
        return Err(Error::new(ErrorKind::Unsupported, format!("'{text}' is no local file"))
            .with_hint("copy the shards to a local or mounted folder first"));
    }
    Ok(text)
}

/// One part of a pattern between `::`.
struct Part<'a> {
    /// The whole pattern, for errors.
    pattern: &'a str,
    text: &'a str,
}

impl Part<'_> {
    fn find(&self, paths: &mut Vec<PathBuf>) -> Result<()> {
        if Path::new(self.text).exists() {
            return self.take(Path::new(self.text), paths);
        }
        self.find_expanded(paths).map_err(|error| match error.kind() {
            // What a range makes is no help where the pattern itself is not what was meant.
            ErrorKind::NotFound | ErrorKind::Io if brace::has_lone_brace(self.text) => {
                error.with_hint("a brace in the pattern has no partner, so it is taken as a letter of the name")
            }
            _ => error,
        })
    }

    fn find_expanded(&self, paths: &mut Vec<PathBuf>) -> Result<()> {
        let words = brace::expand(self.text, EXPANSIONS_MAX.saturating_sub(paths.len()))?;
        let count = words.len();
        for (number, word) in words.iter().enumerate() {
            let path = PathBuf::from(brace::unescape(word));
            match fs::metadata(&path) {
                Ok(_) => self.take(&path, paths)?,
                Err(error) if is_absent(&error) && has_glob(word) => self.glob(word, paths)?,
                Err(error) => {
                    let message = format!("no shard at '{}', from the pattern '{}'", path.display(), self.pattern);
                    let error = Error::io(message, error);
                    return Err(match count {
                        1 => error,
                        _ => {
                            error.with_hint(format!("it is name {} of the {count} that the pattern makes", number + 1))
                        }
                    });
                }
            }
        }
        Ok(())
    }

    /// Adds a path that exists: a file, or the shards of a folder.
    fn take(&self, path: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
        if !path.is_dir() {
            return self.push(path.to_owned(), paths);
        }
        let shards = shards_in(path)?;
        if shards.is_empty() {
            return Err(Error::new(ErrorKind::NotFound, format!("no shards in the folder '{}'", path.display()))
                .with_hint(format!("their names end with {}", SHARD_SUFFIXES.join(", "))));
        }
        shards.into_iter().try_for_each(|shard| self.push(shard, paths))
    }

    fn glob(&self, word: &str, paths: &mut Vec<PathBuf>) -> Result<()> {
        let glob = Glob::parse(&glob_text(word)).map_err(|error| {
            Error::new(ErrorKind::InvalidOption, format!("'{}' is no valid glob", self.pattern)).with_source(error)
        })?;
        let mut found = Vec::new();
        glob.find(|path| match path.is_dir() {
            true => shards_in(&path)?.into_iter().try_for_each(|shard| self.push(shard, &mut found)),
            false => self.push(path, &mut found),
        })?;
        if found.is_empty() {
            return Err(Error::new(ErrorKind::NotFound, format!("nothing matches '{}'", self.pattern)));
        }
        found.sort_unstable_by(|a, b| a.as_os_str().cmp(b.as_os_str()));
        found.into_iter().try_for_each(|shard| self.push(shard, paths))
    }

    fn push(&self, path: PathBuf, paths: &mut Vec<PathBuf>) -> Result<()> {
        if paths.len() >= EXPANSIONS_MAX {
            let message = format!("more than {EXPANSIONS_MAX} shards up to the pattern '{}'", self.pattern);
            return Err(Error::new(ErrorKind::Limit, message));
        }
        paths.push(path);
        Ok(())
    }
}

/// The shards in a folder, in byte order of their names.
fn shards_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let cannot_list = |error| Error::io(format!("cannot list the folder '{}'", folder.display()), error);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(cannot_list)? {
        let entry = entry.map_err(cannot_list)?;
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !is_folder && is_shard_name(entry.file_name().as_encoded_bytes()) {
            names.push(entry.file_name());
        }
    }
    names.sort_unstable();
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

fn is_shard_name(name: &[u8]) -> bool {
    !name.starts_with(b".") && SHARD_SUFFIXES.iter().any(|suffix| name.ends_with(suffix.as_bytes()))
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidFilename)
}

/// Whether a word with backslashes has a glob's character that none of them protects.
fn has_glob(word: &str) -> bool {
    let mut chars = word.chars();
    while let Some(char) = chars.next() {
        match char {
            '*' | '?' | '[' => return true,
            '\\' => drop(chars.next()),
            _ => {}
        }
    }
    false
}

impl From<Unlisted> for Error {
    fn from(Unlisted { folder, error }: Unlisted) -> Self {
        Self::io(format!("cannot look into '{}'", folder.display()), error)
    }
}

/// A word with backslashes as the glob crate spells it: it has no backslash, but sets of one character.
fn glob_text(word: &str) -> String {
    let mut text = String::with_capacity(word.len());
    let mut chars = word.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => match chars.next() {
                Some(char @ ('*' | '?' | '[')) => text.extend(['[', char, ']']),
                other => text.push(other.unwrap_or('\\')),
            },
            _ => text.push(char),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with some files; `find` gives their names below it.
    struct Folder(tempfile::TempDir);

    impl Folder {
        fn with(names: &[&str]) -> Self {
            let folder = tempfile::tempdir().unwrap();
            for name in names {
                let path = folder.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, b"").unwrap();
            }
            Self(folder)
        }

        fn find(&self, pattern: &str) -> Result<Vec<String>> {
            let root = format!("{}/", self.0.path().display());
            let list = ShardList::parse(&pattern.replace('~', &root))?;
            Ok(list.paths().iter().map(|path| path.display().to_string().replace(&root, "")).collect())
        }

        fn check(&self, pattern: &str, expected: &[&str]) {
            assert_eq!(self.find(pattern).unwrap(), expected, "{pattern}");
        }
    }

    #[test]
    fn order_is_as_written_and_sorted_where_nothing_is_written() {
        let folder =
            Folder::with(&["b.tar", "a.tar", "10.tar", "9.tar", "c.tar.gz", ".hidden.tar", "notes.txt", "d/e.tgz"]);
        folder.check("~{b,a}.tar", &["b.tar", "a.tar"]);
        folder.check("~b.tar::~a.tar::~b.tar", &["b.tar", "a.tar", "b.tar"]);
        folder.check("~{10..9}.tar", &["10.tar", "9.tar"]);
        folder.check("~[ab].tar", &["a.tar", "b.tar"]);
        folder.check("~{b,?}.tar", &["b.tar", "9.tar", "a.tar", "b.tar"]);
        folder.check("~", &["10.tar", "9.tar", "a.tar", "b.tar", "c.tar.gz"]);
        folder.check("~*/", &["d/e.tgz"]);
        folder.check("~**/*.tgz", &["d/e.tgz"]);
        folder.check("file:~a.tar", &["a.tar"]);
        folder.check("file://~a.tar", &["a.tar"]);
    }

    #[test]
    fn a_brace_without_a_partner_is_hinted_at_where_nothing_is_found() {
        let folder = Folder::with(&["a{.tar", "0.tar"]);
        folder.check("~a{.tar", &["a{.tar"]);
        for (pattern, hinted) in [
            ("~{0..3.tar", true),
            ("~0..3}.tar", true),
            ("~{0..1}}.tar", true),
            ("~{*.tar", true),
            (r"~\{b.tar", false),
        ] {
            let error = folder.find(pattern).unwrap_err();
            let has = error.hint().is_some_and(|hint| hint.contains("no partner"));
            assert_eq!((error.kind(), has), (ErrorKind::NotFound, hinted), "{pattern}");
        }
    }

    #[test]
    fn a_path_that_exists_is_taken_as_written() {
        let folder = Folder::with(&["a[1].tar", "a1.tar", "{x,y}.tar", "a*.tar"]);
        folder.check("~a[1].tar", &["a[1].tar"]);
        folder.check("~{x,y}.tar", &["{x,y}.tar"]);
        folder.check(r"~a\*.tar", &["a*.tar"]);
        folder.check("~a[12].tar", &["a1.tar"]);
        folder.check(r"~?\[*", &["a[1].tar"]);
    }

    #[test]
    fn a_pattern_that_is_no_utf_8_is_a_path_as_written() {
        use std::os::unix::ffi::OsStrExt;
        let folder = Folder::with(&["a.tar"]);
        let odd = folder.0.path().join(OsStr::from_bytes(b"\xff{1,2}"));
        assert_eq!(ShardList::from_patterns(&[&odd]).unwrap_err().kind(), ErrorKind::NotFound);
        fs::create_dir(&odd).unwrap();
        fs::write(odd.join("b.tar"), b"").unwrap();
        assert_eq!(ShardList::from_patterns(&[&odd]).unwrap().paths(), [odd.join("b.tar")]);
        folder.check("~*/*.tar", &["\u{fffd}{1,2}/b.tar"]);
        folder.check("~*.tar", &["a.tar"]);
    }

    #[test]
    fn what_is_not_there_is_named() {
        let folder = Folder::with(&["0.tar", "1.tar", "empty/readme"]);
        let check = |pattern: &str, kind: ErrorKind, words: &str| {
            let error = folder.find(pattern).unwrap_err();
            assert_eq!(error.kind(), kind, "{pattern}: {error}");
            assert!(error.to_string().contains(words), "{error} lacks {words}");
        };
        check("~{0..3}.tar", ErrorKind::NotFound, "2.tar', from the pattern '");
        assert_eq!(
            folder.find("~{0..3}.tar").unwrap_err().hint(),
            Some("it is name 3 of the 4 that the pattern makes")
        );
        check("~no.tar", ErrorKind::NotFound, "no.tar'");
        check("~0.tar/x", ErrorKind::Io, "0.tar/x'");
        check("~x*.tar", ErrorKind::NotFound, "x*.tar'");
        check("~empty", ErrorKind::NotFound, "no shards in the folder");
        check("~[a.tar", ErrorKind::InvalidOption, "no valid glob");
        check("", ErrorKind::InvalidOption, "empty");
        check("~0.tar::", ErrorKind::InvalidOption, "empty");
        check("{,}", ErrorKind::NotFound, "no shard at ''");
        check("https://host/a.tar", ErrorKind::Unsupported, "https://host/a.tar");
        check("pipe:cat a.tar", ErrorKind::Unsupported, "no local file");
        check("-", ErrorKind::Unsupported, "no local file");
        check("~{0..9999999}.tar", ErrorKind::Limit, "10000000");
        assert_eq!(ShardList::from_patterns::<&str>(&[]).unwrap_err().kind(), ErrorKind::InvalidOption);
    }
}
