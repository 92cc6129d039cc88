//! A file under a temporary name until it is complete: readers see all of it or nothing.
//!
//! It promises nothing about a power failure: the system writes the bytes to disk when it likes.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A file that is being written; dropped before [`finish`](Self::finish), it leaves nothing behind.
///
/// ```
/// use std::io::Write;
///
/// use brimful::shard::Draft;
///
/// let folder = tempfile::tempdir()?;
/// let mut report = Draft::create(&folder.path().join("report.json"))?;
/// report.write_all(b"{}")?;
/// report.finish()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Draft {
    file: BufWriter<File>,
    /// The temporary name, hidden, in the folder of `target`; empty once it has been renamed.
    temporary: PathBuf,
    target: PathBuf,
}

/// Room for many small headers; data of more bytes goes to the file directly.
const BUFFER_BYTES: usize = 256 << 10;

/// How many temporary names are tried before giving up: others exist only where an earlier process was killed.
const NAMES_MAX: u32 = 1000;

impl Draft {
    /// Begins the file that will be at `target`, in a folder that exists.
    ///
    /// # Errors
    /// Those of creating a file; [`io::ErrorKind::InvalidInput`] when `target` has no file name.
    pub fn create(target: &Path) -> io::Result<Self> {
        let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let process = std::process::id();
        let mut error = io::Error::from(io::ErrorKind::AlreadyExists);
        for number in 0..NAMES_MAX {
            let mut hidden = OsString::from(".");
            hidden.push(name);
            hidden.push(format!(".{process}-{number}.part"));
            let temporary = target.with_file_name(hidden);
            match File::options().write(true).create_new(true).open(&temporary) {
                Ok(file) => {
                    let file = BufWriter::with_capacity(BUFFER_BYTES, file);
                    return Ok(Self { file, temporary, target: target.to_owned() });
                }
                Err(failed) if failed.kind() == io::ErrorKind::AlreadyExists => error = failed,
                Err(failed) => return Err(failed),
            }
        }
        Err(error)
    }

    /// Gives the complete file its name; a file that had it before is replaced.
    ///
    /// # Errors
    /// Those of writing what is still buffered and of renaming; the temporary file is then gone.
    pub fn finish(mut self) -> io::Result<PathBuf> {
        self.file.flush()?;
        fs::rename(&self.temporary, &self.target)?;
        self.temporary = PathBuf::new();
        Ok(std::mem::take(&mut self.target))
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.temporary.as_os_str().is_empty() {
            // Nothing can be done about a file that cannot be removed; its name tells what it is.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_draft_is_hidden_until_it_is_finished_and_gone_when_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a.tar");
        fs::write(&target, b"old").unwrap();
        let mut first = Draft::create(&target).unwrap();
        let second = Draft::create(&target).unwrap();
        first.write_all(b"new").unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"old");
        assert!(names(folder.path()).iter().all(|name| name == "a.tar" || name.starts_with('.')));
        drop(second);
        assert_eq!(first.finish().unwrap(), target);
        assert_eq!(fs::read(&target).unwrap(), b"new");
        assert_eq!(names(folder.path()), ["a.tar"]);
    }

    #[test]
    fn a_folder_that_does_not_exist_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Draft::create(&folder.path().join("no/a.tar")).is_err());
        assert!(Draft::create(Path::new("/")).is_err());
    }
}
