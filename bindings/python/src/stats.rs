//! What a loader counted, as dictionaries whose keys carry units. It computes nothing.

use brimful::loader::{BadSample, DeviceStats, Stats, StreamStats};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A snapshot of a loader's work.
pub(crate) fn document<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyDict>> {
    let document = PyDict::new(py);
    document.set_item("wall_s", stats.wall.as_secs_f64())?;
    document.set_item("samples", stats.samples)?;
    document.set_item("batches", stats.batches)?;
    document.set_item("bytes_read", stats.bytes_read)?;
    document.set_item("skipped", stats.skipped)?;
    document.set_item("replaced", stats.replaced)?;
    document.set_item("time_to_first_batch_s", stats.time_to_first_batch.map(|time| time.as_secs_f64()))?;
    document.set_item("decode_threads", stats.decode_threads)?;
    document.set_item("read_threads", stats.read_threads)?;
    document.set_item("consumer_behind_share", stats.consumer_behind_share)?;
    document.set_item("engines_busy_share", stats.engines_busy_share)?;
    let fallbacks = PyDict::new(py);
    for (refusal, count) in stats.fallbacks.iter() {
        fallbacks.set_item(refusal.as_str(), count)?;
    }
    document.set_item("decoder_fallbacks", fallbacks)?;
    document.set_item("bottleneck", stats.bottleneck.as_str())?;
    let stages = PyDict::new(py);
    for row in &stats.stages {
        let stage = PyDict::new(py);
        stage.set_item("items", row.items)?;
        stage.set_item("failures", row.failures)?;
        stage.set_item("busy_share", row.busy_share)?;
        stage.set_item("wait_share", row.wait_share)?;
        stages.set_item(row.stage.as_str(), stage)?;
    }
    document.set_item("stages", stages)?;
    document.set_item("device", stats.device.as_ref().map(|device| device_document(py, device)).transpose()?)?;
    document.set_item("stream", stats.stream.as_ref().map(|stream| stream_document(py, stream)).transpose()?)?;
    Ok(document)
}

fn stream_document<'py>(py: Python<'py>, stats: &StreamStats) -> PyResult<Bound<'py, PyDict>> {
    let document = PyDict::new(py);
    let counts = [
        ("shards", stats.shards),
        ("lost_shards", stats.lost_shards),
        ("damaged_shards", stats.damaged_shards),
        ("resyncs", stats.resyncs),
        ("lost_bytes", stats.lost_bytes),
        ("sparse", stats.sparse),
        ("missing_ends", stats.missing_ends),
        ("samples", stats.groups.samples),
        ("split_keys", stats.groups.split_keys),
        ("duplicate_fields", stats.groups.duplicate_fields),
        ("cut_samples", stats.groups.cut_samples),
        ("bad_samples", stats.groups.bad_samples),
        ("appledouble", stats.groups.appledouble),
        ("without_extension", stats.groups.without_extension),
    ];
    for (name, count) in counts {
        document.set_item(name, count)?;
    }
    Ok(document)
}

fn device_document<'py>(py: Python<'py>, device: &DeviceStats) -> PyResult<Bound<'py, PyDict>> {
    let document = PyDict::new(py);
    document.set_item("ordinal", device.ordinal)?;
    document.set_item("slots", device.slots)?;
    document.set_item("slots_held", device.slots_held)?;
    document.set_item("slot_bytes", device.slot_bytes)?;
    document.set_item("copied_bytes", device.copied_bytes)?;
    document.set_item("tensors_lent", device.tensors_lent)?;
    document.set_item("tensors_early", device.tensors_early)?;
    document.set_item("engine_images", device.engine_images)?;
    document.set_item("engine_refused", device.engine_refused)?;
    document.set_item("engine_unwritten", device.engine_unwritten)?;
    document.set_item("engine_bytes", device.engine_bytes)?;
    document.set_item("engine_share", device.engine_share)?;
    document.set_item("engines", device.engines.as_deref())?;
    Ok(document)
}

/// One sample that was left out.
pub(crate) fn bad_sample<'py>(py: Python<'py>, bad: &BadSample) -> PyResult<Bound<'py, PyDict>> {
    let row = PyDict::new(py);
    row.set_item("shard", &bad.shard)?;
    row.set_item("key", &bad.key)?;
    row.set_item("field", bad.field.as_deref())?;
    row.set_item("kind", bad.what())?;
    row.set_item("cause", bad.is_shard.then(|| bad.kind.as_str()))?;
    row.set_item("offset", bad.offset)?;
    row.set_item("message", &bad.message)?;
    Ok(row)
}
