//! `brimful ls`: one line a sample. It reads headers only; whether fields can be decoded is not its business.

use std::io::Write;
use std::path::Path;

use glob::Pattern;
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::args::LsArgs;
use super::failure::{Outcome, report};
use super::output::{Output, printable};
use super::shards::{self, Listing};
use crate::sample::{FieldRef, FieldSelector, Key, SampleRef};
use crate::shard::ShardOptions;
use crate::{Error, ErrorKind};

pub(super) fn run(args: &LsArgs, output: &mut Output) -> anyhow::Result<Outcome> {
    let options = shards::options(&args.read);
    let paths = shards::paths(&args.shards)?;
    let mut filter = Filter::of(args)?;
    let (mut bad, mut lost) = (false, 0);
    for path in &paths {
        if filter.left == Some(0) {
            break;
        }
        match list(path, &options, args, &mut filter, output) {
            Ok(Outcome::Done) => {}
            Ok(Outcome::SomeBad) => bad = true,
            Ok(Outcome::AllBad) => lost += 1,
            Err(error) if !error.is::<crate::Error>() => return Err(error),
            Err(error) => {
                report(&error);
                lost += 1;
            }
        }
    }
    Ok(if lost == paths.len() { Outcome::AllBad } else { Outcome::bad_if(bad || lost > 0) })
}

/// Lists one shard.
fn list(
    path: &Path,
    options: &ShardOptions,
    args: &LsArgs,
    filter: &mut Filter,
    output: &mut Output,
) -> anyhow::Result<Outcome> {
    let listing = Listing::read(path, options)?;
    for sample in listing.samples.iter() {
        if filter.left == Some(0) {
            break;
        }
        if !filter.wants(&sample) {
            continue;
        }
        filter.left = filter.left.map(|left| left - 1);
        let line = Line(sample);
        if args.json {
            serde_json::to_writer(&mut *output, &line).map_err(std::io::Error::from)?;
            writeln!(output)?;
        } else {
            writeln!(output, "{}", line.text(args.long))?;
        }
    }
    // What is listed stands before what is told about it, also where both go to one terminal.
    output.flush()?;
    let nothing = listing.is_lost();
    let bad = listing.tell_damage();
    Ok(if nothing { Outcome::AllBad } else { Outcome::bad_if(bad) })
}

/// Which samples are listed.
struct Filter {
    key: Option<Pattern>,
    has: Vec<FieldSelector>,
    lacks: Vec<FieldSelector>,
    larger: u64,
    /// How many more.
    left: Option<u64>,
}

impl Filter {
    fn of(args: &LsArgs) -> anyhow::Result<Self> {
        let selectors =
            |fields: &[String]| fields.iter().map(|field| FieldSelector::parse(field)).collect::<Result<_, _>>();
        let wrong = |error: glob::PatternError| {
            Error::new(ErrorKind::InvalidOption, "--key is no valid pattern").with_source(error)
        };
        Ok(Self {
            key: args.key.as_deref().map(Pattern::new).transpose().map_err(wrong)?,
            has: selectors(&args.has)?,
            lacks: selectors(&args.lacks)?,
            larger: args.larger.unwrap_or(0),
            left: args.limit,
        })
    }

    fn wants(&self, sample: &SampleRef<'_>) -> bool {
        let has = |selector: &FieldSelector| sample.field(selector).is_some();
        self.key.as_ref().is_none_or(|key| key.matches(&Key::new(sample.key().to_vec()).to_string()))
            && self.has.iter().all(has)
            && !self.lacks.iter().any(has)
            && (self.larger == 0 || sample.fields().any(|field| field.size >= self.larger))
    }
}

/// One sample as a line.
struct Line<'a>(SampleRef<'a>);

impl Line<'_> {
    fn key(&self) -> Key {
        Key::new(self.0.key().to_vec())
    }

    /// The key, then each extension with its size in bytes; the long form names the shard first and has offsets.
    fn text(&self, long: bool) -> String {
        let mut text = if long { format!("{}  ", printable(self.0.shard_name())) } else { String::new() };
        text.push_str(&printable(&self.key().to_string()));
        for FieldRef { ext, offset, size } in self.0.fields() {
            text.push_str(&format!("  {} {size}", printable(ext)));
            if long {
                text.push_str(&format!(" @{offset}"));
            }
        }
        text
    }
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut line = serializer.serialize_map(Some(3))?;
        line.serialize_entry("shard", &**self.0.shard_name())?;
        line.serialize_entry("key", &self.key().to_string())?;
        line.serialize_entry("fields", &Fields(self.0))?;
        line.end()
    }
}

struct Fields<'a>(SampleRef<'a>);

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(None)?;
        for FieldRef { ext, offset, size } in self.0.fields() {
            fields.serialize_entry(ext, &Place { offset, size })?;
        }
        fields.end()
    }
}

#[derive(serde::Serialize)]
struct Place {
    offset: u64,
    size: u64,
}
