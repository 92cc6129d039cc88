//! Names become keys that every reader of shards groups alike, or are refused. Whether two samples have one key is not
//! seen here.

use super::options::Names;
use crate::error::{Error, ErrorKind, Result};

/// The longest key in bytes: with an extension it still is a name that a file system takes.
const KEY_MAX_BYTES: usize = 3_900;

/// The key that a source's name becomes. Dots in the last part become `_`, since a key ends at the first dot, and `./`
/// at the start says nothing.
///
/// # Errors
/// [`ErrorKind::InvalidOption`] for a name that is no fit key, unless `names` says to escape it.
pub(super) fn key_of(name: &[u8], names: Names) -> Result<String> {
    let mut rest = name;
    while let Some(tail) = rest.strip_prefix(b"./") {
        rest = tail;
    }
    if names == Names::Escape {
        while let Some(tail) = rest.strip_prefix(b"/") {
            rest = tail;
        }
    }
    if let Some(wrong) = wrong_with(rest) {
        return match names {
            Names::Escape => escaped(rest),
            Names::Refuse => Err(unfit(name, wrong)),
        };
    }
    // `wrong_with` has seen that it is UTF-8.
    Ok(without_dots(&String::from_utf8_lossy(rest)))
}

/// What keeps `name` from being a key.
fn wrong_with(name: &[u8]) -> Option<&'static str> {
    let Ok(text) = std::str::from_utf8(name) else { return Some("it is not UTF-8") };
    if text.chars().any(char::is_control) {
        return Some("it has control characters");
    }
    if text.starts_with('/') {
        return Some("it is absolute");
    }
    if text.len() > KEY_MAX_BYTES {
        return Some("it is too long");
    }
    let parts = || text.split('/');
    if parts().any(|part| part == ".." || part == ".") {
        return Some("it has '.' or '..' among its folders");
    }
    if parts().any(str::is_empty) {
        return Some("a part of it is empty");
    }
    if is_skipped(text) {
        return Some("its first folder is one that readers skip");
    }
    None
}

/// Whether readers take the first folder for the archive's own.
fn is_skipped(text: &str) -> bool {
    let (folders, base) = text.rsplit_once('/').unwrap_or(("", text));
    let first = folders.split('/').next().unwrap_or_default();
    let is_metadata = first.len() >= 4 && first.starts_with("__") && first.ends_with("__");
    is_metadata || base.starts_with("._") || folders.split('/').any(|part| part == "__MACOSX")
}

fn escaped(name: &[u8]) -> Result<String> {
    let mut text = String::with_capacity(name.len() + 8);
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_control() {
                let mut bytes = [0; 4];
                character.encode_utf8(&mut bytes).bytes().for_each(|byte| push_escape(&mut text, byte));
            } else {
                text.push(character);
            }
        }
        chunk.invalid().iter().for_each(|&byte| push_escape(&mut text, byte));
    }
    let parts: Vec<String> = text
        .split('/')
        .filter(|part| !part.is_empty())
        .map(|part| match part {
            "." | ".." => part.replace('.', "%2E"),
            _ if part.starts_with("__") || part.starts_with("._") => {
                format!("%{:02X}{}", part.as_bytes()[0], &part[1..])
            }
            _ => part.to_owned(),
        })
        .collect();
    let text = parts.join("/");
    match wrong_with(text.as_bytes()) {
        Some(wrong) => Err(unfit(name, wrong)),
        None => Ok(without_dots(&text)),
    }
}

fn push_escape(text: &mut String, byte: u8) {
    text.push_str(&format!("%{byte:02X}"));
}

fn without_dots(text: &str) -> String {
    match text.rsplit_once('/') {
        Some((folders, base)) => format!("{folders}/{}", base.replace('.', "_")),
        None => text.replace('.', "_"),
    }
}

fn unfit(name: &[u8], wrong: &str) -> Error {
    let shown = String::from_utf8_lossy(name);
    Error::new(ErrorKind::InvalidOption, format!("'{}' cannot be a key: {wrong}", shown.escape_debug()))
        .with_hint("rename it, or let such names be escaped with --names escape")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::split_name;
    use proptest::prelude::*;

    #[test]
    fn names_become_keys_or_are_refused_or_escaped() {
        let check = |name: &[u8], refused: Option<&str>, escaped: Option<&str>| {
            assert_eq!(key_of(name, Names::Refuse).ok().as_deref(), refused, "{}", name.escape_ascii());
            assert_eq!(key_of(name, Names::Escape).ok().as_deref(), escaped, "{}", name.escape_ascii());
        };
        let same = |name: &str, key: &str| check(name.as_bytes(), Some(key), Some(key));
        same("n01/img_1", "n01/img_1");
        same("./n01/img", "n01/img");
        same("v1.2/a.b.c", "v1.2/a_b_c");
        same("café/é", "café/é");
        check(b"/abs/a", None, Some("abs/a"));
        check(b"../up", None, Some("%2E%2E/up"));
        check(b"a/../b", None, Some("a/%2E%2E/b"));
        check(b"caf\xe9", None, Some("caf%E9"));
        check(b"a\nb\x1b[2J", None, Some("a%0Ab%1B[2J"));
        check(b"__MACOSX/a", None, Some("%5F_MACOSX/a"));
        check(b"__x__/a", None, Some("%5F_x__/a"));
        check(b"d/._a", None, Some("d/%2E_a"));
        check(b"a//b", None, Some("a/b"));
        check(b"", None, None);
        check(b"/", None, None);
        check(&[b'x'; 5000], None, None);
    }

    proptest! {
        #[test]
        fn any_key_reads_back_as_itself(name: Vec<u8>) {
            for names in [Names::Refuse, Names::Escape] {
                if let Ok(key) = key_of(&name, names) {
                    let member = format!("{key}.jpg");
                    prop_assert_eq!(split_name(member.as_bytes()), Some((key.as_bytes(), &b"jpg"[..])));
                    prop_assert!(!key.starts_with('/') && !key.split('/').any(|part| part == ".."));
                }
            }
        }
    }
}
