//! What a file is by its first bytes: compressed in a known way, or something else that people mistake for a shard.
//!
//! It never looks at file names, and it does not say whether the rest of the file is sound.

use std::io::Read;
use std::path::Path;

use super::FileIdentity;
use super::compressed::HEAD_BYTES;
use crate::error::{Error, Result};

/// A way of compressing a whole archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Compression {
    /// gzip, also several members one after the other.
    Gzip,
    /// bzip2, also several streams one after the other.
    Bzip2,
    /// xz, also several streams one after the other.
    Xz,
    /// Zstandard, also several frames one after the other.
    Zstd,
}

impl Compression {
    /// The compression that `head`, the first bytes of a file, shows; `None` when it shows none that is read here.
    #[must_use]
    pub fn sniff(head: &[u8]) -> Option<Self> {
        match head {
            [0x1f, 0x8b, 8, ..] => Some(Self::Gzip),
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, 0x26, 0x53, 0x59, ..]
            | [b'B', b'Z', b'h', b'1'..=b'9', 0x17, 0x72, 0x45, 0x38, 0x50, 0x90, ..] => Some(Self::Bzip2),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Self::Xz),
            // The second one is a frame to be skipped, as parallel writers begin with.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstd),
            _ => None,
        }
    }

    /// How the file at `path` is compressed, by its first bytes; `None` where it is not.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) or [`Io`](crate::ErrorKind::Io) when it cannot be read.
    pub fn of_path(path: &Path) -> Result<Option<Self>> {
        let mut head = Vec::new();
        let (file, _) = FileIdentity::open(path).map_err(|error| error.in_shard(path.to_string_lossy()))?;
        let read = file.take(HEAD_BYTES as u64).read_to_end(&mut head);
        read.map_err(|error| Error::io("cannot read the shard", error).in_shard(path.to_string_lossy()))?;
        Ok(Self::sniff(&head))
    }

    /// The name people know it by.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Bzip2 => "bzip2",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
        }
    }
}

/// What `head` looks like, for the error that says it is no archive.
pub(super) fn describe(head: &[u8]) -> Option<&'static str> {
    if let Some(compression) = Compression::sniff(head) {
        return Some(compression.as_str());
    }
    let signatures: [(&[u8], &str); 16] = [
        (b"PK\x03\x04", "a zip archive"),
        (b"PK\x05\x06", "an empty zip archive"),
        (b"\x04\x22\x4d\x18", "lz4, which is not read"),
        (b"\x1f\x9d", "an old .Z file, which is not read"),
        (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
        (b"Rar!", "a RAR archive"),
        (b"PAR1", "a Parquet file"),
        (b"ARROW1", "an Arrow file"),
        (b"\x89HDF", "an HDF5 file"),
        (b"\x93NUMPY", "a NumPy file"),
        (b"\xff\xd8\xff", "a JPEG image"),
        (b"\x89PNG", "a PNG image"),
        (b"%PDF", "a PDF document"),
        (b"<?xml", "an XML document: perhaps an error that a server sent"),
        (b"version https://git-lfs", "a Git LFS pointer: the file itself was never fetched"),
        (b"070701", "a cpio archive"),
    ];
    if let Some((_, what)) = signatures.iter().find(|(signature, _)| head.starts_with(signature)) {
        return Some(what);
    }
    let text = head.trim_ascii_start();
    let begins = |word: &[u8]| text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    match text {
        [] => None,
        _ if begins(b"<!doctype html") || begins(b"<html") => Some("an HTML page: perhaps an error that a server sent"),
        [b'{' | b'[', ..] if is_text(head) => Some("a JSON text: perhaps an error that a server sent"),
        _ if is_text(head) => Some("a text"),
        _ => None,
    }
}

fn is_text(head: &[u8]) -> bool {
    head.iter().all(|&byte| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_its_first_bytes() {
        let check = |head: &[u8], expected: Option<&str>| assert_eq!(describe(head), expected, "{head:?}");
        check(b"\x1f\x8b\x08\0", Some("gzip"));
        check(b"BZh91AY&SY", Some("bzip2"));
        check(b"BZh9.jpg\0\0", None);
        check(b"\xfd7zXZ\0\0", Some("xz"));
        check(b"\x28\xb5\x2f\xfd\0", Some("zstd"));
        check(b"\x5e\x2a\x4d\x18\0", Some("zstd"));
        check(b"PK\x03\x04\0", Some("a zip archive"));
        check(b"\n <!DOCTYPE HTML>", Some("an HTML page: perhaps an error that a server sent"));
        check(b"{\"error\": 404}", Some("a JSON text: perhaps an error that a server sent"));
        check(b"not found\n", Some("a text"));
        check(b"\0\0\0", None);
        check(b"", None);
        check(b"   \n", None);
    }
}
