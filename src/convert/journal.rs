//! What a part of a conversion has done so far, a line a shard, so that a killed run goes on and parts add up to one data set.
//!
//! A shard is done when it has its name and its line; one without a line is made again, with the same bytes.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::options::Part;
use super::picture::PictureTally;
use crate::error::{Error, ErrorKind, Result};
use crate::shard::Draft;

/// The folder of journals within the destination.
pub(super) const FOLDER: &str = ".brimful-convert";

/// What all parts of a conversion must agree in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Header {
    /// The plan's.
    pub(super) fingerprint: String,
    pub(super) parts: usize,
    /// Options, as the data set's description shows them.
    pub(super) options: serde_json::Value,
    pub(super) classes: Vec<String>,
    /// Splits and how many shards each has.
    pub(super) splits: Vec<(String, usize)>,
    /// Samples that were left out because another one has their key.
    pub(super) dropped: Vec<LeftOut>,
    /// Bad samples that are allowed.
    pub(super) allowed: u64,
}

/// A shard that is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ShardRecord {
    /// Its file name.
    pub(super) shard: String,
    pub(super) samples: u64,
    pub(super) bytes: u64,
    pub(super) hash: String,
    /// Number of fields by extension.
    pub(super) fields: BTreeMap<String, u64>,
    pub(super) left_out: Vec<LeftOut>,
    /// Which start of which machine wrote it: bytes that the system has not yet written to disk are lost with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) boot: Option<String>,
    /// What was done to its pictures, where anything was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pictures: Option<PictureTally>,
}

/// A sample that is in no shard, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Where it came from.
    pub sample: String,
    /// The kind of the error as one word.
    pub kind: String,
    /// What was wrong.
    pub message: String,
}

impl LeftOut {
    pub(super) fn of(sample: String, error: &Error) -> Self {
        Self { sample, kind: error.kind().as_str().into(), message: error.to_string() }
    }
}

/// Tells this start of this machine from all others, where the system says so.
pub(super) fn boot() -> Option<String> {
    Some(fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned())
}

/// The journal of one part.
pub(super) struct Journal {
    file: File,
    /// Held as long as the part is being made.
    _lock: File,
    path: PathBuf,
    pub(super) header: Header,
    /// Shards that earlier runs have done, by name.
    pub(super) done: BTreeMap<String, ShardRecord>,
}

impl Journal {
    /// Opens the journal of `part` in the destination, or begins it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] when there is one already and `resume` is not asked for; [`ErrorKind::StateMismatch`]
    /// while another run makes the part; [`ErrorKind::Io`].
    pub(super) fn open(destination: &Path, part: Part, header: Header, resume: bool) -> Result<Self> {
        let folder = destination.join(FOLDER);
        let failed = |error| Error::io(format!("cannot keep a journal in '{}'", folder.display()), error);
        fs::create_dir_all(&folder).map_err(failed)?;
        let path = folder.join(file_name(part));
        let lock = lock(&path.with_extension("lock"))?;
        let found = read(&path)?;
        if found.is_some() && !resume {
            let message = format!("'{}' holds a conversion that has not ended", destination.display());
            return Err(Error::new(ErrorKind::InvalidOption, message)
                .with_hint("--resume goes on with it; another folder begins a new one"));
        }
        let done = found.map_or_else(Vec::new, |(_, records)| records);
        // Written anew, so that a line that was cut by the end of a run is gone.
        let rewritten = Draft::create(&path).and_then(|mut draft| {
            write_line(&mut draft, &header)?;
            done.iter().try_for_each(|record| write_line(&mut draft, record))?;
            draft.finish()
        });
        rewritten.map_err(failed)?;
        let file = File::options().append(true).open(&path).map_err(failed)?;
        let done = done.into_iter().map(|record| (record.shard.clone(), record)).collect();
        Ok(Self { file, _lock: lock, path, header, done })
    }

    /// Notes a shard that has its name.
    ///
    /// # Errors
    /// [`ErrorKind::Io`].
    pub(super) fn note(&mut self, record: &ShardRecord) -> Result<()> {
        write_line(&mut self.file, record)
            .map_err(|error| Error::io(format!("cannot write '{}'", self.path.display()), error))
    }
}

/// Refuses to write beside the parts of another conversion, whose shards may have the same names.
///
/// # Errors
/// [`ErrorKind::StateMismatch`] when a journal of another source, other options or another number of parts is there;
/// those of reading journals.
pub(super) fn refuse_others(destination: &Path, header: &Header) -> Result<()> {
    if !destination.join(FOLDER).exists() {
        return Ok(());
    }
    let is_other = |(found, _): &(Header, _)| (&found.fingerprint, found.parts) != (&header.fingerprint, header.parts);
    if !all(destination)?.iter().any(is_other) {
        return Ok(());
    }
    let message = format!("'{}' holds the beginning of another conversion", destination.display());
    Err(Error::new(ErrorKind::StateMismatch, message)
        .with_hint("source, options and number of parts must be those of the runs before; or choose another folder"))
}

/// Whether this part of a conversion has been begun in the destination.
///
/// # Errors
/// Those of reading its journal.
pub(super) fn is_begun(destination: &Path, part: Part) -> Result<bool> {
    Ok(read(&destination.join(FOLDER).join(file_name(part)))?.is_some())
}

/// The journals of all parts in a destination, by part.
///
/// # Errors
/// [`ErrorKind::NotFound`] where there is none, [`ErrorKind::Io`], [`ErrorKind::StateMismatch`] for one that cannot be read.
pub(super) fn all(destination: &Path) -> Result<Vec<(Header, Vec<ShardRecord>)>> {
    let folder = destination.join(FOLDER);
    let failed = |error| Error::io(format!("no parts of a conversion in '{}'", destination.display()), error);
    let mut paths = Vec::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            paths.push(path);
        }
    }
    paths.sort();
    paths.iter().filter_map(|path| read(path).transpose()).collect()
}

/// Removes the journals of a conversion that is complete, as far as there are any.
///
/// # Errors
/// [`ErrorKind::Io`].
pub(super) fn remove_left(destination: &Path) -> Result<()> {
    match fs::remove_dir_all(destination.join(FOLDER)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io(format!("cannot remove the journals in '{}'", destination.display()), error))
        }
        _ => Ok(()),
    }
}

/// Keeps other runs away from a part until the file is closed, however its process ends.
fn lock(path: &Path) -> Result<File> {
    let failed = |error| Error::io(format!("cannot open '{}'", path.display()), error);
    let file = File::options().create(true).append(true).open(path).map_err(failed)?;
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if began.elapsed() < LOCK_WAIT => thread::sleep(LOCK_WAIT / 20),
            Err(TryLockError::WouldBlock) => {
                let message = format!("another run is making this part: it holds '{}'", path.display());
                return Err(Error::new(ErrorKind::StateMismatch, message).with_hint("wait for it, or end it"));
            }
            // Some storage knows no locks: there it is as it would be without.
            Ok(()) | Err(TryLockError::Error(_)) => return Ok(file),
        }
    }
}

/// How long a run that was killed may take to be gone, when the next one is there already.
const LOCK_WAIT: Duration = Duration::from_secs(2);

fn file_name(part: Part) -> String {
    format!("part-{}-of-{}.jsonl", part.number, part.of)
}

/// Header and records of a journal; `None` where there is no file, or one without a whole line.
fn read(path: &Path) -> Result<Option<(Header, Vec<ShardRecord>)>> {
    let failed = |error| Error::io(format!("cannot read '{}'", path.display()), error);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut lines = Vec::new();
    let mut reader = BufReader::new(file);
    loop {
        let mut line = Vec::new();
        reader.read_until(b'\n', &mut line).map_err(failed)?;
        // The last line has no end where a run was killed while writing it.
        if line.pop() != Some(b'\n') {
            break;
        }
        lines.push(line);
    }
    let unreadable = |source: serde_json::Error| {
        Error::new(ErrorKind::StateMismatch, format!("'{}' is no journal of this version", path.display()))
            .with_source(source)
            .with_hint("choose another folder, or remove what an earlier version has left in this one")
    };
    let Some((header, records)) = lines.split_first() else { return Ok(None) };
    let header = serde_json::from_slice(header).map_err(unreadable)?;
    let records = records.iter().map(|line| serde_json::from_slice(line)).collect::<Result<_, _>>();
    Ok(Some((header, records.map_err(unreadable)?)))
}

/// Writes a line in one piece.
fn write_line(writer: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    writer.write_all(&line)
}
