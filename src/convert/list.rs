//! A list of pictures as a source: CSV, TSV or JSON lines with a path, a label and whatever else belongs to each.
//!
//! Rows are read again when their turn comes; what stays in memory is where each begins. The list itself must be without fault:
//! a row that cannot be read ends the conversion.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use twox_hash::XxHash3_128;

use super::extension::{extension_of, is_picture_file, split_extension};
use super::folder::read_file;
use super::sample::Fields;
use super::source::Source;
use crate::error::{Error, ErrorKind, Result};

/// Which list, and what its columns mean.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListOptions {
    /// The file: `.csv`, `.tsv` (both with a row of names first), or `.jsonl`.
    pub path: PathBuf,
    /// The folder that relative paths begin at; the list's own, unless given.
    pub root: Option<PathBuf>,
    /// The column of paths; the first of `path`, `file`, `filename`, `file_name`, `image`, unless given.
    pub path_column: Option<String>,
    /// The column of labels; the first of `label`, `cls`, `class`, `target`, unless given; there need be none.
    pub label_column: Option<String>,
}

const PATH_COLUMNS: [&str; 5] = ["path", "file", "filename", "file_name", "image"];
/// The usual names of columns of labels.
pub(super) const LABEL_COLUMNS: [&str; 4] = ["label", "cls", "class", "target"];

/// The longest row in bytes.
const ROW_BYTES_MAX: u64 = 16 << 20;

/// The pictures of a list.
pub(super) struct List {
    path: PathBuf,
    file: File,
    root: PathBuf,
    format: Format,
    path_column: String,
    label_column: Option<String>,
    rows: Vec<RowPlace>,
    classes: Vec<String>,
    /// Numbers of labels that are names.
    numbers: BTreeMap<String, usize>,
    hash: u128,
    notes: Vec<String>,
}

/// Where a row begins and ends, and how large its picture is.
#[derive(Debug, Clone, Copy)]
struct RowPlace {
    start: u64,
    bytes: u32,
    size: u64,
}

/// How rows are written down.
enum Format {
    Separated { separator: u8, columns: Vec<String> },
    JsonLines,
}

/// One row: values by column.
type Row = Map<String, Value>;

impl List {
    /// Reads the list once.
    ///
    /// # Errors
    /// [`ErrorKind::FieldValue`] for a row that cannot be read, with its line; [`ErrorKind::InvalidOption`] where a column
    /// is missing; [`ErrorKind::NotFound`] for an empty list; [`ErrorKind::Io`].
    pub(super) fn open(options: &ListOptions) -> Result<Self> {
        let path = &options.path;
        let failed = |error| Error::io(format!("cannot read the list '{}'", path.display()), error);
        let file = File::open(path).map_err(failed)?;
        let root = match (&options.root, path.parent()) {
            (Some(root), _) => root.clone(),
            (None, Some(folder)) if folder != Path::new("") => folder.to_owned(),
            _ => ".".into(),
        };
        let separator = match extension_of(path.as_os_str().as_bytes()).as_str() {
            "csv" => Some(b','),
            "tsv" => Some(b'\t'),
            _ => None,
        };
        let (format, places) = match separator {
            Some(separator) => separated(path, &file, separator)?,
            None => (Format::JsonLines, json_lines(path, &file)?),
        };
        let mut list = Self {
            path: path.clone(),
            file,
            root,
            format,
            path_column: String::new(),
            label_column: None,
            rows: places.into_iter().map(|(start, bytes)| RowPlace { start, bytes, size: 0 }).collect(),
            classes: Vec::new(),
            numbers: BTreeMap::new(),
            hash: 0,
            notes: Vec::new(),
        };
        if list.rows.is_empty() {
            return Err(Error::new(ErrorKind::NotFound, format!("the list '{}' has no rows", path.display())));
        }
        list.name_columns(options)?;
        list.look_at_rows()?;
        Ok(list)
    }

    fn name_columns(&mut self, options: &ListOptions) -> Result<()> {
        let columns: Vec<String> = match &self.format {
            Format::Separated { columns, .. } => columns.clone(),
            Format::JsonLines => self.row(0)?.keys().cloned().collect(),
        };
        let find = |given: &Option<String>, usual: &[&str]| match given {
            Some(given) => Some(given.clone()),
            None => {
                usual.iter().find(|name| columns.iter().any(|column| column == **name)).map(|name| (*name).to_owned())
            }
        };
        let missing = |what: &str, option: &str| {
            let message =
                format!("the list '{}' has no column of {what} among {}", self.path.display(), columns.join(", "));
            Error::new(ErrorKind::InvalidOption, message).with_hint(format!("name it with {option}"))
        };
        let path_column = find(&options.path_column, &PATH_COLUMNS);
        let path_column =
            path_column.filter(|name| columns.contains(name)).ok_or_else(|| missing("paths", "--path-column"))?;
        let label_column = find(&options.label_column, &LABEL_COLUMNS);
        if label_column.as_ref().is_some_and(|name| !columns.contains(name)) {
            return Err(missing("labels", "--label-column"));
        }
        (self.path_column, self.label_column) = (path_column, label_column);
        Ok(())
    }

    /// Checks all rows, and gathers labels and sizes.
    fn look_at_rows(&mut self) -> Result<()> {
        let mut hash = XxHash3_128::new();
        // Labels are gathered from the first on that is no number: numbers can be as many as there are rows.
        let mut labels: Option<BTreeMap<String, usize>> = None;
        let mut are_whole = true;
        for number in 0..self.rows.len() {
            let row = self.row(number)?;
            let path = self.picture(&row, number)?;
            if !is_picture_file(path.as_os_str().as_bytes()) {
                let message = format!("'{}' is no picture by its name", path.display());
                return Err(self.wrong(number, message));
            }
            // One that cannot be looked at is a bad sample when its turn comes.
            self.rows[number].size = fs::metadata(self.root.join(&path)).map_or(0, |found| found.len());
            hash.write(&serde_json::to_vec(&row).unwrap_or_default());
            hash.write(&self.rows[number].size.to_le_bytes());
            if self.label_column.is_some() {
                let label = self.label(&row, number)?;
                are_whole &= label.parse::<i64>().is_ok();
                if labels.is_none() && !label.parse().is_ok_and(f64::is_finite) {
                    let before = (0..number).map(|number| Ok((self.label(&self.row(number)?, number)?, 0)));
                    labels = Some(before.collect::<Result<_>>()?);
                }
                if let Some(labels) = &mut labels {
                    labels.insert(label, 0);
                }
            }
        }
        if labels.is_none()
            && !are_whole
            && let Some(column) = self.label_column.take()
        {
            self.notes.push(format!(
                "the labels in the column '{column}' are numbers with fractions, which no classes have: they stay in the field json"
            ));
        }
        if let Some(mut labels) = labels {
            self.classes = labels.keys().cloned().collect();
            labels.values_mut().enumerate().for_each(|(number, value)| *value = number);
            self.numbers = labels;
        }
        self.hash = hash.finish_128();
        Ok(())
    }

    fn row(&self, number: usize) -> Result<Row> {
        let RowPlace { start, bytes, .. } = self.rows[number];
        let mut text = vec![0; bytes as usize];
        self.file
            .read_exact_at(&mut text, start)
            .map_err(|error| Error::io(format!("cannot read the list '{}'", self.path.display()), error))?;
        match &self.format {
            Format::JsonLines => serde_json::from_slice(&text).map_err(|error| self.wrong(number, error.to_string())),
            Format::Separated { separator, columns } => {
                let mut reader = csv::ReaderBuilder::new()
                    .has_headers(false)
                    .delimiter(*separator)
                    .flexible(true)
                    .from_reader(&text[..]);
                let mut record = csv::StringRecord::new();
                reader.read_record(&mut record).map_err(|error| self.wrong(number, error.to_string()))?;
                if record.len() != columns.len() {
                    let message = format!("{} values for {} columns", record.len(), columns.len());
                    return Err(self.wrong(number, message));
                }
                Ok(columns.iter().cloned().zip(record.iter().map(Value::from)).collect())
            }
        }
    }

    fn wrong(&self, number: usize, message: impl AsRef<str>) -> Error {
        let message = format!("row {} of the list '{}': {}", number + 1, self.path.display(), message.as_ref());
        Error::new(ErrorKind::FieldValue, message)
    }

    fn picture(&self, row: &Row, number: usize) -> Result<PathBuf> {
        match row.get(&self.path_column) {
            Some(Value::String(path)) if !path.is_empty() => Ok(path.into()),
            _ => Err(self.wrong(number, format!("no path in the column '{}'", self.path_column))),
        }
    }

    fn label(&self, row: &Row, number: usize) -> Result<String> {
        let column = self.label_column.as_deref().unwrap_or_default();
        match row.get(column) {
            Some(Value::String(label)) if !label.is_empty() => Ok(label.clone()),
            Some(Value::Number(label)) => Ok(label.to_string()),
            _ => Err(self.wrong(number, format!("no label in the column '{column}'"))),
        }
    }

    /// The fields of a row besides its picture.
    fn small_fields(&self, mut row: Row, number: usize) -> Result<Vec<(&'static str, Vec<u8>)>> {
        let mut fields = Vec::new();
        if let Some(column) = &self.label_column {
            let label = self.label(&row, number)?;
            let label = self.numbers.get(&label).map_or(label, ToString::to_string);
            fields.push(("cls", label.into_bytes()));
            row.remove(column);
        }
        row.remove(&self.path_column);
        if !row.is_empty() {
            fields.push(("json", serde_json::to_vec(&row).map_err(|error| self.wrong(number, error.to_string()))?));
        }
        Ok(fields)
    }
}

impl Source for List {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn name(&self, sample: usize, name: &mut Vec<u8>) {
        let path = self.row(sample).and_then(|row| self.picture(&row, sample)).unwrap_or_default();
        let inside = path.strip_prefix(&self.root).unwrap_or(&path);
        let full = inside.as_os_str().as_bytes();
        let base = memchr::memrchr(b'/', full).map_or(0, |slash| slash + 1);
        name.extend_from_slice(&full[..base]);
        name.extend_from_slice(split_extension(&full[base..]).0);
    }

    fn origin(&self, sample: usize) -> String {
        let path = self.row(sample).and_then(|row| self.picture(&row, sample)).unwrap_or_default();
        format!("row {} of '{}': {}", sample + 1, self.path.display(), path.display())
    }

    fn sizes(&self, sample: usize, tell: &mut dyn FnMut(&str, u64)) {
        let Ok(row) = self.row(sample) else { return };
        let Ok(path) = self.picture(&row, sample) else { return };
        let small = self.small_fields(row, sample).unwrap_or_default();
        small.iter().for_each(|(ext, bytes)| tell(ext, bytes.len() as u64));
        tell(&extension_of(path.as_os_str().as_bytes()), self.rows[sample].size);
    }

    fn read(&self, sample: usize, fields: &mut Fields) -> Result<()> {
        let row = self.row(sample)?;
        let path = self.picture(&row, sample)?;
        let mut bytes = fields.buffer();
        read_file(&self.root.join(&path), self.rows[sample].size, &mut bytes)?;
        fields.push(&extension_of(path.as_os_str().as_bytes()), bytes);
        self.small_fields(row, sample)?.into_iter().for_each(|(ext, bytes)| fields.push(ext, bytes));
        Ok(())
    }

    fn fingerprint(&self) -> u128 {
        self.hash
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// Names of columns, and where rows begin and how long they are.
fn separated(path: &Path, file: &File, separator: u8) -> Result<(Format, Vec<(u64, u32)>)> {
    let wrong = |error: csv::Error| {
        if let csv::ErrorKind::Io(error) = error.kind()
            && error.kind() == io::ErrorKind::FileTooLarge
        {
            let message = format!("a row of the list '{}' has more than {ROW_BYTES_MAX} bytes", path.display());
            return Error::new(ErrorKind::Limit, message).with_hint("perhaps a quotation mark has no partner");
        }
        Error::new(ErrorKind::FieldValue, format!("the list '{}' cannot be read", path.display())).with_source(error)
    };
    let room = Cell::new(ROW_ROOM_BYTES);
    let bounded = Bounded { file, room: &room };
    let mut reader =
        csv::ReaderBuilder::new().has_headers(true).delimiter(separator).flexible(true).from_reader(bounded);
    let columns: Vec<String> =
        reader.headers().map_err(wrong)?.iter().map(|name| name.trim_start_matches('\u{feff}').to_owned()).collect();
    let mut places = Vec::new();
    let mut record = csv::ByteRecord::new();
    while reader.read_byte_record(&mut record).map_err(wrong)? {
        let start = record.position().map_or(0, csv::Position::byte);
        places.push((start, row_bytes(path, places.len(), reader.position().byte() - start)?));
        room.set(ROW_ROOM_BYTES);
    }
    Ok((Format::Separated { separator, columns }, places))
}

/// Bytes that are read for a row before it has too many: it, the row before, and what is read ahead of rows.
const ROW_ROOM_BYTES: u64 = 2 * ROW_BYTES_MAX;

/// A file of which no more is read at a time than there is room for.
struct Bounded<'a> {
    file: &'a File,
    room: &'a Cell<u64>,
}

impl Read for Bounded<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(bytes)?;
        let left = self.room.get().checked_sub(count as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        self.room.set(left);
        Ok(count)
    }
}

fn json_lines(path: &Path, file: &File) -> Result<Vec<(u64, u32)>> {
    let mut reader = BufReader::new(file);
    let (mut places, mut start, mut line) = (Vec::new(), 0, Vec::new());
    loop {
        line.clear();
        let count = (&mut reader)
            .take(ROW_BYTES_MAX + 1)
            .read_until(b'\n', &mut line)
            .map_err(|error| Error::io(format!("cannot read the list '{}'", path.display()), error))?;
        if count == 0 {
            return Ok(places);
        }
        if !line.trim_ascii().is_empty() {
            places.push((start, row_bytes(path, places.len(), count as u64)?));
        }
        start += count as u64;
    }
}

fn row_bytes(path: &Path, number: usize, bytes: u64) -> Result<u32> {
    u32::try_from(bytes).ok().filter(|bytes| u64::from(*bytes) <= ROW_BYTES_MAX).ok_or_else(|| {
        let message =
            format!("row {} of the list '{}' has {bytes} bytes, more than {ROW_BYTES_MAX}", number + 1, path.display());
        Error::new(ErrorKind::Limit, message)
    })
}
