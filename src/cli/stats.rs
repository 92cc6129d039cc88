//! `brimful stats`: how large the fields of shards are, and how many samples each class has. It decodes nothing.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use serde::Serialize;

use super::args::StatsArgs;
use super::failure::{Outcome, report};
use super::machine::cores_available;
use super::output::{Output, bytes_text, count_text, printable};
use super::progress::Progress;
use super::shards::{self, Listing};
use crate::sample::FieldRef;
use crate::shard::ShardOptions;

/// Classes that a table shows.
const CLASSES_SHOWN: usize = 10;

/// The longest bar of a histogram, in characters.
const BAR: usize = 40;

/// Labels longer than this are no classes.
const LABEL_BYTES_MAX: u64 = 256;

pub(super) fn run(args: &StatsArgs, output: &mut Output) -> anyhow::Result<Outcome> {
    let options = shards::options(&args.read);
    let paths = shards::paths(&args.shards)?;
    let progress = Progress::new("reading shards", paths.len());
    let next = AtomicUsize::new(0);
    let total = Mutex::new((Stats::default(), false, 0));
    thread::scope(|scope| {
        for _ in 0..args.threads.unwrap_or_else(cores_available).min(paths.len()) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(path) = paths.get(number) else { break };
                    let read = Stats::of(path, &options, &args.class_field);
                    let (stats, bad, lost) = &mut *total.lock().unwrap_or_else(PoisonError::into_inner);
                    match read {
                        Ok((_, State::Lost)) => *lost += 1,
                        Ok((found, state)) => {
                            stats.add(found);
                            *bad |= matches!(state, State::Damaged);
                        }
                        Err(error) => {
                            report(&error.into());
                            *lost += 1;
                        }
                    }
                    progress.set(number + 1, paths.len());
                }
            });
        }
    });
    progress.finish();
    let (stats, bad, lost) = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    if lost == paths.len() {
        return Ok(Outcome::AllBad);
    }
    output.document(&args.document, &stats, |output| stats.print(output))?;
    Ok(Outcome::bad_if(bad || lost > 0))
}

/// How much of a shard could be read.
enum State {
    Whole,
    Damaged,
    /// Nothing.
    Lost,
}

/// What some shards hold, in numbers.
#[derive(Debug, Default, Serialize)]
struct Stats {
    shards: u64,
    samples: u64,
    /// Sizes by extension.
    fields: BTreeMap<String, Sizes>,
    /// Samples by class, as their label field says.
    classes: BTreeMap<String, u64>,
}

/// The sizes of the fields with one extension, in bytes.
#[derive(Debug, Default, Serialize)]
struct Sizes {
    count: u64,
    bytes: u64,
    bytes_min: u64,
    bytes_max: u64,
    /// Fields by size: the number of those up to each power of two.
    histogram: BTreeMap<u64, u64>,
}

impl Stats {
    /// Those of one shard, and its state, which is told unless it is whole.
    fn of(path: &Path, options: &ShardOptions, class_field: &str) -> crate::Result<(Self, State)> {
        let listing = Listing::read(path, options)?;
        let mut stats = Self { shards: 1, ..Self::default() };
        for sample in listing.samples.iter() {
            stats.samples += 1;
            for field in sample.fields() {
                match stats.fields.get_mut(field.ext) {
                    Some(sizes) => sizes.push(field.size),
                    None => stats.fields.entry(field.ext.to_owned()).or_default().push(field.size),
                }
                if field.ext == class_field && field.size <= LABEL_BYTES_MAX {
                    *stats.classes.entry(label(&listing, &field)?).or_default() += 1;
                }
            }
        }
        let is_lost = listing.is_lost();
        let bad = listing.tell_damage();
        Ok((
            stats,
            if is_lost {
                State::Lost
            } else if bad {
                State::Damaged
            } else {
                State::Whole
            },
        ))
    }

    fn add(&mut self, other: Self) {
        self.shards += other.shards;
        self.samples += other.samples;
        for (ext, sizes) in other.fields {
            self.fields.entry(ext).or_default().add(sizes);
        }
        other.classes.into_iter().for_each(|(class, count)| *self.classes.entry(class).or_default() += count);
    }

    fn print(&self, output: &mut Output) -> io::Result<()> {
        writeln!(output, "shards     {}", count_text(self.shards))?;
        writeln!(output, "samples    {}", count_text(self.samples))?;
        for (ext, sizes) in &self.fields {
            let Sizes { count, bytes, bytes_min, bytes_max, histogram } = sizes;
            let mean = bytes.checked_div(*count).unwrap_or(0);
            let all = [*bytes, *bytes_min, mean, *bytes_max].map(bytes_text);
            let ext = printable(ext);
            writeln!(
                output,
                "\n{ext}: {} fields, {}; {} to {}, {} on average",
                count_text(*count),
                all[0],
                all[1],
                all[3],
                all[2]
            )?;
            let rows = histogram.iter().map(|(size, count)| (format!("up to {}", bytes_text(*size)), *count));
            print_bars(rows.collect(), output)?;
        }
        if !self.classes.is_empty() {
            let (least, most) = (self.classes.values().min(), self.classes.values().max());
            let (least, most) = (least.copied().unwrap_or(0), most.copied().unwrap_or(0));
            let count = self.classes.len() as u64;
            writeln!(
                output,
                "\n{} classes, {} to {} samples each",
                count_text(count),
                count_text(least),
                count_text(most)
            )?;
            let mut classes: Vec<(String, u64)> =
                self.classes.iter().map(|(class, count)| (printable(class), *count)).collect();
            classes.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            let more = classes.len().saturating_sub(CLASSES_SHOWN);
            classes.truncate(CLASSES_SHOWN);
            print_bars(classes, output)?;
            if more > 0 {
                writeln!(output, "  and {} more; --json has them all", count_text(more as u64))?;
            }
        }
        Ok(())
    }
}

/// The label of a sample as text.
fn label(listing: &Listing, field: &FieldRef<'_>) -> crate::Result<String> {
    listing.shard.populate(field.range())?;
    let bytes = listing.shard.read(field.range())?;
    Ok(String::from_utf8_lossy(bytes.trim_ascii()).into_owned())
}

impl Sizes {
    fn push(&mut self, size: u64) {
        self.bytes_min = if self.count == 0 { size } else { self.bytes_min.min(size) };
        self.bytes_max = self.bytes_max.max(size);
        self.count += 1;
        self.bytes = self.bytes.saturating_add(size);
        *self.histogram.entry(size.checked_next_power_of_two().unwrap_or(u64::MAX)).or_default() += 1;
    }

    fn add(&mut self, other: Self) {
        self.bytes_min = if self.count == 0 { other.bytes_min } else { self.bytes_min.min(other.bytes_min) };
        self.bytes_max = self.bytes_max.max(other.bytes_max);
        self.count += other.count;
        self.bytes = self.bytes.saturating_add(other.bytes);
        other.histogram.into_iter().for_each(|(size, count)| *self.histogram.entry(size).or_default() += count);
    }
}

/// Rows with a bar each, as long as its number.
fn print_bars(rows: Vec<(String, u64)>, output: &mut Output) -> io::Result<()> {
    let most = rows.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    for (name, count) in rows {
        let bar = "#".repeat((count as usize * BAR).div_ceil(most as usize));
        writeln!(output, "  {name:<width$}  {:>9}  {bar}", count_text(count))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_add_up() {
        let mut sizes = Sizes::default();
        [0, 5, 700].into_iter().for_each(|size| sizes.push(size));
        let mut other = Sizes::default();
        other.push(3);
        sizes.add(other);
        assert_eq!((sizes.count, sizes.bytes, sizes.bytes_min, sizes.bytes_max), (4, 708, 0, 700));
        assert_eq!(sizes.histogram, BTreeMap::from([(1, 1), (4, 1), (8, 1), (1024, 1)]));
    }
}
