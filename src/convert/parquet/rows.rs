//! The rows of Parquet files as samples: a picture, a label, and the other columns as the field `json`. Rows are read where they
//! stand, a page of a column at a time; nothing is unpacked beforehand.
//!
//! How large a single picture is stands nowhere in such a file, so the mean of its row group is told; sums are right.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use parquet::column::reader::ColumnReader;
use serde_json::{Map, Value};
use twox_hash::XxHash3_128;

use super::ParquetOptions;
use super::column::{Cell, Column, Kind};
use super::file::Opened;
use super::meaning::{described_names, label_of, notes, take_label, take_picture};
use super::waiting::Waiting;
use crate::convert::extension::extension_of;
use crate::convert::folder::FILE_BYTES_MAX;
use crate::convert::sample::Fields;
use crate::convert::source::Source;
use crate::decode::ImageFormat;
use crate::error::{Error, ErrorKind, Result};

/// The rows of some Parquet files, file by file.
pub(super) struct Rows {
    files: Vec<Opened>,
    /// All row groups, in order.
    groups: Vec<Group>,
    rows: usize,
    picture: Column,
    label: Option<Column>,
    /// The other columns that are read.
    others: Vec<Column>,
    /// The label of each row, or the number of its class.
    labels: Vec<i64>,
    classes: Vec<String>,
    /// The extension of the first picture.
    extension: String,
    notes: Vec<String>,
    hash: u128,
    waiting: Mutex<Waiting<Cursor>>,
}

/// A row group.
struct Group {
    file: usize,
    /// Its number in the file.
    number: usize,
    /// The number of its first row, of all files and in its file.
    first: usize,
    first_in_file: usize,
    /// Means over its rows, in bytes.
    picture_bytes: u64,
    other_bytes: u64,
}

/// A reader of each column of one row group, at the same row.
struct Cursor {
    picture: ColumnReader,
    others: Vec<ColumnReader>,
}

impl Rows {
    /// Reads the ends of the files, which say where everything is, and all labels.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`] for what is damaged or no Parquet file, [`ErrorKind::InvalidOption`] for files with other
    /// columns than the first and where a column is missing, [`ErrorKind::FieldValue`] for a label that is none,
    /// [`ErrorKind::NotFound`] where there are no rows.
    pub(super) fn open(options: &ParquetOptions, threads: usize) -> Result<Self> {
        let files = options.paths.iter().map(|path| Opened::open(path)).collect::<Result<Vec<_>>>()?;
        let Some(first) = files.first() else {
            return Err(Error::new(ErrorKind::NotFound, "no Parquet file was named"));
        };
        if let Some(other) = files.iter().find(|file| file.columns() != first.columns()) {
            let message = format!("'{}' has other columns than '{}'", other.path.display(), first.path.display());
            return Err(Error::new(ErrorKind::InvalidOption, message)
                .with_hint("convert files with the same columns at a time: name them by a pattern"));
        }
        let mut columns = Column::all(first.metadata.file_metadata().schema_descr());
        let picture = take_picture(&mut columns, options.image_column.as_deref())?;
        let label = take_label(&mut columns, options.label_column.as_deref())?;
        let (others, unread): (Vec<_>, Vec<_>) = columns.into_iter().partition(|column| column.kind != Kind::Other);
        let mut rows = Self {
            groups: Vec::new(),
            rows: 0,
            picture,
            label,
            others,
            labels: Vec::new(),
            classes: Vec::new(),
            extension: "jpg".into(),
            notes: notes(&files, &unread),
            hash: 0,
            waiting: Mutex::new(Waiting::new(threads)),
            files,
        };
        rows.find_groups()?;
        if rows.rows == 0 {
            return Err(Error::new(ErrorKind::NotFound, format!("no rows in '{}'", options.paths[0].display())));
        }
        rows.read_labels()?;
        rows.hash = rows.hash_all()?;
        let mut fields = Fields::default();
        // What keeps it from being read is told when its turn comes.
        if rows.read(0, &mut fields).is_ok()
            && let Some(field) = fields.iter().next()
        {
            rows.extension.clone_from(&field.ext);
        }
        Ok(rows)
    }

    fn find_groups(&mut self) -> Result<()> {
        for (number, file) in self.files.iter().enumerate() {
            let mut first_in_file = 0;
            for (group, metadata) in file.metadata.row_groups().iter().enumerate() {
                let rows = usize::try_from(metadata.num_rows()).unwrap_or(0);
                let of_columns = |columns: &mut dyn Iterator<Item = &Column>| -> u64 {
                    let sizes = columns.filter_map(|column| metadata.columns().get(column.leaf));
                    sizes
                        .map(|chunk| u64::try_from(chunk.uncompressed_size()).unwrap_or(0))
                        .fold(0, u64::saturating_add)
                };
                if metadata.num_columns() != file.columns().len() {
                    return Err(file.damaged("a row group lacks columns"));
                }
                if rows > 0 {
                    self.groups.push(Group {
                        file: number,
                        number: group,
                        first: self.rows,
                        first_in_file,
                        picture_bytes: of_columns(&mut std::iter::once(&self.picture)) / rows as u64,
                        other_bytes: of_columns(&mut self.others.iter()) / rows as u64,
                    });
                }
                first_in_file += rows;
                self.rows = self
                    .rows
                    .checked_add(rows)
                    .filter(|&rows| u32::try_from(rows).is_ok())
                    .ok_or_else(|| Error::new(ErrorKind::Limit, "more than 4,294,967,295 rows"))?;
            }
        }
        Ok(())
    }

    /// Reads the labels of all rows. Those that are names get numbers, as the file's description numbers them, or else in
    /// their own order.
    fn read_labels(&mut self) -> Result<()> {
        let Some(label) = &self.label else { return Ok(()) };
        let names = described_names(&self.files[0].metadata, &label.name);
        let mut words: BTreeMap<String, i64> = BTreeMap::new();
        for (number, group) in self.groups.iter().enumerate() {
            let file = &self.files[group.file];
            let mut reader = file.column_reader(group.number, label)?;
            let end = self.groups.get(number + 1).map_or(self.rows, |next| next.first);
            for row in group.first..end {
                let cell = file.guarded(|| label.read(&mut reader, 0))?;
                let Some(label) = label_of(cell, &mut words) else {
                    return Err(self.wrong(row, format!("no label in the column '{}'", label.name)));
                };
                if !names.is_empty() && !(-1..names.len() as i64).contains(&label) {
                    let message = format!("the label {label} is none of the {} classes", names.len());
                    return Err(self.wrong(row, message));
                }
                self.labels.push(label);
            }
        }
        self.classes = names;
        if !words.is_empty() {
            self.number_words(&words);
        }
        Ok(())
    }

    /// Labels that are words become numbers: the words' own, where all are numbers, or those of classes in their order.
    fn number_words(&mut self, words: &BTreeMap<String, i64>) {
        let own: Option<Vec<i64>> = words.keys().map(|word| word.parse().ok()).collect();
        let mut numbers = vec![0; words.len()];
        for (place, (word, &found)) in words.iter().enumerate() {
            numbers[found as usize] = own.as_ref().map_or(place as i64, |own| own[place]);
            if own.is_none() {
                self.classes.push(word.clone());
            }
        }
        self.labels.iter_mut().for_each(|label| *label = numbers[*label as usize]);
    }

    /// The hash of what the ends of the files say, and of the labels.
    fn hash_all(&self) -> Result<u128> {
        let mut hash = XxHash3_128::new();
        for file in &self.files {
            hash.write(
                &file.end().map_err(|error| Error::io(format!("cannot read '{}'", file.path.display()), error))?,
            );
        }
        self.labels.iter().for_each(|label| hash.write(&label.to_le_bytes()));
        hash.write(self.picture.name.as_bytes());
        Ok(hash.finish_128())
    }

    /// The number of the row group of a row.
    fn group_of(&self, row: usize) -> usize {
        self.groups.partition_point(|group| group.first <= row) - 1
    }

    /// A reader that is at this row of the group or before it, and the row that it is at: the nearest that waits, or a new
    /// one.
    fn cursor(&self, group: usize, row: usize) -> Result<(usize, Cursor)> {
        let near = self.waiting().take(group, row);
        if let Some(near) = near {
            return Ok(near);
        }
        let Group { file, number, .. } = self.groups[group];
        let file = &self.files[file];
        let picture = file.column_reader(number, &self.picture)?;
        let others = self.others.iter().map(|column| file.column_reader(number, column)).collect::<Result<_>>()?;
        Ok((0, Cursor { picture, others }))
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<Cursor>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wrong(&self, row: usize, message: impl AsRef<str>) -> Error {
        Error::new(ErrorKind::FieldValue, format!("{}: {}", self.origin(row), message.as_ref()))
    }

    /// Puts the fields of a row in place.
    fn put(&self, row: usize, picture: Cell, others: Vec<Cell>, fields: &mut Fields) -> Result<()> {
        let Cell::Bytes(picture) = picture else {
            return Err(self.wrong(row, format!("no picture in the column '{}'", self.picture.name)));
        };
        let mut json = Map::new();
        let mut more = Vec::new();
        for (column, cell) in self.others.iter().zip(others) {
            match cell {
                Cell::Bytes(bytes) => more.push((column, bytes)),
                Cell::Json(value) => drop(json.insert(column.name.clone(), value)),
                Cell::Null if column.kind == Kind::Bytes => {}
                Cell::Null => drop(json.insert(column.name.clone(), Value::Null)),
            }
        }
        let extension = match ImageFormat::of(picture.data()) {
            Ok(format) => extension_of(format!("x.{}", format.as_str()).as_bytes()),
            Err(error) => match self.path_of(&json) {
                Some(path) => extension_of(path.as_bytes()),
                None => return Err(self.wrong(row, error.message())),
            },
        };
        push(fields, &extension, picture.data());
        for (column, bytes) in more {
            let kind = ImageFormat::of(bytes.data()).map_or("bin", ImageFormat::as_str);
            let name = column.name.trim_end_matches(".bytes").to_lowercase().replace(['/', '\0'], "_");
            push(
                fields,
                &format!("{}.{}", name.trim_matches('.'), extension_of(format!("x.{kind}").as_bytes())),
                bytes.data(),
            );
        }
        if self.label.is_some() {
            push(fields, "cls", self.labels[row].to_string().as_bytes());
        }
        if !json.is_empty() {
            let json = serde_json::to_vec(&json).map_err(|error| self.wrong(row, error.to_string()))?;
            push(fields, "json", &json);
        }
        Ok(())
    }

    /// The path beside the picture, if it has an extension.
    fn path_of<'a>(&self, json: &'a Map<String, Value>) -> Option<&'a str> {
        let path = json.get(&format!("{}.path", self.picture.name.strip_suffix(".bytes")?))?.as_str()?;
        (!extension_of(path.as_bytes()).is_empty()).then_some(path)
    }
}

impl Source for Rows {
    fn len(&self) -> usize {
        self.rows
    }

    /// The number of the row, of all files.
    fn name(&self, sample: usize, name: &mut Vec<u8>) {
        name.extend_from_slice(format!("{sample:08}").as_bytes());
    }

    fn origin(&self, sample: usize) -> String {
        let Group { file, first, first_in_file, .. } = self.groups[self.group_of(sample)];
        format!("row {} of '{}'", sample - first + first_in_file + 1, self.files[file].path.display())
    }

    fn sizes(&self, sample: usize, tell: &mut dyn FnMut(&str, u64)) {
        let Group { picture_bytes, other_bytes, .. } = self.groups[self.group_of(sample)];
        tell(&self.extension, picture_bytes);
        if self.label.is_some() {
            tell("cls", self.labels[sample].to_string().len() as u64);
        }
        if !self.others.is_empty() {
            tell("json", other_bytes);
        }
    }

    fn read(&self, sample: usize, fields: &mut Fields) -> Result<()> {
        let group = self.group_of(sample);
        let Group { file, first, .. } = self.groups[group];
        let (file, row) = (&self.files[file], sample - first);
        let (at, mut cursor) = self.cursor(group, row)?;
        let skipped = row - at;
        let picture = file.guarded(|| self.picture.read(&mut cursor.picture, skipped))?;
        let others = self.others.iter().zip(&mut cursor.others);
        let others =
            others.map(|(column, reader)| file.guarded(|| column.read(reader, skipped))).collect::<Result<Vec<_>>>()?;
        file.check()?;
        self.put(sample, picture, others, fields)?;
        if fields.iter().any(|field| field.bytes.len() as u64 > FILE_BYTES_MAX) {
            return Err(self.wrong(sample, format!("a field has more than the {FILE_BYTES_MAX} bytes allowed")));
        }
        self.waiting().keep(group, row + 1, cursor);
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

    fn slow_when_shuffled(&self, _: u64) -> Option<String> {
        let message = "a row of a Parquet file in shuffled order is read with all rows before it in its pages";
        Some(format!("{message}: to convert in order and then shuffle the shards is faster"))
    }
}

fn push(fields: &mut Fields, extension: &str, value: &[u8]) {
    let mut bytes = fields.buffer();
    bytes.extend_from_slice(value);
    fields.push(extension, bytes);
}
