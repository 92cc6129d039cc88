//! How much memory the catalogue of a large source takes: as much as is promised for each sample, and no more.

use std::fs;
use std::process::Stdio;

use crate::program::Program;

/// Bytes that may be taken for each sample.
const SAMPLE_BYTES: u64 = 64;

/// The most memory that a plan of the source has taken, in bytes.
fn peak_bytes(program: &Program, source: &str) -> u64 {
    peak_bytes_of(program, &["convert", source, "out", "--dry-run", "--threads", "1"], 0)
}

/// The most memory that a command has taken which ends with this code, in bytes, as the system counts it.
fn peak_bytes_of(program: &Program, args: &[&str], code: i32) -> u64 {
    let mut child = program.command(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        // Gone between the two looks, the process has no line.
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
        peak = peak.max(kilobytes.unwrap_or(0) * 1024);
        std::thread::yield_now();
    }
    assert_eq!(child.wait().unwrap().code(), Some(code));
    peak
}

#[test]
fn a_row_without_an_end_is_not_read_into_memory() {
    let program = Program::new();
    for (name, start) in [("a.jsonl", "{\"path\": \""), ("a.csv", "path,label\n\"")] {
        program.write(name, start.as_bytes());
        fs::File::options().append(true).open(program.path(name)).unwrap().set_len(500 << 20).unwrap();
        let peak = peak_bytes_of(&program, &["convert", name, "out"], 2);
        assert!(peak < 200 << 20, "{name}: {peak} bytes");
        program.run(&["convert", name, "out"]).ends_with(2).tells_error("more than 16777216");
    }
}

#[test]
fn compressed_shards_are_inflated_one_at_a_time_to_be_verified() {
    let program = Program::new();
    let archive = crate::archive::archive(&[("a.jpg", &vec![0; 100 << 20])]);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, &archive).unwrap();
    let packed = packed.finish().unwrap();
    let names = ["a.tar.gz", "b.tar.gz", "c.tar.gz", "d.tar.gz"];
    names.iter().for_each(|name| program.write(name, &packed));
    let peak = peak_bytes_of(&program, &[&["verify", "--threads", "4"][..], &names].concat(), 1);
    assert!(peak < 260 << 20, "{peak} bytes");
}

/// Makes a small and a large source and holds what the large one takes more against what is promised.
fn check(few: usize, many: usize, suffix: &str, make: impl Fn(&Program, &str, usize)) {
    let program = Program::new();
    let peaks = [few, many].map(|count| {
        let source = format!("s{count}{suffix}");
        make(&program, &source, count);
        peak_bytes(&program, &source)
    });
    let bytes = peaks[1].saturating_sub(peaks[0]) as f64 / (many - few) as f64;
    assert!(bytes > 4.0 && bytes <= SAMPLE_BYTES as f64, "{bytes:.1} bytes a sample, of peaks {peaks:?}");
}

/// The name of a picture, as long as those of ImageNet.
fn name(number: usize) -> String {
    format!("n{:08}_{:05}.JPEG", number % 1000, number / 1000)
}

#[test]
fn a_folder_takes_what_is_promised() {
    check(5_000, 35_000, "", |program, source, count| {
        for number in 0..count {
            program.write(&format!("{source}/c{:02}/{}", number % 20, name(number)), b"");
        }
    });
}

#[test]
fn a_list_takes_what_is_promised() {
    check(5_000, 35_000, ".csv", |program, source, count| {
        let rows: String = (0..count).map(|number| format!("pictures/{},{}\n", name(number), number % 20)).collect();
        program.write(source, format!("path,label\n{rows}").as_bytes());
    });
}

#[test]
fn a_zip_archive_takes_what_is_promised() {
    check(20_000, 100_000, ".zip", |program, source, count| {
        let mut list = Vec::new();
        for number in 0..count {
            let name = format!("c{:02}/{}", number % 20, name(number));
            // Stored, one byte, all of them the same one.
            list.extend(b"PK\x01\x02\x2d\0\x2d\0\0\0\0\0");
            list.extend([0; 8]);
            list.extend([1, 0, 0, 0, 1, 0, 0, 0]);
            list.extend((name.len() as u16).to_le_bytes());
            list.extend([0; 16]);
            list.extend(name.as_bytes());
        }
        let end = list.len() as u64;
        // More than 65,535 files need the long form of the end.
        let mut tail = b"PK\x06\x06".to_vec();
        tail.extend(44_u64.to_le_bytes());
        tail.extend([0; 12]);
        [count as u64, count as u64, end, 0].iter().for_each(|number| tail.extend(number.to_le_bytes()));
        tail.extend(b"PK\x06\x07\0\0\0\0");
        tail.extend(end.to_le_bytes());
        tail.extend([1, 0, 0, 0]);
        tail.extend(b"PK\x05\x06\0\0\0\0");
        tail.extend([0xFF; 12]);
        tail.extend([0; 2]);
        program.write(source, &[list, tail].concat());
    });
}
