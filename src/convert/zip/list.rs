//! The list at the end of a zip archive: where it is, and what an entry of it says.
//!
//! It reads no file of the archive; only lists are believed, and only what fits into the archive.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// One file of the archive, in 24 bytes. How many it has when packed is not kept: packed data say themselves where they end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    /// Where its local header begins.
    pub(super) header: u64,
    /// Its bytes when unpacked; [`u32::MAX`] stands for this and all above, which is not read.
    pub(super) size: u32,
    pub(super) crc: u32,
    /// Where its name begins in `names`, without the folder that all have in common, and how long it is.
    pub(super) name: u32,
    pub(super) name_bytes: u16,
    pub(super) method: Method,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Stored,
    Deflated,
    /// Encrypted, or a method that is not read.
    Other,
}

/// Bytes of the record that ends an archive, and of the comment that may follow it.
pub(super) const END_BYTES: usize = 22;
pub(super) const COMMENT_BYTES_MAX: usize = u16::MAX as usize;
/// One more than the largest number of files that this record can tell.
pub(super) const COUNT_WRAPS: u64 = 1 << 16;
/// Bytes of an entry in the list, and of a local header, before names.
pub(super) const ENTRY_BYTES: usize = 46;
pub(super) const LOCAL_BYTES: usize = 30;

/// Where the list of an archive's files is.
pub(super) struct List {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) count: u64,
    /// Whether the count is whole; otherwise it is the number of files modulo 65,536, as some writers leave it.
    pub(super) is_long: bool,
}

impl List {
    /// Finds the record at the end of the archive.
    pub(super) fn find(file: &File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        let tail_bytes = length.min((END_BYTES + COMMENT_BYTES_MAX) as u64);
        let mut tail = vec![0; tail_bytes as usize];
        file.read_exact_at(&mut tail, length - tail_bytes)?;
        let at = memchr::memmem::rfind_iter(&tail, b"PK\x05\x06")
            .find(|&at| {
                tail.len() >= at + END_BYTES && usize::from(u16_at(&tail, at + 20)) <= tail.len() - at - END_BYTES
            })
            .ok_or_else(|| invalid("it has no list of files at its end"))?;
        let end = &tail[at..at + END_BYTES];
        let short = Self {
            count: u16_at(end, 10).into(),
            bytes: u32_at(end, 12).into(),
            offset: u32_at(end, 16).into(),
            is_long: false,
        };
        let is_long = short.count == u64::from(u16::MAX) || short.bytes.max(short.offset) == u64::from(u32::MAX);
        let list = match is_long.then(|| Self::find_long(file, length - tail_bytes + at as u64)) {
            Some(Ok(Some(long))) => long,
            Some(Err(error)) => return Err(error),
            _ if u16_at(end, 4) != u16_at(end, 6) => return Err(invalid("it comes in several pieces")),
            _ => short,
        };
        let fits = list.offset.checked_add(list.bytes).is_some_and(|end| end <= length);
        if !fits || list.count > list.bytes / ENTRY_BYTES as u64 {
            return Err(invalid("its list of files does not fit into it"));
        }
        Ok(list)
    }

    /// The record of an archive beyond 4 GiB or 65,535 files, which the locator before the ordinary record points to.
    fn find_long(file: &File, end: u64) -> io::Result<Option<Self>> {
        let mut locator = [0; 20];
        let Some(at) = end.checked_sub(20) else { return Ok(None) };
        file.read_exact_at(&mut locator, at)?;
        if locator[..4] != *b"PK\x06\x07" {
            return Ok(None);
        }
        let mut record = [0; 56];
        file.read_exact_at(&mut record, u64_at(&locator, 8))?;
        if record[..4] != *b"PK\x06\x06" {
            return Err(invalid("the record of a large archive is not where it should be"));
        }
        Ok(Some(Self {
            count: u64_at(&record, 32),
            bytes: u64_at(&record, 40),
            offset: u64_at(&record, 48),
            is_long: true,
        }))
    }
}

/// An entry of the list; what does not fit its fields of 32 bits stands in the extra field 1.
pub(super) fn entry_of(head: &[u8; ENTRY_BYTES], mut extra: &[u8]) -> io::Result<Entry> {
    let (flags, method) = (u16_at(head, 8), u16_at(head, 10));
    let (mut size, mut packed, mut header) =
        (u32_at(head, 24).into(), u32_at(head, 20).into(), u32_at(head, 42).into());
    while extra.len() >= 4 {
        let (kind, length) = (u16_at(extra, 0), usize::from(u16_at(extra, 2)));
        let Some(mut body) = extra.get(4..4 + length) else { break };
        extra = &extra[4 + length..];
        if kind != 1 {
            continue;
        }
        for field in [&mut size, &mut packed, &mut header] {
            if *field == u64::from(u32::MAX) {
                let (value, rest) =
                    body.split_first_chunk().ok_or_else(|| invalid("a large file without its sizes"))?;
                *field = u64::from_le_bytes(*value);
                body = rest;
            }
        }
    }
    Ok(Entry {
        header,
        size: u32::try_from(size).unwrap_or(u32::MAX),
        crc: u32_at(head, 16),
        name: 0,
        name_bytes: u16_at(head, 28),
        method: match (flags & 1, method) {
            (0, 0) => Method::Stored,
            (0, 8) => Method::Deflated,
            _ => Method::Other,
        },
    })
}

/// Little-endian numbers at a place that the caller has checked.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

pub(super) fn invalid(message: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}
