//! What one GPU of this machine asks for, as `brimful tune` measured it and wrote it down. It reads a document and measures
//! nothing.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use serde_json::Value;

use crate::cli::folders;
use crate::cli::output::printable;
use crate::storage::Demand;
use crate::{Error, ErrorKind};

/// The document's name in the cache folder, where `brimful tune` keeps its last one.
const FILE_NAME: &str = "tune.json";

/// What a document says of a GPU's demand.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tuned {
    path: PathBuf,
    job: String,
    gpu: String,
    samples_per_s: f64,
    year: u32,
}

impl Tuned {
    /// The document that was asked for, otherwise the kept one if there is one that can be understood.
    ///
    /// # Errors
    /// For a document that was asked for and cannot be read, or does not tell.
    pub(super) fn find(asked: Option<&Path>) -> anyhow::Result<Option<Self>> {
        let Some(path) = asked else {
            let kept = folders::cache().join(FILE_NAME);
            return Ok(std::fs::read(&kept).ok().and_then(|text| Self::of(&kept, &text)));
        };
        let text = std::fs::read(path).with_context(|| format!("cannot read '{}'", path.display()))?;
        let found = Self::of(path, &text).ok_or_else(|| {
            let message = format!("'{}' does not say recommended.images_per_s", path.display());
            let error = Error::new(ErrorKind::InvalidOption, message);
            error.with_hint("give a document that `brimful tune --out` wrote")
        })?;
        Ok(Some(found))
    }

    fn of(path: &Path, text: &[u8]) -> Option<Self> {
        let document: Value = serde_json::from_slice(text).ok()?;
        let recommended = document["recommended"]["images_per_s"].as_f64()?;
        // What was recommended may be held back by the very storage that is measured here: the model alone counts.
        let rate = document["device_per_s"].as_f64().unwrap_or(recommended);
        let health = &document["health"];
        let gpu = health["gpu"].as_str().or(health["device"].as_str());
        (rate.is_finite() && rate > 0.0).then(|| Self {
            path: path.to_owned(),
            job: document["model"].as_str().map_or("the job that was tuned here".into(), printable),
            gpu: gpu.map_or("this machine's".into(), printable),
            samples_per_s: rate,
            year: year_of(path),
        })
    }

    /// As a demand of samples of `sample_bytes`.
    pub(super) fn demand(&self, sample_bytes: f64) -> Demand {
        Demand {
            job: self.job.clone(),
            gpu: self.gpu.clone(),
            samples_per_s: self.samples_per_s,
            sample_bytes,
            source: format!("measured here, {}", self.path.display()),
            year: self.year,
        }
    }
}

/// The year in which the file was written; this year where the system does not tell.
fn year_of(path: &Path) -> u32 {
    let written = std::fs::metadata(path).and_then(|metadata| metadata.modified());
    let since = written.unwrap_or_else(|_| SystemTime::now()).duration_since(UNIX_EPOCH).unwrap_or_default();
    // The mean length of a year: off by hours around a new year, which a year's number can bear.
    1970 + (since.as_secs_f64() / 31_556_952.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_alone_counts_before_what_was_recommended() {
        let tuned = |text: &str| {
            let found = Tuned::of(Path::new("tune.json"), text.as_bytes())?;
            Some((found.job, found.gpu, found.samples_per_s))
        };
        let all = r#"{"model": "torchvision:resnet50", "health": {"gpu": "H200\u001b", "device": "cuda"},
                      "device_per_s": 4700.5, "recommended": {"images_per_s": 900.0}}"#;
        assert_eq!(tuned(all), Some(("torchvision:resnet50".into(), "H200\\u{1b}".into(), 4700.5)));
        let on_cpu = r#"{"health": {"gpu": null, "device": "cpu"}, "recommended": {"images_per_s": 12}}"#;
        assert_eq!(tuned(on_cpu), Some(("the job that was tuned here".into(), "cpu".into(), 12.0)));
        let least = r#"{"recommended": {"images_per_s": 900.0}}"#;
        assert_eq!(tuned(least).unwrap().1, "this machine's");
        for wrong in ["", "{}", "[]", r#"{"recommended": {"images_per_s": 0}}"#, r#"{"recommended": 5}"#] {
            assert_eq!(tuned(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_file_is_of_the_year_in_which_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tune.json");
        std::fs::write(&path, "{}").unwrap();
        let at = UNIX_EPOCH + std::time::Duration::from_secs(1_750_000_000);
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(at).unwrap();
        assert_eq!(year_of(&path), 2025);
    }
}
