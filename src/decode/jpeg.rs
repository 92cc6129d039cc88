//! The markers of a JPEG: what its header says, how many scans it has, and whether it is whole.
//!
//! It decodes no coefficient. It walks the whole file, because a decoder that stops below the wanted rows never
//! sees that the file is cut; stepping over entropy-coded data with `memchr` costs well under a hundredth of decoding it.

use std::ops::Range;

use memchr::{memchr, memchr_iter};

use super::repair::Repairs;
use super::{ImageFormat, ImageInfo, JpegInfo, JpegProcess, Truncated, exif};
use crate::{Error, ErrorKind, Result};

/// What the walk found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) components: u8,
    pub(super) bits: u8,
    pub(super) jpeg: JpegInfo,
    /// The TIFF part of the first EXIF segment.
    pub(super) exif: Option<Range<usize>>,
    /// Whether its scans leave low frequencies unfinished; libjpeg then smooths over block borders far away.
    pub(super) unfinished: bool,
    /// Bytes from the end-of-image marker to the end of the file, 0 if there is none.
    pub(super) tail: usize,
}

impl Header {
    /// What users see of it; `bytes` is the file that it was read from.
    pub(super) fn info(&self, bytes: &[u8]) -> ImageInfo {
        let exif = self.exif.clone().and_then(|range| bytes.get(range));
        ImageInfo {
            format: ImageFormat::Jpeg,
            width: self.width,
            height: self.height,
            components: self.components,
            bits: self.bits,
            orientation: exif.map(exif::orientation).unwrap_or_default(),
            jpeg: Some(self.jpeg.clone()),
        }
    }
}

/// Walks all markers up to the end of the image.
///
/// `repairs` receives what changes no pixel: bytes between segments, application and comment segments with
/// an impossible length, DNL segments, unknown JFIF versions and Adobe transforms, scan parameters left zero.
///
/// # Errors
///
/// [`ErrorKind::Truncated`] if the file ends before its first scan, [`ErrorKind::Decode`] if its markers are damaged.
/// A file that ends later is no error: `jpeg.complete` is false.
pub(super) fn walk(bytes: &[u8], repairs: &mut Repairs) -> Result<Header> {
    let mut walk = Walk::new(bytes, repairs)?;
    let mut at = 2;
    let end = loop {
        match walk.marker(at)? {
            Step::On(next) => at = next,
            Step::Scan(data) => match walk.scan_end(data)? {
                Some(end) => at = end,
                None => break None,
            },
            Step::End(end) => break end,
        }
    };
    walk.header(end)
}

/// Walks the markers up to the first scan, and takes the rest for one whole scan if the file ends as an image does.
///
/// What that cannot tell (more scans, damage, an end that lies elsewhere) is found by [`walk`], which is called where the
/// file has restart markers to count or another end. Errors are those of `walk`.
#[cfg(any(test, feature = "cuda"))]
pub(super) fn peek(bytes: &[u8], repairs: &mut Repairs) -> Result<Header> {
    if !bytes.ends_with(&[0xFF, EOI]) {
        return walk(bytes, repairs);
    }
    let mut short = Walk::new(bytes, repairs)?;
    let mut at = 2;
    while let Step::On(next) = short.marker(at)? {
        at = next;
    }
    match short.header(Some(bytes.len() - 2))? {
        header if header.jpeg.restart_interval == 0 => Ok(header),
        _ => walk(bytes, repairs),
    }
}

/// Refuses what no backend here decodes, and cut files unless they are allowed.
pub(super) fn check(header: &Header, truncated: Truncated) -> Result<()> {
    let refuse = |what: String| Err(Error::new(ErrorKind::Unsupported, what));
    match header.jpeg.process {
        JpegProcess::Lossless => return refuse("lossless JPEG is not supported".to_owned()),
        JpegProcess::Hierarchical => return refuse("hierarchical JPEG is not supported".to_owned()),
        _ => {}
    }
    if header.bits != 8 {
        return refuse(format!("JPEG with {}-bit components is not supported, only 8-bit", header.bits));
    }
    if !matches!(header.components, 1 | 3 | 4) {
        return refuse(format!("JPEG with {} components is not supported, only 1, 3 or 4", header.components));
    }
    if !header.jpeg.complete && truncated == Truncated::Refuse {
        return Err(Error::new(ErrorKind::Truncated, "the JPEG is cut: it has no end-of-image marker")
            .with_hint("fetch the file again, or allow truncated images to get what there is"));
    }
    Ok(())
}

/// Frequencies that libjpeg's smoothing looks at, the mean of a block included.
const SMOOTHED: usize = 10;

const SOI: u8 = 0xD8;
const EOI: u8 = 0xD9;
const SOS: u8 = 0xDA;
const DNL: u8 = 0xDC;
const DRI: u8 = 0xDD;
const APP0: u8 = 0xE0;
const APP1: u8 = 0xE1;
const APP14: u8 = 0xEE;

struct Walk<'a> {
    bytes: &'a [u8],
    repairs: &'a mut Repairs,
    frame: Option<Frame>,
    first_scan: Option<FirstScan>,
    scans: u32,
    /// MCUs between restart markers, from the last DRI.
    restart: u16,
    /// For each component and low frequency, how many low bits no scan has brought yet.
    bits_missing: [[u8; SMOOTHED]; 4],
    segments: Segments,
}

struct Frame {
    process: JpegProcess,
    width: u32,
    height: u32,
    components: u8,
    bits: u8,
    sampling: [(u8, u8); 4],
    ids: [u8; 4],
}

struct FirstScan {
    components: u8,
    restart: u16,
}

#[derive(Default)]
struct Segments {
    jfif: bool,
    /// Transform and its place.
    adobe: Option<(u8, usize)>,
    exif: Option<Range<usize>>,
}

/// What comes after a marker.
enum Step {
    /// Another marker, at or after this place.
    On(usize),
    /// The entropy-coded data of a scan, from here on.
    Scan(usize),
    /// The end of the image, at its marker if there is one.
    End(Option<usize>),
}

impl<'a> Walk<'a> {
    /// # Errors
    /// When the bytes do not begin as an image.
    fn new(bytes: &'a [u8], repairs: &'a mut Repairs) -> Result<Self> {
        repairs.clear();
        if !bytes.starts_with(&[0xFF, SOI]) {
            return Err(damaged("no start-of-image marker", 0));
        }
        Ok(Self {
            bytes,
            repairs,
            frame: None,
            first_scan: None,
            scans: 0,
            restart: 0,
            bits_missing: [[u8::MAX; SMOOTHED]; 4],
            segments: Segments::default(),
        })
    }

    /// Steps over the marker at or after `at` and the segment that it begins.
    fn marker(&mut self, mut at: usize) -> Result<Step> {
        let Some(marker) = next_marker(self.bytes, at) else { return self.cut(at) };
        if marker.junk_end > at {
            self.repairs.add(at..marker.junk_end, &[])?;
        }
        at = marker.end;
        match marker.code {
            EOI => return Ok(Step::End(Some(marker.start))),
            SOI => return Err(damaged("a second start-of-image marker", marker.start)),
            0x01 | 0xD0..=0xD7 => return Ok(Step::On(at)),
            0x02..=0xBF | 0xC8 | 0xF0..=0xFD => {
                return Err(damaged(&format!("an unknown marker {:#04x}", marker.code), marker.start));
            }
            _ => {}
        }
        let code = marker.code;
        let Some(length) = self.bytes.get(at..at + 2) else { return self.cut(at) };
        let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
        if length < 2 {
            // libjpeg takes the two length bytes and goes on; other decoders give up.
            if !matches!(code, APP0..=0xEF | 0xFE) {
                return Err(damaged(&format!("a segment {code:#04x} of length {length}"), marker.start));
            }
            self.repairs.add(marker.start..at + 2, &[])?;
            return Ok(Step::On(at + 2));
        }
        let Some(body) = self.bytes.get(at + 2..at + length) else { return self.cut(at) };
        self.segment(code, body, marker.start..at + length)?;
        at += length;
        Ok(if code == SOS { Step::Scan(at) } else { Step::On(at) })
    }

    fn segment(&mut self, code: u8, body: &[u8], place: Range<usize>) -> Result<()> {
        match code {
            0xC4 | 0xCC => {}
            0xC0..=0xCF => self.frame(code, body, place.start)?,
            SOS => self.scan(body, &place)?,
            DRI => {
                let &[high, low] = body else { return Err(damaged("a restart interval of odd length", place.start)) };
                self.restart = u16::from_be_bytes([high, low]);
            }
            DNL => self.repairs.add(place, &[])?,
            APP0 if body.starts_with(b"JFIF\0") && body.len() >= 12 => {
                self.segments.jfif = true;
                if body[5] != 1 {
                    let version = place.end - body.len() + 5;
                    self.repairs.add(version..version + 1, &[1])?;
                }
            }
            APP1 if self.segments.exif.is_none() && body.starts_with(b"Exif\0") && body.len() > 6 => {
                self.segments.exif = Some(place.end - body.len() + 6..place.end);
            }
            APP14 if body.starts_with(b"Adobe") && body.len() >= 12 => {
                self.segments.adobe = Some((body[11], place.end - body.len() + 11));
            }
            _ => {}
        }
        Ok(())
    }

    fn frame(&mut self, code: u8, body: &[u8], place: usize) -> Result<()> {
        if self.frame.is_some() {
            return Err(damaged("a second frame header", place));
        }
        let process = match code {
            0xC0 => JpegProcess::Baseline,
            0xC1 => JpegProcess::Extended,
            0xC2 => JpegProcess::Progressive,
            0xC9 | 0xCA => JpegProcess::Arithmetic,
            0xC3 | 0xCB => JpegProcess::Lossless,
            _ => JpegProcess::Hierarchical,
        };
        let &[bits, y1, y0, x1, x0, components, ref list @ ..] = body else {
            return Err(damaged("a frame header that is too short", place));
        };
        let height = u32::from(u16::from_be_bytes([y1, y0]));
        let width = u32::from(u16::from_be_bytes([x1, x0]));
        if width == 0 || height == 0 {
            return Err(damaged(&format!("an empty picture of {width}x{height}"), place)
                .with_hint("heights that are given after the first scan are not supported"));
        }
        if list.len() != usize::from(components) * 3 {
            return Err(damaged(&format!("a frame header of wrong length for {components} components"), place));
        }
        let (mut sampling, mut ids) = ([(0, 0); 4], [0; 4]);
        for ((component, sampling), id) in list.chunks_exact(3).zip(&mut sampling).zip(&mut ids) {
            *id = component[0];
            *sampling = (component[1] >> 4, component[1] & 15);
            if !(1..=4).contains(&sampling.0) || !(1..=4).contains(&sampling.1) {
                return Err(damaged(&format!("sampling factors {}x{}", sampling.0, sampling.1), place));
            }
        }
        self.frame = Some(Frame { process, width, height, components, bits, sampling, ids });
        Ok(())
    }

    fn scan(&mut self, body: &[u8], place: &Range<usize>) -> Result<()> {
        let Some(frame) = &self.frame else { return Err(damaged("a scan before the frame header", place.start)) };
        let components = body.first().copied().unwrap_or(0);
        let (process, ids) = (frame.process, frame.ids);
        let (list, parameters) =
            body.get(1..).unwrap_or(&[]).split_at_checked(2 * usize::from(components)).unwrap_or_default();
        let &[from, to, bits] = parameters else { return Err(damaged("a scan header of wrong length", place.start)) };
        let legal = match process {
            JpegProcess::Progressive => progression_is_legal(components, from, to, bits),
            // Some files leave these bytes zero, and nothing needs them.
            JpegProcess::Baseline | JpegProcess::Extended if (from, to, bits) == (0, 0, 0) => {
                self.repairs.add(place.end - 3..place.end, &[0, 63, 0])?;
                true
            }
            JpegProcess::Baseline | JpegProcess::Extended => (from, to, bits) == (0, 63, 0),
            _ => true,
        };
        if !legal {
            return Err(damaged(&format!("scan parameters {from}, {to}, {bits:#04x}"), place.start));
        }
        for id in list.iter().step_by(2) {
            let Some(component) = ids.iter().position(|known| known == id) else { continue };
            // A sequential scan brings everything, whatever its parameters.
            let to = if matches!(process, JpegProcess::Baseline | JpegProcess::Extended) { 63 } else { to };
            let range = usize::from(from)..SMOOTHED.min(usize::from(to) + 1);
            if let Some(missing) = self.bits_missing.get_mut(component).and_then(|missing| missing.get_mut(range)) {
                missing.fill(bits & 15);
            }
        }
        self.scans = self.scans.saturating_add(1);
        self.first_scan.get_or_insert(FirstScan { components, restart: self.restart });
        Ok(())
    }

    /// The offset of the marker that ends the entropy-coded data from `from` on; none if the data end first.
    fn scan_end(&self, from: usize) -> Result<Option<usize>> {
        let data = self.bytes.get(from..).unwrap_or(&[]);
        let mut restarts = 0_u32;
        for at in memchr_iter(0xFF, data) {
            match data.get(at + 1) {
                Some(0 | 0xFF) => {}
                Some(&code @ 0xD0..=0xD7) => {
                    // Markers out of order mean lost or doubled data, which shows in pixels that nobody may decode.
                    if self.restart != 0 && u32::from(code & 7) != restarts % 8 {
                        return Err(damaged("restart markers out of order: parts of the scan are missing", from + at));
                    }
                    restarts = restarts.wrapping_add(1);
                }
                Some(_) => return self.enough_restarts(restarts, from + at).map(|()| Some(from + at)),
                None => break,
            }
        }
        Ok(None)
    }

    /// Whether an interleaved scan of a sequential picture has as many restart markers as its size calls for.
    fn enough_restarts(&self, restarts: u32, place: usize) -> Result<()> {
        let (Some(frame), Some(first)) = (&self.frame, &self.first_scan) else { return Ok(()) };
        let sequential = matches!(frame.process, JpegProcess::Baseline | JpegProcess::Extended);
        if self.restart == 0 || self.scans != 1 || !sequential || first.components != frame.components {
            return Ok(());
        }
        let (h, v) = match frame.components {
            1 => (1, 1), // a single component is not interleaved: its MCU is one block
            _ => sampling_max(&frame.sampling),
        };
        let mcus = frame.width.div_ceil(8 * u32::from(h)) * frame.height.div_ceil(8 * u32::from(v));
        let needed = mcus.div_ceil(u32::from(self.restart)) - 1;
        if restarts < needed {
            return Err(damaged(&format!("only {restarts} of {needed} restart markers"), place));
        }
        Ok(())
    }

    /// The bytes end at a place where a marker or the rest of a segment should be.
    fn cut(&self, at: usize) -> Result<Step> {
        if self.first_scan.is_none() {
            return Err(Error::new(ErrorKind::Truncated, format!("the JPEG is cut in its header, after byte {at}")));
        }
        Ok(Step::End(None))
    }

    fn header(self, end: Option<usize>) -> Result<Header> {
        let Some(frame) = self.frame else { return Err(damaged("no frame header", self.bytes.len())) };
        let Some(first) = self.first_scan else { return Err(damaged("no scan", self.bytes.len())) };
        // Nobody knows other transforms; libjpeg warns and takes YCbCr or YCCK.
        let known = if frame.components == 3 { 1 } else { 2 };
        if let Some((transform, place)) = self.segments.adobe
            && transform != 0
            && transform != known
            && matches!(frame.components, 3 | 4)
        {
            self.repairs.add(place..place + 1, if known == 1 { &[1] } else { &[2] })?;
        }
        let jpeg = JpegInfo {
            process: frame.process,
            sampling: frame.sampling,
            component_ids: frame.ids,
            jfif: self.segments.jfif,
            adobe_transform: self.segments.adobe.map(|(transform, _)| transform),
            scans: self.scans,
            interleaved: first.components == frame.components,
            restart_interval: first.restart,
            complete: end.is_some(),
        };
        let Frame { width, height, components, bits, .. } = frame;
        let tail = end.map_or(0, |end| self.bytes.len() - end);
        let unfinished = self.bits_missing.iter().take(usize::from(components));
        let unfinished = unfinished.flat_map(|bits| &bits[1..]).any(|&bits| bits != 0);
        Ok(Header { width, height, components, bits, jpeg, exif: self.segments.exif, unfinished, tail })
    }
}

/// Whether a progressive scan brings what such scans may: the means of all its components, or the same frequencies of one;
/// at first all but some low bits, then one bit after the other.
fn progression_is_legal(components: u8, from: u8, to: u8, bits: u8) -> bool {
    let (before, after) = (bits >> 4, bits & 15);
    let frequencies = if from == 0 { to == 0 } else { components == 1 && from <= to && to < 64 };
    frequencies && after <= 13 && (before == 0 || before == after + 1)
}

/// The greatest horizontal and vertical sampling factors.
pub(super) fn sampling_max(sampling: &[(u8, u8); 4]) -> (u8, u8) {
    sampling.iter().fold((1, 1), |(h, v), &(a, b)| (h.max(a), v.max(b)))
}

struct Marker {
    code: u8,
    /// Where junk before it ends; fill bytes are none.
    junk_end: usize,
    start: usize,
    end: usize,
}

/// The next marker at or after `from`: FF, any number of fill bytes FF, and a code that is not 0.
fn next_marker(bytes: &[u8], from: usize) -> Option<Marker> {
    let mut at = from;
    loop {
        let junk_end = at + memchr(0xFF, bytes.get(at..)?)?;
        let fill = bytes.get(junk_end..)?.iter().take_while(|&&byte| byte == 0xFF).count();
        let place = junk_end + fill;
        match *bytes.get(place)? {
            0 => at = place + 1,
            code => return Some(Marker { code, junk_end, start: place - 1, end: place + 1 }),
        }
    }
}

fn damaged(what: &str, offset: usize) -> Error {
    Error::new(ErrorKind::Decode, format!("the JPEG is damaged: it has {what}, near byte {offset} of the file"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
    use proptest::prelude::*;

    fn encode(color: ColorType, channels: usize, set: impl FnOnce(&mut Encoder<&mut Vec<u8>>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, 80);
        set(&mut encoder);
        encoder.encode(&vec![77; 40 * 24 * channels], 40, 24, color).unwrap();
        bytes
    }

    fn walked(bytes: &[u8]) -> Result<(Header, Vec<u8>)> {
        let (mut repairs, mut copy) = (Repairs::default(), Vec::new());
        let header = walk(bytes, &mut repairs)?;
        repairs.apply(bytes, &mut copy);
        Ok((header, copy))
    }

    #[test]
    fn the_header_says_how_a_file_is_coded() {
        let bytes = encode(ColorType::Rgb, 3, |encoder| {
            encoder.set_sampling_factor(SamplingFactor::F_2_1);
            encoder.set_restart_interval(2);
        });
        let (header, copy) = walked(&bytes).unwrap();
        assert_eq!((header.width, header.height, header.components, header.bits, header.tail), (40, 24, 3, 8, 2));
        let jpeg = &header.jpeg;
        assert_eq!((jpeg.process, jpeg.scans, jpeg.restart_interval), (JpegProcess::Baseline, 1, 2));
        assert_eq!((jpeg.sampling, jpeg.sampling_max()), ([(2, 1), (1, 1), (1, 1), (0, 0)], (2, 1)));
        assert!(jpeg.jfif && jpeg.interleaved && jpeg.complete && !header.unfinished && copy == bytes);

        let bytes = encode(ColorType::Ycck, 4, |_| {});
        let (header, _) = walked(&bytes).unwrap();
        assert_eq!((header.components, header.jpeg.adobe_transform), (4, Some(2)));

        let bytes = encode(ColorType::Luma, 1, |encoder| encoder.set_progressive(true));
        let (header, _) = walked(&bytes).unwrap();
        assert_eq!((header.components, header.jpeg.process), (1, JpegProcess::Progressive));
        assert!(header.jpeg.scans > 1 && !header.unfinished);
    }

    #[test]
    fn a_progressive_file_without_its_last_scans_is_unfinished() {
        let bytes = encode(ColorType::Rgb, 3, |encoder| encoder.set_progressive(true));
        let second = bytes.windows(2).enumerate().filter(|(_, pair)| *pair == [0xFF, SOS]).nth(1).unwrap().0;
        let (header, _) = walked(&[&bytes[..second], &[0xFF, EOI]].concat()).unwrap();
        assert!(header.unfinished && header.jpeg.complete && header.jpeg.scans == 1);
    }

    #[test]
    fn a_cut_is_an_error_in_the_header_and_a_fact_behind_it() {
        let bytes = encode(ColorType::Rgb, 3, |_| {});
        let scan = bytes.windows(2).position(|pair| pair == [0xFF, SOS]).unwrap() + 14;
        for end in 2..bytes.len() {
            match walked(&bytes[..end]) {
                Ok((header, _)) => assert!(end >= scan && !header.jpeg.complete && header.tail == 0, "{end}"),
                Err(error) => assert!(end < scan && error.kind() == ErrorKind::Truncated, "{end}: {error}"),
            }
        }
    }

    #[test]
    fn an_unknown_adobe_transform_and_jfif_version_are_read_as_known_ones() {
        let mut bytes = encode(ColorType::Rgb, 3, |encoder| {
            encoder.add_app_segment(14, b"Adobe\0\x64\0\0\0\0\x07".to_vec()).unwrap();
        });
        bytes[11] = 3; // the major version in the JFIF segment, which comes first
        let (header, copy) = walked(&bytes).unwrap();
        assert_eq!((header.jpeg.adobe_transform, copy[11]), (Some(7), 1));
        assert_eq!(walked(&copy).unwrap().0.jpeg.adobe_transform, Some(1));
        assert_eq!(copy.len(), bytes.len());
    }

    #[test]
    fn markers_out_of_order_are_damage() {
        let bytes = encode(ColorType::Rgb, 3, |_| {});
        let frame = bytes.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap();
        let doubled = [&bytes[..frame], &bytes[frame..frame + 19], &bytes[frame..]].concat();
        let missing = [&bytes[..frame], &bytes[frame + 19..]].concat();
        for damaged in [&doubled[..], &missing, b"\xFF\xD8\xFF\xD9", b"\xFF\xD8\xFF\xD8", b"\xFF\xD8\xFF\x05\0\x02"] {
            assert_eq!(walked(damaged).unwrap_err().kind(), ErrorKind::Decode);
        }
    }

    #[test]
    fn a_look_at_the_header_says_what_the_walk_says_of_whole_files() {
        let make = |restarts, tail: &[u8]| {
            let bytes = encode(ColorType::Rgb, 3, |encoder| encoder.set_restart_interval(restarts));
            [&bytes[..], tail].concat()
        };
        for file in [make(0, b""), make(2, b""), make(0, b"junk"), make(2, b"\xFF\xD9")] {
            let (mut short, mut whole) = (Repairs::default(), Repairs::default());
            assert_eq!(peek(&file, &mut short).unwrap(), walk(&file, &mut whole).unwrap());
        }
        // Cut behind the first scan's begin it is an image without an end, before that none.
        let file = make(0, b"");
        for len in [2, 100, 300, file.len() - 2, file.len() - 1] {
            let (mut short, mut whole) = (Repairs::default(), Repairs::default());
            assert_eq!(peek(&file[..len], &mut short).ok(), walk(&file[..len], &mut whole).ok(), "{len}");
        }
    }

    proptest! {
        #[test]
        fn what_is_repaired_needs_no_repair(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
            progressive: bool,
        ) {
            let mut bytes = encode(ColorType::Rgb, 3, |encoder| encoder.set_progressive(progressive));
            for (index, value) in changes {
                let at = index.index(bytes.len());
                bytes[at] = value;
            }
            if let Ok((header, copy)) = walked(&bytes) {
                let (again, same) = walked(&copy).unwrap();
                prop_assert_eq!(copy, same);
                prop_assert_eq!((again.width, again.height, again.jpeg.scans), (header.width, header.height, header.jpeg.scans));
            }
        }
    }
}
