//! Shards through the public API: opened by map and by reads, damaged, compressed, streamed, indexed.
//!
//! The rules of the format have their tests beside the parser; here they meet files.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use brimful::shard::{
    Damage, Headers, IndexCache, IoMethod, Loss, Shard, ShardIndex, ShardOptions, ShardStream, ShardWriter,
    WriterOptions, build_indexes,
};
use brimful::{Error, ErrorKind, Result};

/// A shard of `samples` samples, each of a `cls` and a `jpg` of some hundred bytes.
fn write_shard(path: &Path, samples: usize, headers: Headers) -> Result<()> {
    let pattern = path.to_str().expect("a UTF-8 path");
    let mut writer = ShardWriter::new(pattern, WriterOptions { headers, ..WriterOptions::default() })?;
    for i in 0..samples {
        let photo = vec![u8::try_from(i % 251).unwrap_or(0); 300 + i * 7];
        writer.write_sample(&format!("{i:06}"), &[("cls", b"1"), ("jpg", &photo)])?;
    }
    writer.finish().map(drop)
}

fn shard_bytes(samples: usize) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.tar");
    write_shard(&path, samples, Headers::Pax).expect("a shard");
    fs::read(path).expect("its bytes")
}

fn in_folder(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("shard.tar");
    fs::write(&path, bytes).expect("a file");
    (folder, path)
}

#[test]
fn maps_reads_and_streams_give_the_same_members_and_data() -> Result<()> {
    for headers in [Headers::Plain, Headers::Pax] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.tar");
        write_shard(&path, 20, headers)?;
        let options = ShardOptions::default();
        let streamed = ShardStream::open(&path, &options)?.collect::<Result<Vec<_>>>()?;
        assert_eq!(streamed.len(), 40);
        for io in [IoMethod::Mmap, IoMethod::Read, IoMethod::Auto] {
            let shard = Shard::open(&path, &ShardOptions { io, ..options })?;
            let members = shard.members().collect::<Result<Vec<_>>>()?;
            assert!(members.iter().eq(streamed.iter().map(|(member, _)| member)));
            for (member, data) in &streamed {
                assert_eq!(shard.read(member.offset..member.offset + member.size)?, data);
            }
        }
    }
    Ok(())
}

#[test]
fn an_index_lists_the_files_that_the_members_show() -> Result<()> {
    let shard = Shard::from_bytes("a.tar", shard_bytes(9).into());
    let index = ShardIndex::build(&shard)?;
    let members = shard.members().collect::<Result<Vec<_>>>()?;
    assert_eq!(index.len(), 18);
    for (file, member) in index.iter().zip(&members) {
        assert_eq!((file.name, file.offset, file.size), (&member.name[..], member.offset, member.size));
    }
    assert!(index.report().is_whole());
    assert_eq!(index.report().files, 18);
    Ok(())
}

#[test]
fn a_damaged_shard_is_an_error_by_strict_rules_and_a_counted_loss_by_resync() -> Result<()> {
    let mut bytes = shard_bytes(5);
    let good = ShardIndex::build(&Shard::from_bytes("good", bytes.clone().into()))?;
    let header_offset = good.member(4).offset - 512;
    bytes[header_offset as usize..][..512].fill(b'x');
    let (_folder, path) = in_folder(&bytes);

    let shard = Shard::open(&path, &ShardOptions::default())?;
    let (before, error) = ShardIndex::build_partial(&shard);
    let error = error.expect("an error");
    assert_eq!((before.len(), error.kind(), error.place().offset), (4, ErrorKind::BadHeader, Some(header_offset)));
    assert_eq!(error.place().shard.as_deref(), path.to_str());
    assert_eq!(ShardIndex::build(&shard).expect_err("the same").to_string(), error.to_string());

    let resync = ShardOptions { damage: Damage::Resync, ..ShardOptions::default() };
    let index = ShardIndex::build(&Shard::open(&path, &resync)?)?;
    assert_eq!(index.len(), 9);
    let losses = &index.report().losses;
    // With its PAX header, the header and its data.
    assert_eq!(losses[..], [Loss { offset: header_offset - 1024, bytes: 512 * 4 }]);
    assert_ne!(index.fingerprint(), good.fingerprint());

    let mut stream = ShardStream::open(&path, &resync)?;
    assert_eq!(stream.by_ref().filter(Result::is_ok).count(), 9);
    assert_eq!(stream.report(), index.report());
    Ok(())
}

#[test]
fn what_is_no_archive_is_told_by_what_it_looks_like() {
    let check = |bytes: &[u8], word: &str| {
        let (_folder, path) = in_folder(bytes);
        let by_shard = Shard::open(&path, &ShardOptions::default()).and_then(|shard| ShardIndex::build(&shard)).err();
        let by_stream = ShardStream::open(&path, &ShardOptions::default()).ok().and_then(|mut stream| stream.next());
        for error in [by_shard, by_stream.and_then(Result::err)] {
            let error: Error = error.expect("an error");
            assert_eq!(error.kind(), ErrorKind::NotTar);
            assert!(error.message().contains(word), "{error} does not say {word}");
        }
    };
    check(b"", "empty");
    check(b"x", "1 bytes");
    check(&[0; 100], "100 bytes");
    check(b"<!DOCTYPE html><html><body>403</body></html>", "HTML");
    check(&[&b"PK\x03\x04"[..], &[9; 2000]].concat(), "zip");
    check(&[0xab; 2000], "no header");
}

#[test]
fn a_compressed_shard_is_inflated_within_the_limit_or_streamed() -> Result<()> {
    let bytes = shard_bytes(12);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&bytes).expect("memory");
    let gzip = encoder.finish().expect("memory");
    let zstd = zstd::encode_all(&bytes[..], 1).expect("memory");
    let plain = ShardIndex::build(&Shard::from_bytes("a", bytes.clone().into()))?;
    for compressed in [gzip, zstd] {
        let (_folder, path) = in_folder(&compressed);
        let options = ShardOptions::default();
        assert_eq!(ShardIndex::build(&Shard::open(&path, &options)?)?, plain);
        assert_eq!(ShardStream::open(&path, &options)?.filter(Result::is_ok).count(), 24);

        let small = ShardOptions { memory_limit_bytes: bytes.len() as u64 - 1, ..options };
        let error = Shard::open(&path, &small).expect_err("too large");
        assert_eq!(error.kind(), ErrorKind::Limit);
        assert_eq!(ShardStream::open(&path, &small)?.filter(Result::is_ok).count(), 24);
        let tiny = ShardOptions { memory_limit_bytes: 310, ..options };
        let error = ShardStream::open(&path, &tiny)?.find_map(Result::err).expect("a member too large");
        assert_eq!(error.kind(), ErrorKind::Limit);

        let (_folder, cut) = in_folder(&compressed[..compressed.len() - 9]);
        assert_eq!(Shard::open(&cut, &options).expect_err("cut").kind(), ErrorKind::Truncated);
        let error = ShardStream::open(&cut, &options)?.find_map(Result::err).expect("cut");
        assert_eq!((error.kind(), error.place().shard.as_deref()), (ErrorKind::Truncated, cut.to_str()));
    }
    Ok(())
}

#[test]
fn a_shard_that_shrinks_while_it_is_walked_is_an_error() -> Result<()> {
    for io in [IoMethod::Mmap, IoMethod::Read] {
        let bytes = shard_bytes(200);
        let (_folder, path) = in_folder(&bytes);
        let shard = Shard::open(&path, &ShardOptions { io, ..ShardOptions::default() })?;
        let mut members = shard.members();
        assert!(members.next().is_some_and(|member| member.is_ok()));
        fs::File::options().write(true).open(&path).and_then(|file| file.set_len(8192)).expect("a shorter file");
        let error = members.find_map(Result::err).expect("an error");
        assert_eq!(error.kind(), ErrorKind::ShardChanged);
        assert!(members.next().is_none());
    }
    Ok(())
}

#[test]
fn a_cache_serves_indexes_of_unchanged_shards() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let paths: Vec<PathBuf> = (0..4).map(|i| folder.path().join(format!("{i}.tar"))).collect();
    for (i, path) in paths.iter().enumerate() {
        write_shard(path, i + 1, Headers::Plain)?;
    }
    let options = ShardOptions::default();
    let cache = IndexCache::at(folder.path().join("cache"));
    let built = build_indexes(&paths, &options, Some(&cache), 2, &|_, _| {})?;
    assert!(built.iter().map(ShardIndex::len).eq([2, 4, 6, 8]));
    assert_eq!(build_indexes(&paths, &options, Some(&cache), 2, &|_, _| {})?, built);
    assert_eq!(build_indexes(&paths, &options, None, 1, &|_, _| {})?, built);
    Ok(())
}
