//! Shards compared with the description of their data set: all are there, with the bytes that it says.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use twox_hash::XxHash3_128;

use super::finding::{Finding, FindingKind, Findings};
use super::finding_of;
use crate::convert::Dataset;
use crate::convert::crew::each;
use crate::error::{Error, ErrorKind, Result};

/// Bytes that are read at a time.
const READ_BYTES: usize = 1 << 20;

/// Compares the shards at `paths` with the `dataset.json` of their folders.
///
/// # Errors
/// [`ErrorKind::NotFound`] for a folder without one; those of reading it.
pub(super) fn compare(
    paths: &[PathBuf],
    threads: usize,
    progress: &(dyn Fn(usize, usize) + Sync),
    findings: &mut Findings,
) -> Result<()> {
    let mut datasets: BTreeMap<PathBuf, BTreeMap<String, (u64, String)>> = BTreeMap::new();
    for folder in paths.iter().map(|path| folder_of(path)) {
        if datasets.contains_key(&folder) {
            continue;
        }
        let dataset = Dataset::read(&folder)?.ok_or_else(|| {
            let message = format!("there is no dataset.json in '{}' to compare hashes with", folder.display());
            Error::new(ErrorKind::NotFound, message).with_hint("leave --hash out: only conversions write hashes")
        })?;
        let shards = dataset.splits.into_iter().flat_map(|split| split.shards);
        datasets.insert(folder, shards.map(|shard| (shard.name, (shard.bytes, shard.hash))).collect());
    }
    let results = each(paths, threads, |path| compare_one(path, &datasets), progress);
    results.into_iter().flatten().for_each(|finding| findings.add(finding));
    for (folder, shards) in datasets {
        for path in shards.keys().map(|name| folder.join(name)).filter(|path| !path.exists()) {
            findings.add(Finding::new(
                FindingKind::MissingShard,
                &path,
                "dataset.json names the shard, but it is not there",
            ));
        }
    }
    Ok(())
}

type Shards = BTreeMap<String, (u64, String)>;

fn compare_one(path: &Path, datasets: &BTreeMap<PathBuf, Shards>) -> Option<Finding> {
    let mismatch = |message: String| Some(Finding::new(FindingKind::HashMismatch, path, message));
    let name = path.file_name()?.to_string_lossy();
    let Some((bytes, hash)) = datasets.get(&folder_of(path))?.get(&*name) else {
        return mismatch("dataset.json does not know the shard".into());
    };
    match hash_file(path) {
        Ok((found, _)) if found != *bytes => {
            mismatch(format!("dataset.json says {bytes} bytes, the shard has {found}"))
        }
        Ok((_, found)) if found != *hash => {
            mismatch(format!("dataset.json says the hash {hash}, the shard has {found}"))
        }
        Ok(_) => None,
        Err(error) => Some(finding_of(FindingKind::Unreadable, path, &Error::io("cannot read the shard", error))),
    }
}

/// Length and hash of a file.
pub(in crate::convert) fn hash_file(path: &Path) -> io::Result<(u64, String)> {
    let mut file = File::open(path)?;
    let (mut hash, mut bytes) = (XxHash3_128::new(), 0);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok((bytes, format!("{:032x}", hash.finish_128()))),
            Ok(count) => {
                hash.write(&buffer[..count]);
                bytes += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => ".".into(),
    }
}
