//! The header blocks that stand before a member's data in the shards that we write.
//!
//! It writes the two dialects that data sets have, ustar and PAX; it reads none.

use tar::{EntryType, Header};

/// The size of a tar archive's unit.
pub(super) const BLOCK_BYTES: u64 = 512;

/// What stands before each member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Headers {
    /// One ustar block; a PAX header before it only for what ustar cannot say: long names, 8 GiB and more.
    #[default]
    Plain,
    /// A PAX header with the modification time before each member: 1 KiB more for each, as webdataset's own writer
    /// makes them because its times have fractions.
    Pax,
}

/// A regular file about to be written.
pub(super) struct MemberHead<'a> {
    pub(super) name: &'a str,
    pub(super) size: u64,
    /// Seconds since 1970.
    pub(super) mtime: u64,
}

impl MemberHead<'_> {
    /// The header blocks, a multiple of [`BLOCK_BYTES`].
    pub(super) fn blocks(&self, headers: Headers) -> Vec<u8> {
        let split = split_name(self.name.as_bytes());
        let mut records = Vec::new();
        if headers == Headers::Pax {
            push_record(&mut records, "mtime", &format!("{}.0", self.mtime));
        } else if self.mtime > OCTAL_MAX {
            push_record(&mut records, "mtime", &self.mtime.to_string());
        }
        if split.is_none() {
            push_record(&mut records, "path", self.name);
        }
        if self.size > OCTAL_MAX {
            push_record(&mut records, "size", &self.size.to_string());
        }

        let mut blocks = Vec::new();
        if !records.is_empty() {
            let block = ustar(EntryType::XHeader, (b"", b"././@PaxHeader"), records.len() as u64, 0);
            blocks.extend_from_slice(block.as_bytes());
            blocks.extend_from_slice(&records);
            blocks.resize(blocks.len().next_multiple_of(BLOCK_BYTES as usize), 0);
        }
        // A reader that knows no PAX gets the start of a long name and no data rather than a wrong size.
        let (prefix, name) = split.unwrap_or_else(|| (b"", first(self.name.as_bytes(), NAME_BYTES)));
        let fitting = |number: u64| if number > OCTAL_MAX { 0 } else { number };
        let block = ustar(EntryType::Regular, (prefix, name), fitting(self.size), fitting(self.mtime));
        blocks.extend_from_slice(block.as_bytes());
        blocks
    }
}

/// The largest number in a field of 12 bytes: 11 octal digits.
const OCTAL_MAX: u64 = (1 << 33) - 1;
const NAME_BYTES: usize = 100;
const PREFIX_BYTES: usize = 155;

/// A name as ustar's two fields, prefix and name; `None` when it does not fit.
fn split_name(name: &[u8]) -> Option<(&[u8], &[u8])> {
    if name.len() <= NAME_BYTES {
        return Some((b"", name));
    }
    // The slash between the two is not stored. An empty prefix would lose the slash at the start of a name.
    let slashes = memchr::memchr_iter(b'/', name);
    slashes
        .map(|at| (&name[..at], &name[at + 1..]))
        .find(|(prefix, rest)| !prefix.is_empty() && !rest.is_empty() && rest.len() <= NAME_BYTES)
        .filter(|(prefix, _)| prefix.len() <= PREFIX_BYTES)
}

fn first(bytes: &[u8], count: usize) -> &[u8] {
    &bytes[..bytes.len().min(count)]
}

fn ustar(kind: EntryType, (prefix, name): (&[u8], &[u8]), size: u64, mtime: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(0o444);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(size);
    header.set_mtime(mtime);
    if let Some(fields) = header.as_ustar_mut() {
        // Set as bytes: the crate's own way would refuse or rewrite names such as `./a` and `../a`.
        fields.prefix[..prefix.len()].copy_from_slice(prefix);
        fields.name[..name.len()].copy_from_slice(name);
        fields.uname[..OWNER.len()].copy_from_slice(OWNER);
        fields.gname[..OWNER.len()].copy_from_slice(OWNER);
    }
    header.set_cksum();
    header
}

/// The user and group that webdataset's writer puts into shards: no one's real name.
const OWNER: &[u8] = b"bigdata";

/// Adds a PAX record: its own length in digits, a space, `key=value`, a line feed.
fn push_record(records: &mut Vec<u8>, key: &str, value: &str) {
    let rest = key.len() + value.len() + 3;
    let mut len = rest + 1;
    // The length counts its own digits, so it may grow by one digit once.
    while rest + len.to_string().len() > len {
        len += 1;
    }
    records.extend_from_slice(format!("{len} {key}={value}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_its_own_length() {
        for len in [1, 5, 87, 88, 89, 90, 91, 985, 986, 987, 9_980] {
            let mut records = Vec::new();
            push_record(&mut records, "path", &"x".repeat(len));
            let text = String::from_utf8(records).unwrap();
            let (digits, _) = text.split_once(' ').unwrap();
            assert_eq!(digits.parse::<usize>().unwrap(), text.len(), "{len}");
        }
    }

    #[test]
    fn a_name_is_split_where_both_parts_fit() {
        let check = |name: String, expected: Option<(usize, usize)>| {
            let split = split_name(name.as_bytes());
            assert_eq!(split.map(|(prefix, rest)| (prefix.len(), rest.len())), expected, "{name}");
        };
        let x = |count: usize| "x".repeat(count);
        check(x(100), Some((0, 100)));
        check(x(101), None);
        check(format!("{}/{}", x(155), x(100)), Some((155, 100)));
        check(format!("{}/{}", x(156), x(100)), None);
        check(format!("{}/{}", x(155), x(101)), None);
        check(format!("/{}", x(100)), None);
        check(format!("a/{}/b", x(98)), Some((1, 100)));
        check(format!("{}/", x(120)), None);
    }
}
