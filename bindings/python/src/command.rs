//! The command line of the library, for the wheel's console script. What Python itself runs of it is decided in
//! `brimful.__main__`.

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs `brimful` with `argv`, whose first entry is the program's name; returns the exit code.
#[pyfunction]
pub(crate) fn cli_main(py: Python<'_>, argv: Vec<OsString>) -> u8 {
    py.detach(|| brimful::cli::run(argv))
}
