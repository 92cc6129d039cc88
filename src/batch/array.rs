//! The seam for tensors that live in a device's memory: what a batch knows of them. Where they are and how they are
//! read is the device layer's business.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::Dtype;

/// A dense tensor in the memory of a device, made by the device layer.
pub trait DeviceArray: fmt::Debug + Send + Sync {
    /// Element type.
    fn dtype(&self) -> Dtype;

    /// Size of each dimension; the first is the batch.
    fn shape(&self) -> &[usize];

    /// Distance of neighbours along each dimension, in elements.
    fn strides(&self) -> &[usize];

    /// The concrete tensor, for those who know its device.
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}
