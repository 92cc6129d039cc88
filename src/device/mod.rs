//! From pixels of a finished sample to what a model eats, in host memory or a GPU's. It never decodes and never chooses
//! geometry.

pub mod table;
pub mod cpu;
#[cfg(feature = "cuda")]
#[expect(unsafe_code, reason = "contexts, streams, events and memory of a GPU, behind the driver's C interface")]
pub mod stream;
#[cfg(feature = "cuda")]
#[expect(unsafe_code, reason = "launches of GPU kernels, and tasks in the form that the GPU reads")]
pub mod kernels;
#[cfg(feature = "cuda")]
#[expect(unsafe_code, reason = "page-locked memory comes from the driver's C interface")]
pub mod pinned;

pub use cpu::RowWriter;
pub use table::NumberTable;
