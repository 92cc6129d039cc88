//! A place in a file that others read too: reading goes on from it and moves nothing that they see.

use std::borrow::Borrow;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

/// Reads on from `at`.
pub(super) struct Place<F> {
    pub(super) file: F,
    pub(super) at: u64,
}

impl<F: Borrow<File>> Read for Place<F> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.file.borrow().read_at(bytes, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}
