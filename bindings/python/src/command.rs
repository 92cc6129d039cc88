//! The command line of the library, for the wheel's console script. What Python itself runs of it is decided in
//! `brimful.__main__`.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use brimful::shard::Draft;
use pyo3::prelude::*;

use crate::error::raise;
use crate::waiting::{interruptible, report};

/// Runs `brimful` with `argv`, whose first entry is the program's name; returns the exit code.
#[pyfunction]
pub(crate) fn cli_main(py: Python<'_>, argv: Vec<OsString>) -> u8 {
    py.detach(|| brimful::cli::run(argv))
}

/// Makes shards of generated photos below `dir`, or finds them there; returns their paths.
#[pyfunction]
#[pyo3(signature = (dir, *, samples, shards, seed, threads, progress))]
pub(crate) fn make_demo_shards(
    py: Python<'_>,
    dir: PathBuf,
    samples: usize,
    shards: usize,
    seed: u64,
    threads: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<PathBuf>> {
    let work = move || {
        brimful::cli::make_demo_shards(&dir, samples, shards, seed, threads, &|done, of| {
            report(progress.as_ref(), done, of);
        })
    };
    interruptible(py, work)?.map_err(raise)
}

/// Writes a whole file or none; a link is followed, and what is no file is written to as it is.
#[pyfunction]
pub(crate) fn write_file(py: Python<'_>, path: PathBuf, text: String) -> PyResult<()> {
    let written = interruptible(py, move || {
        let mut draft = Draft::create(&path)?;
        draft.write_all(text.as_bytes())?;
        draft.finish()
    })?;
    Ok(written.map(drop)?)
}
