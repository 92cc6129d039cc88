//! Decoding of generated pictures: regions, orientations, colours, limits, damage, and both JPEG backends against each
//! other.

use std::io::Cursor;

use brimful::decode::{
    Backend, ColorMode, DecodeOptions, Decoder, ImageDecoder, ImageFormat, ImageInfo, Jobs, Orientation, Pixels,
    Region, Ticket, Truncated, backends, image_info,
};
use brimful::{Error, ErrorKind, Result};
use bytes::Bytes;
use image::{ExtendedColorType, ImageEncoder as _};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use proptest::prelude::*;

const SAMPLINGS: [SamplingFactor; 8] = [
    SamplingFactor::F_1_1,
    SamplingFactor::F_2_1,
    SamplingFactor::F_2_2,
    SamplingFactor::F_1_2,
    SamplingFactor::F_4_1,
    SamplingFactor::F_4_2,
    SamplingFactor::F_1_4,
    SamplingFactor::F_2_4,
];

/// How a test picture is coded.
#[derive(Debug, Clone, Copy)]
struct Coding {
    sampling: SamplingFactor,
    color: ColorType,
    progressive: bool,
    restart: u16,
}

const PLAIN: Coding = Coding { sampling: SamplingFactor::F_2_2, color: ColorType::Rgb, progressive: false, restart: 0 };

fn codings() -> Vec<Coding> {
    let mut codings = Vec::new();
    for sampling in SAMPLINGS {
        for (progressive, restart) in [(false, 0), (false, 3), (true, 0)] {
            codings.push(Coding { sampling, progressive, restart, ..PLAIN });
        }
    }
    for (color, progressive, restart) in [
        (ColorType::Luma, false, 0),
        (ColorType::Luma, true, 0),
        (ColorType::Luma, false, 2),
        (ColorType::Cmyk, false, 0),
    ] {
        codings.push(Coding { sampling: SamplingFactor::F_1_1, color, progressive, restart });
    }
    codings
}

/// Smooth colours with a few edges, so that every coefficient and the upsampling of colours matter.
fn picture(width: u32, height: u32, channels: u32) -> Vec<u8> {
    let mut data = Vec::new();
    for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
        for channel in 0..channels {
            let wave = ((x * (3 + channel) + y * 2) % 256) as i32;
            let edge = if (x / 7 + y / 5 + channel).is_multiple_of(3) { 60 } else { 0 };
            data.push((wave - 128).unsigned_abs().min(190) as u8 + edge);
        }
    }
    data
}

fn jpeg_of(width: u32, height: u32, coding: Coding) -> Vec<u8> {
    let channels = match coding.color {
        ColorType::Luma => 1,
        ColorType::Cmyk => 4,
        _ => 3,
    };
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, 85);
    encoder.set_sampling_factor(coding.sampling);
    encoder.set_progressive(coding.progressive);
    encoder.set_restart_interval(coding.restart);
    encoder.encode(&picture(width, height, channels), width as u16, height as u16, coding.color).unwrap();
    bytes
}

fn jpeg(width: u32, height: u32) -> Vec<u8> {
    jpeg_of(width, height, PLAIN)
}

fn built() -> Vec<Backend> {
    let all = [("baseline", Backend::Baseline), ("turbo", Backend::Turbo), ("zune", Backend::Zune)];
    all.into_iter().filter(|(name, _)| backends().contains(name)).map(|(_, backend)| backend).collect()
}

fn decoder(backend: Backend) -> ImageDecoder {
    ImageDecoder::new(DecodeOptions { backend, ..DecodeOptions::default() }).unwrap()
}

/// The whole picture; none where only libjpeg-turbo can decode it and is not built.
fn whole(decoder: &mut ImageDecoder, bytes: &[u8]) -> Option<Vec<u8>> {
    match decoder.decode(bytes, None) {
        Ok(pixels) => Some(pixels.to_vec()),
        Err(error) if error.kind() == ErrorKind::Unsupported && !backends().contains(&"turbo") => None,
        Err(error) => panic!("{error}"),
    }
}

fn decode(bytes: &[u8], options: DecodeOptions) -> Result<Vec<u8>> {
    ImageDecoder::new(options)?.decode(bytes, None).map(|pixels| pixels.to_vec())
}

#[test]
fn regions_at_every_offset_are_parts_of_the_whole() {
    const WIDTH: u32 = 75;
    const HEIGHT: u32 = 53;
    for backend in built() {
        let mut decoder = decoder(backend);
        // What zune-jpeg decodes in full needs no second look at every offset; the baseline decoder has tests of its own.
        let step = match backend {
            Backend::Zune => 13,
            Backend::Baseline => 5,
            _ => 1,
        };
        for coding in codings() {
            let bytes = jpeg_of(WIDTH, HEIGHT, coding);
            let Some(whole) = whole(&mut decoder, &bytes) else { continue };
            let whole = Pixels::packed(&whole, Region::full(WIDTH, HEIGHT), 3).unwrap();
            let columns = (0..WIDTH).step_by(step).flat_map(|x| [(x, 0), (x, 17), (x, HEIGHT - 3)]);
            let rows = (0..HEIGHT).step_by(step).flat_map(|y| [(0, y), (33, y), (WIDTH - 3, y)]);
            for (x, y) in columns.chain(rows) {
                for size in [1, 10, 64] {
                    let (width, height) = ((WIDTH - x).min(size), (HEIGHT - y).min(size));
                    let region = Region { x, y, width, height };
                    let part = decoder.decode(&bytes, Some(region)).unwrap();
                    assert!(part.region.contains(&region));
                    let same = part.view(region).unwrap().rows().eq(whole.view(region).unwrap().rows());
                    assert!(same, "{backend:?} {coding:?} {region}");
                }
            }
        }
    }
}

#[test]
fn the_backends_agree_within_rounding() {
    if !backends().contains(&"turbo") {
        return;
    }
    for coding in codings() {
        for (width, height) in [(96, 64), (61, 45)] {
            let bytes = jpeg_of(width, height, coding);
            let turbo = decode(&bytes, DecodeOptions { backend: Backend::Turbo, ..DecodeOptions::default() }).unwrap();
            let zune = decode(&bytes, DecodeOptions { backend: Backend::Zune, ..DecodeOptions::default() }).unwrap();
            let off = |(a, b): (&u8, &u8)| u64::from(a.abs_diff(*b));
            let greatest = turbo.iter().zip(&zune).map(off).max().unwrap();
            let mean = turbo.iter().zip(&zune).map(off).sum::<u64>() as f64 / turbo.len() as f64;
            assert!(greatest <= 4 && mean < 0.6, "{coding:?} {width}x{height}: greatest {greatest}, mean {mean}");
        }
    }
}

#[test]
fn every_cut_of_a_file_is_refused_even_above_the_cut() {
    let top = Region { x: 0, y: 0, width: 8, height: 4 };
    for backend in built() {
        let mut decoder = decoder(backend);
        for coding in [PLAIN, Coding { progressive: true, ..PLAIN }, Coding { restart: 1, ..PLAIN }] {
            let bytes = jpeg_of(24, 40, coding);
            assert!(decoder.decode(&bytes, Some(top)).is_ok());
            for end in 0..bytes.len() {
                let error = decoder.decode(&bytes[..end], Some(top)).expect_err("a cut file must be refused");
                let kind = error.kind();
                let garbled = end < 4 && kind == ErrorKind::Decode;
                assert!(kind == ErrorKind::Truncated || garbled, "{backend:?} {coding:?} {end}: {error}");
            }
        }
    }
}

#[test]
fn a_cut_file_gives_its_upper_part_when_that_is_allowed() {
    for backend in built() {
        let whole = decode(&jpeg(48, 64), DecodeOptions { backend, ..DecodeOptions::default() }).unwrap();
        let bytes = jpeg(48, 64);
        let cut = &bytes[..bytes.len() - bytes.len() / 4];
        let options = DecodeOptions { backend, truncated: Truncated::Allow, ..DecodeOptions::default() };
        let part = decode(cut, options).unwrap();
        assert!(are_alike(backend, &part[..48 * 3 * 8], &whole[..48 * 3 * 8]), "{backend:?}");
        assert!(!are_alike(backend, &part, &whole));
    }
}

#[test]
fn a_cut_scan_with_an_end_marker_is_refused_by_a_full_decode() {
    for backend in built() {
        let mut bytes = jpeg(48, 64);
        bytes.truncate(bytes.len() * 4 / 5);
        bytes.extend([0xFF, 0xD9]);
        let error = decode(&bytes, DecodeOptions { backend, ..DecodeOptions::default() }).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Truncated | ErrorKind::Decode), "{backend:?}: {error}");
    }
}

#[test]
fn missing_and_reordered_restart_intervals_are_refused_above_the_damage() {
    let bytes = jpeg_of(64, 96, Coding { restart: 2, ..PLAIN });
    let top = Region { x: 0, y: 0, width: 8, height: 4 };
    let markers: Vec<usize> =
        (0..bytes.len() - 1).filter(|&at| bytes[at] == 0xFF && (0xD0..=0xD7).contains(&bytes[at + 1])).collect();
    assert!(markers.len() > 8);
    let (from, to) = (markers[6], markers[7]);
    let lost_middle = [&bytes[..from], &bytes[to..]].concat();
    let last = markers[markers.len() - 1];
    let lost_end = [&bytes[..last], &[0xFF, 0xD9][..]].concat();
    for backend in built() {
        for damaged in [&lost_middle, &lost_end] {
            let error = decoder(backend).decode(damaged, Some(top)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Decode, "{backend:?}: {error}");
        }
    }
}

#[test]
fn oddities_that_change_no_pixel_are_taken() {
    let bytes = jpeg(32, 24);
    let scan = bytes.windows(2).position(|pair| pair == [0xFF, 0xDA]).unwrap();
    let insert = |at: usize, with: &[u8]| [&bytes[..at], with, &bytes[at..]].concat();
    let end = bytes.len() - 2;
    let odd = [
        ("junk between segments", insert(scan, &[0, 1, 2])),
        ("fill bytes", insert(scan, &[0xFF, 0xFF])),
        ("a comment of length 0", insert(scan, &[0xFF, 0xFE, 0, 0])),
        ("bytes after the end", insert(bytes.len(), b"<html>")),
        ("a second picture after the end", [bytes.clone(), bytes.clone()].concat()),
        ("a few bytes after the last block", insert(end, &[1, 2, 3])),
        ("zero scan parameters", {
            let mut bytes = bytes.clone();
            bytes[scan + 2 + 12 - 3 + 1] = 0;
            bytes
        }),
    ];
    for backend in built() {
        let options = DecodeOptions { backend, ..DecodeOptions::default() };
        let plain = decode(&bytes, options.clone()).unwrap();
        for (what, odd) in &odd {
            let pixels = decode(odd, options.clone()).unwrap_or_else(|error| panic!("{backend:?}, {what}: {error}"));
            assert!(are_alike(backend, &pixels, &plain), "{backend:?}, {what}");
        }
    }
}

/// Whether pixels of a damaged or odd file are those of the file in order. Without libjpeg-turbo the baseline decoder
/// leaves what it doubts to zune-jpeg, whose colours are a few steps off.
fn are_alike(backend: Backend, pixels: &[u8], plain: &[u8]) -> bool {
    let off_max = if backend == Backend::Baseline && !cfg!(feature = "turbo") { 8 } else { 0 };
    pixels.len() == plain.len() && pixels.iter().zip(plain).all(|(a, b)| a.abs_diff(*b) <= off_max)
}

#[test]
fn grey_is_the_luma_of_the_colours() {
    let grey = |backend| DecodeOptions { backend, mode: ColorMode::Grey, ..DecodeOptions::default() };
    for backend in built() {
        for coding in codings() {
            let bytes = jpeg_of(40, 30, coding);
            let Some(colours) = whole(&mut decoder(backend), &bytes) else { continue };
            let luma = |pixel: &[u8]| {
                let weighted = 19595 * u32::from(pixel[0]) + 38470 * u32::from(pixel[1]) + 7471 * u32::from(pixel[2]);
                ((weighted + 0x8000) >> 16) as u8
            };
            let expected: Vec<u8> = colours.chunks_exact(3).map(luma).collect();
            assert_eq!(decode(&bytes, grey(backend)).unwrap(), expected, "{backend:?} {coding:?}");
        }
    }
}

/// An EXIF block with nothing but the orientation.
fn exif(orientation: u8) -> Vec<u8> {
    let mut block = b"II\x2A\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
    block.extend([orientation, 0, 0, 0, 0, 0, 0, 0]);
    block
}

fn with_orientation(format: ImageFormat, orientation: u8) -> Vec<u8> {
    let (width, height) = (41, 29);
    let data = picture(width, height, 3);
    let mut bytes = Vec::new();
    match format {
        ImageFormat::Png => {
            let mut encoder = image::codecs::png::PngEncoder::new(&mut bytes);
            encoder.set_exif_metadata(exif(orientation)).unwrap();
            encoder.write_image(&data, width, height, ExtendedColorType::Rgb8).unwrap();
        }
        ImageFormat::WebP => {
            let mut encoder = image::codecs::webp::WebPEncoder::new_lossless(&mut bytes);
            encoder.set_exif_metadata(exif(orientation)).unwrap();
            encoder.write_image(&data, width, height, ExtendedColorType::Rgb8).unwrap();
        }
        _ => {
            let mut encoder = Encoder::new(&mut bytes, 90);
            encoder.add_exif_metadata(&exif(orientation)).unwrap();
            encoder.encode(&data, width as u16, height as u16, ColorType::Rgb).unwrap();
        }
    }
    bytes
}

#[test]
fn an_upright_picture_is_the_stored_one_turned_and_so_are_its_regions() {
    for format in [ImageFormat::Jpeg, ImageFormat::Png, ImageFormat::WebP] {
        for value in 1..=8_u8 {
            let bytes = with_orientation(format, value);
            let info = image_info(&bytes).unwrap();
            assert_eq!((info.width, info.height, info.orientation.tag()), (41, 29, u32::from(value)), "{format:?}");
            let stored = decode(&bytes, DecodeOptions::default()).unwrap();
            let stored = image::RgbImage::from_raw(41, 29, stored).unwrap();
            let mut turned = image::DynamicImage::ImageRgb8(stored);
            turned.apply_orientation(image::metadata::Orientation::from_exif(value).unwrap());
            let turned = turned.into_rgb8();
            let (width, height) = turned.dimensions();
            let expected = Pixels::packed(turned.as_raw(), Region::full(width, height), 3).unwrap();
            let mut upright = ImageDecoder::new(DecodeOptions { exif: true, ..DecodeOptions::default() }).unwrap();
            assert_eq!(upright.info(&bytes).unwrap().width, width);
            for (x, y, w, h) in
                [(0, 0, width, height), (3, 5, 20, 11), (width - 1, 0, 1, height), (0, height - 4, 9, 4)]
            {
                let region = Region { x, y, width: w, height: h };
                let part = upright.decode(&bytes, Some(region)).unwrap();
                assert_eq!(part.region, region);
                assert!(part.rows().eq(expected.view(region).unwrap().rows()), "{format:?} {value} {region}");
            }
        }
    }
}

#[test]
fn the_orientation_of_a_tiff_is_read_from_its_first_directory() {
    let mut tiff = b"II\x2A\0\x08\0\0\0\x09\0".to_vec();
    let entries: [(u16, u16, u32); 9] = [
        (0x100, 4, 2),
        (0x101, 4, 1),
        (0x102, 3, 8),
        (0x103, 3, 1),
        (0x106, 3, 1),
        (0x111, 4, 122),
        (0x112, 3, 8),
        (0x116, 4, 1),
        (0x117, 4, 2),
    ];
    for (tag, kind, value) in entries {
        tiff.extend(tag.to_le_bytes());
        tiff.extend(kind.to_le_bytes());
        tiff.extend(1_u32.to_le_bytes());
        tiff.extend(value.to_le_bytes());
    }
    tiff.extend([0; 4]);
    assert_eq!(tiff.len(), 122);
    tiff.extend([10, 200]);
    let info = image_info(&tiff).unwrap();
    assert_eq!((info.format, info.orientation), (ImageFormat::Tiff, Orientation::Rotate270));
    let upright = DecodeOptions { exif: true, mode: ColorMode::Grey, ..DecodeOptions::default() };
    assert_eq!(decode(&tiff, upright).unwrap(), [200, 10]);
}

#[test]
fn other_formats_decode_to_their_colours_without_alpha() {
    let rgba: Vec<u8> = picture(13, 9, 4);
    let rgb: Vec<u8> = rgba.chunks_exact(4).flat_map(|pixel| pixel[..3].to_vec()).collect();
    let wide: Vec<u8> = rgb.iter().flat_map(|&value| (u16::from(value) * 257).to_ne_bytes()).collect();
    for (data, color, formats) in [
        (&rgba, ExtendedColorType::Rgba8, &[image::ImageFormat::Png, image::ImageFormat::WebP][..]),
        (
            &wide,
            ExtendedColorType::Rgb16,
            &[image::ImageFormat::Png, image::ImageFormat::Tiff, image::ImageFormat::Pnm],
        ),
        (
            &rgb,
            ExtendedColorType::Rgb8,
            &[image::ImageFormat::Png, image::ImageFormat::Bmp, image::ImageFormat::Tiff, image::ImageFormat::Pnm],
        ),
    ] {
        for &format in formats {
            let mut bytes = Cursor::new(Vec::new());
            image::write_buffer_with_format(&mut bytes, data, 13, 9, color, format).unwrap();
            let bytes = bytes.into_inner();
            assert_eq!(decode(&bytes, DecodeOptions::default()).unwrap(), rgb, "{format:?} {color:?}");
            let region = Region { x: 4, y: 2, width: 5, height: 3 };
            let mut decoder = decoder(Backend::Auto);
            let part = decoder.decode(&bytes, Some(region)).unwrap();
            let whole = Pixels::packed(&rgb, Region::full(13, 9), 3).unwrap();
            assert_eq!(part.to_vec(), whole.view(region).unwrap().to_vec());
        }
    }
}

#[test]
fn bombs_and_foreign_files_are_refused_from_their_first_bytes() {
    let mut bomb = jpeg(16, 16);
    let frame = bomb.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap();
    bomb[frame + 5..frame + 9].copy_from_slice(&[0xFF, 0xDC, 0xFF, 0xDC]);
    let mut twelve = jpeg(16, 16);
    twelve[frame + 4] = 12;
    let mut lossless = jpeg(16, 16);
    lossless[frame + 1] = 0xC3;
    let progressive = jpeg_of(16, 16, Coding { progressive: true, ..PLAIN });
    let check = |bytes: &[u8], scans_max: u32, kind: ErrorKind, words: &str| {
        let error = decode(bytes, DecodeOptions { scans_max, ..DecodeOptions::default() }).unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(words), "{words}: {error}");
    };
    check(&bomb, 100, ErrorKind::Limit, "65500x65500");
    check(&progressive, 2, ErrorKind::Limit, "scans");
    check(&twelve, 100, ErrorKind::Unsupported, "12-bit");
    check(&lossless, 100, ErrorKind::Unsupported, "lossless");
    check(b"", 100, ErrorKind::Truncated, "empty");
    check(b"\0\0\0\x1cftypavif", 100, ErrorKind::Unsupported, "AVIF");
    check(b"\0\0\0\x1cftypheic", 100, ErrorKind::Unsupported, "HEIF");
    check(b"version https://git-lfs", 100, ErrorKind::Decode, "Git LFS");
    check(b"{\"error\":404}", 100, ErrorKind::Decode, "text");
    assert!(ImageDecoder::new(DecodeOptions { scans_max: 0, ..DecodeOptions::default() }).is_err());
}

#[test]
fn a_backend_that_is_not_built_is_refused_with_a_hint() {
    let result = ImageDecoder::new(DecodeOptions { backend: Backend::Turbo, ..DecodeOptions::default() });
    match result {
        Ok(decoder) => assert_eq!(decoder.jpeg_backend(), "turbo"),
        Err(error) => assert!(error.kind() == ErrorKind::Unsupported && error.hint().is_some()),
    }
    assert_eq!(decoder(Backend::Zune).jpeg_backend(), "zune");
}

#[test]
fn regions_outside_the_picture_are_refused() {
    for (x, y, width, height) in [(0, 0, 0, 5), (10, 0, 7, 5), (0, 16, 1, 1), (u32::MAX, 0, 1, 1)] {
        let error = decoder(Backend::Auto).decode(&jpeg(16, 16), Some(Region { x, y, width, height })).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption);
    }
}

/// Jobs that ask for the left half, refuse odd tickets, and write down what comes back.
struct LeftHalves {
    images: std::vec::IntoIter<Bytes>,
    given: Ticket,
    done: Vec<(Ticket, String)>,
}

impl Jobs for LeftHalves {
    fn next(&mut self) -> Option<(Ticket, Bytes)> {
        let image = self.images.next()?;
        self.given += 1;
        Some((self.given - 1, image))
    }

    fn region(&mut self, ticket: Ticket, info: &ImageInfo) -> Result<Region> {
        match ticket {
            1 => Err(Error::new(ErrorKind::Cancelled, "not this one")),
            _ => Ok(Region { width: info.width / 2, ..Region::from(info) }),
        }
    }

    fn done(&mut self, ticket: Ticket, result: Result<Pixels<'_>>) {
        let outcome = match result {
            Ok(pixels) => format!("{}x{}", pixels.width, pixels.height),
            Err(error) => error.kind().as_str().to_owned(),
        };
        self.done.push((ticket, outcome));
    }
}

#[test]
fn every_job_is_done_once_whether_it_works_or_not() {
    let images = vec![jpeg(20, 10).into(), jpeg(8, 8).into(), Bytes::from_static(b"junk"), jpeg(6, 4).into()];
    let mut jobs = LeftHalves { images: images.into_iter(), given: 0, done: Vec::new() };
    decoder(Backend::Auto).run(&mut jobs);
    let expected = [(0, "10x10"), (1, "cancelled"), (2, "decode"), (3, "3x4")];
    let expected: Vec<_> = expected.map(|(ticket, outcome)| (ticket, outcome.to_owned())).into();
    // A decoder that holds several images may finish them in any order.
    jobs.done.sort();
    assert_eq!(jobs.done, expected);
}

/// Decodes under every backend; a panic inside would come out as this message.
fn never_panics(bytes: &[u8], region: Option<Region>) {
    for backend in built() {
        for truncated in [Truncated::Refuse, Truncated::Allow] {
            let options =
                DecodeOptions { backend, truncated, exif: true, pixels_max: 1 << 20, ..DecodeOptions::default() };
            if let Err(error) = ImageDecoder::new(options).unwrap().decode(bytes, region) {
                assert!(!error.message().contains("failed inside"), "{backend:?} panics");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_bytes_after_any_magic_never_panic(magic in 0_usize..8, bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let magics: [&[u8]; 8] = [
            b"", b"\xFF\xD8\xFF", b"\x89PNG\r\n\x1A\n", b"RIFF\0\0\0\0WEBP", b"GIF89a", b"BM", b"II\x2A\0", b"P6 ",
        ];
        never_panics(&[magics[magic], &bytes].concat(), None);
    }

    #[test]
    fn mutated_files_never_panic(
        which in 0_usize..28,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        cut in prop::option::of(any::<prop::sample::Index>()),
        part: bool,
    ) {
        let mut bytes = jpeg_of(40, 24, codings()[which]);
        for (index, value) in changes {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        never_panics(&bytes, part.then_some(Region { x: 3, y: 5, width: 9, height: 7 }));
    }

    #[test]
    fn mutated_files_of_other_formats_never_panic(
        which in 0_usize..3,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
    ) {
        let mut bytes = with_orientation([ImageFormat::Png, ImageFormat::WebP, ImageFormat::Jpeg][which], 6);
        for (index, value) in changes {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        never_panics(&bytes, None);
    }
}
