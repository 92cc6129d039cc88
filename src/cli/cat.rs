//! `brimful cat`: the bytes of one field as they are. It decodes nothing.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};

use super::args::CatArgs;
use super::failure::Outcome;
use super::output::{Output, printable};
use super::shards::{self, Listing};
use crate::sample::{FieldRef, FieldSelector, Key, SampleRef};
use crate::{Error, ErrorKind, Result};

/// Keys that an error lists at most.
const KEYS_SHOWN: usize = 3;

pub(super) fn run(args: &CatArgs, output: &mut Output) -> anyhow::Result<Outcome> {
    let listing = Listing::read(&args.shard, &shards::options(&args.read))?;
    let wanted = match Wanted::find(args, &listing) {
        Ok(wanted) => wanted,
        Err(error) => {
            // It may stand behind the damage: both must be told.
            listing.tell_damage();
            return Err(error.into());
        }
    };
    match wanted {
        Wanted::Fields(fields) => {
            for FieldRef { ext, size, .. } in fields {
                writeln!(output, "{}  {size}", printable(ext))?;
            }
        }
        Wanted::Field(field) => {
            let range = field.range();
            listing.shard.populate(range.clone())?;
            let bytes = listing.shard.read(range)?;
            refuse_binary_on_terminal(&bytes)?;
            output.write_all(&bytes)?;
        }
    }
    Ok(Outcome::Done)
}

/// What to print.
enum Wanted<'a> {
    Field(FieldRef<'a>),
    Fields(Vec<FieldRef<'a>>),
}

impl<'a> Wanted<'a> {
    fn find(args: &CatArgs, listing: &'a Listing) -> Result<Self> {
        let name = args.key.as_encoded_bytes();
        let sample = listing.samples.iter().find(|sample| sample.key() == name);
        if args.list_fields {
            let sample = sample.ok_or_else(|| no_sample(&args.key, listing))?;
            return Ok(Self::Fields(sample.fields().collect()));
        }
        if let Some(field) = &args.field {
            let sample = sample.ok_or_else(|| no_sample(&args.key, listing))?;
            let selector = FieldSelector::parse(field)?;
            return sample.field(&selector).map(Self::Field).ok_or_else(|| no_field(field, &sample));
        }
        match sample {
            Some(sample) => only_field(&sample).map(Self::Field),
            None => named_field(name, listing).map(Self::Field).ok_or_else(|| no_sample(&args.key, listing)),
        }
    }
}

/// The field that `KEY.EXT` names. Extensions are kept in lower case, keys as they are.
fn named_field<'a>(name: &[u8], listing: &'a Listing) -> Option<FieldRef<'a>> {
    listing.samples.iter().find_map(|sample| {
        let extension = name.strip_prefix(sample.key())?.strip_prefix(b".")?.to_ascii_lowercase();
        sample.fields().find(|field| field.ext.as_bytes() == extension)
    })
}

/// A key alone means its field where it has one only.
fn only_field<'a>(sample: &SampleRef<'a>) -> Result<FieldRef<'a>> {
    let mut fields = sample.fields();
    match (fields.next(), fields.next()) {
        (Some(field), None) => Ok(field),
        _ => {
            let message = format!("the sample has several fields: {}", extensions(sample));
            Err(Error::new(ErrorKind::MissingField, message)
                .at_key(Key::new(sample.key().to_vec()))
                .in_shard(sample.shard_name().clone())
                .with_hint("add the field's extension to the key, or name it with --field"))
        }
    }
}

fn no_sample(key: &OsStr, listing: &Listing) -> Error {
    let count = listing.samples.len();
    let first: Vec<String> =
        listing.samples.iter().take(KEYS_SHOWN).map(|sample| Key::new(sample.key().to_vec()).to_string()).collect();
    let error = Error::new(ErrorKind::NotFound, format!("there is no '{}' among its {count} samples", key.display()))
        .in_shard(listing.shard.name().clone());
    match first.is_empty() {
        true => error,
        false => error.with_hint(format!("keys look like {}; `brimful ls` lists them all", first.join(", "))),
    }
}

fn no_field(field: &str, sample: &SampleRef<'_>) -> Error {
    Error::new(ErrorKind::MissingField, format!("there is no field '{field}', only {}", extensions(sample)))
        .at_key(Key::new(sample.key().to_vec()))
        .in_shard(sample.shard_name().clone())
}

fn extensions(sample: &SampleRef<'_>) -> String {
    sample.fields().map(|field| field.ext).collect::<Vec<_>>().join(", ")
}

/// Control characters can leave a terminal unusable.
fn refuse_binary_on_terminal(bytes: &[u8]) -> Result<()> {
    if io::stdout().is_terminal() && !is_text(bytes) {
        return Err(Error::new(ErrorKind::InvalidOption, "the field is binary and standard output is a terminal")
            .with_hint("send it to a file with `> FILE`, or to a program with `| PROGRAM`"));
    }
    Ok(())
}

fn is_text(bytes: &[u8]) -> bool {
    let harmless = |character: char| !character.is_control() || matches!(character, '\n' | '\t' | '\r');
    std::str::from_utf8(bytes).is_ok_and(|text| text.chars().all(harmless))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_told_from_binary() {
        assert!(is_text(b"7\n") && is_text("caf\u{e9}\t".as_bytes()) && is_text(b""));
        assert!(!is_text(b"\xff\xd8\xff") && !is_text(b"\x1b[2J") && !is_text(b"a\0b"));
    }
}
