//! Tensors handed to NumPy, torch and others through DLPack, without a copy: those in host memory here, those on a GPU in
//! [`device`]. It imports nothing.

pub(crate) mod device;

use std::ffi::c_void;
use std::sync::Arc;

use brimful::batch::{Dtype, HostTensor};
use dlpark::ffi::{DLDataType, DLDataTypeCode, DLDevice, DLManagedTensor, DLManagedTensorVersioned};
use dlpark::metadata::Dynamic;
use dlpark::python::{DlpackExporter, ExportRequest, export_dlpack};
use dlpark::{DlpackFlags, Managed, ManagedTensorBase};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

/// A tensor whose bytes belong to whoever imports it.
///
/// Invariant: `data` was taken from an exclusive borrow of `tensor.data`, and since then nothing in Rust reads or
/// writes the bytes or borrows them; `tensor` is kept only so that its memory lives, and goes back to its pool when the
/// last importer lets go. The size that `shape`, `strides` and `dtype` describe lies within `tensor.data`.
struct Lent {
    tensor: HostTensor,
    data: *mut u8,
}

// SAFETY: by the type's invariant the pointer is never followed in Rust, and the tensor that owns the bytes is `Send`.
unsafe impl Send for Lent {}
// SAFETY: a shared `Lent` gives access to numbers (shape, strides, dtype, an address), never to the bytes.
unsafe impl Sync for Lent {}

/// A dense tensor in host memory, ready for `numpy.from_dlpack` or `torch.from_dlpack`: both see the same bytes, and
/// both may write them.
#[pyclass(frozen, module = "brimful._native")]
pub(crate) struct Tensor {
    lent: Arc<Lent>,
}

impl Tensor {
    pub(crate) fn new(mut tensor: HostTensor) -> Self {
        let data = tensor.data.as_mut_ptr();
        Self { lent: Arc::new(Lent { tensor, data }) }
    }

    fn managed<M: ManagedTensorBase>(&self) -> PyResult<Managed<M>> {
        let HostTensor { shape, strides, dtype, .. } = &self.lent.tensor;
        let mut managed = Dynamic::new(shape.as_slice(), strides.as_slice())
            .initialize_as::<M>(Arc::clone(&self.lent))
            .map_err(|error| PyBufferError::new_err(error.to_string()))?;
        managed.set_data(self.lent.data.cast::<c_void>()).set_dtype(data_type(*dtype)).set_device(DLDevice::CPU);
        // SAFETY: by the invariant of `Lent` the address stays good while the context, an owner of it, lives; shape and
        // strides were copied into the allocation and describe bytes of it; no flag is set, and the bytes are writable
        // because nothing in Rust borrows them.
        Ok(unsafe { managed.finish() })
    }
}

#[pymethods]
impl Tensor {
    /// Size of each dimension.
    #[getter]
    fn shape(&self) -> Vec<usize> {
        self.lent.tensor.shape.clone()
    }

    /// Distance of neighbours along each dimension, in elements.
    #[getter]
    fn strides(&self) -> Vec<usize> {
        self.lent.tensor.strides.clone()
    }

    /// NumPy's name of the element type.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.lent.tensor.dtype.as_str()
    }

    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(u32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Py<PyAny>> {
        export_dlpack(self, py, ExportRequest::parse(stream, max_version, dl_device, copy)?)
    }

    fn __dlpack_device__(&self) -> (u32, i32) {
        (DLDevice::CPU.device_type.0, DLDevice::CPU.device_id)
    }

    fn __len__(&self) -> usize {
        self.lent.tensor.shape.first().copied().unwrap_or(0)
    }

    fn __repr__(&self) -> String {
        format!("Tensor(shape={:?}, dtype={})", self.lent.tensor.shape, self.dtype())
    }
}

impl DlpackExporter for Tensor {
    fn device(&self) -> DLDevice {
        DLDevice::CPU
    }

    fn flags(&self) -> DlpackFlags {
        DlpackFlags::empty()
    }

    fn prepare_export(&self, _py: Python<'_>, _request: &ExportRequest<'_>) -> PyResult<()> {
        // Host memory was finished before the tensor was made: there is nothing to wait for.
        Ok(())
    }

    fn export_legacy(&self, _py: Python<'_>) -> PyResult<Managed<DLManagedTensor>> {
        self.managed()
    }

    fn export_versioned(&self, _py: Python<'_>) -> PyResult<Managed<DLManagedTensorVersioned>> {
        self.managed()
    }
}

fn data_type(dtype: Dtype) -> DLDataType {
    let code = match dtype {
        Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::U64 => DLDataTypeCode::UINT,
        Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64 => DLDataTypeCode::INT,
        Dtype::Bool => DLDataTypeCode::BOOL,
        Dtype::BF16 => DLDataTypeCode::BFLOAT,
        _ => DLDataTypeCode::FLOAT,
    };
    // No element is wider than 8 bytes.
    DLDataType::scalar(code, dtype.size_bytes() as u8 * 8)
}
