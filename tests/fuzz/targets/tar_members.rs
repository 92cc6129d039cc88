//! Any bytes as an archive, by strict rules: no panic, members that lie inside, and the same ones from a stream.
#![no_main]

use std::io::Cursor;

use brimful::shard::{MemberKind, Shard, ShardIndex, ShardOptions, ShardStream};
use libfuzzer_sys::fuzz_target;

#[path = "tar/checksum.rs"]
mod checksum;

/// No more than this is inflated or held for one member, in bytes.
const MEMORY_LIMIT_BYTES: u64 = 16 << 20;

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    check(&checksum::mended(bytes));
});

fn check(bytes: &[u8]) {
    let options = ShardOptions { memory_limit_bytes: MEMORY_LIMIT_BYTES, ..ShardOptions::default() };
    let Ok(shard) = Shard::from_bytes_with("fuzz.tar", bytes.to_vec().into(), &options) else { return };
    let (index, error) = ShardIndex::build_partial(&shard);
    let mut data_end = 0;
    for file in index.iter() {
        assert!(file.offset >= data_end, "members overlap");
        data_end = file.offset + file.size;
        assert!(data_end <= shard.len(), "a member reaches beyond the archive");
    }

    let mut files = index.iter();
    for member in ShardStream::from_reader("fuzz.tar", Cursor::new(bytes.to_vec()), &options) {
        let Ok((member, data)) = member else {
            assert!(error.is_some(), "only the stream sees damage");
            return;
        };
        if member.kind == MemberKind::File {
            let Some(file) = files.next() else { panic!("only the stream sees the member") };
            assert_eq!((file.name, file.offset, file.size), (&member.name[..], member.offset, member.size));
            assert_eq!(shard.read(file.offset..file.offset + file.size).expect("inside"), data);
        }
    }
    assert!(error.is_none(), "only the walk by pages sees damage");
    assert!(files.next().is_none(), "only the walk by pages sees the member");
}
