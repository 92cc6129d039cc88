//! The JPEG files that a decode bench works on, all in memory: from a folder, from shards, or generated. Files of other
//! formats are left out.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, thread};

use anyhow::Context;
use bytes::Bytes;
use serde::Serialize;

use crate::cli::args::DecodeBenchArgs;
use crate::cli::failure::warn;
use crate::cli::progress::Progress;
use crate::cli::shards::{self, Listing};
use crate::decode::{ImageFormat, image_info};
use crate::encode::encode_photo;
use crate::sample::FieldSelector;
use crate::shard::ShardOptions;
use crate::{Error, ErrorKind};

/// How deep folders are searched: enough for any image folder, and an end where links form a circle.
const DEPTH_MAX: usize = 16;

/// The files of a bench.
#[derive(Debug)]
pub(super) struct Photos {
    pub(super) files: Vec<Bytes>,
    pub(super) origin: Origin,
    /// Whether shards were damaged, or files with the name of a JPEG were none: they were told and are left out.
    pub(super) bad: bool,
}

/// Where they came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Origin {
    Folder,
    Shards,
    Generated,
}

impl Photos {
    /// At most `args.images` files from where the arguments say.
    pub(super) fn gather(args: &DecodeBenchArgs, threads: usize) -> anyhow::Result<Self> {
        let mut bad = false;
        let (named, origin) = match (&args.dir, &args.shards) {
            (Some(folder), _) => (from_folder(folder, args.images)?, Origin::Folder),
            (None, Some(pattern)) => (from_shards(pattern, args.images, &mut bad)?, Origin::Shards),
            (None, None) => (generated(args.images, threads), Origin::Generated),
        };
        let count = named.len();
        let files: Vec<Bytes> = named.into_iter().filter(is_jpeg).collect();
        if files.len() < count && !files.is_empty() {
            warn(&format!(
                "{} of {count} files are no JPEG, whatever their names say, and are left out",
                count - files.len()
            ));
            bad = true;
        }
        if files.is_empty() {
            let error = Error::new(ErrorKind::NotFound, "there are no JPEG files to decode");
            return Err(error.with_hint("leave --dir and --shards out to decode generated photos").into());
        }
        Ok(Self { files, origin, bad })
    }

    /// Bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.len() as u64).sum()
    }
}

fn from_folder(folder: &Path, count_max: usize) -> anyhow::Result<Vec<Bytes>> {
    let mut paths = Vec::new();
    collect(folder, DEPTH_MAX, &mut paths)?;
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        if files.len() == count_max {
            break;
        }
        let bytes = fs::read(&path).with_context(|| format!("cannot read '{}'", path.display()))?;
        files.push(Bytes::from(bytes));
    }
    Ok(files)
}

/// Adds the JPEG files below `folder`, by their names.
fn collect(folder: &Path, depth: usize, paths: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read the folder '{}'", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        let extension = path.extension().map(|extension| extension.to_ascii_lowercase());
        if path.is_dir() {
            if depth > 0 {
                collect(&path, depth - 1, paths)?;
            }
        } else if extension.is_some_and(|extension| extension == "jpg" || extension == "jpeg") {
            paths.push(path);
        }
    }
    Ok(())
}

fn from_shards(pattern: &str, count_max: usize, bad: &mut bool) -> anyhow::Result<Vec<Bytes>> {
    let selector = FieldSelector::parse("jpg;jpeg")?;
    let mut files = Vec::new();
    for path in shards::paths(&[pattern])? {
        let listing = Listing::read(&path, &ShardOptions::default())?;
        for field in listing.samples.iter().filter_map(|sample| sample.field(&selector)) {
            if files.len() == count_max {
                return Ok(files);
            }
            listing.shard.populate(field.range())?;
            // A copy of its own, so that storage plays no part in what is measured.
            let bytes = Bytes::copy_from_slice(&listing.shard.read(field.range())?);
            files.push(bytes);
        }
        *bad |= listing.tell_damage();
    }
    Ok(files)
}

/// Photos with the seeds 0, 1, 2 …, made on all threads.
fn generated(count: usize, threads: usize) -> Vec<Bytes> {
    let progress = Progress::new("making photos", count);
    let next = AtomicUsize::new(0);
    let made = thread::scope(|scope| {
        let makers: Vec<_> = (0..threads.min(count))
            .map(|_| {
                scope.spawn(|| {
                    let mut made = Vec::new();
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= count {
                            return made;
                        }
                        made.push((number, Bytes::from(encode_photo(number as u64))));
                        progress.set(number, count);
                    }
                })
            })
            .collect();
        // A maker cannot panic: a photo's settings are always in range.
        let mut made: Vec<(usize, Bytes)> =
            makers.into_iter().filter_map(|maker| maker.join().ok()).flatten().collect();
        made.sort_by_key(|(number, _)| *number);
        made
    });
    made.into_iter().map(|(_, bytes)| bytes).collect()
}

fn is_jpeg(bytes: &Bytes) -> bool {
    image_info(bytes).is_ok_and(|info| info.format == ImageFormat::Jpeg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_searched_for_what_has_the_name_of_a_jpeg() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("n01/deep");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("a.JPEG"), encode_photo(1)).unwrap();
        fs::write(folder.path().join("b.jpg"), encode_photo(2)).unwrap();
        fs::write(folder.path().join("d.txt"), encode_photo(3)).unwrap();
        assert_eq!(from_folder(folder.path(), 10).unwrap(), [encode_photo(2), encode_photo(1)]);
        assert_eq!(from_folder(folder.path(), 1).unwrap().len(), 1);
    }

    #[test]
    fn generated_photos_do_not_depend_on_the_threads() {
        assert_eq!(generated(3, 1), generated(3, 2));
    }
}
