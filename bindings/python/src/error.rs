//! Errors of the library as Python exceptions. Which class stands for which kind is a table in `brimful.errors`; here
//! only the parts of an error cross over.

use brimful::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// Turns an error of the library into the exception that `brimful.errors` has for its kind.
pub(crate) fn raise(error: Error) -> PyErr {
    Python::attach(|py| exception(py, &error, false).unwrap_or_else(|failure| failure))
}

/// The same for an error that can only be about an image, since there is no archive.
pub(crate) fn raise_of_image(error: Error) -> PyErr {
    Python::attach(|py| exception(py, &error, true).unwrap_or_else(|failure| failure))
}

/// An error about an argument that never reached the library.
pub(crate) fn invalid(message: String, hint: String) -> PyErr {
    raise(Error::new(ErrorKind::InvalidOption, message).with_hint(hint))
}

fn exception(py: Python<'_>, error: &Error, of_image: bool) -> PyResult<PyErr> {
    static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let make = MAKE.import(py, "brimful.errors", "error_of_kind")?;
    let place = error.place();
    let parts = (
        error.kind().as_str(),
        error.to_string(),
        error.hint(),
        place.shard.as_deref(),
        place.key.as_deref(),
        place.field.as_deref(),
        place.offset,
        of_image,
    );
    Ok(PyErr::from_value(make.call1(parts)?))
}

/// One of the values that an option may have, by the word that Python users write.
pub(crate) fn choice<T: Copy>(option: &str, word: &str, choices: &[(&str, T)]) -> PyResult<T> {
    let found = choices.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let names: Vec<_> = choices.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        invalid(format!("{option}=\"{word}\" is not known"), format!("{option} is one of {}", names.join(", ")))
    })
}
