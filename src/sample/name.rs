//! How a member's name splits into key and extension, by webdataset's rule to the letter.
//!
//! It looks at names alone: whether the member is a file, and what it holds, is decided elsewhere.

use std::borrow::Cow;
use std::fmt;

use memchr::{memchr, memrchr};

/// Which dot of a file name ends the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum KeySplit {
    /// The first dot after the last slash, as webdataset: `a.left.jpg` is field `left.jpg` of sample `a`.
    #[default]
    FirstDot,
    /// The last dot: `photo.0001.jpg` is field `jpg` of sample `photo.0001`. Names that begin with a dot are skipped.
    LastDot,
}

/// Splits a member's name into key and extension (not yet lower-cased) at [`KeySplit::FirstDot`].
///
/// `None` means that the name takes no part in grouping: it has no dot after its last slash, or nothing before it.
///
/// Python's webdataset says it as the pattern `^((?:.*/|)[^.]+)[.]([^/]*)$`, whose corners are kept: a hidden file in
/// a directory without dots belongs to the "key" that is the directory (`d/.x.jpg` is `d/` and `x.jpg`), and because
/// `.` matches no newline there, a slash behind a newline does not end the directory part.
#[must_use]
pub fn split_name(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let first_line = &name[..memchr(b'\n', name).unwrap_or(name.len())];
    let slash = memrchr(b'/', first_line);
    let base = slash.map_or(0, |slash| slash + 1);
    let dot = base + memchr(b'.', &name[base..])?;
    if memchr(b'/', &name[dot..]).is_some() {
        return None;
    }
    if dot == base {
        // Nothing stands before the dot, so the pattern retreats to the slash before: the last directory, with its
        // slash, becomes the stem, provided that it has no dot itself.
        let directory = &first_line[..slash?];
        let directory = &directory[memrchr(b'/', directory).map_or(0, |slash| slash + 1)..];
        if memchr(b'.', directory).is_some() {
            return None;
        }
    }
    Some((&name[..dot], &name[dot + 1..]))
}

/// [`split_name`] with a choice of the dot.
pub(super) fn split_name_at(name: &[u8], split: KeySplit) -> Option<(&[u8], &[u8])> {
    match split {
        KeySplit::FirstDot => split_name(name),
        KeySplit::LastDot => {
            let base = memrchr(b'/', name).map_or(0, |slash| slash + 1);
            let dot = base + memrchr(b'.', &name[base..])?;
            (name[base] != b'.').then(|| (&name[..dot], &name[dot + 1..]))
        }
    }
}

/// Whether webdataset takes the name for metadata of the archive: `__x__` alone or as the first directory.
pub(crate) fn is_metadata(name: &[u8]) -> bool {
    if !name.starts_with(b"__") {
        return false;
    }
    match memchr(b'/', name) {
        Some(slash) => slash >= 4 && name[..slash].ends_with(b"__"),
        // A name without a slash needs no four underscores; one newline at its end is overlooked, but then it does.
        None => name.ends_with(b"__") || (name.len() >= 5 && name.ends_with(b"__\n")),
    }
}

/// Whether the member is a leaf of macOS's own book-keeping: `._name`, or anything under a `__MACOSX` directory.
pub(crate) fn is_appledouble(name: &[u8]) -> bool {
    let base = memrchr(b'/', name).map_or(0, |slash| slash + 1);
    name[base..].starts_with(b"._") || name[..base].split(|&byte| byte == b'/').any(|part| part == b"__MACOSX")
}

/// An extension as it is compared: lower case as Unicode says, bytes that are not UTF-8 as `\xe9`.
pub(super) fn fold_extension(ext: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(ext) {
        Ok(ext) if ext.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) => Cow::Borrowed(ext),
        Ok(ext) => Cow::Owned(ext.to_lowercase()),
        Err(_) => Cow::Owned(Escaped(ext).to_string().to_lowercase()),
    }
}

/// Writes bytes as text, those that are not UTF-8 as `\xe9`.
pub(super) fn write_escaped(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    for chunk in bytes.utf8_chunks() {
        f.write_str(chunk.valid())?;
        for byte in chunk.invalid() {
            write!(f, "\\x{byte:02x}")?;
        }
    }
    Ok(())
}

/// Bytes that print as text; see [`write_escaped`].
pub(super) struct Escaped<'a>(pub(super) &'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_escaped(f, self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name, and the key and extension that Python's webdataset 1.0.2 makes of it.
    type Row = (&'static str, Option<(&'static str, &'static str)>);

    const TABLE: &[Row] = &[
        ("a.jpg", Some(("a", "jpg"))),
        ("a.b.jpg", Some(("a", "b.jpg"))),
        ("dir/x.y/img.left.JPG", Some(("dir/x.y/img", "left.JPG"))),
        ("./a.jpg", Some(("./a", "jpg"))),
        ("/abs/a.jpg", Some(("/abs/a", "jpg"))),
        ("d1/../a.jpg", Some(("d1/../a", "jpg"))),
        ("d//a.jpg", Some(("d//a", "jpg"))),
        ("a..jpg", Some(("a", ".jpg"))),
        ("b.", Some(("b", ""))),
        ("nodot", None),
        ("a.b/c", None),
        (".hidden", None),
        (".hidden.jpg", None),
        ("./._001.jpg", None),
        ("dir/.hidden.jpg", Some(("dir/", "hidden.jpg"))),
        ("d/._002.jpg", Some(("d/", "_002.jpg"))),
        ("__meta__.json", Some(("__meta__", "json"))),
        ("d/__m__.jpg", Some(("d/__m__", "jpg"))),
        // Hidden files, deeper.
        ("d/e/.x", Some(("d/e/", "x"))),
        ("d.d/e/.x", Some(("d.d/e/", "x"))),
        ("e/d.d/.x", None),
        ("d/..x", Some(("d/", ".x"))),
        ("//.x", Some(("//", "x"))),
        ("/.x", Some(("/", "x"))),
        ("", None),
        (".", None),
        ("..", None),
        ("/", None),
        ("a/", None),
        // Blanks, backslashes and newlines: only a slash behind a newline is special.
        ("a b.jpg", Some(("a b", "jpg"))),
        ("a\\b.jpg", Some(("a\\b", "jpg"))),
        ("a\nb.jpg", Some(("a\nb", "jpg"))),
        ("a\nd/b.jpg", Some(("a\nd/b", "jpg"))),
        ("a\nd.x/b.jpg", None),
        ("d.x/a\nb.jpg", Some(("d.x/a\nb", "jpg"))),
        ("x.y\n/a.jpg", None),
        ("d\n/.x", Some(("d\n/", "x"))),
        ("d/e\n/.x", Some(("d/e\n/", "x"))),
        ("a.jpg\n", Some(("a", "jpg\n"))),
        ("\n.x", Some(("\n", "x"))),
        ("d/.\n", Some(("d/", "\n"))),
    ];

    #[test]
    fn names_split_as_webdataset_splits_them() {
        for &(name, expected) in TABLE {
            let expected = expected.map(|(key, ext)| (key.as_bytes(), ext.as_bytes()));
            assert_eq!(split_name(name.as_bytes()), expected, "{name:?}");
        }
    }

    /// The pattern of the documentation, tried as a backtracking matcher would.
    fn split_by_pattern(name: &[u8]) -> Option<(&[u8], &[u8])> {
        let first_line = name.iter().position(|&byte| byte == b'\n').unwrap_or(name.len());
        let mut stems: Vec<usize> = (0..first_line).filter(|&at| name[at] == b'/').map(|at| at + 1).collect();
        stems.insert(0, 0);
        stems.iter().rev().find_map(|&stem| {
            let dot = stem + name[stem..].iter().position(|&byte| byte == b'.')?;
            (dot > stem && !name[dot..].contains(&b'/')).then(|| (&name[..dot], &name[dot + 1..]))
        })
    }

    #[test]
    fn the_scan_agrees_with_the_pattern_on_every_short_name() {
        let alphabet = b"a./\n";
        for length in 0..=7_u32 {
            for number in 0..4_usize.pow(length) {
                let name: Vec<u8> = (0..length).map(|digit| alphabet[number >> (2 * digit) & 3]).collect();
                assert_eq!(split_name(&name), split_by_pattern(&name), "{}", name.escape_ascii());
            }
        }
    }

    #[test]
    fn the_last_dot_keeps_dots_in_keys() {
        let check = |name: &'static str, expected: Option<(&str, &str)>| {
            let expected = expected.map(|(key, ext)| (key.as_bytes(), ext.as_bytes()));
            assert_eq!(split_name_at(name.as_bytes(), KeySplit::LastDot), expected, "{name:?}");
        };
        check("photo.0001.jpg", Some(("photo.0001", "jpg")));
        check("d.x/a.b.c", Some(("d.x/a.b", "c")));
        check("a.", Some(("a", "")));
        check("a..jpg", Some(("a.", "jpg")));
        check("d/.hidden.jpg", None);
        check(".hidden", None);
        check("d.x/a", None);
        check("", None);
    }

    #[test]
    fn metadata_is_told_from_samples() {
        let check = |name: &str, expected: bool| assert_eq!(is_metadata(name.as_bytes()), expected, "{name:?}");
        for name in ["__x__", "__x__/a.jpg", "__", "___", "____", "____/a", "__x__\n", "____\n", "__x__/y__", "__a\n__"]
        {
            check(name, true);
        }
        for name in [
            "__/a.jpg",
            "___/a.jpg",
            "__\n",
            "___\n",
            "__x__y",
            "__x__y/a.jpg",
            "__x/y__",
            "__x__\n/a",
            "a/__x__",
            "__x__\n\n",
            "_x_",
            "__x__.jpg",
            "d/__m__.jpg",
            "",
        ] {
            check(name, false);
        }
    }

    #[test]
    fn the_book_keeping_of_macos_is_recognised() {
        let check = |name: &str, expected: bool| assert_eq!(is_appledouble(name.as_bytes()), expected, "{name:?}");
        check("._a.jpg", true);
        check("d/._a.jpg", true);
        check("__MACOSX/a.jpg", true);
        check("./d/__MACOSX/d/._a.jpg", true);
        check("a._b.jpg", false);
        check("._d/a.jpg", false);
        check("__MACOSX.jpg", false);
        check("my__MACOSX/a.jpg", false);
    }

    #[test]
    fn extensions_fold_to_lower_case_text() {
        assert!(matches!(fold_extension(b"left.jpg"), Cow::Borrowed("left.jpg")));
        assert_eq!(fold_extension(b"JPeG"), "jpeg");
        assert_eq!(fold_extension("ÄÖ".as_bytes()), "äö");
        assert_eq!(fold_extension(b"\xE9A"), "\\xe9a");
    }
}
