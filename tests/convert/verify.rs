//! What is wrong with shards is found, and what is right has no finding.

use std::fs;
use std::path::{Path, PathBuf};

use brimful::convert::{Duplicates, FindingKind, RepairOptions, Verification, VerifyOptions, repair, verify};
use brimful::sample::FieldSelector;
use tar::{Builder, EntryType, Header};

use crate::made::{Made, by_samples, samples};

/// An archive of these files.
fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = Header::new_ustar();
        header.set_size(bytes.len() as u64);
        builder.append_data(&mut header, name, *bytes).unwrap();
    }
    builder.into_inner().unwrap()
}

/// `count` samples of `jpg` (700 bytes, two blocks) and `cls`: five blocks each.
fn good(count: usize) -> Vec<u8> {
    let files: Vec<(String, Vec<u8>)> = (0..count)
        .flat_map(|n| {
            [(format!("{n:03}.cls"), n.to_string().into_bytes()), (format!("{n:03}.jpg"), vec![n as u8; 700])]
        })
        .collect();
    archive(&files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect::<Vec<_>>())
}

const SAMPLE_BYTES: usize = 5 * 512;

fn check(paths: &[PathBuf]) -> Verification {
    verify(paths, &VerifyOptions { threads: 2, ..VerifyOptions::default() }, &|_, _| {}).unwrap()
}

/// Kinds, keys and offsets of the findings in one archive.
#[track_caller]
fn expect(bytes: &[u8], expected: &[(FindingKind, Option<&str>, Option<u64>)]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar");
    fs::write(&path, bytes).unwrap();
    let found = check(&[path]).findings;
    let brief: Vec<_> = found.iter().map(|found| (found.kind, found.key.as_deref(), found.offset)).collect();
    assert_eq!(brief, expected, "{found:#?}");
}

#[test]
fn good_shards_have_no_finding() {
    expect(&good(5), &[]);
    let made = Made::with_pictures(3, 20);
    let dataset = made.convert("out", by_samples(16));
    let paths: Vec<PathBuf> = dataset.splits[0].shards.iter().map(|shard| made.path("out").join(&shard.name)).collect();
    let options = VerifyOptions { hash: true, threads: 2, ..VerifyOptions::default() };
    let found = verify(&paths, &options, &|_, _| {}).unwrap();
    assert_eq!(found.findings, []);
    assert_eq!((found.shards, found.samples, found.bytes), (4, 60, dataset.bytes));
    assert_eq!(found.fields, dataset.fields);
}

#[test]
fn damage_is_found_where_it_is() {
    use FindingKind::*;
    let whole = good(6);
    let mut header = whole.clone();
    header[2 * SAMPLE_BYTES + 1024 + 3] ^= 1;
    let at = |block: usize| Some((block * 512) as u64);
    expect(&header, &[(MissingField, Some("002"), at(10)), (DamagedHeader, None, at(12))]);

    let two = {
        let mut bytes = header.clone();
        bytes[4 * SAMPLE_BYTES..4 * SAMPLE_BYTES + 512].fill(b'x');
        bytes
    };
    let kinds = [
        (MissingField, Some("002"), at(10)),
        (DamagedHeader, None, at(12)),
        (DamagedHeader, None, at(20)),
        (MissingField, Some("004"), at(22)),
    ];
    expect(&two, &kinds);

    expect(&whole[..3 * SAMPLE_BYTES], &[(MissingEnd, None, at(15))]);
    expect(&whole[..3 * SAMPLE_BYTES + 1024 + 600], &[(MissingField, Some("003"), at(15)), (Cut, None, at(17))]);
    expect(
        &[&whole[..], &good(2)].concat(),
        &[
            (DuplicateKey, Some("000"), Some(whole.len() as u64)),
            (DuplicateKey, Some("001"), Some((whole.len() + SAMPLE_BYTES) as u64)),
            (HiddenMembers, None, None),
        ],
    );
    let lone = [&whole[..SAMPLE_BYTES], &[0; 512], &whole[SAMPLE_BYTES..]].concat();
    expect(&lone, &[(LoneZeroBlock, None, None)]);
    expect(&[&whole[..], b"garbage"].concat(), &[(TrailingBytes, None, None)]);
    expect(b"<html>not found</html>", &[(NotTar, None, Some(0))]);
    expect(b"", &[(NotTar, None, Some(0))]);
}

#[test]
fn odd_grouping_is_found() {
    use FindingKind::*;
    let three = [&b"1"[..], b"2", b"3"];
    let [a, b, c] = three;
    expect(
        &archive(&[("a.jpg", a), ("b.jpg", b), ("a.cls", c), ("b.cls", c)]),
        &[(SplitGroup, Some("a"), Some(2048)), (SplitGroup, Some("b"), Some(3072))],
    );
    expect(&archive(&[("a.jpg", a), ("b.jpg", b), ("a.jpg", c)]), &[(DuplicateKey, Some("a"), Some(2048))]);
    expect(&archive(&[("a.jpg", a), ("a.JPG", b)]), &[(DuplicateField, Some("a"), Some(1024))]);
    expect(&archive(&[("a.jpg", a), ("._a.jpg", b), ("__MACOSX/a.jpg", b)]), &[(AppleDouble, None, Some(1024))]);
    expect(&archive(&[("a.jpg", a), ("README", b), ("b.jpg", c)]), &[(NoExtension, None, Some(1024))]);
    expect(&archive(&[("a.jpg", a), ("b.jpg", b""), ("__meta__/x.json", b"")]), &[(EmptyField, Some("b"), Some(1024))]);
    let fields = [("a.jpg", a), ("a.cls", b), ("b.png", a), ("b.cls", b), ("c.jpg", a)];
    expect(&archive(&fields), &[(MissingField, Some("c"), Some(4096))]);
}

#[test]
fn links_and_sparse_members_are_found() {
    let mut builder = Builder::new(good(2)[..2 * SAMPLE_BYTES].to_vec());
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::Symlink);
    header.set_size(0);
    builder.append_link(&mut header, "002.jpg", "000.jpg").unwrap();
    expect(&builder.into_inner().unwrap(), &[(FindingKind::Link, None, Some(2 * SAMPLE_BYTES as u64))]);

    let mut builder = Builder::new(good(2)[..2 * SAMPLE_BYTES].to_vec());
    let mut header = Header::new_gnu();
    header.set_path("002.jpg").unwrap();
    header.set_entry_type(EntryType::GNUSparse);
    header.as_gnu_mut().unwrap().realsize[..11].copy_from_slice(b"00000020000");
    header.set_size(0);
    header.set_cksum();
    builder.append(&header, &[][..]).unwrap();
    expect(&builder.into_inner().unwrap(), &[(FindingKind::Sparse, None, Some(2 * SAMPLE_BYTES as u64))]);
}

#[test]
fn compressed_shards_are_looked_into() {
    let folder = tempfile::tempdir().unwrap();
    let packed = |bytes: &[u8]| {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut packed, bytes).unwrap();
        packed.finish().unwrap()
    };
    let path = folder.path().join("a.tar.gz");
    fs::write(&path, packed(&good(4))).unwrap();
    let found = check(std::slice::from_ref(&path));
    assert_eq!((found.samples, found.findings), (4, Vec::new()));
    fs::write(&path, packed(&good(4)[..3 * SAMPLE_BYTES])).unwrap();
    assert_eq!(check(std::slice::from_ref(&path)).findings[0].kind, FindingKind::MissingEnd);
    let whole = packed(&good(40));
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    assert_eq!(check(&[path]).findings[0].kind, FindingKind::Cut);
}

#[test]
fn images_are_decoded_and_a_census_is_taken_of_all_their_kinds() {
    use brimful::encode::{JpegOptions, PixelKind, Subsampling, encode_jpeg};
    let jpeg = |width: u32, height: u32, kind: PixelKind, subsampling, restart_interval| {
        let options = JpegOptions { quality: 80, subsampling, optimise: false, restart_interval };
        let pixels = vec![99; width as usize * height as usize * kind.channels()];
        encode_jpeg(&pixels, width, height, kind, &options).unwrap()
    };
    let plain = jpeg(64, 48, PixelKind::Rgb, Subsampling::Half, 0);
    let tiff = [b'M', b'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0];
    let rotated = [&plain[..2], &[0xFF, 0xE1, 0, 34], b"Exif\0\0", &tiff, &plain[2..]].concat();
    let other = |color, progressive: bool, channels: usize| {
        let mut file = Vec::new();
        let mut encoder = jpeg_encoder::Encoder::new(&mut file, 80);
        encoder.set_progressive(progressive);
        encoder.encode(&vec![99; 200 * 100 * channels], 200, 100, color).unwrap();
        file
    };
    let mut deep = std::io::Cursor::new(Vec::new());
    image::write_buffer_with_format(
        &mut deep,
        &vec![7; 300 * 20 * 6],
        300,
        20,
        image::ColorType::Rgb16,
        image::ImageFormat::Png,
    )
    .unwrap();
    let files: [(&str, &[u8]); 9] = [
        ("a.jpg", &plain),
        ("b.jpg", &rotated),
        ("c.jpg", &jpeg(64, 48, PixelKind::Rgb, Subsampling::Full, 2)),
        ("d.jpg", &jpeg(64, 48, PixelKind::Grey, Subsampling::Full, 0)),
        ("e.jpg", &other(jpeg_encoder::ColorType::Rgb, true, 3)),
        ("f.jpg", &other(jpeg_encoder::ColorType::Cmyk, false, 4)),
        ("g.png", deep.get_ref()),
        ("h.jpg", &plain[..plain.len() - 30]),
        ("i.jpg", b"<html>"),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar");
    fs::write(&path, archive(&files)).unwrap();
    let options = VerifyOptions { decode: true, threads: 2, ..VerifyOptions::default() };
    let found = verify(&[path], &options, &|_, _| {}).unwrap();
    let census = found.census.unwrap();
    let keys: Vec<_> = found.findings.iter().map(|found| (found.kind, found.key.as_deref().unwrap())).collect();
    assert_eq!(keys, [(FindingKind::BadImage, "h"), (FindingKind::BadImage, "i")]);
    assert_eq!((census.images, census.bad), (7, 2));
    let counts = |pairs: &[(&str, u64)]| pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    assert_eq!(census.formats, counts(&[("jpeg", 6), ("png", 1)]));
    assert_eq!(census.subsampling.get("4:2:0"), Some(&3));
    assert_eq!(census.subsampling.values().sum::<u64>(), 4);
    assert_eq!(
        (census.progressive, census.cmyk, census.grey, census.exif_rotated, census.sixteen_bit, census.restart_markers),
        (1, 1, 1, 1, 1, 1)
    );
    assert_eq!((census.smallest, census.largest), (Some((64, 20)), Some((300, 100))));
    assert_eq!(census.sides, [(128, 4), (256, 2), (512, 1)].into());
}

#[test]
fn fields_that_are_asked_for_are_missed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar");
    fs::write(&path, good(3)).unwrap();
    let fields = ["png;jpg", "txt"].map(|field| FieldSelector::parse(field).unwrap()).to_vec();
    let options = VerifyOptions { fields, threads: 1, ..VerifyOptions::default() };
    let found = verify(&[path], &options, &|_, _| {}).unwrap();
    assert_eq!(found.counts.get(&FindingKind::MissingField), Some(&3));
    assert_eq!(found.findings[0].message, "the sample has no txt, only cls, jpg");
}

#[test]
fn keys_in_two_shards_and_many_findings_alike_are_summed_up() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["a.tar", "b.tar"].map(|name| folder.path().join(name));
    paths.iter().for_each(|path| fs::write(path, good(4)).unwrap());
    let found = check(&paths);
    assert_eq!(found.counts.get(&FindingKind::SharedKey), Some(&4));
    // A repair works shard by shard, so it is none for these.
    assert!(!FindingKind::SharedKey.advice().contains("--fix"), "{}", FindingKind::SharedKey.advice());
    assert_eq!((found.findings.len(), found.findings[0].key.as_deref()), (1, Some("000")));

    let names: Vec<String> = (0..200).map(|n| format!("{:03}.{}", n % 100, ["jpg", "cls"][n / 100])).collect();
    fs::write(&paths[0], archive(&names.iter().map(|name| (name.as_str(), &b"x"[..])).collect::<Vec<_>>())).unwrap();
    let found = check(&paths[..1]);
    assert_eq!(found.counts.get(&FindingKind::SplitGroup), Some(&100));
    assert_eq!(found.findings.len(), 20);
}

#[test]
fn a_stale_index_is_found_and_never_used() {
    let made = Made::with_pictures(1, 6);
    made.convert("out", by_samples(6));
    let path = made.path("out/train-000000.tar");
    let kinds = |path: &Path| check(&[path.to_owned()]).findings.iter().map(|found| found.kind).collect::<Vec<_>>();
    assert_eq!(kinds(&path), []);
    // Another shard of the same length, no younger than the index.
    let index = brimful::shard::index_beside(&path);
    let bytes = fs::read(&path).unwrap();
    let swapped = {
        let mut bytes = bytes.clone();
        let name = bytes.windows(6).position(|window| window == b"img003").unwrap();
        bytes[name..name + 6].copy_from_slice(b"img999");
        let mut header = Header::new_ustar();
        let start = name / 512 * 512;
        header.as_mut_bytes().copy_from_slice(&bytes[start..start + 512]);
        header.set_cksum();
        bytes[start..start + 512].copy_from_slice(header.as_bytes());
        bytes
    };
    fs::write(&path, &swapped).unwrap();
    assert!(kinds(&path).contains(&FindingKind::StaleIndex));
    let cache = brimful::shard::IndexCache::at(made.path("cache"));
    let built = cache.load_or_build(&path, &brimful::shard::ShardOptions::default()).unwrap();
    assert!(built.iter().any(|member| member.name.ends_with(b"img999.cls")));
    fs::write(&path, &bytes).unwrap();
    fs::write(&index, b"junk").unwrap();
    assert_eq!(kinds(&path), [FindingKind::StaleIndex]);
    fs::remove_file(&index).unwrap();
    fs::write(path.with_extension("idx"), "v1.2 1\njpg 512 10 a.jpg\n").unwrap();
    assert_eq!(kinds(&path), [FindingKind::StaleIndex]);
    // The index of a shard that has grown since.
    fs::write(&path, good(2)).unwrap();
    let line = |n: usize| format!("cls {} 1 00{n}.cls jpg {} 700 00{n}.jpg\n", 512 + n * 2560, 1536 + n * 2560);
    fs::write(path.with_extension("idx"), format!("v1.2 2\n{}{}", line(0), line(1))).unwrap();
    assert_eq!(kinds(&path), []);
    fs::write(&path, good(3)).unwrap();
    assert_eq!(kinds(&path), [FindingKind::StaleIndex]);
}

#[test]
fn bytes_that_differ_from_the_description_are_found() {
    let made = Made::with_pictures(2, 6);
    made.convert("out", by_samples(4));
    let paths: Vec<PathBuf> = (0..2).map(|n| made.path(&format!("out/train-{n:06}.tar"))).collect();
    let mut bytes = fs::read(&paths[1]).unwrap();
    let middle = bytes.iter().position(|&byte| byte == 4).unwrap();
    bytes[middle] = 5;
    fs::write(&paths[1], bytes).unwrap();
    fs::remove_file(made.path("out/train-000002.tar")).unwrap();
    let options = VerifyOptions { hash: true, threads: 2, ..VerifyOptions::default() };
    let found = verify(&paths, &options, &|_, _| {}).unwrap();
    let kinds: Vec<FindingKind> = found.findings.iter().map(|found| found.kind).collect();
    assert_eq!(kinds, [FindingKind::HashMismatch, FindingKind::MissingShard]);
    assert_eq!(check(&paths).findings, []);
    fs::remove_file(made.path("out/dataset.json")).unwrap();
    assert!(verify(&paths, &options, &|_, _| {}).unwrap_err().hint().unwrap().contains("--hash"));
}

fn mend(bytes: &[u8], duplicates: Duplicates, decode: bool) -> (Vec<String>, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar");
    fs::write(&path, bytes).unwrap();
    let options = RepairOptions { duplicates, decode, fields: Vec::new(), threads: 2 };
    let out = folder.path().join("out");
    let mended = repair(&[path], &out, &options, &|_, _| {}).unwrap();
    let lines = mended.shards.iter().flat_map(|shard| {
        assert_eq!(check(std::slice::from_ref(shard)).findings, []);
        samples(shard).into_iter().map(|(key, fields)| {
            let fields: Vec<&str> = fields.iter().map(|(ext, _)| ext.as_str()).collect();
            format!("{key}: {}", fields.join(" "))
        })
    });
    let left_out = mended.left_out.iter().map(|left| left.sample.rsplit(' ').next().unwrap().to_owned());
    (lines.collect(), left_out.collect())
}

#[test]
fn repaired_shards_are_regrouped_and_have_no_finding() {
    let names = ["b.jpg", "a.jpg", "._b.jpg", "b.cls", "README", "a.cls", "c.cls", "c.jpg", "a.jpg", "a.cls"];
    let bytes = archive(&names.map(|name| (name, name.as_bytes())));
    let (lines, left_out) = mend(&bytes, Duplicates::Rename, false);
    assert_eq!(lines, ["b: cls jpg", "a: cls jpg", "c: cls jpg", "a-2: cls jpg"]);
    assert_eq!(left_out, ["README"]);
    let (lines, left_out) = mend(&bytes, Duplicates::Drop, false);
    assert_eq!(lines, ["b: cls jpg", "a: cls jpg", "c: cls jpg"]);
    assert_eq!(left_out, ["README", "a.jpg", "a.cls"]);
}

#[test]
fn repaired_samples_never_mix_the_fields_of_two_that_share_a_key() {
    let mended = |members: &[(&str, &str)], duplicates| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar");
        let files: Vec<(&str, &[u8])> = members.iter().map(|(name, bytes)| (*name, bytes.as_bytes())).collect();
        fs::write(&path, archive(&files)).unwrap();
        let options = RepairOptions { duplicates, decode: false, fields: Vec::new(), threads: 1 };
        let mended = repair(&[path], &folder.path().join("out"), &options, &|_, _| {}).unwrap();
        let lines = mended.shards.iter().flat_map(|shard| samples(shard)).map(|(key, fields)| {
            let fields: Vec<_> = fields.iter().map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned()).collect();
            format!("{key}: {}", fields.join(" "))
        });
        (lines.collect::<Vec<_>>(), mended.left_out.len())
    };
    let check = |members: &[(&str, &str)], renamed: &[&str], dropped: &[&str]| {
        let (lines, left_out) = mended(members, Duplicates::Rename);
        assert_eq!((lines, left_out), (renamed.iter().map(ToString::to_string).collect(), 0), "{members:?}");
        let (lines, left_out) = mended(members, Duplicates::Drop);
        assert_eq!(lines, dropped, "{members:?}");
        let kept: usize = dropped.iter().map(|line| line.split(' ').count() - 1).sum();
        assert_eq!(kept + left_out, members.len(), "{members:?}");
    };
    let b = [("b.jpg", "b1"), ("b.cls", "b2")];
    let of = |parts: &[&[(&'static str, &'static str)]]| parts.concat();
    // The first sample has lost its label: it does not get the other's.
    check(
        &of(&[&[("a.jpg", "jpg1")], &b, &[("a.jpg", "jpg2"), ("a.cls", "cls2")]]),
        &["a: jpg1", "b: b2 b1", "a-2: cls2 jpg2"],
        &["a: jpg1", "b: b2 b1"],
    );
    // The same with the fields the other way round.
    check(
        &of(&[&[("a.jpg", "jpg1")], &b, &[("a.cls", "cls2"), ("a.jpg", "jpg2")]]),
        &["a: jpg1", "b: b2 b1", "a-2: cls2 jpg2"],
        &["a: jpg1", "b: b2 b1"],
    );
    // Torn apart and alone with its key.
    check(
        &of(&[&[("a.jpg", "jpg1")], &b, &[("a.cls", "cls1")]]),
        &["a: cls1 jpg1", "b: b2 b1"],
        &["a: cls1 jpg1", "b: b2 b1"],
    );
    // A label that could be that of either sample is neither's.
    check(
        &of(&[&[("a.jpg", "jpg1")], &b, &[("a.jpg", "jpg2")], &[("c.cls", "c")], &[("a.cls", "cls?")]]),
        &["a: jpg1", "b: b2 b1", "a-2: jpg2", "c: c", "a-3: cls?"],
        &["a: jpg1", "b: b2 b1", "c: c"],
    );
    // Two whole samples side by side.
    check(
        &[("a.jpg", "jpg1"), ("a.cls", "cls1"), ("a.jpg", "jpg2"), ("a.cls", "cls2")],
        &["a: cls1 jpg1", "a-2: cls2 jpg2"],
        &["a: cls1 jpg1"],
    );
}

#[test]
fn a_picture_that_is_missing_is_noticed_beside_other_pictures() {
    use FindingKind::*;
    let x = &b"x"[..];
    let with_mask = [("a.jpg", x), ("a.seg.png", x), ("b.png", x), ("b.seg.png", x), ("c.seg.png", x)];
    expect(&archive(&with_mask), &[(MissingField, Some("c"), Some(4096))]);
    let without_mask = [("a.jpg", x), ("a.seg.png", x), ("b.jpg", x), ("b.seg.webp", x), ("c.jpg", x)];
    expect(&archive(&without_mask), &[(MissingField, Some("c"), Some(4096))]);
    let plain_mask = [("a.jpg", x), ("a.png", x), ("b.jpg", x), ("b.png", x), ("c.png", x)];
    expect(&archive(&plain_mask), &[(MissingField, Some("c"), Some(4096))]);
    let any_format = [("a.jpg", x), ("b.jpg", x), ("c.png", x)];
    expect(&archive(&any_format), &[]);
}

#[test]
fn shards_that_end_in_many_zeros_or_hold_nothing_are_found() {
    use FindingKind::*;
    let whole = good(6);
    let zeros = |bytes: usize| vec![0; bytes];
    expect(&[&whole[..], &zeros(1 << 20)].concat(), &[]);
    let half = [&whole[..3 * SAMPLE_BYTES], &zeros(2 << 20)].concat();
    expect(&half, &[(ZeroRun, None, Some(3 * SAMPLE_BYTES as u64))]);
    // A hole in the middle hides members from most readers, and may have held some.
    let hole = [&whole[..3 * SAMPLE_BYTES], &zeros(2 << 20), &whole[3 * SAMPLE_BYTES..]].concat();
    expect(&hole, &[(ZeroRun, None, Some(3 * SAMPLE_BYTES as u64)), (HiddenMembers, None, None)]);
    expect(&zeros(10_240), &[(NoMembers, None, None)]);
    expect(&zeros(2 << 20), &[(ZeroRun, None, Some(0)), (NoMembers, None, None)]);
}

#[test]
fn damaged_samples_are_left_out_and_the_rest_is_kept() {
    let mut bytes = good(6);
    bytes[2 * SAMPLE_BYTES + 1024 + 3] ^= 1;
    bytes.truncate(5 * SAMPLE_BYTES + 1024);
    let (lines, left_out) = mend(&bytes, Duplicates::Rename, false);
    assert_eq!(lines, ["000: cls jpg", "001: cls jpg", "003: cls jpg", "004: cls jpg"]);
    assert_eq!(left_out, ["002", "005"]);
    // No picture here is one.
    let (lines, left_out) = mend(&good(3), Duplicates::Rename, true);
    assert_eq!((lines.len(), left_out.len()), (0, 3));
}

#[test]
fn what_was_lost_whole_and_sparse_members_are_listed_by_repairs() {
    let mut builder = Builder::new(good(6)[..6 * SAMPLE_BYTES].to_vec());
    let mut header = Header::new_gnu();
    header.set_path("006.jpg").unwrap();
    header.set_entry_type(EntryType::GNUSparse);
    header.as_gnu_mut().unwrap().realsize[..11].copy_from_slice(b"00000020000");
    header.set_size(0);
    header.set_cksum();
    builder.append(&header, &[][..]).unwrap();
    let mut bytes = builder.into_inner().unwrap();
    bytes[2 * SAMPLE_BYTES..3 * SAMPLE_BYTES].fill(b'x');
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar");
    fs::write(&path, bytes).unwrap();
    let options = RepairOptions { duplicates: Duplicates::Rename, decode: false, fields: Vec::new(), threads: 1 };
    let out = folder.path().join("out");
    let mended = repair(&[path], &out, &options, &|_, _| {}).unwrap();
    assert_eq!((mended.samples, mended.left_out.len()), (5, 0));
    let kinds: Vec<&str> = mended.lost.iter().map(|lost| lost.kind.as_str()).collect();
    assert_eq!(kinds, ["lost", "sparse"]);
    let list = fs::read_to_string(out.join("left_out.jsonl")).unwrap();
    assert!(list.contains("bytes 5120 to 7680") && list.contains("byte 15360"), "{list}");
    assert!(!FindingKind::HashMismatch.advice().contains("--fix"), "a repair knows no hashes");
}

#[test]
fn every_cut_and_every_changed_header_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar");
    let whole = good(3);
    let kinds = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        check(std::slice::from_ref(&path)).findings.len()
    };
    for end in (0..whole.len() - 1024).step_by(128) {
        assert!(kinds(&whole[..end]) > 0, "cut at {end}");
    }
    for header in [0, 1024, SAMPLE_BYTES, 2 * SAMPLE_BYTES + 1024] {
        for byte in (0..160).step_by(13) {
            let mut bytes = whole.clone();
            bytes[header + byte] ^= 4;
            assert!(kinds(&bytes) > 0, "byte {byte} of the header at {header}");
        }
    }
}
