//! `brimful verify`: what is wrong with shards, line by line and summed up, and repaired ones on request.

use std::io::{self, Write};

use serde::Serialize;

use super::args::{DuplicatesChoice, VerifyArgs};
use super::failure::Outcome;
use super::machine::{Machine, cores_available};
use super::output::{Output, bytes_text, count_text, printable, write_whole};
use super::progress::Progress;
use super::shards;
use crate::convert::{Census, Duplicates, Finding, Repair, RepairOptions, Verification, VerifyOptions, repair, verify};
use crate::sample::FieldSelector;
use crate::{Error, ErrorKind};

pub(super) fn run(args: &VerifyArgs, output: &mut Output) -> anyhow::Result<Outcome> {
    let paths = shards::paths(&args.shards)?;
    let fields = args.fields.iter().map(|field| FieldSelector::parse(field)).collect::<crate::Result<Vec<_>>>()?;
    let threads = args.threads.unwrap_or_else(cores_available);
    let options = VerifyOptions { fields: fields.clone(), hash: args.hash, decode: args.decode, threads };
    let progress = Progress::new("verifying shards", paths.len());
    let verification = verify(&paths, &options, &|done, of| progress.set(done, of))?;
    progress.finish();
    let repaired = match &args.fix {
        None => None,
        Some(out) => {
            let duplicates = match args.duplicates {
                DuplicatesChoice::Drop => Duplicates::Drop,
                DuplicatesChoice::Rename => Duplicates::Rename,
                DuplicatesChoice::Refuse => {
                    let message = "--fix cannot refuse duplicates: rename or drop them";
                    return Err(Error::new(ErrorKind::InvalidOption, message).into());
                }
            };
            let options = RepairOptions { duplicates, decode: args.decode, fields, threads };
            let progress = Progress::new("repairing shards", paths.len());
            Some(repair(&paths, out, &options, &|done, of| progress.set(done, of))?)
        }
    };
    let document = Document { verification: &verification, repair: repaired.as_ref() };
    if let Some(path) = &args.document.out {
        write_whole(path, format!("{}\n", document.text()?).as_bytes())?;
    }
    if args.document.json {
        for finding in &verification.findings {
            serde_json::to_writer(&mut *output, finding).map_err(io::Error::from)?;
            writeln!(output)?;
        }
    } else {
        document.print(output)?;
    }
    let nothing = verification.samples == 0 && !verification.findings.is_empty();
    Ok(if nothing { Outcome::AllBad } else { Outcome::bad_if(!verification.counts.is_empty()) })
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

    fn print(&self, output: &mut Output) -> io::Result<()> {
        let Verification { shards, samples, bytes, fields, counts, findings, census } = self.verification;
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
        if let Some(Repair { shards, samples, regrouped, renamed, left_out }) = self.repair {
            let written = [
                format!("{} samples in {} shards", count_text(*samples), count_text(shards.len() as u64)),
                format!("{} put together", count_text(*regrouped)),
                format!("{} renamed", count_text(*renamed)),
                format!("{} left out", count_text(left_out.len() as u64)),
            ];
            writeln!(output, "repaired   {}", written.join(", "))?;
        }
        Ok(())
    }
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
