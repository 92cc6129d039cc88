//! In which order bytes are asked for: whole files one after the other, several side by side, files in random order,
//! samples at random, blocks at random. It makes requests; it reads nothing.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};

use super::layout::Layout;
use crate::error::{Error, ErrorKind, Result};

/// Files that a thread reads side by side under [`Pattern::Interleaved`] at most.
const SIDE_BY_SIDE: usize = 8;

/// Bytes of one request for a sample at most; larger samples are asked for in several.
pub const SAMPLE_REQUEST_BYTES: u64 = 16 << 20;

/// In which order bytes are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Whole files in order, each from its start to its end, one at a time for each thread.
    Sequential,
    /// As sequential, but each thread goes round up to eight files, a block of each at a time.
    Interleaved,
    /// As sequential, files in random order.
    Shuffled,
    /// Samples in random order: what a global shuffle asks for.
    Members,
    /// Blocks in random order, each once: what `randread` of fio asks for.
    Blocks,
}

impl Pattern {
    /// All patterns.
    pub const ALL: [Self; 5] = [Self::Sequential, Self::Interleaved, Self::Shuffled, Self::Members, Self::Blocks];

    /// The pattern as one word, as arguments and documents spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Interleaved => "interleaved",
            Self::Shuffled => "shuffled",
            Self::Members => "members",
            Self::Blocks => "blocks",
        }
    }

    /// Whether neighbouring requests of a thread lie anywhere, so that reading ahead is wasted.
    #[must_use]
    pub fn is_random(self) -> bool {
        matches!(self, Self::Members | Self::Blocks)
    }
}

/// Bytes that are asked for at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    /// Number of the file.
    pub(super) file: usize,
    /// Offset of the first byte.
    pub(super) offset: u64,
    /// Number of bytes, at least 1.
    pub(super) len: usize,
    /// The sample whose last bytes these are, and whether they are its first as well.
    pub(super) ends_sample: Option<(usize, bool)>,
    /// The sample whose first bytes these are.
    pub(super) begins_sample: Option<usize>,
}

/// All requests of a run, shared by its threads: each is given out once, or once a round where rounds repeat.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    layout: &'a Layout,
    units: Units,
    block_bytes: u64,
    side_by_side: usize,
    repeats: bool,
    next: AtomicUsize,
}

#[derive(Debug)]
enum Units {
    /// Ranges that are read from start to end.
    Parts(Vec<Part>),
    /// Numbers of samples.
    Samples(Vec<u32>),
    /// Ranges of a block.
    Blocks(Vec<Part>),
}

#[derive(Debug, Clone, Copy)]
struct Part {
    file: u32,
    offset: u64,
    end: u64,
}

impl<'a> Plan<'a> {
    /// The requests for `layout` by `threads` threads in blocks of `block_bytes`; `repeats` starts anew at the end.
    ///
    /// Under [`Pattern::Members`] a request is a sample and the size of blocks has no effect.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] for no threads, blocks of no bytes, and members of a layout without samples;
    /// [`ErrorKind::Limit`] for more units than a u32 counts.
    pub(super) fn new(
        layout: &'a Layout,
        pattern: Pattern,
        threads: usize,
        block_bytes: u64,
        seed: u64,
        repeats: bool,
    ) -> Result<Self> {
        if threads == 0 || block_bytes == 0 {
            let message = format!("threads={threads} and block_bytes={block_bytes} must both be above 0");
            return Err(Error::new(ErrorKind::InvalidOption, message));
        }
        let units = match pattern {
            Pattern::Sequential | Pattern::Interleaved => Units::Parts(parts(layout, threads, block_bytes)),
            Pattern::Shuffled => Units::Parts(shuffled(parts(layout, threads, block_bytes), seed)),
            Pattern::Members => {
                let count = u32::try_from(layout.samples().len()).map_err(|_| too_many("samples"))?;
                if count == 0 {
                    let error = Error::new(ErrorKind::InvalidOption, "the shards have no samples to read at random");
                    return Err(error.with_hint("choose another pattern"));
                }
                Units::Samples(shuffled((0..count).collect(), seed))
            }
            Pattern::Blocks => {
                let blocks: u64 = (0..layout.len()).map(|file| layout.size(file).div_ceil(block_bytes)).sum();
                u32::try_from(blocks).map_err(|_| too_many("blocks"))?;
                Units::Blocks(shuffled(blocks_of(layout, block_bytes), seed))
            }
        };
        let side_by_side = match pattern {
            Pattern::Interleaved => layout.len().div_ceil(threads).clamp(1, SIDE_BY_SIDE),
            _ => 1,
        };
        Ok(Self { layout, units, block_bytes, side_by_side, repeats, next: AtomicUsize::new(0) })
    }

    /// The largest request that can come, in bytes.
    pub(super) fn request_bytes_max(&self) -> usize {
        match &self.units {
            Units::Samples(_) => {
                let longest = self.layout.samples().iter().map(|sample| sample.len).max().unwrap_or(0);
                longest.min(SAMPLE_REQUEST_BYTES) as usize
            }
            Units::Parts(_) | Units::Blocks(_) => {
                let longest = (0..self.layout.len()).map(|file| self.layout.size(file)).max().unwrap_or(0);
                longest.min(self.block_bytes) as usize
            }
        }
    }

    /// A thread's way through the plan.
    pub(super) fn walk(&self) -> Walk<'_> {
        Walk { plan: self, open: Vec::new(), turn: 0 }
    }

    fn take(&self, count: usize) -> Option<usize> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if self.repeats { Some(number % count) } else { (number < count).then_some(number) }
    }
}

/// One thread's way through a plan.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    plan: &'a Plan<'a>,
    /// What is begun and not read to its end: parts, or one sample.
    open: Vec<Open>,
    turn: usize,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    part: Part,
    /// The sample that this is, and where it began.
    sample: Option<(usize, u64)>,
}

impl Iterator for Walk<'_> {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        while self.open.len() < self.plan.side_by_side {
            match self.begin() {
                Some(open) => self.open.push(open),
                None => break,
            }
        }
        if self.open.is_empty() {
            return None;
        }
        self.turn = (self.turn + 1) % self.open.len();
        let turn = self.turn;
        let request = self.advance(turn);
        Some(request)
    }
}

impl Walk<'_> {
    fn begin(&self) -> Option<Open> {
        match &self.plan.units {
            Units::Parts(parts) | Units::Blocks(parts) => {
                Some(Open { part: parts[self.plan.take(parts.len())?], sample: None })
            }
            Units::Samples(samples) => {
                let number = samples[self.plan.take(samples.len())?] as usize;
                let sample = self.plan.layout.samples()[number];
                let end = sample.offset + sample.len;
                let part = Part { file: sample.file as u32, offset: sample.offset, end };
                Some(Open { part, sample: Some((number, sample.offset)) })
            }
        }
    }

    fn advance(&mut self, turn: usize) -> Request {
        let Open { part, sample } = &mut self.open[turn];
        let limit = if sample.is_some() { SAMPLE_REQUEST_BYTES } else { self.plan.block_bytes };
        // Blocks of a part lie on multiples of their size, as its start does.
        let len = (part.end - part.offset).min(limit);
        let offset = part.offset;
        part.offset += len;
        let is_last = part.offset >= part.end;
        let request = Request {
            file: part.file as usize,
            offset,
            len: len as usize,
            ends_sample: sample.filter(|_| is_last).map(|(number, start)| (number, start == offset)),
            begins_sample: sample.filter(|(_, start)| *start == offset).map(|(number, _)| number),
        };
        if is_last {
            self.open.remove(turn);
        }
        request
    }
}

/// Whole files; where they are fewer than threads, each in as many parts as give every thread one.
fn parts(layout: &Layout, threads: usize, block_bytes: u64) -> Vec<Part> {
    let each = threads.div_ceil(layout.len()) as u64;
    let mut parts = Vec::new();
    for file in 0..layout.len() {
        let size = layout.size(file);
        let blocks = size.div_ceil(block_bytes);
        let part_bytes = blocks.div_ceil(each).saturating_mul(block_bytes);
        let mut offset = 0;
        while offset < size {
            let end = offset.saturating_add(part_bytes).min(size);
            parts.push(Part { file: file as u32, offset, end });
            offset = end;
        }
    }
    parts
}

fn blocks_of(layout: &Layout, block_bytes: u64) -> Vec<Part> {
    let mut blocks = Vec::new();
    for file in 0..layout.len() {
        let size = layout.size(file);
        let mut offset = 0;
        while offset < size {
            let end = offset.saturating_add(block_bytes).min(size);
            blocks.push(Part { file: file as u32, offset, end });
            offset = end;
        }
    }
    blocks
}

fn shuffled<T>(mut items: Vec<T>, seed: u64) -> Vec<T> {
    let mut random = Random::new(seed);
    for place in (1..items.len()).rev() {
        items.swap(place, random.below(place as u64 + 1) as usize);
    }
    items
}

fn too_many(what: &str) -> Error {
    Error::new(ErrorKind::Limit, format!("more {what} than are read at random: 4,294,967,295"))
        .with_hint("measure fewer shards, or larger blocks")
}

/// A small generator of random numbers (SplitMix64): the same seed gives the same numbers everywhere.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is above 0; the bias is below `end` in 2^64.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// A number from 0 to below 1.
    pub(super) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::example;
    use super::*;
    use proptest::prelude::*;

    /// Requests of all threads, taken in turn.
    fn requests(plan: &Plan<'_>, threads: usize) -> Vec<Vec<Request>> {
        let mut walks: Vec<_> = (0..threads).map(|_| plan.walk()).collect();
        let mut taken = vec![Vec::new(); threads];
        loop {
            let mut any = false;
            for (walk, taken) in walks.iter_mut().zip(&mut taken) {
                if let Some(request) = walk.next() {
                    taken.push(request);
                    any = true;
                }
            }
            if !any {
                return taken;
            }
        }
    }

    #[test]
    fn a_sample_larger_than_a_request_is_told_begun_and_ended_once() {
        let (_folder, layout) = example::layout(&[3000]);
        let plan = Plan::new(&layout, Pattern::Members, 1, 100, 0, false).unwrap();
        let mut walk = plan.walk();
        let first = walk.next().unwrap();
        assert_eq!(first.begins_sample.map(|number| (number, true)), first.ends_sample);
        // As if the limit were smaller: the same walk over a part in pieces.
        let part = Part { file: 0, offset: 0, end: SAMPLE_REQUEST_BYTES + 5 };
        walk.open = vec![Open { part, sample: Some((7, 0)) }];
        let (first, second) = (walk.advance(0), walk.advance(0));
        assert_eq!((first.begins_sample, first.ends_sample, first.len as u64), (Some(7), None, SAMPLE_REQUEST_BYTES));
        assert_eq!((second.begins_sample, second.ends_sample, second.len), (None, Some((7, false)), 5));
    }

    #[test]
    fn interleaving_goes_round_files() {
        let (_folder, layout) = example::layout(&[300, 300, 300]);
        let plan = Plan::new(&layout, Pattern::Interleaved, 1, 100, 0, false).unwrap();
        let files: Vec<usize> = plan.walk().map(|request| request.file).collect();
        let changes = files.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!(files.len() == 9 && changes >= 6, "{files:?}");
    }

    #[test]
    fn rounds_repeat_where_that_is_asked() {
        let (_folder, layout) = example::layout(&[300]);
        for pattern in Pattern::ALL {
            let plan = Plan::new(&layout, pattern, 1, 100, 0, true).unwrap();
            assert_eq!(plan.walk().take(50).count(), 50, "{pattern:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn every_byte_is_asked_for_once(
            sizes in proptest::collection::vec(1_u64..9000, 1..5),
            threads in 1_usize..6,
            block in 1_u64..3000,
            seed in any::<u64>(),
        ) {
            let (_folder, layout) = example::layout(&sizes);
            for pattern in Pattern::ALL {
                let plan = Plan::new(&layout, pattern, threads, block, seed, false).unwrap();
                let taken = requests(&plan, threads);
                let mut seen: Vec<Vec<u8>> = sizes.iter().map(|size| vec![0; *size as usize]).collect();
                for request in taken.iter().flatten() {
                    prop_assert!(request.len > 0 && request.len <= plan.request_bytes_max());
                    let start = request.offset as usize;
                    seen[request.file][start..start + request.len].iter_mut().for_each(|count| *count += 1);
                    if pattern != Pattern::Members {
                        prop_assert_eq!(request.offset % block, 0);
                    }
                }
                prop_assert!(seen.iter().flatten().all(|count| *count == 1), "{:?}", pattern);
                let ended = taken.iter().flatten().filter(|request| request.ends_sample.is_some()).count();
                prop_assert_eq!(ended, if pattern == Pattern::Members { layout.samples().len() } else { 0 });
            }
        }
    }
}
