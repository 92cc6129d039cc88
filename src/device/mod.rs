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
#[cfg(feature = "cuda")]
#[expect(unsafe_code, reason = "nvJPEG is called through its C interface")]
pub mod nvjpeg;
#[cfg(feature = "cuda")]
#[expect(unsafe_code, reason = "a library of NVIDIA's profilers, behind its C interface")]
pub mod nvtx;
#[cfg(feature = "cuda")]
pub mod ring;
#[cfg(feature = "cuda")]
pub mod handover;
#[cfg(feature = "cuda")]
#[expect(unsafe_code, reason = "copies back from the GPU end before their borrow does")]
pub mod lease;
#[cfg(feature = "cuda")]
#[expect(unsafe_code, reason = "copies and kernels run after the call that begins them")]
pub mod transfer;

pub use cpu::RowWriter;
pub use table::NumberTable;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::{Error, ErrorKind, Result};

/// Where batches are delivered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Device {
    /// Host memory.
    #[default]
    Cpu,
    /// The memory of a GPU, by its number as CUDA counts those that the process sees.
    Cuda(usize),
}

impl FromStr for Device {
    type Err = Error;

    /// Reads `cpu`, `cuda` (the first GPU) or `cuda:N`.
    fn from_str(name: &str) -> Result<Self> {
        let number = match name {
            "cpu" => return Ok(Self::Cpu),
            "cuda" => Some(0),
            _ => name.strip_prefix("cuda:").and_then(|number| number.parse().ok()),
        };
        let unknown = || Error::new(ErrorKind::InvalidOption, format!("device={name:?} is not known"));
        number.map(Self::Cuda).ok_or_else(|| unknown().with_hint("use \"cpu\", \"cuda\" or \"cuda:1\""))
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

/// A row whose pixels are on the GPU already, as the host writes them: `[H, W, C]`, `u8`.
#[derive(Clone)]
pub struct DeviceRow {
    /// Address on the GPU.
    pub address: u64,
    /// Owns the memory; kept until the row was read.
    pub owner: Arc<dyn std::any::Any + Send + Sync>,
}

impl fmt::Debug for DeviceRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceRow").field("address", &self.address).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_named_as_in_torch() {
        for (name, device) in [("cpu", Device::Cpu), ("cuda:0", Device::Cuda(0)), ("cuda:13", Device::Cuda(13))] {
            assert_eq!(name.parse::<Device>().unwrap(), device);
            assert_eq!(device.to_string(), name);
        }
        assert_eq!("cuda".parse::<Device>().unwrap(), Device::Cuda(0));
        for wrong in ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "CUDA", "mps"] {
            assert_eq!(wrong.parse::<Device>().unwrap_err().kind(), ErrorKind::InvalidOption, "{wrong}");
        }
    }
}
