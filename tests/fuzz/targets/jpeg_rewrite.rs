//! Any JPEG with restart markers: no panic, the same pixels, and doing it twice changes nothing more. Turned, it ends well too.
#![no_main]

use brimful::decode::{Backend, DecodeOptions, ImageDecoder};
use brimful::encode::{Rewrite, Turn, rewrite_jpeg, set_upright, strip_metadata};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let [choice, jpeg @ ..] = bytes else { return };
    let rewrite = Rewrite { turn: Turn::default(), restart_rows: Some(u16::from(choice % 4) + 1) };
    if let Ok(marked) = rewrite_jpeg(jpeg, &rewrite) {
        assert_eq!(rewrite_jpeg(&marked, &rewrite).expect("it was written here"), marked);
        if let Some(pixels) = decode(jpeg) {
            assert!(decode(&marked).expect("the original decodes") == pixels, "other pixels");
        }
    }
    let turn = Turn { flip_x: choice & 4 > 0, flip_y: choice & 8 > 0, transpose: choice & 16 > 0 };
    let _ = rewrite_jpeg(jpeg, &Rewrite { turn, restart_rows: None });
    if let (Ok(Some(stripped)), Some(pixels)) = (strip_metadata(jpeg), decode(jpeg)) {
        assert!(stripped.len() < jpeg.len());
        assert!(decode(&stripped).is_none_or(|found| found == pixels), "other pixels without metadata");
    }
    set_upright(&mut jpeg.to_vec());
});

fn decode(bytes: &[u8]) -> Option<Vec<u8>> {
    let options = DecodeOptions { backend: Backend::Turbo, pixels_max: 1 << 18, ..DecodeOptions::default() };
    let mut decoder = ImageDecoder::new(options).expect("the backend is built");
    decoder.decode(bytes, None).ok().map(|pixels| pixels.to_vec())
}
