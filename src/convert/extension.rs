//! Extensions: how names end, and which ends are those of pictures.
//!
//! It judges names only; what a file is, its bytes say.

/// What torchvision takes for pictures among files.
pub(super) const PICTURE_FILES: [&str; 9] = ["jpg", "jpeg", "png", "ppm", "bmp", "pgm", "tif", "tiff", "webp"];

/// What further fields of samples hold pictures.
const PICTURE_FIELDS_MORE: [&str; 3] = ["pbm", "pnm", "gif"];

/// Whether torchvision would take a file of this name for a picture.
pub(super) fn is_picture_file(name: &[u8]) -> bool {
    let (_, ext) = split_extension(name);
    PICTURE_FILES.iter().any(|picture| ext.eq_ignore_ascii_case(picture.as_bytes()))
}

/// Whether fields with this extension, in lower case, hold pictures.
pub(crate) fn is_picture_field(ext: &str) -> bool {
    let format = ext.rsplit('.').next().unwrap_or(ext);
    PICTURE_FILES.contains(&format) || PICTURE_FIELDS_MORE.contains(&format)
}

/// A file name before its last dot and behind it.
pub(super) fn split_extension(name: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memrchr(b'.', name) {
        Some(dot) if dot > 0 => (&name[..dot], &name[dot + 1..]),
        _ => (name, b""),
    }
}

/// The field's extension for a picture's file name: in lower case, with one spelling for each format.
pub(super) fn extension_of(name: &[u8]) -> String {
    let (_, ext) = split_extension(name);
    match String::from_utf8_lossy(ext).to_lowercase().as_str() {
        "jpeg" => "jpg".into(),
        "tif" => "tiff".into(),
        other => other.into(),
    }
}
