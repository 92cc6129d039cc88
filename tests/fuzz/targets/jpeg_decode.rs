//! Any JPEG under both backends: no panic, and a region is the same part of the whole.
#![no_main]

use brimful::decode::{Backend, DecodeOptions, ImageDecoder, Pixels, Region, Truncated};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u16, u16, bool, &[u8])| {
    let (x, y, allow, bytes) = input;
    let bytes = [b"\xFF\xD8", bytes].concat();
    let truncated = if allow { Truncated::Allow } else { Truncated::Refuse };
    for backend in [Backend::Turbo, Backend::Zune] {
        let options = DecodeOptions { backend, truncated, pixels_max: 1 << 18, ..DecodeOptions::default() };
        let mut decoder = ImageDecoder::new(options).expect("both backends are built");
        let whole = match decoder.decode(&bytes, None) {
            Ok(whole) => (whole.to_vec(), whole.region),
            Err(error) => {
                assert!(!error.message().contains("failed inside"));
                continue;
            }
        };
        let (x, y) = (u32::from(x) % whole.1.width, u32::from(y) % whole.1.height);
        let region = Region { x, y, width: (whole.1.width - x).min(24), height: (whole.1.height - y).min(24) };
        let part = decoder.decode(&bytes, Some(region)).expect("the whole decodes");
        let whole = Pixels::packed(&whole.0, whole.1, 3).expect("it is packed");
        assert!(part.rows().eq(whole.view(region).expect("it is inside").rows()));
    }
});
