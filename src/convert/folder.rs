//! A folder of pictures as a source: each folder in it is a class, in torchvision's order, and nothing but names and sizes
//! is looked at before a sample is read.
//!
//! It takes torchvision's extensions for pictures; other files are counted, never read.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use twox_hash::XxHash3_128;

use super::extension::{PICTURE_FILES, extension_of, is_picture_file, split_extension};
use super::files::Files;
use super::sample::Fields;
use super::source::Source;
use crate::error::{Error, ErrorKind, Result};
use crate::shard::FileIdentity;

/// Folders within folders that are followed.
const DEPTH_MAX: usize = 64;

/// The largest picture that is read.
pub(super) const FILE_BYTES_MAX: u64 = 256 << 20;

/// The pictures of a folder.
pub(super) struct Folder {
    root: PathBuf,
    classes: Vec<String>,
    /// Folders with pictures, in order.
    folders: Vec<Place>,
    files: Files,
    notes: Vec<String>,
}

/// A folder with pictures.
struct Place {
    /// Relative to the root.
    path: PathBuf,
    class: u32,
    /// The number of its first picture.
    first: usize,
}

impl Folder {
    /// Lists the pictures below `root`.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] for a folder that cannot be listed, [`ErrorKind::NotFound`] where there is no picture,
    /// [`ErrorKind::Limit`] for folders that contain themselves by links.
    pub(super) fn open(root: &Path, threads: usize) -> Result<Self> {
        let mut classes = Vec::new();
        let mut loose = Listed::default();
        let entries = Entries::of(root)?;
        for entry in entries.iter() {
            let path = root.join(entry.name);
            match entry.is_folder {
                true if entry.is_hidden() => loose.hidden += 1,
                true => classes.push(path),
                false => loose.take(&entry, &path),
            }
        }
        drop(entries);
        let mut folder = Self {
            root: root.to_owned(),
            classes: Vec::new(),
            folders: Vec::new(),
            files: Files::default(),
            notes: Vec::new(),
        };
        let mut counted = Counted { others: loose.others, hidden: loose.hidden, ..Counted::default() };
        if classes.is_empty() {
            folder.add(PathBuf::new(), 0, &loose.files);
        } else {
            counted.loose = loose.files.len();
            drop(loose);
            each_tree(&classes, threads, |class, tree| {
                let name = classes[class].file_name().unwrap_or_default().to_string_lossy();
                if tree.iter().all(|(_, listed)| listed.files.is_empty()) {
                    counted.empty.push(name.clone().into_owned());
                }
                folder.classes.push(name.into_owned());
                let class = u32::try_from(class)
                    .map_err(|_| Error::new(ErrorKind::Limit, "more than 4,294,967,295 classes"))?;
                for (path, listed) in tree {
                    counted.others += listed.others;
                    counted.hidden += listed.hidden;
                    let relative = path.strip_prefix(root).unwrap_or(&path).to_owned();
                    folder.add(relative, class, &listed.files);
                }
                Ok(())
            })?;
        }
        folder.notes = counted.notes(root);
        if folder.files.is_empty() {
            let message = format!("no pictures in the folder '{}'", root.display());
            return Err(Error::new(ErrorKind::NotFound, message)
                .with_hint(format!("names of pictures end with {}", PICTURE_FILES.join(", "))));
        }
        Ok(folder)
    }

    fn add(&mut self, path: PathBuf, class: u32, files: &Files) {
        if !files.is_empty() {
            self.folders.push(Place { path, class, first: self.files.len() });
            self.files.append(files);
        }
    }

    /// The folder of a picture.
    fn place(&self, sample: usize) -> &Place {
        &self.folders[self.folders.partition_point(|place| place.first <= sample) - 1]
    }

    fn path(&self, sample: usize) -> PathBuf {
        self.root.join(&self.place(sample).path).join(OsStr::from_bytes(self.files.name(sample)))
    }
}

impl Source for Folder {
    fn len(&self) -> usize {
        self.files.len()
    }

    fn name(&self, sample: usize, name: &mut Vec<u8>) {
        let Place { path, .. } = self.place(sample);
        if !path.as_os_str().is_empty() {
            name.extend_from_slice(path.as_os_str().as_bytes());
            name.push(b'/');
        }
        let (stem, _) = split_extension(self.files.name(sample));
        name.extend_from_slice(stem);
    }

    fn origin(&self, sample: usize) -> String {
        self.path(sample).to_string_lossy().into_owned()
    }

    fn sizes(&self, sample: usize, tell: &mut dyn FnMut(&str, u64)) {
        if !self.classes.is_empty() {
            tell("cls", self.place(sample).class.to_string().len() as u64);
        }
        tell(&extension_of(self.files.name(sample)), self.files.size(sample));
    }

    fn read(&self, sample: usize, fields: &mut Fields) -> Result<()> {
        let mut bytes = fields.buffer();
        read_file(&self.path(sample), self.files.size(sample), &mut bytes)?;
        fields.push(&extension_of(self.files.name(sample)), bytes);
        if !self.classes.is_empty() {
            let mut label = fields.buffer();
            label.extend_from_slice(self.place(sample).class.to_string().as_bytes());
            fields.push("cls", label);
        }
        Ok(())
    }

    fn fingerprint(&self) -> u128 {
        let mut hash = XxHash3_128::new();
        for Place { path, class, first } in &self.folders {
            hash.write(path.as_os_str().as_bytes());
            hash.write(&class.to_le_bytes());
            hash.write(&(*first as u64).to_le_bytes());
        }
        for file in 0..self.files.len() {
            hash.write(self.files.name(file));
            hash.write(b"/");
            hash.write(&self.files.size(file).to_le_bytes());
        }
        for class in &self.classes {
            hash.write(class.as_bytes());
            hash.write(b"\n");
        }
        hash.finish_128()
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// Reads a file that had `size` bytes when it was listed.
///
/// # Errors
/// [`ErrorKind::Io`] when it cannot be read or is not what it was; [`ErrorKind::Limit`] for one of more than 256 MiB.
pub(super) fn read_file(path: &Path, size: u64, bytes: &mut Vec<u8>) -> Result<()> {
    let failed = |error| Error::io(format!("cannot read '{}'", path.display()), error);
    if size > FILE_BYTES_MAX {
        let message = format!("'{}' has more than the {FILE_BYTES_MAX} bytes allowed", path.display());
        return Err(Error::new(ErrorKind::Limit, message));
    }
    // A pipe would wait for its writer; of a regular file the flag says nothing.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(failed)?;
    let before = file.metadata().map_err(failed)?;
    if !before.is_file() {
        return Err(Error::new(ErrorKind::Io, format!("'{}' is no regular file", path.display())));
    }
    read_as(path, &file, &before, size, bytes)
}

/// Reads a file that is open, as it was when it was looked at.
fn read_as(path: &Path, file: &File, before: &fs::Metadata, size: u64, bytes: &mut Vec<u8>) -> Result<()> {
    let failed = |error| Error::io(format!("cannot read '{}'", path.display()), error);
    let changed = |how: &str| {
        Error::new(ErrorKind::Io, format!("'{}' changed while it was converted: {how}", path.display()))
            .with_hint("let nothing write to the source, then start again")
    };
    if before.len() != size {
        return Err(changed(&format!("it had {size} bytes when it was listed, now {}", before.len())));
    }
    bytes.clear();
    // One byte more than there should be, so that a file that has grown is noticed.
    bytes.reserve_exact(size as usize + 1);
    while bytes.len() as u64 <= size {
        match rustix::io::read(file, rustix::buffer::spare_capacity(bytes)) {
            Ok(0) => break,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(failed(error.into())),
        }
    }
    if bytes.len() as u64 != size {
        return Err(changed(if (bytes.len() as u64) < size { "it shrank" } else { "it grew" }));
    }
    let after = file.metadata().map_err(failed)?;
    if FileIdentity::of(before) != FileIdentity::of(&after) {
        return Err(changed("it was written to"));
    }
    Ok(())
}

/// What was found in one folder: pictures by name and size, other things by number.
#[derive(Debug, Default)]
struct Listed {
    files: Files,
    others: usize,
    hidden: usize,
}

impl Listed {
    fn take(&mut self, entry: &Entry<'_>, path: &Path) {
        if entry.is_hidden() {
            self.hidden += 1;
        } else if is_picture_file(entry.name.as_bytes()) {
            // One that cannot be looked at is a bad sample when its turn comes.
            let size = fs::metadata(path).map_or(0, |found| found.len());
            self.files.push(entry.name.as_bytes(), size);
        } else {
            self.others += 1;
        }
    }
}

/// What was passed over.
#[derive(Debug, Default)]
struct Counted {
    others: usize,
    hidden: usize,
    loose: usize,
    empty: Vec<String>,
}

impl Counted {
    fn notes(&self, root: &Path) -> Vec<String> {
        let root = root.display();
        let mut notes = Vec::new();
        if self.loose > 0 {
            notes.push(format!("{} pictures directly in '{root}' have no class and are left out", self.loose));
        }
        if self.others > 0 {
            notes.push(format!("{} files below '{root}' are no pictures by their names and are left out", self.others));
        }
        if self.hidden > 0 {
            notes.push(format!("{} hidden files or folders below '{root}' are left out", self.hidden));
        }
        if let Some(first) = self.empty.first() {
            notes.push(format!("{} classes have no pictures (first: '{first}')", self.empty.len()));
        }
        notes
    }
}

/// The entries of one folder in byte order of their names, which for UTF-8 is the order of Python's strings.
struct Entries {
    names: Vec<u8>,
    /// Where each name lies in `names`, and whether it is a folder's.
    places: Vec<(usize, u16, bool)>,
}

/// One entry of a folder.
struct Entry<'a> {
    name: &'a OsStr,
    is_folder: bool,
}

impl Entries {
    fn of(folder: &Path) -> Result<Self> {
        let failed = |error| Error::io(format!("cannot list the folder '{}'", folder.display()), error);
        let mut entries = Self { names: Vec::new(), places: Vec::new() };
        for entry in fs::read_dir(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let (name, kind) = (entry.file_name(), entry.file_type().map_err(failed)?);
            // Links are followed, as torchvision does; one that leads nowhere is a file that cannot be read.
            let is_folder = if kind.is_symlink() { folder.join(&name).is_dir() } else { kind.is_dir() };
            let length = u16::try_from(name.len())
                .map_err(|_| Error::new(ErrorKind::Limit, format!("a name in '{}' is too long", folder.display())))?;
            entries.places.push((entries.names.len(), length, is_folder));
            entries.names.extend_from_slice(name.as_bytes());
        }
        let Self { names, places } = &mut entries;
        let names: &[u8] = names;
        places.sort_unstable_by_key(|&(start, length, _)| &names[start..start + usize::from(length)]);
        Ok(entries)
    }

    fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        self.places.iter().map(|&(start, length, is_folder)| Entry {
            name: OsStr::from_bytes(&self.names[start..start + usize::from(length)]),
            is_folder,
        })
    }
}

impl Entry<'_> {
    fn is_hidden(&self) -> bool {
        self.name.as_bytes().starts_with(b".")
    }
}

/// A folder and all below it, by path.
type Tree = Vec<(PathBuf, Listed)>;

/// Lists the tree of each class on `threads` threads and hands each to `take` as soon as those before it are through: what
/// waits in memory is little.
fn each_tree(classes: &[PathBuf], threads: usize, mut take: impl FnMut(usize, Tree) -> Result<()>) -> Result<()> {
    let next = AtomicUsize::new(0);
    let work = |trees: mpsc::Sender<(usize, Result<Tree>)>| {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(class) = classes.get(number) else { break };
            let mut tree = Vec::new();
            let listed = list_tree(class, &mut Vec::new(), &mut tree);
            // The order of torchvision: by whole paths, which is not that of a walk in depth.
            tree.sort_by(|(a, _): &(PathBuf, Listed), (b, _)| a.as_os_str().cmp(b.as_os_str()));
            if trees.send((number, listed.map(|()| tree))).is_err() {
                break;
            }
        }
    };
    let mut early: BTreeMap<usize, Result<Tree>> = BTreeMap::new();
    let mut turn = 0;
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..threads.clamp(1, classes.len().max(1)) {
            let sender = sender.clone();
            scope.spawn(|| work(sender));
        }
        drop(sender);
        for (number, tree) in receiver {
            early.insert(number, tree);
            while let Some(tree) = early.remove(&turn) {
                take(turn, tree?)?;
                turn += 1;
            }
        }
        Ok(())
    })
}

fn list_tree(folder: &Path, above: &mut Vec<(u64, u64)>, tree: &mut Tree) -> Result<()> {
    let found = fs::metadata(folder)
        .map_err(|error| Error::io(format!("cannot list the folder '{}'", folder.display()), error))?;
    let identity = (found.dev(), found.ino());
    if above.contains(&identity) || above.len() >= DEPTH_MAX {
        let message = format!("the folder '{}' contains itself, or lies too deep", folder.display());
        return Err(Error::new(ErrorKind::Limit, message).with_hint("remove the link that leads back up"));
    }
    above.push(identity);
    let mut listed = Listed::default();
    for entry in Entries::of(folder)?.iter() {
        let path = folder.join(entry.name);
        match entry.is_folder {
            true if entry.is_hidden() => listed.hidden += 1,
            true => list_tree(&path, above, tree)?,
            false => listed.take(&entry, &path),
        }
    }
    tree.push((folder.to_owned(), listed));
    above.pop();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    #[test]
    fn a_file_that_is_written_to_while_it_is_read_is_told_by_its_identity() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jpg");
        fs::write(&path, b"four").unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let before = file.metadata().unwrap();
        let mut bytes = Vec::new();
        read_as(&path, &file, &before, 4, &mut bytes).unwrap();
        assert_eq!(bytes, b"four");
        // As long as before, and of another time.
        let file = File::options().read(true).write(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() + Duration::from_secs(9)).unwrap();
        let error = read_as(&path, &file, &before, 4, &mut bytes).unwrap_err();
        assert!(error.to_string().contains("changed") && error.to_string().contains("written to"), "{error}");
    }
}
