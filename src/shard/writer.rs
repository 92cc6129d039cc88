//! Writes samples into shards: one file, or as many as a limit of samples or bytes makes of them.
//!
//! It writes plain tar that webdataset reads; it compresses nothing, and it never changes a shard that is complete.

mod header;
mod pattern;

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::PathBuf;

pub use self::header::Headers;
use self::header::{BLOCK_BYTES, MemberHead};
use self::pattern::ShardPattern;
use super::draft::Draft;
use crate::error::{Error, ErrorKind, Result};

/// How shards are cut and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriterOptions {
    /// The most samples in one shard, at least 1; no limit by default.
    pub samples_max: Option<u64>,
    /// The most bytes of one shard, headers and end included, at least 1; no limit by default. Only a sample that is
    /// larger by itself makes a larger shard.
    pub bytes_max: Option<u64>,
    /// What stands before each member; one plain block by default.
    pub headers: Headers,
    /// The modification time of all members in seconds since 1970; 0 by default, so that the same samples always make
    /// the same bytes.
    pub mtime: u64,
}

/// Writes samples one after the other.
///
/// A shard has a hidden temporary name until it is complete, and replaces a file of its name then. Dropping the writer
/// without [`finish`](Self::finish) removes the shard that is not complete; complete ones stay.
#[derive(Debug)]
pub struct ShardWriter {
    pattern: ShardPattern,
    options: WriterOptions,
    current: Option<Current>,
    finished: Vec<PathBuf>,
    /// A write has failed: the current shard ends in the middle of a member.
    is_broken: bool,
}

/// The shard that is being written.
#[derive(Debug)]
struct Current {
    draft: Draft,
    keys: HashSet<Box<str>>,
    bytes: u64,
}

/// Two blocks of zeros.
pub(crate) const END: [u8; 2 * BLOCK_BYTES as usize] = [0; 2 * BLOCK_BYTES as usize];

/// The longest name of a member in bytes: as long as a path can be.
const NAME_MAX_BYTES: usize = 4096;

impl ShardWriter {
    /// Writes to `pattern`: a path whose file name has a number such as `%06d`, or none for a single shard.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] for a pattern that cannot be counted up, a limit of 0, and limits with a pattern
    /// that has no number; [`ErrorKind::Unsupported`] for a name that promises compression; [`ErrorKind::NotFound`]
    /// when the folder does not exist.
    pub fn new(pattern: &str, options: WriterOptions) -> Result<Self> {
        let parsed = ShardPattern::parse(pattern)?;
        let invalid = |message: String| Error::new(ErrorKind::InvalidOption, message);
        for (name, limit) in [("samples_max", options.samples_max), ("bytes_max", options.bytes_max)] {
            match limit {
                Some(0) => return Err(invalid(format!("{name} is 0: a shard has at least one sample"))),
                Some(_) if !parsed.is_numbered() => {
                    return Err(invalid(format!("{name} needs a numbered pattern, but '{pattern}' is one file"))
                        .with_hint("put a number into the file's name, such as 'train-%06d.tar'"));
                }
                _ => {}
            }
        }
        if !parsed.folder().is_dir() {
            let message = format!("no folder '{}' to write shards into", parsed.folder().display());
            return Err(Error::new(ErrorKind::NotFound, message));
        }
        Ok(Self { pattern: parsed, options, current: None, finished: Vec::new(), is_broken: false })
    }

    /// Adds one sample: its members are named `key.ext`, one for each pair of extension and bytes, in their order.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] for a key or extension that would not read back as the same, and
    /// [`ErrorKind::Grouping`] for an extension given twice in the sample (in whatever case) or a key given twice in the
    /// shard: nothing is written then. [`ErrorKind::Io`] when writing fails, which ends this writer.
    pub fn write_sample(&mut self, key: &str, fields: &[(&str, &[u8])]) -> Result<()> {
        if self.is_broken {
            return Err(Error::new(ErrorKind::Io, "an earlier write to these shards has failed"));
        }
        check_sample(key, fields).map_err(|error| error.at_key(key))?;
        let heads: Vec<Vec<u8>> = fields.iter().map(|(ext, bytes)| self.head(key, ext, bytes)).collect();
        let heads_bytes: u64 = heads.iter().map(|head| head.len() as u64).sum();
        let sample_bytes = heads_bytes + fields.iter().map(|(_, bytes)| padded(bytes.len())).sum::<u64>();
        if self.current.as_ref().is_some_and(|current| self.is_full(current, sample_bytes)) {
            self.close()?;
        }
        if self.current.is_none() {
            self.current = Some(self.begin()?);
        }
        let Some(current) = &mut self.current else { return Ok(()) };
        if !current.keys.insert(key.into()) {
            let message = "the key was given before in this shard";
            return Err(Error::new(ErrorKind::Grouping, message).at_key(key));
        }
        current.bytes += sample_bytes;
        let written = heads.iter().zip(fields).try_for_each(|(head, (_, bytes))| current.write(head, bytes));
        written.map_err(|error| {
            self.is_broken = true;
            self.io_error("cannot write the shard", error)
        })
    }

    /// Completes the last shard. The paths of all shards in order; none when there was no sample.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when writing or renaming fails, now or before.
    pub fn finish(mut self) -> Result<Vec<PathBuf>> {
        if self.is_broken {
            return Err(Error::new(ErrorKind::Io, "an earlier write to these shards has failed"));
        }
        self.close()?;
        Ok(std::mem::take(&mut self.finished))
    }

    /// The shards that are complete so far, in order.
    #[must_use]
    pub fn finished(&self) -> &[PathBuf] {
        &self.finished
    }

    fn head(&self, key: &str, ext: &str, bytes: &[u8]) -> Vec<u8> {
        let head = MemberHead { name: &format!("{key}.{ext}"), size: bytes.len() as u64, mtime: self.options.mtime };
        head.blocks(self.options.headers)
    }

    fn is_full(&self, current: &Current, sample_bytes: u64) -> bool {
        let bytes = current.bytes + sample_bytes + END.len() as u64;
        self.options.samples_max.is_some_and(|max| current.keys.len() as u64 >= max)
            || self.options.bytes_max.is_some_and(|max| bytes > max)
    }

    fn begin(&self) -> Result<Current> {
        let target = self.pattern.path(self.finished.len());
        let draft = Draft::create(&target).map_err(|error| self.io_error("cannot begin the shard", error))?;
        Ok(Current { draft, keys: HashSet::new(), bytes: 0 })
    }

    fn close(&mut self) -> Result<()> {
        let Some(mut current) = self.current.take() else { return Ok(()) };
        let completed = current.draft.write_all(&END).and_then(|()| current.draft.finish());
        let path = completed.map_err(|error| {
            self.is_broken = true;
            self.io_error("cannot complete the shard", error)
        })?;
        self.finished.push(path);
        Ok(())
    }

    fn io_error(&self, message: &str, error: io::Error) -> Error {
        let path = self.pattern.path(self.finished.len());
        Error::io(message, error).in_shard(path.to_string_lossy().into_owned())
    }
}

impl Current {
    fn write(&mut self, head: &[u8], bytes: &[u8]) -> io::Result<()> {
        self.draft.write_all(head)?;
        self.draft.write_all(bytes)?;
        let padding = padded(bytes.len()) - bytes.len() as u64;
        self.draft.write_all(&END[..padding as usize])
    }
}

/// The header blocks of a regular file, one unless ustar cannot say its name or size: for whoever writes the archive
/// itself.
pub(crate) fn member_head(name: &str, size_bytes: u64, mtime: u64) -> Vec<u8> {
    MemberHead { name, size: size_bytes, mtime }.blocks(Headers::Plain)
}

/// The size of data in whole blocks.
fn padded(len: usize) -> u64 {
    (len as u64).next_multiple_of(BLOCK_BYTES)
}

/// Refuses a sample whose members would not group back into it.
pub(crate) fn check_sample(key: &str, fields: &[(&str, &[u8])]) -> Result<()> {
    let invalid = |message: String| Err(Error::new(ErrorKind::InvalidOption, message));
    let base = key.rsplit('/').next().unwrap_or(key);
    if base.is_empty() {
        return invalid("the key has no file name".into());
    }
    if base.contains('.') {
        return invalid("the key has a dot in its file name, where the extension would begin".into());
    }
    let first = key.split_once('/').map(|(first, _)| first);
    if first.is_some_and(|first| {
        first == "__MACOSX" || (first.len() >= 4 && first.starts_with("__") && first.ends_with("__"))
    }) {
        return invalid("the key's folder is one that readers skip".into());
    }
    if fields.is_empty() {
        return invalid("the sample has no fields".into());
    }
    let mut exts = HashSet::new();
    for (ext, _) in fields {
        if ext.is_empty() || ext.starts_with('.') || ext.contains('/') {
            return invalid(format!("'{ext}' is no extension: give it without the dot, such as 'jpg'"));
        }
        if key.contains('\0') || ext.contains('\0') {
            return invalid("a zero byte cannot stand in a name".into());
        }
        if key.len() + 1 + ext.len() > NAME_MAX_BYTES {
            let message = format!("a member's name is longer than {NAME_MAX_BYTES} bytes");
            return Err(Error::new(ErrorKind::Limit, message));
        }
        if !exts.insert(ext.to_lowercase()) {
            let message = "the field was given before in this sample";
            return Err(Error::new(ErrorKind::Grouping, message).in_field(*ext));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::{Shard, ShardOptions};
    use std::fs;
    use std::path::Path;
    use std::process::Command;

    /// The members of a shard as the tar crate reads them.
    fn members(path: &Path) -> Vec<(String, Vec<u8>)> {
        let mut archive = tar::Archive::new(fs::File::open(path).unwrap());
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            io::copy(&mut entry, &mut bytes).unwrap();
            (String::from_utf8(entry.path_bytes().into_owned()).unwrap(), bytes)
        });
        entries.collect()
    }

    /// The same as our own parser reads them, under strict rules.
    fn own_members(path: &Path) -> Vec<(String, Vec<u8>)> {
        let shard = Shard::open(path, &ShardOptions::default()).unwrap();
        let members = shard.members().map(|member| {
            let member = member.unwrap();
            let bytes = shard.read(member.offset..member.offset + member.size).unwrap();
            (String::from_utf8(member.name.to_vec()).unwrap(), bytes.to_vec())
        });
        members.collect()
    }

    /// Writes samples of one small field each.
    fn write(pattern: &Path, options: WriterOptions, keys: &[&str]) -> Result<Vec<PathBuf>> {
        let mut writer = ShardWriter::new(pattern.to_str().unwrap(), options)?;
        for key in keys {
            writer.write_sample(key, &[("txt", b"x")])?;
        }
        writer.finish()
    }

    /// Names short and long, ASCII and not, and data around the size of a block.
    fn samples() -> Vec<(String, Vec<u8>)> {
        let keys = ["a".into(), "d1.5/b".into(), "x".repeat(96), "y".repeat(97), format!("{}/k", "z".repeat(150))];
        let more = [format!("{0}/{0}/k", "q".repeat(120)), "./é".into(), "../up".into(), "/abs".into()];
        let sizes = [0, 1, 511, 512, 513, 1024, 70_000, 3, 4];
        keys.into_iter().chain(more).zip(sizes.map(|size| vec![7; size])).collect()
    }

    #[test]
    fn what_is_written_is_read_back_by_another_reader() {
        let folder = tempfile::tempdir().unwrap();
        for headers in [Headers::Plain, Headers::Pax] {
            let path = folder.path().join("a.tar");
            let options = WriterOptions { headers, mtime: 1_700_000_000, ..WriterOptions::default() };
            let samples = samples();
            let mut writer = ShardWriter::new(path.to_str().unwrap(), options).unwrap();
            for (key, bytes) in &samples {
                writer.write_sample(key, &[("jpg", bytes), ("cls", b"1")]).unwrap();
            }
            assert_eq!(writer.finish().unwrap(), std::slice::from_ref(&path));
            let expected: Vec<_> = samples
                .iter()
                .flat_map(|(key, bytes)| [(format!("{key}.jpg"), bytes.clone()), (format!("{key}.cls"), vec![b'1'])])
                .collect();
            assert_eq!(members(&path), expected, "{headers:?}");
            assert_eq!(own_members(&path), expected, "{headers:?}");
            let bytes = fs::read(&path).unwrap();
            assert_eq!(bytes.len() % 512, 0);
            assert_eq!(bytes[bytes.len() - 1024..], END);
        }
    }

    #[test]
    fn python_reads_the_same_names_sizes_and_times() {
        let folder = tempfile::tempdir().unwrap();
        let script = "import sys, tarfile\n\
            for m in tarfile.open(sys.argv[1]):\n    \
            print(m.name, m.size, int(m.mtime), oct(m.mode), m.uname, m.isreg(), len(m.pax_headers))";
        for headers in [Headers::Plain, Headers::Pax] {
            let path = folder.path().join("a.tar");
            let options = WriterOptions { headers, mtime: 1_700_000_001, ..WriterOptions::default() };
            let samples = samples();
            let mut writer = ShardWriter::new(path.to_str().unwrap(), options).unwrap();
            for (key, bytes) in &samples {
                writer.write_sample(key, &[("jpg", bytes)]).unwrap();
            }
            writer.finish().unwrap();
            let python = Command::new("python3").args(["-X", "utf8", "-c", script]).arg(&path).output();
            let Ok(output) = python else {
                #[expect(clippy::print_stderr, reason = "says that the comparison was left out")]
                {
                    eprintln!("no python3 here: nothing to compare with");
                }
                return;
            };
            let expected: String = samples
                .iter()
                .map(|(key, bytes)| {
                    let records =
                        usize::from(headers == Headers::Pax) + usize::from(key.len() == 97 || key.len() > 200);
                    format!("{key}.jpg {} 1700000001 0o444 bigdata True {records}\n", bytes.len())
                })
                .collect();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), expected, "{headers:?}");
        }
    }

    #[test]
    fn a_plain_member_costs_one_block_and_a_pax_member_three() {
        let folder = tempfile::tempdir().unwrap();
        for (headers, bytes) in [(Headers::Plain, 512 + 512 + 1024), (Headers::Pax, 3 * 512 + 512 + 1024)] {
            let options = WriterOptions { headers, ..WriterOptions::default() };
            let paths = write(&folder.path().join("a.tar"), options, &["k"]).unwrap();
            assert_eq!(fs::metadata(&paths[0]).unwrap().len(), bytes);
        }
    }

    #[test]
    fn shards_are_cut_by_samples_and_by_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let data = [1; 1000];
        let samples: Vec<String> = (0..5).map(|number| number.to_string()).collect();
        let check = |options: WriterOptions, expected: &[usize]| {
            let pattern = folder.path().join("s-%03d.tar");
            let mut writer = ShardWriter::new(pattern.to_str().unwrap(), options).unwrap();
            for key in &samples {
                writer.write_sample(key, &[("bin", &data)]).unwrap();
            }
            let paths = writer.finish().unwrap();
            let counts: Vec<usize> = paths.iter().map(|path| members(path).len()).collect();
            assert_eq!(counts, expected, "{options:?}");
            assert_eq!(paths[0].file_name().unwrap(), "s-000.tar");
            if let Some(max) = options.bytes_max.filter(|max| *max > 2560) {
                assert!(paths.iter().all(|path| fs::metadata(path).unwrap().len() <= max));
            }
        };
        let limits = |samples_max, bytes_max| WriterOptions { samples_max, bytes_max, ..WriterOptions::default() };
        check(limits(None, None), &[5]);
        check(limits(Some(2), None), &[2, 2, 1]);
        check(limits(Some(5), None), &[5]);
        // One sample takes 512 + 1024 bytes, the end 1024.
        check(limits(None, Some(4096)), &[2, 2, 1]);
        check(limits(None, Some(4095)), &[1, 1, 1, 1, 1]);
        check(limits(None, Some(1)), &[1, 1, 1, 1, 1]);
        check(limits(Some(3), Some(4096)), &[2, 2, 1]);
    }

    #[test]
    fn what_would_not_read_back_is_refused_and_nothing_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer =
            ShardWriter::new(folder.path().join("a.tar").to_str().unwrap(), WriterOptions::default()).unwrap();
        writer.write_sample("a", &[("txt", b"1")]).unwrap();
        let mut check = |key: &str, exts: &[&str], kind: ErrorKind| {
            let fields: Vec<(&str, &[u8])> = exts.iter().map(|ext| (*ext, &b"x"[..])).collect();
            assert_eq!(writer.write_sample(key, &fields).unwrap_err().kind(), kind, "{key} {exts:?}");
        };
        check("a", &["jpg"], ErrorKind::Grouping);
        check("b", &["jpg", "cls", "JPG"], ErrorKind::Grouping);
        for key in ["", "d/", "a.b", "d/.hidden", "__m__/a", "__MACOSX/a", "a\0"] {
            check(key, &["jpg"], ErrorKind::InvalidOption);
        }
        for ext in ["", ".jpg", "a/b", "j\0"] {
            check("b", &[ext], ErrorKind::InvalidOption);
        }
        check("b", &[], ErrorKind::InvalidOption);
        check(&"k".repeat(4093), &["jpg"], ErrorKind::Limit);
        for key in ["__m__", "d.x/__m__/a", "__a"] {
            writer.write_sample(key, &[("seg.png", b"x")]).unwrap();
        }
        let paths = writer.finish().unwrap();
        let names: Vec<String> = members(&paths[0]).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a.txt", "__m__.seg.png", "d.x/__m__/a.seg.png", "__a.seg.png"]);
    }

    #[test]
    fn a_writer_that_is_dropped_leaves_complete_shards_only() {
        let folder = tempfile::tempdir().unwrap();
        let options = WriterOptions { samples_max: Some(1), ..WriterOptions::default() };
        let mut writer = ShardWriter::new(folder.path().join("%d.tar").to_str().unwrap(), options).unwrap();
        writer.write_sample("a", &[("txt", b"1")]).unwrap();
        writer.write_sample("b", &[("txt", b"2")]).unwrap();
        assert_eq!(writer.finished().len(), 1);
        drop(writer);
        let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["0.tar"]);
        assert!(write(&folder.path().join("none.tar"), WriterOptions::default(), &[]).unwrap().is_empty());
    }

    #[test]
    fn limits_need_a_number_and_a_folder_must_exist() {
        let invalid = WriterOptions { samples_max: Some(0), ..WriterOptions::default() };
        assert_eq!(ShardWriter::new("%d.tar", invalid).unwrap_err().kind(), ErrorKind::InvalidOption);
        let one_file = WriterOptions { bytes_max: Some(9), ..WriterOptions::default() };
        assert_eq!(ShardWriter::new("a.tar", one_file).unwrap_err().kind(), ErrorKind::InvalidOption);
        let lost = ShardWriter::new("/no/such/folder/a.tar", WriterOptions::default());
        assert_eq!(lost.unwrap_err().kind(), ErrorKind::NotFound);
    }
}
