//! The search for a batch size, readings of a GPU, and what holds a run back, for Python. Documents go through as JSON;
//! the library decides.

use brimful::tune::{self, Options, Precision, Reading, ReplayProbe, Roofline, Sizes, Step};
use brimful::{Error, ErrorKind};
use pyo3::prelude::*;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{choice, raise};

/// The search for the batch size of one training run.
#[pyclass(frozen, module = "brimful._native")]
pub(crate) struct BatchSearch {
    sizes: Sizes,
    search: Mutex<tune::Search>,
}

impl BatchSearch {
    fn search(&self) -> MutexGuard<'_, tune::Search> {
        self.search.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl BatchSearch {
    #[new]
    #[pyo3(signature = (*, min, max, multiple_of, per_rank, target, headroom, warm_up, steps))]
    #[expect(clippy::too_many_arguments, reason = "the keywords of one constructor, each passed on as it is")]
    fn new(
        min: usize,
        max: usize,
        multiple_of: usize,
        per_rank: Option<usize>,
        target: f64,
        headroom: f64,
        warm_up: usize,
        steps: usize,
    ) -> PyResult<Self> {
        let sizes = match per_rank {
            None => Sizes::multiples(min, max, multiple_of),
            Some(samples) => Sizes::divisors(samples, min, max, multiple_of),
        };
        let sizes = sizes.map_err(raise)?;
        let options = Options { sizes: sizes.clone(), target, headroom };
        let search = tune::Search::new(options, warm_up, steps).map_err(raise)?;
        Ok(Self { sizes, search: Mutex::new(search) })
    }

    /// All sizes that may be chosen.
    #[getter]
    fn sizes(&self) -> Vec<usize> {
        self.sizes.as_slice().to_vec()
    }

    /// The size that steps should have now.
    #[getter]
    fn batch_size(&self) -> usize {
        self.search().controller().batch_size()
    }

    /// What the search is doing.
    #[getter]
    fn phase(&self) -> PyResult<String> {
        word(&self.search().controller().phase())
    }

    /// What holds the run back, as far as it is known.
    #[getter]
    fn limit(&self) -> PyResult<String> {
        word(&self.search().controller().limit())
    }

    /// Sizes that were run, with samples a second.
    #[getter]
    fn rates(&self) -> Vec<(usize, f64)> {
        self.search().controller().rates()
    }

    /// Steps of the present size that a decision needs.
    #[getter]
    fn steps_wanted(&self) -> usize {
        self.search().steps_wanted()
    }

    /// Takes a step.
    fn step(&self, rows: usize, elapsed_s: f64, waited_s: f64) {
        self.search().step(Step { rows, elapsed_s, waited_s });
    }

    /// What the steps since the last decision were, for ranks to take the least of.
    #[pyo3(signature = (reading, memory))]
    fn vector(&self, reading: Option<&str>, memory: Option<(u64, u64)>) -> PyResult<Vec<f64>> {
        let reading = reading.map(document::<Reading>).transpose()?;
        Ok(self.search().vector(reading.as_ref(), memory))
    }

    /// Decides by the least vector of all ranks; the decision as JSON.
    fn decide(&self, vector: Vec<f64>) -> PyResult<String> {
        told(&self.search().decide(&vector))
    }

    /// Takes note of a size that ran out of memory; the decision as JSON.
    fn out_of_memory(&self, size: usize) -> PyResult<String> {
        told(&self.search().out_of_memory(size))
    }

    /// Leaves out the steps since the last decision.
    fn renew(&self) {
        self.search().renew();
    }

    /// The search as a text.
    fn state(&self) -> PyResult<String> {
        self.search().state().map_err(raise)
    }

    /// Goes on with a saved search.
    fn load_state(&self, state: &str) -> PyResult<()> {
        self.search().load_state(state).map_err(raise)
    }
}

/// A decision with its reason in words.
fn told(decision: &tune::Decision) -> PyResult<String> {
    let reason = decision.change.map(|change| change.reason.to_string());
    json(&serde_json::json!({ "decision": decision, "reason": reason }))
}

/// Readings of a GPU, taken on a thread of their own.
#[pyclass(frozen, module = "brimful._native")]
pub(crate) struct GpuSampler {
    sampler: tune::Sampler,
}

#[pymethods]
impl GpuSampler {
    /// The GPU with this UUID.
    #[new]
    #[pyo3(signature = (uuid, *, rate_hz))]
    fn new(py: Python<'_>, uuid: &str, rate_hz: f64) -> PyResult<Self> {
        let sampler = py.detach(|| tune::Sampler::start(tune::GpuProbe::open(uuid)?, rate_hz));
        Ok(Self { sampler: sampler.map_err(raise)? })
    }

    /// Recorded readings, each as JSON, one a reading.
    #[staticmethod]
    #[pyo3(signature = (readings, *, rate_hz))]
    fn replay(readings: Vec<String>, rate_hz: f64) -> PyResult<Self> {
        let readings: Vec<Reading> = readings.iter().map(|text| document(text)).collect::<PyResult<_>>()?;
        Ok(Self { sampler: tune::Sampler::start(ReplayProbe::new(readings), rate_hz).map_err(raise)? })
    }

    /// The mean of the readings since the last call as JSON, None without any.
    fn take(&self) -> PyResult<Option<String>> {
        tune::mean(&self.sampler.take()).map(|reading| json(&reading)).transpose()
    }

    /// What is read and what is not, and why.
    fn describe(&self) -> &str {
        self.sampler.describe()
    }
}

/// What holds a run back, from its readings; both as JSON.
#[pyfunction]
pub(crate) fn findings(readings: &str) -> PyResult<String> {
    json(&tune::findings(&document(readings)?))
}

/// The GPUs that are known, as JSON.
#[pyfunction]
pub(crate) fn known_gpus() -> PyResult<String> {
    json(&tune::known_gpus())
}

/// How many samples a second the GPU of this name allows at most, as JSON; None for one that is not known.
#[pyfunction]
pub(crate) fn roofline(
    gpu: &str,
    precision: &str,
    flops: f64,
    memory_bytes: f64,
    host_bytes: f64,
) -> PyResult<Option<String>> {
    let precisions = [("float32", Precision::Float32), ("tf32", Precision::TensorFloat32), ("half", Precision::Half)];
    let precision = choice("precision", precision, &precisions)?;
    let Some(gpu) = tune::known_gpu(gpu) else { return Ok(None) };
    let bounds = Roofline::new(gpu, precision, flops, memory_bytes, host_bytes);
    let (per_s, lowest) = bounds.lowest();
    json(&serde_json::json!({ "gpu": gpu, "bounds": bounds, "lowest": lowest, "per_s": per_s })).map(Some)
}

fn json(value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|error| raise(Error::new(ErrorKind::InvalidOption, error.to_string())))
}

/// A value whose JSON is one word.
fn word(value: &impl serde::Serialize) -> PyResult<String> {
    Ok(json(value)?.trim_matches('"').to_owned())
}

fn document<T: serde::de::DeserializeOwned>(text: &str) -> PyResult<T> {
    let wrong =
        |error: serde_json::Error| Error::new(ErrorKind::InvalidOption, format!("not such a document: {error}"));
    serde_json::from_str(text).map_err(|error| raise(wrong(error)))
}
