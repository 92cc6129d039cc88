//! The names of the shards that a writer makes: a path that counts up, such as `train-%06d.tar`.
//!
//! It makes paths of numbers and finds no files; the patterns that shards are read by are [`list`](super::super::list)'s.

use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};

/// A path with at most one number in its file name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ShardPattern {
    before: String,
    /// How many digits the number has at least.
    digits: Option<usize>,
    after: String,
}

impl ShardPattern {
    pub(super) fn parse(pattern: &str) -> Result<Self> {
        let invalid = |message: &str| {
            Error::new(ErrorKind::InvalidOption, format!("{message}, in '{pattern}'"))
                .with_hint("a number is written '%d' or '%06d', a per cent sign '%%'")
        };
        let (mut before, mut digits, mut text) = (String::new(), None, String::new());
        let mut rest = pattern;
        while let Some((start, tail)) = rest.split_once('%') {
            text.push_str(start);
            if let Some(tail) = tail.strip_prefix('%') {
                text.push('%');
                rest = tail;
                continue;
            }
            let (width, tail) = tail.split_once('d').ok_or_else(|| invalid("a number that does not end"))?;
            let width = match width.strip_prefix('0') {
                None if width.is_empty() => Some(1),
                None => None,
                Some(width) => width.parse().ok().filter(|width| (1..=18).contains(width)),
            };
            let width = width.ok_or_else(|| invalid("a number of an unknown form"))?;
            if digits.replace(width).is_some() {
                return Err(invalid("more than one number"));
            }
            before = std::mem::take(&mut text);
            rest = tail;
        }
        text.push_str(rest);
        let name = text.rsplit('/').next().unwrap_or(&text);
        if digits.is_some() && name.len() != text.len() {
            return Err(invalid("a number in a folder's name"));
        }
        if digits.is_none() && matches!(name, "" | "." | "..") {
            return Err(invalid("no file name"));
        }
        if [".gz", ".tgz", ".zst", ".bz2", ".xz"].iter().any(|suffix| name.ends_with(suffix)) {
            let message = format!("shards are written without compression, but '{pattern}' promises it");
            return Err(Error::new(ErrorKind::Unsupported, message).with_hint("let the name end with '.tar'"));
        }
        Ok(Self { before, digits, after: text })
    }

    /// Whether there is a number, so that there can be more than one shard.
    pub(super) fn is_numbered(&self) -> bool {
        self.digits.is_some()
    }

    /// The path of shard `number`.
    pub(super) fn path(&self, number: usize) -> PathBuf {
        match self.digits {
            Some(digits) => format!("{}{number:0digits$}{}", self.before, self.after).into(),
            None => self.after.clone().into(),
        }
    }

    /// The folder that the shards will be in.
    pub(super) fn folder(&self) -> PathBuf {
        match self.path(0).parent() {
            Some(folder) if folder != Path::new("") => folder.to_owned(),
            _ => ".".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_has_one_number_at_most_and_only_in_the_file_name() {
        let check = |pattern: &str, expected: Result<&str, ErrorKind>| {
            let path = ShardPattern::parse(pattern).map(|pattern| pattern.path(7));
            assert_eq!(path.map_err(|error| error.kind()), expected.map(PathBuf::from), "{pattern}");
        };
        check("a-%06d.tar", Ok("a-000007.tar"));
        check("d/%d", Ok("d/7"));
        check("100%%-%02d.tar", Ok("100%-07.tar"));
        check("plain.tar", Ok("plain.tar"));
        for pattern in ["%d-%d.tar", "%06x.tar", "%6d.tar", "%", "a%", "%0d", "%099d", "d%d/a.tar", "", "d/", "d/.."] {
            check(pattern, Err(ErrorKind::InvalidOption));
        }
        check("a-%06d.tar.gz", Err(ErrorKind::Unsupported));
    }
}
