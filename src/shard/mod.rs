//! A shard is a tar archive seen as an immutable sequence of members.
//!
//! It has no idea what a member means, groups nothing into samples, and never looks at member data.

pub mod store;
pub mod identity;
pub mod filesystem;
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "maps a file and guards the map against SIGBUS")]
pub mod map;
pub mod read;
pub mod direct;
mod pipe;
mod sniff;
mod compressed;
mod tar;
mod members;
mod stream;
mod fingerprint;
mod index;
mod cache;
mod beside;
pub mod brace;
mod glob;
pub mod list;
pub mod set;
pub mod writer;
pub mod draft;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, Result};

pub(crate) use beside::Unfit;
pub use beside::index_beside;
pub use brace::expand_braces;
pub(crate) use cache::each_index;
pub use cache::{IndexCache, build_indexes};
pub use draft::Draft;
pub use filesystem::{Filesystem, filesystem_of};
pub use identity::FileIdentity;
pub use index::{IndexedMember, ShardIndex};
pub use list::ShardList;
pub use members::Members;
pub use set::{SetLimits, ShardSet};
pub use sniff::Compression;
pub use store::{Footprint, IoMethod, MemoryStore, Store};
pub use stream::ShardStream;
pub use tar::{Loss, ScanReport};
pub use writer::{Headers, ShardWriter, WriterOptions};

/// How shards are opened and how far damage in them is tolerated.
#[derive(Debug, Clone, Copy)]
pub struct ShardOptions {
    /// How a file is read; [`IoMethod::Auto`] by default.
    pub io: IoMethod,
    /// What damage in an archive leads to; [`Damage::Strict`] by default.
    pub damage: Damage,
    /// The most bytes that a compressed shard may inflate to; 2 GiB by default.
    pub memory_limit_bytes: u64,
    /// Puts something between the shard and its store, such as a delay that stands for slow storage; none by default.
    pub wrap: Option<Wrap>,
    /// Opens stores in a way of its own, whatever [`io`](Self::io) says; none by default.
    pub opener: Option<Opener>,
}

/// Opens the store of the file at a path.
pub type Opener = fn(&Path) -> Result<Box<dyn Store>>;

/// Wraps a store as it is opened.
pub type Wrap = fn(Box<dyn Store>) -> Box<dyn Store>;

impl Default for ShardOptions {
    fn default() -> Self {
        Self { io: IoMethod::Auto, damage: Damage::Strict, memory_limit_bytes: 2 << 30, wrap: None, opener: None }
    }
}

/// What damage in an archive leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Damage {
    /// The first damage is an error that names shard and offset.
    #[default]
    Strict,
    /// Reading goes on at the next valid header; what was lost is counted.
    Resync,
}

/// One member of an archive: its header's facts, not its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The name as stored: raw bytes, not necessarily UTF-8, not normalised.
    pub name: Bytes,
    /// Byte offset of the first header that belongs to the member (its PAX or long-name header, if it has one).
    pub header_offset: u64,
    /// Byte offset of the data.
    pub offset: u64,
    /// Size of the data in bytes; 0 for kinds that carry none.
    pub size: u64,
    /// What the member is.
    pub kind: MemberKind,
}

/// What a member of an archive is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemberKind {
    /// A regular file: the only kind that samples are made of.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A hard link to an earlier member; carries no data.
    HardLink,
    /// Any other type flag: devices, pipes, vendor types.
    Other(u8),
}

/// An opened archive, cheap to clone.
#[derive(Debug, Clone)]
pub struct Shard(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: Arc<str>,
    store: Box<dyn Store>,
    damage: Damage,
}

impl Shard {
    /// Opens the archive at `path`; one that is compressed, whatever its name, is inflated into memory.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) when there is no such file, [`Io`](crate::ErrorKind::Io) when it cannot
    /// be read; for compressed ones [`Limit`](crate::ErrorKind::Limit) beyond the memory limit,
    /// [`Truncated`](crate::ErrorKind::Truncated) and [`BadHeader`](crate::ErrorKind::BadHeader) when they are cut or
    /// damaged. An archive that is none, or damaged, shows when its members are read.
    pub fn open(path: impl AsRef<Path>, options: &ShardOptions) -> Result<Self> {
        let path = path.as_ref();
        let name: Arc<str> = path.to_string_lossy().into();
        let opened = options
            .opener
            .map_or_else(|| store::open(path, options.io), |open| open(path))
            .map(|store| match options.wrap {
                Some(wrap) => wrap(store),
                None => store,
            })
            .and_then(|store| inflated(store, options));
        let store = opened.map_err(|error| error.in_shard(name.clone()))?;
        Ok(Self(Arc::new(Inner { name, store, damage: options.damage })))
    }

    /// An archive that is in memory already, under strict rules; `name` stands in for its path in errors.
    #[must_use]
    pub fn from_bytes(name: &str, bytes: Bytes) -> Self {
        Self(Arc::new(Inner { name: name.into(), store: Box::new(MemoryStore::new(bytes)), damage: Damage::Strict }))
    }

    /// As [`from_bytes`](Self::from_bytes) under other rules; compressed bytes are inflated.
    ///
    /// # Errors
    /// As [`open`](Self::open) for compressed archives.
    pub fn from_bytes_with(name: &str, bytes: Bytes, options: &ShardOptions) -> Result<Self> {
        let name: Arc<str> = name.into();
        let store =
            inflated(Box::new(MemoryStore::new(bytes)), options).map_err(|error| error.in_shard(name.clone()))?;
        Ok(Self(Arc::new(Inner { name, store, damage: options.damage })))
    }

    /// The path as the user gave it.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    /// The length of the archive in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.store.len()
    }

    /// Whether the archive has no bytes at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.store.is_empty()
    }

    /// What damage in this archive leads to.
    #[must_use]
    pub fn damage(&self) -> Damage {
        self.0.damage
    }

    /// The members in order, read by their headers alone.
    #[must_use]
    pub fn members(&self) -> Members {
        Members::new(self.clone())
    }

    /// The bytes of `range`; see [`Store::read`].
    ///
    /// # Errors
    /// As [`Store::read`], with the shard named.
    pub fn read(&self, range: Range<u64>) -> Result<Bytes> {
        self.0.store.read(range).map_err(|error| self.named(error))
    }

    /// Asks for `range` to be brought near; see [`Store::prefetch`].
    pub fn prefetch(&self, range: Range<u64>) {
        self.0.store.prefetch(range);
    }

    /// Brings `range` into memory; see [`Store::populate`].
    ///
    /// # Errors
    /// As [`Store::populate`], with the shard named.
    pub fn populate(&self, range: Range<u64>) -> Result<()> {
        self.0.store.populate(range).map_err(|error| self.named(error))
    }

    /// Whether pages vanished while they were being read; see [`Store::has_faulted`]. Costs one atomic load.
    #[must_use]
    pub fn has_faulted(&self) -> bool {
        self.0.store.has_faulted()
    }

    /// Makes sure that the file is still the one that was opened; see [`Store::check`].
    ///
    /// # Errors
    /// As [`Store::check`], with the shard named.
    pub fn check(&self) -> Result<()> {
        self.0.store.check().map_err(|error| self.named(error))
    }

    /// Which file this is; see [`Store::identity`].
    #[must_use]
    pub fn identity(&self) -> Option<FileIdentity> {
        self.0.store.identity()
    }

    /// What the open shard takes from the system; see [`Store::footprint`].
    #[must_use]
    pub fn footprint(&self) -> Footprint {
        self.0.store.footprint()
    }

    fn named(&self, error: Error) -> Error {
        error.in_shard(self.name().clone())
    }
}

/// The archive behind `store`, in memory if it is compressed.
fn inflated(store: Box<dyn Store>, options: &ShardOptions) -> Result<Box<dyn Store>> {
    let head = store.read(0..store.len().min(compressed::HEAD_BYTES as u64))?;
    let Some(compression) = Compression::sniff(&head) else { return Ok(store) };
    let archive = compressed::inflate(&*store, compression, options.memory_limit_bytes)?;
    Ok(Box::new(MemoryStore::made_of(store.identity(), archive)))
}
