//! How a decoder gets its work and gives it back.
//!
//! A decoder pulls, so that one which interleaves several images can hold as many as it likes; threads,
//! queues and order are the caller's.

use bytes::Bytes;

use super::{ImageInfo, Pixels, Region};
use crate::Result;

/// The caller's number for one image; a decoder only hands it back.
pub type Ticket = usize;

/// What a decoder pulls from and gives back to.
///
/// A decoder may hold several tickets at once and may finish them in any order. For each ticket it calls
/// [`region`](Self::region) at most once, after the header, and [`done`](Self::done) exactly once.
pub trait Jobs {
    /// The next image.
    ///
    /// `None` while the decoder holds tickets means that nothing is ready: it must not block then, and the
    /// decoder asks again when it has finished one. `None` while it holds none means the end: here it may
    /// block until there is work, since nothing waits for this decoder.
    fn next(&mut self) -> Option<(Ticket, Bytes)>;

    /// The part of the image that is wanted, now that its header is known.
    ///
    /// # Errors
    ///
    /// An error ends the job: `done` gets it.
    fn region(&mut self, ticket: Ticket, info: &ImageInfo) -> Result<Region>;

    /// The end of one job. The pixels are the decoder's scratch and must be used before this returns.
    fn done(&mut self, ticket: Ticket, result: Result<Pixels<'_>>);
}

/// Something that turns jobs into pixels, on one thread.
pub trait Decoder: Send {
    /// Works until the jobs are at their end; never panics on any bytes.
    fn run(&mut self, jobs: &mut dyn Jobs);
}
