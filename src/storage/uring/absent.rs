//! What a build without io_uring has instead: an error that names the feature.

use super::super::feed::Feed;
use crate::error::{Error, ErrorKind, Result};
use crate::shard::direct::DirectFile;

pub(super) fn error() -> Error {
    Error::new(ErrorKind::Unsupported, "io_uring is not built in")
        .with_hint("build with the feature io-uring (on Linux), or use another method")
}

pub(in crate::storage) fn check(_registered: bool) -> Result<()> {
    Err(error())
}

/// The queue that cannot be made.
#[derive(Debug)]
pub(in crate::storage) enum Queue {}

impl Queue {
    pub(in crate::storage) fn new(
        _depth: usize,
        _buffer_bytes: u64,
        _alignment: u64,
        _registered: bool,
    ) -> Result<Self> {
        Err(error())
    }

    pub(in crate::storage) fn run(
        &mut self,
        _files: &[DirectFile],
        _feed: &mut Feed<'_>,
    ) -> Result<(), (Error, Option<usize>)> {
        match *self {}
    }
}
