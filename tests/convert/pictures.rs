//! What is done to pictures on their way into shards.

use std::fs;

use brimful::ErrorKind;
use brimful::convert::{ConvertOptions, ErrorBudget, PictureFormat, PictureOptions, PictureTally, ResizeBy};
use brimful::decode::{DecodeOptions, ImageDecoder, ImageFormat, Orientation, image_info};
use brimful::encode::{JpegOptions, PixelKind, Subsampling, encode_jpeg};

use crate::made::{Made, by_samples, left_out, samples};

/// A picture that is light at the top and dark at the bottom, red to the left.
fn pixels(width: u32, height: u32) -> Vec<u8> {
    let pixel = |x: u32, y: u32| [255 - x * 255 / width, 255 - y * 255 / height, 128].map(|value| value as u8);
    (0..height).flat_map(|y| (0..width).flat_map(move |x| pixel(x, y))).collect()
}

fn jpeg(width: u32, height: u32) -> Vec<u8> {
    let options = JpegOptions { quality: 92, subsampling: Subsampling::Half, optimise: false, restart_interval: 0 };
    encode_jpeg(&pixels(width, height), width, height, PixelKind::Rgb, &options).unwrap()
}

/// The file with EXIF data that say how it must be turned.
fn with_orientation(jpeg: &[u8], orientation: u8) -> Vec<u8> {
    let tiff = [b'M', b'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1, 0, orientation, 0, 0, 0, 0, 0, 0];
    [&jpeg[..2], &[0xFF, 0xE1, 0, 34], b"Exif\0\0", &tiff, &jpeg[2..]].concat()
}

fn png(width: u32, height: u32, color: image::ColorType) -> Vec<u8> {
    let mut file = std::io::Cursor::new(Vec::new());
    let bytes = vec![77; width as usize * height as usize * usize::from(color.bytes_per_pixel())];
    image::write_buffer_with_format(&mut file, &bytes, width, height, color, image::ImageFormat::Png).unwrap();
    file.into_inner()
}

fn decode(bytes: &[u8], exif: bool) -> (u32, u32, Vec<u8>) {
    let mut decoder = ImageDecoder::new(DecodeOptions { exif, ..DecodeOptions::default() }).unwrap();
    let pixels = decoder.decode(bytes, None).unwrap();
    (pixels.width, pixels.height, pixels.to_vec())
}

/// The one picture that becomes of `bytes`: its extension, its bytes, and what was done.
fn paint(name: &str, bytes: &[u8], picture: PictureOptions) -> brimful::Result<(String, Vec<u8>, PictureTally)> {
    let made = Made::new();
    made.write(name, bytes);
    let conversion = made.plan("out", ConvertOptions { picture, ..by_samples(9) })?;
    let brimful::convert::Outcome::Complete(dataset) = conversion.run(&|_, _| {})? else { panic!("a part only") };
    let (_, mut fields) = samples(&made.path("out/train-000000.tar")).remove(0);
    let (ext, bytes) = fields.remove(0);
    Ok((ext, bytes, dataset.pictures.unwrap_or_default()))
}

fn options() -> PictureOptions {
    PictureOptions::default()
}

#[test]
fn pictures_are_made_smaller_and_small_ones_stay_as_they_are() {
    let (ext, bytes, tally) =
        paint("a.jpg", &jpeg(200, 100), PictureOptions { resize: Some(50), ..options() }).unwrap();
    let (width, height, found) = decode(&bytes, false);
    assert_eq!((ext.as_str(), width, height, tally.encoded), ("jpg", 50, 25, 1));
    let worst = found.iter().zip(&pixels(50, 25)).map(|(a, b)| a.abs_diff(*b)).max();
    assert!(worst <= Some(12), "{worst:?}");
    let shorter = PictureOptions { resize: Some(50), resize_by: ResizeBy::Shorter, ..options() };
    assert_eq!(decode(&paint("a.jpg", &jpeg(200, 100), shorter).unwrap().1, false).0, 100);
    let plain = jpeg(50, 40);
    let (_, bytes, tally) = paint("a.jpg", &plain, PictureOptions { resize: Some(50), ..options() }).unwrap();
    assert_eq!((bytes == plain, tally.changed), (true, 0));
    let (ext, bytes, _) =
        paint("a.png", &png(90, 30, image::ColorType::L8), PictureOptions { resize: Some(30), ..options() }).unwrap();
    let info = image_info(&bytes).unwrap();
    assert_eq!((ext.as_str(), info.format, info.components, info.width), ("png", ImageFormat::Png, 1, 30));
}

/// What becomes of a sample with a picture, a mask beside it, and a further field: extensions, and whether bytes changed.
fn paint_with_mask(mask: &str, picture: PictureOptions) -> brimful::Result<(Vec<(String, bool)>, PictureTally)> {
    let made = Made::new();
    let fields = [
        ("a.jpg".to_owned(), jpeg(64, 32)),
        (format!("a.{mask}"), png(64, 32, image::ColorType::L8)),
        ("a.txt".to_owned(), b"text".to_vec()),
    ];
    let mut builder = tar::Builder::new(Vec::new());
    for (name, bytes) in &fields {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        builder.append_data(&mut header, name, bytes.as_slice()).unwrap();
    }
    made.write("a.tar", &builder.into_inner().unwrap());
    let conversion = made.plan("out", ConvertOptions { picture, ..by_samples(9) })?;
    let brimful::convert::Outcome::Complete(dataset) = conversion.run(&|_, _| {})? else { panic!("a part only") };
    let (_, found) = samples(&made.path("out/train-000000.tar")).remove(0);
    let changed = found.into_iter().map(|(ext, bytes)| {
        let is_changed = fields.iter().all(|(_, before)| *before != bytes);
        (ext, is_changed)
    });
    Ok((changed.collect(), dataset.pictures.unwrap_or_default()))
}

#[test]
fn masks_beside_a_picture_stay_as_they_are_unless_they_are_named() {
    let resize = || PictureOptions { resize: Some(16), ..options() };
    let list = |pairs: &[(&str, bool)]| pairs.iter().map(|(ext, is)| ((*ext).to_owned(), *is)).collect::<Vec<_>>();
    let (fields, tally) = paint_with_mask("seg.png", resize()).unwrap();
    assert_eq!(fields, list(&[("jpg", true), ("seg.png", false), ("txt", false)]));
    assert_eq!((tally.changed, tally.left_alone), (1, 1));
    let (fields, _) = paint_with_mask("seg.png", PictureOptions { format: PictureFormat::Jpg, ..options() }).unwrap();
    assert_eq!(fields, list(&[("jpg", false), ("seg.png", false), ("txt", false)]));
    let named = |names: &[&str]| PictureOptions { fields: names.iter().map(ToString::to_string).collect(), ..resize() };
    let (fields, tally) = paint_with_mask("seg.png", named(&["jpg", "seg.png"])).unwrap();
    assert_eq!(fields, list(&[("jpg", true), ("seg.png", true), ("txt", false)]));
    assert_eq!((tally.changed, tally.left_alone), (2, 0));
    // Which of two plain ones is the mask nobody can tell.
    let error = paint_with_mask("png", resize()).unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.hint().unwrap().contains("--fields"), "{error}");
    let (fields, tally) = paint_with_mask("png", named(&["jpg"])).unwrap();
    assert_eq!(fields, list(&[("jpg", true), ("png", false), ("txt", false)]));
    assert_eq!(tally.left_alone, 1);
}

#[test]
fn quality_and_format_are_as_asked_for() {
    let size = |quality| {
        let picture = PictureOptions { resize: Some(100), quality, ..options() };
        paint("a.jpg", &jpeg(200, 100), picture).unwrap().1.len()
    };
    assert!(size(30) < size(95));
    let to = |format| PictureOptions { format, ..options() };
    let grey = png(20, 10, image::ColorType::Rgb8);
    let (ext, bytes, _) = paint("a.png", &grey, to(PictureFormat::WebP)).unwrap();
    assert_eq!((ext.as_str(), decode(&bytes, false)), ("webp", decode(&grey, false)));
    let (ext, bytes, _) = paint("a.png", &png(20, 10, image::ColorType::Rgba8), to(PictureFormat::Jpg)).unwrap();
    assert_eq!((ext.as_str(), image_info(&bytes).unwrap().format), ("jpg", ImageFormat::Jpeg));
    let plain = jpeg(20, 10);
    assert_eq!(paint("a.jpg", &plain, to(PictureFormat::Jpg)).unwrap().1, plain, "a JPEG file stays one");
}

#[test]
fn what_would_be_lost_or_cannot_be_encoded_is_refused() {
    let resize = || PictureOptions { resize: Some(5), ..options() };
    let check = |name: &str, bytes: &[u8], picture: PictureOptions, part: &str| {
        let error = paint(name, bytes, picture).unwrap_err();
        assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains(part), "{error}");
    };
    check("a.png", &png(9, 9, image::ColorType::Rgba8), resize(), "alpha");
    check("a.png", &png(9, 9, image::ColorType::Rgb16), resize(), "8 bits");
    let bmp = [&b"BM"[..], &[0; 8], &[54, 0, 0, 0, 40, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0, 0, 1, 0, 24, 0], &[0; 24 + 192]]
        .concat();
    check("a.bmp", &bmp, resize(), "cannot encode bmp");
    let strip = PictureOptions { strip_metadata: true, ..options() };
    check("a.jpg", &with_orientation(&jpeg(16, 16), 6), strip, "orientation");
    let gif = b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;";
    let made = Made::new();
    made.write("a.webp", gif);
    let strip = PictureOptions { strip_metadata: true, ..options() };
    assert!(made.run("out", ConvertOptions { picture: strip, ..by_samples(1) }).is_err());
}

#[test]
fn pictures_are_turned_upright_without_loss_where_that_can_be() {
    let upright = || PictureOptions { apply_orientation: true, ..options() };
    for tag in 1..=8 {
        let stored = with_orientation(&jpeg(64, 32), tag);
        let (_, bytes, tally) = paint("a.jpg", &stored, upright()).unwrap();
        let (width, height, expected) = decode(&stored, true);
        let (new_width, new_height, found) = decode(&bytes, false);
        assert_eq!((new_width, new_height), (width, height), "tag {tag}");
        let worst = found.iter().zip(&expected).map(|(a, b)| a.abs_diff(*b)).max();
        assert!(worst <= Some(4), "tag {tag}: {worst:?}");
        assert_eq!(image_info(&bytes).unwrap().orientation, Orientation::Upright);
        assert_eq!((tally.turned_lossless, tally.encoded), (u64::from(tag > 1), 0));
    }
    // A side of 60 is no whole number of MCUs: what mirrors it must be encoded anew, what does not need not be.
    for (tag, encoded) in [(2, 1), (4, 0), (6, 0), (8, 1)] {
        let (_, bytes, tally) = paint("a.jpg", &with_orientation(&jpeg(60, 32), tag), upright()).unwrap();
        assert_eq!((tally.encoded, tally.turned_lossless), (encoded, 1 - encoded), "tag {tag}");
        assert_eq!(image_info(&bytes).unwrap().orientation, Orientation::Upright);
    }
    // A smaller picture keeps saying how it must be turned, unless it is.
    let resize = PictureOptions { resize: Some(20), ..options() };
    let stored = with_orientation(&jpeg(60, 32), 6);
    let kept = paint("a.jpg", &stored, resize.clone()).unwrap().1;
    let info = image_info(&kept).unwrap();
    assert_eq!((info.orientation, info.width), (Orientation::Rotate90, 20));
    let turned = paint("a.jpg", &stored, PictureOptions { apply_orientation: true, ..resize }).unwrap().1;
    let info = image_info(&turned).unwrap();
    assert_eq!((info.orientation, info.height), (Orientation::Upright, 20));
}

#[test]
fn restart_markers_change_no_pixel_and_the_size_is_told() {
    let made = Made::new();
    for number in 0..6 {
        made.write(&format!("c/{number}.jpg"), &jpeg(100 + number, 70));
    }
    made.write("c/x.png", &png(9, 9, image::ColorType::Rgb8));
    let picture = PictureOptions { restart_rows: Some(1), ..options() };
    let dataset = made.convert("out", ConvertOptions { picture, ..by_samples(9) });
    let tally = dataset.pictures.unwrap();
    assert_eq!((tally.marked, tally.changed, tally.encoded), (6, 6, 0));
    assert!(tally.bytes_after > 0 && tally.bytes_after != tally.bytes_before);
    for (key, fields) in samples(&made.path("out/train-000000.tar")) {
        let Some((_, bytes)) = fields.iter().find(|(ext, _)| ext == "jpg") else { continue };
        let before = fs::read(made.path(&format!("src/{key}.jpg"))).unwrap();
        assert_eq!(decode(bytes, false), decode(&before, false), "{key}");
        let info = image_info(bytes).unwrap().jpeg.unwrap();
        assert_eq!(info.restart_interval, 7);
    }
}

#[test]
fn metadata_go_on_request_only() {
    let plain = jpeg(40, 40);
    let full = [&plain[..2], &[0xFF, 0xFE, 0, 9], b"comment", &plain[2..]].concat();
    assert_eq!(paint("a.jpg", &full, options()).unwrap().1, full);
    let strip = PictureOptions { strip_metadata: true, ..options() };
    let (_, bytes, tally) = paint("a.jpg", &full, strip).unwrap();
    assert_eq!((bytes == plain, tally.changed, tally.encoded), (true, 1, 0));
}

/// What a colour profile for these colours begins with, and some bytes more.
fn profile(colours: &[u8; 4]) -> Vec<u8> {
    let mut profile = vec![7; 3000];
    profile[16..20].copy_from_slice(colours);
    profile
}

/// The colour profile of a file, as the image crate finds it.
fn profile_in(bytes: &[u8]) -> Option<Vec<u8>> {
    use image::ImageDecoder as _;
    let file = std::io::Cursor::new(bytes);
    match image_info(bytes).unwrap().format {
        ImageFormat::Png => image::codecs::png::PngDecoder::new(file).unwrap().icc_profile().unwrap(),
        ImageFormat::WebP => image::codecs::webp::WebPDecoder::new(file).unwrap().icc_profile().unwrap(),
        _ => {
            let at = bytes.windows(12).position(|window| window == b"ICC_PROFILE\0")?;
            let length = usize::from(u16::from_be_bytes([bytes[at - 2], bytes[at - 1]]));
            Some(bytes[at + 14..at + length - 2].to_vec())
        }
    }
}

fn png_with_profile(width: u32, height: u32, profile: &[u8]) -> Vec<u8> {
    use image::ImageEncoder as _;
    let mut file = Vec::new();
    let mut encoder = image::codecs::png::PngEncoder::new(&mut file);
    encoder.set_icc_profile(profile.to_vec()).unwrap();
    encoder.write_image(&pixels(width, height), width, height, image::ExtendedColorType::Rgb8).unwrap();
    file
}

fn jpeg_with_segment(jpeg: &[u8], marker: u8, payload: &[u8]) -> Vec<u8> {
    [&jpeg[..2], &[0xFF, marker], &(payload.len() as u16 + 2).to_be_bytes(), payload, &jpeg[2..]].concat()
}

#[test]
fn a_colour_profile_comes_along_where_it_fits_and_what_does_not_is_counted() {
    let resize = || PictureOptions { resize: Some(20), ..options() };
    let to = |format| PictureOptions { format, ..options() };
    let rgb = profile(b"RGB ");
    let png = png_with_profile(40, 30, &rgb);
    let with_icc =
        |jpeg: &[u8], profile: &[u8]| jpeg_with_segment(jpeg, 0xE2, &[&b"ICC_PROFILE\0\x01\x01"[..], profile].concat());
    let jpg = with_icc(&jpeg(40, 30), &rgb);
    let check = |name: &str, bytes: &[u8], picture: PictureOptions, profile: Option<&[u8]>, bared: u64| {
        let (ext, made, tally) = paint(name, bytes, picture).unwrap();
        assert!(profile_in(&made).as_deref() == profile, "{name} to {ext}");
        assert_eq!((tally.encoded, tally.bared), (1, bared), "{name} to {ext}");
    };
    check("a.png", &png, resize(), Some(&rgb), 0);
    check("a.png", &png, to(PictureFormat::WebP), Some(&rgb), 0);
    check("a.png", &png, to(PictureFormat::Jpg), Some(&rgb), 0);
    check("a.jpg", &jpg, resize(), Some(&rgb), 0);
    check("a.jpg", &jpg, to(PictureFormat::WebP), Some(&rgb), 0);
    check("a.png", &png, PictureOptions { strip_metadata: true, ..resize() }, None, 0);
    check("a.jpg", &jpeg_with_segment(&jpeg(40, 30), 0xFE, b"comment"), resize(), None, 1);
    check("a.jpg", &with_orientation(&jpeg(40, 30), 1), to(PictureFormat::WebP), None, 1);
    // Pixels of CMYK become RGB: their profile would be wrong for them.
    let mut cmyk = Vec::new();
    let encoder = jpeg_encoder::Encoder::new(&mut cmyk, 90);
    encoder.encode(&[99; 40 * 30 * 4], 40, 30, jpeg_encoder::ColorType::Cmyk).unwrap();
    check("a.jpg", &with_icc(&cmyk, &profile(b"CMYK")), resize(), None, 1);
}

#[test]
fn animations_are_refused_where_they_would_become_one_picture() {
    let gif = |frames: usize| {
        let mut file = Vec::new();
        let mut encoder = image::codecs::gif::GifEncoder::new(&mut file);
        let frame = || image::Frame::new(image::RgbaImage::from_pixel(30, 20, image::Rgba([9, 9, 9, 255])));
        encoder.encode_frames((0..frames).map(|_| frame())).unwrap();
        drop(encoder);
        file
    };
    // The name is one that an image folder takes; the bytes say what it is.
    let to = PictureOptions { format: PictureFormat::Jpg, ..options() };
    assert_eq!(paint("a.webp", &gif(1), to.clone()).unwrap().0, "jpg");
    let error = paint("a.webp", &gif(2), to).unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("several pictures"), "{error}");
}

#[test]
fn broken_pictures_are_bad_samples_where_pictures_are_read() {
    let made = Made::new();
    let whole = jpeg(100, 80);
    made.write("c/good.jpg", &whole);
    made.write("c/cut.jpg", &whole[..whole.len() / 2]);
    made.write("c/text.jpg", b"<html>no picture</html>");
    let picture = PictureOptions { resize: Some(40), ..options() };
    let with =
        |count| ConvertOptions { picture: picture.clone(), errors_max: ErrorBudget::Count(count), ..by_samples(9) };
    let error = made.run("a", with(0)).unwrap_err();
    assert!(error.to_string().contains("src/c/"), "{error}");
    let dataset = made.convert("b", with(2));
    assert_eq!((dataset.samples, dataset.left_out), (1, 2));
    let list = left_out(&made.path("b"));
    assert!(list.contains("cut.jpg") && list.contains("text.jpg"), "{list}");
    // Without an option that needs pixels nobody looks at them.
    assert_eq!(made.convert("c", by_samples(9)).samples, 3);
}

#[test]
fn any_number_of_threads_makes_the_same_pictures() {
    let made = Made::new();
    (0..40).for_each(|number| made.write(&format!("c/{number}.jpg"), &jpeg(60 + number, 50)));
    let picture = PictureOptions { resize: Some(48), restart_rows: Some(1), strip_metadata: true, ..options() };
    let with = |threads| ConvertOptions { picture: picture.clone(), threads, shuffle: Some(4), ..by_samples(11) };
    made.convert("1", with(1));
    made.convert("5", with(5));
    assert_eq!(crate::made::files(&made.path("1")), crate::made::files(&made.path("5")));
}
