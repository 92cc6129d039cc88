//! A file under a temporary name until it is complete: readers see all of it or nothing.
//!
//! It promises nothing about a power failure: the system writes the bytes to disk when it likes. Only files are replaced:
//! links are followed, and a device or a pipe is written to as it is.

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
    /// The temporary name, hidden, in the folder of `target`; empty where nothing is to be renamed, or nothing more.
    temporary: PathBuf,
    target: PathBuf,
    /// The name as it was given, which may be a link.
    name: PathBuf,
}

/// What stands where a draft shall go.
#[derive(Debug)]
enum Place {
    Nothing(PathBuf),
    File(PathBuf, fs::Permissions),
    /// A device, a pipe, a socket: it cannot be replaced, only written to.
    Open(File),
}

/// Links that are followed from one to the next: as many as the system follows.
const LINKS_MAX: usize = 40;

impl Place {
    fn of(name: &Path) -> io::Result<Self> {
        let found = match fs::metadata(name) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Self::missing(name),
            Err(error) => return Err(error),
        };
        // Asked of the system, which knows what this user may write to. A pipe waits here for its reader.
        let file = File::options().write(true).open(name)?;
        match found.is_file() {
            true => Ok(Self::File(fs::canonicalize(name)?, found.permissions())),
            false => Ok(Self::Open(file)),
        }
    }

    /// The name that does not exist yet: where links lead to nothing, the last one's.
    fn missing(name: &Path) -> io::Result<Self> {
        let mut target = name.to_owned();
        for _ in 0..LINKS_MAX {
            match fs::read_link(&target) {
                Ok(next) => target = target.with_file_name("").join(next),
                Err(_) => return Ok(Self::Nothing(target)),
            }
        }
        Err(io::Error::other("too many links"))
    }
}

/// Room for many small headers; data of more bytes goes to the file directly.
const BUFFER_BYTES: usize = 256 << 10;

/// How many temporary names are tried before giving up: others exist only where an earlier process was killed.
const NAMES_MAX: u32 = 1000;

impl Draft {
    /// Begins the file that will be at `path`, in a folder that exists. A file that it replaces passes its permissions on.
    ///
    /// # Errors
    /// Those of creating a file, and of opening one that is there for writing; [`io::ErrorKind::InvalidInput`] when
    /// `path` has no file name.
    pub fn create(path: &Path) -> io::Result<Self> {
        path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let (target, permissions) = match Place::of(path)? {
            Place::Nothing(target) => (target, None),
            Place::File(target, permissions) => (target, Some(permissions)),
            Place::Open(file) => {
                let (temporary, target) = (PathBuf::new(), path.to_owned());
                let file = BufWriter::with_capacity(BUFFER_BYTES, file);
                return Ok(Self { file, temporary, target, name: path.to_owned() });
            }
        };
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
                    let draft = Self { file, temporary, target, name: path.to_owned() };
                    if let Some(permissions) = permissions {
                        draft.file.get_ref().set_permissions(permissions)?;
                    }
                    return Ok(draft);
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
        if !self.temporary.as_os_str().is_empty() {
            fs::rename(&self.temporary, &self.target)?;
            self.temporary = PathBuf::new();
        }
        Ok(std::mem::take(&mut self.name))
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn write_vectored(&mut self, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.file.write_vectored(parts)
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
    fn a_link_is_followed_and_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (link, file) = (folder.path().join("link"), folder.path().join("file"));
        std::os::unix::fs::symlink("file", &link).unwrap();
        for text in ["new", "newer"] {
            let mut draft = Draft::create(&link).unwrap();
            draft.write_all(text.as_bytes()).unwrap();
            assert_eq!(draft.finish().unwrap(), link);
            assert!(link.is_symlink());
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
        std::os::unix::fs::symlink("round", folder.path().join("round")).unwrap();
        assert!(Draft::create(&folder.path().join("round")).is_err());
    }

    #[test]
    fn a_file_that_is_replaced_keeps_its_permissions() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, b"").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        Draft::create(&path).unwrap().finish().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn what_is_no_file_is_written_to_and_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read_to_string(pipe).unwrap()
        });
        let mut draft = Draft::create(&pipe).unwrap();
        draft.write_all(b"through").unwrap();
        draft.finish().unwrap();
        assert_eq!(reader.join().unwrap(), "through");
        assert_eq!(names(folder.path()), ["pipe"]);
        // It takes anything and keeps nothing: what does not fit is an error.
        if Path::new("/dev/full").exists() {
            let mut full = Draft::create(Path::new("/dev/full")).unwrap();
            full.write_all(b"too much").unwrap();
            assert_eq!(full.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
        }
    }

    #[test]
    fn a_folder_that_does_not_exist_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Draft::create(&folder.path().join("no/a.tar")).is_err());
        assert!(Draft::create(Path::new("/")).is_err());
        assert!(Draft::create(folder.path()).is_err());
    }
}
