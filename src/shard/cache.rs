//! Indexes kept in files, so that an unchanged shard is walked once; and the building of many indexes at once.
//!
//! A cache file is never trusted: whatever is odd about it means that the index is built again.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::fingerprint::Fingerprint;
use super::index::ShardIndex;
use super::{Damage, FileIdentity, Shard, ShardOptions};
use crate::error::Result;

/// What a cache file begins with; the last byte is the version of the format and of the rules that read an archive.
const MAGIC: &[u8; 8] = b"brimidx\x01";

/// The largest cache file that is read, in bytes: that of some ten million members.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// A folder of cached indexes, a file a shard.
#[derive(Debug, Clone)]
pub struct IndexCache {
    dir: PathBuf,
}

/// Which index a cache file holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Key {
    /// The canonical path, as the system's bytes.
    path: Vec<u8>,
    identity: FileIdentity,
    resync: bool,
}

impl IndexCache {
    /// The cache in the folder `dir`, which is made when the first index is kept.
    #[must_use]
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// The index of the shard at `path`: from the cache if the file is as it was when it was built, else built and
    /// kept. That it cannot be kept is no error.
    ///
    /// # Errors
    /// As [`Shard::open`] and [`ShardIndex::build`].
    pub fn load_or_build(&self, path: &Path, options: &ShardOptions) -> Result<ShardIndex> {
        let Ok(key) = Key::of(path, options) else { return build(path, options) };
        let file = self.dir.join(key.file_name());
        match load(&file, &key) {
            Ok(index) => return Ok(index),
            Err(why) => tracing::debug!(path = %path.display(), %why, "building an index"),
        }
        let index = build(path, options)?;
        // Unless the file is still the one of the key, nobody knows which one the index belongs to.
        if Key::of(path, options).is_ok_and(|now| now == key)
            && let Err(error) = self.keep(&file, &key, &index)
        {
            tracing::debug!(file = %file.display(), %error, "an index is not kept");
        }
        Ok(index)
    }

    /// Writes a cache file under another name first, so that nobody ever reads half of one.
    fn keep(&self, file: &Path, key: &Key, index: &ShardIndex) -> io::Result<()> {
        fs::create_dir_all(&self.dir)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let temporary = file.with_extension(format!("{}-{}.tmp", std::process::id(), now.as_nanos()));
        let bytes = encode(key, index).map_err(io::Error::other)?;
        let mut new = File::create_new(&temporary)?;
        let written = new.write_all(&bytes).and_then(|()| fs::rename(&temporary, file));
        if written.is_err() {
            // Nothing more can be done about a file that cannot be removed either.
            let _ = fs::remove_file(&temporary);
        }
        written
    }
}

impl Key {
    fn of(path: &Path, options: &ShardOptions) -> io::Result<Self> {
        let path = fs::canonicalize(path)?;
        let identity = FileIdentity::of_path(&path)?;
        let path = path.into_os_string().into_encoded_bytes();
        Ok(Self { path, identity, resync: options.damage == Damage::Resync })
    }

    /// The same for every state of a shard, so that a new index replaces the old one.
    fn file_name(&self) -> String {
        let hash = |salt: u64| {
            let mut hash = Fingerprint::default();
            hash.word(salt);
            hash.bytes(&self.path);
            hash.word(u64::from(self.resync));
            hash.finish()
        };
        format!("{:016x}{:016x}.index", hash(1), hash(2))
    }
}

fn build(path: &Path, options: &ShardOptions) -> Result<ShardIndex> {
    ShardIndex::build(&Shard::open(path, options)?)
}

/// A cache file: magic, checksum of the rest, key and index.
fn encode(key: &Key, index: &ShardIndex) -> postcard::Result<Vec<u8>> {
    let body = postcard::to_stdvec(&(key, index))?;
    Ok([&MAGIC[..], &checksum(&body).to_le_bytes(), &body].concat())
}

/// The index in a cache file, or why it is not to be used.
fn load(file: &Path, key: &Key) -> Result<ShardIndex, &'static str> {
    let cannot_read = |_| "there is no readable cache file";
    if fs::metadata(file).map_err(cannot_read)?.len() > FILE_BYTES_MAX {
        return Err("the cache file is too large to be one");
    }
    let bytes = fs::read(file).map_err(cannot_read)?;
    let rest = bytes.strip_prefix(MAGIC).ok_or("the cache file is of another version, or none")?;
    let (sum, body) = rest.split_first_chunk().ok_or("the cache file is cut")?;
    if u32::from_le_bytes(*sum) != checksum(body) {
        return Err("the cache file is damaged");
    }
    let (found, index): (Key, ShardIndex) = postcard::from_bytes(body).map_err(|_| "the cache file is malformed")?;
    if found != *key {
        return Err("the shard has changed");
    }
    if !index.is_sound() {
        return Err("the cached index does not fit together");
    }
    Ok(index)
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// Builds, or loads from `cache`, the indexes of many shards on `threads` threads, at least one.
///
/// `progress` is called on the calling thread with the number of shards done and of all, after each shard.
///
/// # Errors
/// That of the first shard, in the order of `paths`, that has one; shards behind it may be left out.
pub fn build_indexes(
    paths: &[PathBuf],
    options: &ShardOptions,
    cache: Option<&IndexCache>,
    threads: usize,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Vec<ShardIndex>> {
    let next = AtomicUsize::new(0);
    // Shards are handed out in order, so all before a failed one are under way or done.
    let end = AtomicUsize::new(paths.len());
    let work = |results: mpsc::Sender<(usize, Result<ShardIndex>)>| {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= end.load(Ordering::Relaxed) {
                break;
            }
            let index = match cache {
                Some(cache) => cache.load_or_build(&paths[i], options),
                None => build(&paths[i], options),
            };
            if index.is_err() {
                end.fetch_min(i, Ordering::Relaxed);
            }
            if results.send((i, index)).is_err() {
                break;
            }
        }
    };
    let mut results: Vec<Option<Result<ShardIndex>>> = Vec::new();
    results.resize_with(paths.len(), || None);
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..threads.clamp(1, paths.len().max(1)) {
            let sender = sender.clone();
            scope.spawn(|| work(sender));
        }
        drop(sender);
        for (done, (i, index)) in receiver.iter().enumerate() {
            results[i] = Some(index);
            progress(done + 1, paths.len());
        }
    });
    // A shard without a result was left out because of an error before it.
    results.into_iter().map_while(|result| result).collect()
}
