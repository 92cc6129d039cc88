//! A lane makes one shard with a few threads: they read samples side by side and take turns at writing them in order.
//!
//! Nobody waits for a thread that only writes: whoever completes the sample that is due writes it and all behind it that are
//! ready. How many samples are in memory is bounded by number and by bytes.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::allowance::{Memory, Taken};
use super::journal::{LeftOut, ShardRecord};
use super::picture::{Painter, PictureOptions, PictureTally};
use super::plan::{Plan, PlannedShard};
use super::sample::{Fields, Packed};
use super::shard_file::ShardFile;
use super::source::Source;
use crate::error::{Error, ErrorKind, Result};

/// What all lanes of a conversion share.
pub(super) struct Job<'a> {
    pub(super) source: &'a dyn Source,
    pub(super) plan: &'a Plan,
    pub(super) folder: &'a Path,
    pub(super) picture: &'a PictureOptions,
    pub(super) memory: Memory,
    /// Bad samples that are allowed, and those met so far.
    pub(super) allowed: u64,
    pub(super) left_out: AtomicU64,
    /// Another lane has failed: nothing is to be begun.
    pub(super) is_over: AtomicBool,
    /// Samples that went through, and bytes of them.
    pub(super) done: AtomicU64,
    pub(super) done_bytes: AtomicU64,
    pub(super) progress: &'a (dyn Fn(u64, u64) + Sync),
}

/// What one thread keeps from sample to sample.
pub(super) struct Hand {
    fields: Fields,
    painter: Painter,
}

impl Hand {
    /// One that keeps no more than its share of `memory`.
    pub(super) fn new(memory: &Memory) -> Self {
        Self { fields: Fields::new(memory.hand_spare_bytes), painter: Painter::default() }
    }
}

/// Samples of a lane in memory, for each of its threads.
const SAMPLES_PER_HAND: usize = 32;
/// Bytes from which on ready samples are written although more are under way: few large writes cost less than many.
const RUN_BYTES: u64 = 512 << 10;

/// Makes one shard.
///
/// # Errors
/// Whatever keeps the shard from being written, and the bad sample that is one too many.
pub(super) fn make_shard(job: &Job<'_>, shard: &PlannedShard, hands: &mut [Hand]) -> Result<ShardRecord> {
    let file = ShardFile::create(job.folder.join(&shard.name))?;
    let lane = Lane {
        job,
        end: shard.end,
        window: hands.len() * SAMPLES_PER_HAND,
        state: Mutex::new(State { next: shard.start, front: shard.start, committed: shard.start, ..State::default() }),
        moved: Condvar::new(),
        written: Mutex::new(Written { file, left_out: Vec::new(), tally: PictureTally::default() }),
    };
    match hands {
        [hand] => lane.work(hand),
        _ => thread::scope(|scope| hands.iter_mut().for_each(|hand| drop(scope.spawn(|| lane.work(hand))))),
    }
    let state = lane.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = state.error {
        job.is_over.store(true, Ordering::Relaxed);
        return Err(error);
    }
    if state.committed < shard.end {
        return Err(Error::new(ErrorKind::Cancelled, "the conversion has ended before this shard"));
    }
    let Written { file, left_out, tally } = lane.written.into_inner().unwrap_or_else(PoisonError::into_inner);
    let pictures = (tally != PictureTally::default()).then_some(tally);
    Ok(ShardRecord { left_out, pictures, ..file.finish()? })
}

struct Lane<'a> {
    job: &'a Job<'a>,
    end: usize,
    /// Samples in memory at most.
    window: usize,
    state: Mutex<State<'a>>,
    /// Something was committed, or it is over.
    moved: Condvar,
    /// Held by whoever commits.
    written: Mutex<Written>,
}

#[derive(Default)]
struct State<'a> {
    /// The position that is claimed next.
    next: usize,
    /// Positions below are in the shard.
    committed: usize,
    /// The position that `ready` begins with: those before it are in the shard or being written.
    front: usize,
    /// Finished samples from `front` on.
    ready: VecDeque<Option<Turn<'a>>>,
    /// Bytes of what is claimed and not committed: as planned until they are known.
    bytes: u64,
    is_committing: bool,
    /// Buffers of samples that are in the shard, and their bytes.
    spare: Vec<Vec<u8>>,
    spare_bytes: u64,
    error: Option<Error>,
}

struct Written {
    file: ShardFile,
    left_out: Vec<LeftOut>,
    tally: PictureTally,
}

/// A sample that a thread is to make.
struct Claim<'a> {
    position: usize,
    /// What it counts for in [`State::bytes`] until it is made.
    planned: u64,
    /// Where that is more than a lane's share.
    taken: Option<Taken<'a>>,
}

/// What came of a sample.
struct Turn<'a> {
    result: Result<Packed, LeftOut>,
    /// What it counts for in [`State::bytes`].
    bytes: u64,
    taken: Option<Taken<'a>>,
    tally: PictureTally,
}

impl<'a> Lane<'a> {
    fn work(&self, hand: &mut Hand) {
        while let Some(Claim { position, planned, taken }) = self.claim(hand) {
            let turn = match self.make(position, taken, hand) {
                Ok(turn) => turn,
                Err(error) => return self.fail(error),
            };
            if let Err(error) = self.hand_in(position, planned, turn) {
                return self.fail(error);
            }
        }
    }

    /// The next sample, as soon as there is room for it.
    fn claim(&self, hand: &mut Hand) -> Option<Claim<'a>> {
        let mut state = self.lock();
        loop {
            if state.error.is_some() || state.next >= self.end || self.job.is_over.load(Ordering::Relaxed) {
                return None;
            }
            let bytes = self.job.plan.sample_bytes(self.job.source, self.job.plan.sample(state.next));
            let in_flight = state.next - state.committed;
            let lane_bytes = self.job.memory.lane_bytes;
            if in_flight == 0 || in_flight < self.window && state.bytes.saturating_add(bytes) <= lane_bytes {
                // A large one comes alone, so nobody of this lane has anything to do meanwhile.
                let taken = (bytes > lane_bytes).then(|| self.job.memory.samples.take(bytes));
                let position = state.next;
                state.next += 1;
                state.bytes = state.bytes.saturating_add(bytes);
                state.ready.push_back(None);
                for _ in 0..2 {
                    state.spare.pop().into_iter().for_each(|buffer| {
                        state.spare_bytes -= buffer.capacity() as u64;
                        hand.fields.recycle(buffer);
                    });
                }
                return Some(Claim { position, planned: bytes, taken });
            }
            state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Reads a sample and packs it.
    ///
    /// # Errors
    /// When it is bad, and one more than allowed.
    fn make(&self, position: usize, taken: Option<Taken<'a>>, hand: &mut Hand) -> Result<Turn<'a>> {
        let sample = self.job.plan.sample(position);
        let made = self.job.plan.key(self.job.source, sample).and_then(|key| {
            hand.fields.clear();
            self.job.source.read(sample as usize, &mut hand.fields)?;
            let painted = hand.painter.paint(&mut hand.fields, self.job.picture, &self.job.memory);
            let tally = painted.map_err(|error| error.in_shard(self.job.source.origin(sample as usize)))?;
            Ok((hand.fields.pack(&key).map_err(|error| error.at_key(&key))?, tally))
        });
        let mut tally = PictureTally::default();
        let result = match made {
            Ok((packed, of_sample)) => {
                tally = of_sample;
                Ok(packed)
            }
            Err(error) => {
                let bad = self.job.left_out.fetch_add(1, Ordering::Relaxed) + 1;
                if bad > self.job.allowed {
                    return Err(over_budget(error, self.job.allowed));
                }
                Err(LeftOut::of(self.job.source.origin(sample as usize), &error))
            }
        };
        let bytes = result.as_ref().map_or(0, Packed::len_bytes);
        Ok(Turn { result, bytes, taken, tally })
    }

    /// Puts a finished sample in its place, and writes what is due unless another thread is at it.
    fn hand_in(&self, position: usize, planned: u64, turn: Turn<'a>) -> Result<()> {
        let mut state = self.lock();
        state.bytes = state.bytes.saturating_sub(planned).saturating_add(turn.bytes);
        let place = position - state.front;
        if let Some(slot) = state.ready.get_mut(place) {
            *slot = Some(turn);
        }
        while !state.is_committing {
            let Some(run) = state.take_due(self.end) else { break };
            state.is_committing = true;
            drop(state);
            let written = self.commit(run);
            state = self.lock();
            state.is_committing = false;
            let Committed { count, bytes, buffers } = written?;
            state.committed += count;
            state.bytes = state.bytes.saturating_sub(bytes);
            for buffer in buffers {
                let bytes = state.spare_bytes + buffer.capacity() as u64;
                if state.spare.len() < self.window && bytes <= self.job.memory.lane_spare_bytes {
                    state.spare_bytes = bytes;
                    state.spare.push(buffer);
                }
            }
            self.moved.notify_all();
        }
        Ok(())
    }

    fn commit(&self, run: Vec<Turn<'a>>) -> Result<Committed> {
        let count = run.len();
        let bytes = run.iter().map(|turn| turn.bytes).sum();
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let mut samples = Vec::with_capacity(count);
        // Given back when all is written.
        let mut taken = Vec::new();
        for turn in run {
            written.tally.add(&turn.tally);
            taken.extend(turn.taken);
            match turn.result {
                Ok(packed) => samples.push(packed),
                Err(left_out) => written.left_out.push(left_out),
            }
        }
        written.file.append(&samples)?;
        drop(written);
        let sample_bytes: u64 = samples.iter().map(Packed::len_bytes).sum();
        let done_bytes = self.job.done_bytes.fetch_add(sample_bytes, Ordering::Relaxed) + sample_bytes;
        let done = self.job.done.fetch_add(count as u64, Ordering::Relaxed) + count as u64;
        (self.job.progress)(done, done_bytes);
        Ok(Committed { count, bytes, buffers: samples.into_iter().flat_map(Packed::into_buffers).collect() })
    }

    fn fail(&self, error: Error) {
        self.job.is_over.store(true, Ordering::Relaxed);
        self.lock().error.get_or_insert(error);
        self.moved.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State<'a>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Committed {
    count: usize,
    bytes: u64,
    buffers: Vec<Vec<u8>>,
}

impl<'a> State<'a> {
    /// The samples that are to be written now: all that are ready in order, if they are many bytes or nothing else is
    /// under way that could join them.
    fn take_due(&mut self, end: usize) -> Option<Vec<Turn<'a>>> {
        let count = self.ready.iter().take_while(|turn| turn.is_some()).count();
        let bytes: u64 = self.ready.iter().take(count).flatten().map(|turn| turn.bytes).sum();
        let is_all = self.front + count == self.next || self.front + count == end;
        if count == 0 || bytes < RUN_BYTES && !is_all {
            return None;
        }
        self.front += count;
        Some(self.ready.drain(..count).flatten().collect())
    }
}

fn over_budget(error: Error, allowed: u64) -> Error {
    if allowed == 0 {
        let hint = match error.hint() {
            Some(hint) => format!("{hint}; --max-errors N leaves up to N bad samples out and lists them"),
            None => "--max-errors N leaves up to N bad samples out and lists them".into(),
        };
        return error.with_hint(hint);
    }
    let message = format!("more than {allowed} bad samples; the last one");
    Error::new(ErrorKind::TooManyErrors, message)
        .with_source(error)
        .with_hint("raise --max-errors and go on with --resume, or mend the source")
}
