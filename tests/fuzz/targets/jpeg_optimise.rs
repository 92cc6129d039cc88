//! Any JPEG under Huffman tables made for it: no panic, and the same pixels; doing it twice changes nothing more.
#![no_main]

use brimful::decode::{Backend, DecodeOptions, ImageDecoder};
use brimful::encode::{JpegOptions, PixelKind, Subsampling, encode_jpeg, optimise_huffman};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(smaller) = optimise_huffman(bytes) {
        assert_eq!(optimise_huffman(&smaller).expect("it was written here"), smaller);
        if let Some(pixels) = decode(bytes) {
            assert!(decode(&smaller).expect("the original decodes") == pixels, "other pixels");
        }
    }

    // The same bytes as pixels.
    let [choice, quality, width, pixels @ ..] = bytes else { return };
    let kind = if choice & 1 == 0 { PixelKind::Rgb } else { PixelKind::Grey };
    let width = u32::from(width % 32) + 1;
    let row = width as usize * kind.channels();
    let height = (pixels.len() / row).min(64);
    if height == 0 {
        return;
    }
    let plain = JpegOptions {
        quality: quality % 100 + 1,
        subsampling: [Subsampling::Full, Subsampling::HalfWidth, Subsampling::Half][usize::from(choice >> 1) % 3],
        optimise: false,
        restart_interval: u16::from(choice >> 4) % 5,
    };
    let encode = |options: &JpegOptions| {
        encode_jpeg(&pixels[..height * row], width, height as u32, kind, options).expect("legal options")
    };
    let optimised = JpegOptions { optimise: true, ..plain.clone() };
    let pixels = decode(&encode(&plain)).expect("it was encoded here");
    assert_eq!(pixels.len(), width as usize * height * 3);
    assert!(decode(&encode(&optimised)).expect("it was encoded here") == pixels, "other pixels");
});

fn decode(bytes: &[u8]) -> Option<Vec<u8>> {
    let options = DecodeOptions { backend: Backend::Turbo, pixels_max: 1 << 18, ..DecodeOptions::default() };
    let mut decoder = ImageDecoder::new(options).expect("the backend is built");
    decoder.decode(bytes, None).ok().map(|pixels| pixels.to_vec())
}
