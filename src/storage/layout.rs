//! What is read: files, and where samples lie in them. It knows no archive: whoever has an index says where samples are.

use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::shard::FileIdentity;

/// Files that are measured at most: each stays open while a run lasts.
pub const FILES_MAX: usize = 256;

/// Files and the samples in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    files: Vec<(PathBuf, FileIdentity)>,
    samples: Vec<Extent>,
}

/// A sample's bytes in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Number of the file.
    pub file: usize,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

impl Layout {
    /// The files at `paths`, and `samples` in them, which may be none.
    ///
    /// # Errors
    /// Those of looking at a file; [`ErrorKind::Truncated`] for one without a byte; [`ErrorKind::InvalidOption`] for
    /// no file, for more than [`FILES_MAX`], and for a sample that does not lie in its file.
    pub fn new(paths: &[PathBuf], samples: Vec<Extent>) -> Result<Self> {
        if paths.is_empty() || paths.len() > FILES_MAX {
            let message = format!("{} files are to be measured, not between 1 and {FILES_MAX}", paths.len());
            return Err(Error::new(ErrorKind::InvalidOption, message));
        }
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            let named = |error: Error| error.in_shard(path.to_string_lossy().as_ref());
            let (_, identity) = FileIdentity::open(path).map_err(named)?;
            if identity.size == 0 {
                return Err(named(Error::new(ErrorKind::Truncated, "the file is empty: there is nothing to read")));
            }
            files.push((path.clone(), identity));
        }
        let lies_inside = |sample: &&Extent| {
            let size = files.get(sample.file).map_or(0, |(_, identity)| identity.size);
            sample.len > 0 && sample.offset.checked_add(sample.len).is_some_and(|end| end <= size)
        };
        if let Some(sample) = samples.iter().find(|sample| !lies_inside(sample)) {
            return Err(Error::new(ErrorKind::InvalidOption, format!("{sample:?} does not lie in its file")));
        }
        Ok(Self { files, samples })
    }

    /// Number of files.
    #[must_use]
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether there are no files; never true.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The paths of the files, by number.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.files.iter().map(|(path, _)| path.as_path())
    }

    /// The path of file number `file`.
    ///
    /// # Panics
    /// When there is no such number.
    #[must_use]
    pub fn path(&self, file: usize) -> &Path {
        &self.files[file].0
    }

    /// The size of file number `file` in bytes.
    ///
    /// # Panics
    /// When there is no such number.
    #[must_use]
    pub fn size(&self, file: usize) -> u64 {
        self.files[file].1.size
    }

    /// Bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, identity)| identity.size).sum()
    }

    /// The samples.
    #[must_use]
    pub fn samples(&self) -> &[Extent] {
        &self.samples
    }

    /// Bytes of files for each sample, headers included: what reading whole files costs a sample. `None` without samples.
    #[must_use]
    pub fn bytes_a_sample(&self) -> Option<f64> {
        (!self.samples.is_empty()).then(|| self.bytes() as f64 / self.samples.len() as f64)
    }

    /// Makes sure that all files are still what they were.
    ///
    /// # Errors
    /// [`ErrorKind::ShardChanged`] that names the file.
    pub fn check(&self) -> Result<()> {
        for (path, identity) in &self.files {
            identity.check(path).map_err(|error| error.in_shard(path.to_string_lossy().as_ref()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod example {
    use super::*;

    /// Files of the given sizes in a folder of their own; samples of 1,000 bytes side by side, the last one shorter.
    pub(in crate::storage) fn layout(sizes: &[u64]) -> (tempfile::TempDir, Layout) {
        let folder = tempfile::tempdir().unwrap();
        let mut paths = Vec::new();
        let mut samples = Vec::new();
        for (file, &size) in sizes.iter().enumerate() {
            let path = folder.path().join(format!("{file}.tar"));
            std::fs::write(&path, (0..size).map(|at| (at * 7 + file as u64) as u8).collect::<Vec<_>>()).unwrap();
            paths.push(path);
            let extent = |offset: u64| Extent { file, offset, len: (size - offset).min(1000) };
            samples.extend((0..size).step_by(1000).map(extent));
        }
        let layout = Layout::new(&paths, samples).unwrap();
        (folder, layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_measured_is_refused() {
        let (folder, layout) = example::layout(&[2500, 100]);
        assert_eq!((layout.bytes(), layout.samples().len(), layout.bytes_a_sample()), (2600, 4, Some(650.0)));
        let paths: Vec<PathBuf> = layout.paths().map(Path::to_owned).collect();
        let kind = |paths: &[PathBuf], samples| Layout::new(paths, samples).unwrap_err().kind();
        assert_eq!(kind(&[], vec![]), ErrorKind::InvalidOption);
        for sample in [(0, 2400, 101), (2, 0, 1), (1, u64::MAX, 2), (0, 5, 0)] {
            let sample = Extent { file: sample.0, offset: sample.1, len: sample.2 };
            assert_eq!(kind(&paths, vec![sample]), ErrorKind::InvalidOption, "{sample:?}");
        }
        let empty = folder.path().join("empty.tar");
        std::fs::write(&empty, b"").unwrap();
        assert_eq!(kind(&[empty], vec![]), ErrorKind::Truncated);
        assert_eq!(kind(&[folder.path().join("none.tar")], vec![]), ErrorKind::NotFound);
    }
}
