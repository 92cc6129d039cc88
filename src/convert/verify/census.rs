//! Every image of some shards decoded whole: which cannot be, and what kinds of image there are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use serde::Serialize;

use super::finding::{Finding, FindingKind, Findings};
use super::finding_of;
use crate::convert::allowance::Memory;
use crate::convert::extension::is_picture_field;
use crate::convert::picture::decoded_bytes;
use crate::decode::{DecodeOptions, ImageDecoder, ImageInfo, JpegProcess, Orientation};
use crate::error::Result;
use crate::sample::{Duplicates, Grouping, Key, SampleIndex, SampleIndexBuilder};
use crate::shard::{Damage, Shard, ShardIndex, ShardOptions};

/// What images there are.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Census {
    /// Images that were decoded whole.
    pub images: u64,
    /// Images that could not be.
    pub bad: u64,
    /// Bytes of all images.
    pub bytes: u64,
    /// Images by format.
    pub formats: BTreeMap<String, u64>,
    /// JPEG files by chroma subsampling: `4:2:0`, `4:4:4`, ..
    pub subsampling: BTreeMap<String, u64>,
    /// JPEG files that are progressive.
    pub progressive: u64,
    /// Images of four components.
    pub cmyk: u64,
    /// Images of one component.
    pub grey: u64,
    /// Images whose EXIF says that they must be turned.
    pub exif_rotated: u64,
    /// Images of more than 8 bits.
    pub sixteen_bit: u64,
    /// JPEG files with restart markers.
    pub restart_markers: u64,
    /// Images by their longer side in pixels: up to 128, 256, 512, .. (`"512"` counts those from 257 to 512).
    pub sides: BTreeMap<u32, u64>,
    /// The smallest and the largest width and height in pixels.
    pub smallest: Option<(u32, u32)>,
    /// See `smallest`.
    pub largest: Option<(u32, u32)>,
}

impl Census {
    fn add(&mut self, info: &ImageInfo, bytes: u64) {
        self.images += 1;
        self.bytes += bytes;
        let count = |map: &mut BTreeMap<String, u64>, name: &str| *map.entry(name.to_owned()).or_default() += 1;
        count(&mut self.formats, info.format.as_str());
        if let Some(jpeg) = &info.jpeg {
            if info.components == 3 {
                count(&mut self.subsampling, subsampling(&jpeg.sampling));
            }
            self.progressive += u64::from(jpeg.process == JpegProcess::Progressive);
            self.restart_markers += u64::from(jpeg.restart_interval > 0);
        }
        let is_cmyk = info.jpeg.is_some() && info.components == 4;
        self.cmyk += u64::from(is_cmyk);
        self.grey += u64::from(info.components <= 2);
        self.exif_rotated += u64::from(info.orientation != Orientation::Upright);
        self.sixteen_bit += u64::from(info.bits > 8);
        let (width, height) = (info.width, info.height);
        *self.sides.entry(width.max(height).max(128).next_power_of_two()).or_default() += 1;
        let smaller = |(a, b): (u32, u32)| (a.min(width), b.min(height));
        let larger = |(a, b): (u32, u32)| (a.max(width), b.max(height));
        self.smallest = Some(self.smallest.map_or((width, height), smaller));
        self.largest = Some(self.largest.map_or((width, height), larger));
    }

    fn merge(&mut self, other: Self) {
        let Self { images, bad, bytes, progressive, cmyk, grey, exif_rotated, sixteen_bit, restart_markers, .. } =
            &other;
        self.images += images;
        self.bad += bad;
        self.bytes += bytes;
        self.progressive += progressive;
        self.cmyk += cmyk;
        self.grey += grey;
        self.exif_rotated += exif_rotated;
        self.sixteen_bit += sixteen_bit;
        self.restart_markers += restart_markers;
        other.formats.into_iter().for_each(|(name, count)| *self.formats.entry(name).or_default() += count);
        other.subsampling.into_iter().for_each(|(name, count)| *self.subsampling.entry(name).or_default() += count);
        other.sides.into_iter().for_each(|(side, count)| *self.sides.entry(side).or_default() += count);
        if let Some((width, height)) = other.smallest {
            self.smallest = Some(self.smallest.map_or((width, height), |(a, b)| (a.min(width), b.min(height))));
        }
        if let Some((width, height)) = other.largest {
            self.largest = Some(self.largest.map_or((width, height), |(a, b)| (a.max(width), b.max(height))));
        }
    }
}

/// The usual name of three components' sampling factors.
fn subsampling(factors: &[(u8, u8); 4]) -> &'static str {
    match factors[..3] {
        [luma, blue, red] if luma == blue && blue == red => "4:4:4",
        [(2, 2), (1, 1), (1, 1)] => "4:2:0",
        [(2, 1), (1, 1), (1, 1)] | [(2, 2), (1, 2), (1, 2)] => "4:2:2",
        [(1, 2), (1, 1), (1, 1)] => "4:4:0",
        [(4, 1), (1, 1), (1, 1)] => "4:1:1",
        _ => "other",
    }
}

/// Samples that a thread takes at a time.
const CHUNK: usize = 16;

/// Decodes every image of the shards at `paths`.
///
/// # Errors
/// When no decoder can be made. An image that cannot be decoded is a finding.
pub(super) fn take(
    paths: &[PathBuf],
    threads: usize,
    progress: &(dyn Fn(usize, usize) + Sync),
    findings: &mut Findings,
) -> Result<Census> {
    let mut census = Census::default();
    for (number, path) in paths.iter().enumerate() {
        // What cannot be opened was found before.
        if let Ok((shard, samples)) = open(path) {
            let (found, bad) = take_shard(path, &shard, &samples, threads)?;
            census.merge(found);
            bad.into_iter().for_each(|finding| findings.add(finding));
        }
        progress(number + 1, paths.len());
    }
    Ok(census)
}

fn open(path: &Path) -> Result<(Shard, SampleIndex)> {
    let shard = Shard::open(path, &ShardOptions { damage: Damage::Resync, ..ShardOptions::default() })?;
    let index = ShardIndex::build(&shard)?;
    let grouping = Grouping { duplicates: Duplicates::KeepFirst, ..Grouping::default() };
    let mut builder = SampleIndexBuilder::new(&grouping);
    builder.push_shard(shard.name().clone(), 0, index.iter().map(|file| (file.name, file.offset, file.size)))?;
    Ok((shard, builder.finish()))
}

fn take_shard(path: &Path, shard: &Shard, samples: &SampleIndex, threads: usize) -> Result<(Census, Vec<Finding>)> {
    let next = AtomicUsize::new(0);
    let total = Mutex::new((Census::default(), Vec::new()));
    let memory = Memory::of(1, threads);
    let work = |mut decoder: ImageDecoder| {
        let (mut census, mut bad) = (Census::default(), Vec::new());
        loop {
            let start = next.fetch_add(CHUNK, Ordering::Relaxed);
            if start >= samples.len() {
                break;
            }
            for sample in (start..samples.len().min(start + CHUNK)).map(|number| samples.get(number)) {
                for field in sample.fields().filter(|field| is_picture_field(field.ext)) {
                    match decode(shard, field.range(), &mut decoder, &memory) {
                        Ok(info) => census.add(&info, field.size),
                        Err(error) => {
                            census.bad += 1;
                            let error = error.at_key(Key::new(sample.key().to_vec()));
                            let mut finding = finding_of(FindingKind::BadImage, path, &error);
                            finding.message = format!("field '{}': {}", field.ext, finding.message);
                            bad.push(finding.at_offset(field.offset));
                        }
                    }
                }
            }
        }
        let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
        total.0.merge(census);
        total.1.extend(bad);
    };
    let decoders =
        (0..threads.max(1)).map(|_| ImageDecoder::new(DecodeOptions::default())).collect::<Result<Vec<_>>>()?;
    thread::scope(|scope| decoders.into_iter().for_each(|decoder| drop(scope.spawn(|| work(decoder)))));
    let (census, mut bad) = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    bad.sort_by_key(|finding: &Finding| finding.offset);
    Ok((census, bad))
}

fn decode(
    shard: &Shard,
    range: std::ops::Range<u64>,
    decoder: &mut ImageDecoder,
    memory: &Memory,
) -> Result<ImageInfo> {
    shard.populate(range.clone())?;
    let info = decode_whole(&shard.read(range)?, decoder, memory)?;
    shard.check()?;
    Ok(info)
}

/// Decodes a picture within what threads may take together.
///
/// # Errors
/// Those of decoding.
pub(in crate::convert) fn decode_whole(bytes: &[u8], decoder: &mut ImageDecoder, memory: &Memory) -> Result<ImageInfo> {
    let info = decoder.info(bytes)?;
    let needed = decoded_bytes(&info);
    if needed <= memory.hand_picture_bytes {
        decoder.decode(bytes, None)?;
    } else {
        // A decoder of its own, whose buffers go with what was taken for them.
        let _taken = memory.pictures.take(needed);
        ImageDecoder::new(DecodeOptions::default())?.decode(bytes, None)?;
    }
    Ok(info)
}
