//! What a data set says of itself: `dataset.json` and `classes.json` beside its shards, and `left_out.jsonl` where samples are
//! missing.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::journal::{self, Header, LeftOut, ShardRecord};
use super::picture::PictureTally;
use super::shard_file::{ensure_index, has_bytes};
use crate::error::{Error, ErrorKind, Result};
use crate::shard::Draft;

/// The name of the description.
pub(super) const DATASET: &str = "dataset.json";
const CLASSES: &str = "classes.json";
pub(super) const LEFT_OUT: &str = "left_out.jsonl";

/// What a conversion writes beside it, where there is something to list.
pub(super) const LISTS: [&str; 2] = [CLASSES, LEFT_OUT];

/// Whether a conversion writes its description, or a part of it, under this name.
pub(super) fn is_description(name: &str) -> bool {
    name == DATASET || LISTS.contains(&name)
}

/// The version of the description.
const FORMAT: &str = "brimful-dataset-1";

/// The largest description that is read, in bytes.
const BYTES_MAX: u64 = 1 << 30;

/// A data set's description, as `dataset.json` holds it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Dataset {
    /// The version of the description.
    pub format: String,
    /// Tells the plan that made it from any other.
    pub fingerprint: String,
    /// What the hashes of shards are: `xxh3-128`, as the program `xxhsum -H2` prints it.
    pub hash: String,
    /// The options of the conversion.
    pub options: serde_json::Value,
    /// Samples in all shards.
    pub samples: u64,
    /// Bytes of all shards.
    pub bytes: u64,
    /// Samples that are in no shard; `left_out.jsonl` lists them.
    pub left_out: u64,
    /// Number of classes; `classes.json` has their names.
    pub classes: usize,
    /// Number of fields by extension.
    pub fields: BTreeMap<String, u64>,
    /// What was done to pictures, where anything was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pictures: Option<PictureTally>,
    /// The splits.
    pub splits: Vec<DatasetSplit>,
}

/// A split of a data set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetSplit {
    /// `train` or `val`.
    pub name: String,
    /// The brace pattern of its shards' file names.
    pub pattern: String,
    /// Samples in its shards.
    pub samples: u64,
    /// Bytes of its shards.
    pub bytes: u64,
    /// Its shards in order.
    pub shards: Vec<DatasetShard>,
}

/// A shard of a data set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetShard {
    /// Its file name.
    pub name: String,
    /// Samples in it.
    pub samples: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// The hash of its bytes, in 32 hexadecimal digits.
    pub hash: String,
}

impl Dataset {
    /// Reads the description of the data set in `folder`; `None` where there is none.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when it cannot be read, [`ErrorKind::Unsupported`] for one of another version or none at all.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(DATASET);
        let failed = |error| Error::io(format!("cannot read '{}'", path.display()), error);
        match fs::metadata(&path) {
            Ok(found) if found.len() <= BYTES_MAX => {}
            Ok(_) => return Err(Error::new(ErrorKind::Limit, format!("'{}' is too large", path.display()))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        }
        let read = serde_json::from_slice::<Self>(&fs::read(&path).map_err(failed)?);
        let other =
            || Error::new(ErrorKind::Unsupported, format!("'{}' is no description of a data set", path.display()));
        let dataset = read.map_err(|error| other().with_source(error))?;
        if dataset.format != FORMAT {
            return Err(other().with_hint(format!("its format is '{}', expected '{FORMAT}'", dataset.format)));
        }
        Ok(Some(dataset))
    }

    /// Adds the parts of a conversion up and writes the description; the journals are gone then.
    ///
    /// # Errors
    /// [`ErrorKind::StateMismatch`] for parts of different conversions, [`ErrorKind::NotFound`] for missing parts or
    /// shards, [`ErrorKind::TooManyErrors`] when parts together left out more than is allowed, [`ErrorKind::Io`].
    pub(super) fn merge(folder: &Path) -> Result<Self> {
        let parts = journal::all(folder)?;
        let Some((header, _)) = parts.first() else {
            return Err(Error::new(ErrorKind::NotFound, format!("no parts of a conversion in '{}'", folder.display())));
        };
        let header = header.clone();
        if parts.iter().any(|(other, _)| *other != header) {
            let message = format!("the parts in '{}' belong to different conversions", folder.display());
            return Err(Error::new(ErrorKind::StateMismatch, message)
                .with_hint("all parts need the same source, options and number of parts"));
        }
        let records: BTreeMap<String, ShardRecord> =
            parts.into_iter().flat_map(|(_, records)| records).map(|record| (record.shard.clone(), record)).collect();
        let dataset = Self::of(folder, &header, &records)?;
        dataset.write(folder, &header, &records)?;
        journal::remove_left(folder)?;
        Ok(dataset)
    }

    /// All shards, split after split.
    pub(super) fn shards(&self) -> impl Iterator<Item = &DatasetShard> {
        self.splits.iter().flat_map(|split| &split.shards)
    }

    /// Looks whether all shards are there, and writes indexes that are not.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for a shard that is gone or has another length; those of writing indexes.
    pub(super) fn check_shards(&self, folder: &Path) -> Result<()> {
        for DatasetShard { name, bytes, .. } in self.shards() {
            check_shard(folder, name, *bytes)
                .map_err(|error| error.with_hint("the same conversion with --resume makes it again"))?;
        }
        Ok(())
    }

    fn of(folder: &Path, header: &Header, records: &BTreeMap<String, ShardRecord>) -> Result<Self> {
        let mut splits = Vec::new();
        let mut fields: BTreeMap<String, u64> = BTreeMap::new();
        for (name, count) in &header.splits {
            let mut split = DatasetSplit::empty(name, *count);
            for number in 0..*count {
                let shard = format!("{name}-{number:06}.tar");
                let Some(record) = records.get(&shard) else { return Err(missing(folder, &shard, header.parts)) };
                check_shard(folder, &shard, record.bytes)?;
                record.fields.iter().for_each(|(ext, count)| *fields.entry(ext.clone()).or_default() += count);
                split.add(record);
            }
            splits.push(split);
        }
        let mut tally = PictureTally::default();
        records.values().filter_map(|record| record.pictures.as_ref()).for_each(|of_shard| tally.add(of_shard));
        let pictures = (tally != PictureTally::default()).then_some(tally);
        let left_out = records.values().map(|record| record.left_out.len() as u64).sum::<u64>();
        if left_out > header.allowed {
            let message = format!("{left_out} samples were left out, more than the {} allowed", header.allowed);
            return Err(Error::new(ErrorKind::TooManyErrors, message));
        }
        Ok(Self {
            format: FORMAT.into(),
            fingerprint: header.fingerprint.clone(),
            hash: "xxh3-128".into(),
            options: header.options.clone(),
            samples: splits.iter().map(|split| split.samples).sum(),
            bytes: splits.iter().map(|split| split.bytes).sum(),
            left_out: left_out + header.dropped.len() as u64,
            classes: header.classes.len(),
            fields,
            pictures,
            splits,
        })
    }

    fn write(&self, folder: &Path, header: &Header, records: &BTreeMap<String, ShardRecord>) -> Result<()> {
        let all = header.dropped.iter().chain(records.values().flat_map(|record| &record.left_out));
        let lines: Vec<&LeftOut> = all.collect();
        if !lines.is_empty() {
            let mut text = Vec::new();
            for line in lines {
                text.extend(serde_json::to_vec(line).map_err(cannot_write)?);
                text.push(b'\n');
            }
            write_file(&folder.join(LEFT_OUT), &text)?;
        }
        if !header.classes.is_empty() {
            write_file(&folder.join(CLASSES), &class_numbers(&header.classes)?)?;
        }
        let mut text = serde_json::to_vec_pretty(self).map_err(cannot_write)?;
        text.push(b'\n');
        // Last, since it says that all is there.
        write_file(&folder.join(DATASET), &text)
    }
}

impl DatasetSplit {
    fn empty(name: &str, shards: usize) -> Self {
        let pattern = match shards {
            0 | 1 => format!("{name}-000000.tar"),
            _ => format!("{name}-{{000000..{:06}}}.tar", shards - 1),
        };
        Self { name: name.into(), pattern, samples: 0, bytes: 0, shards: Vec::with_capacity(shards) }
    }

    fn add(&mut self, record: &ShardRecord) {
        self.samples += record.samples;
        self.bytes += record.bytes;
        let ShardRecord { shard, samples, bytes, hash, .. } = record.clone();
        self.shards.push(DatasetShard { name: shard, samples, bytes, hash });
    }
}

/// An object of class names and numbers, in the order of the numbers.
fn class_numbers(classes: &[String]) -> Result<Vec<u8>> {
    let mut text = b"{".to_vec();
    for (number, class) in classes.iter().enumerate() {
        text.extend_from_slice(if number == 0 { b"\n  " } else { b",\n  " });
        text.extend(serde_json::to_vec(class).map_err(cannot_write)?);
        text.extend_from_slice(format!(": {number}").as_bytes());
    }
    text.extend_from_slice(b"\n}\n");
    Ok(text)
}

/// Looks whether a shard is there, and writes its index where none fits.
fn check_shard(folder: &Path, shard: &str, bytes: u64) -> Result<()> {
    let path = folder.join(shard);
    if !has_bytes(&path, bytes) {
        let is = fs::metadata(&path).map_or("it is not there".into(), |found| format!("it has {}", found.len()));
        let message = format!("the shard should have {bytes} bytes, but {is}");
        return Err(Error::new(ErrorKind::NotFound, message).in_shard(shard));
    }
    ensure_index(&path)
}

fn missing(folder: &Path, shard: &str, parts: usize) -> Error {
    let error =
        Error::new(ErrorKind::NotFound, format!("the shard '{shard}' in '{}' is not made yet", folder.display()));
    match parts {
        1 => error.with_hint("run the conversion again with --resume"),
        _ => error.with_hint(format!("run each of the {parts} parts to its end first")),
    }
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let written = Draft::create(path).and_then(|mut draft| {
        draft.write_all(bytes)?;
        draft.finish()
    });
    written.map(drop).map_err(|error| Error::io(format!("cannot write '{}'", path.display()), error))
}

fn cannot_write(error: serde_json::Error) -> Error {
    Error::new(ErrorKind::Io, "the description of the data set cannot be written").with_source(error)
}
