//! `brimful verify`: what is wrong with shards, line by line and summed up, and repaired ones on request.
//!
//! It judges nothing: what a finding is, the library knows.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::args::{DuplicatesChoice, VerifyArgs};
use super::failure::Outcome;
use super::machine::{Machine, cores_available};
use super::output::{Output, bytes_text, count_text, printable, write_whole};
use super::progress::Progress;
use super::shards;
use crate::convert::{
    Census, Duplicates, Finding, FindingKind, Repair, RepairOptions, Verification, VerifyOptions,
    refuse_replacing_by_repair, repair, verify,
};
use crate::sample::FieldSelector;
use crate::{Error, ErrorKind};

pub(super) fn run(args: &VerifyArgs, output: &mut Output) -> anyhow::Result<Outcome> {
    let paths = shards::paths(&args.shards)?;
    let fields = args.fields.iter().map(|field| FieldSelector::parse(field)).collect::<crate::Result<Vec<_>>>()?;
    let threads = args.threads.unwrap_or_else(cores_available);
    let fix = match &args.fix {
        Some(out) => Some((out, repair_options(args, &paths, out, fields.clone(), threads)?)),
        None => None,
    };
    let json = args.document.json;
    let options = VerifyOptions { fields, hash: args.hash, decode: args.decode, all_findings: json, threads };
    let progress = Progress::new("verifying shards", paths.len());
    let verification = verify(&paths, &options, &|done, of| progress.set(done, of))?;
    progress.finish();
    // Told before anything is repaired, which may fail.
    if json {
        verification.findings.iter().try_for_each(|finding| json_line(finding, output))?;
    } else {
        print(&verification, output)?;
    }
    output.flush()?;
    let repaired = fix
        .map(|(out, options)| {
            let progress = Progress::new("repairing shards", paths.len());
            repair(&paths, out, &options, &|done, of| progress.set(done, of))
        })
        .transpose()?;
    if json {
        json_line(&Summary::of(&verification, repaired.as_ref()), output)?;
    } else if let Some(repaired) = &repaired {
        print_repair(repaired, output)?;
    }
    if let Some(path) = &args.document.out {
        let document = Document { verification: &verification, repair: repaired.as_ref() };
        write_whole(path, format!("{}\n", document.text()?).as_bytes())?;
    }
    let nothing = verification.samples == 0 && !verification.findings.is_empty();
    Ok(if nothing { Outcome::AllBad } else { Outcome::bad_if(!verification.counts.is_empty()) })
}

/// What a repair is asked to do; what it would refuse is refused before anything is read.
fn repair_options(
    args: &VerifyArgs,
    paths: &[PathBuf],
    out: &Path,
    fields: Vec<FieldSelector>,
    threads: usize,
) -> crate::Result<RepairOptions> {
    let duplicates = match args.duplicates {
        DuplicatesChoice::Drop => Duplicates::Drop,
        DuplicatesChoice::Rename => Duplicates::Rename,
        DuplicatesChoice::Refuse => {
            let message = "--fix cannot refuse duplicates: rename or drop them";
            return Err(Error::new(ErrorKind::InvalidOption, message));
        }
    };
    refuse_replacing_by_repair(paths, out)?;
    Ok(RepairOptions { duplicates, decode: args.decode, fields, threads })
}

fn json_line(value: &impl Serialize, output: &mut Output) -> io::Result<()> {
    serde_json::to_writer(&mut *output, value)?;
    writeln!(output)
}

/// The last line of JSON.
#[derive(Serialize)]
struct Summary<'a> {
    shards: usize,
    samples: u64,
    bytes: u64,
    fields: &'a BTreeMap<String, u64>,
    counts: &'a BTreeMap<FindingKind, u64>,
    census: Option<&'a Census>,
    repair: Option<&'a Repair>,
}

impl<'a> Summary<'a> {
    fn of(verification: &'a Verification, repair: Option<&'a Repair>) -> Self {
        let Verification { shards, samples, bytes, fields, counts, findings: _, census } = verification;
        let (shards, samples, bytes) = (*shards, *samples, *bytes);
        Self { shards, samples, bytes, fields, counts, census: census.as_ref(), repair }
    }
}

/// What is written to a file.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    verification: &'a Verification,
    repair: Option<&'a Repair>,
}

impl Document<'_> {
    fn text(&self) -> anyhow::Result<String> {
        let mut document = serde_json::to_value(self)?;
        document["version"] = env!("CARGO_PKG_VERSION").into();
        document["machine"] = serde_json::to_value(Machine::here())?;
        Ok(serde_json::to_string_pretty(&document)?)
    }
}

fn print(verification: &Verification, output: &mut Output) -> io::Result<()> {
    let Verification { shards, samples, bytes, fields, counts, findings, census } = verification;
    for finding in findings {
        writeln!(output, "{}", line(finding))?;
    }
    if !findings.is_empty() {
        writeln!(output)?;
    }
    let fields: Vec<String> =
        fields.iter().map(|(ext, count)| format!("{} {}", printable(ext), count_text(*count))).collect();
    writeln!(output, "shards     {}, {}", count_text(*shards as u64), bytes_text(*bytes))?;
    writeln!(output, "samples    {} ({})", count_text(*samples), fields.join(", "))?;
    if let Some(census) = census {
        print_census(census, output)?;
    }
    if counts.is_empty() {
        writeln!(output, "findings   none")?;
    }
    for (number, (kind, count)) in counts.iter().enumerate() {
        let label = if number == 0 { "findings" } else { "" };
        writeln!(output, "{label:<9}  {} {}: {}", count_text(*count), kind.as_str(), kind.advice())?;
    }
    Ok(())
}

fn print_repair(repair: &Repair, output: &mut Output) -> io::Result<()> {
    let Repair { shards, samples, regrouped, renamed, left_out, lost } = repair;
    let mut written = vec![
        format!("{} samples in {} shards", count_text(*samples), count_text(shards.len() as u64)),
        format!("{} put together", count_text(*regrouped)),
        format!("{} renamed", count_text(*renamed)),
        format!("{} left out", count_text(left_out.len() as u64)),
    ];
    if !lost.is_empty() {
        written.push(format!("{} places lost", count_text(lost.len() as u64)));
    }
    writeln!(output, "repaired   {}", written.join(", "))
}

/// A finding as one line.
fn line(finding: &Finding) -> String {
    let mut line = format!("{}: {}", printable(&finding.shard), finding.kind.as_str());
    if let Some(key) = &finding.key {
        line.push_str(&format!(" '{}'", printable(key)));
    }
    if let Some(offset) = finding.offset {
        line.push_str(&format!(" at byte {offset}"));
    }
    format!("{line}: {}", printable(&finding.message))
}

fn print_census(census: &Census, output: &mut Output) -> io::Result<()> {
    let list = |counts: &mut dyn Iterator<Item = (String, u64)>| -> String {
        let parts: Vec<String> = counts
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| format!("{name} {}", count_text(count)))
            .collect();
        parts.join(", ")
    };
    let named = |counts: &std::collections::BTreeMap<String, u64>| -> String {
        list(&mut counts.iter().map(|(name, count)| (name.clone(), *count)))
    };
    writeln!(
        output,
        "images     {} decoded, {} bad ({})",
        count_text(census.images),
        count_text(census.bad),
        named(&census.formats)
    )?;
    if let (Some((w, h)), Some((wide, high))) = (census.smallest, census.largest) {
        let sides = list(&mut census.sides.iter().map(|(side, count)| (format!("up to {side}:"), *count)));
        writeln!(output, "sizes      {w}x{h} to {wide}x{high}; longer side {sides}")?;
    }
    let kinds = [
        ("progressive", census.progressive),
        ("CMYK", census.cmyk),
        ("grey", census.grey),
        ("EXIF rotated", census.exif_rotated),
        ("over 8 bits", census.sixteen_bit),
        ("restart markers", census.restart_markers),
    ];
    let subsampling = census.subsampling.iter().map(|(name, count)| (name.clone(), *count));
    let kinds = list(&mut subsampling.chain(kinds.map(|(name, count)| (name.to_owned(), count))));
    if !kinds.is_empty() {
        writeln!(output, "kinds      {kinds}")?;
    }
    Ok(())
}
