//! Single samples and lists of them, read and decoded on the caller's thread: for map-style access. It takes the same
//! steps as the decode threads, through the same code.

use std::collections::VecDeque;
use std::sync::Arc;

use crossbeam::channel;

use super::assembly::Assembly;
use super::dataset::Dataset;
use super::peers::Peers;
use super::planner::Output;
use super::settle::Job;
use super::worker::{Intake, Worker};
use super::{Batch, Loader};
use crate::{Error, ErrorKind, Result};

impl Loader {
    /// The samples numbered `ordinals`, as one batch, augmented as in `epoch`; on this thread alone.
    ///
    /// # Errors
    /// Those of the first bad sample, whatever the loader's error policy; [`ErrorKind::InvalidOption`] for a number
    /// that does not exist.
    pub fn fetch(&self, ordinals: &[usize], epoch: u64) -> Result<Batch> {
        let (output, finished) = channel::unbounded();
        let pipeline = Arc::new(self.shared.single_pipeline(ordinals.len())?);
        let assembly = Assembly::new(&pipeline.plan, &pipeline.pool, 0, epoch, 0)?;
        let dataset: &Dataset = &pipeline.dataset;
        let jobs: VecDeque<Job> = ordinals
            .iter()
            .enumerate()
            .map(|(row, &ordinal)| Job {
                assembly: Arc::clone(&assembly),
                row,
                position: row,
                peers: Peers::None,
                occurrence: 0,
                sample: dataset.read(ordinal, |_| true),
                attempt: 0,
            })
            .collect();
        let empty = || Error::new(ErrorKind::InvalidOption, "a batch needs at least one sample");
        if jobs.is_empty() {
            return Err(empty());
        }
        drop(assembly);
        Worker::new(Arc::clone(&pipeline), Intake::List(jobs), output)?.run()?;
        match finished.try_recv() {
            Ok(Output::Batch(finished)) => finished.batch.unwrap_or_else(|| Err(empty())),
            _ => Err(Error::new(ErrorKind::Cancelled, "the samples were not finished")),
        }
    }
}
