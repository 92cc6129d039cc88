//! Any bytes as a cache file: no panic, and unless its checksum is made right, the index of the shard all the same.
#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use brimful::shard::{IndexCache, ShardIndex, ShardOptions, ShardWriter, WriterOptions};
use libfuzzer_sys::fuzz_target;

/// A shard, its index, and the file that caches it, with the bytes that belong there.
struct Cached {
    shard: PathBuf,
    index: ShardIndex,
    cache: IndexCache,
    file: PathBuf,
    bytes: Vec<u8>,
    _folder: tempfile::TempDir,
}

static CACHED: LazyLock<Cached> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder");
    let shard = folder.path().join("a.tar");
    let mut writer = ShardWriter::new(shard.to_str().expect("UTF-8"), WriterOptions::default()).expect("a shard");
    for key in ["a", "b", "c"] {
        writer.write_sample(key, &[("cls", b"1")]).expect("a sample");
    }
    writer.finish().expect("a shard");
    let cache = IndexCache::at(folder.path().join("cache"));
    let index = cache.load_or_build(&shard, &ShardOptions::default()).expect("an index");
    let file = fs::read_dir(folder.path().join("cache")).expect("a folder").next().expect("a file").expect("a file");
    let bytes = fs::read(file.path()).expect("its bytes");
    Cached { shard, index, cache, file: file.path(), bytes, _folder: folder }
});

/// Magic and checksum.
const HEAD_BYTES: usize = 12;

fuzz_target!(|bytes: &[u8]| {
    let cached = &*CACHED;
    let options = ShardOptions::default();
    fs::write(&cached.file, bytes).expect("a file");
    assert_eq!(cached.cache.load_or_build(&cached.shard, &options).expect("an index"), cached.index);

    // The good file with some bytes changed and the checksum made right: whatever comes of it must hold together.
    let mut changed = cached.bytes.clone();
    for change in bytes.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % (changed.len() - HEAD_BYTES);
        changed[HEAD_BYTES + at] ^= change[2];
    }
    let mut sum = flate2::Crc::new();
    sum.update(&changed[HEAD_BYTES..]);
    changed[8..HEAD_BYTES].copy_from_slice(&sum.sum().to_le_bytes());
    fs::write(&cached.file, &changed).expect("a file");
    let index = cached.cache.load_or_build(&cached.shard, &options).expect("an index");
    assert_eq!(index.iter().count(), index.len());
    let _ = (index.fingerprint(), index.write_dali(Vec::new()));
});
