//! Compressed bytes, damaged at will: no panic, never more than the limit, whole bytes whole again, and a stream reads
//! what memory holds.
#![no_main]

use std::io::{Cursor, Write};

use brimful::ErrorKind;
use brimful::shard::{Compression, Shard, ShardIndex, ShardOptions, ShardStream};
use libfuzzer_sys::fuzz_target;

/// No more than this is inflated, in bytes.
const MEMORY_LIMIT_BYTES: u64 = 1 << 20;

/// A way of compression and its level, where to cut, bytes to change, and what is compressed.
type Input<'a> = (u8, Option<u16>, Vec<(u16, u8)>, &'a [u8]);

fuzz_target!(|input: Input| {
    let (choice, cut, changes, archive) = input;
    let whole = compress(choice, archive).expect("into memory");
    let inflated = open(&whole, archive.len() as u64).expect("it is whole");
    assert_eq!(inflated.read(0..inflated.len()).expect("all of it"), archive);
    if let Some(limit) = (archive.len() as u64).checked_sub(1) {
        assert_eq!(open(&whole, limit).expect_err("it is one byte too much").kind(), ErrorKind::Limit);
    }

    let mut damaged = whole;
    let len = damaged.len();
    for (at, change) in changes {
        damaged[usize::from(at) % len] ^= change;
    }
    damaged.truncate(cut.map_or(len, |cut| usize::from(cut) % len));
    check(&damaged);
    // And bytes that nothing has compressed.
    check(archive);
});

fn check(bytes: &[u8]) {
    let shard = match open(bytes, MEMORY_LIMIT_BYTES) {
        Ok(shard) => shard,
        Err(error) => {
            let kinds = [ErrorKind::Truncated, ErrorKind::BadHeader, ErrorKind::Limit];
            assert!(kinds.contains(&error.kind()), "{error}");
            return;
        }
    };
    if Compression::sniff(bytes).is_some() {
        assert!(shard.len() <= MEMORY_LIMIT_BYTES);
    } else {
        assert_eq!(shard.len(), bytes.len() as u64);
    }
    let (index, damage) = ShardIndex::build_partial(&shard);
    let stream = ShardStream::from_reader("fuzz.tar", Cursor::new(bytes.to_vec()), &options(MEMORY_LIMIT_BYTES));
    let results: Vec<_> = stream.collect();
    assert_eq!(damage.is_some(), results.iter().any(Result::is_err));
    assert!(results.iter().flatten().count() >= index.len());
}

fn open(bytes: &[u8], memory_limit_bytes: u64) -> brimful::Result<Shard> {
    Shard::from_bytes_with("fuzz.tar", bytes.to_vec().into(), &options(memory_limit_bytes))
}

fn options(memory_limit_bytes: u64) -> ShardOptions {
    ShardOptions { memory_limit_bytes, ..ShardOptions::default() }
}

fn compress(choice: u8, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let level = u32::from(choice >> 2) % 4;
    match choice % 4 {
        0 => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(level));
            encoder.write_all(bytes)?;
            encoder.finish()
        }
        1 => {
            let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
            encoder.write_all(bytes)?;
            encoder.finish()
        }
        2 => {
            let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 0);
            encoder.write_all(bytes)?;
            encoder.finish()
        }
        _ => {
            let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), level as i32)?;
            encoder.include_checksum(choice & 128 != 0)?;
            encoder.write_all(bytes)?;
            encoder.finish()
        }
    }
}
