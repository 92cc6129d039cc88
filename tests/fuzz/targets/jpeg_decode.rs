//! Any JPEG under both backends: no panic, and a region is the same part of the whole.
#![no_main]

use brimful::decode::{Backend, DecodeOptions, ImageDecoder, Pixels, Region, Truncated};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The last bytes choose, and stay where they are: behind the picture they do no harm.
    let &[.., x, y, allow] = bytes else { return };
    if !bytes.starts_with(b"\xFF\xD8") {
        return;
    }
    let truncated = if allow & 1 == 0 { Truncated::Allow } else { Truncated::Refuse };
    for backend in [Backend::Turbo, Backend::Zune] {
        let options = DecodeOptions { backend, truncated, pixels_max: 1 << 18, ..DecodeOptions::default() };
        let mut decoder = ImageDecoder::new(options).expect("both backends are built");
        let whole = match decoder.decode(bytes, None) {
            Ok(whole) => (whole.to_vec(), whole.region),
            Err(error) => {
                assert!(!error.message().contains("failed inside"));
                continue;
            }
        };
        let [x, y] = [(x, whole.1.width), (y, whole.1.height)].map(|(part, side)| side * u32::from(part) / 256);
        let region = Region { x, y, width: (whole.1.width - x).min(24), height: (whole.1.height - y).min(24) };
        let part = decoder.decode(bytes, Some(region)).expect("the whole decodes");
        let whole = Pixels::packed(&whole.0, whole.1, 3).expect("it is packed");
        assert!(part.rows().eq(whole.view(region).expect("it is inside").rows()));
    }
});
