//! The colour profile of an image file, found and put into a new one.
//!
//! What a profile says is not read, but for the colours that it is made for.

use std::io::Read;

use super::PixelKind;

/// The largest profile that is unpacked.
const PROFILE_BYTES_MAX: u64 = 16 << 20;

/// What a profile's segments begin with in a JPEG file; their number and how many there are follow.
const HEAD: &[u8] = b"ICC_PROFILE\0";

/// Bytes of a profile that one segment has room for.
const SEGMENT_BYTES_MAX: usize = 65_535 - 2 - HEAD.len() - 2;

/// The profile in a file; `None` where there is none, or no whole one.
pub(crate) fn profile_of(bytes: &[u8]) -> Option<Vec<u8>> {
    match bytes {
        [0xFF, 0xD8, ..] => of_jpeg(bytes),
        [0x89, b'P', b'N', b'G', ..] => of_png(bytes),
        [b'R', b'I', b'F', b'F', ..] => of_webp(bytes),
        _ => None,
    }
}

/// The pixels that a profile is made for, if they are ones that files are encoded of.
pub(crate) fn pixels_of(profile: &[u8]) -> Option<PixelKind> {
    match profile.get(16..20)? {
        b"RGB " => Some(PixelKind::Rgb),
        b"GRAY" => Some(PixelKind::Grey),
        _ => None,
    }
}

/// The JPEG file with a profile, which it must not have yet; without where it takes more segments than there can be.
pub(crate) fn add_profile(jpeg: &[u8], profile: &[u8]) -> Vec<u8> {
    let parts: Vec<&[u8]> = profile.chunks(SEGMENT_BYTES_MAX).collect();
    let Ok(count) = u8::try_from(parts.len()) else { return jpeg.to_vec() };
    // JFIF wants its own segment first.
    let start = match jpeg {
        [_, _, 0xFF, 0xE0, high, low, ..] => 4 + usize::from(u16::from_be_bytes([*high, *low])),
        _ => 2,
    };
    let (before, behind) = jpeg.split_at(start.min(jpeg.len()));
    let mut with = before.to_vec();
    for (number, part) in (1..=count).zip(parts) {
        let length = (2 + HEAD.len() + 2 + part.len()) as u16;
        with.extend_from_slice(&[0xFF, 0xE2]);
        with.extend_from_slice(&length.to_be_bytes());
        with.extend_from_slice(HEAD);
        with.extend_from_slice(&[number, count]);
        with.extend_from_slice(part);
    }
    with.extend_from_slice(behind);
    with
}

fn of_jpeg(jpeg: &[u8]) -> Option<Vec<u8>> {
    let segments = super::metadata::segments_of(jpeg).filter(|(marker, _)| *marker == 0xE2);
    let mut parts: Vec<(u8, u8, &[u8])> = segments
        .filter_map(|(_, segment)| match segment[4..].strip_prefix(HEAD)? {
            [number, count, part @ ..] => Some((*number, *count, part)),
            _ => None,
        })
        .collect();
    parts.sort_by_key(|(number, ..)| *number);
    let is_whole = parts
        .iter()
        .enumerate()
        .all(|(place, (number, count, _))| usize::from(*number) == place + 1 && usize::from(*count) == parts.len());
    (is_whole && !parts.is_empty()).then(|| parts.iter().flat_map(|(.., part)| part.iter().copied()).collect())
}

fn of_png(png: &[u8]) -> Option<Vec<u8>> {
    let mut at = 8;
    loop {
        let head = png.get(at..at + 8)?;
        let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let body = png.get(at + 8..)?.get(..length)?;
        match &head[4..] {
            b"iCCP" => {
                // A name, a zero byte, the method of compression.
                let packed = body.get(memchr::memchr(0, body)? + 2..)?;
                let mut profile = Vec::new();
                flate2::read::ZlibDecoder::new(packed).take(PROFILE_BYTES_MAX + 1).read_to_end(&mut profile).ok()?;
                return (profile.len() as u64 <= PROFILE_BYTES_MAX).then_some(profile);
            }
            b"IDAT" => return None,
            _ => at += 12 + length,
        }
    }
}

fn of_webp(webp: &[u8]) -> Option<Vec<u8>> {
    let mut at = 12;
    loop {
        let head = webp.get(at..at + 8)?;
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let body = webp.get(at + 8..)?.get(..length)?;
        match &head[..4] {
            b"ICCP" => return Some(body.to_vec()),
            b"VP8 " | b"VP8L" | b"ANIM" => return None,
            _ => at += 8 + length.next_multiple_of(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::{JpegOptions, encode_jpeg};
    use proptest::prelude::*;

    #[test]
    fn a_profile_of_many_segments_comes_back_whole() {
        let plain = encode_jpeg(&[9; 8 * 8 * 3], 8, 8, PixelKind::Rgb, &JpegOptions::default()).expect("legal");
        let profile: Vec<u8> = (0..200_000_u32).map(|value| (value % 251) as u8).collect();
        let with = add_profile(&plain, &profile);
        assert_eq!(profile_of(&with), Some(profile));
        assert_eq!(profile_of(&plain), None);
        // One whose second part is lost is none.
        let part = with.windows(14).position(|window| window == b"ICC_PROFILE\0\x02\x04").expect("there are four");
        let without = [&with[..part - 4], &with[part - 4 + 65_537..]].concat();
        assert_eq!(profile_of(&without), None);
        assert!(add_profile(&plain, &vec![0; 256 * SEGMENT_BYTES_MAX]) == plain, "too many segments");
    }

    #[test]
    fn a_profile_tells_its_colours() {
        let check = |colours: &[u8; 4], expected| {
            assert_eq!(pixels_of(&[&[0; 16][..], colours, &[0; 8]].concat()), expected);
        };
        check(b"RGB ", Some(PixelKind::Rgb));
        check(b"GRAY", Some(PixelKind::Grey));
        check(b"CMYK", None);
        assert_eq!(pixels_of(b"short"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_profile_or_none(bytes: Vec<u8>, head in 0usize..3) {
            let heads: [&[u8]; 3] = [b"\x89PNG\r\n\x1a\n", b"RIFF\0\0\0\0WEBP", b"\xff\xd8"];
            let file = [heads[head], &bytes].concat();
            drop(profile_of(&file));
            drop(add_profile(&file, b"profile"));
        }
    }
}
