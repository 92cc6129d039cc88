//! What training asks of storage: named jobs, what one GPU of a kind takes a second, and who says so. It is a table of
//! other people's numbers; a machine's own measurement is worth more than any of them.

use serde::{Deserialize, Serialize};

/// What one GPU asks for while it trains.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    /// The job: model and data.
    pub job: String,
    /// The GPU.
    pub gpu: String,
    /// Samples a second.
    pub samples_per_s: f64,
    /// Bytes of a sample.
    pub sample_bytes: f64,
    /// Who says so.
    pub source: String,
    /// When.
    pub year: u32,
}

/// How many GPUs of a demand a storage feeds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fed {
    /// What one GPU asks for.
    #[serde(flatten)]
    pub demand: Demand,
    /// What one GPU asks for in megabytes (1,000,000 bytes) a second.
    pub mb_per_s: f64,
    /// How many GPUs that is enough for, not rounded.
    pub gpus: f64,
}

/// Rows: job, GPU, samples of a step, seconds of a step, bytes of a sample. The first six are the configurations of the
/// benchmark, whose steps are emulated by a pause.
const MLPERF: [(&str, &str, f64, f64, f64); 6] = [
    ("ResNet-50, ImageNet", "A100", 400.0, 0.435, 114_660.07),
    ("ResNet-50, ImageNet", "H100", 400.0, 0.224, 114_660.07),
    ("3D U-Net, KiTS19", "A100", 7.0, 0.636, 146_600_628.0),
    ("3D U-Net, KiTS19", "H100", 7.0, 0.323, 146_600_628.0),
    ("CosmoFlow", "A100", 1.0, 0.00551, 2_828_486.0),
    ("CosmoFlow", "H100", 1.0, 0.0035, 2_828_486.0),
];

/// All demands that are known without measuring anything here.
#[must_use]
pub fn demands() -> Vec<Demand> {
    let emulated = MLPERF.iter().map(|&(job, gpu, samples, seconds, sample_bytes)| Demand {
        job: job.into(),
        gpu: gpu.into(),
        samples_per_s: samples / seconds,
        sample_bytes,
        source: "MLPerf Storage v1.0, emulated".into(),
        year: 2024,
    });
    let measured = Demand {
        job: "ResNet-50 in bfloat16, ImageNet".into(),
        gpu: "H200".into(),
        samples_per_s: 4720.0,
        sample_bytes: 104_000.0,
        source: "measured with brimful, data on the GPU".into(),
        year: 2026,
    };
    emulated.chain([measured]).collect()
}

impl Demand {
    /// How many such GPUs a storage feeds that delivers `mb_per_s` in whole files and `samples_per_s` samples of
    /// `sample_bytes` at random: of the two limits the lower, where both are known.
    ///
    /// Bytes are what counts for samples that are larger than those measured, the number of samples for smaller ones.
    #[must_use]
    pub fn fed_by(&self, mb_per_s: f64, samples_per_s: Option<f64>) -> Fed {
        let demanded = self.samples_per_s * self.sample_bytes / 1e6;
        let by_bytes = mb_per_s / demanded;
        let by_samples = samples_per_s.map_or(f64::INFINITY, |rate| rate / self.samples_per_s);
        Fed { demand: self.clone(), mb_per_s: demanded, gpus: by_bytes.min(by_samples).max(0.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demands_are_those_of_their_sources() {
        let demands = demands();
        let of = |gpu: &str, job: &str| {
            let found = demands.iter().find(|demand| demand.gpu == gpu && demand.job.starts_with(job)).unwrap();
            (found.samples_per_s.round(), (found.samples_per_s * found.sample_bytes / 1e6).round())
        };
        assert_eq!(of("A100", "ResNet-50"), (920.0, 105.0));
        assert_eq!(of("H100", "ResNet-50"), (1786.0, 205.0));
        assert_eq!(of("H200", "ResNet-50"), (4720.0, 491.0));
        assert_eq!(of("H100", "3D U-Net"), (22.0, 3177.0));
        assert_eq!(of("A100", "CosmoFlow"), (181.0, 513.0));
        assert!(demands.iter().all(|demand| demand.year >= 2024 && !demand.source.is_empty()));
    }

    #[test]
    fn the_lower_limit_counts() {
        let demand = Demand { samples_per_s: 100.0, sample_bytes: 1e6, ..demands()[0].clone() };
        assert_eq!(demand.fed_by(250.0, None).gpus, 2.5);
        assert_eq!(demand.fed_by(250.0, Some(1000.0)).gpus, 2.5);
        assert_eq!(demand.fed_by(250.0, Some(50.0)).gpus, 0.5);
        assert_eq!(demand.fed_by(0.0, Some(0.0)).gpus, 0.0);
    }
}
