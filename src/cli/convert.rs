//! `brimful convert`: other layouts become shards. What the conversion is, the library knows; here it is asked for and told.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;

use super::args::{ConvertArgs, DuplicatesChoice, FormatChoice, NamesChoice, SideChoice};
use super::failure::{Outcome, note, warn};
use super::folders;
use super::machine::cores_available;
use super::output::{Output, bytes_text, count_text, rate_text};
use super::progress::Progress;
use crate::convert::{
    self, Conversion, ConvertOptions, Dataset, Duplicates, ListOptions, Names, ParquetOptions, Part, PictureFormat,
    PictureOptions, PictureTally, ResizeBy, ShardLimit, SourceKind,
};
use crate::{Error, ErrorKind};

/// Shards beyond this size are slow to move and to start with.
const SHARD_WARNING_BYTES: u64 = 2_000_000_000;

/// Extensions of pictures, in the order in which a loader tries them.
const PICTURES: [&str; 7] = ["jpg", "png", "webp", "tiff", "bmp", "ppm", "pgm"];

pub(super) fn run(args: &ConvertArgs, output: &mut Output) -> anyhow::Result<Outcome> {
    let started = Instant::now();
    let Some(destination) = &args.destination else {
        let dataset = convert::merge(&args.source)?;
        return tell(Summary::of(&dataset, None, &args.source, started), args, output);
    };
    let kind = source(args)?;
    let conversion = Conversion::plan(&kind, destination, options(args))?;
    conversion.notes().iter().for_each(|sentence| warn(sentence));
    let asked_bytes = if args.samples_per_shard.is_none() { args.shard_size } else { 0 };
    let shard_bytes = conversion.shard_bytes_max().max(asked_bytes);
    if shard_bytes > SHARD_WARNING_BYTES {
        let bytes = bytes_text(shard_bytes);
        warn(&format!("shards of up to {bytes} are slow to move and to start with; 1GB is a good size"));
    }
    if args.dry_run {
        return tell_plan(&conversion, kind.as_str(), args, output);
    }
    warn_of_room(destination, &conversion);
    let progress = Progress::new("converting", conversion.samples());
    let part = args.part.map_or(1, |part| part.of);
    let all = conversion.samples().div_ceil(part);
    let made = conversion.run(&|done, _| progress.set(usize::try_from(done).unwrap_or(usize::MAX), all))?;
    progress.finish();
    match made {
        convert::Outcome::Complete(dataset) => {
            tell(Summary::of(&dataset, Some(kind.as_str()), destination, started), args, output)
        }
        convert::Outcome::Part { shards, samples, bytes, left_out } => {
            let part =
                PartSummary { part: args.part.unwrap_or(Part { number: 1, of: 1 }), shards, samples, bytes, left_out };
            output.document(&args.document, &part, |output| part.print(destination, output))?;
            Ok(Outcome::bad_if(left_out > 0))
        }
    }
}

fn options(args: &ConvertArgs) -> ConvertOptions {
    ConvertOptions {
        limit: args.samples_per_shard.map_or(ShardLimit::Bytes(args.shard_size), ShardLimit::Samples),
        shuffle: args.shuffle,
        sorted: args.sort,
        val_share: args.val,
        split_seed: args.split_seed,
        names: match args.names {
            NamesChoice::Refuse => Names::Refuse,
            NamesChoice::Escape => Names::Escape,
        },
        duplicates: match args.duplicates {
            DuplicatesChoice::Refuse => Duplicates::Refuse,
            DuplicatesChoice::Rename => Duplicates::Rename,
            DuplicatesChoice::Drop => Duplicates::Drop,
        },
        picture: picture_options(args),
        errors_max: args.max_errors,
        resume: args.resume,
        part: args.part.unwrap_or(Part { number: 1, of: 1 }),
        threads: args.threads.unwrap_or_else(cores_available),
    }
}

fn picture_options(args: &ConvertArgs) -> PictureOptions {
    PictureOptions {
        resize: args.resize,
        resize_by: match args.resize_by {
            SideChoice::Longer => ResizeBy::Longer,
            SideChoice::Shorter => ResizeBy::Shorter,
        },
        quality: args.quality.unwrap_or(PictureOptions::default().quality),
        format: match args.format {
            FormatChoice::Keep => PictureFormat::Keep,
            FormatChoice::Jpg => PictureFormat::Jpg,
            FormatChoice::Webp => PictureFormat::WebP,
        },
        restart_rows: args.restart_rows,
        strip_metadata: args.strip_metadata,
        apply_orientation: args.apply_orientation,
        fields: args.fields.iter().map(|field| field.to_lowercase()).collect(),
    }
}

/// What the source is, with what was typed about it.
fn source(args: &ConvertArgs) -> crate::Result<SourceKind> {
    let kind = SourceKind::of(&args.source)?;
    let about_list = args.root.is_some() || args.path_column.is_some();
    let about_parquet = args.image_column.is_some();
    let invalid = |message: &str| Err(Error::new(ErrorKind::InvalidOption, message));
    let encodes = args.resize.is_some() || args.format == FormatChoice::Jpg || args.apply_orientation;
    if args.quality.is_some() && !encodes {
        return invalid(
            "--quality is for JPEG files that are encoded anew: by --resize, --format jpg or --apply-orientation",
        );
    }
    if !args.fields.is_empty() && !picture_options(args).change_pictures() {
        return invalid("--fields says which pictures are changed, but no option says how");
    }
    match kind {
        SourceKind::List(_) if about_parquet => invalid("--image-column is for Parquet files"),
        SourceKind::List(list) => Ok(SourceKind::List(ListOptions {
            root: args.root.clone(),
            path_column: args.path_column.clone(),
            label_column: args.label_column.clone(),
            ..list
        })),
        _ if about_list => invalid("--root and --path-column are for lists"),
        SourceKind::Parquet(files) => Ok(SourceKind::Parquet(ParquetOptions {
            image_column: args.image_column.clone(),
            label_column: args.label_column.clone(),
            ..files
        })),
        _ if about_parquet || args.label_column.is_some() => {
            invalid("--image-column is for Parquet files, --label-column for them and for lists")
        }
        kind => Ok(kind),
    }
}

/// Says beforehand that the disk will be full. Where the system does not tell, the disk will.
fn warn_of_room(destination: &Path, conversion: &Conversion) {
    let absolute = std::path::absolute(destination).unwrap_or_else(|_| destination.to_owned());
    let Some(Ok(found)) = folders::existing(&absolute).map(rustix::fs::statvfs) else { return };
    let room = found.f_bavail.saturating_mul(found.f_frsize);
    if room < conversion.bytes() {
        let (needed, room) = (bytes_text(conversion.bytes()), bytes_text(room));
        warn(&format!("the shards take up to {needed}, and '{}' has room for {room}", destination.display()));
    }
}

fn tell_plan(
    conversion: &Conversion,
    source: &'static str,
    args: &ConvertArgs,
    output: &mut Output,
) -> anyhow::Result<Outcome> {
    let plan = PlanSummary {
        source,
        samples: conversion.samples(),
        shards: conversion.shards(),
        bytes: conversion.bytes(),
        classes: conversion.classes(),
        fields: conversion.fields().to_vec(),
        notes: conversion.notes(),
    };
    output.document(&args.document, &plan, |output| plan.print(output))?;
    Ok(Outcome::Done)
}

fn tell(summary: Summary, args: &ConvertArgs, output: &mut Output) -> anyhow::Result<Outcome> {
    output.document(&args.document, &summary, |output| summary.print(output))?;
    if args.document.json {
        note(&summary.python());
    }
    Ok(Outcome::bad_if(summary.left_out > 0))
}

/// What would be done.
#[derive(Debug, Serialize)]
struct PlanSummary {
    /// What the source was taken for.
    source: &'static str,
    samples: usize,
    shards: usize,
    bytes: u64,
    classes: usize,
    fields: Vec<String>,
    notes: Vec<String>,
}

impl PlanSummary {
    fn print(&self, output: &mut Output) -> io::Result<()> {
        writeln!(output, "source     {}", self.source)?;
        writeln!(output, "samples    {} (nothing is written)", count_text(self.samples as u64))?;
        writeln!(output, "shards     {}", count_text(self.shards as u64))?;
        writeln!(output, "bytes      {}", bytes_text(self.bytes))?;
        writeln!(output, "classes    {}", count_text(self.classes as u64))?;
        writeln!(output, "fields     {}", self.fields.join(", "))
    }
}

/// What a part has made.
#[derive(Debug, Serialize)]
struct PartSummary {
    #[serde(serialize_with = "part_text")]
    part: Part,
    shards: usize,
    samples: u64,
    bytes: u64,
    left_out: u64,
}

fn part_text<S: serde::Serializer>(part: &Part, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{}/{}", part.number, part.of))
}

impl PartSummary {
    fn print(&self, destination: &Path, output: &mut Output) -> io::Result<()> {
        let Part { number, of } = self.part;
        writeln!(output, "part       {number} of {of}")?;
        writeln!(output, "samples    {}", count_text(self.samples))?;
        writeln!(output, "shards     {}, {}", count_text(self.shards as u64), bytes_text(self.bytes))?;
        if self.left_out > 0 {
            writeln!(output, "left out   {}", count_text(self.left_out))?;
        }
        writeln!(output, "\nOnce all {of} parts have ended:\n  brimful convert --merge {}", destination.display())
    }
}

/// What has become of the source.
#[derive(Debug, Serialize)]
struct Summary {
    /// What the source was taken for; a merge does not know.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'static str>,
    samples: u64,
    shards: usize,
    bytes: u64,
    left_out: u64,
    classes: usize,
    fields: BTreeMap<String, u64>,
    pictures: Option<PictureTally>,
    /// Pattern of the shards of each split.
    splits: BTreeMap<String, PathBuf>,
    seconds: f64,
    samples_per_s: f64,
    mb_per_s: f64,
    #[serde(skip)]
    destination: PathBuf,
}

impl Summary {
    fn of(dataset: &Dataset, source: Option<&'static str>, destination: &Path, started: Instant) -> Self {
        let seconds = started.elapsed().as_secs_f64();
        let splits = dataset.splits.iter().map(|split| (split.name.clone(), destination.join(&split.pattern)));
        Self {
            source,
            samples: dataset.samples,
            shards: dataset.splits.iter().map(|split| split.shards.len()).sum(),
            bytes: dataset.bytes,
            left_out: dataset.left_out,
            classes: dataset.classes,
            fields: dataset.fields.clone(),
            pictures: dataset.pictures.clone(),
            splits: splits.collect(),
            seconds,
            samples_per_s: dataset.samples as f64 / seconds.max(1e-9),
            mb_per_s: dataset.bytes as f64 / 1e6 / seconds.max(1e-9),
            destination: destination.to_owned(),
        }
    }

    fn print(&self, output: &mut Output) -> io::Result<()> {
        let fields: Vec<String> =
            self.fields.iter().map(|(ext, count)| format!("{ext} {}", count_text(*count))).collect();
        if let Some(source) = self.source {
            writeln!(output, "source     {source}")?;
        }
        writeln!(output, "samples    {} ({})", count_text(self.samples), fields.join(", "))?;
        writeln!(output, "shards     {}, {}", count_text(self.shards as u64), bytes_text(self.bytes))?;
        if self.classes > 0 {
            writeln!(output, "classes    {}", count_text(self.classes as u64))?;
        }
        if self.left_out > 0 {
            let list = self.destination.join("left_out.jsonl");
            writeln!(output, "left out   {}, listed in {}", count_text(self.left_out), list.display())?;
        }
        if let Some(pictures) = &self.pictures {
            writeln!(output, "pictures   {}", pictures_text(pictures))?;
        }
        let (samples, bytes) = (rate_text(self.samples_per_s), rate_text(self.mb_per_s));
        writeln!(output, "time       {:.2} s, {samples} samples/s, {bytes} MB/s", self.seconds)?;
        for (split, pattern) in &self.splits {
            writeln!(output, "{split:<9}  {}", pattern.display())?;
        }
        writeln!(output, "\n{}", self.python())
    }

    /// Three lines of Python that load the training split.
    fn python(&self) -> String {
        let pattern = self.splits.get("train").map_or(String::new(), |pattern| pattern.display().to_string());
        let pictures: Vec<&str> = PICTURES.into_iter().filter(|ext| self.fields.contains_key(*ext)).collect();
        let picture = if pictures.is_empty() { "jpg".into() } else { pictures.join(";") };
        let fields = match self.fields.contains_key("cls") {
            true => format!("(\"{picture}\", \"cls\")"),
            false => format!("\"{picture}\""),
        };
        // A string of JSON is one of Python.
        let pattern = serde_json::Value::from(pattern);
        format!(
            "from brimful import DataLoader, ShardDataset, transforms as T\n\
             dataset = ShardDataset({pattern}, fields={fields}, transform=T.Compose([T.RandomResizedCrop(224), T.ToTensor()]))\n\
             loader = DataLoader(dataset, batch_size=256, shuffle=True, num_workers=8)"
        )
    }
}

/// What was done to pictures, and what that did to their size.
fn pictures_text(tally: &PictureTally) -> String {
    let PictureTally {
        changed,
        encoded,
        turned_lossless,
        marked,
        unmarked,
        bared,
        left_alone,
        bytes_before,
        bytes_after,
    } = *tally;
    let parts = [
        (changed, "changed"),
        (encoded, "encoded anew"),
        (turned_lossless, "turned without loss"),
        (marked, "with restart markers"),
        (unmarked, "that cannot have restart markers"),
        (bared, "without some of their metadata"),
        (left_alone, "in other fields left as they are (--fields names those that change)"),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{} {what}", count_text(*count)))
        .collect();
    let change = (bytes_after as f64 / bytes_before.max(1) as f64 - 1.0) * 100.0;
    let sizes = [bytes_before, bytes_after].map(bytes_text);
    let what = if parts.is_empty() { "none changed".to_owned() } else { parts.join(", ") };
    format!("{what}; {} became {} ({change:+.2} %)", sizes[0], sizes[1])
}
