//! Indexes kept in files, so that an unchanged shard is walked once; and the building of many indexes at once.
//!
//! A cache file is never trusted: whatever is odd about it means that the index is built again.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;

use serde::{Deserialize, Serialize};

use super::draft::Draft;
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
    /// How many indexes could not be kept, and why the first could not; shared by clones.
    unkept: Arc<Mutex<Option<(usize, String)>>>,
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
        Self { dir: dir.into(), unkept: Arc::default() }
    }

    /// The index of the shard at `path`: from the cache if the file is as it was when it was built, else built and
    /// kept. That it cannot be kept is no error, but [`unkept`](Self::unkept) tells it.
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
            let mut unkept = self.unkept.lock().unwrap_or_else(PoisonError::into_inner);
            unkept.get_or_insert_with(|| (0, error.to_string())).0 += 1;
        }
        Ok(index)
    }

    /// A sentence about indexes that could not be kept; `None` where all were.
    #[must_use]
    pub fn unkept(&self) -> Option<String> {
        let unkept = self.unkept.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, error) = unkept.as_ref()?;
        let indexes = if *count == 1 { "index".to_owned() } else { format!("{count} indexes") };
        Some(format!("{indexes} not kept in '{}': {error}", self.dir.display()))
    }

    /// Writes a cache file under another name first, so that nobody ever reads half of one.
    fn keep(&self, file: &Path, key: &Key, index: &ShardIndex) -> io::Result<()> {
        fs::create_dir_all(&self.dir)?;
        let mut draft = Draft::create(file)?;
        draft.write_all(&encode(key, index).map_err(io::Error::other)?)?;
        draft.finish().map(drop)
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
    // One that lies beside the shard was built by strict rules.
    if options.damage == Damage::Strict
        && let Ok(index) = ShardIndex::read_beside(path)
    {
        return Ok(index);
    }
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

pub(super) fn checksum(bytes: &[u8]) -> u32 {
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
    let mut indexes = Vec::with_capacity(paths.len());
    each_index(paths, options, cache, threads, progress, |index| {
        indexes.push(index);
        Ok(())
    })?;
    Ok(indexes)
}

/// As [`build_indexes`], but hands each index over, in the order of `paths`, while others are still being built: `take`
/// is called on the calling thread.
///
/// # Errors
/// As [`build_indexes`], and the first error of `take`, after which it is not called again.
pub(crate) fn each_index(
    paths: &[PathBuf],
    options: &ShardOptions,
    cache: Option<&IndexCache>,
    threads: usize,
    progress: &(dyn Fn(usize, usize) + Sync),
    mut take: impl FnMut(ShardIndex) -> Result<()>,
) -> Result<()> {
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
    let mut early: BTreeMap<usize, Result<ShardIndex>> = BTreeMap::new();
    let mut turn = 0;
    let mut taken = Ok(());
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..threads.clamp(1, paths.len().max(1)) {
            let sender = sender.clone();
            scope.spawn(|| work(sender));
        }
        drop(sender);
        for (done, (i, index)) in receiver.iter().enumerate() {
            early.insert(i, index);
            progress(done + 1, paths.len());
            // A shard that is left out never has its turn, because of the error before it.
            while taken.is_ok()
                && let Some(index) = early.remove(&turn)
            {
                turn += 1;
                taken = index.and_then(&mut take);
                if taken.is_err() {
                    end.store(0, Ordering::Relaxed);
                }
            }
        }
    });
    taken
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::shard::{Headers, ShardWriter, WriterOptions};

    fn write_shard(path: &Path, keys: &[&str]) {
        let options = WriterOptions { headers: Headers::Pax, ..WriterOptions::default() };
        let mut writer = ShardWriter::new(path.to_str().unwrap(), options).unwrap();
        for key in keys {
            writer.write_sample(key, &[("cls", b"1"), ("jpg", key.as_bytes())]).unwrap();
        }
        writer.finish().unwrap();
    }

    fn cache_files(dir: &Path) -> Vec<PathBuf> {
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    #[test]
    fn a_cached_index_is_used_while_the_shard_is_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let (shard, dir) = (folder.path().join("a.tar"), folder.path().join("cache"));
        let cache = IndexCache::at(&dir);
        let options = ShardOptions::default();
        write_shard(&shard, &["a", "b"]);
        let built = cache.load_or_build(&shard, &options).unwrap();
        assert_eq!(built.len(), 4);

        // To see which one is used, the file is given an index of other names that fits the shard's key.
        let [file] = &cache_files(&dir)[..] else { panic!("not one cache file") };
        let key = Key::of(&shard, &options).unwrap();
        fs::write(file, encode(&key, &ShardIndex::default()).unwrap()).unwrap();
        assert!(cache.load_or_build(&shard, &options).unwrap().is_empty());
        let resync = ShardOptions { damage: Damage::Resync, ..options };
        assert_eq!(cache.load_or_build(&shard, &resync).unwrap(), built);
        assert_eq!(cache_files(&dir).len(), 2);

        write_shard(&shard, &["a", "b", "c"]);
        assert_eq!(cache.load_or_build(&shard, &options).unwrap().len(), 6);
        assert_eq!(cache_files(&dir).len(), 2);
        assert_eq!(load(file, &Key::of(&shard, &options).unwrap()).unwrap().len(), 6);
    }

    #[test]
    fn an_odd_cache_file_means_building_again() {
        let folder = tempfile::tempdir().unwrap();
        let (shard, dir) = (folder.path().join("a.tar"), folder.path().join("cache"));
        let cache = IndexCache::at(&dir);
        let options = ShardOptions::default();
        write_shard(&shard, &["a", "b"]);
        let built = cache.load_or_build(&shard, &options).unwrap();
        let [file] = &cache_files(&dir)[..] else { panic!("not one cache file") };
        let key = Key::of(&shard, &options).unwrap();
        let good = fs::read(file).unwrap();
        let check = |bytes: &[u8]| {
            fs::write(file, bytes).unwrap();
            assert!(load(file, &key).is_err());
            assert_eq!(cache.load_or_build(&shard, &options).unwrap(), built);
            assert_eq!(fs::read(file).unwrap(), good);
        };
        for end in 0..good.len() {
            check(&good[..end]);
        }
        for at in 0..good.len() {
            let mut damaged = good.clone();
            damaged[at] ^= 0x10;
            check(&damaged);
        }
        check(&encode(&Key { resync: true, ..key.clone() }, &built).unwrap());
        // Sealed by a right checksum, but of parts that do not fit together.
        let parts = |name_ends: &[u32], offsets: &[u64]| {
            let parts = (&key, (b"name".to_vec(), name_ends, offsets, offsets, built.report()));
            let body = postcard::to_stdvec(&parts).unwrap();
            [&MAGIC[..], &checksum(&body).to_le_bytes(), &body].concat()
        };
        check(&parts(&[5], &[0]));
        check(&parts(&[4, 4], &[0]));
        check(&parts(&[9, 4], &[0, 0]));
        check(&parts(&[4], &[u64::MAX]));
        fs::write(file, parts(&[4], &[7])).unwrap();
        assert_eq!(load(file, &key).unwrap().len(), 1);
    }

    #[test]
    fn a_cache_that_cannot_be_written_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let shard = folder.path().join("a.tar");
        write_shard(&shard, &["a"]);
        // A file stands where the folder should be.
        let index = IndexCache::at(shard.join("cache")).load_or_build(&shard, &ShardOptions::default()).unwrap();
        assert_eq!(index.len(), 2);
    }

    #[test]
    fn many_indexes_come_in_order_and_the_first_error_wins() {
        let folder = tempfile::tempdir().unwrap();
        let mut paths: Vec<PathBuf> = (0..9).map(|i| folder.path().join(format!("{i}.tar"))).collect();
        for (i, path) in paths.iter().enumerate() {
            write_shard(path, &["a", "b", "c", "d", "e", "f", "g", "h", "i"][..=i]);
        }
        let options = ShardOptions::default();
        let cache = IndexCache::at(folder.path().join("cache"));
        for threads in [0, 1, 4, 100] {
            let steps = Mutex::new(Vec::new());
            let progress = |done, all| steps.lock().unwrap().push((done, all));
            let indexes = build_indexes(&paths, &options, Some(&cache), threads, &progress).unwrap();
            assert!(indexes.iter().map(ShardIndex::len).eq((1..=9).map(|samples| samples * 2)));
            assert_eq!(steps.into_inner().unwrap(), (1..=9).map(|done| (done, 9)).collect::<Vec<_>>());
        }
        assert!(build_indexes(&[], &options, None, 4, &|_, _| {}).unwrap().is_empty());

        fs::write(&paths[3], b"junk").unwrap();
        paths[6] = folder.path().join("missing.tar");
        for threads in [1, 4, 9] {
            let error = build_indexes(&paths, &options, None, threads, &|_, _| {}).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotTar);
            assert!(error.place().shard.as_deref().unwrap().ends_with("3.tar"));
        }
    }
}
