//! Tensors on a GPU handed to torch, CuPy, JAX and others through DLPack, without a copy and without waiting: the
//! consumer's stream is made to wait for the batch, and the batch's memory for the consumer's stream.

use std::ffi::c_void;
use std::sync::Arc;

use brimful::batch::DeviceArray;
use brimful::device::lease::{self, Lease};
use brimful::device::stream::StreamHandle;
use dlpark::ffi::{DLDevice, DLManagedTensor, DLManagedTensorVersioned};
use dlpark::metadata::Dynamic;
use dlpark::python::{CudaStreamRequest, DlpackExporter, ExportRequest, export_dlpack};
use dlpark::{DlpackFlags, Managed, ManagedTensorBase};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use super::data_type;

/// A dense tensor in the memory of a GPU, ready for `torch.from_dlpack` and those of other frameworks.
///
/// Its memory is used again once every importer let go of it and the streams that they imported it on are through.
#[pyclass(frozen, module = "brimful._native")]
pub(crate) struct DeviceTensor {
    tensor: Arc<lease::DeviceTensor>,
}

impl DeviceTensor {
    pub(crate) fn new(tensor: Arc<lease::DeviceTensor>) -> Self {
        Self { tensor }
    }

    fn dl_device(&self) -> DLDevice {
        DLDevice::cuda(i32::try_from(self.tensor.ordinal()).unwrap_or(i32::MAX))
    }

    fn lend(&self, request: CudaStreamRequest) -> PyResult<Lease> {
        let stream = match request {
            // It orders its work by itself, on a stream that it does not name.
            CudaStreamRequest::NoSync => return Ok(self.tensor.lend_unordered()),
            CudaStreamRequest::Omitted | CudaStreamRequest::LegacyDefault => StreamHandle::LEGACY,
            CudaStreamRequest::PerThreadDefault => StreamHandle::PER_THREAD,
            // SAFETY: by the protocol the consumer passes a stream of the tensor's device on which it will use the
            // tensor, and which therefore lives at least as long as the tensor does there.
            CudaStreamRequest::Pointer(handle) => unsafe { StreamHandle::from_raw(handle) },
        };
        // Not a TypeError: on that torch would ask again with fewer arguments.
        self.tensor.lend(stream).map_err(|error| {
            let hint = error.hint().map_or_else(String::new, |hint| format!("; {hint}"));
            PyBufferError::new_err(format!("{error}{hint}"))
        })
    }
}

#[pymethods]
impl DeviceTensor {
    /// Size of each dimension.
    #[getter]
    fn shape(&self) -> Vec<usize> {
        self.tensor.shape().to_vec()
    }

    /// Distance of neighbours along each dimension, in elements.
    #[getter]
    fn strides(&self) -> Vec<usize> {
        self.tensor.strides().to_vec()
    }

    /// NumPy's name of the element type, and "bfloat16".
    #[getter]
    fn dtype(&self) -> &'static str {
        self.tensor.dtype().as_str()
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
        let request = ExportRequest::parse(stream, max_version, dl_device, copy)?;
        let lease = Arc::new(self.lend(request.cuda_stream()?)?);
        export_dlpack(&Lent { tensor: self, lease }, py, request)
    }

    fn __dlpack_device__(&self) -> (u32, i32) {
        let device = self.dl_device();
        (device.device_type.0, device.device_id)
    }

    fn __len__(&self) -> usize {
        self.tensor.shape().first().copied().unwrap_or(0)
    }

    fn __repr__(&self) -> String {
        let (shape, dtype) = (self.tensor.shape(), self.dtype());
        format!("DeviceTensor(shape={shape:?}, dtype={dtype}, device=cuda:{})", self.tensor.ordinal())
    }
}

/// One export of a tensor: the lease ends with the importer's last reference.
struct Lent<'a> {
    tensor: &'a DeviceTensor,
    lease: Arc<Lease>,
}

impl Lent<'_> {
    fn managed<M: ManagedTensorBase>(&self) -> PyResult<Managed<M>> {
        let tensor = &self.tensor.tensor;
        let mut managed = Dynamic::new(tensor.shape(), tensor.strides())
            .initialize_as::<M>(Arc::clone(&self.lease))
            .map_err(|error| PyBufferError::new_err(error.to_string()))?;
        managed
            .set_data(tensor.address() as *mut c_void)
            .set_dtype(data_type(tensor.dtype()))
            .set_device(self.tensor.dl_device());
        // SAFETY: the address stays good while the context, a lease of it, lives; shape and strides were copied into
        // the allocation and describe memory of the slot; no flag is set, and the memory is the importer's to write.
        Ok(unsafe { managed.finish() })
    }
}

impl DlpackExporter for Lent<'_> {
    fn device(&self) -> DLDevice {
        self.tensor.dl_device()
    }

    fn flags(&self) -> DlpackFlags {
        DlpackFlags::empty()
    }

    fn prepare_export(&self, _py: Python<'_>, _request: &ExportRequest<'_>) -> PyResult<()> {
        // The consumer's stream was made to wait when the lease was taken.
        Ok(())
    }

    fn export_legacy(&self, _py: Python<'_>) -> PyResult<Managed<DLManagedTensor>> {
        self.managed()
    }

    fn export_versioned(&self, _py: Python<'_>) -> PyResult<Managed<DLManagedTensorVersioned>> {
        self.managed()
    }
}
