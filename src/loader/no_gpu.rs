//! What stands in for a loader's GPU in a build without feature `cuda`: a clear refusal, and nothing else.

use std::sync::Arc;

use crossbeam::channel::{Receiver, Sender};

use super::builder::LoaderConfig;
use super::lanes::Lanes;
use super::pipeline::Pipeline;
use super::planner::Output;
use super::settle::Job;
use super::stats::{DeviceStats, Stage, Totals};
use crate::batch::HostAllocator;
use crate::transform::ValueOps;
use crate::{Error, ErrorKind, Result};

/// No GPU: a value of this type does not exist.
#[derive(Debug)]
pub(crate) enum GpuPath {}

impl GpuPath {
    /// # Errors
    /// Always.
    pub(crate) fn open(ordinal: usize, _: &LoaderConfig, _: &ValueOps) -> Result<Self> {
        let message = format!("GPU {ordinal} was asked for and this build has no CUDA support");
        let hint = "build with --features cuda, which needs no toolkit; wheels have it";
        Err(Error::new(ErrorKind::Unsupported, message).with_hint(hint))
    }

    pub(crate) fn ranges(&self) -> Ranges {
        match *self {}
    }

    pub(crate) fn allocator(&self) -> Arc<dyn HostAllocator> {
        match *self {}
    }

    pub(crate) fn trim(&self) -> usize {
        match *self {}
    }

    pub(crate) fn stats(&self, _: Totals) -> DeviceStats {
        match *self {}
    }

    pub(crate) fn start_engines(
        &self,
        _: &Arc<Pipeline>,
        _: usize,
        _: Sender<Job>,
        _: Sender<Output>,
        _: impl Clone + Send + 'static,
    ) -> Result<Option<(EngineLane, Arc<Lanes>)>> {
        match *self {}
    }

    pub(crate) fn start(
        &self,
        _: Arc<Pipeline>,
        _: Receiver<Output>,
        _: Sender<Output>,
        _: impl Send + 'static,
    ) -> Result<()> {
        match *self {}
    }
}

/// No ranges: there is no profiler to show them to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ranges {}

impl Ranges {
    pub(crate) fn open(&self, _: Stage) -> Option<()> {
        None
    }

    pub(crate) fn begin(&self, _: Stage) {}

    pub(crate) fn end(&self) {}
}

/// No engines: a value of this type does not exist.
#[derive(Debug, Clone)]
pub(crate) enum EngineLane {}

impl EngineLane {
    pub(crate) fn take(&self, _: Job, _: bool, _: &Pipeline) -> Option<Job> {
        match *self {}
    }
}
