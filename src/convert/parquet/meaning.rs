//! What columns of Parquet files mean: which holds pictures, which labels, and how classes are called.
//!
//! It goes by names and types, as the Hugging Face libraries write them; it looks at no picture.

use std::collections::BTreeMap;

use parquet::file::metadata::ParquetMetaData;
use serde_json::Value;

use super::column::{Cell, Column, Kind};
use super::file::Opened;
use crate::convert::list::LABEL_COLUMNS;
use crate::error::{Error, ErrorKind, Result};

/// Takes the column of pictures out.
pub(super) fn take_picture(columns: &mut Vec<Column>, name: Option<&str>) -> Result<Column> {
    let invalid = |message: String, hint: &str| Err(Error::new(ErrorKind::InvalidOption, message).with_hint(hint));
    let is_bytes = |column: &&Column| column.kind == Kind::Bytes;
    let has_path = |column: &&Column| {
        let path = column.name.strip_suffix("bytes").map(|group| format!("{group}path"));
        path.is_some_and(|path| columns.iter().any(|column| column.name == path))
    };
    let found: Vec<&Column> = match name {
        Some(name) => {
            let inside = format!("{name}.bytes");
            columns.iter().filter(is_bytes).filter(|column| column.name == name || column.name == inside).collect()
        }
        None => {
            let of_groups: Vec<&Column> = columns.iter().filter(is_bytes).filter(has_path).collect();
            if of_groups.is_empty() { columns.iter().filter(is_bytes).collect() } else { of_groups }
        }
    };
    match found[..] {
        [one] => {
            let leaf = one.leaf;
            Ok(columns.remove(columns.iter().position(|column| column.leaf == leaf).unwrap_or(0)))
        }
        [] => invalid(
            format!("there is no column of pictures among {}", names(columns.iter())),
            "pictures are bytes, alone or in a group with a path; --image-column names the column",
        ),
        _ => invalid(
            format!("several columns may hold the pictures: {}", names(found.iter().copied())),
            "name one with --image-column; the others become fields of their own",
        ),
    }
}

/// Takes the column of labels out, if there is one.
pub(super) fn take_label(columns: &mut Vec<Column>, name: Option<&str>) -> Result<Option<Column>> {
    let is_label = |column: &Column| {
        !column.is_list() && matches!(column.kind, Kind::Int | Kind::Unsigned | Kind::Text | Kind::Bool)
    };
    let place = match name {
        Some(name) => {
            Some(columns.iter().position(|column| column.name == name && is_label(column)).ok_or_else(|| {
                let names = names(columns.iter());
                Error::new(ErrorKind::InvalidOption, format!("there is no column of labels '{name}' among {names}"))
                    .with_hint("labels are whole numbers or words, one for each row")
            })?)
        }
        None => LABEL_COLUMNS
            .iter()
            .find_map(|usual| columns.iter().position(|column| column.name == **usual && is_label(column))),
    };
    Ok(place.map(|place| columns.remove(place)))
}

/// The columns' names, for a message.
fn names<'a>(columns: impl Iterator<Item = &'a Column>) -> String {
    columns.map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// The label that a cell is; of a word its number among `words`, in the order in which they come.
pub(super) fn label_of(cell: Cell, words: &mut BTreeMap<String, i64>) -> Option<i64> {
    match cell {
        Cell::Json(Value::Number(number)) => number.as_i64(),
        Cell::Json(Value::Bool(is_true)) => Some(is_true.into()),
        Cell::Json(Value::String(word)) if !word.is_empty() => {
            let next = words.len() as i64;
            Some(*words.entry(word).or_insert(next))
        }
        _ => None,
    }
}

/// The names of classes that the Hugging Face libraries write into a file, by number.
pub(super) fn described_names(metadata: &ParquetMetaData, column: &str) -> Vec<String> {
    let described = || -> Option<Vec<String>> {
        let values = metadata.file_metadata().key_value_metadata()?;
        let text = values.iter().find(|entry| entry.key == "huggingface")?.value.as_deref()?;
        let description: Value = serde_json::from_str(text).ok()?;
        let names = description.get("info")?.get("features")?.get(column)?.get("names")?.as_array()?;
        names.iter().map(|name| name.as_str().map(str::to_owned)).collect()
    };
    described().unwrap_or_default()
}

/// What a user should know: columns that are left out, and files of several splits.
pub(super) fn notes(files: &[Opened], unread: &[Column]) -> Vec<String> {
    let mut notes = Vec::new();
    if !unread.is_empty() {
        let names = names(unread.iter());
        notes.push(format!("{} columns have values that JSON lacks and are left out: {names}", unread.len()));
    }
    // `train-00000-of-00005.parquet`
    let split_of = |file: &Opened| {
        let name = file.path.file_stem()?.to_str()?.to_owned();
        let (before, _) = name.rsplit_once("-of-")?;
        before.rsplit_once('-').map(|(split, _)| split.to_owned())
    };
    let mut splits: Vec<String> = files.iter().filter_map(split_of).collect();
    splits.sort_unstable();
    splits.dedup();
    if splits.len() > 1 {
        notes.push(format!(
            "the files are of several splits, which become one: {}; a pattern such as '{}-*.parquet' names one",
            splits.join(", "),
            splits[0]
        ));
    }
    notes
}
