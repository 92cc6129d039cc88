//! Any JPEG under the baseline decoder: what it decodes are libjpeg-turbo's pixels, what that refuses it refuses.
#![no_main]

use brimful::decode::{Backend, DecodeOptions, ImageDecoder, Region};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The last bytes choose a region, and stay where they are: behind the picture they do no harm.
    let &[.., x, y] = bytes else { return };
    if !bytes.starts_with(b"\xFF\xD8") {
        return;
    }
    let [mut ours, mut turbo] = [Backend::Baseline, Backend::Turbo].map(|backend| {
        let options = DecodeOptions { backend, pixels_max: 1 << 18, ..DecodeOptions::default() };
        ImageDecoder::new(options).expect("both backends are built")
    });
    let Ok(info) = ours.info(bytes) else { return };
    let [x, y] = [(x, info.width), (y, info.height)].map(|(part, side)| side * u32::from(part) / 256);
    let part = Region { x, y, width: (info.width - x).min(24), height: (info.height - y).min(24) };
    // A region of a file with restart markers is decoded from the one above it, so damage before that stays unseen.
    let restarts = info.jpeg.is_some_and(|jpeg| jpeg.restart_interval != 0);
    for region in [Region::from(&ours.info(bytes).expect("it was read")), part] {
        let expected = turbo.decode(bytes, Some(region)).and_then(|pixels| Ok(pixels.view(region)?.to_vec()));
        match (ours.decode(bytes, Some(region)), expected) {
            (Ok(ours), Ok(expected)) => assert!(ours.to_vec() == expected, "other pixels"),
            (Err(error), Err(_)) => assert!(!error.message().contains("failed inside")),
            (Ok(_), Err(_)) => assert!(restarts && region == part, "libjpeg-turbo refuses it"),
            (Err(error), Ok(_)) => panic!("libjpeg-turbo decodes it: {error}"),
        }
    }
});
