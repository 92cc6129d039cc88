//! Any bytes as a shard: no panic, and what is repaired of it is whole, grouped, and has each key once.
#![no_main]

use std::fs;

use brimful::convert::{Duplicates, RepairOptions, VerifyOptions, repair, verify};
use libfuzzer_sys::fuzz_target;

#[path = "tar/checksum.rs"]
mod checksum;
#[path = "convert/sound.rs"]
#[expect(dead_code, reason = "nothing is converted here")]
mod sound;

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    check(&checksum::mended(bytes));
});

fn check(bytes: &[u8]) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.tar");
    fs::write(&path, bytes).expect("a file");
    let options = VerifyOptions { decode: true, threads: 1, ..VerifyOptions::default() };
    let found = verify(std::slice::from_ref(&path), &options, &|_, _| {}).expect("what is wrong is a finding");
    let counted: u64 = found.counts.values().sum();
    assert!(
        counted >= found.findings.len() as u64
            && found.findings.iter().all(|kept| found.counts.contains_key(&kept.kind))
    );
    for duplicates in [Duplicates::Rename, Duplicates::Drop] {
        let out = folder.path().join(format!("{duplicates:?}"));
        let options = RepairOptions { duplicates, decode: false, fields: Vec::new(), threads: 1 };
        let made = repair(std::slice::from_ref(&path), &out, &options, &|_, _| {}).expect("there is room");
        sound::assert_sound(&made.shards);
    }
    assert!(fs::read(&path).expect("a file") == bytes, "the shard was written to");
}
