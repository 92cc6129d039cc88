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
enum Touch {
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

    /// Reads what the feed gives until it gives no more. `request_bytes_max` bounds every request.
    ///
    /// # Errors
    /// [`ErrorKind::ShardChanged`] that names the file when one shrinks, [`ErrorKind::Io`] when one cannot be read,
    /// [`ErrorKind::Unsupported`] when io_uring is refused.
    pub(super) fn run(&self, layout: &Layout, feed: &mut Feed<'_>, request_bytes_max: usize) -> Result<()> {
        let named = |error: Error, file: usize| error.in_shard(layout.path(file).to_string_lossy().as_ref());
        match &self.0 {
            Kind::Files(files) => {
                let mut buffer = vec![0; request_bytes_max];
                drive(feed, |request| {
                    read_exactly(&files[request.file], &mut buffer[..request.len], request.offset)
                        .map_err(|error| named(error, request.file))
                })
            }
            Kind::Direct(files) => {
                let mut buffer = AlignedBuffer::default();
                drive(feed, |request| {
                    let range = request.offset..request.offset + request.len as u64;
                    let read = files[request.file].read(&range, &mut buffer);
                    read.map(drop).map_err(|error| named(error, request.file))
                })
            }
            Kind::Uring { files, depth, registered } => {
                super::uring::run(files, feed, *depth, request_bytes_max, *registered).map_err(|(error, file)| {
                    match file {
                        Some(file) => named(error, file),
                        None => error,
                    }
                })
            }
            #[cfg(target_os = "linux")]
            Kind::Maps(maps, touch) => drive(feed, |request| {
                touch_map(&maps[request.file], *touch, request).map_err(|error| named(error, request.file))
            }),
            Kind::Stores(stores) => drive(feed, |request| {
                let range = request.offset..request.offset + request.len as u64;
                let store = &stores[request.file];
                let read = store.populate(range.clone()).and_then(|()| store.read(range));
                black_box(read.map_err(|error| named(error, request.file))?);
                Ok(())
            }),
            Kind::Nothing => drive(feed, |request| {
                black_box(request);
                Ok(())
            }),
        }
    }
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

/// Makes sure that a method is not asked for more than it has.
pub(super) fn check_depth(depth: usize) -> Result<()> {
    match (1..=super::uring::DEPTH_MAX).contains(&depth) {
        true => Ok(()),
        false => {
            let message = format!("queue depth {depth} is not between 1 and {}", super::uring::DEPTH_MAX);
            Err(Error::new(ErrorKind::InvalidOption, message))
        }
    }
}
