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
            None => error.downcast().unwrap_or_else(|error| Error::io("cannot read the shard", error)),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::MemoryStore;
    use std::io::Write;

    const ALL: [Compression; 4] = [Compression::Gzip, Compression::Bzip2, Compression::Xz, Compression::Zstd];

    fn compress(compression: Compression, bytes: &[u8]) -> Vec<u8> {
        match compression {
            Compression::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
            Compression::Bzip2 => {
                let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
            Compression::Xz => {
                let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
            Compression::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
                encoder.include_checksum(true).unwrap();
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
        }
    }

    fn text() -> Vec<u8> {
        (0..250_u32).flat_map(|i| (i * i).to_le_bytes()).collect()
    }

    fn inflate(bytes: &[u8], limit_bytes: u64) -> Result<Bytes> {
        let compression = Compression::sniff(bytes).expect("compressed bytes");
        super::inflate(&MemoryStore::new(bytes.to_vec().into()), compression, limit_bytes)
    }

    fn stream(bytes: &[u8]) -> Result<Vec<u8>> {
        let mut reader = TarReader::new(Cursor::new(bytes.to_vec()));
        let mut out = Vec::new();
        reader.read_to_end(&mut out).map_err(|error| reader.name(error))?;
        Ok(out)
    }

    #[test]
    fn what_was_compressed_comes_back_also_from_several_streams() {
        let text = text();
        for compression in ALL {
            let once = compress(compression, &text);
            assert_eq!(Compression::sniff(&once), Some(compression));
            assert_eq!(inflate(&once, text.len() as u64).unwrap(), text);
            assert_eq!(stream(&once).unwrap(), text);
            let twice = [once.clone(), compress(compression, b""), once].concat();
            assert_eq!(inflate(&twice, 1 << 20).unwrap(), [&text[..], &text].concat());
            assert_eq!(stream(&twice).unwrap(), [&text[..], &text].concat());
        }
        assert_eq!(stream(&text).unwrap(), text);
        assert_eq!(stream(b"").unwrap(), b"");
    }

    #[test]
    fn a_cut_is_an_error_wherever_it_falls() {
        for compression in ALL {
            let whole = compress(compression, &text());
            for end in 6..whole.len() {
                let Some(sniffed) = Compression::sniff(&whole[..end]) else { continue };
                assert_eq!(sniffed, compression);
                for result in [inflate(&whole[..end], 1 << 20).map(drop), stream(&whole[..end]).map(drop)] {
                    let error = result.expect_err(&format!("{compression:?} cut at {end} of {}", whole.len()));
                    assert_eq!(error.kind(), ErrorKind::Truncated, "{compression:?} cut at {end}: {error}");
                }
            }
        }
    }

    #[test]
    fn damaged_streams_are_errors_and_never_panic() {
        for compression in ALL {
            let whole = compress(compression, &text());
            for at in (10..whole.len()).step_by(7) {
                let mut damaged = whole.clone();
                damaged[at] ^= 0x55;
                // A byte that no checksum covers, such as a time in a gzip header, may change.
                if let Ok(inflated) = inflate(&damaged, 1 << 20) {
                    assert_eq!(inflated, text(), "{compression:?} at {at}");
                }
            }
            let junk = [&whole[..], b"junk behind"].concat();
            assert!(inflate(&junk, 1 << 20).is_err(), "{compression:?}");
        }
    }

    #[test]
    fn the_limit_holds_whatever_the_file_says() {
        for compression in ALL {
            let bomb = compress(compression, &vec![0; 1 << 20]);
            let error = inflate(&bomb, (1 << 20) - 1).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Limit);
            assert!(error.hint().is_some());
            assert_eq!(inflate(&bomb, 1 << 20).unwrap().len(), 1 << 20);
        }
    }
}
