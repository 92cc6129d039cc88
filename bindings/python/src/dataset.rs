//! A data set of the library as a Python object: opened from patterns and options, shared by loaders. It has no
//! defaults of its own; `brimful.ShardDataset` passes every option.

use std::ffi::OsString;
use std::path::PathBuf;

use brimful::decode::{Backend, ColorMode, DecodeOptions, Truncated};
use brimful::loader::{Access, Dataset as Shards, DatasetOptions};
use brimful::sample::{Duplicates, Grouping, KeySplit};
use brimful::shard::{Damage, ShardList, ShardOptions};
use brimful::storage::{Io, Profile, choose_io};
use brimful::transform::Compose;
use pyo3::prelude::*;

use crate::error::{choice, raise};
use crate::waiting::{interruptible, report};

/// The shards of a data set, their index, and what is wanted of their samples.
#[pyclass(frozen, module = "brimful._native")]
pub(crate) struct Dataset {
    pub(crate) shards: Shards,
    /// Reading threads that suit the storage, and samples that each asks for ahead; 0 for the loader's own defaults.
    pub(crate) readers: usize,
    pub(crate) samples_ahead: usize,
    profile: Option<Profile>,
}

#[pymethods]
impl Dataset {
    #[new]
    #[pyo3(signature = (
        patterns, *, fields, transform, mode, exif, decoder, truncated, io, damage, memory_limit_bytes, access,
        key_split, duplicates, keep_appledouble, index_cache, index_threads, io_profiles, progress
    ))]
    #[expect(clippy::too_many_arguments, reason = "the keywords of one constructor, each passed on as it is")]
    fn new(
        py: Python<'_>,
        patterns: Vec<OsString>,
        fields: Vec<String>,
        transform: &str,
        mode: &str,
        exif: bool,
        decoder: &str,
        truncated: &str,
        io: &str,
        damage: &str,
        memory_limit_bytes: u64,
        access: &str,
        key_split: &str,
        duplicates: &str,
        keep_appledouble: bool,
        index_cache: Option<PathBuf>,
        index_threads: usize,
        io_profiles: Option<PathBuf>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let decode = decoding(mode, exif, decoder, truncated)?;
        let io = io_choice(io)?;
        let shards = ShardOptions {
            damage: choice("damage", damage, &[("strict", Damage::Strict), ("resync", Damage::Resync)])?,
            memory_limit_bytes,
            ..ShardOptions::default()
        };
        let grouping = Grouping {
            keep_appledouble,
            key_split: choice("key_split", key_split, &[("first", KeySplit::FirstDot), ("last", KeySplit::LastDot)])?,
            duplicates: choice(
                "duplicates",
                duplicates,
                &[("error", Duplicates::Error), ("keep_first", Duplicates::KeepFirst)],
            )?,
        };
        let access = choice(
            "access",
            access,
            &[("auto", Access::Auto), ("indexed", Access::Indexed), ("stream", Access::Stream)],
        )?;
        let transform = Compose::from_json(transform).map_err(raise)?;
        let mut options =
            DatasetOptions { fields, transform, decode, shards, grouping, access, index_cache, index_threads };
        let opened = interruptible(py, move || {
            let list = ShardList::from_patterns(&patterns)?;
            let chosen = choose_io(io, io_profiles.as_deref(), list.paths())?;
            (options.shards.io, options.shards.opener) = (chosen.method, chosen.opener);
            let shards = Shards::open(&list, options, &|done, of| report(progress.as_ref(), done, of))?;
            let (readers, samples_ahead) = (chosen.readers, chosen.samples_ahead);
            Ok(Self { shards, readers, samples_ahead, profile: chosen.profile })
        })?;
        opened.map_err(raise)
    }

    /// Image files with the numbers of their classes; options as in the constructor.
    #[staticmethod]
    #[pyo3(signature = (root, paths, classes, *, transform, mode, exif, decoder, truncated, io))]
    #[expect(clippy::too_many_arguments, reason = "the keywords of one constructor, each passed on as it is")]
    fn of_files(
        py: Python<'_>,
        root: PathBuf,
        paths: Vec<PathBuf>,
        classes: Vec<i64>,
        transform: &str,
        mode: &str,
        exif: bool,
        decoder: &str,
        truncated: &str,
        io: &str,
    ) -> PyResult<Self> {
        let chosen = choose_io(io_choice(io)?, None, &[]).map_err(raise)?;
        let options = DatasetOptions {
            transform: Compose::from_json(transform).map_err(raise)?,
            decode: decoding(mode, exif, decoder, truncated)?,
            shards: ShardOptions { io: chosen.method, opener: chosen.opener, ..ShardOptions::default() },
            ..DatasetOptions::default()
        };
        let opened = py.detach(|| Shards::of_files(&root, paths, classes, options));
        let (readers, samples_ahead) = (chosen.readers, chosen.samples_ahead);
        Ok(Self { shards: opened.map_err(raise)?, readers, samples_ahead, profile: None })
    }

    /// Several data sets one after the other, each whole (`None`) or only the samples with the numbers given.
    #[staticmethod]
    fn join(py: Python<'_>, parts: Vec<(PyRef<'_, Self>, Option<Vec<usize>>)>) -> PyResult<Self> {
        // Every part has the threads that its storage wants, and the first one's profile speaks for all.
        let most = |of: fn(&Self) -> usize| parts.iter().map(|(dataset, _)| of(dataset)).max().unwrap_or(0);
        let (readers, samples_ahead) = (most(|part| part.readers), most(|part| part.samples_ahead));
        let profile = parts.iter().find_map(|(dataset, _)| dataset.profile.clone());
        let parts = parts.into_iter().map(|(dataset, numbers)| (dataset.shards.clone(), numbers)).collect();
        let joined = py.detach(|| Shards::join(parts));
        Ok(Self { shards: joined.map_err(raise)?, readers, samples_ahead, profile })
    }

    /// What the storage's profile says that `io="auto"` follows, as a sentence; `None` where there is none to follow.
    #[getter]
    fn io_profile(&self) -> Option<String> {
        let profile = self.profile.as_ref()?;
        let found = &profile.recommended;
        let how = match self.samples_ahead {
            0 => format!("by {} threads", found.threads),
            ahead => format!("with {ahead} samples asked for ahead"),
        };
        // Readers are set wherever a profile is followed.
        let left = if self.readers == 0 {
            "; not followed: these data have room in memory, or allow no such reads"
        } else {
            ""
        };
        let (method, mount) = (found.method.as_str(), profile.mount.display());
        Some(format!("{method} {how}, as measured on {mount} ({}){left}", profile.filesystem))
    }

    /// Number of samples; `None` for a stream.
    #[getter]
    fn samples(&self) -> Option<usize> {
        self.shards.len()
    }

    /// What was lost or looks odd in the shards, one sentence each.
    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.shards.warnings().to_vec()
    }

    /// Paths of the shards, in order.
    #[getter]
    fn paths(&self) -> Vec<PathBuf> {
        self.shards.paths().to_vec()
    }

    /// A number that changes when shards, members or sizes change; 0 for a stream.
    #[getter]
    fn fingerprint(&self) -> u64 {
        self.shards.fingerprint()
    }

    /// Height and width of every image after the transform, where it fixes them.
    #[getter]
    fn image_size(&self) -> Option<(u32, u32)> {
        self.shards.options().transform.output_size()
    }

    /// For each field, whether it is decoded as an image.
    #[getter]
    fn image_fields(&self) -> Vec<bool> {
        self.shards.fields().iter().map(|field| field.is_image()).collect()
    }

    /// The key of sample `ordinal` as stored; `None` where there is no such sample or no index.
    fn key(&self, ordinal: usize) -> Option<Vec<u8>> {
        self.shards.key(ordinal).map(|key| key.as_bytes().to_vec())
    }

    fn __repr__(&self) -> String {
        format!("Dataset(shards={}, samples={:?})", self.shards.paths().len(), self.shards.len())
    }
}

/// Checks the JSON form of a transform; returns it with every argument spelled out.
#[pyfunction]
pub(crate) fn check_transform(json: &str) -> PyResult<String> {
    Compose::from_json(json).map(|compose| compose.to_json()).map_err(raise)
}

fn decoding(mode: &str, exif: bool, decoder: &str, truncated: &str) -> PyResult<DecodeOptions> {
    Ok(DecodeOptions {
        mode: color_mode(mode)?,
        exif,
        backend: backend(decoder)?,
        truncated: choice("truncated", truncated, &[("refuse", Truncated::Refuse), ("allow", Truncated::Allow)])?,
        ..DecodeOptions::default()
    })
}

fn io_choice(io: &str) -> PyResult<Io> {
    let methods =
        [("auto", Io::Auto), ("mmap", Io::Mmap), ("read", Io::Read), ("direct", Io::Direct), ("uring", Io::Uring)];
    choice("io", io, &methods)
}

pub(crate) fn color_mode(mode: &str) -> PyResult<ColorMode> {
    choice("mode", mode, &[("RGB", ColorMode::Rgb), ("L", ColorMode::Grey)])
}

pub(crate) fn backend(decoder: &str) -> PyResult<Backend> {
    let backends = [
        ("auto", Backend::Auto),
        ("cpu", Backend::Auto),
        ("baseline", Backend::Baseline),
        ("turbo", Backend::Turbo),
        ("zune", Backend::Zune),
    ];
    choice("decoder", decoder, &backends)
}
