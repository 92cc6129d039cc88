//! Which images may be sent to the JPEG engines, from what their headers and geometry say. It asks no library, so
//! decode threads can apply it, and what it lets through is asked about once more.

use super::refusal::Refusal;
use crate::decode::{ImageInfo, JpegInfo, JpegProcess, Orientation};
use crate::transform::Geometry;

/// Bytes between the rows' beginnings, and between the beginnings of images, are multiples of this.
pub(super) const PITCH_ALIGN: usize = 64;
pub(super) const IMAGE_ALIGN: usize = 256;

/// The part of a state's memory that one image may take.
const PARTS: usize = 8;

/// What an engine takes; cheap to copy to the threads that choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineRules {
    /// (height, width) of the rows.
    pub(super) output: (u32, u32),
    /// Whether images are turned upright by their EXIF orientation.
    pub(super) exif: bool,
    /// Images of a full sub-batch.
    pub(super) images_max: usize,
    /// Bytes of a state's memory for decoded images, and for their files.
    pub(super) scratch_bytes: usize,
    pub(super) staging_bytes: usize,
}

impl EngineRules {
    /// Whether the engines take an image of `info`, of a file of `file_bytes`, to be cropped and resized by `geometry`.
    ///
    /// # Errors
    /// The reason why not.
    pub fn supports(&self, info: &ImageInfo, geometry: &Geometry, file_bytes: usize) -> Result<(), Refusal> {
        let jpeg = info.jpeg.as_ref().ok_or(Refusal::Format)?;
        if jpeg.process != JpegProcess::Baseline || info.bits != 8 || jpeg.scans != 1 || !jpeg.interleaved {
            return Err(Refusal::Coding);
        }
        if !jpeg.complete {
            return Err(Refusal::Incomplete);
        }
        check_colors(info.components, jpeg)?;
        if self.exif && info.orientation != Orientation::Upright {
            return Err(Refusal::Orientation);
        }
        self.check_sizes(info, file_bytes)?;
        let fits = geometry.as_single_resample().is_some() && geometry.output_size() == self.output;
        if fits { Ok(()) } else { Err(Refusal::Geometry) }
    }

    /// Whether a sub-batch has as many images as it may, or might have no room for one more.
    ///
    /// `images` gives (info, bytes of the file) of each.
    pub fn is_full<'a>(&self, images: impl Iterator<Item = (&'a ImageInfo, usize)>) -> bool {
        let (mut count, mut scratch, mut staging) = (0, 0, 0);
        for (info, file_bytes) in images {
            count += 1;
            scratch += image_bytes(info).unwrap_or(self.scratch_bytes);
            staging += file_bytes.next_multiple_of(IMAGE_ALIGN);
        }
        count >= self.images_max
            || scratch + self.image_bytes_max() > self.scratch_bytes
            || staging + self.file_bytes_max() > self.staging_bytes
    }

    fn check_sizes(&self, info: &ImageInfo, file_bytes: usize) -> Result<(), Refusal> {
        let max = self.image_bytes_max();
        let bytes = image_bytes(info).unwrap_or(usize::MAX);
        if bytes > max {
            return Err(Refusal::Size { bytes, max });
        }
        let max = self.file_bytes_max();
        if file_bytes > max { Err(Refusal::FileSize { bytes: file_bytes, max }) } else { Ok(()) }
    }

    /// Most bytes of one decoded image.
    fn image_bytes_max(&self) -> usize {
        self.scratch_bytes / PARTS
    }

    /// Most bytes of one file.
    fn file_bytes_max(&self) -> usize {
        self.staging_bytes / PARTS
    }
}

/// Bytes of a row of a decoded image.
pub(super) fn pitch_of(width: u32) -> usize {
    (width as usize * 3).next_multiple_of(PITCH_ALIGN)
}

/// Bytes of a decoded image, unless they cannot be counted.
pub(super) fn image_bytes(info: &ImageInfo) -> Option<usize> {
    pitch_of(info.width).checked_mul(info.height as usize)?.checked_next_multiple_of(IMAGE_ALIGN)
}

/// The engines take three components for YCbCr, and one for luma; whether the file means that is said by its markers,
/// by libjpeg's rule.
fn check_colors(components: u8, jpeg: &JpegInfo) -> Result<(), Refusal> {
    match (components, jpeg.sampling) {
        (1, [(1, 1), ..]) => Ok(()),
        (1, _) => Err(Refusal::Sampling),
        (3, [luma, (1, 1), (1, 1), _]) => {
            let ids = jpeg.component_ids;
            let is_rgb = !jpeg.jfif
                && match jpeg.adobe_transform {
                    Some(transform) => transform == 0,
                    None => ids[..3] == *b"RGB",
                };
            match luma {
                _ if is_rgb => Err(Refusal::Colors),
                (1 | 2, 1 | 2) => Ok(()),
                _ => Err(Refusal::Sampling),
            }
        }
        (3, _) => Err(Refusal::Sampling),
        _ => Err(Refusal::Colors),
    }
}

#[cfg(test)]
mod tests {
    use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

    use super::*;
    use crate::decode::image_info;
    use crate::transform::{Compose, SampleRng};

    const RULES: EngineRules =
        EngineRules { output: (32, 32), exif: true, images_max: 4, scratch_bytes: 1 << 20, staging_bytes: 1 << 20 };

    fn encode(size: u16, color: ColorType, sampling: SamplingFactor, progressive: bool) -> Vec<u8> {
        let channels = match color {
            ColorType::Luma => 1,
            ColorType::Rgb => 3,
            _ => 4,
        };
        let pixels: Vec<u8> = (0..usize::from(size).pow(2) * channels).map(|n| n as u8).collect();
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&mut file, 80);
        encoder.set_sampling_factor(sampling);
        encoder.set_progressive(progressive);
        encoder.encode(&pixels, size, size, color).unwrap();
        file
    }

    fn plain() -> Vec<u8> {
        encode(64, ColorType::Rgb, SamplingFactor::F_2_2, false)
    }

    fn asked(rules: EngineRules, file: &[u8], transform: &str) -> Result<(), Refusal> {
        let info = image_info(file).unwrap();
        let compose = Compose::from_json(transform).unwrap();
        let geometry = compose.geometry(info.width, info.height, &mut SampleRng::new(0, 0, 0)).unwrap();
        rules.supports(&info, &geometry, file.len())
    }

    fn check(file: &[u8], expected: Result<(), Refusal>) {
        assert_eq!(asked(RULES, file, r#"[{"name": "RandomResizedCrop", "size": 32}]"#), expected);
    }

    #[test]
    fn engines_take_baseline_files_of_common_sampling() {
        for sampling in [SamplingFactor::F_1_1, SamplingFactor::F_2_1, SamplingFactor::F_2_2, SamplingFactor::F_1_2] {
            check(&encode(64, ColorType::Rgb, sampling, false), Ok(()));
            check(&encode(64, ColorType::Rgb, sampling, true), Err(Refusal::Coding));
        }
        check(&encode(64, ColorType::Luma, SamplingFactor::F_1_1, false), Ok(()));
        let info = image_info(&plain()).unwrap();
        let jpeg = info.jpeg.unwrap();
        for sampling in [[(4, 1), (1, 1), (1, 1)], [(4, 2), (1, 1), (1, 1)], [(2, 2), (2, 1), (1, 1)]] {
            let sampling = [sampling[0], sampling[1], sampling[2], (0, 0)];
            assert_eq!(check_colors(3, &JpegInfo { sampling, ..jpeg.clone() }), Err(Refusal::Sampling));
        }
        check(&encode(64, ColorType::Cmyk, SamplingFactor::F_1_1, false), Err(Refusal::Colors));
    }

    #[test]
    fn what_is_no_whole_jpeg_is_for_the_cpu() {
        let file = plain();
        check(&file[..file.len() - 40], Err(Refusal::Incomplete));
        let mut png = Vec::new();
        let encoder = image::codecs::png::PngEncoder::new(&mut png);
        image::ImageEncoder::write_image(encoder, &[7; 3 * 64 * 64], 64, 64, image::ExtendedColorType::Rgb8).unwrap();
        check(&png, Err(Refusal::Format));
    }

    /// The file with a segment in the place of its JFIF marker.
    fn with_segment(segment: &[u8]) -> Vec<u8> {
        let file = plain();
        let jfif_end = 4 + usize::from(u16::from_be_bytes([file[4], file[5]]));
        assert_eq!(file[2..4], [0xFF, 0xE0]);
        [&file[..2], segment, &file[jfif_end..]].concat()
    }

    #[test]
    fn files_that_mean_rgb_or_must_be_turned_are_for_the_cpu() {
        let adobe = |transform: u8| [b"\xFF\xEE\0\x0EAdobe\0\x64\0\0\0\0".as_slice(), &[transform]].concat();
        check(&with_segment(&adobe(0)), Err(Refusal::Colors));
        check(&with_segment(&adobe(1)), Ok(()));
        check(&with_segment(&[]), Ok(()));
        let mut named = with_segment(&[]);
        let frame = named.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap();
        for (n, name) in b"RGB".iter().enumerate() {
            named[frame + 10 + 3 * n] = *name;
        }
        let scan = named.windows(2).position(|pair| pair == [0xFF, 0xDA]).unwrap();
        for (n, name) in b"RGB".iter().enumerate() {
            named[scan + 5 + 2 * n] = *name;
        }
        check(&named, Err(Refusal::Colors));
        let turned = b"\xFF\xE1\0\x22Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
        let turned = with_segment(turned);
        check(&turned, Err(Refusal::Orientation));
        let as_stored = EngineRules { exif: false, ..RULES };
        assert_eq!(asked(as_stored, &turned, r#"[{"name": "Resize", "size": [32, 32]}]"#), Ok(()));
    }

    #[test]
    fn transforms_must_end_in_the_rows_size() {
        for (transform, expected) in [
            (r#"[{"name": "Resize", "size": [32, 32]}, {"name": "RandomHorizontalFlip", "p": 1}]"#, Ok(())),
            (r#"[{"name": "CenterCrop", "size": 32}]"#, Ok(())),
            (r#"[{"name": "CenterCrop", "size": 33}]"#, Err(Refusal::Geometry)),
            (r#"[{"name": "CenterCrop", "size": 80}, {"name": "CenterCrop", "size": 32}]"#, Ok(())),
            (r#"[{"name": "Pad", "padding": 4}, {"name": "Resize", "size": [32, 32]}]"#, Err(Refusal::Geometry)),
        ] {
            assert_eq!(asked(RULES, &plain(), transform), expected, "{transform}");
        }
    }

    #[test]
    fn an_image_takes_an_eighth_of_a_state_at_most() {
        // 64 rows of 192 bytes.
        let fits = EngineRules { scratch_bytes: 8 * 64 * 192, ..RULES };
        let transform = r#"[{"name": "CenterCrop", "size": 32}]"#;
        assert_eq!(asked(fits, &plain(), transform), Ok(()));
        let less = EngineRules { scratch_bytes: 8 * 64 * 192 - 8, ..RULES };
        assert_eq!(asked(less, &plain(), transform), Err(Refusal::Size { bytes: 12_288, max: 12_287 }));
        let less = EngineRules { staging_bytes: 800, ..RULES };
        let bytes = plain().len();
        assert_eq!(asked(less, &plain(), transform), Err(Refusal::FileSize { bytes, max: 100 }));
    }

    #[test]
    fn a_sub_batch_is_full_by_number_or_by_room() {
        let info = image_info(&plain()).unwrap();
        let full = |rules: EngineRules, count: usize| rules.is_full((0..count).map(|_| (&info, 1000)));
        assert_eq!([full(RULES, 0), full(RULES, 3), full(RULES, 4)], [false, false, true]);
        let small = EngineRules { images_max: 100, scratch_bytes: 8 * 12_288, ..RULES };
        assert_eq!([full(small, 7), full(small, 8)], [false, true]);
        let few = EngineRules { images_max: 100, staging_bytes: 16 * 1024, ..RULES };
        assert_eq!([full(few, 14), full(few, 15)], [false, true]);
    }
}
