//! Any EXIF block in front of a good picture: the header is read, whatever the block holds.
#![no_main]

use brimful::decode::image_info;
use libfuzzer_sys::fuzz_target;

/// The rest of an 8x8 grey JPEG, up to its scan.
const REST: &[u8] = b"\xFF\xC0\0\x0B\x08\0\x08\0\x08\x01\x01\x11\0\xFF\xDA\0\x08\x01\x01\0\0\x3F\0\0\xFF\xD9";

fuzz_target!(|block: &[u8]| {
    let block = &block[..block.len().min(60_000)];
    let length = (block.len() as u16 + 8).to_be_bytes();
    let bytes = [b"\xFF\xD8\xFF\xE1", &length[..], b"Exif\0\0", block, REST].concat();
    let info = image_info(&bytes).expect("the header is good");
    assert_eq!((info.width, info.height), (8, 8));
});
