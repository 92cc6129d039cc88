//! `brimful ls`: one line a sample. It reads headers only; whether fields can be decoded is not its business.

use std::io::Write;
use std::path::Path;

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::args::LsArgs;
use super::failure::{Outcome, report};
use super::output::{Output, printable};
use super::shards::{self, Listing};
use crate::sample::{FieldRef, Key, SampleRef};
use crate::shard::ShardOptions;

pub(super) fn run(args: &LsArgs, output: &mut Output) -> anyhow::Result<Outcome> {
    let options = shards::options(&args.read);
    let paths = shards::paths(&args.shards)?;
    let (mut bad, mut lost) = (false, 0);
    for path in &paths {
        match list(path, &options, args, output) {
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
fn list(path: &Path, options: &ShardOptions, args: &LsArgs, output: &mut Output) -> anyhow::Result<Outcome> {
    let listing = Listing::read(path, options)?;
    for sample in listing.samples.iter() {
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
