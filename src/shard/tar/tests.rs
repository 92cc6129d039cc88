//! The scanner against hand-made archives, and against the `tar` crate on generated ones.

use proptest::collection::vec;
use proptest::prelude::*;
use tar::{EntryType, Header};

use super::*;

/// An archive under construction.
#[derive(Default)]
struct Archive(Vec<u8>);

impl Archive {
    fn block(mut self, block: &[u8]) -> Self {
        self.0.extend_from_slice(block);
        self.pad()
    }

    fn pad(mut self) -> Self {
        self.0.resize(self.0.len().next_multiple_of(BLOCK), 0);
        self
    }

    fn header(self, name: &str, flag: u8, edit: impl FnOnce(&mut Header)) -> Self {
        let mut header = Header::new_ustar();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(0);
        header.as_old_mut().linkflag = [flag];
        edit(&mut header);
        header.set_cksum();
        self.block(header.as_bytes())
    }

    fn member(self, name: &str, flag: u8, data: &[u8]) -> Self {
        self.header(name, flag, |header| header.set_size(data.len() as u64)).block(data)
    }

    fn file(self, name: &str, data: &[u8]) -> Self {
        self.member(name, b'0', data)
    }

    fn pax(self, flag: u8, records: &[(&str, &str)]) -> Self {
        let mut data = Vec::new();
        for (key, value) in records {
            let rest = format!(" {key}={value}\n");
            let length = (rest.len()..).find(|length| length.to_string().len() + rest.len() == *length).unwrap();
            data.extend_from_slice(format!("{length}{rest}").as_bytes());
        }
        self.member("PaxHeaders/x", flag, &data)
    }

    fn end(self) -> Vec<u8> {
        self.block(&[0; 2 * BLOCK]).0
    }
}

/// A member as tests compare it: name, size, offset of the data, kind.
type Row = (String, u64, u64, MemberKind);

struct Walk {
    rows: Vec<Row>,
    error: Option<Error>,
    report: ScanReport,
}

fn walk(mut archive: &[u8], damage: Damage) -> Walk {
    let mut scanner = Scanner::new(damage);
    let mut rows = Vec::new();
    let error = loop {
        match scanner.next(&mut archive) {
            Ok(Some(Found { offset, size, kind, header_offset })) => {
                assert!(header_offset < offset, "a header behind its data");
                rows.push((scanner.name().escape_ascii().to_string(), size, offset, kind));
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    assert!(matches!(scanner.next(&mut archive), Ok(None)), "the end is no end");
    Walk { rows, error, report: scanner.into_report() }
}

/// Members as `NAME:SIZE`, behind them the error's kind.
fn summary(archive: &[u8], damage: Damage) -> String {
    let Walk { rows, error, .. } = walk(archive, damage);
    let names = rows.iter().map(|(name, size, ..)| format!("{name}:{size}"));
    names.chain(error.map(|error| format!("! {}", error.kind().as_str()))).collect::<Vec<_>>().join(" ")
}

#[test]
fn extended_headers_overrule_the_header_of_their_member() {
    let check = |archive: Archive, expected: &str| assert_eq!(summary(&archive.end(), Damage::Strict), expected);
    let new = Archive::default;
    check(new().file("a.jpg", b"12345"), "a.jpg:5");
    check(new().pax(b'x', &[("mtime", "1.5")]).file("a", b"1").file("b", b""), "a:1 b:0");
    check(new().pax(b'x', &[("path", "longer/a")]).file("a", b"1").file("b", b""), "longer/a:1 b:0");
    check(new().pax(b'X', &[("path", "solaris")]).file("a", b"1"), "solaris:1");
    check(new().pax(b'x', &[("path", "é"), ("hdrcharset", "BINARY")]).file("a", b""), "\\xc3\\xa9:0");
    check(new().pax(b'x', &[("size", "600")]).header("a", b'0', |_| {}).block(&[7; 600]).file("b", b"2"), "a:600 b:1");
    check(new().pax(b'x', &[("size", "3"), ("size", "")]).file("a", b"1"), "a:1");
    check(new().pax(b'x', &[("path", "1")]).pax(b'x', &[("path", "2")]).file("a", b""), "2:0");
    check(new().pax(b'g', &[("path", "all")]).file("a", b"").file("b", b""), "all:0 all:0");
    let taken_back = new().pax(b'g', &[("path", "all")]).file("a", b"").pax(b'g', &[("path", "")]).file("b", b"");
    check(taken_back, "all:0 b:0");
    check(
        new().pax(b'g', &[("path", "all")]).pax(b'x', &[("path", "own")]).file("a", b"").file("b", b""),
        "own:0 all:0",
    );
    check(new().member("././@LongLink", b'L', b"long\0rest").file("a", b"1").file("b", b""), "long:1 b:0");
    check(new().member("././@LongLink", b'K', b"target\0").header("a", b'2', |_| {}).file("b", b""), "a:0 b:0");
    check(new().member("L", b'L', b"long\0").pax(b'x', &[("path", "pax")]).file("a", b""), "pax:0");
    // A size of PAX decides where data end, not the header's: else data could pose as members.
    let evil = new().file("evil", b"").0;
    let size = evil.len().to_string();
    let smuggled = new().pax(b'x', &[("size", size.as_str())]).header("blob", b'0', |_| {}).block(&evil);
    check(smuggled.file("good", b"1"), "blob:512 good:1");
}

#[test]
fn only_kinds_that_carry_data_are_followed_by_data() {
    let check = |flag: u8, size: u64, data: &[u8], expected: &str| {
        let archive = Archive::default().header("a", flag, |header| header.set_size(size)).block(data).file("b", b"1");
        assert_eq!(summary(&archive.end(), Damage::Strict), expected, "{}", char::from(flag));
    };
    for flag in [b'1', b'2', b'3', b'4', b'5', b'6'] {
        check(flag, 700, b"", "a:0 b:1");
    }
    for flag in [b'0', 0, b'7', b'Z', b'D', b'V', b'M', b'A'] {
        check(flag, 700, &[9; 700], "a:700 b:1");
    }
    let link = Archive::default().pax(b'x', &[("size", "600")]).header("a", b'1', |_| {}).block(&[9; 600]);
    assert_eq!(summary(&link.file("b", b"1").end(), Damage::Strict), "a:600 b:1");
    let old_dir = Archive::default().header("dir/", 0, |_| {}).end();
    assert_eq!(walk(&old_dir, Damage::Strict).rows, [("dir/".to_owned(), 0, 512, MemberKind::Dir)]);
    let file = Archive::default().member("L", b'L', b"dir/file").member("dir/", 0, b"12").end();
    assert_eq!(walk(&file, Damage::Strict).rows, [("dir/file".to_owned(), 2, 1536, MemberKind::File)]);
}

#[test]
fn a_prefix_belongs_to_the_name_unless_the_format_has_times_there() {
    let check = |magic: &[u8; 8], prefix: &[u8], expected: &str| {
        let archive = Archive::default().header("a", b'0', |header| {
            header.as_mut_bytes()[257..265].copy_from_slice(magic);
            header.as_mut_bytes()[345..345 + prefix.len()].copy_from_slice(prefix);
        });
        assert_eq!(summary(&archive.end(), Damage::Strict), expected);
    };
    check(b"ustar\x0000", b"dir", "dir/a:0");
    check(b"ustar\x0000", &[b'd'; 155], &format!("{}/a:0", "d".repeat(155)));
    check(b"ustar  \0", b"14524720000\0", "a:0");
    check(b"ustar  \0", b"written/by/old/go", "written/by/old/go/a:0");
    check(b"\0\0\0\0\0\0\0\0", b"dir", "a:0");
}

#[test]
fn damage_is_an_error_with_the_place_where_it_stands() {
    let check = |archive: &[u8], expected: &str, offset: u64| {
        assert_eq!(summary(archive, Damage::Strict), expected);
        let error = walk(archive, Damage::Strict).error.unwrap();
        assert_eq!(error.place().offset, Some(offset), "{error}");
    };
    let a = || Archive::default().file("a", b"1");
    let sized = |size: &[u8]| {
        let edit = |header: &mut Header| header.as_old_mut().size[..size.len()].copy_from_slice(size);
        a().header("big", b'0', edit).block(&[7; 700]).end()
    };
    check(b"", "! not_tar", 0);
    check(&[0; 100], "! not_tar", 0);
    check(b"<html>", "! not_tar", 0);
    check(&[b'x'; 2000], "! not_tar", 0);
    check(&[&[0; 512][..], &[b'x'; 512]].concat(), "! not_tar", 512);
    check(&a().block(&[b'x'; 512]).file("b", b"").end(), "a:1 ! bad_header", 1024);
    check(&a().block(&[0; 512]).block(&[b'x'; 512]).file("b", b"").end(), "a:1 ! bad_header", 1536);
    check(&a().0, "a:1 ! truncated", 1024);
    check(&a().0[..513], "a:1 ! truncated", 513);
    check(&a().0[..512], "! truncated", 0);
    check(&a().end()[..1300], "a:1 ! truncated", 1024);
    check(&sized(b"00000012z45\0"), "a:1 ! bad_header", 1024);
    check(&sized(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), "a:1 ! bad_header", 1024);
    check(&sized(b"77777777777\0"), "a:1 ! truncated", 1024);
    check(&sized(b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"), "a:1 ! truncated", 1024);
    check(&sized(b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff"), "a:1 ! truncated", 1024);
    for size in ["-1", "1.5", "18446744073709551616"] {
        check(&a().pax(b'x', &[("size", size)]).file("b", b"").end(), "a:1 ! bad_header", 1536);
    }
    for size in ["9223372036854775807", "18446744073709551615", "18446744073709551104"] {
        check(&a().pax(b'x', &[("size", size)]).file("b", b"").end(), "a:1 ! truncated", 1024);
    }
    check(&a().member("x", b'x', b"12 path=a\n").file("b", b"").end(), "a:1 ! bad_header", 1536);
    check(&a().header("x", b'x', |header| header.set_size(8 << 30)).end(), "a:1 ! limit", 1024);
    check(&a().header("x", b'x', |header| header.set_size(1 << 20)).end(), "a:1 ! truncated", 1024);
    check(&a().pax(b'x', &[("path", "b")]).end(), "a:1 ! bad_header", 1024);
    check(&a().pax(b'x', &[("path", "b")]).0, "a:1 ! truncated", 1024);
    check(&a().member("L", b'L', b"name\0").end(), "a:1 ! bad_header", 1024);
}

#[test]
fn sparse_members_are_refused_by_name_and_passed_over_by_resync() {
    let check = |archive: Archive| {
        let archive = archive.file("b", b"1").end();
        let error = walk(&archive, Damage::Strict).error.unwrap();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.message().contains("'s.jpg'") && error.hint().is_some(), "{error}");
        let walk = walk(&archive, Damage::Resync);
        assert_eq!(walk.rows.iter().map(|row| &row.0).collect::<Vec<_>>(), ["b"]);
        assert_eq!((walk.report.sparse, walk.report.resyncs, walk.report.is_whole()), (1, 0, false));
    };
    let new = Archive::default;
    check(new().member("s.jpg", b'S', &[7; 600]));
    let more_map = |header: &mut Header| {
        header.set_size(600);
        header.as_mut_bytes()[482] = 1;
    };
    let mut map = [b'0'; 512];
    let last_map = [0; 512];
    map[504] = 1;
    check(new().header("s.jpg", b'S', more_map).block(&map).block(&last_map).block(&[7; 600]));
    check(
        new().pax(b'x', &[("GNU.sparse.major", "1"), ("GNU.sparse.name", "s.jpg")]).file("GNUSparseFile/s", &[7; 600]),
    );
    check(new().pax(b'x', &[("GNU.sparse.map", "0,10")]).file("s.jpg", b"0123456789"));
}

#[test]
fn what_stands_behind_an_archive_is_counted() {
    let check = |archive: &[u8], expected: &str, count: fn(&ScanReport) -> u64, number: u64| {
        assert_eq!(summary(archive, Damage::Strict), expected);
        let report = walk(archive, Damage::Strict).report;
        assert_eq!(count(&report), number, "{report:?}");
    };
    let a = || Archive::default().file("a", b"1");
    let b = Archive::default().file("b", b"").end();
    check(&[a().end(), b.clone()].concat(), "a:1 b:0", |report| report.archives_more, 1);
    check(&[a().block(&[0; 512]).0, b.clone()].concat(), "a:1 b:0", |report| report.zero_blocks, 1);
    check(&[a().block(&[0; 512]).0, b].concat(), "a:1 b:0", |report| report.archives_more, 0);
    check(&a().block(&[0; 512]).0, "a:1", |report| report.zero_blocks, 1);
    check(&[&a().end()[..], b"xyz"].concat(), "a:1", |report| report.trailing_bytes, 3);
    check(&[&a().end()[..], &[b'x'; 5000]].concat(), "a:1", |report| report.trailing_bytes, 5000);
    check(&a().block(&[0; 20 * 512]).0, "a:1", |report| report.trailing_bytes + report.zero_blocks, 0);
    check(&[0; 10240], "", |report| report.files, 0);
    let kinds =
        a().header("d", b'5', |_| {}).header("l", b'2', |_| {}).header("h", b'1', |_| {}).header("z", b'Z', |_| {});
    check(&kinds.end(), "a:1 d:0 l:0 h:0 z:0", |r| r.files * 1000 + r.dirs * 100 + r.links * 10 + r.others, 1121);
}

#[test]
fn resync_goes_on_behind_damage_and_counts_what_is_lost() {
    let check = |archive: &[u8], expected: &str, losses: &[(u64, u64)], missing_end: bool| {
        assert_eq!(summary(archive, Damage::Resync), expected);
        let report = walk(archive, Damage::Resync).report;
        let losses: Vec<_> = losses.iter().map(|&(offset, bytes)| Loss { offset, bytes }).collect();
        assert_eq!(report.losses, losses, "{report:?}");
        assert_eq!(report.resyncs, losses.len() as u64);
        assert_eq!(report.lost_bytes, losses.iter().map(|loss| loss.bytes).sum::<u64>());
        assert_eq!((report.missing_end, report.is_whole()), (missing_end, losses.is_empty() && !missing_end));
    };
    let a = || Archive::default().file("a", b"1");
    let full_name = "n".repeat(100);
    let c = || Archive::default().file("c", b"").end();
    check(&a().end(), "a:1", &[], false);
    check(&[a().block(&[b'x'; 700]).0, c()].concat(), "a:1 c:0", &[(1024, 1024)], false);
    check(&[a().0, vec![b'x'; 700], c()].concat(), "a:1 c:0", &[(1024, 700)], false);
    check(&[a().block(&[0; 1024]).block(&[b'x'; 512]).0, c()].concat(), "a:1 c:0", &[(2048, 512)], false);
    check(&[vec![b'x'; 700], c()].concat(), "c:0", &[(0, 700)], false);
    check(&a().0, "a:1", &[], true);
    check(&a().end()[..1030], "a:1", &[], true);
    check(&a().block(&[b'x'; 100]).0, "a:1", &[(1024, 512)], true);
    check(&a().block(&[b'x'; 100]).end(), "a:1", &[(1024, 512)], false);
    check(&a().file("b", &[7; 5000]).0[..2000], "a:1", &[(1024, 976)], true);
    // A member whose own extended header is lost may have lost its name or its size.
    check(
        &[a().member("x", b'x', b"12 path=b\n").file("b", b"2").0, c()].concat(),
        "a:1 c:0",
        &[(1024, 1024), (2048, 1024)],
        false,
    );
    check(&a().pax(b'x', &[("path", "b")]).end(), "a:1", &[(1024, 1024)], false);
    let mut lost_pax = a().pax(b'x', &[("path", "longer/b")]).file("b", b"2").file("c", b"").end();
    lost_pax[1024 + 148] ^= 1;
    check(&lost_pax, "a:1 c:0", &[(1024, 1024), (2048, 1024)], false);
    let mut lost_long_name = a().member("L", b'L', &[b'n'; 120]).file(&full_name, b"2").file("c", b"").end();
    lost_long_name[1024 + 148] ^= 1;
    check(&lost_long_name, "a:1 c:0", &[(1024, 1024), (2048, 1024)], false);
    check(&lost_pax[..2048 + 513], "a:1", &[(1024, 1024), (2048, 513)], true);
    // Where the search begins, the grid of blocks does: a header without magic is found only there.
    let old = |header: &mut Header| header.as_mut_bytes()[257..265].fill(0);
    let mut lost_pax = a().pax(b'x', &[("path", "longer/b")]).file("b", b"2").header("c", b'0', old).end();
    lost_pax[1024 + 148] ^= 1;
    check(&lost_pax, "a:1 c:0", &[(1024, 1024), (2048, 1024)], false);
    let mut lost_header = a().file("b", b"2").pax(b'x', &[("path", "long")]).file("c", b"").end();
    lost_header[1024 + 148] ^= 1;
    check(&lost_header, "a:1 long:0", &[(1024, 1024)], false);
}

/// One generated member.
#[derive(Debug, Clone)]
struct Entry {
    name: String,
    data: Vec<u8>,
    form: u8,
}

fn entries(count_max: usize) -> impl Strategy<Value = Vec<Entry>> {
    let name = prop_oneof![
        4 => "[a-z]{1,8}/[a-z0-9]{1,6}\\.(jpg|cls|json)",
        1 => "[a-z]{1,60}/[a-zé]{1,80}/[a-z0-9]{1,60}\\.jpg",
        1 => "[a-z]{90}[a-z]{9,200}\\.txt",
    ];
    let data = prop_oneof![4 => vec(any::<u8>(), 0..40), 1 => vec(any::<u8>(), 500..1500), 1 => Just(Vec::new())];
    vec((name, data, 0..8_u8).prop_map(|(name, data, form)| Entry { name, data, form }), 1..=count_max)
}

/// Writes entries with the `tar` crate: plain, PAX in the way of webdataset, GNU, directories, links.
fn write(entries: &[Entry]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for Entry { name, data, form } in entries {
        let mut header = if *form == 3 { Header::new_old() } else { Header::new_gnu() };
        header.set_mode(0o644);
        header.set_size(data.len() as u64);
        match form {
            0 => {
                builder.append_pax_extensions([("mtime", &b"1700000000.25"[..])]).unwrap();
                builder.append_data(&mut header, "short.jpg", &data[..]).unwrap();
            }
            1 => {
                builder.append_pax_extensions([("path", name.as_bytes())]).unwrap();
                builder.append_data(&mut header, "short.jpg", &data[..]).unwrap();
            }
            2 => {
                let size = data.len().to_string();
                builder.append_pax_extensions([("size", size.as_bytes())]).unwrap();
                header.set_size(0);
                header.set_path("sized.bin").unwrap();
                header.set_cksum();
                builder.get_mut().extend_from_slice(header.as_bytes());
                let padded = data.len().next_multiple_of(BLOCK);
                builder.get_mut().extend(data.iter().copied().chain(std::iter::repeat(0)).take(padded));
            }
            4 => {
                header.set_entry_type(EntryType::Directory);
                header.set_size(0);
                builder.append_data(&mut header, format!("{name}/"), &[][..]).unwrap();
            }
            5 => {
                header.set_entry_type(EntryType::Symlink);
                header.set_size(0);
                builder.append_link(&mut header, name, format!("to/{name}")).unwrap();
            }
            3 | 6 => {
                // A name that ends in a slash would make an old directory of it.
                let start: String = name.chars().take(90).collect();
                builder.append_data(&mut header, start.trim_end_matches('/'), &data[..]).unwrap();
            }
            _ => builder.append_data(&mut header, name, &data[..]).unwrap(),
        }
    }
    builder.into_inner().unwrap()
}

/// What the `tar` crate finds.
fn oracle(archive: &[u8]) -> Vec<Row> {
    let row = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
        let entry = entry.unwrap();
        let kind = match entry.header().entry_type() {
            EntryType::Directory => MemberKind::Dir,
            EntryType::Symlink => MemberKind::Symlink,
            _ => MemberKind::File,
        };
        (entry.path_bytes().escape_ascii().to_string(), entry.size(), entry.raw_file_position(), kind)
    };
    tar::Archive::new(archive).entries().unwrap().map(row).collect()
}

/// Checks that a walk by pages and one over a stream see the same as one over a slice.
fn check_windows(archive: &[u8], damage: Damage) -> Result<(), TestCaseError> {
    use crate::shard::{Shard, ShardOptions, ShardStream};
    let slice = walk(archive, damage);
    let options = ShardOptions { damage, ..ShardOptions::default() };
    let name = |member: &Member| member.name.escape_ascii().to_string();
    if let Ok(shard) = Shard::from_bytes_with("t", archive.to_vec().into(), &options) {
        let mut members = shard.members();
        let rows: Vec<Row> =
            members.by_ref().map_while(Result::ok).map(|m| (name(&m), m.size, m.offset, m.kind)).collect();
        prop_assert_eq!(&rows, &slice.rows);
        prop_assert_eq!(members.report(), &slice.report);
    }
    let mut stream = ShardStream::from_reader("t", std::io::Cursor::new(archive.to_vec()), &options);
    let mut failed = false;
    for member in stream.by_ref() {
        failed = member.is_err();
        let Ok((member, data)) = member else { break };
        if member.kind == MemberKind::File {
            let range = member.offset as usize..(member.offset + member.size) as usize;
            prop_assert_eq!(Some(&data[..]), archive.get(range));
        }
    }
    // A stream refuses a size over the limit before it can know that the archive is cut, and it jumps over data of
    // other kinds without seeing their end: it counts a last one that is cut, and the walk over a slice does not.
    let others = slice.report.others + stream.report().others;
    if !failed && slice.error.is_none() && others == 0 {
        prop_assert_eq!(stream.report(), &slice.report);
    }
    Ok(())
}

proptest! {
    // Each case is thousands of walks.
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn a_cut_at_any_point_is_an_error_or_loses_nothing(entries in entries(3)) {
        let archive = write(&entries);
        let whole = walk(&archive, Damage::Strict).rows;
        for end in 0..archive.len() {
            let cut = walk(&archive[..end], Damage::Strict);
            prop_assert!(whole.starts_with(&cut.rows));
            prop_assert!(cut.error.is_some() || cut.rows == whole, "cut at {} of {}", end, archive.len());
        }
    }
}

proptest! {
    #[test]
    fn generated_archives_read_as_the_tar_crate_reads_them(entries in entries(7)) {
        let archive = write(&entries);
        let walk = walk(&archive, Damage::Strict);
        prop_assert!(walk.error.is_none(), "{:?}", walk.error);
        prop_assert_eq!(walk.rows, oracle(&archive));
        prop_assert!(walk.report.is_whole());
        check_windows(&archive, Damage::Strict)?;
    }

    #[test]
    fn one_damaged_block_of_headers_costs_strict_reading_an_error_and_resync_one_member(
        entries in entries(7), pick in any::<prop::sample::Index>(), garbage in vec(1..255_u8, BLOCK),
    ) {
        let archive = write(&entries);
        let whole = walk(&archive, Damage::Strict).rows;
        let victim = pick.index(whole.len());
        let header = whole[victim].2 as usize - BLOCK;
        let mut damaged = archive;
        damaged[header..header + BLOCK].copy_from_slice(&garbage);
        prop_assert!(walk(&damaged, Damage::Strict).error.is_some());
        let resynced = walk(&damaged, Damage::Resync);
        if resynced.error.is_none() {
            let mut rest = whole;
            rest.remove(victim);
            // A name that fills its field may be a part of one whose long-name header was hit.
            if rest.get(victim).is_some_and(|next| damaged[next.2 as usize - BLOCK + 99] != 0) && resynced.rows != rest {
                rest.remove(victim);
            }
            prop_assert_eq!(resynced.rows, rest);
            prop_assert!(resynced.report.lost_bytes >= BLOCK as u64);
        }
        check_windows(&damaged, Damage::Resync)?;
    }

    #[test]
    fn no_bytes_make_a_walk_panic(bytes in vec(any::<u8>(), 0..3000)) {
        check_windows(&bytes, Damage::Strict)?;
        check_windows(&bytes, Damage::Resync)?;
    }

    #[test]
    fn no_damage_makes_a_walk_panic_or_lose_count(
        entries in entries(7),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        seal in any::<bool>(), cut in any::<prop::sample::Index>(),
    ) {
        let mut archive = write(&entries);
        for (at, byte) in damage {
            let at = at.index(archive.len());
            archive[at] = byte;
            // With its checksum made right, a damaged header gets past the first check.
            let block = at / BLOCK * BLOCK;
            if seal && let Some(block) = archive.get_mut(block..block + BLOCK) {
                let mut header = Header::from_byte_slice(block).clone();
                header.set_cksum();
                block.copy_from_slice(header.as_bytes());
            }
        }
        archive.truncate(cut.index(archive.len() * 2).max(BLOCK));
        for mode in [Damage::Strict, Damage::Resync] {
            let walk = walk(&archive, mode);
            prop_assert!(walk.report.lost_bytes <= archive.len() as u64);
            for (_, size, offset, _) in walk.rows {
                prop_assert!(offset + size <= archive.len() as u64);
            }
            check_windows(&archive, mode)?;
        }
    }
}
