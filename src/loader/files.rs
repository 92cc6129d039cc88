//! Image files in folders, each by itself a sample with the number of its class. It opens a file when its turn comes and
//! keeps none open; which files there are, and of which class, it is told.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::dataset::{RawField, RawSample, path_text};
use super::joined::Mixer;
use crate::sample::Key;
use crate::shard::{IoMethod, Shard, ShardOptions};
use crate::{Error, ErrorKind, Result};

/// Paths and classes, by sample number.
#[derive(Debug)]
pub(crate) struct Files {
    root: PathBuf,
    paths: Vec<PathBuf>,
    classes: Vec<i64>,
    options: ShardOptions,
    fingerprint: u64,
}

impl Files {
    /// The fields of every sample: the image and its class.
    pub(crate) const FIELDS: [&'static str; 2] = ["img", "cls"];

    /// # Errors
    /// [`ErrorKind::InvalidOption`] where there are not as many classes as paths.
    pub(crate) fn new(root: &Path, paths: Vec<PathBuf>, classes: Vec<i64>, options: ShardOptions) -> Result<Self> {
        if paths.len() != classes.len() {
            let message = format!("{} files and {} classes: each file needs one", paths.len(), classes.len());
            return Err(Error::new(ErrorKind::InvalidOption, message).with_hint("give a class for each path"));
        }
        // A file is read once and let go: a map would cost more than it saves.
        let io = if options.io == IoMethod::Auto { IoMethod::Read } else { options.io };
        let mut mixer = Mixer::default();
        for (path, &class) in paths.iter().zip(&classes) {
            mixer.bytes(relative(path, root).as_os_str().as_encoded_bytes());
            mixer.number(class as u64);
        }
        let options = ShardOptions { io, ..options };
        Ok(Self { root: root.to_owned(), paths, classes, options, fingerprint: mixer.finish() })
    }

    pub(crate) fn len(&self) -> usize {
        self.paths.len()
    }

    pub(crate) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    pub(crate) fn key(&self, ordinal: usize) -> Option<Key> {
        let path = relative(self.paths.get(ordinal)?, &self.root);
        Some(Key::new(path.as_os_str().as_encoded_bytes().to_vec()))
    }

    /// Reads file number `ordinal`; `None` where there is none.
    pub(crate) fn read(&self, ordinal: usize) -> Option<Result<RawSample>> {
        let (path, class, key) = (self.paths.get(ordinal)?, self.classes.get(ordinal)?, self.key(ordinal)?);
        let url = path_text(path);
        let read = || {
            let shard = Shard::open(path, &self.options)?;
            let bytes = shard.read(0..shard.len())?;
            // Only a map must be asked again whether its pages are still there.
            let is_view = shard.footprint().files == 0;
            Ok((is_view.then_some(shard), bytes))
        };
        Some(read().map_err(|error: Error| error.at_key(&key).in_shard(Arc::clone(&url))).map(|(shard, bytes)| {
            let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
            let image = RawField { extension: extension.into(), bytes, offset: 0 };
            let class = RawField { extension: "cls".into(), bytes: Bytes::from(class.to_string()), offset: 0 };
            let fields = vec![Some(image), Some(class)];
            RawSample { ordinal: ordinal as u64, shard_number: ordinal, url, shard, key, fields }
        }))
    }
}

fn relative<'a>(path: &'a Path, root: &Path) -> &'a Path {
    path.strip_prefix(root).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_a_sample_with_its_class_and_its_place_in_the_folder_as_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cats").join("1.JPG");
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        std::fs::write(&path, b"bytes").unwrap();
        for io in [IoMethod::Auto, IoMethod::Read, IoMethod::Mmap] {
            let options = ShardOptions { io, ..ShardOptions::default() };
            let files = Files::new(folder.path(), vec![path.clone()], vec![-7], options).unwrap();
            let sample = files.read(0).unwrap().unwrap();
            let field = |n: usize| sample.fields[n].as_ref().unwrap();
            assert_eq!((&*field(0).extension, &*field(0).bytes), ("jpg", &b"bytes"[..]));
            assert_eq!((&*field(1).extension, &*field(1).bytes), ("cls", &b"-7"[..]));
            assert_eq!(sample.key.as_bytes(), b"cats/1.JPG");
            assert!(files.read(1).is_none());
        }
    }

    #[test]
    fn a_file_that_is_gone_is_an_error_that_names_it() {
        let files =
            Files::new(Path::new("/"), vec!["/not/there.jpg".into()], vec![0], ShardOptions::default()).unwrap();
        let error = files.read(0).unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("there.jpg"), "{error}");
    }

    #[test]
    fn the_fingerprint_knows_names_and_classes_and_not_where_the_folder_is() {
        let of = |root: &str, name: &str, class| {
            let path = Path::new(root).join(name);
            Files::new(Path::new(root), vec![path], vec![class], ShardOptions::default()).unwrap().fingerprint()
        };
        assert_eq!(of("/a", "x/1.jpg", 0), of("/b", "x/1.jpg", 0));
        assert_ne!(of("/a", "x/1.jpg", 0), of("/a", "x/2.jpg", 0));
        assert_ne!(of("/a", "x/1.jpg", 0), of("/a", "x/1.jpg", 1));
    }
}
