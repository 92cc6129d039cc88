//! Shards of generated photos for the demo and the benches: made once on all cores, found again the next time. They are
//! no data set: their labels mean nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use rayon::{ThreadPool, ThreadPoolBuilder};
use serde::{Deserialize, Serialize};

use super::output::write_whole;
use crate::encode::encode_photo;
use crate::shard::{Headers, ShardWriter, WriterOptions};
use crate::{Error, ErrorKind, Result};

/// Changes whenever the same parameters make other bytes.
const GENERATION: u32 = 1;

/// Samples that may be asked for.
const SAMPLES_MAX: usize = 10_000_000;

/// Labels are 0 to 999, as ImageNet's are.
const CLASSES: u64 = 1000;

/// Photos in memory at a time for each thread: few bytes, yet enough that threads seldom wait for the writer.
const PHOTOS_PER_THREAD: usize = 32;

/// The file that says that a folder is complete, and with which parameters.
const MARKER: &str = "demo.json";

/// Makes `samples` generated photos below `dir`, spread evenly over `shards` shards or fewer, with PAX
/// headers as stock webdataset writes them.
///
/// A sample has the fields `jpg` and `cls`, a label from 0 to 999. The same arguments make the same bytes, whatever
/// `threads` is. Where `dir` holds exactly these shards already, nothing is made. `progress` is told how many samples
/// are made, and of how many. Returns the paths of the shards, in order.
///
/// # Errors
/// [`ErrorKind::InvalidOption`] for no samples, no shards, more shards than samples or no thread;
/// [`ErrorKind::Io`] and [`ErrorKind::NotFound`] when the folder cannot be made or written.
pub fn make_demo_shards(
    dir: &Path,
    samples: usize,
    shards: usize,
    seed: u64,
    threads: usize,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Vec<PathBuf>> {
    let invalid = |message: String| Err(Error::new(ErrorKind::InvalidOption, message));
    if !(1..=SAMPLES_MAX).contains(&samples) {
        return invalid(format!("samples={samples} is not between 1 and {SAMPLES_MAX}"));
    }
    if !(1..=samples).contains(&shards) {
        return invalid(format!("shards={shards} is not between 1 and the number of samples, {samples}"));
    }
    let wanted = Marker { generation: GENERATION, samples, shards, seed, files: Vec::new() };
    let found = Marker::read(dir);
    if let Some(found) = found.as_ref().filter(|found| found.is_of(&wanted) && found.is_whole(dir)) {
        return Ok(found.files.iter().map(|file| dir.join(&file.name)).collect());
    }
    fs::create_dir_all(dir).map_err(|error| Error::io(format!("cannot make the folder '{}'", dir.display()), error))?;
    // Whoever stops half-way leaves a folder that nobody takes for complete.
    remove(dir, MARKER);
    let paths = write(dir, &wanted, &pool(threads)?, progress)?;
    let marker = Marker { files: paths.iter().filter_map(|path| ShardFile::of(path)).collect(), ..wanted };
    marker.write(dir)?;
    if let Some(found) = found {
        let kept: BTreeSet<&str> = marker.files.iter().map(|file| file.name.as_str()).collect();
        let left = found.files.iter().filter(|file| file.is_ours() && !kept.contains(file.name.as_str()));
        left.for_each(|file| remove(dir, &file.name));
    }
    Ok(paths)
}

/// What a complete folder says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Marker {
    generation: u32,
    samples: usize,
    shards: usize,
    seed: u64,
    files: Vec<ShardFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ShardFile {
    name: String,
    bytes: u64,
}

impl Marker {
    fn read(dir: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(dir.join(MARKER)).ok()?).ok()
    }

    fn write(&self, dir: &Path) -> Result<()> {
        let cannot_write = |error: anyhow::Error| Error::new(ErrorKind::Io, format!("{error:#}"));
        let text = serde_json::to_vec_pretty(self).map_err(|error| cannot_write(error.into()))?;
        write_whole(&dir.join(MARKER), &text).map_err(cannot_write)
    }

    /// Whether it was made with the same parameters.
    fn is_of(&self, wanted: &Self) -> bool {
        *self == Self { files: self.files.clone(), ..wanted.clone() }
    }

    /// Whether all its shards are there, as long as they were made.
    fn is_whole(&self, dir: &Path) -> bool {
        let is_there = |file: &ShardFile| {
            file.is_ours() && ShardFile::of(&dir.join(&file.name)).is_some_and(|found| found.bytes == file.bytes)
        };
        !self.files.is_empty() && self.files.iter().all(is_there)
    }
}

impl ShardFile {
    fn of(path: &Path) -> Option<Self> {
        let bytes = fs::metadata(path).ok()?.len();
        Some(Self { name: path.file_name()?.to_str()?.to_owned(), bytes })
    }

    /// A marker is a file that anybody can write: only names of our own make are believed.
    fn is_ours(&self) -> bool {
        let number = self.name.strip_prefix("demo-").and_then(|rest| rest.strip_suffix(".tar"));
        number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    }
}

fn pool(threads: usize) -> Result<ThreadPool> {
    if threads == 0 {
        return Err(Error::new(ErrorKind::InvalidOption, "threads=0: photos need at least one thread"));
    }
    ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(|number| format!("photos-{number}"))
        .build()
        .map_err(|error| Error::new(ErrorKind::Io, "cannot start threads").with_source(error))
}

fn write(
    dir: &Path,
    wanted: &Marker,
    pool: &ThreadPool,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Vec<PathBuf>> {
    let &Marker { samples, shards, seed, .. } = wanted;
    let pattern = dir.join("demo-%06d.tar");
    let pattern = pattern.to_str().ok_or_else(|| {
        Error::new(ErrorKind::InvalidOption, format!("the folder's name '{}' is not UTF-8", dir.display()))
    })?;
    let samples_max = Some(samples.div_ceil(shards) as u64);
    let mut writer =
        ShardWriter::new(pattern, WriterOptions { samples_max, headers: Headers::Pax, ..WriterOptions::default() })?;
    let made = AtomicUsize::new(0);
    let chunk = pool.current_num_threads() * PHOTOS_PER_THREAD;
    for start in (0..samples).step_by(chunk) {
        let photos: Vec<(u64, Vec<u8>)> = pool.install(|| {
            let numbers = (start..samples.min(start + chunk)).into_par_iter();
            let encode = |number: usize| {
                // Seeds far apart share no photo.
                let photo_seed = seed.wrapping_mul(SAMPLES_MAX as u64).wrapping_add(number as u64);
                let photo = encode_photo(photo_seed);
                progress(made.fetch_add(1, Ordering::Relaxed) + 1, samples);
                (photo_seed % CLASSES, photo)
            };
            numbers.map(encode).collect()
        });
        for (number, (label, photo)) in (start..).zip(photos) {
            writer.write_sample(
                &format!("{number:08}"),
                &[("jpg", photo.as_slice()), ("cls", label.to_string().as_bytes())],
            )?;
        }
    }
    writer.finish()
}

/// Best effort: what stays is overwritten or ignored.
fn remove(dir: &Path, name: &str) {
    let _ = fs::remove_file(dir.join(name));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::{ShardIndex, ShardOptions};

    fn make(dir: &Path, samples: usize, shards: usize, seed: u64, threads: usize) -> (Vec<PathBuf>, usize) {
        let made = AtomicUsize::new(0);
        let progress = |_: usize, _: usize| {
            made.fetch_add(1, Ordering::Relaxed);
        };
        let paths = make_demo_shards(dir, samples, shards, seed, threads, &progress).unwrap();
        (paths, made.into_inner())
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn shards_are_made_once_and_made_again_when_they_must_be() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("new/demo");
        let (paths, made) = make(&dir, 5, 2, 0, 2);
        assert_eq!((paths.len(), made), (2, 5));
        let bytes: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
        assert_eq!(make(&dir, 5, 2, 0, 1), (paths.clone(), 0), "complete: nothing to do");
        fs::write(&paths[1], &bytes[1][..1000]).unwrap();
        assert_eq!(make(&dir, 5, 2, 0, 1).1, 5, "a cut shard is made again");
        assert_eq!(fs::read(&paths[1]).unwrap(), bytes[1], "and is the same for any number of threads");
        assert_eq!(make(&dir, 5, 1, 1, 1).1, 5, "another seed, other photos");
        assert_eq!(names(&dir), ["demo-000000.tar", "demo.json"], "former shards are gone");
    }

    #[test]
    fn samples_have_an_image_and_a_label_behind_pax_headers() {
        let folder = tempfile::tempdir().unwrap();
        let (paths, _) = make(folder.path(), 3, 2, 7, 1);
        let shard = crate::shard::Shard::open(&paths[0], &ShardOptions::default()).unwrap();
        assert_eq!(shard.read(156..157).unwrap().as_ref(), b"x", "a PAX header comes first");
        let index = ShardIndex::build(&shard).unwrap();
        let members: Vec<String> = index.iter().map(|file| String::from_utf8(file.name.to_vec()).unwrap()).collect();
        assert_eq!(members, ["00000000.jpg", "00000000.cls", "00000001.jpg", "00000001.cls"]);
        let label = index.member(1);
        let label = shard.read(label.offset..label.offset + label.size).unwrap();
        assert!(std::str::from_utf8(&label).unwrap().parse::<u64>().unwrap() < CLASSES);
    }

    #[test]
    fn what_cannot_be_made_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for (samples, shards, threads) in [(0, 1, 1), (5, 0, 1), (5, 6, 1), (5, 1, 0)] {
            let error = make_demo_shards(folder.path(), samples, shards, 0, threads, &|_, _| {}).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidOption, "{samples} {shards} {threads}");
        }
        assert_eq!(names(folder.path()), [] as [String; 0]);
    }

    #[test]
    fn a_marker_cannot_make_files_vanish() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("precious.tar"), b"mine").unwrap();
        let marker = r#"{"generation":0,"samples":1,"shards":1,"seed":0,"files":[{"name":"precious.tar","bytes":4}]}"#;
        fs::write(folder.path().join(MARKER), marker).unwrap();
        make(folder.path(), 1, 1, 0, 1);
        assert!(names(folder.path()).contains(&"precious.tar".to_owned()));
    }
}
