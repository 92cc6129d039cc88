//! Any bytes of any format: no panic, and exactly as many pixels as the header promises.
#![no_main]

use brimful::decode::{ColorMode, DecodeOptions, ImageDecoder};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let options = DecodeOptions { mode: ColorMode::Grey, exif: true, pixels_max: 1 << 18, ..DecodeOptions::default() };
    let mut decoder = ImageDecoder::new(options).expect("the options are legal");
    let info = decoder.info(bytes);
    match (info, decoder.decode(bytes, None)) {
        (Ok(info), Ok(pixels)) => assert_eq!((info.width, info.height), (pixels.width, pixels.height)),
        (_, Err(error)) => assert!(!error.message().contains("failed inside")),
        (Err(error), Ok(_)) => panic!("pixels without a header: {error}"),
    }
});
