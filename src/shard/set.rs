//! The shards of a data set by number, opened on demand and closed again when others need the room.
//!
//! It opens and counts; it knows neither what is in a shard nor in which order shards will be asked for.

use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::{FileIdentity, Footprint, Shard, ShardOptions};
use crate::error::{Error, ErrorKind, Result};

/// The shards of a data set, numbered from 0.
///
/// As many shards stay open as [`SetLimits`] allow; the one that was not asked for the longest is closed first. Bytes
/// and clones of a [`Shard`] that the caller still holds keep it alive beyond that. A shard that is opened again must
/// be the same file as before.
#[derive(Debug)]
pub struct ShardSet {
    paths: Vec<PathBuf>,
    options: ShardOptions,
    limits: SetLimits,
    state: Mutex<State>,
    /// Told whenever an attempt to open a shard has ended.
    opened: Condvar,
}

/// How much a [`ShardSet`] keeps open at once. One shard is always allowed, whatever it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetLimits {
    /// Shards of any kind; 4,096 by default. A map takes no descriptor, so this bounds address space, not files.
    pub shards_max: usize,
    /// Shards that hold a file descriptor; 16 by default, which leaves room under a limit of 64 descriptors.
    pub files_max: usize,
    /// Bytes of shards that were inflated into memory, all of them together; by default the
    /// [`memory_limit_bytes`](ShardOptions::memory_limit_bytes) of the set's options.
    pub memory_max_bytes: u64,
}

impl SetLimits {
    /// The default limits under `options`.
    #[must_use]
    pub fn of(options: &ShardOptions) -> Self {
        Self { shards_max: 4096, files_max: 16, memory_max_bytes: options.memory_limit_bytes }
    }

    fn allow(&self, held: &Held) -> bool {
        held.shards <= self.shards_max
            && held.footprint.files <= self.files_max
            && held.footprint.memory_bytes <= self.memory_max_bytes
    }
}

impl ShardSet {
    /// The shards at `paths`, none of them open yet, under the default limits.
    #[must_use]
    pub fn new(paths: Vec<PathBuf>, options: ShardOptions) -> Self {
        Self::with_limits(paths, options, SetLimits::of(&options))
    }

    /// The shards at `paths`, none of them open yet.
    #[must_use]
    pub fn with_limits(paths: Vec<PathBuf>, options: ShardOptions, limits: SetLimits) -> Self {
        let entries = paths.iter().map(|_| Entry::default()).collect();
        let state = Mutex::new(State { entries, open: Vec::new(), held: Held::default(), clock: 0 });
        Self { paths, options, limits, state, opened: Condvar::new() }
    }

    /// The same set, for which each shard must be the file whose identity is given, in the order of the paths.
    #[must_use]
    pub fn expecting(self, identities: &[FileIdentity]) -> Self {
        for (entry, identity) in self.lock().entries.iter_mut().zip(identities) {
            entry.identity = Some(*identity);
        }
        self
    }

    /// How many shards there are, open or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// The path of shard number `shard`.
    ///
    /// # Panics
    /// When there is no such number.
    #[must_use]
    pub fn path(&self, shard: usize) -> &Path {
        &self.paths[shard]
    }

    /// All paths, by number.
    #[must_use]
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// How shards are opened.
    #[must_use]
    pub fn options(&self) -> &ShardOptions {
        &self.options
    }

    /// Shard number `shard`, opened if it is not open. Of several threads that ask for the same one, one opens it.
    ///
    /// # Errors
    /// Those of [`Shard::open`]; [`ErrorKind::ShardChanged`] when it was open before and is another file now;
    /// [`ErrorKind::InvalidOption`] when there is no such number.
    pub fn get(&self, shard: usize) -> Result<Shard> {
        let Some(path) = self.paths.get(shard) else {
            let message = format!("shard {shard} was asked for, but the set has {}", self.len());
            return Err(Error::new(ErrorKind::InvalidOption, message));
        };
        let mut state = self.lock();
        loop {
            if let Some(found) = state.touch(shard) {
                return Ok(found);
            }
            if !state.entries[shard].is_opening {
                break;
            }
            state = self.opened.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.entries[shard].is_opening = true;
        drop(state);
        let opening = Opening { set: self, shard };
        let opened = Shard::open(path, &self.options)?;
        let closed = opening.keep(opened.clone())?;
        // Closing may take a while (it unmaps): nobody need wait for it.
        drop(opening);
        drop(closed);
        Ok(opened)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that runs under the lock can leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What changes while the set is used.
///
/// Invariant: `open` lists the numbers of the entries that have a shard, and `held` sums these shards up.
#[derive(Debug)]
struct State {
    entries: Vec<Entry>,
    open: Vec<usize>,
    held: Held,
    clock: u64,
}

#[derive(Debug, Default)]
struct Entry {
    shard: Option<Shard>,
    /// The state's clock when it was last asked for.
    used: u64,
    is_opening: bool,
    /// Which file it was when it was first opened.
    identity: Option<FileIdentity>,
}

#[derive(Debug, Default)]
struct Held {
    shards: usize,
    footprint: Footprint,
}

impl State {
    fn touch(&mut self, shard: usize) -> Option<Shard> {
        let entry = &mut self.entries[shard];
        let found = entry.shard.clone()?;
        self.clock += 1;
        entry.used = self.clock;
        Some(found)
    }

    fn insert(&mut self, number: usize, shard: Shard) {
        let Footprint { files, memory_bytes } = shard.footprint();
        self.held.shards += 1;
        self.held.footprint.files += files;
        self.held.footprint.memory_bytes = self.held.footprint.memory_bytes.saturating_add(memory_bytes);
        self.entries[number].shard = Some(shard);
        self.open.push(number);
        self.touch(number);
    }

    /// Takes out what the limits do not allow beside shard number `keep`.
    fn evict(&mut self, keep: usize, limits: &SetLimits) -> Vec<Shard> {
        let mut evicted = Vec::new();
        while !limits.allow(&self.held) {
            let helps = |shard: &Shard| {
                let Footprint { files, memory_bytes } = shard.footprint();
                self.held.shards > limits.shards_max
                    || (files > 0 && self.held.footprint.files > limits.files_max)
                    || (memory_bytes > 0 && self.held.footprint.memory_bytes > limits.memory_max_bytes)
            };
            let oldest = (0..self.open.len())
                .filter(|place| self.open[*place] != keep)
                .filter(|place| self.entries[self.open[*place]].shard.as_ref().is_some_and(helps))
                .min_by_key(|place| self.entries[self.open[*place]].used);
            let Some(place) = oldest else { break };
            let number = self.open.swap_remove(place);
            if let Some(shard) = self.entries[number].shard.take() {
                let Footprint { files, memory_bytes } = shard.footprint();
                self.held.shards -= 1;
                self.held.footprint.files -= files;
                self.held.footprint.memory_bytes = self.held.footprint.memory_bytes.saturating_sub(memory_bytes);
                evicted.push(shard);
            }
        }
        evicted
    }
}

/// The right to open one shard; it ends, whatever happens, by telling those who wait.
struct Opening<'a> {
    set: &'a ShardSet,
    shard: usize,
}

impl Opening<'_> {
    fn keep(&self, shard: Shard) -> Result<Vec<Shard>> {
        let mut state = self.set.lock();
        let entry = &mut state.entries[self.shard];
        let now = shard.identity();
        if let (Some(before), Some(now)) = (entry.identity, now)
            && let Some(difference) = before.difference(&now)
        {
            return Err(super::identity::shard_changed(difference).in_shard(shard.name().clone()));
        }
        entry.identity = now;
        state.insert(self.shard, shard);
        Ok(state.evict(self.shard, &self.set.limits))
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.set.lock().entries[self.shard].is_opening = false;
        self.set.opened.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::IoMethod;
    use std::fs;
    use tempfile::TempDir;

    fn set(count: usize, io: IoMethod, limits: impl Fn(&mut SetLimits)) -> (TempDir, ShardSet) {
        let folder = tempfile::tempdir().unwrap();
        let paths: Vec<_> = (0..count).map(|number| folder.path().join(format!("{number}.tar"))).collect();
        for (number, path) in paths.iter().enumerate() {
            fs::write(path, vec![number as u8; 1024]).unwrap();
        }
        let options = ShardOptions { io, ..ShardOptions::default() };
        let mut set_limits = SetLimits::of(&options);
        limits(&mut set_limits);
        (folder, ShardSet::with_limits(paths, options, set_limits))
    }

    fn open(set: &ShardSet) -> Vec<usize> {
        let mut open = set.lock().open.clone();
        open.sort_unstable();
        open
    }

    #[test]
    fn the_one_not_asked_for_the_longest_is_closed() {
        for io in [IoMethod::Read, IoMethod::Mmap] {
            let (_folder, set) = set(5, io, |limits| limits.shards_max = 3);
            for shard in [0, 1, 2, 0, 3, 0, 4] {
                assert_eq!(set.get(shard).unwrap().read(0..1).unwrap(), [shard as u8][..]);
            }
            assert_eq!(open(&set), [0, 3, 4]);
        }
    }

    #[test]
    fn descriptors_are_limited_and_maps_have_none() {
        let (_folder, reads) = set(9, IoMethod::Read, |limits| limits.files_max = 2);
        let (_folder, maps) = set(9, IoMethod::Mmap, |limits| limits.files_max = 2);
        for shard in 0..9 {
            reads.get(shard).unwrap();
            maps.get(shard).unwrap();
        }
        assert_eq!(open(&reads), [7, 8]);
        assert_eq!(open(&maps).len(), 9);
    }

    #[test]
    fn one_shard_is_allowed_whatever_it_takes() {
        let (_folder, set) = set(2, IoMethod::Read, |limits| limits.files_max = 0);
        set.get(0).unwrap();
        let kept = set.get(1).unwrap();
        assert_eq!(open(&set), [1]);
        assert_eq!(kept.len(), 1024);
    }

    #[test]
    fn a_shard_that_is_opened_again_must_be_the_same_file() {
        let (folder, set) = set(3, IoMethod::Read, |limits| limits.shards_max = 1);
        set.get(0).unwrap();
        set.get(1).unwrap();
        fs::write(folder.path().join("0.tar"), b"other").unwrap();
        let error = set.get(0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ShardChanged);
        assert!(error.place().shard.is_some());
        assert_eq!(set.get(0).unwrap_err().kind(), ErrorKind::ShardChanged, "it stays refused");
        set.get(1).unwrap();
    }

    #[test]
    fn inflated_shards_share_one_limit_of_memory() {
        use std::io::Write;
        let (_folder, set) = set(3, IoMethod::Auto, |limits| limits.memory_max_bytes = 9_000);
        for path in set.paths() {
            let mut file = flate2::write::GzEncoder::new(fs::File::create(path).unwrap(), flate2::Compression::fast());
            file.write_all(&[0; 4096]).unwrap();
            file.finish().unwrap();
        }
        for shard in 0..3 {
            assert_eq!(set.get(shard).unwrap().len(), 4096);
        }
        assert_eq!(open(&set), [1, 2]);
        fs::write(set.path(0), b"other").unwrap();
        assert_eq!(set.get(0).unwrap_err().kind(), ErrorKind::ShardChanged);
    }

    #[test]
    fn a_shard_that_cannot_be_opened_is_tried_again() {
        let (folder, set) = set(1, IoMethod::Auto, |_| {});
        let path = folder.path().join("0.tar");
        fs::remove_file(&path).unwrap();
        assert_eq!(set.get(0).unwrap_err().kind(), ErrorKind::NotFound);
        fs::write(&path, b"now").unwrap();
        assert_eq!(set.get(0).unwrap().len(), 3);
        assert_eq!(set.get(1).unwrap_err().kind(), ErrorKind::InvalidOption);
    }

    #[test]
    fn threads_that_want_the_same_shards_all_get_them() {
        let (_folder, set) = set(6, IoMethod::Read, |limits| limits.files_max = 2);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let set = &set;
                scope.spawn(move || {
                    for step in 0..300 {
                        let shard = (step * 7 + thread) % 6;
                        assert_eq!(set.get(shard).unwrap().read(0..1).unwrap(), [shard as u8][..]);
                    }
                });
            }
        });
        let state = set.lock();
        assert_eq!(state.open.len(), 2);
        assert_eq!(state.held.footprint.files, 2);
        assert!(state.entries.iter().all(|entry| !entry.is_opening));
    }
}
