//! `brimful._native`: the library for Python. It translates arguments, errors and tensors; the package `brimful` beside
//! it is what users import, and the library is where decisions are made.

mod error;
mod waiting;
#[expect(unsafe_code, reason = "hands host and device memory to Python through DLPack")]
mod dlpack;
mod batch;
mod dataset;
mod stats;
mod loader;
mod io;
mod tune;
mod command;
mod page;

/// The native half of the package `brimful`; import that one.
#[pyo3::pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::batch::{Batch, Mark};
    #[pymodule_export]
    use crate::command::{cli_main, make_demo_shards, write_file};
    #[pymodule_export]
    use crate::dataset::{Dataset, check_transform};
    #[pymodule_export]
    use crate::dlpack::Tensor;
    #[pymodule_export]
    use crate::dlpack::device::DeviceTensor;
    #[pymodule_export]
    use crate::io::decode_image;
    #[pymodule_export]
    use crate::loader::{Epoch, Loader};
    #[pymodule_export]
    use crate::page::{page_html, page_text};
    #[pymodule_export]
    use crate::tune::{BatchSearch, GpuSampler, findings, known_gpus, roofline};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("jpeg_backends", brimful::decode::backends().to_vec())
    }
}
