//! The GPUs' JPEG engines: whether the loader can use them, or why not. The library that reaches them is loaded, and a
//! context made on each GPU: what fails there would fail in training.

use std::path::PathBuf;

use serde::Serialize;

/// The engines of one GPU that CUDA shows.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Engines {
    /// As in torch: `cuda:0`.
    device: String,
    /// What was found, in words; none where they cannot be used.
    found: Option<String>,
    /// Why they cannot be used.
    reason: Option<String>,
}

impl Engines {
    pub(super) fn line(&self) -> String {
        let text = self.found.as_ref().or(self.reason.as_ref()).map_or("", String::as_str);
        let verdict = if self.found.is_some() { "" } else { "not used: " };
        format!("{}: {verdict}{text}", self.device)
    }
}

/// Those of every GPU; none where CUDA shows no GPU, or this build cannot ask it.
#[cfg(feature = "cuda")]
pub(super) fn look(folders: &[PathBuf]) -> Vec<Engines> {
    use crate::device::nvjpeg::JpegEngine;
    use crate::device::stream::{Gpu, gpu_count};

    let probe = |ordinal: usize| {
        let probed = Gpu::open(ordinal).and_then(|gpu| JpegEngine::probe(&gpu, folders));
        let (found, reason) = match probed {
            Ok(report) => (Some(report.to_string()), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Engines { device: format!("cuda:{ordinal}"), found, reason }
    };
    (0..gpu_count().unwrap_or(0)).map(probe).collect()
}

/// This build has no CUDA support: there is nobody to ask.
#[cfg(not(feature = "cuda"))]
pub(super) fn look(_folders: &[PathBuf]) -> Vec<Engines> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_stands_in_place_of_what_is_missing() {
        let engines = |found: Option<&str>, reason: Option<&str>| {
            Engines { device: "cuda:1".into(), found: found.map(Into::into), reason: reason.map(Into::into) }.line()
        };
        assert_eq!(engines(Some("7 JPEG engines"), None), "cuda:1: 7 JPEG engines");
        assert_eq!(engines(None, Some("no nvJPEG")), "cuda:1: not used: no nvJPEG");
    }
}
