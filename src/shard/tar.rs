//! The walk along an archive's headers: ustar, PAX and GNU, strict or going on behind damage.
//!
//! It does no I/O and never looks at member data: it asks a window for headers, and jumps.

pub(in crate::shard) mod header;
mod extension;
mod pax;
mod report;
mod resync;
pub(in crate::shard) mod window;

use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result};
use crate::shard::{Damage, Member, MemberKind, sniff};

pub use report::{Loss, ScanReport};

use extension::Extension;
use header::{BLOCK, Block, NumberError, Role};
use window::Window;

/// A member as the scanner found it; its name is in [`Scanner::name`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) header_offset: u64,
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) kind: MemberKind,
}

impl Found {
    pub(super) fn into_member(self, name: Bytes) -> Member {
        let Self { header_offset, offset, size, kind } = self;
        Member { name, header_offset, offset, size, kind }
    }
}

/// Walks along the headers of one archive.
#[derive(Debug)]
pub(super) struct Scanner {
    damage: Damage,
    /// Where the next header is expected.
    offset: u64,
    /// Where the data of the last member end, without padding.
    data_end: u64,
    /// Zero blocks met since the last header.
    zeros: u64,
    /// Whether any valid header was met: what has none is no archive.
    any_header: bool,
    done: bool,
    doubt: Doubt,
    name: Vec<u8>,
    next: Extension,
    global: Extension,
    report: ScanReport,
}

/// Why a step did not get to a member.
enum Stop {
    /// The window failed: nothing to go on with.
    Window(Error),
    /// The archive is damaged; a search for the next header may begin at `from`.
    Damage { error: Error, from: u64 },
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Window(error)
    }
}

/// Where a step led to.
enum Step {
    On,
    Member(Found),
    End,
}

impl Scanner {
    pub(super) fn new(damage: Damage) -> Self {
        Self {
            damage,
            offset: 0,
            data_end: 0,
            zeros: 0,
            any_header: false,
            done: false,
            doubt: Doubt::None,
            name: Vec::new(),
            next: Extension::default(),
            global: Extension::default(),
            report: ScanReport::default(),
        }
    }

    /// The next member, or `None` behind the last one and after an error.
    pub(super) fn next(&mut self, window: &mut impl Window) -> Result<Option<Found>> {
        while !self.done {
            let stop = match self.step(window) {
                Ok(Step::On) => continue,
                Ok(Step::Member(found)) => return Ok(Some(found)),
                Ok(Step::End) => {
                    self.done = true;
                    break;
                }
                Err(stop) => stop,
            };
            let gone_on = match stop {
                Stop::Damage { error, from } if self.damage == Damage::Resync => self.resync(window, error, from),
                Stop::Damage { error, .. } | Stop::Window(error) => Err(error),
            };
            self.done = !matches!(gone_on, Ok(true));
            gone_on?;
        }
        Ok(None)
    }

    /// Takes back the member found last: its data, which only a reader of a stream sees, end early.
    pub(super) fn cut(&mut self, window: &mut impl Window, found: Found) -> Result<()> {
        self.report.uncount(found.kind);
        let left = window.len().map_or(0, |len| len.saturating_sub(found.offset));
        let error = cut(&self.name, found.size, left).at_offset(found.header_offset);
        self.done = true;
        if self.damage == Damage::Strict {
            return Err(error);
        }
        self.offset = found.header_offset;
        self.done = !self.resync(window, error, found.offset)?;
        Ok(())
    }

    /// The name of the member found last.
    pub(super) fn name(&self) -> &[u8] {
        &self.name
    }

    pub(super) fn report(&self) -> &ScanReport {
        &self.report
    }

    pub(super) fn into_report(self) -> ScanReport {
        self.report
    }

    /// Looks at one block and at what belongs to it.
    fn step(&mut self, window: &mut impl Window) -> Result<Step, Stop> {
        let at = self.offset;
        let bytes = window.bytes(at, BLOCK)?;
        let like = if self.any_header { None } else { sniff::describe(bytes) };
        let Ok(block) = <&[u8; BLOCK]>::try_from(bytes) else {
            let rest = bytes.len() as u64;
            let end = window.len().unwrap_or(at.saturating_add(rest));
            return self.end_of_bytes(rest, end, like);
        };
        match Block::of(block) {
            Block::Zero => self.zero_block(at),
            Block::Garbage => self.garbage(window, at, like),
            Block::Header(header) => {
                self.any_header = true;
                self.leave_zeros(at);
                let role = header.role();
                if let Role::Sparse | Role::Member(_) = role {
                    self.name.clear();
                    header.push_name(&mut self.name);
                }
                let head = Head {
                    at,
                    size: header.size(),
                    is_old_file: header.is_old_file(),
                    name_is_full: header.name_is_full(),
                    sparse_map_goes_on: role == Role::Sparse && header.sparse_map_goes_on(),
                };
                if let Role::Pax | Role::LongName | Role::LongLink = role {
                    self.next.start.get_or_insert(at);
                }
                let read = match role {
                    Role::Pax => self.next.read_pax(window, head),
                    Role::PaxGlobal => self.global.read_pax(window, head),
                    Role::LongName => self.next.read_long_name(window, head),
                    Role::LongLink => extension::pass_over(window, head),
                    Role::Sparse => return self.member(window, head, MemberKind::Other(b'S')),
                    Role::Member(kind) => return self.member(window, head, kind),
                };
                self.extended(head, read)
            }
        }
    }

    /// A zero block ends the archive; what follows may be another one.
    fn zero_block(&mut self, at: u64) -> Result<Step, Stop> {
        if let Some(start) = self.next.start {
            let message = "the archive ends behind an extended header, without the member it belongs to";
            return Err(damage(ErrorKind::BadHeader, message, start, at));
        }
        self.zeros += 1;
        self.offset = at + BLOCK as u64;
        Ok(Step::On)
    }

    /// A header behind zero blocks: two of them ended an archive, a single one ended nothing.
    fn leave_zeros(&mut self, at: u64) {
        self.note_zeros(at);
        match std::mem::take(&mut self.zeros) {
            0 => {}
            1 => self.report.zero_blocks += 1,
            _ => {
                self.report.archives_more += 1;
                self.global.clear();
            }
        }
    }

    fn note_zeros(&mut self, end: u64) {
        let bytes = self.zeros * BLOCK as u64;
        self.report.note_zeros(end - bytes, bytes);
    }

    /// A block that is neither a header nor zero.
    fn garbage(&mut self, window: &mut impl Window, at: u64, like: Option<&str>) -> Result<Step, Stop> {
        if !self.any_header {
            return Err(damage(ErrorKind::NotTar, not_tar("its first block is no header", like), at, at));
        }
        if self.zeros == 0 {
            let message = "expected the header of a member, got bytes that are none";
            return Err(damage(ErrorKind::BadHeader, message, at, at));
        }
        // Behind the end anything may stand, but not if members come after it: then a header is damaged.
        let search = resync::find_header(window, at)?;
        if let Some(header) = search.header {
            let message = format!("behind zero blocks, bytes that are no header, though one follows at byte {header}");
            return Err(damage(ErrorKind::BadHeader, message, at, at));
        }
        self.report.trailing_bytes += search.end - at;
        self.note_zeros(at);
        self.count_lone_end();
        Ok(Step::End)
    }

    /// Less than a block is left: the archive has ended, well or not.
    fn end_of_bytes(&mut self, rest: u64, end: u64, like: Option<&str>) -> Result<Step, Stop> {
        let at = self.offset;
        if end < self.data_end {
            let message = format!("{} is cut: its data end {} bytes early", shown(&self.name), self.data_end - end);
            return Err(damage(ErrorKind::Truncated, message, end, end));
        }
        if self.zeros > 0 {
            self.report.trailing_bytes += rest;
            self.note_zeros(at);
            self.count_lone_end();
            return Ok(Step::End);
        }
        if !self.any_header {
            let why = match end {
                0 => "the file is empty".to_owned(),
                _ => format!("{end} bytes are less than one header of {BLOCK}"),
            };
            return Err(damage(ErrorKind::NotTar, not_tar(&why, like), 0, end));
        }
        self.report.missing_end = true;
        let (message, place) = match self.next.start {
            Some(start) => ("the archive is cut behind an extended header", start),
            None if rest > 0 => ("the archive is cut inside a header", at),
            None => ("the archive is cut: its end blocks are missing, and perhaps members", end.min(at)),
        };
        Err(damage(ErrorKind::Truncated, message, place, end.min(at)))
    }

    /// Counts an archive's end that has one zero block instead of two.
    fn count_lone_end(&mut self) {
        self.report.zero_blocks += u64::from(self.zeros == 1);
    }

    /// Moves behind an extended header, of which `read` bytes were read.
    fn extended(&mut self, head: Head, read: Result<u64, Stop>) -> Result<Step, Stop> {
        if read.is_err() {
            self.doubt = Doubt::Member;
        }
        self.offset = block_end(head.data_offset(), read?)?;
        Ok(Step::On)
    }

    /// A member: what its header says, overruled by the extended headers before it.
    fn member(&mut self, window: &mut impl Window, head: Head, kind: MemberKind) -> Result<Step, Stop> {
        for path in [&self.next.path, &self.next.long_name, &self.global.path] {
            if !path.is_empty() {
                replace(&mut self.name, path);
                break;
            }
        }
        // By its whole name: a long one that is cut to fit the header may end in a slash too.
        let is_old_dir = head.is_old_file && self.name.ends_with(b"/");
        let kind = if is_old_dir { MemberKind::Dir } else { kind };
        let data_offset = head.data_offset();
        let header_offset = self.next.start.unwrap_or(head.at);
        let field = head.size.map_err(|error| {
            let message = format!("the size of {} {}", shown(&self.name), error.as_str());
            damage(ErrorKind::BadHeader, message, head.at, data_offset)
        })?;
        let pax_size = self.next.size.or(self.global.size);
        let size = match kind {
            // A link may carry data by POSIX, but writers that note a size and store none are more common.
            MemberKind::HardLink => self.next.size.unwrap_or(0),
            MemberKind::Dir | MemberKind::Symlink | MemberKind::Other(b'3' | b'4' | b'6') => 0,
            MemberKind::File | MemberKind::Other(_) => pax_size.unwrap_or(field),
        };
        let sparse = kind == MemberKind::Other(b'S') || self.next.sparse || self.global.sparse;
        if sparse && self.damage == Damage::Strict {
            let message = format!("{} is stored sparse, which is not read", shown(&self.name));
            let error = Error::new(ErrorKind::Unsupported, message).at_offset(header_offset);
            let error = error.with_hint("write the archive again without --sparse");
            return Err(Stop::Damage { error, from: data_offset });
        }
        let offset = sparse_map_end(window, data_offset, head.sparse_map_goes_on)?;
        let end = offset.checked_add(size).filter(|&end| window.len().is_none_or(|len| end <= len));
        let Some(end) = end else {
            let left = window.len().map_or(0, |len| len.saturating_sub(offset));
            let error = cut(&self.name, size, left).at_offset(header_offset);
            return Err(Stop::Damage { error, from: offset });
        };
        if self.doubt.take().concerns(self.next.start, head) {
            let message = format!("{} has lost its extended header", shown(&self.name));
            return Err(damage(ErrorKind::BadHeader, message, header_offset, block_end(offset, size)?));
        }
        self.next.clear();
        self.data_end = end;
        self.offset = block_end(offset, size)?;
        if sparse {
            self.report.pass_over_sparse(header_offset, self.offset - header_offset);
            return Ok(Step::On);
        }
        self.report.count(kind);
        Ok(Step::Member(Found { header_offset, offset, size, kind }))
    }

    /// Goes on at the next valid header behind `from`; `false` when there is none.
    fn resync(&mut self, window: &mut impl Window, error: Error, from: u64) -> Result<bool> {
        let lost_from = self.next.start.unwrap_or(self.offset);
        let search = resync::find_header(window, from)?;
        if search.header.is_none() && !self.any_header {
            return Err(error);
        }
        let lost_to = search.header.unwrap_or(search.content_end);
        if lost_to > lost_from {
            self.report.lose(lost_from, lost_to - lost_from);
        }
        self.next.clear();
        if search.behind_pax {
            self.doubt = Doubt::Member;
        } else if self.doubt == Doubt::None {
            self.doubt = Doubt::Name;
        }
        match search.header {
            Some(header) => {
                self.offset = header;
                self.data_end = header;
            }
            None => self.report.missing_end |= search.end.saturating_sub(search.content_end) < BLOCK as u64,
        }
        Ok(search.header.is_some())
    }
}

/// What a header itself says, but for the name.
#[derive(Clone, Copy)]
struct Head {
    at: u64,
    size: Result<u64, NumberError>,
    is_old_file: bool,
    name_is_full: bool,
    sparse_map_goes_on: bool,
}

impl Head {
    fn data_offset(&self) -> u64 {
        // A whole block was read at `at`, so this is no more than the archive's length.
        self.at + BLOCK as u64
    }
}

/// How far the next member is to be trusted behind damage, which may have hit an extended header of its.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Doubt {
    #[default]
    None,
    /// Its name, if it fills its field: a longer one may be lost.
    Name,
    /// All of it.
    Member,
}

impl Doubt {
    fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Whether a member must be given up; extended headers that were read since the damage make it good.
    fn concerns(self, extension_start: Option<u64>, head: Head) -> bool {
        extension_start.is_none() && (self == Self::Member || self == Self::Name && head.name_is_full)
    }
}

/// The end of the blocks that hold the rest of a sparse map, if there are any.
fn sparse_map_end(window: &mut impl Window, data_offset: u64, mut goes_on: bool) -> Result<u64, Stop> {
    let mut end = data_offset;
    while goes_on {
        let block = window.bytes(end, BLOCK)?;
        end += block.len() as u64;
        // The byte behind 21 entries of 24 bytes says whether another block follows.
        goes_on = block.get(504).is_some_and(|&byte| byte != 0);
    }
    Ok(end)
}

/// The first block behind `size` bytes of data at `offset`.
fn block_end(offset: u64, size: u64) -> Result<u64, Stop> {
    let padded = size.checked_next_multiple_of(BLOCK as u64).and_then(|padded| offset.checked_add(padded));
    padded.ok_or_else(|| damage(ErrorKind::Truncated, "a member ends beyond any file's end", offset, offset))
}

fn damage(kind: ErrorKind, message: impl Into<String>, place: u64, from: u64) -> Stop {
    Stop::Damage { error: Error::new(kind, message).at_offset(place), from }
}

fn cut(name: &[u8], size: u64, left: u64) -> Error {
    let message = format!("{} is cut: expected {size} bytes of data, {left} are left", shown(name));
    Error::new(ErrorKind::Truncated, message)
}

fn not_tar(why: &str, like: Option<&str>) -> String {
    match like {
        Some(like) => format!("not a tar archive: {why}, it looks like {like}"),
        None => format!("not a tar archive: {why}"),
    }
}

/// A member's name as an error shows it: escaped, and not longer than a reader can bear.
pub(super) fn shown(name: &[u8]) -> String {
    const BYTES_MAX: usize = 200;
    let (start, more) = match name.get(..BYTES_MAX) {
        Some(start) => (start, "…"),
        None => (name, ""),
    };
    format!("member '{}{more}'", String::from_utf8_lossy(start).escape_debug())
}

fn replace(buffer: &mut Vec<u8>, bytes: &[u8]) {
    buffer.clear();
    buffer.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests;
