//! Bytes of a pipe or device, read as they come: whoever waits for them can be called back at any time.
//!
//! It is no store, since nothing can be read twice; and it takes no notice of what the bytes are.

use std::fs::File;
use std::io::{self, Read};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::{Error, ErrorKind};

/// How long a wait for bytes goes on before the reader asks whether they are still wanted: 0.1 s.
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// A reader of a file that was opened without waiting, so that a read says when there is nothing yet.
///
/// A named pipe that nobody has opened for writing has not ended: its writer is waited for.
pub(super) struct PipeReader<W> {
    file: File,
    is_wanted: W,
}

impl<W: Fn() -> bool> PipeReader<W> {
    pub(super) fn new(file: File, is_wanted: W) -> Self {
        Self { file, is_wanted }
    }
}

impl<W: Fn() -> bool> Read for PipeReader<W> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while (self.is_wanted)() {
            match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&WAIT)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            match self.file.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
        Err(io::Error::other(Error::new(ErrorKind::Cancelled, "nobody waits for the shard's bytes any more")))
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::io::Write;
    use std::path::{Path, PathBuf};

    use crate::shard::identity::open_at_once;

    fn pipe(folder: &Path) -> PathBuf {
        let path = folder.join("a.tar");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        path
    }

    #[test]
    fn a_writer_that_comes_late_is_read_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = pipe(folder.path());
        let asked = Cell::new(0);
        let writer = Cell::new(None);
        let is_wanted = || {
            asked.set(asked.get() + 1);
            match (asked.get(), writer.take()) {
                // By now the reader has waited once in vain.
                (2, _) => writer.set(Some(File::options().write(true).open(&path).unwrap())),
                (3, Some(mut file)) => {
                    file.write_all(b"bytes").unwrap();
                    writer.set(Some(file));
                }
                // Dropped: the writer is gone.
                _ => {}
            }
            true
        };
        let mut bytes = Vec::new();
        PipeReader::new(open_at_once(&path).unwrap(), is_wanted).read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, b"bytes");
    }

    #[test]
    fn a_wait_ends_when_nobody_wants_the_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let asked = Cell::new(0);
        let is_wanted = || {
            asked.set(asked.get() + 1);
            asked.get() < 3
        };
        let mut reader = PipeReader::new(open_at_once(&pipe(folder.path())).unwrap(), is_wanted);
        let error = reader.read(&mut [0; 8]).unwrap_err().downcast::<Error>().unwrap();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
    }
}
