//! Standard output: lines, tables and JSON documents. Nothing here goes to standard error, and nothing is coloured.

use std::io::{self, BufWriter, StdoutLock, Write};
use std::path::Path;

use anyhow::Context;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::args::DocumentArgs;
use super::failure::Outcome;
use super::machine::Machine;
use crate::shard::Draft;

/// Standard output, buffered.
#[derive(Debug)]
pub(super) struct Output {
    stdout: BufWriter<StdoutLock<'static>>,
}

impl Output {
    pub(super) fn stdout() -> Self {
        Self { stdout: BufWriter::with_capacity(64 << 10, io::stdout().lock()) }
    }

    /// Writes what is still buffered; passes `outcome` on.
    pub(super) fn finish(&mut self, outcome: Outcome) -> anyhow::Result<Outcome> {
        self.stdout.flush()?;
        Ok(outcome)
    }

    /// Prints `table`, or `body` as a JSON document with version and machine, as `args` ask for.
    pub(super) fn document(
        &mut self,
        args: &DocumentArgs,
        body: &impl Serialize,
        table: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        let document = Document { version: env!("CARGO_PKG_VERSION"), machine: Machine::here(), body };
        let json = || serde_json::to_string_pretty(&document).context("cannot write the result as JSON");
        if let Some(path) = &args.out {
            write_whole(path, format!("{}\n", json()?).as_bytes())?;
        }
        if args.json {
            writeln!(self, "{}", json()?)?;
        } else {
            table(self)?;
        }
        Ok(())
    }

    /// Prints rows below `headers`; columns after the first `text` ones hold numbers and lean to the right.
    pub(super) fn table<const N: usize>(
        &mut self,
        headers: [&str; N],
        text: usize,
        rows: impl IntoIterator<Item = [String; N]>,
    ) -> io::Result<()> {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header(headers.to_vec());
        for row in rows {
            table.add_row(row.to_vec());
        }
        for number in 0..N {
            if let Some(column) = table.column_mut(number) {
                column.set_padding((0, 2));
                if number >= text {
                    column.set_cell_alignment(CellAlignment::Right);
                }
            }
        }
        writeln!(self, "{}", table.trim_fmt())
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stdout.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stdout.flush()
    }
}

/// What every JSON document carries beside its own numbers.
#[derive(Serialize)]
struct Document<'a, T> {
    version: &'static str,
    machine: Machine,
    #[serde(flatten)]
    body: &'a T,
}

/// Writes a file so that nobody ever sees half of it.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let written = Draft::create(path).and_then(|mut draft| {
        draft.write_all(bytes)?;
        draft.finish()
    });
    written.map(drop).with_context(|| format!("cannot write '{}'", path.display()))
}

/// A text without characters that would move a terminal's cursor or break a line.
pub(super) fn printable(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut printable, character| {
        if character.is_control() {
            printable.extend(character.escape_default())
        } else {
            printable.push(character)
        }
        printable
    })
}

/// A count of bytes for people: three digits and a unit of powers of 1,000.
pub(super) fn bytes_text(bytes: u64) -> String {
    let units = ["kB", "MB", "GB", "TB", "PB", "EB"];
    let mut value = bytes as f64;
    let mut unit = "B";
    for larger in units {
        if value < 999.5 {
            break;
        }
        value /= 1000.0;
        unit = larger;
    }
    match unit {
        "B" => format!("{bytes} B"),
        _ if value < 9.995 => format!("{value:.2} {unit}"),
        _ if value < 99.95 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

/// A whole number with commas between groups of three digits.
pub(super) fn count_text(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A rate or another positive number, rounded to a whole one.
pub(super) fn rate_text(rate: f64) -> String {
    if rate < 100.0 { format!("{rate:.1}") } else { count_text(rate.round() as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn numbers_are_written_for_people() {
        let check = |bytes, expected: &str| assert_eq!(bytes_text(bytes), expected);
        check(0, "0 B");
        check(999, "999 B");
        check(1_000, "1.00 kB");
        check(104_212, "104 kB");
        check(999_499, "999 kB");
        check(999_600, "1.00 MB");
        check(u64::MAX, "18.4 EB");
        assert_eq!(count_text(0), "0");
        assert_eq!(count_text(999), "999");
        assert_eq!(count_text(1_234_567), "1,234,567");
        assert_eq!(rate_text(12.34), "12.3");
        assert_eq!(rate_text(4719.6), "4,720");
    }

    #[test]
    fn a_name_cannot_move_the_cursor() {
        assert_eq!(printable("a\u{1b}[2J\nb é"), "a\\u{1b}[2J\\nb é");
    }

    #[test]
    fn a_file_is_replaced_whole_or_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        write_whole(&path, b"old").unwrap();
        write_whole(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(write_whole(&folder.path().join("missing/report.json"), b"new").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
