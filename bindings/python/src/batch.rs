//! A batch of the library as a Python object: tensors as DLPack exporters, everything else as lists. It copies no
//! tensor.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use brimful::batch::{Column, RowValue};
use brimful::loader;
use brimful::sample::Key;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyNotImplementedError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use serde_json::Value;

use crate::dlpack::Tensor;
use crate::dlpack::device::DeviceTensor;

/// One batch: `len` rows, one column a field.
#[pyclass(frozen, module = "brimful._native")]
pub(crate) struct Batch {
    /// The epoch it belongs to.
    #[pyo3(get)]
    epoch: u64,
    /// Its number in the epoch.
    #[pyo3(get)]
    index: usize,
    /// Numbers of its samples in the data set, in row order.
    #[pyo3(get)]
    samples: Vec<u64>,
    mark: loader::Mark,
    keys: Vec<Key>,
    /// For each sample a number from (seed, epoch, sample), where rows are delivered.
    #[pyo3(get)]
    draws: Vec<u64>,
    len: usize,
    columns: Vec<Py<PyAny>>,
}

impl Batch {
    pub(crate) fn new(py: Python<'_>, batch: loader::Batch) -> PyResult<Self> {
        let len = batch.len();
        let loader::Batch { epoch, index, samples, mark, keys, draws, columns, .. } = batch;
        let columns = columns.into_iter().map(|column| python_column(py, column)).collect::<PyResult<_>>()?;
        Ok(Self { epoch, index, samples, mark, keys, draws, len, columns })
    }
}

/// A place between two batches.
#[pyclass(frozen, module = "brimful._native")]
pub(crate) struct Mark(pub(crate) loader::Mark);

#[pymethods]
impl Batch {
    /// The loader's place after it.
    #[getter]
    fn mark(&self) -> Mark {
        Mark(self.mark)
    }

    /// Keys of its samples, as `os.fsdecode` gives them, where rows are delivered; empty otherwise.
    #[getter]
    fn keys(&self) -> Vec<&OsStr> {
        self.keys.iter().map(|key| OsStr::from_bytes(key.as_bytes())).collect()
    }

    /// One object a field: a `Tensor`, or a list of tensors, numbers, `str`, `bytes` or JSON values.
    #[getter]
    fn columns(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        self.columns.iter().map(|column| column.clone_ref(py)).collect()
    }

    fn __len__(&self) -> usize {
        self.len
    }

    fn __repr__(&self) -> String {
        format!("Batch(epoch={}, index={}, rows={}, columns={})", self.epoch, self.index, self.len, self.columns.len())
    }
}

fn python_column(py: Python<'_>, column: Column) -> PyResult<Py<PyAny>> {
    match column {
        Column::Tensor(tensor) => Tensor::new(tensor).into_py_any(py),
        Column::Texts(rows) => rows.into_py_any(py),
        // As `os.fsdecode`: bytes that are no text come as surrogates, and go back through `os.fsencode`.
        Column::Names(rows) => {
            let rows: Vec<_> = rows.iter().map(|row| OsStr::from_bytes(row)).collect();
            rows.into_py_any(py)
        }
        Column::Json(rows) => {
            let rows: Vec<_> = rows.iter().map(|row| python_value(py, row)).collect::<PyResult<_>>()?;
            rows.into_py_any(py)
        }
        Column::Tensors(rows) => {
            let rows: Vec<_> = rows.into_iter().map(|row| Tensor::new(row).into_py_any(py)).collect::<PyResult<_>>()?;
            rows.into_py_any(py)
        }
        Column::Values(rows) => {
            let rows: Vec<_> = rows.iter().map(|row| python_row(py, row)).collect::<PyResult<_>>()?;
            rows.into_py_any(py)
        }
        Column::Bytes(rows) => {
            let rows: Vec<_> = rows.iter().map(|row| PyBytes::new(py, row)).collect();
            rows.into_py_any(py)
        }
        Column::Device(array) => match array.as_any().downcast() {
            Ok(tensor) => DeviceTensor::new(tensor).into_py_any(py),
            Err(_) => Err(PyNotImplementedError::new_err("a tensor on a device that Python does not know")),
        },
        other => Err(PyNotImplementedError::new_err(format!("no Python form of {other:?}"))),
    }
}

fn python_row<'py>(py: Python<'py>, value: &RowValue) -> PyResult<Bound<'py, PyAny>> {
    match value {
        RowValue::Int(value) => value.into_bound_py_any(py),
        RowValue::Float(value) => value.into_bound_py_any(py),
        RowValue::Text(value) => value.into_bound_py_any(py),
        RowValue::Name(value) => OsStr::from_bytes(value).into_bound_py_any(py),
        RowValue::Bytes(value) => Ok(PyBytes::new(py, value).into_any()),
        RowValue::Json(value) => python_value(py, value),
        RowValue::Array(_) => Err(PyNotImplementedError::new_err("an array among values")),
    }
}

fn python_value<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    match value {
        Value::Null => Ok(py.None().into_bound(py)),
        Value::Bool(value) => value.into_bound_py_any(py),
        Value::String(value) => value.into_bound_py_any(py),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => int.into_bound_py_any(py),
            (None, Some(int)) => int.into_bound_py_any(py),
            (None, None) => number.as_f64().into_bound_py_any(py),
        },
        Value::Array(values) => {
            let list = PyList::empty(py);
            for value in values {
                list.append(python_value(py, value)?)?;
            }
            Ok(list.into_any())
        }
        Value::Object(members) => {
            let dict = PyDict::new(py);
            for (name, value) in members {
                dict.set_item(name, python_value(py, value)?)?;
            }
            Ok(dict.into_any())
        }
    }
}
