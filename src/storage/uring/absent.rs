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

pub(in crate::storage) fn run(
    _files: &[DirectFile],
    _feed: &mut Feed<'_>,
    _depth: usize,
    _request_bytes_max: usize,
    _registered: bool,
) -> Result<(), (Error, Option<usize>)> {
    Err((error(), None))
}
