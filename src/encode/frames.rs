//! Whether an image file holds more pictures than the one that is decoded: frames of an animation, pages.
//!
//! It counts no further than two and decodes nothing.

/// Directories of a TIFF file that are looked at.
const DIRECTORIES_MAX: usize = 1000;

/// Whether a file is an animation or has several pages. Damaged ones have as many as can be seen.
pub(crate) fn has_several(bytes: &[u8]) -> bool {
    let found = match bytes {
        [0x89, b'P', b'N', b'G', ..] => in_png(bytes),
        [b'R', b'I', b'F', b'F', ..] => in_webp(bytes),
        [b'G', b'I', b'F', b'8', ..] => in_gif(bytes),
        [b'I', b'I', 42, 0, ..] => in_tiff(bytes, |field| field.iter().rev().fold(0, add)),
        [b'M', b'M', 0, 42, ..] => in_tiff(bytes, |field| field.iter().fold(0, add)),
        _ => None,
    };
    found.unwrap_or(false)
}

fn add(sum: usize, byte: &u8) -> usize {
    sum << 8 | usize::from(*byte)
}

/// An APNG file says how many frames it has before its first one.
fn in_png(png: &[u8]) -> Option<bool> {
    let mut at = 8;
    loop {
        let head = png.get(at..at + 8)?;
        match &head[4..] {
            b"acTL" => return Some(png.get(at + 8..at + 12)?.iter().fold(0, add) > 1),
            b"IDAT" => return Some(false),
            _ => at += 12 + head[..4].iter().fold(0, add),
        }
    }
}

/// A bit of the first chunk says so.
fn in_webp(webp: &[u8]) -> Option<bool> {
    Some(webp.get(12..16)? == b"VP8X" && webp.get(20)? & 2 != 0)
}

fn in_gif(gif: &[u8]) -> Option<bool> {
    let table = |flags: u8| if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) };
    let mut at = 13 + table(*gif.get(10)?);
    let mut frames = 0;
    loop {
        match *gif.get(at)? {
            b'!' => at = behind_blocks(gif, at + 2)?,
            b',' => {
                frames += 1;
                if frames > 1 {
                    return Some(true);
                }
                at = behind_blocks(gif, at + 11 + table(*gif.get(at + 9)?))?;
            }
            _ => return Some(false),
        }
    }
}

/// Where a row of blocks ends, each with its length before it and the last without bytes.
fn behind_blocks(gif: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let length = usize::from(*gif.get(at)?);
        at += 1 + length;
        if length == 0 {
            return Some(at);
        }
    }
}

/// Directories that say of themselves that they are a smaller copy are no pages.
fn in_tiff(tiff: &[u8], number: impl Fn(&[u8]) -> usize) -> Option<bool> {
    const SUBFILE: usize = 254;
    let mut at = number(tiff.get(4..8)?);
    let mut pages = 0;
    for _ in 0..DIRECTORIES_MAX {
        if at == 0 {
            break;
        }
        let count = number(tiff.get(at..at.checked_add(2)?)?);
        let entries = tiff.get(at + 2..)?.get(..count * 12)?;
        let is_copy =
            entries.chunks_exact(12).any(|entry| number(&entry[..2]) == SUBFILE && number(&entry[8..12]) & 1 == 1);
        pages += usize::from(!is_copy);
        at = number(tiff.get(at + 2 + count * 12..)?.get(..4)?);
    }
    Some(pages > 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn animations_and_pages_are_told_from_single_pictures() {
        let check = |parts: &[&[u8]], expected: bool| assert_eq!(has_several(&parts.concat()), expected, "{parts:?}");
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\x01IHDRxcrc!";
        check(&[png, b"\0\0\0\x08acTL\0\0\0\x02\0\0\0\0"], true);
        check(&[png, b"\0\0\0\x08acTL\0\0\0\x01\0\0\0\0"], false);
        check(&[png, b"\0\0\0\0IDAT"], false);
        check(&[b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\x02"], true);
        check(&[b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\x10"], false);
        check(&[b"RIFF\0\0\0\0WEBPVP8L\x0a\0\0\0\x02"], false);
        let gif: &[u8] = b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff!\xf9\x04\0\0\0\0\0";
        let frame: &[u8] = b",\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0";
        check(&[gif, frame, b";"], false);
        check(&[gif, frame, frame, b";"], true);
        check(&[gif, frame, b"!\xfe\x02ab\0", frame, b";"], true);
        let subfile = |value: u8| [0, 254, 0, 4, 0, 0, 0, 1, 0, 0, 0, value];
        let directory = |value, next: u8| [&[0, 1][..], &subfile(value), &[0, 0, 0, next]].concat();
        check(&[b"MM\0*\0\0\0\x08", &directory(0, 26), &directory(0, 0)], true);
        check(&[b"MM\0*\0\0\0\x08", &directory(0, 26), &directory(1, 0)], false);
        check(&[b"MM\0*\0\0\0\x08", &directory(0, 0)], false);
        check(&[b"\xff\xd8\xff"], false);
    }

    proptest! {
        #[test]
        fn any_bytes_have_one_picture_or_several(bytes: Vec<u8>, head in 0usize..5) {
            let heads: [&[u8]; 5] = [b"\x89PNG\r\n\x1a\n", b"RIFF\0\0\0\0WEBP", b"GIF89a", b"II*\0", b"MM\0*"];
            let _ = has_several(&[heads[head], &bytes].concat());
        }
    }
}
