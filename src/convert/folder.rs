//! A folder of pictures as a source: each folder in it is a class, in torchvision's order, and nothing but names and sizes
//! is looked at before a sample is read.
//!
//! It takes torchvision's extensions for pictures; other files are counted, never read.

use std::ffi::OsStr;
use std::fs::{self, DirEntry, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use twox_hash::XxHash3_128;

use super::sample::Fields;
use super::source::Source;
use crate::error::{Error, ErrorKind, Result};

/// What torchvision takes for pictures.
const PICTURES: [&str; 9] = ["jpg", "jpeg", "png", "ppm", "bmp", "pgm", "tif", "tiff", "webp"];

/// Folders within folders that are followed.
const DEPTH_MAX: usize = 64;

/// The largest picture that is read.
pub(super) const FILE_BYTES_MAX: u64 = 256 << 20;

/// The pictures of a folder.
pub(super) struct Folder {
    root: PathBuf,
    classes: Vec<String>,
    /// Folders with pictures, relative to the root, and their classes.
    folders: Vec<(PathBuf, u32)>,
    /// All file names, one after the other.
    names: Vec<u8>,
    files: Vec<Entry>,
    notes: Vec<String>,
}

/// One picture.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Where its name ends in `names`.
    name_end: u64,
    size: u64,
    folder: u32,
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
        for entry in sorted(root)? {
            let path = root.join(&entry.name);
            match entry.is_folder {
                true if entry.is_hidden() => loose.hidden += 1,
                true => classes.push(path),
                false => loose.take(&entry, &path),
            }
        }
        let mut folder = Self {
            root: root.to_owned(),
            classes: Vec::new(),
            folders: Vec::new(),
            names: Vec::new(),
            files: Vec::new(),
            notes: Vec::new(),
        };
        let mut counted = Listed { others: loose.others, hidden: loose.hidden, ..Listed::default() };
        if classes.is_empty() {
            folder.add(Path::new(""), 0, &loose.files)?;
        } else {
            let listed = list_all(&classes, threads)?;
            for (class, (path, tree)) in (0u32..).zip(classes.iter().zip(listed)) {
                let name = path.file_name().unwrap_or_default();
                let pictures: usize = tree.iter().map(|(_, listed)| listed.files.len()).sum();
                if pictures == 0 {
                    counted.empty.push(name.to_string_lossy().into_owned());
                }
                folder.classes.push(name.to_string_lossy().into_owned());
                for (path, listed) in tree {
                    counted.others += listed.others;
                    counted.hidden += listed.hidden;
                    let relative = path.strip_prefix(root).unwrap_or(&path).to_owned();
                    folder.add(&relative, class, &listed.files)?;
                }
            }
            counted.loose = loose.files.len();
        }
        folder.notes = counted.notes(root);
        if folder.files.is_empty() {
            let message = format!("no pictures in the folder '{}'", root.display());
            return Err(Error::new(ErrorKind::NotFound, message)
                .with_hint(format!("names of pictures end with {}", PICTURES.join(", "))));
        }
        Ok(folder)
    }

    fn add(&mut self, folder: &Path, class: u32, files: &[(Vec<u8>, u64)]) -> Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        let number = u32::try_from(self.folders.len())
            .map_err(|_| Error::new(ErrorKind::Limit, "more than 4,294,967,295 folders"))?;
        self.folders.push((folder.to_owned(), class));
        for (name, size) in files {
            self.names.extend_from_slice(name);
            self.files.push(Entry { name_end: self.names.len() as u64, size: *size, folder: number });
        }
        Ok(())
    }

    fn file_name(&self, sample: usize) -> &[u8] {
        let start = if sample == 0 { 0 } else { self.files[sample - 1].name_end as usize };
        &self.names[start..self.files[sample].name_end as usize]
    }

    fn path(&self, sample: usize) -> PathBuf {
        let (folder, _) = &self.folders[self.files[sample].folder as usize];
        self.root.join(folder).join(OsStr::from_bytes(self.file_name(sample)))
    }
}

impl Source for Folder {
    fn len(&self) -> usize {
        self.files.len()
    }

    fn name(&self, sample: usize, name: &mut Vec<u8>) {
        let (folder, _) = &self.folders[self.files[sample].folder as usize];
        if !folder.as_os_str().is_empty() {
            name.extend_from_slice(folder.as_os_str().as_bytes());
            name.push(b'/');
        }
        let (stem, _) = split_extension(self.file_name(sample));
        name.extend_from_slice(stem);
    }

    fn origin(&self, sample: usize) -> String {
        self.path(sample).to_string_lossy().into_owned()
    }

    fn sizes(&self, sample: usize, tell: &mut dyn FnMut(&str, u64)) {
        if !self.classes.is_empty() {
            let (_, class) = self.folders[self.files[sample].folder as usize];
            tell("cls", class.to_string().len() as u64);
        }
        tell(&extension_of(self.file_name(sample)), self.files[sample].size);
    }

    fn read(&self, sample: usize, fields: &mut Fields) -> Result<()> {
        let mut bytes = fields.buffer();
        read_file(&self.path(sample), self.files[sample].size, &mut bytes)?;
        fields.push(&extension_of(self.file_name(sample)), bytes);
        if !self.classes.is_empty() {
            let (_, class) = self.folders[self.files[sample].folder as usize];
            let mut label = fields.buffer();
            label.extend_from_slice(class.to_string().as_bytes());
            fields.push("cls", label);
        }
        Ok(())
    }

    fn fingerprint(&self) -> u128 {
        let mut hash = XxHash3_128::new();
        hash.write(&self.names);
        for (folder, class) in &self.folders {
            hash.write(folder.as_os_str().as_bytes());
            hash.write(&class.to_le_bytes());
        }
        for Entry { name_end, size, folder } in &self.files {
            hash.write(&name_end.to_le_bytes());
            hash.write(&size.to_le_bytes());
            hash.write(&folder.to_le_bytes());
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
    let changed = |how: &str| {
        Error::new(ErrorKind::Io, format!("'{}' changed while it was converted: {how}", path.display()))
            .with_hint("let nothing write to the source, then start again")
    };
    if size > FILE_BYTES_MAX {
        let message = format!("'{}' has {size} bytes, more than the {FILE_BYTES_MAX} allowed", path.display());
        return Err(Error::new(ErrorKind::Limit, message));
    }
    let file = File::open(path).map_err(failed)?;
    let before = file.metadata().map_err(failed)?;
    if !before.is_file() {
        return Err(Error::new(ErrorKind::Io, format!("'{}' is no regular file", path.display())));
    }
    if before.len() != size {
        return Err(changed(&format!("it had {size} bytes when it was listed, now {}", before.len())));
    }
    bytes.clear();
    // One byte more than there should be, so that a file that has grown is noticed.
    bytes.reserve_exact(size as usize + 1);
    while bytes.len() as u64 <= size {
        match rustix::io::read(&file, rustix::buffer::spare_capacity(bytes)) {
            Ok(0) => break,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(failed(error.into())),
        }
    }
    if bytes.len() as u64 != size {
        return Err(changed(if (bytes.len() as u64) < size { "it shrank" } else { "it grew" }));
    }
    let after = file.metadata().map_err(failed)?;
    let state = |found: &Metadata| (found.len(), found.mtime(), found.mtime_nsec());
    if state(&before) != state(&after) {
        return Err(changed("it was written to"));
    }
    Ok(())
}

/// A file name before its last dot and behind it.
pub(super) fn split_extension(name: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memrchr(b'.', name) {
        Some(dot) if dot > 0 => (&name[..dot], &name[dot + 1..]),
        _ => (name, b""),
    }
}

/// The field's extension for a picture's file name: in lower case, with one spelling for each format.
pub(super) fn extension_of(name: &[u8]) -> String {
    let (_, ext) = split_extension(name);
    match String::from_utf8_lossy(ext).to_lowercase().as_str() {
        "jpeg" => "jpg".into(),
        "tif" => "tiff".into(),
        other => other.into(),
    }
}

/// Whether torchvision would take a file of this name for a picture.
pub(super) fn is_picture(name: &[u8]) -> bool {
    let (_, ext) = split_extension(name);
    PICTURES.iter().any(|picture| ext.eq_ignore_ascii_case(picture.as_bytes()))
}

/// What was found in one folder: pictures by name and size, other things by number.
#[derive(Debug, Default)]
struct Listed {
    files: Vec<(Vec<u8>, u64)>,
    others: usize,
    hidden: usize,
    loose: usize,
    empty: Vec<String>,
}

impl Listed {
    fn take(&mut self, entry: &Found, path: &Path) {
        if entry.is_hidden() {
            self.hidden += 1;
        } else if is_picture(entry.name.as_bytes()) {
            // One that cannot be looked at is a bad sample when its turn comes.
            let size = fs::metadata(path).map_or(0, |found| found.len());
            self.files.push((entry.name.as_bytes().to_vec(), size));
        } else {
            self.others += 1;
        }
    }

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

/// One entry of a folder.
struct Found {
    name: std::ffi::OsString,
    is_folder: bool,
}

impl Found {
    fn of(folder: &Path, entry: &DirEntry) -> io::Result<Self> {
        let kind = entry.file_type()?;
        // Links are followed, as torchvision does; one that leads nowhere is a file that cannot be read.
        let is_folder = if kind.is_symlink() { folder.join(entry.file_name()).is_dir() } else { kind.is_dir() };
        Ok(Self { name: entry.file_name(), is_folder })
    }

    fn is_hidden(&self) -> bool {
        self.name.as_bytes().starts_with(b".")
    }
}

/// The entries of a folder in byte order of their names, which for UTF-8 is the order of Python's strings.
fn sorted(folder: &Path) -> Result<Vec<Found>> {
    let failed = |error| Error::io(format!("cannot list the folder '{}'", folder.display()), error);
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        found.push(Found::of(folder, &entry.map_err(failed)?).map_err(failed)?);
    }
    found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// A folder and all below it, by path.
type Tree = Vec<(PathBuf, Listed)>;

/// Lists the tree of each class, some at a time.
fn list_all(classes: &[PathBuf], threads: usize) -> Result<Vec<Tree>> {
    let next = AtomicUsize::new(0);
    let trees = Mutex::new(Vec::with_capacity(classes.len()));
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, classes.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(class) = classes.get(number) else { break };
                    let mut tree = Vec::new();
                    let listed = list_tree(class, &mut Vec::new(), &mut tree);
                    // The order of torchvision: by whole paths, which is not that of a walk in depth.
                    tree.sort_by(|(a, _): &(PathBuf, Listed), (b, _)| a.as_os_str().cmp(b.as_os_str()));
                    trees.lock().unwrap_or_else(PoisonError::into_inner).push((number, listed.map(|()| tree)));
                }
            });
        }
    });
    let mut trees = trees.into_inner().unwrap_or_else(PoisonError::into_inner);
    trees.sort_by_key(|(number, _)| *number);
    trees.into_iter().map(|(_, tree)| tree).collect()
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
    for entry in sorted(folder)? {
        let path = folder.join(&entry.name);
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
