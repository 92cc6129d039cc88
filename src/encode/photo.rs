//! Generated photos: pictures whose sizes, settings and entropy are spread as those of a photo data set.
//!
//! They show nothing and are no test of accuracy: they cost a loader what real photos cost it.

use super::jpeg::{JpegOptions, PixelKind, Subsampling, encode_jpeg};
use super::noise::Stream;
use super::scene;

/// A generated photo and the settings that its file is written with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Photo {
    /// Columns of pixels, 128 to 1,600.
    pub width: u32,
    /// Rows of pixels, 128 to 1,600.
    pub height: u32,
    /// The pixels: `[height, width, 3]`, `u8`, row-major, without padding.
    pub rgb: Vec<u8>,
    /// Whether the file is written in colour or in grey.
    pub kind: PixelKind,
    /// The settings of the file.
    pub jpeg: JpegOptions,
}

/// The photo of `seed`: the same one on every machine, and a different one for every seed.
#[must_use]
pub fn photo(seed: u64) -> Photo {
    let mut stream = Stream::new(seed);
    let (kind, jpeg) = settings(&mut stream);
    let (width, height) = size(jpeg.subsampling == Subsampling::Half, &mut stream);
    let rgb = scene::render(width as usize, height as usize, &mut stream);
    Photo { width, height, rgb, kind, jpeg }
}

impl Photo {
    /// The photo as a JPEG file: baseline, one scan, Huffman tables of its own.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let encoded = match self.kind {
            PixelKind::Rgb => encode_jpeg(&self.rgb, self.width, self.height, PixelKind::Rgb, &self.jpeg),
            PixelKind::Grey => {
                let grey: Vec<u8> = self.rgb.chunks_exact(3).map(luma).collect();
                encode_jpeg(&grey, self.width, self.height, PixelKind::Grey, &self.jpeg)
            }
        };
        encoded.expect("a photo's size, pixels and settings are in range")
    }
}

/// The JPEG file of the photo of `seed`: 105 KB on average, most between 15 and 210 KB.
#[must_use]
pub fn encode_photo(seed: u64) -> Vec<u8> {
    photo(seed).encode()
}

/// Mostly 500 pixels on the long side, some thumbnails; large ones only among the strongly compressed.
fn size(compressed: bool, stream: &mut Stream) -> (u32, u32) {
    let (long, short) = match stream.whole(0, 99) {
        0..=53 => (500, 375),
        54..=75 => (500, 333),
        76..=83 => (500, stream.whole(280, 420)),
        84..=95 if !compressed => thumbnail(stream),
        _ if !compressed => (stream.whole(520, 720), stream.whole(390, 500)),
        84..=87 => thumbnail(stream),
        88..=92 => landscape(stream.whole(520, 900)),
        _ => landscape(stream.whole(900, 1600)),
    };
    if stream.chance(0.24) { (short, long) } else { (long, short) }
}

fn thumbnail(stream: &mut Stream) -> (u32, u32) {
    let long = stream.whole(200, 400);
    (long, long * stream.whole(64, 84) / 100)
}

fn landscape(long: u32) -> (u32, u32) {
    (long, long * 3 / 4)
}

fn settings(stream: &mut Stream) -> (PixelKind, JpegOptions) {
    let (kind, subsampling, quality) = match stream.whole(0, 99) {
        0..=75 => (PixelKind::Rgb, Subsampling::Full, if stream.chance(0.85) { 96 } else { stream.whole(82, 95) }),
        76..=95 => (PixelKind::Rgb, Subsampling::Half, if stream.chance(0.65) { 75 } else { stream.whole(78, 92) }),
        96..=97 => (PixelKind::Rgb, Subsampling::HalfWidth, stream.whole(80, 92)),
        _ => (PixelKind::Grey, Subsampling::Full, 96),
    };
    (kind, JpegOptions { quality: quality as u8, subsampling, optimise: true, restart_interval: 0 })
}

fn luma(pixel: &[u8]) -> u8 {
    let [red, green, blue] = [0, 1, 2].map(|channel| u32::from(pixel[channel]));
    ((77 * red + 150 * green + 29 * blue + 128) >> 8) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use zune_jpeg::JpegDecoder;
    use zune_jpeg::zune_core::bytestream::ZCursor;

    #[test]
    fn a_seed_gives_the_same_photo_and_another_seed_another_one() {
        assert_eq!(photo(7), photo(7));
        let files: HashSet<Vec<u8>> = (0..6).map(encode_photo).collect();
        assert_eq!(files.len(), 6);
    }

    /// A change of the generator or the encoder changes every number measured on its photos: change this on purpose.
    #[test]
    fn photos_are_the_same_on_every_machine() {
        let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3);
        let hashes = [0, 1, 2].map(|seed| photo(seed).rgb.iter().fold(0xCBF2_9CE4_8422_2325, fold));
        assert_eq!(hashes, [8_654_440_678_481_597_281, 3_075_474_655_690_970_913, 15_972_140_907_128_589_925]);
    }

    #[test]
    fn a_photo_decodes_to_its_own_size() {
        for seed in 20..24 {
            let photo = photo(seed);
            let file = photo.encode();
            let mut decoder = JpegDecoder::new(ZCursor::new(&file[..]));
            decoder.decode().expect("our own files are good");
            assert_eq!(decoder.dimensions(), Some((photo.width as usize, photo.height as usize)), "seed {seed}");
            assert_eq!(photo.rgb.len(), (photo.width * photo.height * 3) as usize);
        }
    }

    #[test]
    fn settings_and_sizes_are_spread_as_in_a_photo_data_set() {
        let drawn: Vec<_> = (0..4000u64)
            .map(|seed| {
                let mut stream = Stream::new(seed);
                let (kind, jpeg) = settings(&mut stream);
                (kind, jpeg.subsampling, size(jpeg.subsampling == Subsampling::Half, &mut stream))
            })
            .collect();
        let of = drawn.len();
        let share = |count: usize| count * 100 / of;
        let full = drawn.iter().filter(|(kind, chroma, _)| *kind == PixelKind::Rgb && *chroma == Subsampling::Full);
        let half = drawn.iter().filter(|(_, chroma, _)| *chroma == Subsampling::Half);
        let usual = drawn.iter().filter(|(.., (width, height))| *width.max(height) == 500 && *width.min(height) >= 333);
        assert!((73..=78).contains(&share(full.count())));
        assert!((18..=22).contains(&share(half.count())));
        assert!((60..=80).contains(&share(usual.count())));
        let mut sides = drawn.iter().flat_map(|(.., (width, height))| [*width, *height]);
        assert!(sides.all(|side| (128..=1600).contains(&side)));
    }

    #[test]
    fn files_are_about_as_large_as_photos_are() {
        let sizes: Vec<usize> = (100..116).map(|seed| encode_photo(seed).len()).collect();
        let mean = sizes.iter().sum::<usize>() / sizes.len();
        assert!((70_000..130_000).contains(&mean), "{mean} bytes on average");
        assert!(sizes.iter().all(|size| (4_000..700_000).contains(size)), "{sizes:?}");
    }
}
