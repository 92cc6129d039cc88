//! `brimful bench compare`: two documents of a bench, figure by figure, and whether they differ by more than chance. It
//! reads documents and measures nothing.

use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use serde::Serialize;
use serde_json::Value;

use crate::cli::args::CompareArgs;
use crate::cli::failure::{Outcome, warn};
use crate::cli::output::{Output, rate_text};
use crate::storage::statistics::{Interval, ratio};
use crate::{Error, ErrorKind};

/// Bytes of a document at most.
const DOCUMENT_BYTES_MAX: u64 = 256 << 20;

/// Runs below which nothing is said about chance.
const RUNS_MIN: usize = 3;

/// What tells rows of a document apart, in the order in which it is shown.
const NAMES: [&str; 8] = ["name", "method", "pattern", "cache", "threads", "block_bytes", "queue_depth", "stage"];

pub(super) fn run(args: &CompareArgs, output: &mut Output) -> anyhow::Result<Outcome> {
    let (before, after) = (read(&args.before)?, read(&args.after)?);
    let comparison = Comparison::of(&before, &after);
    if comparison.rows.is_empty() {
        let message = "the documents have no figure with runs in common";
        let hint = "compare documents that the same command wrote with --out";
        return Err(Error::new(ErrorKind::InvalidOption, message).with_hint(hint).into());
    }
    comparison.warn();
    output.document(&args.document, &comparison, |output| comparison.print(output))?;
    Ok(Outcome::Done)
}

fn read(path: &Path) -> anyhow::Result<Value> {
    let cannot_read = || format!("cannot read '{}'", path.display());
    let bytes = std::fs::metadata(path).with_context(cannot_read)?.len();
    if bytes > DOCUMENT_BYTES_MAX {
        let message = format!("'{}' has {bytes} bytes, more than any document of a bench", path.display());
        return Err(Error::new(ErrorKind::Limit, message).into());
    }
    let text = std::fs::read(path).with_context(cannot_read)?;
    serde_json::from_slice(&text).with_context(|| format!("'{}' is no JSON document", path.display()))
}

/// A figure of a document with its runs.
#[derive(Debug, Clone, PartialEq)]
struct Figure {
    /// What was measured, and at which sizes.
    name: String,
    /// What the number is: `mb_per_s`.
    figure: String,
    runs: Vec<f64>,
}

/// The document, without what all documents have.
#[derive(Debug, Serialize)]
struct Comparison {
    rows: Vec<Row>,
    /// Rows that only one of the documents has.
    only_before: Vec<String>,
    only_after: Vec<String>,
    /// Names of what differs between the machines.
    machines_differ: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    figure: String,
    before: f64,
    after: f64,
    /// How many times larger it is after; `None` with too few runs.
    ratio: Option<Interval>,
    verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Higher,
    Lower,
    /// The interval holds 1.
    NoDifference,
    TooFewRuns,
}

impl Comparison {
    fn of(before: &Value, after: &Value) -> Self {
        let (first, second) = (figures(before), figures(after));
        let same = |a: &Figure, b: &Figure| (&a.name, &a.figure) == (&b.name, &b.figure);
        let rows = first.iter().filter_map(|a| Some(Row::of(a, second.iter().find(|b| same(a, b))?))).collect();
        let missing = |from: &[Figure], in_others: &[Figure]| {
            let alone = from.iter().filter(|a| !in_others.iter().any(|b| same(a, b)));
            alone.map(|figure| format!("{} {}", figure.name, figure.figure).trim().to_owned()).collect()
        };
        Self {
            rows,
            only_before: missing(&first, &second),
            only_after: missing(&second, &first),
            machines_differ: differences(&before["machine"], &after["machine"]),
        }
    }

    fn warn(&self) {
        if !self.machines_differ.is_empty() {
            warn(&format!("the machines differ: {}", self.machines_differ.join(", ")));
        }
        let alone = self.only_before.len() + self.only_after.len();
        if alone > 0 {
            warn(&format!("{alone} figures are in one of the documents only"));
        }
    }

    fn print(&self, output: &mut Output) -> io::Result<()> {
        let rows = self.rows.iter().map(|row| {
            let ratio = row.ratio.map_or_else(
                || format!("{:.3}", row.after / row.before),
                |ratio| format!("{:.3} ({:.3} to {:.3})", ratio.value, ratio.low, ratio.high),
            );
            let (before, after) = (rate_text(row.before), rate_text(row.after));
            [row.name.clone(), row.figure.clone(), row.verdict.text().to_owned(), before, after, ratio]
        });
        output.table(["what", "figure", "verdict", "before", "after", "after / before (95 %)"], 3, rows)?;
        let count = |verdict| self.rows.iter().filter(|row| row.verdict == verdict).count();
        writeln!(
            output,
            "\n{} higher, {} lower, {} without a difference that chance would not make, {} with too few runs",
            count(Verdict::Higher),
            count(Verdict::Lower),
            count(Verdict::NoDifference),
            count(Verdict::TooFewRuns),
        )?;
        if self.rows.len() > 1 {
            writeln!(output, "one row in twenty looks different by chance alone: believe what repeats")?;
        }
        Ok(())
    }
}

impl Row {
    fn of(before: &Figure, after: &Figure) -> Self {
        let enough = before.runs.len().min(after.runs.len()) >= RUNS_MIN;
        let ratio = ratio(&before.runs, &after.runs).filter(|_| enough);
        let verdict = match ratio {
            None => Verdict::TooFewRuns,
            Some(ratio) if ratio.holds(1.0) => Verdict::NoDifference,
            Some(ratio) if ratio.value > 1.0 => Verdict::Higher,
            Some(_) => Verdict::Lower,
        };
        let median = crate::storage::statistics::median;
        Self {
            name: before.name.clone(),
            figure: before.figure.clone(),
            before: median(&before.runs),
            after: median(&after.runs),
            ratio,
            verdict,
        }
    }
}

impl Verdict {
    fn text(self) -> &'static str {
        match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
            Self::NoDifference => "no difference",
            Self::TooFewRuns => "too few runs",
        }
    }
}

/// Every figure with runs: those of the document itself, and of its rows.
fn figures(document: &Value) -> Vec<Figure> {
    let mut found = figures_of("", document);
    for list in ["results", "stages"] {
        for row in document[list].as_array().into_iter().flatten() {
            found.extend(figures_of(&name_of(row), row));
        }
    }
    found
}

/// The figures in the `spread` of a row; a lone spread is that of its rate.
fn figures_of(name: &str, row: &Value) -> Vec<Figure> {
    let runs = |spread: &Value| -> Option<Vec<f64>> {
        spread["runs"].as_array().map(|runs| runs.iter().filter_map(Value::as_f64).collect())
    };
    let figure = |figure: &str, runs| Figure { name: name.to_owned(), figure: figure.to_owned(), runs };
    let spread = &row["spread"];
    if let Some(runs) = runs(spread) {
        return vec![figure("rate", runs)];
    }
    let each = spread.as_object().into_iter().flatten();
    each.filter_map(|(key, spread)| Some(figure(key, runs(spread)?))).filter(|found| !found.runs.is_empty()).collect()
}

fn name_of(row: &Value) -> String {
    let text = |key: &&str| match &row[*key] {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(format!("{key}={number}")),
        _ => None,
    };
    NAMES.iter().filter_map(text).collect::<Vec<_>>().join(" ")
}

fn differences(before: &Value, after: &Value) -> Vec<String> {
    let names = ["cpu", "cores_available", "kernel", "memory_bytes"];
    names.into_iter().filter(|name| before[*name] != after[*name]).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document(runs: &[f64]) -> Value {
        let spread = json!({"runs": runs, "median": 0});
        json!({
            "machine": {"cpu": "Abacus", "kernel": "6"},
            "results": [
                {"method": "pread", "threads": 2, "spread": {"mb_per_s": spread, "p99_ms": {"runs": [1.0, 1.1, 0.9]}}},
                {"name": "zune full", "spread": spread},
            ],
            "spread": {"images_per_s": spread},
        })
    }

    #[test]
    fn what_differs_by_more_than_chance_is_told() {
        let (before, after) = (document(&[100.0, 101.0, 99.0]), document(&[120.0, 121.0, 119.0]));
        let comparison = Comparison::of(&before, &after);
        let verdicts: Vec<_> =
            comparison.rows.iter().map(|row| (row.name.as_str(), row.figure.as_str(), row.verdict)).collect();
        let expected = [
            ("", "images_per_s", Verdict::Higher),
            ("pread threads=2", "mb_per_s", Verdict::Higher),
            ("pread threads=2", "p99_ms", Verdict::NoDifference),
            ("zune full", "rate", Verdict::Higher),
        ];
        assert_eq!(verdicts, expected);
        assert_eq!(Comparison::of(&after, &before).rows[0].verdict, Verdict::Lower);
    }

    #[test]
    fn two_runs_are_too_few_and_rows_without_a_partner_are_told() {
        let mut after = document(&[50.0, 60.0]);
        after["results"][1]["name"] = "turbo full".into();
        after["machine"]["kernel"] = "7".into();
        let comparison = Comparison::of(&document(&[100.0, 101.0, 99.0]), &after);
        assert_eq!(comparison.rows[0].verdict, Verdict::TooFewRuns);
        assert_eq!(
            (comparison.only_before.as_slice(), comparison.only_after.len()),
            (&["zune full rate".to_owned()][..], 1)
        );
        assert_eq!(comparison.machines_differ, ["kernel"]);
        assert!(Comparison::of(&json!({}), &json!([1])).rows.is_empty());
    }
}
