//! What came out, as a JSON document and as tables for a terminal.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::cases::BLOCK_BYTES;
use super::interrupt::Interrupt;
use super::place::Place;
use super::shards::{Data, Shards};
use super::tuned::Tuned;
use super::{StageResult, cores};
use crate::cli::args::StorageBenchArgs;
use crate::cli::bench::spread::Spread;
use crate::cli::failure::warn;
use crate::cli::output::{Output, bytes_text, count_text, rate_text};
use crate::storage::{Cache, Demand, Doubt, Fed, Histogram, Measurement, Pattern, Recommendation, Run, demands};

/// The rate at which the cost of measuring is told.
const HARNESS_BYTES_PER_S: f64 = 5e9;

/// The document, without what all documents have.
#[derive(Debug, Serialize)]
pub(super) struct Document {
    pub(super) results: Vec<Row>,
    pub(super) feeds: Feeds,
    pub(super) recommended: Option<Recommendation>,
    /// The file that keeps it for loaders.
    pub(super) profile: Option<PathBuf>,
    pub(super) stages: Vec<StageResult>,
    pub(super) storage: Place,
    pub(super) data: Data,
    pub(super) skipped: Vec<Skipped>,
    pub(super) harness: Harness,
    pub(super) runs: usize,
    /// Whether Ctrl-C ended it: then some cases have fewer runs, and some none.
    pub(super) interrupted: bool,
}

/// What was left out, and why.
#[derive(Debug, Serialize)]
pub(super) struct Skipped {
    pub(super) what: String,
    pub(super) reason: String,
}

impl Skipped {
    pub(super) fn because(what: &str, error: &crate::Error) -> Self {
        let hint = error.hint().map_or(String::new(), |hint| format!(" ({hint})"));
        Self { what: what.to_owned(), reason: format!("{error}{hint}") }
    }
}

/// A case and what its runs came to.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) method: &'static str,
    pub(super) pattern: &'static str,
    pub(super) threads: usize,
    pub(super) block_bytes: u64,
    pub(super) queue_depth: usize,
    pub(super) cache: &'static str,
    pub(super) mb_per_s: f64,
    pub(super) samples_per_s: Option<f64>,
    pub(super) iops: f64,
    pub(super) p50_ms: Option<f64>,
    pub(super) p95_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
    pub(super) p999_ms: Option<f64>,
    pub(super) max_ms: f64,
    /// Latencies of whole samples, where samples were read.
    pub(super) sample: Option<Latency>,
    pub(super) cpu_s_per_gb: Option<f64>,
    pub(super) major_faults: Option<f64>,
    /// Bytes asked for and delivered, a run.
    pub(super) bytes: f64,
    /// Bytes that storage delivered to this process, and the device to anyone, a run.
    pub(super) process_read_bytes: Option<f64>,
    pub(super) device_read_bytes: Option<f64>,
    /// Share of the pages that were cached before a run.
    pub(super) resident_before: Option<f64>,
    pub(super) spread: RowSpread,
    pub(super) doubts: Vec<DoubtText>,
    /// Not in the document: the tail of the distribution, for the page.
    #[serde(skip)]
    pub(super) tail: Vec<(Duration, f64)>,
}

#[derive(Debug, Serialize)]
pub(super) struct RowSpread {
    pub(super) mb_per_s: Spread,
    pub(super) p99_ms: Spread,
}

#[derive(Debug, Serialize)]
pub(super) struct Latency {
    p50_ms: Option<f64>,
    p95_ms: Option<f64>,
    p99_ms: Option<f64>,
    p999_ms: Option<f64>,
    max_ms: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct DoubtText {
    pub(super) kind: &'static str,
    pub(super) text: String,
}

/// How many GPUs are fed.
#[derive(Debug, Serialize)]
pub(super) struct Feeds {
    /// Best cold rates of all methods.
    pub(super) whole_shards_mb_per_s: Option<f64>,
    pub(super) members_mb_per_s: Option<f64>,
    pub(super) members_samples_per_s: Option<f64>,
    /// By samples at random where they were measured, otherwise by whole shards.
    pub(super) jobs: Vec<Fed>,
}

/// What measuring itself costs.
#[derive(Debug, Serialize)]
pub(super) struct Harness {
    ns_per_request: f64,
    block_bytes: u64,
    /// Of one processor, at 5 GB/s in blocks of that size.
    cpu_share_at_5_gb_per_s: f64,
}

impl Document {
    #[expect(clippy::too_many_arguments, reason = "one thing each that was found, put together once")]
    pub(super) fn new(
        args: &StorageBenchArgs,
        shards: &Shards,
        storage: Place,
        measured: &[Measurement],
        skipped: Vec<Skipped>,
        stages: Vec<StageResult>,
        recommended: Option<Recommendation>,
        profile: Option<PathBuf>,
        cost: Duration,
        tuned: Option<Tuned>,
        interrupt: &Interrupt,
    ) -> Self {
        let ns_per_request = cost.as_secs_f64() * 1e9;
        let harness = Harness {
            ns_per_request,
            block_bytes: BLOCK_BYTES,
            cpu_share_at_5_gb_per_s: HARNESS_BYTES_PER_S / BLOCK_BYTES as f64 * ns_per_request / 1e9,
        };
        // Where samples are not known nothing is known of their bytes.
        let tuned = tuned.zip(shards.data.sample_bytes_mean).map(|(tuned, bytes)| tuned.demand(bytes));
        Self {
            results: measured.iter().map(Row::of).collect(),
            feeds: Feeds::of(measured, tuned),
            recommended,
            profile,
            stages,
            storage,
            data: shards.data.clone(),
            skipped,
            harness,
            runs: args.runs,
            interrupted: interrupt.is_set(),
        }
    }

    /// Tells each kind of doubt once, with how many cases have it.
    pub(super) fn warn_of_doubts(&self) {
        let mut told: Vec<(&str, String, usize)> = Vec::new();
        for row in &self.results {
            for doubt in &row.doubts {
                match told.iter_mut().find(|(kind, ..)| *kind == doubt.kind) {
                    Some((.., count)) => *count += 1,
                    None => told.push((doubt.kind, format!("{}: {}", row.name(), doubt.text), 1)),
                }
            }
        }
        for (_, text, count) in told {
            let more = if count > 1 { format!(" (and {} more cases)", count - 1) } else { String::new() };
            warn(&format!("{text}{more}"));
        }
    }

    pub(super) fn print(&self, output: &mut Output) -> io::Result<()> {
        let number = |value: Option<f64>, digits: usize| value.map_or("-".into(), |value| format!("{value:.digits$}"));
        let rows = self.results.iter().map(|row| {
            [
                row.method.to_owned(),
                row.pattern.to_owned(),
                row.cache.to_owned(),
                row.threads.to_string(),
                row.request_text(),
                row.queue_depth.to_string(),
                rate_text(row.mb_per_s),
                row.samples_per_s.map_or("-".into(), rate_text),
                number(row.p50_ms, 2),
                number(row.p99_ms, 2),
                number(row.cpu_s_per_gb, 2),
                format!("{:.0} %{}", row.spread.mb_per_s.percent(), if row.doubts.is_empty() { "" } else { " !" }),
            ]
        });
        let headers = [
            "method",
            "pattern",
            "cache",
            "threads",
            "request",
            "depth",
            "MB/s",
            "samples/s",
            "p50 ms",
            "p99 ms",
            "CPU s/GB",
            "spread",
        ];
        output.table(headers, 3, rows)?;
        if !self.stages.is_empty() {
            writeln!(output)?;
            let rows = self.stages.iter().map(|row| {
                let spread = format!("{:.0} %", row.spread.samples_per_s.percent());
                let (samples, megabytes) = (rate_text(row.samples_per_s), rate_text(row.mb_per_s));
                [row.stage.to_owned(), row.cache.to_owned(), row.threads.to_string(), samples, megabytes, spread]
            });
            output.table(["stage", "cache", "threads", "samples/s", "MB/s", "spread"], 2, rows)?;
        }
        writeln!(output)?;
        let rows = self.feeds.jobs.iter().map(|fed| {
            let Demand { job, gpu, samples_per_s, source, year, .. } = &fed.demand;
            let (samples, megabytes) = (rate_text(*samples_per_s), rate_text(fed.mb_per_s));
            [format!("{source}, {year}"), job.clone(), gpu.clone(), samples, megabytes, format!("{:.1}", fed.gpus)]
        });
        output.table(["demand by", "job", "GPU", "samples/s", "MB/s", "GPUs fed, cold"], 3, rows)?;
        writeln!(output)?;
        if let Some(sentence) = self.advice() {
            writeln!(output, "{sentence}")?;
        }
        if let Some(path) = &self.profile {
            writeln!(output, "kept for io=\"auto\" in {}", path.display())?;
        }
        let Data { shards, bytes, samples, made, .. } = &self.data;
        let made = if *made { "made, removed" } else { "given" };
        let what =
            format!("{} in {shards} shards, {} samples ({made})", bytes_text(*bytes), count_text(*samples as u64));
        writeln!(output, "{what}; {}; median of {} runs; ! marks doubts", self.storage.filesystem, self.runs)?;
        writeln!(output, "{}", self.harness.sentence())?;
        if self.interrupted {
            writeln!(output, "interrupted: some cases have fewer runs than {}, and some are missing", self.runs)?;
        }
        Ok(())
    }

    /// What suits this storage, in one sentence.
    pub(super) fn advice(&self) -> Option<String> {
        let Recommendation { method, threads, block_bytes, queue_depth, samples_ahead, .. } = self.recommended?;
        let depth =
            if method.has_depth() { format!(", {queue_depth} requests under way in each") } else { String::new() };
        Some(format!(
            "suits this storage: {} by {threads} threads{depth}, blocks of {}, {samples_ahead} samples asked for ahead",
            method.as_str(),
            binary_text(block_bytes),
        ))
    }
}

impl Harness {
    /// The cost in one sentence.
    pub(super) fn sentence(&self) -> String {
        format!(
            "measuring itself takes {:.0} ns a request: {:.2} % of a processor at 5 GB/s in blocks of {}",
            self.ns_per_request,
            100.0 * self.cpu_share_at_5_gb_per_s,
            binary_text(self.block_bytes),
        )
    }
}

impl Row {
    fn of(measured: &Measurement) -> Self {
        let Measurement { case, runs } = measured;
        let spread = Spread::of(measured.mb_per_s());
        let requests = measured.requests();
        let samples = measured.samples();
        let p99s = runs.iter().map(|run| ms(run.requests.percentile(99.0)).unwrap_or(0.0)).collect();
        let cpu_per_gb = |run: &Run| (run.bytes > 0).then(|| run.cpu.as_secs_f64() / (run.bytes as f64 / 1e9));
        Self {
            method: case.method.as_str(),
            pattern: case.pattern.as_str(),
            threads: case.threads,
            block_bytes: case.block_bytes,
            queue_depth: case.queue_depth,
            cache: case.cache.as_str(),
            mb_per_s: spread.median,
            samples_per_s: measured.median(Run::samples_per_s),
            iops: measured.median(|run| Some(run.iops())).unwrap_or(0.0),
            p50_ms: ms(requests.percentile(50.0)),
            p95_ms: ms(requests.percentile(95.0)),
            p99_ms: ms(requests.percentile(99.0)),
            p999_ms: ms(requests.percentile(99.9)),
            max_ms: requests.max().as_secs_f64() * 1e3,
            sample: (samples.count() > 0).then(|| Latency::of(&samples)),
            cpu_s_per_gb: measured.median(cpu_per_gb),
            major_faults: measured.median(|run| run.major_faults.map(|count| count as f64)),
            bytes: measured.median(|run| Some(run.bytes as f64)).unwrap_or(0.0),
            process_read_bytes: measured.median(|run| run.process_bytes.map(|bytes| bytes as f64)),
            device_read_bytes: measured.median(|run| run.device_bytes.map(|bytes| bytes as f64)),
            resident_before: measured.median(|run| run.resident_before),
            spread: RowSpread { mb_per_s: spread, p99_ms: Spread::of(p99s) },
            doubts: measured.doubts(cores()).into_iter().map(DoubtText::of).collect(),
            tail: requests.tail(),
        }
    }

    /// The case as a few words.
    pub(super) fn name(&self) -> String {
        format!("{} {} {}, {} threads, {}", self.method, self.pattern, self.cache, self.threads, self.request_text())
    }

    /// The size of a request.
    fn request_text(&self) -> String {
        if self.pattern == Pattern::Members.as_str() { "sample".into() } else { binary_text(self.block_bytes) }
    }
}

impl DoubtText {
    fn of(doubt: Doubt) -> Self {
        Self { kind: doubt.as_str(), text: doubt.to_string() }
    }
}

impl Latency {
    fn of(histogram: &Histogram) -> Self {
        Self {
            p50_ms: ms(histogram.percentile(50.0)),
            p95_ms: ms(histogram.percentile(95.0)),
            p99_ms: ms(histogram.percentile(99.0)),
            p999_ms: ms(histogram.percentile(99.9)),
            max_ms: histogram.max().as_secs_f64() * 1e3,
        }
    }
}

impl Feeds {
    /// By the best cold rates; where nothing was cold there are no jobs.
    fn of(measured: &[Measurement], tuned: Option<Demand>) -> Self {
        let best = |members: bool, value: fn(&Run) -> Option<f64>| {
            let cold = measured
                .iter()
                .filter(|found| found.case.cache == Cache::Cold && (found.case.pattern == Pattern::Members) == members);
            let cold = cold.filter(|found| found.case.pattern != Pattern::Blocks);
            cold.filter_map(|found| found.median(value)).reduce(f64::max)
        };
        let rate = |run: &Run| Some(run.mb_per_s());
        let whole = best(false, rate);
        let members = best(true, rate);
        let samples = best(true, Run::samples_per_s);
        // Large samples are read at the speed of whole shards, small ones at that of samples.
        let fed =
            |demand: &Demand| members.or(whole).map(|rate| demand.fed_by(whole.unwrap_or(rate).max(rate), samples));
        let all: Vec<Demand> = tuned.into_iter().chain(demands()).collect();
        let jobs = all.iter().filter_map(fed).collect();
        Self { whole_shards_mb_per_s: whole, members_mb_per_s: members, members_samples_per_s: samples, jobs }
    }
}

fn ms(latency: Option<Duration>) -> Option<f64> {
    latency.map(|latency| latency.as_secs_f64() * 1e3)
}

/// A size in the powers of two that blocks have.
pub(super) fn binary_text(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => bytes_text(bytes),
    }
}
