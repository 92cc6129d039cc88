//! Result pages for Python: JSON in, text or HTML out. What a page holds, and how it looks, is the library's business.

use brimful::report::Page;
use pyo3::prelude::*;

use crate::error::raise;

/// A page, given as the JSON of the library's `report::Page`, as one HTML document that loads nothing.
#[pyfunction]
pub(crate) fn page_html(py: Python<'_>, json: &str) -> PyResult<String> {
    py.detach(|| Page::from_json(json).map(|page| page.to_html())).map_err(raise)
}

/// The same page as text for a terminal.
#[pyfunction]
pub(crate) fn page_text(py: Python<'_>, json: &str) -> PyResult<String> {
    py.detach(|| Page::from_json(json).map(|page| page.to_text())).map_err(raise)
}
