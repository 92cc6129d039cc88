//! Every image of a corpus of odd and damaged files against what Pillow made of it.
//!
//! The corpus lives beside the checkout and is not part of it; without it this test says so and passes. Differences
//! that were looked into and agreed stand, with their reasons, in `agreed_differences.tsv`.
#![expect(clippy::print_stderr, reason = "a skipped test says so")]

mod sha256;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use brimful::ErrorKind;
use brimful::decode::{Backend, DecodeOptions, ImageDecoder, ImageFormat, Pixels, Region, backends};
use serde::Deserialize;

/// How far mean colours may lie from Pillow's where another library decodes, in steps of 255.
const MEAN_MAX: f64 = 0.6;
/// The same for the mean of each of 16 parts of the picture.
const THUMB_MAX: f64 = 4.0;

#[derive(Deserialize)]
struct Row {
    path: String,
    outcome: String,
    w: Option<u32>,
    h: Option<u32>,
    rgb_sha256_16: Option<String>,
    mean_rgb: Option<[f64; 3]>,
    thumb4x4_hex: Option<String>,
}

#[test]
fn every_image_has_its_expected_outcome_under_libjpeg_turbo() {
    check("turbo", Backend::Turbo, &IMAGES);
}

/// With libjpeg-turbo behind it the outcomes are libjpeg-turbo's, to the last pixel.
#[test]
fn every_image_has_its_expected_outcome_under_the_baseline_decoder() {
    check("turbo", Backend::Baseline, &["fuzz/jpeg/", "jpeg/"]);
}

#[test]
fn every_image_has_its_expected_outcome_under_zune_jpeg() {
    check("zune", Backend::Zune, &IMAGES);
}

/// Folders of the corpus with images.
const IMAGES: [&str; 7] = ["fuzz/", "gif/", "jpeg/", "not-jpeg/", "other-format/", "png/", "webp/"];

fn check(name: &str, backend: Backend, images: &[&str]) {
    let (Some(corpus), true) = (corpus(), backends().contains(&name)) else {
        eprintln!("skipped: no corpus beside the checkout, or no {name} in this build");
        return;
    };
    let rows = fs::read_to_string(corpus.join("expected.jsonl")).unwrap();
    let rows: Vec<Row> = rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut found = BTreeMap::new();
    let mut checked = 0;
    for row in rows.iter().filter(|row| images.iter().any(|folder| row.path.starts_with(folder))) {
        let bytes = fs::read(corpus.join(&row.path)).unwrap();
        // A fresh decoder for each, so that one file cannot excuse another.
        let mut decoder = ImageDecoder::new(DecodeOptions { backend, ..DecodeOptions::default() }).unwrap();
        if let Some((difference, detail)) = difference(&mut decoder, &bytes, row, backend) {
            found.insert(format!("{}\t{}\t{name}: {difference}", row.path, row.outcome), detail);
        }
        checked += 1;
    }
    assert!(checked >= 80 * images.len(), "only {checked} images checked: is the corpus whole?");
    let agreed = agreed(images, name);
    let unknown: Vec<_> = found.iter().filter(|(difference, _)| !agreed.contains(*difference)).collect();
    let gone: Vec<_> = agreed.iter().filter(|difference| !found.contains_key(*difference)).collect();
    assert!(unknown.is_empty() && gone.is_empty(), "not agreed: {unknown:#?}\nagreed but gone: {gone:#?}");
}

/// What is not as expected, in words that `agreed_differences.tsv` repeats, and a detail for whoever looks into it.
fn difference(decoder: &mut ImageDecoder, bytes: &[u8], row: &Row, backend: Backend) -> Option<(String, String)> {
    let exact = backend != Backend::Zune && matches!(ImageFormat::of(bytes), Ok(ImageFormat::Jpeg));
    let pixels_allowed = row.outcome.starts_with("pixels") || matches!(&*row.outcome, "not-jpeg" | "bounded-time");
    let error_allowed = |kind: ErrorKind| match &*row.outcome {
        "pixels" => false,
        "not-jpeg" | "unsupported" | "pixels-or-unsupported" => kind == ErrorKind::Unsupported,
        _ => true,
    };
    match decoder.decode(bytes, None) {
        Err(error) if error_allowed(error.kind()) => None,
        Err(error) => Some((format!("error {}", error.kind().as_str()), error.to_string())),
        Ok(_) if !pixels_allowed => Some(("pixels".to_owned(), String::new())),
        Ok(pixels) if (row.w, row.h) != (Some(pixels.width), Some(pixels.height)) => {
            Some(("another size".to_owned(), format!("{}x{}", pixels.width, pixels.height)))
        }
        Ok(pixels) => {
            let (whole, region) = (pixels.to_vec(), pixels.region);
            let pixels = Pixels::packed(&whole, region, 3).unwrap();
            other_pixels(&pixels, row, exact).or_else(|| regions_are_parts(decoder, bytes, &pixels, exact))
        }
    }
}

fn other_pixels(pixels: &Pixels<'_>, row: &Row, exact: bool) -> Option<(String, String)> {
    if exact {
        if row.rgb_sha256_16.as_deref() == Some(&sha256::hex(pixels.data)[..16]) {
            return None;
        }
        return Some(("other pixels".to_owned(), "not the same digest".to_owned()));
    }
    let mean = block_mean(pixels, 0..pixels.width, 0..pixels.height);
    let mean_off =
        mean.iter().zip(row.mean_rgb.unwrap()).map(|(ours, theirs)| (ours - theirs).abs()).fold(0.0, f64::max);
    let expected = row.thumb4x4_hex.as_deref().unwrap();
    let mut thumb_off = 0.0_f64;
    for part in 0..16 {
        let ours = block_mean(pixels, quarter(pixels.width, part % 4), quarter(pixels.height, part / 4));
        for (channel, ours) in (0..).zip(ours) {
            let at = (part as usize * 3 + channel) * 2;
            let theirs = u8::from_str_radix(&expected[at..at + 2], 16).unwrap();
            thumb_off = thumb_off.max((ours - f64::from(theirs)).abs());
        }
    }
    (mean_off > MEAN_MAX || thumb_off > THUMB_MAX)
        .then(|| ("other pixels".to_owned(), format!("mean {mean_off:.2}, parts {thumb_off:.2}")))
}

/// Where part `index` of four lies; small pictures repeat their lines.
fn quarter(size: u32, index: u32) -> std::ops::Range<u32> {
    let start = index * size / 4;
    start..((index + 1) * size / 4).max(start + 1)
}

fn block_mean(pixels: &Pixels<'_>, columns: std::ops::Range<u32>, rows: std::ops::Range<u32>) -> [f64; 3] {
    let mut sums = [0_u64; 3];
    for y in rows.clone() {
        for pixel in pixels.row(y)[columns.start as usize * 3..columns.end as usize * 3].chunks_exact(3) {
            sums.iter_mut().zip(pixel).for_each(|(sum, &value)| *sum += u64::from(value));
        }
    }
    sums.map(|sum| sum as f64 / f64::from(columns.len() as u32 * rows.len() as u32))
}

/// Regions of whole pictures must be parts of it, bit for bit; one region is enough for a backend that decodes in full.
fn regions_are_parts(
    decoder: &mut ImageDecoder,
    bytes: &[u8],
    whole: &Pixels<'_>,
    cropping: bool,
) -> Option<(String, String)> {
    let (width, height) = (whole.width, whole.height);
    let corners = [(width / 3, height / 3), (0, 0), (width / 2, height / 5), (width - 1, height - 1)];
    for &(x, y) in corners.iter().take(if cropping { 4 } else { 1 }) {
        let region = Region { x, y, width: (width - x).min(width / 3 + 1), height: (height - y).min(height / 3 + 1) };
        let part = decoder.decode(bytes, Some(region)).unwrap();
        if !part.rows().eq(whole.view(region).unwrap().rows()) {
            return Some(("other pixels in a region".to_owned(), region.to_string()));
        }
    }
    None
}

/// The agreed differences of images that this build can show under one backend, without their reasons.
fn agreed(images: &[&str], name: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agreed_differences.tsv");
    let table = fs::read_to_string(path).unwrap();
    let mut agreed = BTreeSet::new();
    for line in table.lines().filter(|line| images.iter().any(|folder| line.starts_with(folder))) {
        let columns: Vec<&str> = line.split('\t').collect();
        let &[path, expected, ours, reason] = columns.as_slice() else { panic!("not four columns: {line}") };
        assert!(!reason.is_empty(), "no reason: {line}");
        // "zune alone" is a build without libjpeg-turbo, which otherwise takes what zune-jpeg cannot decode.
        let (backend, difference) = ours.split_once(": ").unwrap();
        let turbo = backends().contains(&"turbo");
        if (backend == "zune alone" && turbo) || (backend == "zune with turbo" && !turbo) || !backend.starts_with(name)
        {
            continue;
        }
        agreed.insert(format!("{path}\t{expected}\t{name}: {difference}"));
    }
    agreed
}

fn corpus() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    ["../shared/corpus", "../../shared/corpus"].iter().map(|path| root.join(path)).find(|path| path.is_dir())
}
