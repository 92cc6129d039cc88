//! From readings to a batch size, and to what holds a run back. Nothing here runs a model, waits or looks at a clock:
//! measurements are given to it, so that all of it can be replayed without a GPU; only a probe reads the driver.

mod sizes;
mod window;
mod curve;
mod controller;
mod search;
mod probe;
mod sampler;
#[cfg(feature = "nvml")]
#[expect(unsafe_code, reason = "calls of NVIDIA's library that its wrapper lacks, and handles that live beside it")]
mod nvml;
mod roofline;
mod finding;

pub use controller::{BatchSizeController, Change, Decision, Limit, Options, Phase, Reason};
pub use finding::{Finding, FindingKind, Readings, findings};
#[cfg(feature = "nvml")]
pub use nvml::GpuProbe;
pub use probe::{Probe, Reading, ReplayProbe, Throttle};
pub use roofline::{GpuKind, Precision, Roofline, Source, known_gpu, known_gpus};
pub use sampler::{Sampler, mean};
pub use search::Search;
pub use sizes::Sizes;
pub use window::{Measurement, Step, Window};
