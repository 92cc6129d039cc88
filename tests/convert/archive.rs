//! Zip archives as other programs write them, also for the fuzz target of the same name.

use std::io::Write;

use flate2::Compression;
use flate2::write::DeflateEncoder;

/// A zip archive of these files; every other one is deflated.
pub(crate) fn zip(files: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut zip, mut list) = (Vec::new(), Vec::new());
    for (number, (name, bytes)) in files.iter().enumerate() {
        let is_packed = number % 2 == 1;
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        let packed = if is_packed {
            let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(bytes).expect("memory takes all");
            encoder.finish().expect("memory takes all")
        } else {
            bytes.to_vec()
        };
        let method: u16 = if is_packed { 8 } else { 0 };
        let mut facts = Vec::new();
        facts.extend(20u16.to_le_bytes());
        facts.extend(0u16.to_le_bytes());
        facts.extend(method.to_le_bytes());
        facts.extend([0; 4]);
        facts.extend(crc.sum().to_le_bytes());
        facts.extend((packed.len() as u32).to_le_bytes());
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
        zip.extend(&packed);
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
