//! A zip archive of pictures as a source: its folders are classes, as in an image folder. Stored and deflated files are read,
//! each by itself; the archive is never unpacked.
//!
//! Only the list at the end of an archive is believed; of encrypted files, other methods and archives in several pieces it says
//! so and reads nothing.

mod list;

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use twox_hash::XxHash3_128;

use list::{COUNT_WRAPS, ENTRY_BYTES, Entry, LOCAL_BYTES, List, Method, entry_of, invalid, u16_at};

use super::extension::{extension_of, is_picture_file, split_extension};
use super::folder::FILE_BYTES_MAX;
use super::place::Place;
use super::sample::Fields;
use super::source::Source;
use crate::error::{Error, ErrorKind, Result};

/// The pictures of a zip archive.
pub(super) struct Zip {
    path: PathBuf,
    file: File,
    classes: Vec<String>,
    /// The number of each class's first file.
    class_starts: Vec<usize>,
    /// All names, one after the other, as the archive has them.
    names: Vec<u8>,
    entries: Vec<Entry>,
    notes: Vec<String>,
}

impl Zip {
    /// Lists the pictures of the archive at `path`.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when it cannot be read, [`ErrorKind::Decode`] when it is damaged or no zip archive,
    /// [`ErrorKind::NotFound`] where there is no picture.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
                Error::new(ErrorKind::Decode, format!("'{}' is damaged or no zip archive", path.display()))
                    .with_source(error)
            }
            _ => Error::io(format!("cannot read '{}'", path.display()), error),
        };
        let file = File::open(path).map_err(failed)?;
        let list = List::find(&file).map_err(failed)?;
        let mut zip = Self {
            path: path.to_owned(),
            file,
            classes: Vec::new(),
            class_starts: Vec::new(),
            names: Vec::new(),
            entries: Vec::new(),
            notes: Vec::new(),
        };
        zip.read_list(list).map_err(failed)?;
        if zip.entries.is_empty() {
            return Err(Error::new(ErrorKind::NotFound, format!("no pictures in '{}'", path.display())));
        }
        zip.sort_into_classes();
        Ok(zip)
    }

    fn read_list(&mut self, list: List) -> io::Result<()> {
        let mut reader =
            BufReader::with_capacity(256 << 10, Place { file: &self.file, at: list.offset }.take(list.bytes));
        let (mut others, mut hidden) = (0, 0);
        let mut text = Vec::new();
        let (mut count, mut left) = (0_u64, list.bytes);
        // To the list's end and not to its count, which is too short a number for large archives.
        while left > 0 {
            let mut head = [0; ENTRY_BYTES];
            reader.read_exact(&mut head)?;
            if head[..4] != *b"PK\x01\x02" {
                return Err(invalid("an entry of its list has no signature"));
            }
            let lengths = [28, 30, 32].map(|at| usize::from(u16_at(&head, at)));
            text.resize(lengths.iter().sum(), 0);
            reader.read_exact(&mut text)?;
            left = left.saturating_sub((ENTRY_BYTES + text.len()) as u64);
            count += 1;
            let (name, rest) = text.split_at(lengths[0]);
            let base = name.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
            if base.is_empty() {
                continue;
            }
            if base.starts_with(b".") || name.starts_with(b"__MACOSX/") {
                hidden += 1;
                continue;
            }
            if !is_picture_file(base) {
                others += 1;
                continue;
            }
            let mut entry = entry_of(&head, &rest[..lengths[1]])?;
            entry.name = u32::try_from(self.names.len()).map_err(|_| invalid("its names take more than 4 GiB"))?;
            self.names.extend_from_slice(name);
            self.entries.push(entry);
        }
        let is_count = match list.is_long {
            true => count == list.count,
            false => count % COUNT_WRAPS == list.count,
        };
        if !is_count {
            return Err(invalid("its list has another number of files than it says"));
        }
        let path = self.path.display();
        if others > 0 {
            self.notes.push(format!("{others} files in '{path}' are no pictures by their names and are left out"));
        }
        if hidden > 0 {
            self.notes.push(format!("{hidden} hidden files in '{path}' are left out"));
        }
        Ok(())
    }

    /// Takes away what all names have in common, orders the rest as an image folder is ordered, and numbers the classes.
    fn sort_into_classes(&mut self) {
        let common = self.common_bytes();
        self.entries.iter_mut().for_each(|entry| {
            entry.name += common as u32;
            entry.name_bytes -= common as u16;
        });
        let names = &self.names;
        let parts_of = |entry: &Entry| {
            let name = name_in(names, entry);
            let slash = memchr::memrchr(b'/', name);
            (class_of(name), slash.map(|end| &name[..end]), &name[slash.map_or(0, |end| end + 1)..])
        };
        self.entries.sort_unstable_by(|a, b| parts_of(a).cmp(&parts_of(b)).then(a.header.cmp(&b.header)));
        let loose = self.entries.partition_point(|entry| parts_of(entry).0.is_none());
        if loose == self.entries.len() {
            return;
        }
        if loose > 0 {
            self.notes.push(format!(
                "{loose} pictures in no folder of '{}' have no class and are left out",
                self.path.display()
            ));
            self.entries.drain(..loose);
        }
        let mut last: Option<&[u8]> = None;
        for (number, entry) in self.entries.iter().enumerate() {
            let class = parts_of(entry).0.unwrap_or_default();
            if last != Some(class) {
                self.classes.push(String::from_utf8_lossy(class).into_owned());
                self.class_starts.push(number);
                last = Some(class);
            }
        }
    }

    /// How much all names have in common: whole folders that have one below them everywhere. What leads up or nowhere is
    /// none, so that whoever looks at the names sees it.
    fn common_bytes(&self) -> usize {
        let Some(first) = self.entries.first().map(|entry| name_in(&self.names, entry)) else { return 0 };
        let mut common = 0;
        while let Some(length) = memchr::memchr(b'/', &first[common..]) {
            if matches!(&first[common..common + length], b"" | b"." | b"..") {
                break;
            }
            let end = common + length + 1;
            let is_common = |entry: &Entry| {
                name_in(&self.names, entry).strip_prefix(&first[..end]).is_some_and(|rest| rest.contains(&b'/'))
            };
            if !self.entries.iter().all(is_common) {
                break;
            }
            common = end;
        }
        common
    }

    fn name_of(&self, sample: usize) -> &[u8] {
        name_in(&self.names, &self.entries[sample])
    }

    /// The number of the class of a sample, where there are classes.
    fn class(&self, sample: usize) -> Option<usize> {
        self.class_starts.partition_point(|&start| start <= sample).checked_sub(1)
    }

    fn read_entry(&self, entry: &Entry, bytes: &mut Vec<u8>) -> io::Result<()> {
        let mut head = [0; LOCAL_BYTES];
        self.file.read_exact_at(&mut head, entry.header)?;
        if head[..4] != *b"PK\x03\x04" {
            return Err(invalid("its local header has no signature"));
        }
        let start = entry.header + (LOCAL_BYTES as u64) + u64::from(u16_at(&head, 26)) + u64::from(u16_at(&head, 28));
        let packed = Place { file: &self.file, at: start };
        let size = u64::from(entry.size);
        match entry.method {
            Method::Stored => packed.take(size).read_to_end(bytes)?,
            Method::Deflated => {
                // One byte more than there should be tells of a file that goes on.
                flate2::bufread::DeflateDecoder::new(BufReader::new(packed)).take(size + 1).read_to_end(bytes)?
            }
            Method::Other => {
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "it is encrypted or packed by a method other than deflate",
                ));
            }
        };
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        if bytes.len() as u64 != size || crc.sum() != entry.crc {
            return Err(invalid("its bytes are not those that the archive's list says"));
        }
        Ok(())
    }
}

impl Source for Zip {
    fn len(&self) -> usize {
        self.entries.len()
    }

    fn name(&self, sample: usize, name: &mut Vec<u8>) {
        let full = self.name_of(sample);
        let base = memchr::memrchr(b'/', full).map_or(0, |slash| slash + 1);
        name.extend_from_slice(&full[..base]);
        name.extend_from_slice(split_extension(&full[base..]).0);
    }

    fn origin(&self, sample: usize) -> String {
        format!("{}: {}", self.path.display(), String::from_utf8_lossy(self.name_of(sample)))
    }

    fn sizes(&self, sample: usize, tell: &mut dyn FnMut(&str, u64)) {
        let entry = &self.entries[sample];
        if let Some(class) = self.class(sample) {
            tell("cls", class.to_string().len() as u64);
        }
        tell(&extension_of(self.name_of(sample)), entry.size.into());
    }

    fn read(&self, sample: usize, fields: &mut Fields) -> Result<()> {
        let entry = &self.entries[sample];
        let origin = || self.origin(sample);
        if u64::from(entry.size) > FILE_BYTES_MAX {
            let message = format!("'{}' has more than the {FILE_BYTES_MAX} bytes allowed", origin());
            return Err(Error::new(ErrorKind::Limit, message));
        }
        let mut bytes = fields.buffer();
        self.read_entry(entry, &mut bytes).map_err(|error| match error.kind() {
            io::ErrorKind::Unsupported => {
                Error::new(ErrorKind::Unsupported, format!("cannot read '{}': {error}", origin()))
            }
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof => {
                Error::new(ErrorKind::Decode, format!("'{}' is damaged", origin())).with_source(error)
            }
            _ => Error::io(format!("cannot read '{}'", origin()), error),
        })?;
        fields.push(&extension_of(self.name_of(sample)), bytes);
        if let Some(class) = self.class(sample) {
            let mut label = fields.buffer();
            label.extend_from_slice(class.to_string().as_bytes());
            fields.push("cls", label);
        }
        Ok(())
    }

    fn fingerprint(&self) -> u128 {
        let mut hash = XxHash3_128::new();
        for (sample, entry) in self.entries.iter().enumerate() {
            hash.write(self.name_of(sample));
            hash.write(&entry.size.to_le_bytes());
            hash.write(&entry.crc.to_le_bytes());
        }
        hash.finish_128()
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// The name of an entry.
fn name_in<'a>(names: &'a [u8], entry: &Entry) -> &'a [u8] {
    &names[entry.name as usize..][..usize::from(entry.name_bytes)]
}

/// The folder of a name that is its class. What stands before one in a name that leads up or nowhere is none.
fn class_of(name: &[u8]) -> Option<&[u8]> {
    let mut rest = name;
    while let Some(end) = memchr::memchr(b'/', rest) {
        if !matches!(&rest[..end], b"" | b"." | b"..") {
            return Some(&rest[..end]);
        }
        rest = &rest[end + 1..];
    }
    None
}
