//! The member table of one shard: names, offsets and sizes of its files, in order.
//!
//! It holds no bytes of members, groups nothing, and knows members that are no files only by their number.

use std::io::Write;

use serde::{Deserialize, Serialize};

use super::fingerprint::Fingerprint;
use super::tar::window::PageWindow;
use super::tar::{Found, ScanReport, Scanner, shown};
use super::{MemberKind, Shard};
use crate::error::{Error, ErrorKind, Result};

/// The files of one shard: 20 bytes each, and their names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardIndex {
    /// All names, one after the other.
    names: Vec<u8>,
    /// Where each name ends in `names`.
    name_ends: Vec<u32>,
    offsets: Vec<u64>,
    sizes: Vec<u64>,
    report: ScanReport,
}

/// A file of a [`ShardIndex`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexedMember<'a> {
    /// The name as stored: raw bytes, not necessarily UTF-8, not normalised.
    pub name: &'a [u8],
    /// Byte offset of the data.
    pub offset: u64,
    /// Size of the data in bytes.
    pub size: u64,
}

impl ShardIndex {
    /// Walks along the headers of `shard`.
    ///
    /// # Errors
    /// Any damage if the shard is read by strict rules, otherwise only what is no archive at all;
    /// [`ErrorKind::ShardChanged`] if the file changes meanwhile.
    pub fn build(shard: &Shard) -> Result<Self> {
        match Self::build_partial(shard) {
            (index, None) => Ok(index),
            (_, Some(error)) => Err(error),
        }
    }

    /// As [`build`](Self::build), with what is good before the error.
    #[must_use]
    pub fn build_partial(shard: &Shard) -> (Self, Option<Error>) {
        let mut window = PageWindow::new(shard.clone());
        let mut scanner = Scanner::new(shard.damage());
        let mut index = Self::default();
        let error = loop {
            match scanner.next(&mut window) {
                Ok(Some(found)) if found.kind != MemberKind::File => {}
                Ok(Some(found)) => {
                    if let Err(error) = index.push(scanner.name(), found) {
                        break Some(error);
                    }
                }
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        index.report = scanner.into_report();
        // A file that shrank looks as if it ended, one that was rewritten as if it were damaged.
        let error = shard.check().err().or(error).map(|error| error.in_shard(shard.name().clone()));
        (index, error)
    }

    fn push(&mut self, name: &[u8], found: Found) -> Result<()> {
        let end = u32::try_from(self.names.len() + name.len()).map_err(|_| {
            Error::new(ErrorKind::Limit, "the names of a shard's members take more than 4 GiB")
                .at_offset(found.header_offset)
                .with_hint("split the shard")
        })?;
        self.names.extend_from_slice(name);
        self.name_ends.push(end);
        self.offsets.push(found.offset);
        self.sizes.push(found.size);
        Ok(())
    }

    /// The number of files.
    #[must_use]
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Whether there are no files.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// The file number `i`, in the order of the archive.
    ///
    /// # Panics
    /// If `i` is not below [`len`](Self::len).
    #[must_use]
    pub fn member(&self, i: usize) -> IndexedMember<'_> {
        let start = if i == 0 { 0 } else { self.name_ends[i - 1] as usize };
        let name = &self.names[start..self.name_ends[i] as usize];
        IndexedMember { name, offset: self.offsets[i], size: self.sizes[i] }
    }

    /// The files in the order of the archive.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = IndexedMember<'_>> {
        (0..self.len()).map(|i| self.member(i))
    }

    /// What the walk met besides files.
    #[must_use]
    pub fn report(&self) -> &ScanReport {
        &self.report
    }

    /// How much memory the index takes, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.names.capacity()
            + self.name_ends.capacity() * size_of::<u32>()
            + (self.offsets.capacity() + self.sizes.capacity()) * size_of::<u64>()
    }

    /// A hash of all names, offsets and sizes in order; the same on every machine and in every later version, since
    /// saved states hold it.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut hash = Fingerprint::default();
        hash.word(self.len() as u64);
        for member in self.iter() {
            hash.bytes(member.name);
            hash.word(member.offset);
            hash.word(member.size);
        }
        hash.finish()
    }

    /// Whether the table fits together, so that one from a file cannot lead to a panic.
    pub(super) fn is_sound(&self) -> bool {
        let lengths = [self.name_ends.len(), self.sizes.len()];
        let last_end = self.name_ends.last().map_or(0, |&end| end as usize);
        lengths == [self.offsets.len(); 2]
            && self.name_ends.is_sorted()
            && last_end == self.names.len()
            && self.iter().all(|file| file.offset.checked_add(file.size).is_some())
    }

    /// Writes the index that DALI's WebDataset reader takes, version 1.2: samples by DALI's own rule, which joins
    /// neighbours with one key, and a line a sample of `EXTENSION OFFSET SIZE NAME` groups.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for names that such a file cannot hold: with white space, or not UTF-8; and for shards
    /// without a sample. [`ErrorKind::Io`] when it cannot be written.
    pub fn write_dali(&self, mut writer: impl Write) -> Result<()> {
        let cannot_write = |error| Error::io("cannot write the DALI index", error);
        let files: Vec<DaliFile<'_>> =
            self.iter().filter_map(|file| DaliFile::of(file).transpose()).collect::<Result<_>>()?;
        let samples = files.chunk_by(|a, b| a.key == b.key);
        match samples.clone().count() {
            0 => return Err(Error::new(ErrorKind::Unsupported, "a DALI index needs at least one sample, got none")),
            count => writeln!(writer, "v1.2 {count}").map_err(cannot_write)?,
        }
        for sample in samples {
            for (i, DaliFile { extension, name, offset, size, .. }) in sample.iter().enumerate() {
                let blank = if i == 0 { "" } else { " " };
                write!(writer, "{blank}{extension} {offset} {size} {name}").map_err(cannot_write)?;
            }
            writeln!(writer).map_err(cannot_write)?;
        }
        writer.flush().map_err(cannot_write)
    }
}

/// A file as a DALI index holds it.
struct DaliFile<'a> {
    key: &'a str,
    extension: &'a str,
    name: &'a str,
    offset: u64,
    size: u64,
}

impl<'a> DaliFile<'a> {
    /// `None` for names that have no key or no extension and so belong to no sample.
    fn of(file: IndexedMember<'a>) -> Result<Option<Self>> {
        let base = memchr::memrchr(b'/', file.name).map_or(0, |slash| slash + 1);
        let Some(dot) = memchr::memchr(b'.', &file.name[base..]).filter(|&dot| dot > 0) else { return Ok(None) };
        let name = std::str::from_utf8(file.name).ok().filter(|name| !name.contains(char::is_whitespace));
        let extension_start = base + dot + 1;
        let Some(name) = name.filter(|name| name.len() > extension_start) else {
            let message = format!("a DALI index cannot hold {}", shown(file.name));
            return Err(Error::new(ErrorKind::Unsupported, message)
                .with_hint("it must be UTF-8 without white space and have an extension"));
        };
        let (key, extension) = (&name[..base + dot], &name[extension_start..]);
        Ok(Some(Self { key, extension, name, offset: file.offset, size: file.size }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(names: &[&[u8]]) -> ShardIndex {
        let mut index = ShardIndex::default();
        for (i, name) in names.iter().enumerate() {
            let offset = 512 + 1024 * i as u64;
            let found = Found { header_offset: offset - 512, offset, size: 10 + i as u64, kind: MemberKind::File };
            index.push(name, found).unwrap();
        }
        index
    }

    fn dali(names: &[&[u8]]) -> Result<String> {
        let mut text = Vec::new();
        index(names).write_dali(&mut text)?;
        Ok(String::from_utf8(text).unwrap())
    }

    #[test]
    fn files_come_back_as_they_were_put_in() {
        let names: [&[u8]; 4] = [b"a.jpg", b"", b"caf\xe9.cls", b"b.jpg"];
        let index = index(&names);
        assert!(index.iter().map(|file| file.name).eq(names));
        assert_eq!(index.member(2), IndexedMember { name: b"caf\xe9.cls", offset: 2560, size: 12 });
        assert!(index.is_sound() && ShardIndex::default().is_sound());
    }

    #[test]
    fn a_fingerprint_sees_names_offsets_sizes_and_order() {
        let base = index(&[b"a.jpg", b"b.jpg"]);
        let mut others = vec![index(&[b"b.jpg", b"a.jpg"]), index(&[b"a.jpg"]), index(&[b"a.jp", b"gb.jpg"])];
        let mut other = base.clone();
        other.offsets[1] += 1;
        others.push(other.clone());
        other.sizes[1] += 1;
        others.push(other);
        let fingerprints: Vec<u64> = others.iter().map(ShardIndex::fingerprint).collect();
        assert!(!fingerprints.contains(&base.fingerprint()));
        assert_eq!(base.fingerprint(), base.clone().fingerprint());
    }

    #[test]
    fn a_dali_index_has_a_line_a_sample() {
        let check = |names: &[&[u8]], expected: &str| assert_eq!(dali(names).unwrap(), expected);
        check(&[b"a.jpg"], "v1.2 1\njpg 512 10 a.jpg\n");
        check(
            &[b"d/a.jpg", b"d/a.left.JPG", b"nodot", b"d/.hidden", b".x.jpg", b"b.jpg", b"d/a.jpg"],
            "v1.2 3\njpg 512 10 d/a.jpg left.JPG 1536 11 d/a.left.JPG\njpg 5632 15 b.jpg\njpg 6656 16 d/a.jpg\n",
        );
        for names in [&[&b"a b.jpg"[..]][..], &[b"a.j\npg"], &[b"caf\xe9.jpg"], &[b"a."], &[], &[b"nodot"]] {
            assert_eq!(dali(names).unwrap_err().kind(), ErrorKind::Unsupported, "{names:?}");
        }
    }
}
