//! Any bytes as a zip archive, and a good one with some bytes changed: no panic, the shards are whole, and no file of the good one
//! comes with other bytes.
#![no_main]

use std::fs;

use libfuzzer_sys::fuzz_target;

#[path = "../../convert/archive.rs"]
mod archive;
#[path = "convert/sound.rs"]
mod sound;

fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.zip");
    fs::write(&path, bytes).expect("a file");
    let _ = sound::convert(&path);

    let good: [&[u8]; 2] = [b"the first picture", b"the second"];
    let zip = archive::zip(&[("set/cat/0.jpg", good[0]), ("set/dog/1.jpg", good[1])]);
    fs::write(&path, sound::changed(&zip, bytes)).expect("a file");
    for (name, bytes) in sound::convert(&path).unwrap_or_default() {
        // A label is a number; a sum of 32 bits that fits to other bytes is not found by chance.
        assert!(name.ends_with(b".cls") || bytes.is_empty() || good.contains(&&bytes[..]), "{bytes:?}");
    }
});
