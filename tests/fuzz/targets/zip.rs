//! Any bytes as a zip archive, and a good one with some bytes changed: no panic, the shards are whole, and no file of the good one
//! comes with other bytes.
#![no_main]

use std::fs;

use libfuzzer_sys::fuzz_target;

#[path = "convert/sound.rs"]
mod sound;

/// An archive of stored files.
fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut zip, mut list) = (Vec::new(), Vec::new());
    for (name, bytes) in files {
        let mut sum = flate2::Crc::new();
        sum.update(bytes);
        let mut facts = vec![20, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        facts.extend(sum.sum().to_le_bytes());
        facts.extend((bytes.len() as u32).to_le_bytes());
        facts.extend((bytes.len() as u32).to_le_bytes());
        facts.extend((name.len() as u16).to_le_bytes());
        facts.extend([0; 2]);
        list.extend(b"PK\x01\x02\x14\0");
        list.extend(&facts);
        list.extend([0; 10]);
        list.extend((zip.len() as u32).to_le_bytes());
        list.extend(name.as_bytes());
        zip.extend(b"PK\x03\x04");
        zip.extend(&facts);
        zip.extend(name.as_bytes());
        zip.extend(*bytes);
    }
    let (offset, bytes, count) = (zip.len() as u32, list.len() as u32, files.len() as u16);
    zip.extend(list);
    zip.extend(b"PK\x05\x06\0\0\0\0");
    zip.extend([count.to_le_bytes(), count.to_le_bytes()].concat());
    zip.extend(bytes.to_le_bytes());
    zip.extend(offset.to_le_bytes());
    zip.extend([0; 2]);
    zip
}

fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.zip");
    fs::write(&path, bytes).expect("a file");
    let _ = sound::convert(&path);

    let good: [&[u8]; 2] = [b"the first picture", b"the second"];
    let zip = archive(&[("set/cat/0.jpg", good[0]), ("set/dog/1.jpg", good[1])]);
    fs::write(&path, sound::changed(&zip, bytes)).expect("a file");
    for (name, bytes) in sound::convert(&path).unwrap_or_default() {
        // A label is a number; a sum of 32 bits that fits to other bytes is not found by chance.
        assert!(name.ends_with(b".cls") || bytes.is_empty() || good.contains(&&bytes[..]), "{bytes:?}");
    }
});
