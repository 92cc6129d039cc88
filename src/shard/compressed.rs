//! Compressed shards: opened as a stream of tar bytes, or inflated into memory within a limit.
//!
//! It knows nothing of members, and gives no random access: that needs the whole archive in memory.

use std::io::{self, BufReader, Cursor, Read};

use bytes::Bytes;

use super::sniff::Compression;
use super::store::Store;
use crate::error::{Error, ErrorKind, Result};

/// How many bytes of a file show its compression.
pub(super) const HEAD_BYTES: usize = 16;

/// How many compressed bytes are read at a time.
const READ_BYTES: u64 = 1 << 20;

/// The most memory that a decoder may take for its own tables and window, in bytes: what an xz header asks for is
/// allocated before a single byte is decoded.
const DECODER_BYTES_MAX: u64 = 512 << 20;

/// As [`DECODER_BYTES_MAX`], as the logarithm of a Zstandard window: 512 MiB, as `zstd --long=29` writes.
const ZSTD_WINDOW_LOG_MAX: u32 = 29;

/// The whole archive behind a compressed store, unless it is more than `limit_bytes`.
pub(super) fn inflate(store: &dyn Store, compression: Compression, limit_bytes: u64) -> Result<Bytes> {
    let archive = inflate_unchecked(store, compression, limit_bytes);
    // A file that changed under the decoder looks damaged; that it changed is what there is to tell.
    store.check()?;
    archive
}

fn inflate_unchecked(store: &dyn Store, compression: Compression, limit_bytes: u64) -> Result<Bytes> {
    let reader = decoder(compression, StoreReader { store, offset: 0, block: Bytes::new() });
    let mut archive = Vec::new();
    reader
        .and_then(|reader| reader.take(limit_bytes.saturating_add(1)).read_to_end(&mut archive))
        .map_err(|error| name(error, compression))?;
    if archive.len() as u64 > limit_bytes {
        let message = format!("the {} shard inflates to more than {limit_bytes} bytes", compression.as_str());
        let hint = "raise the memory limit, read it as a stream, or store it uncompressed";
        return Err(Error::new(ErrorKind::Limit, message).with_hint(hint));
    }
    archive.shrink_to_fit();
    Ok(archive.into())
}

/// A reader of tar bytes: inflates what is compressed, passes on what is not.
pub(super) struct TarReader {
    state: State,
    compression: Option<Compression>,
}

enum State {
    /// Nothing was read yet, so that it is not known whether and how the bytes are compressed.
    Fresh(Box<dyn Read + Send>),
    Open(Box<dyn Read + Send>),
    Failed,
}

impl TarReader {
    pub(super) fn new(reader: impl Read + Send + 'static) -> Self {
        Self { state: State::Fresh(Box::new(reader)), compression: None }
    }

    /// What an error of this reader means.
    pub(super) fn name(&self, error: io::Error) -> Error {
        match self.compression {
            Some(compression) => name(error, compression),
            None => Error::io("cannot read the shard", error),
        }
    }
}

impl Read for TarReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let State::Fresh(_) = self.state {
            let State::Fresh(mut reader) = std::mem::replace(&mut self.state, State::Failed) else { return Ok(0) };
            let mut head = Vec::with_capacity(HEAD_BYTES);
            reader.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head)?;
            self.compression = Compression::sniff(&head);
            let whole = Cursor::new(head).chain(reader);
            self.state = State::Open(match self.compression {
                Some(compression) => Box::new(decoder(compression, whole)?),
                None => Box::new(whole),
            });
        }
        match &mut self.state {
            State::Open(reader) => reader.read(buffer),
            State::Fresh(_) | State::Failed => Ok(0),
        }
    }
}

/// A decoder that goes on over the ends of members, streams or frames.
fn decoder<'r>(compression: Compression, reader: impl Read + Send + 'r) -> io::Result<Box<dyn Read + Send + 'r>> {
    Ok(match compression {
        Compression::Gzip => Box::new(flate2::read::MultiGzDecoder::new(reader)),
        Compression::Bzip2 => Box::new(bzip2::read::MultiBzDecoder::new(reader)),
        Compression::Xz => {
            let stream = liblzma::stream::Stream::new_stream_decoder(DECODER_BYTES_MAX, liblzma::stream::CONCATENATED)?;
            Box::new(liblzma::read::XzDecoder::new_stream(reader, stream))
        }
        Compression::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(BufReader::new(reader))?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
            Box::new(decoder)
        }
    })
}

/// What a decoder's error means: the storage failed, the file is cut, or its bytes are damaged.
fn name(error: io::Error, compression: Compression) -> Error {
    let error = match error.downcast::<Error>() {
        Ok(ours) => return ours,
        Err(error) => error,
    };
    let compression = compression.as_str();
    if error.raw_os_error().is_some() {
        return Error::io("cannot read the shard", error);
    }
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            Error::new(ErrorKind::Truncated, format!("the {compression} shard is cut")).with_source(error)
        }
        _ => {
            let message = format!("the {compression} shard is damaged, or needs more memory than allowed");
            Error::new(ErrorKind::BadHeader, message).with_source(error)
        }
    }
}

/// Reads a store from its start to its end.
struct StoreReader<'s> {
    store: &'s dyn Store,
    offset: u64,
    block: Bytes,
}

impl Read for StoreReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.block.is_empty() {
            let end = self.offset.saturating_add(READ_BYTES).min(self.store.len());
            self.block = self.store.read(self.offset..end).map_err(io::Error::other)?;
            self.offset = end;
        }
        let n = buffer.len().min(self.block.len());
        buffer[..n].copy_from_slice(&self.block.split_to(n));
        Ok(n)
    }
}
