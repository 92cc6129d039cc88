//! The result as a page: throughput against threads and block size, the distribution of latencies, cold against warm, and
//! what it feeds. The drawing is the library's.

use super::document::{Document, Row, binary_text};
use crate::cli::machine::Machine;
use crate::cli::output::{bytes_text, count_text, rate_text};
use crate::report::{Axis, Cell, Chart, Column, Mark, Note, Page, Section, Series, Table};
use crate::storage::{Cache, Fed, Method, Pattern};

/// The demand that is drawn as a line: what most people know.
const MARKED: &[(&str, &str)] = &[("ResNet-50, ImageNet", "H100"), ("ResNet-50, ImageNet", "A100")];

/// Points of a tail's line at most.
const TAIL_POINTS: usize = 24;

/// The page of a document.
pub(super) fn of(document: &Document) -> Page {
    let mut page = Page::new(format!("Storage: {}", document.data.path));
    page.lead = lead(document);
    let machine = Machine::here();
    page.fact("file system", document.storage.filesystem.as_str());
    page.fact("machine", format!("{}, {} processors, Linux {}", machine.cpu, machine.cores_available, machine.kernel));
    let data = &document.data;
    let made = if data.made { "made for this, random bytes" } else { "given" };
    page.fact(
        "data",
        format!(
            "{} in {} shards, {} samples, {made}",
            bytes_text(data.bytes),
            data.shards,
            count_text(data.samples as u64)
        ),
    );
    page.fact("runs", format!("{} of each case, in turn", document.runs));
    page.fact("cost of measuring", document.harness.sentence());
    page.fact("program", concat!("brimful ", env!("CARGO_PKG_VERSION")));
    page.push(meaning(document));
    page.push(charts(document));
    page.push(numbers(document));
    page
}

fn lead(document: &Document) -> String {
    let feeds = &document.feeds;
    let mut parts = Vec::new();
    if let Some(rate) = feeds.whole_shards_mb_per_s {
        parts.push(format!("{} MB/s in whole shards", rate_text(rate)));
    }
    if let (Some(samples), Some(rate)) = (feeds.members_samples_per_s, feeds.members_mb_per_s) {
        parts.push(format!("{} samples ({} MB) a second at random", rate_text(samples), rate_text(rate)));
    }
    let Some(first) = feeds.jobs.iter().find(|fed| is_marked(fed, 0)).or(feeds.jobs.first()) else {
        return "Nothing was measured cold, so nothing is said about the storage itself.".into();
    };
    let fed = format!("That feeds {:.1} {} training {}.", first.gpus, first.demand.gpu, first.demand.job);
    format!("Cold, this storage delivers {}. {fed}", parts.join(" and "))
}

fn is_marked(fed: &Fed, number: usize) -> bool {
    MARKED.get(number).is_some_and(|(job, gpu)| fed.demand.job == *job && fed.demand.gpu == *gpu)
}

fn meaning(document: &Document) -> Section {
    let mut section = Section::new("What it means");
    if document.interrupted {
        section.push(Note::warning("Interrupted: some cases have fewer runs than others, and some are missing."));
    }
    if let Some(advice) = document.advice() {
        section.push(Note::good(format!("{}{}.", advice[..1].to_uppercase(), &advice[1..])));
    }
    for note in &document.storage.notes {
        section.push(Note::info(note.as_str()));
    }
    let columns = [
        Column::text("job"),
        Column::text("GPU"),
        Column::number("fed, cold", 1),
        Column::number("samples/s", 0),
        Column::number("MB/s", 0),
        Column::text("demand by"),
    ];
    let mut table = Table::new("How many GPUs this storage feeds", columns);
    for fed in &document.feeds.jobs {
        let source = format!("{}, {}", fed.demand.source, fed.demand.year);
        let (job, gpu) = (fed.demand.job.as_str(), fed.demand.gpu.as_str());
        table.push([
            job.into(),
            gpu.into(),
            fed.gpus.into(),
            fed.demand.samples_per_s.into(),
            fed.mb_per_s.into(),
            source.into(),
        ]);
    }
    section.push(table);
    section
}

fn charts(document: &Document) -> Section {
    let mut section = Section::new("Throughput and latency");
    // The base of the sweeps: the sizes that the first case has, and its state of the cache.
    let Some(base) = document.results.first() else { return section };
    let rows = || document.results.iter().filter(|row| row.cache == base.cache);
    let swept = rows().find(|row| row.threads != base.threads).map_or(base.pattern, |row| row.pattern);
    let threads = lines(rows().filter(|row| row.pattern == swept && row.block_bytes == base.block_bytes), |row| {
        (is_base_depth(row, base, document)).then_some(row.threads as f64)
    });
    if is_sweep(&threads) {
        let title = format!("Threads: {}, {}", pattern_text(swept), base.cache);
        let mut chart = Chart::new(title, Axis::new("threads").log2(), Axis::new("MB/s"));
        chart.series = threads;
        for mark in marks(document) {
            chart = chart.mark(mark);
        }
        section.push(chart.caption("Medians of the runs with their range. Dashed: what one GPU asks for."));
    }
    let whole = rows().find(|row| row.block_bytes != base.block_bytes).map_or(base.pattern, |row| row.pattern);
    let blocks = lines(rows().filter(|row| row.pattern == whole && row.threads == base.threads), |row| {
        is_base_depth(row, base, document).then_some(row.block_bytes as f64 / 1024.0)
    });
    if is_sweep(&blocks) {
        let title = format!("Block size: {}, {}", pattern_text(whole), base.cache);
        let mut chart = Chart::new(title, Axis::new("KiB of a request").log2(), Axis::new("MB/s"));
        chart.series = blocks;
        section.push(chart.caption(format!("{} threads.", base.threads)));
    }
    let depths = lines(
        rows().filter(|row| row.pattern == swept && row.threads == base.threads && row.block_bytes == base.block_bytes),
        |row| has_depth(row).then_some(row.queue_depth as f64),
    );
    if is_sweep(&depths) {
        let title = format!("Queue depth of io_uring: {}, {}", pattern_text(swept), base.cache);
        let mut chart = Chart::new(title, Axis::new("requests under way in each thread").log2(), Axis::new("MB/s"));
        chart.series = depths;
        section.push(chart.caption(format!("{} threads.", base.threads)));
    }
    section.push(tails(document, base));
    section.push(cold_and_warm(document, base));
    section
}

/// One line a method over what `x` takes from a row.
fn lines<'a>(rows: impl Iterator<Item = &'a Row>, x: impl Fn(&Row) -> Option<f64>) -> Vec<Series> {
    let mut found: Vec<Series> = Vec::new();
    for row in rows {
        let Some(x) = x(row) else { continue };
        let series = match found.iter().position(|series| series.name == row.method) {
            Some(place) => &mut found[place],
            None => {
                found.push(Series::new(row.method));
                let last = found.len() - 1;
                &mut found[last]
            }
        };
        series.push(x, row.mb_per_s).spread(row.spread.mb_per_s.min, row.spread.mb_per_s.max);
    }
    for series in &mut found {
        series.points.sort_by(|a, b| a.x.total_cmp(&b.x));
    }
    found
}

fn is_sweep(series: &[Series]) -> bool {
    series.iter().any(|series| series.points.len() > 1)
}

fn has_depth(row: &Row) -> bool {
    Method::ALL.iter().any(|method| method.as_str() == row.method && method.has_depth())
}

/// Whether a row has the depth that all others but those of the depths' sweep have.
fn is_base_depth(row: &Row, base: &Row, document: &Document) -> bool {
    let first = document.results.iter().find(|other| other.method == row.method && other.cache == base.cache);
    first.is_none_or(|first| first.queue_depth == row.queue_depth)
}

fn marks(document: &Document) -> Vec<Mark> {
    let fastest = document.results.iter().map(|row| row.mb_per_s).fold(0.0, f64::max);
    let marked = document.feeds.jobs.iter().filter(|fed| (0..MARKED.len()).any(|number| is_marked(fed, number)));
    // A line far above everything would press the rest to the ground.
    let within = marked.filter(|fed| fed.mb_per_s < fastest * 2.0);
    within.map(|fed| Mark::horizontal(fed.mb_per_s, format!("one {}, ResNet-50", fed.demand.gpu))).collect()
}

/// The base cases of each pattern: all methods at the same sizes.
fn base_rows<'a>(document: &'a Document, base: &'a Row) -> impl Iterator<Item = &'a Row> {
    document.results.iter().filter(move |row| {
        row.threads == base.threads && row.block_bytes == base.block_bytes && is_base_depth(row, base, document)
    })
}

fn tails(document: &Document, base: &Row) -> Chart {
    let pattern = document.results.iter().find(|row| row.pattern == Pattern::Members.as_str()).unwrap_or(base).pattern;
    let title = format!("Latency of a request: {}, {}", pattern_text(pattern), base.cache);
    let mut chart = Chart::new(title, Axis::new("ms").log10(), Axis::new("share of requests that take longer").log10());
    for row in base_rows(document, base).filter(|row| row.pattern == pattern && row.cache == base.cache) {
        let mut series = Series::new(row.method);
        let stride = row.tail.len().div_ceil(TAIL_POINTS).max(1);
        let chosen =
            row.tail.iter().enumerate().filter(|(place, _)| place % stride == 0 || place + 2 >= row.tail.len());
        for (_, (limit, share)) in chosen {
            series.push(limit.as_secs_f64() * 1e3, if *share > 0.0 { *share } else { f64::NAN });
        }
        chart.series.push(series);
    }
    chart.caption("0.01 is the 99th percentile: one request in a hundred takes longer.")
}

fn cold_and_warm(document: &Document, base: &Row) -> Chart {
    let rows: Vec<&Row> = base_rows(document, base).filter(|row| row.pattern == base.pattern).collect();
    let mut names: Vec<&str> = Vec::new();
    for row in &rows {
        if !names.contains(&row.method) {
            names.push(row.method);
        }
    }
    let title = format!("Cold against warm: {}", pattern_text(base.pattern));
    // What is cached is many times faster: on a linear axis nothing else could be read.
    let mut chart = Chart::bars(title, names.iter().copied(), Axis::new("MB/s").log10());
    for cache in [Cache::Cold, Cache::Warm] {
        let mut series = Series::new(cache.as_str());
        for row in rows.iter().filter(|row| row.cache == cache.as_str()) {
            let Some(place) = names.iter().position(|name| *name == row.method) else { continue };
            series.push(place as f64, row.mb_per_s).spread(row.spread.mb_per_s.min, row.spread.mb_per_s.max);
        }
        if !series.points.is_empty() {
            chart.series.push(series);
        }
    }
    chart.caption(format!("{} threads, requests of {}.", base.threads, binary_text(base.block_bytes)))
}

fn pattern_text(pattern: &str) -> &'static str {
    match pattern {
        "sequential" => "whole shards in order",
        "interleaved" => "interleaved shards",
        "shuffled" => "whole shards in random order",
        "members" => "samples at random",
        _ => "blocks at random",
    }
}

fn numbers(document: &Document) -> Section {
    let mut section = Section::new("All numbers");
    let columns = [
        Column::text("method"),
        Column::text("pattern"),
        Column::text("cache"),
        Column::number("threads", 0),
        Column::number("request KiB", 0),
        Column::number("depth", 0),
        Column::number("MB/s", 0),
        Column::number("samples/s", 0),
        Column::number("IOPS", 0),
        Column::number("p50 ms", 2),
        Column::number("p95 ms", 2),
        Column::number("p99 ms", 2),
        Column::number("p99.9 ms", 2),
        Column::number("max ms", 1),
        Column::number("CPU s/GB", 2),
        Column::number("spread %", 0),
        Column::text("doubts"),
    ];
    let mut table = Table::new("", columns);
    for row in &document.results {
        // Under members a request is a sample, whatever the size of blocks.
        let request = (row.pattern != Pattern::Members.as_str()).then_some(row.block_bytes as f64 / 1024.0);
        let doubts: Vec<&str> = row.doubts.iter().map(|doubt| doubt.text.as_str()).collect();
        table.push([
            row.method.into(),
            row.pattern.into(),
            row.cache.into(),
            (row.threads as f64).into(),
            request.into(),
            (row.queue_depth as f64).into(),
            row.mb_per_s.into(),
            row.samples_per_s.into(),
            row.iops.into(),
            row.p50_ms.into(),
            row.p95_ms.into(),
            row.p99_ms.into(),
            row.p999_ms.into(),
            row.max_ms.into(),
            row.cpu_s_per_gb.into(),
            row.spread.mb_per_s.percent().into(),
            Cell::from(doubts.join("; ")),
        ]);
    }
    section.push(table);
    if !document.stages.is_empty() {
        let columns =
            [Column::text("stage"), Column::text("cache"), Column::number("samples/s", 0), Column::number("MB/s", 0)];
        let mut table = Table::new("Behind the reading", columns);
        for row in &document.stages {
            table.push([row.stage.into(), row.cache.into(), row.samples_per_s.into(), row.mb_per_s.into()]);
        }
        section.push(table);
    }
    for left_out in &document.skipped {
        section.push(Note::info(format!("Left out: {}: {}", left_out.what, left_out.reason)));
    }
    section
}
