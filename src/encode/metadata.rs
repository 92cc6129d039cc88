//! What image files hold besides the picture: taken out, carried over to a new file, and its orientation set upright.
//!
//! Segments that say what pixels mean stay: JFIF, Adobe's, and in PNG all chunks but text, time, EXIF and profiles.

use crate::{Error, ErrorKind, Result};

/// The image file without EXIF, comments, XMP and colour profiles; `None` where it has none, or its format has no place for
/// them (BMP, PNM).
///
/// # Errors
/// [`ErrorKind::Unsupported`] for a format that metadata cannot be taken out of; [`ErrorKind::Decode`] for a damaged file.
pub fn strip_metadata(bytes: &[u8]) -> Result<Option<Vec<u8>>> {
    let stripped = match bytes {
        [0xFF, 0xD8, ..] => strip_jpeg(bytes)?,
        [0x89, b'P', b'N', b'G', ..] => strip_png(bytes)?,
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => strip_webp(bytes)?,
        [b'B', b'M', ..] | [b'P', b'1'..=b'7', ..] => return Ok(None),
        _ => return Err(Error::new(ErrorKind::Unsupported, "metadata cannot be taken out of a file of this format")),
    };
    Ok((stripped.len() != bytes.len()).then_some(stripped))
}

/// Puts the EXIF data of the JPEG file `from` into the JPEG file `to`.
///
/// # Errors
/// [`ErrorKind::Decode`] for a damaged header.
pub fn carry_exif(from: &[u8], to: &[u8]) -> Result<Vec<u8>> {
    let mut carried = vec![0xFF, 0xD8];
    for (marker, segment) in Segments::of(from) {
        let segment = segment?;
        if marker == 0xE1 && segment[4..].starts_with(EXIF) {
            carried.extend_from_slice(segment);
        }
    }
    carried.extend_from_slice(to.get(2..).unwrap_or_default());
    Ok(carried)
}

/// Kinds of metadata.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Metadata {
    pub(crate) has_exif: bool,
    pub(crate) has_profile: bool,
    /// Comments, XMP and other texts.
    pub(crate) has_text: bool,
}

impl Metadata {
    /// Whether another file has all kinds that this one has.
    pub(crate) fn is_in(self, other: Self) -> bool {
        (other.has_exif || !self.has_exif)
            && (other.has_profile || !self.has_profile)
            && (other.has_text || !self.has_text)
    }
}

/// What metadata a file has, as far as it is whole: those that [`strip_metadata`] takes out.
pub(crate) fn metadata_in(bytes: &[u8]) -> Metadata {
    let mut found = Metadata::default();
    match bytes {
        [0xFF, 0xD8, ..] => {
            for (marker, segment) in segments_of(bytes) {
                match (marker, &segment[4..]) {
                    (0xE1, payload) if payload.starts_with(EXIF) => found.has_exif = true,
                    (0xE2, payload) if payload.starts_with(b"ICC_PROFILE\0") => found.has_profile = true,
                    _ => found.has_text |= !is_of_picture(marker),
                }
            }
        }
        [0x89, b'P', b'N', b'G', ..] => {
            let mut at = 8;
            while let Some(head) = bytes.get(at..at + 8) {
                match &head[4..] {
                    b"eXIf" => found.has_exif = true,
                    b"iCCP" => found.has_profile = true,
                    kind => found.has_text |= matches!(kind, b"tEXt" | b"zTXt" | b"iTXt" | b"tIME"),
                }
                at += 12 + u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
            }
        }
        [b'R', b'I', b'F', b'F', ..] => {
            let mut at = 12;
            while let Some(head) = bytes.get(at..at + 8) {
                match &head[..4] {
                    b"EXIF" => found.has_exif = true,
                    b"ICCP" => found.has_profile = true,
                    kind => found.has_text |= kind == b"XMP ",
                }
                at += 8 + (u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize).next_multiple_of(2);
            }
        }
        _ => {}
    }
    found
}

/// The whole segments of a JPEG file before its first scan: marker, and the segment with marker and length.
pub(super) fn segments_of(jpeg: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    Segments::of(jpeg).filter_map(|(marker, segment)| Some((marker, segment.ok()?)))
}

/// Sets the EXIF orientation of a JPEG file to upright, where it has one.
pub fn set_upright(jpeg: &mut [u8]) {
    let places: Vec<std::ops::Range<usize>> = Segments::of(jpeg)
        .filter(|(marker, _)| *marker == 0xE1)
        .filter_map(|(_, segment)| segment.ok())
        .filter(|segment| segment[4..].starts_with(EXIF))
        .map(|segment| {
            let start = segment.as_ptr().addr() - jpeg.as_ptr().addr() + 4 + EXIF.len();
            start..start + segment.len() - 4 - EXIF.len()
        })
        .collect();
    for place in places {
        if let Some(tiff) = jpeg.get_mut(place) {
            set_tiff_upright(tiff);
        }
    }
}

/// What EXIF data begin with in a JPEG file.
const EXIF: &[u8] = b"Exif\0\0";

/// The tag of the orientation.
const ORIENTATION: u32 = 0x0112;

/// Writes 1 over the value of the orientation in the first directory.
fn set_tiff_upright(tiff: &mut [u8]) {
    let is_big = tiff.starts_with(b"MM");
    let number = |tiff: &[u8], at: usize, bytes: usize| -> Option<u32> {
        let field = tiff.get(at..at.checked_add(bytes)?)?;
        let add = |sum: u32, byte: &u8| sum << 8 | u32::from(*byte);
        Some(if is_big { field.iter().fold(0, add) } else { field.iter().rev().fold(0, add) })
    };
    let Some(directory) = number(tiff, 4, 4).map(|at| at as usize) else { return };
    let Some(count) = number(tiff, directory, 2) else { return };
    for entry in (0..count as usize).map(|entry| directory + 2 + entry * 12) {
        if number(tiff, entry, 2) == Some(ORIENTATION)
            && let Some(value) = tiff.get_mut(entry + 8..entry + 12)
        {
            value.copy_from_slice(if is_big { &[0, 1, 0, 0] } else { &[1, 0, 0, 0] });
        }
    }
}

/// The segments of a JPEG file before its first scan: marker, and the segment with marker and length.
struct Segments<'a> {
    jpeg: &'a [u8],
    at: usize,
}

impl<'a> Segments<'a> {
    fn of(jpeg: &'a [u8]) -> Self {
        Self { jpeg, at: 2 }
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = (u8, Result<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        // Any number of fill bytes may stand before a marker.
        while self.jpeg.get(self.at) == Some(&0xFF) && self.jpeg.get(self.at + 1) == Some(&0xFF) {
            self.at += 1;
        }
        let rest = self.jpeg.get(self.at..)?;
        let &[0xFF, marker, high, low, ..] = rest else { return None };
        if matches!(marker, 0xDA | 0xD9) {
            return None;
        }
        let length = 2 + usize::from(u16::from_be_bytes([high, low]));
        let segment = rest.get(..length).filter(|segment| segment.len() >= 4);
        self.at = if segment.is_some() { self.at + length } else { self.jpeg.len() };
        Some((marker, segment.ok_or_else(|| damaged("a segment of its header"))))
    }
}

fn strip_jpeg(jpeg: &[u8]) -> Result<Vec<u8>> {
    let mut stripped = vec![0xFF, 0xD8];
    let mut segments = Segments::of(jpeg);
    for (marker, segment) in segments.by_ref() {
        let segment = segment?;
        if is_of_picture(marker) {
            stripped.extend_from_slice(segment);
        }
    }
    strip_scans(jpeg.get(segments.at..).unwrap_or_default(), &mut stripped);
    Ok(stripped)
}

/// Whether a segment says what pixels mean, and not only something about the picture.
fn is_of_picture(marker: u8) -> bool {
    // APP0 is JFIF's and APP14 Adobe's: both say what the components mean.
    !matches!(marker, 0xE1..=0xED | 0xEF | 0xFE)
}

/// Copies scans and the tables between them up to the end of the picture: what stands behind it is another one, or data of a
/// camera. A file that is cut stays cut.
fn strip_scans(mut rest: &[u8], stripped: &mut Vec<u8>) {
    loop {
        match rest {
            [0xFF, 0xD9, ..] => return stripped.extend_from_slice(&[0xFF, 0xD9]),
            [0xFF, 0xFF, ..] => rest = &rest[1..],
            [0xFF, marker, high, low, ..] => {
                let length = 2 + usize::from(u16::from_be_bytes([*high, *low]));
                let Some((segment, behind)) = rest.split_at_checked(length) else {
                    return stripped.extend_from_slice(rest);
                };
                if is_of_picture(*marker) {
                    stripped.extend_from_slice(segment);
                }
                rest = behind;
                if *marker == 0xDA {
                    let (data, behind) = rest.split_at(entropy_bytes(rest));
                    stripped.extend_from_slice(data);
                    rest = behind;
                }
            }
            _ => return stripped.extend_from_slice(rest),
        }
    }
}

/// Bytes of a scan's data: up to a marker that is none of its own.
fn entropy_bytes(bytes: &[u8]) -> usize {
    let is_end = |&at: &usize| !matches!(bytes.get(at + 1), Some(0 | 0xD0..=0xD7) | None);
    memchr::memchr_iter(0xFF, bytes).find(is_end).unwrap_or(bytes.len())
}

fn strip_png(png: &[u8]) -> Result<Vec<u8>> {
    let cut = || damaged("a chunk of the PNG");
    let (mut stripped, mut at) = (png.get(..8).ok_or_else(cut)?.to_vec(), 8);
    while at < png.len() {
        let head = png.get(at..at + 8).ok_or_else(cut)?;
        let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let end = length.checked_add(12).and_then(|length| at.checked_add(length)).ok_or_else(cut)?;
        let chunk = png.get(at..end).ok_or_else(cut)?;
        if !matches!(&head[4..], b"tEXt" | b"zTXt" | b"iTXt" | b"tIME" | b"eXIf" | b"iCCP") {
            stripped.extend_from_slice(chunk);
        }
        at = end;
        if head.ends_with(b"IEND") {
            break;
        }
    }
    Ok(stripped)
}

fn strip_webp(webp: &[u8]) -> Result<Vec<u8>> {
    let cut = || damaged("a chunk of the WebP");
    let (mut stripped, mut at) = (webp.get(..12).ok_or_else(cut)?.to_vec(), 12);
    while at < webp.len() {
        let head = webp.get(at..at + 8).ok_or_else(cut)?;
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let end =
            length.checked_add(length & 1).and_then(|length| at.checked_add(8)?.checked_add(length)).ok_or_else(cut)?;
        // The last chunk's padding is missing in some files.
        let chunk = webp.get(at..end.min(webp.len())).filter(|chunk| chunk.len() >= 8 + length).ok_or_else(cut)?;
        if !matches!(&head[..4], b"EXIF" | b"XMP " | b"ICCP") {
            let start = stripped.len();
            stripped.extend_from_slice(chunk);
            if head.starts_with(b"VP8X")
                && let Some(flags) = stripped.get_mut(start + 8)
            {
                // The bits that announce a profile, EXIF and XMP.
                *flags &= !0x2C;
            }
        }
        at = end;
    }
    let length = u32::try_from(stripped.len() - 8).map_err(|_| cut())?;
    stripped[4..8].copy_from_slice(&length.to_le_bytes());
    Ok(stripped)
}

fn damaged(what: &str) -> Error {
    Error::new(ErrorKind::Decode, format!("{what} is damaged"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::{JpegOptions, PixelKind, encode_jpeg};
    use proptest::prelude::*;

    /// EXIF data with one tag, the orientation.
    fn exif(orientation: u8, is_big: bool) -> Vec<u8> {
        let tiff: &[u8] = match is_big {
            true => &[b'M', b'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1, 0, orientation, 0, 0, 0, 0, 0, 0],
            false => {
                &[b'I', b'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0, orientation, 0, 0, 0, 0, 0, 0, 0]
            }
        };
        [EXIF, tiff].concat()
    }

    fn segment(marker: u8, payload: &[u8]) -> Vec<u8> {
        [&[0xFF, marker][..], &(payload.len() as u16 + 2).to_be_bytes(), payload].concat()
    }

    fn jpeg(segments: &[Vec<u8>]) -> Vec<u8> {
        let plain = encode_jpeg(&[90; 8 * 8 * 3], 8, 8, PixelKind::Rgb, &JpegOptions::default()).expect("legal");
        [&plain[..2], &segments.concat(), &plain[2..]].concat()
    }

    #[test]
    fn jpeg_files_lose_metadata_and_nothing_else() {
        let plain = jpeg(&[]);
        let full = jpeg(&[segment(0xE1, &exif(6, true)), segment(0xFE, b"comment"), segment(0xE2, b"ICC_PROFILE\0x")]);
        assert_eq!(strip_metadata(&full).expect("good"), Some(plain.clone()));
        assert_eq!(strip_metadata(&plain).expect("good"), None);
        let adobe = jpeg(&[segment(0xEE, b"Adobe\0\0\0\0\0\0\x01")]);
        assert_eq!(strip_metadata(&adobe).expect("good"), None);
        assert!(strip_metadata(&full[..9]).is_err());
    }

    #[test]
    fn jpeg_files_lose_what_stands_between_and_behind_their_scans() {
        let plain = jpeg(&[]);
        let end = plain.len() - 2;
        let second = jpeg(&[segment(0xE1, &exif(6, true))]);
        let full =
            [&plain[..end], &segment(0xFE, b"between"), &segment(0xE1, b"Exif\0\0x"), &plain[end..], &second].concat();
        assert_eq!(strip_metadata(&full).expect("good"), Some(plain.clone()));
        // Scans, tables between them and restart markers stay.
        let scan = [&segment(0xDA, b"\x01\x01\0\0\x3f\0")[..], &[1, 0xFF, 0, 2, 0xFF, 0xD3, 3]].concat();
        let tables = segment(0xC4, b"tables");
        let several = [&plain[..end], &tables, &scan, &tables, &scan, &[0xFF, 0xD9]].concat();
        assert_eq!(strip_metadata(&several).expect("good"), None);
        // One that is cut stays cut.
        assert_eq!(strip_metadata(&plain[..end]).expect("good"), None);
    }

    #[test]
    fn an_orientation_is_set_upright_in_either_byte_order() {
        for is_big in [true, false] {
            let mut file = jpeg(&[segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0"), segment(0xE1, &exif(8, is_big))]);
            set_upright(&mut file);
            assert_eq!(
                file,
                jpeg(&[segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0"), segment(0xE1, &exif(1, is_big))])
            );
        }
    }

    #[test]
    fn exif_is_carried_over_and_kinds_of_metadata_are_told() {
        let exif = segment(0xE1, &exif(6, true));
        let profile = segment(0xE2, b"ICC_PROFILE\0x");
        let from = jpeg(&[exif.clone(), segment(0xFE, b"comment"), profile]);
        let to = carry_exif(&from, &jpeg(&[])).expect("good");
        assert_eq!(to, jpeg(&[exif]));
        assert_eq!(metadata_in(&from), Metadata { has_exif: true, has_profile: true, has_text: true });
        assert_eq!(metadata_in(&to), Metadata { has_exif: true, ..Metadata::default() });
        assert!(metadata_in(&to).is_in(metadata_in(&from)) && !metadata_in(&from).is_in(metadata_in(&to)));
        assert_eq!(metadata_in(&jpeg(&[])), Metadata::default());
    }

    #[test]
    fn png_and_webp_files_lose_text_exif_and_profiles() {
        let chunk =
            |kind: &[u8; 4], body: &[u8]| [&(body.len() as u32).to_be_bytes()[..], kind, body, b"crc!"].concat();
        let sign = b"\x89PNG\r\n\x1a\n".to_vec();
        let full = [
            sign.clone(),
            chunk(b"IHDR", b"x"),
            chunk(b"tEXt", b"a"),
            chunk(b"iCCP", b"p"),
            chunk(b"eXIf", b"bb"),
            chunk(b"IEND", b""),
            b"behind".to_vec(),
        ];
        let plain = [sign, chunk(b"IHDR", b"x"), chunk(b"IEND", b"")].concat();
        assert_eq!(strip_metadata(&full.concat()).expect("good"), Some(plain));
        let chunk = |kind: &[u8; 4], body: &[u8]| {
            [&kind[..], &(body.len() as u32).to_le_bytes(), body, &[0][..body.len() % 2]].concat()
        };
        let riff = |chunks: Vec<u8>| [b"RIFF", &(chunks.len() as u32 + 4).to_le_bytes()[..], b"WEBP", &chunks].concat();
        let full = riff(
            [
                chunk(b"VP8X", b"\x3c123456789"),
                chunk(b"ICCP", b"profile"),
                chunk(b"EXIF", b"odd"),
                chunk(b"VP8L", b"pix"),
                chunk(b"XMP ", b""),
            ]
            .concat(),
        );
        let plain = riff([chunk(b"VP8X", b"\x10123456789"), chunk(b"VP8L", b"pix")].concat());
        assert_eq!(strip_metadata(&full).expect("good"), Some(plain));
        assert_eq!(strip_metadata(b"BM....").expect("nothing to strip"), None);
        assert_eq!(strip_metadata(b"GIF89a").expect_err("GIF").kind(), ErrorKind::Unsupported);
    }

    proptest! {
        #[test]
        fn damage_never_panics(at in 0usize..600, byte: u8, cut in 0usize..700) {
            let mut file = jpeg(&[segment(0xE1, &exif(6, true)), segment(0xFE, b"comment")]);
            let at = at % file.len();
            file[at] = byte;
            let cut = cut % file.len();
            file.truncate(cut.max(2));
            let _ = strip_metadata(&file);
            let _ = carry_exif(&file, b"\xff\xd8\xff\xd9");
            set_upright(&mut file);
        }

        #[test]
        fn any_bytes_are_stripped_or_refused(bytes: Vec<u8>, head in 0usize..3) {
            let heads: [&[u8]; 3] = [b"\x89PNG\r\n\x1a\n", b"RIFF\0\0\0\0WEBP", b"\xff\xd8"];
            let file = [heads[head], &bytes].concat();
            let _ = strip_metadata(&file);
            let _ = metadata_in(&file);
        }
    }
}
