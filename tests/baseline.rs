//! The baseline decoder against libjpeg-turbo: the same pixels, the same refusals, and nothing left to others that it
//! should decode itself.
//!
//! Without libjpeg-turbo in the build there is nothing to compare with; the decoder's plain twins are compared beside it.
#![cfg(feature = "turbo")]

use std::collections::BTreeMap;

use brimful::Result;
use brimful::decode::{
    Backend, ColorMode, DecodeOptions, Decoder, ImageDecoder, ImageInfo, Jobs, Pixels, Refusal, Region, Ticket,
    Truncated,
};
use brimful::encode::{encode_photo, optimise_huffman};
use bytes::Bytes;
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

/// 4:4:4, 4:2:2, 4:4:0, 4:2:0 and grey.
const SAMPLINGS: [Option<SamplingFactor>; 5] = [
    Some(SamplingFactor::F_1_1),
    Some(SamplingFactor::F_2_1),
    Some(SamplingFactor::F_1_2),
    Some(SamplingFactor::F_2_2),
    None,
];

/// Numbers that look random, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end.max(1)
    }
}

/// Waves, edges and noise.
fn jpeg(width: u16, height: u16, sampling: Option<SamplingFactor>, quality: u8, restart: u16) -> Vec<u8> {
    let (color, channels) = if sampling.is_some() { (ColorType::Rgb, 3) } else { (ColorType::Luma, 1) };
    let mut numbers = Numbers(u64::from(width) << 16 | u64::from(height));
    let mut pixels = Vec::new();
    for (y, x) in (0..usize::from(height)).flat_map(|y| (0..usize::from(width)).map(move |x| (y, x))) {
        for channel in 0..channels {
            let edge = if (x / 7 + y / 5 + channel).is_multiple_of(3) { 90 } else { 0 };
            pixels.push(((x * (3 + channel) + y * 2) % 120 + edge + numbers.below(40)) as u8);
        }
    }
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, quality);
    encoder.set_sampling_factor(sampling.unwrap_or(SamplingFactor::F_1_1));
    encoder.set_restart_interval(restart);
    encoder.encode(&pixels, width, height, color).unwrap();
    bytes
}

fn decoder(backend: Backend) -> ImageDecoder {
    ImageDecoder::new(DecodeOptions { backend, ..DecodeOptions::default() }).unwrap()
}

/// A baseline decoder and the one that it must be like.
struct Pair {
    ours: ImageDecoder,
    turbo: ImageDecoder,
}

impl Pair {
    fn new() -> Self {
        Self { ours: decoder(Backend::Baseline), turbo: decoder(Backend::Turbo) }
    }

    /// What both make of it: the pixels, or none if both refuse it.
    fn both(&mut self, bytes: &[u8], region: Option<Region>, what: &str) -> Option<Vec<u8>> {
        let turbo = self.turbo.decode(bytes, region).map(|pixels| {
            region.map_or_else(|| pixels.to_vec(), |region| pixels.view(region).expect("it holds the region").to_vec())
        });
        match (self.ours.decode(bytes, region), turbo) {
            (Ok(ours), Ok(turbo)) => {
                assert!(ours.to_vec() == turbo, "other pixels: {what}");
                Some(turbo)
            }
            (Err(_), Err(_)) => None,
            (ours, turbo) => panic!("{what}: {:?}, {:?}", ours.err(), turbo.err()),
        }
    }
}

#[test]
fn pixels_of_plain_files_are_libjpeg_turbos_and_none_falls_back() {
    let mut pair = Pair::new();
    let mut number = 0;
    for sampling in SAMPLINGS {
        for width in 1..=40 {
            for height in [1, 2, 7, 8, 9, 15, 16, 17, 31, 33, width] {
                number += 1;
                let (quality, restart) = (1 + (number * 7 % 100) as u8, [0, 0, 1, 2, 3, 5][number % 6]);
                let bytes = jpeg(width, height, sampling, quality, restart);
                let what = format!("{width}x{height} {sampling:?} quality {quality} restart {restart}");
                assert!(pair.both(&bytes, None, &what).is_some(), "{what}");
                let mut numbers = Numbers(number as u64);
                let (width, height) = (usize::from(width), usize::from(height));
                let (x, y) = (numbers.below(width), numbers.below(height));
                let (right, bottom) = (1 + numbers.below(width - x), 1 + numbers.below(height - y));
                let region = Region { x: x as u32, y: y as u32, width: right as u32, height: bottom as u32 };
                assert!(pair.both(&bytes, Some(region), &format!("{region} of {what}")).is_some());
            }
        }
    }
    assert_eq!(pair.ours.fallbacks().total(), 0);
}

#[test]
fn photos_with_tables_of_their_own_are_decoded_alike_at_every_quality() {
    let mut pair = Pair::new();
    for quality in 1..=100 {
        let sampling = SAMPLINGS[usize::from(quality) % 5];
        let bytes = optimise_huffman(&jpeg(121, 75, sampling, quality, u16::from(quality) % 4 * 4)).unwrap();
        assert!(pair.both(&bytes, None, &format!("quality {quality}")).is_some());
    }
    for seed in 0..6 {
        assert!(pair.both(&encode_photo(seed), None, "a photo").is_some());
    }
    assert_eq!(pair.ours.fallbacks().total(), 0);
}

#[test]
fn whatever_is_not_plain_falls_back_and_the_reason_is_counted() {
    let with = |color: ColorType, set: &dyn Fn(&mut Encoder<&mut Vec<u8>>)| {
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, 90);
        encoder.set_sampling_factor(SamplingFactor::F_1_1);
        set(&mut encoder);
        let channels = if color == ColorType::Cmyk { 4 } else { 3 };
        encoder.encode(&vec![90; 40 * 24 * channels], 40, 24, color).unwrap();
        bytes
    };
    let plain = jpeg(40, 24, Some(SamplingFactor::F_1_1), 100, 0);
    let segment = |code| plain.windows(2).position(|pair| pair == [0xFF, code]).unwrap();
    let (tables, quantisers) = (segment(0xC4), segment(0xDB));
    let length = usize::from(plain[tables + 2]) * 256 + usize::from(plain[tables + 3]) + 2;
    let doubled = [&plain[..tables + length], &plain[tables..]].concat();
    let mut coarse = plain.clone();
    coarse[quantisers + 5..][..64].fill(255);
    let mut extra = plain.clone();
    extra.splice(segment(0xC0)..segment(0xC0), [0xFF, 0xDD, 0, 4, 0, 0, 0xFF, 0xDD, 0, 4, 0, 0]);
    // The second component with more samples than the first.
    let mut wider = plain.clone();
    wider[segment(0xC0) + 14] = 0x21;
    // Neither JFIF nor numbers, but letters for identifiers.
    let mut red = plain.clone();
    red[segment(0xE0) + 4] = b'X';
    for (name, at) in b"RGB".iter().zip([10, 13, 16]) {
        red[segment(0xC0) + at] = *name;
    }
    for (name, at) in b"RGB".iter().zip([5, 7, 9]) {
        red[segment(0xDA) + at] = *name;
    }
    let mut longer = plain.clone();
    longer.splice(plain.len() - 2..plain.len() - 2, [1, 2]);
    for (bytes, reason) in [
        (with(ColorType::Rgb, &|encoder| encoder.set_progressive(true)), Refusal::Process),
        (with(ColorType::Cmyk, &|_| {}), Refusal::Components),
        (wider, Refusal::Sampling),
        (red, Refusal::Color),
        (with(ColorType::Rgb, &|encoder| encoder.set_optimized_huffman_tables(true)), Refusal::Scans),
        (doubled, Refusal::Tables),
        (extra, Refusal::Markers),
        (coarse, Refusal::Range),
        (longer, Refusal::Data),
    ] {
        let mut pair = Pair::new();
        let _ = pair.both(&bytes, None, reason.as_str());
        let counts: Vec<_> = pair.ours.fallbacks().iter().filter(|&(_, count)| count > 0).collect();
        assert_eq!(counts, [(reason, 1)]);
    }
    let options = DecodeOptions { truncated: Truncated::Allow, ..DecodeOptions::default() };
    let mut lenient = ImageDecoder::new(options).unwrap();
    lenient.decode(&plain[..plain.len() - 99], None).unwrap();
    assert!(lenient.fallbacks().iter().eq(Refusal::ALL.map(|reason| (reason, u64::from(reason == Refusal::Cut)))));
}

#[test]
fn damaged_files_are_refused_or_decoded_as_libjpeg_turbo_does() {
    let mut numbers = Numbers(3);
    let (mut refused, mut decoded) = (0, 0);
    // BRIMFUL_MUTANTS=100000 takes some minutes.
    let count = std::env::var("BRIMFUL_MUTANTS").ok().and_then(|count| count.parse().ok()).unwrap_or(1200);
    for number in 0..count {
        let sampling = SAMPLINGS[number % 5];
        let restart = if number % 7 == 0 { 3 } else { 0 };
        let plain = jpeg(57, 41, sampling, [30, 75, 95][number % 3], restart);
        let mut bytes = if number % 2 == 0 { optimise_huffman(&plain).unwrap() } else { plain };
        // Mostly in the data, sometimes in the header.
        let from = if number % 8 == 1 { 2 } else { 620.min(bytes.len() / 2) };
        for _ in 0..1 + numbers.below(3) {
            let at = from + numbers.below(bytes.len() - from);
            match numbers.below(4) {
                0 => bytes[at] = numbers.below(256) as u8,
                1 => bytes.truncate(at.max(4)),
                2 => drop(bytes.drain(at..(at + 1 + numbers.below(6)).min(bytes.len()))),
                _ => bytes[at] ^= 1 << numbers.below(8),
            }
            if bytes.len() <= from + 1 {
                break;
            }
        }
        // Anew for each: libjpeg keeps the tables of the last file for one that has none.
        let mut pair = Pair::new();
        match pair.both(&bytes, None, &format!("mutant {number}")) {
            Some(_) => decoded += 1,
            None => refused += 1,
        }
        let part = Region { x: 9, y: 8, width: 17, height: 11 };
        if restart == 0 && number % 8 != 1 {
            let _ = pair.both(&bytes, Some(part), &format!("part of mutant {number}"));
        }
    }
    assert!(decoded > 100 && refused > 100, "{decoded} decoded, {refused} refused");
}

#[test]
fn a_region_of_a_file_with_restart_rows_needs_no_row_above() {
    let (width, height) = (64, 64);
    let sound = jpeg(width, height, Some(SamplingFactor::F_1_1), 90, width / 8);
    let region = Region { x: 5, y: 40, width: 20, height: 20 };
    let mut ours = decoder(Backend::Baseline);
    let expected = ours.decode(&sound, Some(region)).unwrap().to_vec();
    let mut damaged = sound.clone();
    let first_restart = sound.windows(2).position(|pair| pair == [0xFF, 0xD0]).unwrap();
    damaged[first_restart - 40..first_restart].fill(0x55);
    assert!(decoder(Backend::Turbo).decode(&damaged, None).is_err());
    assert_eq!(ours.decode(&damaged, Some(region)).unwrap().to_vec(), expected);
    assert_eq!(ours.fallbacks().total(), 0);
}

/// Jobs of several files that remember what came back.
struct Collecting {
    files: Vec<Bytes>,
    region: Option<Region>,
    next: usize,
    results: BTreeMap<Ticket, Option<Vec<u8>>>,
    fallbacks: Vec<(Ticket, Refusal)>,
}

impl Jobs for Collecting {
    fn next(&mut self) -> Option<(Ticket, Bytes)> {
        let file = self.files.get(self.next)?;
        self.next += 1;
        Some((self.next - 1, file.clone()))
    }

    fn region(&mut self, _: Ticket, info: &ImageInfo) -> Result<Region> {
        Ok(self.region.unwrap_or(Region::from(info)))
    }

    fn fell_back(&mut self, ticket: Ticket, refusal: Refusal) {
        self.fallbacks.push((ticket, refusal));
    }

    fn done(&mut self, ticket: Ticket, result: Result<Pixels<'_>>) {
        assert!(self.results.insert(ticket, result.ok().map(|pixels| pixels.to_vec())).is_none());
    }
}

#[test]
fn a_queue_of_all_sorts_of_files_gets_every_result_once_and_right() {
    let mut files = Vec::new();
    for number in 0..40_u16 {
        let mut file = jpeg(20 + number * 3, 70 - number, SAMPLINGS[usize::from(number) % 5], 80, number % 3);
        match number % 8 {
            3 => file.truncate(file.len() / 2),
            5 => file.iter_mut().skip(700).step_by(11).for_each(|byte| *byte ^= 0x40),
            6 => {
                let pixels = vec![50; 30 * 20];
                file.clear();
                let mut encoder = Encoder::new(&mut file, 80);
                encoder.set_progressive(true);
                encoder.encode(&pixels, 30, 20, ColorType::Luma).unwrap();
            }
            _ => {}
        }
        files.push(Bytes::from(file));
    }
    for region in [None, Some(Region { x: 3, y: 2, width: 15, height: 12 })] {
        for mode in [ColorMode::Rgb, ColorMode::Grey] {
            let options = |backend| DecodeOptions { backend, mode, exif: true, ..DecodeOptions::default() };
            let mut jobs =
                Collecting { files: files.clone(), region, next: 0, results: BTreeMap::new(), fallbacks: Vec::new() };
            let mut ours = ImageDecoder::new(options(Backend::Auto)).unwrap();
            ours.run(&mut jobs);
            assert_eq!(jobs.results.len(), files.len());
            assert_eq!(jobs.fallbacks.len() as u64, ours.fallbacks().total());
            assert!(jobs.fallbacks.iter().any(|&(_, refusal)| refusal == Refusal::Process));
            let mut turbo = ImageDecoder::new(options(Backend::Turbo)).unwrap();
            for (file, ours) in files.iter().zip(jobs.results.values()) {
                let expected = turbo.decode(file, region).ok();
                let expected = expected.map(|pixels| pixels.view(region.unwrap_or(pixels.region)).unwrap().to_vec());
                assert!(*ours == expected);
            }
        }
    }
}
