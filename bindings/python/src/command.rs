//! The command line of the library, for the wheel's console script. What Python itself runs of it is decided in
//! `brimful.__main__`.

use std::ffi::OsString;
use std::path::PathBuf;

use pyo3::prelude::*;

use crate::error::raise;

/// How many photos are made between two calls of a progress function: each call takes the interpreter's lock.
const PROGRESS_EVERY: usize = 8;

/// Runs `brimful` with `argv`, whose first entry is the program's name; returns the exit code.
#[pyfunction]
pub(crate) fn cli_main(py: Python<'_>, argv: Vec<OsString>) -> u8 {
    py.detach(|| brimful::cli::run(argv))
}

/// Makes shards of generated photos below `folder` on all cores, or finds them there; returns their paths.
///
/// `progress(done, of)` is called now and then, from any thread; what it raises is dropped.
#[pyfunction]
#[pyo3(signature = (folder, *, samples, shards, seed, progress))]
pub(crate) fn make_demo_shards(
    py: Python<'_>,
    folder: PathBuf,
    samples: usize,
    shards: usize,
    seed: u64,
    progress: Py<PyAny>,
) -> PyResult<Vec<PathBuf>> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let told = |done: usize, of: usize| {
        if done.is_multiple_of(PROGRESS_EVERY) || done == of {
            Python::attach(|py| drop(progress.call1(py, (done, of))));
        }
    };
    py.detach(|| brimful::cli::make_demo_shards(&folder, samples, shards, seed, threads, &told)).map_err(raise)
}
