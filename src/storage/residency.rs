//! Which pages of a file are in the page cache, and how they get out of it or into it: what makes a figure cold or warm.
//!
//! It never drops the caches of the whole system, and it knows only this machine's cache: servers and hypervisors have
//! caches of their own.

use std::fs::File;
use std::path::Path;

use memmap2::MmapOptions;

use crate::error::{Error, Result};

/// Bytes of a file that are asked about at a time.
const WINDOW_BYTES: u64 = 1 << 30;

/// Bytes that are read at a time to warm a file up.
const READ_BYTES: usize = 1 << 20;

/// The share of the file's pages that are in the page cache, 0 to 1; `None` where the kernel does not tell this user.
///
/// # Errors
/// Those of opening and mapping the file.
pub fn resident_share(path: &Path) -> Result<Option<f64>> {
    let named = |message: &str, error| Error::io(message.to_owned(), error).in_shard(path.to_string_lossy().as_ref());
    let file = File::open(path).map_err(|error| named("cannot open the shard", error))?;
    let metadata = file.metadata().map_err(|error| named("cannot look at the shard", error))?;
    if metadata.len() == 0 || !may_ask(path, &metadata) {
        return Ok(None);
    }
    let page = rustix::param::page_size() as u64;
    let (mut resident, mut pages) = (0, 0);
    let mut offset = 0;
    while offset < metadata.len() {
        let len = (metadata.len() - offset).min(WINDOW_BYTES);
        let states = residency(&file, offset, len as usize, page as usize)
            .map_err(|error| named("cannot ask which pages are resident", error))?;
        resident += states.iter().filter(|state| *state & 1 == 1).count();
        pages += states.len();
        offset += len;
    }
    Ok(Some(resident as f64 / pages.max(1) as f64))
}

/// Since Linux 5.2 whoever neither owns a file nor may write to it is told that all of its pages are resident.
fn may_ask(path: &Path, metadata: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    let user = rustix::process::geteuid();
    user.is_root() || metadata.uid() == user.as_raw() || rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
}

/// A byte for each page of the window, whose lowest bit says whether it is resident.
fn residency(file: &File, offset: u64, len: usize, page_bytes: usize) -> std::io::Result<Vec<u8>> {
    // SAFETY: the map is never read: only its address is used, below, and it ends with this function. So neither
    // changes to the file nor its shrinking can be seen through it.
    let map = unsafe { MmapOptions::new().offset(offset).len(len).map(file) }?;
    let mut states = vec![0_u8; len.div_ceil(page_bytes)];
    // SAFETY: the address and length are those of the live map above, which begins at a page. mincore writes one byte
    // for each page of it, which is what `states` has room for, and reads no memory.
    let answer = unsafe { libc::mincore(map.as_ptr() as *mut libc::c_void, len, states.as_mut_ptr().cast()) };
    match answer {
        0 => Ok(states),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Asks the kernel to take a file's pages out of the page cache; what is not on disk yet is written first. Pages that
/// someone maps stay.
///
/// # Errors
/// Those of opening the file; advice that is not taken shows in [`resident_share`].
pub fn evict(path: &Path) -> Result<()> {
    let file = File::open(path)
        .map_err(|error| Error::io("cannot open the shard", error).in_shard(path.to_string_lossy().as_ref()))?;
    // Pages that wait to be written cannot be dropped. A file that cannot be written to disk now stays in the cache.
    let _ = file.sync_data();
    #[cfg(target_os = "linux")]
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    Ok(())
}

/// Reads the file once, so that its pages are in the page cache as far as there is room.
///
/// # Errors
/// Those of opening and reading the file.
pub fn warm(path: &Path) -> Result<()> {
    use std::io::Read;
    let named = |error| Error::io("cannot read the shard", error).in_shard(path.to_string_lossy().as_ref());
    let mut file = File::open(path).map_err(named)?;
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(named(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::filesystem_of;

    #[test]
    fn a_file_is_warmed_and_evicted() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = folder.path().join("a.tar");
        std::fs::write(&path, vec![1; 300_000]).unwrap();
        warm(&path).unwrap();
        assert_eq!(resident_share(&path).unwrap(), Some(1.0));
        evict(&path).unwrap();
        let name = filesystem_of(folder.path()).unwrap().name;
        if ["ext4", "xfs", "btrfs"].contains(&&*name) {
            assert_eq!(resident_share(&path).unwrap(), Some(0.0));
        }
    }

    #[test]
    fn a_file_without_pages_has_no_share_of_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("empty");
        std::fs::write(&path, b"").unwrap();
        assert_eq!(resident_share(&path).unwrap(), None);
        assert!(resident_share(&folder.path().join("none")).is_err());
    }
}
