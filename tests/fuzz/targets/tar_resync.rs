//! Any bytes as an archive, going on behind damage: no panic, no error but one at the start, and every loss counted.
#![no_main]

use brimful::ErrorKind;
use brimful::shard::{Damage, Shard, ShardIndex, ShardOptions};
use libfuzzer_sys::fuzz_target;

#[path = "tar/checksum.rs"]
mod checksum;

/// No more than this is inflated, in bytes.
const MEMORY_LIMIT_BYTES: u64 = 16 << 20;

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    check(&checksum::mended(bytes));
});

fn check(bytes: &[u8]) {
    let strict = ShardOptions { memory_limit_bytes: MEMORY_LIMIT_BYTES, ..ShardOptions::default() };
    let resync = ShardOptions { damage: Damage::Resync, ..strict };
    let Ok(shard) = Shard::from_bytes_with("fuzz.tar", bytes.to_vec().into(), &resync) else { return };
    let (index, error) = ShardIndex::build_partial(&shard);
    let report = index.report();
    if let Some(error) = error {
        assert_eq!(error.kind(), ErrorKind::NotTar, "{error}");
        assert!(index.is_empty());
        return;
    }
    let mut end = 0;
    for loss in &report.losses {
        assert!(loss.offset >= end && loss.bytes > 0, "losses out of order");
        end = loss.offset + loss.bytes;
        assert!(end <= shard.len());
    }
    assert!(report.lost_bytes <= shard.len() && report.resyncs >= report.losses.len() as u64);

    // What strict rules read before the damage is read here too, and nothing is lost where they see no damage.
    let shard = Shard::from_bytes_with("fuzz.tar", bytes.to_vec().into(), &strict).expect("opened before");
    let (good, error) = ShardIndex::build_partial(&shard);
    assert!(index.iter().zip(good.iter()).all(|(a, b)| a == b) && index.len() >= good.len());
    assert_eq!(error.is_none(), report.is_whole(), "damage that only one of them sees");
}
