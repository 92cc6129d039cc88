//! Samples of shards that can only be read from front to back: shard after shard, shuffled in a window. It numbers
//! samples in the order it meets them, so order is still a function of seed, epoch and rank alone. It cannot jump: to
//! go on from a place in mid-epoch it reads all that comes before.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;

use super::dataset::{RawField, RawSample, missing, path_text};
use super::pipeline::Pipeline;
use super::stats::Stage;
use crate::sample::{GroupReport, Groups, Sample, Shuffle, ShuffleBuffer, StreamOrder, StreamSplit, group_by_key};
use crate::shard::{Member, ScanReport, ShardStream};
use crate::{Error, ErrorKind, Result};

/// The samples of one epoch of one rank.
pub(crate) struct StreamFeed {
    pipeline: Arc<Pipeline>,
    shards: std::vec::IntoIter<usize>,
    current: Option<OpenShard>,
    split: Option<StreamSplit<Met>>,
    shuffled: ShuffleBuffer<Met>,
    /// Samples met so far, over all shards and ranks.
    met: u64,
    /// Samples given so far.
    given: usize,
    /// Samples that are to be passed over before the first one is given.
    skip: usize,
    ahead: Option<Met>,
}

/// A sample as it was met, or what stood in its place; shared, since a rank that the last round does not reach gets
/// the first sample once more.
type Met = Arc<Mutex<Option<Result<RawSample>>>>;

/// The shard that is being read.
struct OpenShard {
    number: usize,
    url: Arc<str>,
    samples: Groups<Offsets, (Member, (Bytes, u64))>,
}

/// Members of a stream with their data and its offset.
struct Offsets(ShardStream);

impl Iterator for Offsets {
    type Item = Result<(Member, (Bytes, u64))>;

    fn next(&mut self) -> Option<Self::Item> {
        let member = self.0.next()?;
        Some(member.map(|(member, bytes)| {
            let offset = member.offset;
            (member, (bytes, offset))
        }))
    }
}

impl std::fmt::Debug for StreamFeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamFeed").field("met", &self.met).field("given", &self.given).finish_non_exhaustive()
    }
}

impl StreamFeed {
    /// Opens `epoch` and passes over its first `position` samples.
    pub(crate) fn open(pipeline: &Arc<Pipeline>, epoch: u64, position: usize) -> Result<Self> {
        let shards = pipeline.dataset.paths().len();
        let is_shuffled = pipeline.shuffle != Shuffle::None;
        let order = StreamOrder::new(shards, is_shuffled, pipeline.seed, epoch);
        let window = if is_shuffled { pipeline.shuffle_samples.max(1) } else { 1 };
        Ok(Self {
            pipeline: Arc::clone(pipeline),
            shards: order.iter().collect::<Vec<_>>().into_iter(),
            current: None,
            split: Some(StreamSplit::new(pipeline.split)?),
            shuffled: ShuffleBuffer::new(window, pipeline.seed, epoch, pipeline.split.rank as u64)?,
            met: 0,
            given: 0,
            skip: position,
            ahead: None,
        })
    }

    /// Whether nothing is left; reads ahead by one sample to know.
    pub(crate) fn is_over(&mut self) -> bool {
        if self.ahead.is_none() {
            self.ahead = self.shuffle_next();
        }
        self.ahead.is_none()
    }

    /// The next sample and its place in the epoch.
    pub(crate) fn next(&mut self) -> Option<(usize, Result<RawSample>)> {
        while self.skip > 0 && !self.is_over() {
            self.skip -= 1;
            self.given += 1;
            self.ahead = None;
        }
        let met = self.ahead.take().or_else(|| self.shuffle_next())?;
        let position = self.given;
        self.given += 1;
        let mut sample = met.lock().unwrap_or_else(PoisonError::into_inner);
        // The first sample is taken twice only to fill up the last round, and then it is a copy that is left behind.
        let taken = match &*sample {
            Some(Ok(raw)) if Arc::strong_count(&met) > 1 => Ok(raw.clone()),
            _ => sample.take().unwrap_or_else(|| Err(Error::new(ErrorKind::Cancelled, "a sample was taken twice"))),
        };
        Some((position, taken))
    }

    fn shuffle_next(&mut self) -> Option<Met> {
        let started = Instant::now();
        let met = self.shuffle();
        self.pipeline.counters.busy(Stage::Read, started.elapsed(), u64::from(met.is_some()));
        met
    }

    fn shuffle(&mut self) -> Option<Met> {
        loop {
            let Some(sample) = self.split_next() else { return self.shuffled.pop() };
            if let Some(out) = self.shuffled.push(sample) {
                return Some(out);
            }
        }
    }

    /// The next sample of this rank, in the order of the shards.
    fn split_next(&mut self) -> Option<Met> {
        loop {
            if self.pipeline.is_stopped() {
                return None;
            }
            match self.read_next() {
                Some(sample) => {
                    let met = Arc::new(Mutex::new(Some(sample)));
                    if let Some(mine) = self.split.as_mut().and_then(|split| split.push(met)) {
                        return Some(mine);
                    }
                }
                None => return self.split.take().and_then(StreamSplit::finish),
            }
        }
    }

    /// The next sample of any rank.
    fn read_next(&mut self) -> Option<Result<RawSample>> {
        loop {
            let Some(shard) = &mut self.current else {
                if let Err(error) = self.open_shard()? {
                    return Some(Err(error));
                }
                continue;
            };
            let Some(sample) = shard.samples.next() else {
                self.close_shard();
                continue;
            };
            if self.pipeline.is_stopped() {
                // Whatever it is, nobody wants it: perhaps only the news that nobody waits for a pipe any more.
                return None;
            }
            let (number, url) = (shard.number, Arc::clone(&shard.url));
            self.met += 1;
            return Some(sample.and_then(|sample| self.raw(self.met - 1, number, url, sample)));
        }
    }

    /// A shard is over: only now it is known what was lost in it.
    fn close_shard(&mut self) {
        let Some(OpenShard { number, samples, .. }) = self.current.take() else { return };
        let Offsets(stream) = samples.source();
        let path = &self.pipeline.dataset.paths()[number];
        self.pipeline.losses.shard_ended(number, path, stream.report(), &samples.report(), stream.has_failed());
    }

    fn open_shard(&mut self) -> Option<Result<()>> {
        let number = self.shards.next()?;
        let path = &self.pipeline.dataset.paths()[number];
        let options = self.pipeline.dataset.options();
        let pipeline = Arc::clone(&self.pipeline);
        let opened = ShardStream::open_while(path, &options.shards, move || !pipeline.is_stopped());
        Some(match opened {
            Ok(stream) => {
                let samples = group_by_key(Offsets(stream), &options.grouping);
                self.current = Some(OpenShard { number, url: path_text(path), samples });
                Ok(())
            }
            Err(error) => {
                let (scan, groups) = (ScanReport::default(), GroupReport::default());
                self.pipeline.losses.shard_ended(number, path, &scan, &groups, true);
                Err(error)
            }
        })
    }

    fn raw(&self, ordinal: u64, number: usize, url: Arc<str>, sample: Sample<(Bytes, u64)>) -> Result<RawSample> {
        let mut fields = Vec::with_capacity(self.pipeline.dataset.fields().len());
        for spec in self.pipeline.dataset.fields() {
            let field = match spec.selector().map(|selector| sample.field(selector)) {
                None => None,
                Some(Some(field)) => {
                    let (bytes, offset) = field.value.clone();
                    Some(RawField { extension: Arc::clone(&field.ext), bytes, offset })
                }
                Some(None) => {
                    let present = sample.fields.iter().map(|field| field.ext.to_string());
                    return Err(missing(spec, present).at_key(&sample.key).in_shard(url));
                }
            };
            fields.push(field);
        }
        Ok(RawSample { ordinal, shard_number: number, url, shard: None, key: sample.key, fields })
    }
}
