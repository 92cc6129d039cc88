//! The stages of a loader as JSON and as a table, and one sentence of advice for each bottleneck. The numbers are the
//! library's.

use std::io;

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::output::{Output, count_text};
use crate::decode::backends;
use crate::loader::{Bottleneck, Stats};

/// The stages by name.
#[derive(Debug)]
pub(super) struct Stages<'a>(pub(super) &'a Stats);

impl Stages<'_> {
    pub(super) fn print(&self, output: &mut Output) -> io::Result<()> {
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let rows = self.0.stages.iter().map(|row| {
            let (items, failures) = (count_text(row.items), count_text(row.failures));
            [row.stage.as_str().to_owned(), items, failures, percent(row.busy_share), percent(row.wait_share)]
        });
        output.table(["stage", "items", "failures", "busy", "waiting"], 1, rows)
    }
}

impl Serialize for Stages<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut stages = serializer.serialize_map(Some(self.0.stages.len()))?;
        for row in &self.0.stages {
            let numbers = StageNumbers {
                items: row.items,
                failures: row.failures,
                busy_share: row.busy_share,
                wait_share: row.wait_share,
            };
            stages.serialize_entry(row.stage.as_str(), &numbers)?;
        }
        stages.end()
    }
}

#[derive(serde::Serialize)]
struct StageNumbers {
    items: u64,
    failures: u64,
    busy_share: f64,
    wait_share: f64,
}

/// What to do about a bottleneck, in one sentence.
pub(super) fn advice(bottleneck: Bottleneck) -> &'static str {
    match bottleneck {
        Bottleneck::Read => {
            "the threads wait for bytes: faster storage helps, and of compressed shards uncompressed ones"
        }
        Bottleneck::Decode if !backends().contains(&"turbo") => {
            "decoding takes the time: a build with the feature turbo decodes faster, and more cores help"
        }
        Bottleneck::Decode => "decoding takes the time: more cores help, and so do smaller images in the shards",
        Bottleneck::Transform => "resizing and converting take the time: more cores help, and so does a smaller crop",
        Bottleneck::Engines => "the GPU's JPEG engines take the time: decoder=\"auto\" has the threads help them",
        Bottleneck::Copy => "copying to the GPU takes the time: smaller images, or a slot with more lanes, help",
        Bottleneck::Consumer => "batches wait to be taken: the loader is faster than what it feeds",
        _ => "too little was loaded to tell: load more samples",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_one_sentence() {
        for bottleneck in [
            Bottleneck::Unknown,
            Bottleneck::Read,
            Bottleneck::Decode,
            Bottleneck::Transform,
            Bottleneck::Engines,
            Bottleneck::Copy,
            Bottleneck::Consumer,
        ] {
            let advice = advice(bottleneck);
            assert!(advice.contains(": ") && !advice.ends_with('.'), "{advice}");
        }
    }
}
