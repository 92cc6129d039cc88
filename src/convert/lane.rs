//! A lane makes one shard with a few threads: they read samples side by side and take turns at writing them in order.
//!
//! Nobody waits for a thread that only writes: whoever completes the sample that is due writes it and all behind it that are
//! ready. How many samples are in memory is bounded by number and by bytes.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

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
#[derive(Default)]
pub(super) struct Hand {
    fields: Fields,
    painter: Painter,
}

/// Samples of a lane in memory, for each of its threads.
const SAMPLES_PER_HAND: usize = 32;
/// Bytes of samples of a lane in memory; one that is larger comes alone.
const BYTES_MAX: u64 = 48 << 20;
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
    state: Mutex<State>,
    /// Something was committed, or it is over.
    moved: Condvar,
    /// Held by whoever commits.
    written: Mutex<Written>,
}

#[derive(Default)]
struct State {
    /// The position that is claimed next.
    next: usize,
    /// Positions below are in the shard.
    committed: usize,
    /// The position that `ready` begins with: those before it are in the shard or being written.
    front: usize,
    /// Finished samples from `front` on.
    ready: VecDeque<Option<Turn>>,
    /// Bytes of what is claimed and not committed: as planned, or as they are.
    bytes: u64,
    is_committing: bool,
    spare: Vec<Vec<u8>>,
    error: Option<Error>,
}

struct Written {
    file: ShardFile,
    left_out: Vec<LeftOut>,
    tally: PictureTally,
}

/// What came of a sample.
struct Turn {
    result: Result<Packed, LeftOut>,
    /// What it counts for in [`State::bytes`].
    bytes: u64,
    tally: PictureTally,
}

impl Lane<'_> {
    fn work(&self, hand: &mut Hand) {
        while let Some((position, bytes)) = self.claim(hand) {
            let turn = self.make(position, bytes, hand);
            let turn = match turn {
                Ok(turn) => turn,
                Err(error) => return self.fail(error),
            };
            if let Err(error) = self.hand_in(position, turn) {
                return self.fail(error);
            }
        }
    }

    /// The next position and the bytes that its sample counts for, as soon as there is room for it.
    fn claim(&self, hand: &mut Hand) -> Option<(usize, u64)> {
        let mut state = self.lock();
        loop {
            if state.error.is_some() || state.next >= self.end || self.job.is_over.load(Ordering::Relaxed) {
                return None;
            }
            let bytes = self.job.plan.sample_bytes(self.job.source, self.job.plan.sample(state.next));
            let in_flight = state.next - state.committed;
            if in_flight == 0 || in_flight < self.window && state.bytes.saturating_add(bytes) <= BYTES_MAX {
                let position = state.next;
                state.next += 1;
                state.bytes = state.bytes.saturating_add(bytes);
                state.ready.push_back(None);
                for _ in 0..2 {
                    state.spare.pop().into_iter().for_each(|buffer| hand.fields.recycle(buffer));
                }
                return Some((position, bytes));
            }
            state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Reads a sample and packs it.
    ///
    /// # Errors
    /// When it is bad, and one more than allowed.
    fn make(&self, position: usize, bytes: u64, hand: &mut Hand) -> Result<Turn> {
        let sample = self.job.plan.sample(position);
        let made = self.job.plan.key(self.job.source, sample).and_then(|key| {
            hand.fields.clear();
            self.job.source.read(sample as usize, &mut hand.fields)?;
            let painted = hand.painter.paint(&mut hand.fields, self.job.picture);
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
        Ok(Turn { result, bytes, tally })
    }

    /// Puts a finished sample in its place, and writes what is due unless another thread is at it.
    fn hand_in(&self, position: usize, turn: Turn) -> Result<()> {
        let mut state = self.lock();
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
            let room = self.window.saturating_sub(state.spare.len());
            state.spare.extend(buffers.into_iter().take(room));
            self.moved.notify_all();
        }
        Ok(())
    }

    fn commit(&self, run: Vec<Turn>) -> Result<Committed> {
        let count = run.len();
        let bytes = run.iter().map(|turn| turn.bytes).sum();
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let mut samples = Vec::with_capacity(count);
        for turn in run {
            written.tally.add(&turn.tally);
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Committed {
    count: usize,
    bytes: u64,
    buffers: Vec<Vec<u8>>,
}

impl State {
    /// The samples that are to be written now: all that are ready in order, if they are many bytes or nothing else is
    /// under way that could join them.
    fn take_due(&mut self, end: usize) -> Option<Vec<Turn>> {
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
