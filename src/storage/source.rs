//! Open files of a layout, and one thread's reading of them by each method. It measures nothing: it takes requests from
//! a feed and says when each is done.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;

use super::feed::Feed;
use super::layout::Layout;
use super::method::Method;
use super::pattern::{Pattern, Request};
use crate::error::{Error, ErrorKind, Result};
use crate::shard::direct::{AlignedBuffer, DirectFile};
use crate::shard::identity::shard_changed;
use crate::shard::{FileIdentity, Store};

/// The least page of any system that is read on: touching each of its multiples touches every page.
const PAGE_BYTES: usize = 4096;

/// Bytes of all threads' buffers together, at most.
const BUFFER_BYTES_MAX: u64 = 2 << 30;

/// Open files of a layout, ready to be read by many threads.
#[derive(Debug)]
pub struct Source(Kind);

#[derive(Debug)]
enum Kind {
    Files(Vec<File>),
    Direct(Vec<DirectFile>),
    Uring {
        files: Vec<DirectFile>,
        depth: usize,
        registered: bool,
    },
    #[cfg(target_os = "linux")]
    Maps(Vec<crate::shard::map::MapStore>, Touch),
    Stores(Vec<Box<dyn Store>>),
    /// No bytes at all: what is left is the cost of measuring.
    Nothing,
}

/// How a map's pages become resident.
#[cfg(target_os = "linux")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Touch {
    EachPage,
    Populate,
}

impl Source {
    /// Opens the files of `layout` for `method`, and tells the kernel whether `pattern` makes reading ahead worth while,
    /// as fio does. `depth` is the number of requests under way in each thread, for methods that have one.
    ///
    /// # Errors
    /// Those of [`Method::check`] and of opening a file.
    pub fn open(layout: &Layout, method: Method, pattern: Pattern, depth: usize) -> Result<Self> {
        let each = |file: usize| layout.path(file).to_string_lossy();
        let numbers = 0..layout.len();
        let direct = || {
            let open = |file| DirectFile::open(layout.path(file)).map_err(|error| error.in_shard(each(file).as_ref()));
            numbers.clone().map(open).collect::<Result<Vec<_>>>()
        };
        Ok(Self(match method {
            Method::Pread => {
                let open = |file| {
                    let (opened, _) =
                        FileIdentity::open(layout.path(file)).map_err(|error| error.in_shard(each(file).as_ref()))?;
                    advise(&opened, pattern);
                    Ok(opened)
                };
                Kind::Files(numbers.map(open).collect::<Result<_>>()?)
            }
            Method::Direct => Kind::Direct(direct()?),
            Method::Uring | Method::UringRegistered => {
                Kind::Uring { files: direct()?, depth, registered: method == Method::UringRegistered }
            }
            Method::Mmap | Method::MmapPopulate => maps(layout, method, pattern)?,
        }))
    }

    /// Reads through stores instead, one for each file of the layout: what a loader does.
    #[must_use]
    pub fn stores(stores: Vec<Box<dyn Store>>) -> Self {
        Self(Kind::Stores(stores))
    }

    /// Reads nothing and says that it is done: for the cost of measuring itself.
    #[must_use]
    pub fn nothing() -> Self {
        Self(Kind::Nothing)
    }

    /// One thread's means to read: memory that was written to once, so that the system gives it before anything is
    /// timed. `request_bytes_max` bounds every request.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] when io_uring is refused, [`ErrorKind::Limit`] for more memory than there can be.
    pub(super) fn reader(&self, request_bytes_max: usize) -> Result<Reader<'_>> {
        Ok(match &self.0 {
            // At the start of a page: copies out of the page cache to just behind one are several times slower on some
            // processors.
            Kind::Files(files) => Reader::Files(files, written_buffer(request_bytes_max as u64, PAGE_BYTES as u64)?),
            Kind::Direct(files) => {
                let (buffer_bytes, alignment) = direct_room(files, request_bytes_max);
                Reader::Direct(files, written_buffer(buffer_bytes, alignment)?)
            }
            Kind::Uring { files, depth, registered } => {
                let (buffer_bytes, alignment) = direct_room(files, request_bytes_max);
                Reader::Uring(files, Box::new(super::uring::Queue::new(*depth, buffer_bytes, alignment, *registered)?))
            }
            #[cfg(target_os = "linux")]
            Kind::Maps(maps, touch) => Reader::Maps(maps, *touch),
            Kind::Stores(stores) => Reader::Stores(stores),
            Kind::Nothing => Reader::Nothing,
        })
    }
}

/// One thread's means to read a source.
#[derive(Debug)]
pub(super) enum Reader<'a> {
    Files(&'a [File], AlignedBuffer),
    Direct(&'a [DirectFile], AlignedBuffer),
    Uring(&'a [DirectFile], Box<super::uring::Queue>),
    #[cfg(target_os = "linux")]
    Maps(&'a [crate::shard::map::MapStore], Touch),
    Stores(&'a [Box<dyn Store>]),
    Nothing,
}

impl Reader<'_> {
    /// Reads what the feed gives until it gives no more.
    ///
    /// # Errors
    /// [`ErrorKind::ShardChanged`] that names the file when one shrinks, [`ErrorKind::Io`] when one cannot be read.
    pub(super) fn run(self, layout: &Layout, feed: &mut Feed<'_>) -> Result<()> {
        let named = |error: Error, file: usize| error.in_shard(layout.path(file).to_string_lossy().as_ref());
        match self {
            Self::Files(files, mut buffer) => drive(feed, |request| {
                let memory = buffer.room(request.len as u64, PAGE_BYTES as u64);
                memory
                    .and_then(|memory| read_exactly(&files[request.file], memory, request.offset))
                    .map_err(|error| named(error, request.file))
            }),
            Self::Direct(files, mut buffer) => drive(feed, |request| {
                let range = request.offset..request.offset + request.len as u64;
                let read = files[request.file].read(&range, &mut buffer);
                read.map(drop).map_err(|error| named(error, request.file))
            }),
            Self::Uring(files, mut queue) => queue.run(files, feed).map_err(|(error, file)| match file {
                Some(file) => named(error, file),
                None => error,
            }),
            #[cfg(target_os = "linux")]
            Self::Maps(maps, touch) => drive(feed, |request| {
                touch_map(&maps[request.file], touch, request).map_err(|error| named(error, request.file))
            }),
            Self::Stores(stores) => drive(feed, |request| {
                let range = request.offset..request.offset + request.len as u64;
                let store = &stores[request.file];
                let read = store.populate(range.clone()).and_then(|()| store.read(range));
                black_box(read.map_err(|error| named(error, request.file))?);
                Ok(())
            }),
            Self::Nothing => drive(feed, |request| {
                black_box(request);
                Ok(())
            }),
        }
    }
}

/// Memory of that size that was written to.
fn written_buffer(len_bytes: u64, alignment: u64) -> Result<AlignedBuffer> {
    let mut buffer = AlignedBuffer::default();
    buffer.room(len_bytes, alignment)?.fill(1);
    Ok(buffer)
}

/// Bytes and alignment of room for a request that begins and ends anywhere: it touches a block more at each end.
fn direct_room(files: &[DirectFile], request_bytes_max: usize) -> (u64, u64) {
    let alignment = files.iter().map(DirectFile::alignment).max().unwrap_or(1);
    (request_bytes_max as u64 + 2 * alignment, alignment)
}

/// One request after the other.
fn drive(feed: &mut Feed<'_>, mut read: impl FnMut(&Request) -> Result<()>) -> Result<()> {
    let mut started = feed.start();
    while let Some(request) = feed.next(started) {
        read(&request)?;
        started = feed.done(&request, started);
    }
    Ok(())
}

fn read_exactly(file: &File, buffer: &mut [u8], offset: u64) -> Result<()> {
    match file.read_exact_at(buffer, offset) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Err(shrank(offset)),
        Err(error) => Err(Error::io("cannot read the shard", error).at_offset(offset)),
    }
}

pub(super) fn shrank(offset: u64) -> Error {
    shard_changed("the shard shrank while it was being measured").at_offset(offset)
}

#[cfg(target_os = "linux")]
fn maps(layout: &Layout, method: Method, pattern: Pattern) -> Result<Kind> {
    use crate::shard::map::MapStore;
    let touch = if method == Method::Mmap { Touch::EachPage } else { Touch::Populate };
    let open = |file| {
        let map = MapStore::open(layout.path(file))
            .map_err(|error| error.in_shard(layout.path(file).to_string_lossy().as_ref()))?;
        Ok(if touch == Touch::EachPage && !pattern.is_random() { map.reading_ahead() } else { map })
    };
    Ok(Kind::Maps((0..layout.len()).map(open).collect::<Result<_>>()?, touch))
}

#[cfg(not(target_os = "linux"))]
fn maps(_layout: &Layout, _method: Method, _pattern: Pattern) -> Result<Kind> {
    Err(Error::new(ErrorKind::Unsupported, "shards are mapped on Linux only").with_hint("use pread"))
}

#[cfg(target_os = "linux")]
fn touch_map(map: &crate::shard::map::MapStore, touch: Touch, request: &Request) -> Result<()> {
    let range = request.offset..request.offset + request.len as u64;
    if touch == Touch::Populate {
        map.populate(range.clone())?;
    }
    let bytes = map.read(range)?;
    // Through the map, as whoever uses the bytes does; pages that are resident cost next to nothing.
    for page in bytes.chunks(PAGE_BYTES) {
        black_box(page[0]);
    }
    black_box(bytes.last());
    match map.has_faulted() {
        true => Err(shrank(request.offset)),
        false => Ok(()),
    }
}

#[cfg(target_os = "linux")]
fn advise(file: &File, pattern: Pattern) {
    use rustix::fs::{Advice, fadvise};
    let advice = if pattern.is_random() { Advice::Random } else { Advice::Sequential };
    // Advice that is not taken changes the speed, never the bytes.
    let _ = fadvise(file, 0, None, advice);
}

#[cfg(not(target_os = "linux"))]
fn advise(_file: &File, _pattern: Pattern) {}

/// Makes sure that the numbers of a case are legal, and that its buffers fit into [`BUFFER_BYTES_MAX`].
pub(super) fn check_memory(threads: usize, depth: usize, request_bytes_max: usize) -> Result<()> {
    let requests = threads.saturating_mul(depth);
    let bytes = requests.saturating_mul(request_bytes_max);
    if bytes as u64 > BUFFER_BYTES_MAX {
        let message = format!(
            "{requests} requests of {request_bytes_max} bytes under way take more than {BUFFER_BYTES_MAX} bytes of memory"
        );
        return Err(Error::new(ErrorKind::Limit, message).with_hint("fewer threads, or a smaller depth or block"));
    }
    Ok(())
}

/// Makes sure that a depth is legal.
pub(super) fn check_depth(depth: usize) -> Result<()> {
    match (1..=super::uring::DEPTH_MAX).contains(&depth) {
        true => Ok(()),
        false => {
            let message = format!("queue depth {depth} is not between 1 and {}", super::uring::DEPTH_MAX);
            Err(Error::new(ErrorKind::InvalidOption, message))
        }
    }
}
