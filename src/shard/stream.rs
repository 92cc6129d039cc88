//! A shard read from its start to its end, for where there is no random access: pipes, compressed files.
//!
//! It never goes back and holds one member at a time; it gives no index and no length.

use std::fmt;
use std::io::{self, Read};
use std::iter::FusedIterator;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::compressed::TarReader;
use super::identity::{open_at_once, refuse_folder};
use super::members::share;
use super::pipe::PipeReader;
use super::tar::window::Window;
use super::tar::{Found, ScanReport, Scanner, shown};
use super::{Member, MemberKind, ShardOptions};
use crate::error::{Error, ErrorKind, Result};

/// How many bytes are read, and how much a buffer grows, at a time.
const READ_BYTES: usize = 64 << 10;

/// How much is allocated for a member at once, however large it says it is.
const TAKE_BYTES: u64 = 1 << 20;

/// The members of a shard with their data, read in order from any reader; gzip, bzip2, xz and Zstandard are noticed
/// by content. An error ends it.
pub struct ShardStream {
    name: Arc<str>,
    window: StreamWindow,
    scanner: Scanner,
    names: BytesMut,
    member_bytes_max: u64,
    failed: bool,
}

impl ShardStream {
    /// Opens the file, named pipe or device at `path`; a member may have up to `options.memory_limit_bytes` bytes.
    ///
    /// A pipe is waited for when its bytes are asked for, not here.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when there is nothing, [`ErrorKind::Unsupported`] for a folder, [`ErrorKind::Io`] when
    /// it cannot be opened.
    pub fn open(path: impl AsRef<Path>, options: &ShardOptions) -> Result<Self> {
        Self::open_while(path, options, || true)
    }

    /// As [`open`](Self::open), for as long as `is_wanted` says so: whoever waits for the bytes of a pipe asks it ten
    /// times a second, and gets an error of the kind [`ErrorKind::Cancelled`] when the answer is no. A file is read
    /// without asking.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_while(
        path: impl AsRef<Path>,
        options: &ShardOptions,
        is_wanted: impl Fn() -> bool + Send + 'static,
    ) -> Result<Self> {
        let path = path.as_ref();
        let name = path.to_string_lossy();
        let open = || {
            let cannot_open = |error| Error::io("cannot open the shard", error);
            let file = open_at_once(path).map_err(cannot_open)?;
            let metadata = file.metadata().map_err(cannot_open)?;
            refuse_folder(&metadata)?;
            Ok(match metadata.is_file() {
                true => Self::from_reader(&name, file, options),
                false => Self::from_reader(&name, PipeReader::new(file, is_wanted), options),
            })
        };
        open().map_err(|error: Error| error.in_shard(name.as_ref()))
    }

    /// Reads an archive from `reader`; `name` stands in for its path in errors.
    pub fn from_reader(name: &str, reader: impl Read + Send + 'static, options: &ShardOptions) -> Self {
        Self {
            name: name.into(),
            window: StreamWindow::new(TarReader::new(reader)),
            scanner: Scanner::new(options.damage),
            names: BytesMut::new(),
            member_bytes_max: options.memory_limit_bytes,
            failed: false,
        }
    }

    /// The path as the user gave it.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// What was met so far besides good members; complete once the iterator has ended.
    #[must_use]
    pub fn report(&self) -> &ScanReport {
        self.scanner.report()
    }

    /// Whether an error ended it, so that nobody knows what would have come.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    fn next_member(&mut self) -> Result<Option<(Member, Bytes)>> {
        while let Some(found) = self.scanner.next(&mut self.window)? {
            if found.kind != MemberKind::File {
                return Ok(Some((self.member(found), Bytes::new())));
            }
            if found.size > self.member_bytes_max {
                let name = shown(self.scanner.name());
                let message =
                    format!("{name} holds {} bytes, more than the {} allowed", found.size, self.member_bytes_max);
                return Err(Error::new(ErrorKind::Limit, message).at_offset(found.header_offset));
            }
            if let Some(data) = self.window.take(found.offset, found.size)? {
                return Ok(Some((self.member(found), data)));
            }
            self.scanner.cut(&mut self.window, found)?;
        }
        Ok(None)
    }

    fn member(&mut self, found: Found) -> Member {
        found.into_member(share(&mut self.names, self.scanner.name()))
    }
}

impl Iterator for ShardStream {
    /// A member with its data, which are empty for all but regular files.
    type Item = Result<(Member, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.next_member().map_err(|error| error.in_shard(self.name.clone()));
        self.failed = next.is_err();
        next.transpose()
    }
}

impl FusedIterator for ShardStream {}

impl fmt::Debug for ShardStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardStream")
            .field("name", &self.name)
            .field("offset", &self.window.start)
            .finish_non_exhaustive()
    }
}

/// A window that only goes forward.
struct StreamWindow {
    reader: TarReader,
    /// Bytes of the archive at `have`, room elsewhere.
    buffer: Vec<u8>,
    have: Range<usize>,
    /// The offset in the archive of the first byte at hand.
    start: u64,
    ended: bool,
}

impl StreamWindow {
    fn new(reader: TarReader) -> Self {
        Self { reader, buffer: Vec::new(), have: 0..0, start: 0, ended: false }
    }

    /// The data of a member, or `None` when the archive ends inside them: then the window shows what there is of them.
    fn take(&mut self, offset: u64, size: u64) -> Result<Option<Bytes>> {
        self.forget_before(offset)?;
        let mut data = Vec::with_capacity(size.min(TAKE_BYTES) as usize);
        let at_hand = size.min(self.have.len() as u64) as usize;
        data.extend_from_slice(&self.buffer[self.have.start..self.have.start + at_hand]);
        self.have.start += at_hand;
        self.start += at_hand as u64;
        let missing = size - at_hand as u64;
        let read = self.reader.by_ref().take(missing).read_to_end(&mut data);
        self.start += read.map_err(|error| self.reader.name(error))? as u64;
        if data.len() as u64 == size {
            return Ok(Some(data.into()));
        }
        self.ended = true;
        self.start = offset;
        self.have = 0..data.len();
        self.buffer = data;
        Ok(None)
    }

    /// Goes forward to `offset`, or to the archive's end.
    fn forget_before(&mut self, offset: u64) -> Result<()> {
        while self.start < offset {
            if self.have.is_empty() && !self.read_more(1)? {
                break;
            }
            let n = (offset - self.start).min(self.have.len() as u64);
            self.have.start += n as usize;
            self.start += n;
        }
        Ok(())
    }

    /// Reads until `len` bytes are at hand; `false` when the archive ends before that.
    fn read_more(&mut self, len: usize) -> Result<bool> {
        if self.have.len() < len {
            self.buffer.copy_within(self.have.clone(), 0);
            self.have = 0..self.have.len();
            let room = len.max(READ_BYTES);
            if self.buffer.len() < room {
                self.buffer.resize(room, 0);
            }
        }
        while self.have.len() < len && !self.ended {
            match self.reader.read(&mut self.buffer[self.have.end..]) {
                Ok(0) => self.ended = true,
                Ok(n) => self.have.end += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.reader.name(error)),
            }
        }
        Ok(self.have.len() >= len)
    }
}

impl Window for StreamWindow {
    fn bytes(&mut self, offset: u64, len: usize) -> Result<&[u8]> {
        self.forget_before(offset)?;
        self.read_more(len)?;
        let bytes = &self.buffer[self.have.clone()];
        Ok(&bytes[..len.min(bytes.len())])
    }

    fn len(&self) -> Option<u64> {
        self.ended.then(|| self.start + self.have.len() as u64)
    }
}
