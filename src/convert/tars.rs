//! Shards as a source: to be cut, merged, split or shuffled anew. Damage in them is an error; `repair` is for damaged ones.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use twox_hash::XxHash3_128;

use super::sample::Fields;
use super::source::Source;
use crate::error::{Error, ErrorKind, Result};
use crate::sample::{Grouping, Key, SampleIndex, SampleIndexBuilder, SampleRef};
use crate::shard::{Compression, SetLimits, Shard, ShardOptions, ShardSet, each_index};

/// The largest field that is read.
pub(super) const FIELD_BYTES_MAX: u64 = 256 << 20;

/// The samples of some shards.
pub(super) struct Tars {
    set: ShardSet,
    samples: SampleIndex,
    classes: Vec<String>,
    notes: Vec<String>,
    /// Whether any of them is compressed.
    is_inflated: bool,
}

impl Tars {
    /// Indexes the shards at `paths`.
    ///
    /// # Errors
    /// Those of opening and indexing shards, [`ErrorKind::Grouping`] for a field given twice in a sample, each with advice;
    /// [`ErrorKind::NotFound`] where there is no sample.
    pub(super) fn open(paths: Vec<PathBuf>, threads: usize) -> Result<Self> {
        let options = ShardOptions::default();
        let advise = |error: Error| match error.kind() {
            ErrorKind::BadHeader | ErrorKind::Truncated | ErrorKind::NotTar | ErrorKind::Grouping => {
                error.with_hint("brimful verify says all that is wrong, and its --fix writes repaired shards")
            }
            _ => error,
        };
        // A compressed shard is inflated to be read: one at a time.
        let is_packed = |path: &PathBuf| Ok(Compression::of_path(path)?.is_some());
        let is_inflated = paths.iter().map(is_packed).collect::<Result<Vec<_>>>()?.contains(&true);
        let threads = if is_inflated { 1 } else { threads };
        let mut builder = SampleIndexBuilder::new(&Grouping::default());
        let mut names = paths.iter().map(|path| path.to_string_lossy());
        each_index(&paths, &options, None, threads, &|_, _| {}, |index| {
            let files = index.iter().map(|file| (file.name, file.offset, file.size));
            builder.push_shard(names.next().unwrap_or_default().into(), index.fingerprint(), files)
        })
        .map_err(advise)?;
        let samples = builder.finish();
        if samples.is_empty() {
            return Err(Error::new(ErrorKind::NotFound, "the shards hold no samples"));
        }
        let report = samples.report();
        let mut notes = Vec::new();
        for (count, what) in [
            (report.appledouble, "files of macOS's own book-keeping are left out"),
            (report.without_extension, "files have no key or no extension and are left out"),
            (report.not_files, "members are no files and are left out"),
            (report.metadata, "members are metadata of the archives and are left out"),
            (report.bad_samples, "samples say of themselves that they are bad and are left out"),
        ] {
            if count > 0 {
                notes.push(format!("{count} {what}"));
            }
        }
        let classes = classes_of(&paths, &mut notes)?;
        let set = ShardSet::new(paths, options);
        Ok(Self { set, samples, classes, notes, is_inflated })
    }

    fn sample(&self, sample: usize) -> SampleRef<'_> {
        self.samples.get(sample)
    }
}

impl Source for Tars {
    fn len(&self) -> usize {
        self.samples.len()
    }

    fn name(&self, sample: usize, name: &mut Vec<u8>) {
        name.extend_from_slice(self.sample(sample).key());
    }

    fn origin(&self, sample: usize) -> String {
        let sample = self.sample(sample);
        format!("{}: {}", sample.shard_name(), Key::new(sample.key().to_vec()))
    }

    fn sizes(&self, sample: usize, tell: &mut dyn FnMut(&str, u64)) {
        self.sample(sample).fields().for_each(|field| tell(field.ext, field.size));
    }

    fn read(&self, sample: usize, fields: &mut Fields) -> Result<()> {
        let sample = self.sample(sample);
        let shard = self.set.get(sample.shard())?;
        let read = sample.fields().try_for_each(|field| copy_field(&shard, field.ext, field.range(), fields));
        read.and_then(|()| shard.check()).map_err(|error| error.at_key(Key::new(sample.key().to_vec())))
    }

    fn fingerprint(&self) -> u128 {
        let mut hash = XxHash3_128::new();
        hash.write(&self.samples.fingerprint().to_le_bytes());
        self.classes.iter().for_each(|class| hash.write(class.as_bytes()));
        hash.finish_128()
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn slow_when_shuffled(&self, bytes: u64) -> Option<String> {
        let room = SetLimits::of(self.set.options()).memory_max_bytes;
        (self.is_inflated && bytes > room).then(|| {
            "compressed shards that do not fit into memory together are inflated again and again in shuffled order: \
             convert them in order first, then shuffle the shards"
                .into()
        })
    }
}

/// Copies the bytes of one field out of a shard.
pub(super) fn copy_field(shard: &Shard, ext: &str, range: std::ops::Range<u64>, fields: &mut Fields) -> Result<()> {
    let size = range.end - range.start;
    if size > FIELD_BYTES_MAX {
        let message = format!("the field has {size} bytes, more than the {FIELD_BYTES_MAX} allowed");
        return Err(Error::new(ErrorKind::Limit, message).in_field(ext).in_shard(shard.name().clone()));
    }
    shard.populate(range.clone())?;
    let mut bytes = fields.buffer();
    bytes.extend_from_slice(&shard.read(range)?);
    if shard.has_faulted() {
        let message = "the shard was cut while it was read";
        return Err(Error::new(ErrorKind::ShardChanged, message).in_shard(shard.name().clone()));
    }
    fields.push(ext, bytes);
    Ok(())
}

/// The names of classes that lie beside the shards. All folders must number them alike: labels are copied as they are.
fn classes_of(paths: &[PathBuf], notes: &mut Vec<String>) -> Result<Vec<String>> {
    let folders: BTreeSet<&Path> = paths.iter().filter_map(|path| path.parent()).collect();
    let mut lists = Vec::new();
    let mut without = None;
    for list in folders.into_iter().map(|folder| folder.join("classes.json")) {
        match classes_in(&list)? {
            Some(classes) => lists.push((list, classes)),
            None => without = without.or(Some(list)),
        }
    }
    let Some((first, classes)) = lists.first().cloned() else { return Ok(Vec::new()) };
    if let Some((other, _)) = lists.iter().find(|(_, other)| *other != classes) {
        let message = format!("'{}' and '{}' number classes differently", first.display(), other.display());
        return Err(Error::new(ErrorKind::InvalidOption, message)
            .with_hint("convert the sources of both together, or each into a folder of its own"));
    }
    if let Some(without) = without {
        notes.push(format!(
            "there is no '{}': labels there are taken to be numbered as in '{}'",
            without.display(),
            first.display()
        ));
    }
    Ok(classes)
}

/// The names of classes in a file as a conversion writes it; `None` where there is none.
fn classes_in(list: &Path) -> Result<Option<Vec<String>>> {
    let text = match fs::read(list) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io(format!("cannot read '{}'", list.display()), error)),
    };
    let wrong = || Error::new(ErrorKind::Decode, format!("'{}' is no list of classes", list.display()));
    let numbers: BTreeMap<String, usize> = serde_json::from_slice(&text).map_err(|error| wrong().with_source(error))?;
    let mut classes = vec![None; numbers.len()];
    for (class, number) in numbers {
        *classes.get_mut(number).ok_or_else(wrong)? = Some(class);
    }
    classes.into_iter().collect::<Option<_>>().ok_or_else(wrong).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn only_compressed_shards_that_do_not_fit_into_memory_are_slow_to_shuffle() {
        let folder = tempfile::tempdir().unwrap();
        let mut archive = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_ustar();
        header.set_size(1);
        archive.append_data(&mut header, "a.jpg", &b"x"[..]).unwrap();
        let plain = archive.into_inner().unwrap();
        fs::write(folder.path().join("a.tar"), &plain).unwrap();
        let packed = folder.path().join("b.tar.gz");
        let mut file = flate2::write::GzEncoder::new(fs::File::create(&packed).unwrap(), flate2::Compression::fast());
        file.write_all(&plain).unwrap();
        file.finish().unwrap();
        let slow =
            |path: &Path, bytes| Tars::open(vec![path.to_owned()], 1).unwrap().slow_when_shuffled(bytes).is_some();
        assert_eq!((slow(&packed, 3 << 30), slow(&packed, 1 << 30)), (true, false));
        assert!(!slow(&folder.path().join("a.tar"), 3 << 30));
    }
}
