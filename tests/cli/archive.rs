//! Small tar archives, good and damaged, made by the `tar` crate.

use tar::{Builder, Header};

/// An archive of these files.
pub(crate) fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, *bytes).unwrap();
    }
    builder.into_inner().unwrap()
}

/// `count` samples of two fields, `jpg` (of 700 bytes) and `cls`.
pub(crate) fn samples(count: usize) -> Vec<u8> {
    let image = [0xFF; 700];
    let files: Vec<(String, Vec<u8>)> = (0..count)
        .flat_map(|n| [(format!("{n:06}.jpg"), image.to_vec()), (format!("{n:06}.cls"), n.to_string().into_bytes())])
        .collect();
    archive(&files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect::<Vec<_>>())
}

/// [`samples`] with the header of the member at byte `offset` overwritten.
pub(crate) fn damaged(count: usize, offset: usize) -> Vec<u8> {
    let mut bytes = samples(count);
    assert_eq!(offset % 512, 0);
    bytes[offset..offset + 512].fill(b'x');
    bytes
}

/// Bytes that one sample of [`samples`] takes: two headers, 700 bytes in two blocks, a label in one.
pub(crate) const SAMPLE_BYTES: usize = 512 * 5;
