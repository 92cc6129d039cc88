//! How a decoder gets its work and gives it back.
//!
//! A decoder pulls, so that one which interleaves several images can hold as many as it likes; threads,
//! queues and order are the caller's.

use bytes::Bytes;

use super::{ImageInfo, Pixels, Planes, Refusal, Region};
use crate::Result;

/// The caller's number for one image; a decoder only hands it back.
pub type Ticket = usize;

/// What a decoder pulls from and gives back to.
///
/// A decoder may hold several tickets at once and may finish them in any order. For each ticket it calls
/// [`region`](Self::region) at most once, after the header, and one of [`done`](Self::done) and
/// [`done_planes`](Self::done_planes) exactly once.
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

    /// Whether planes are wanted rather than pixels, asked after [`region`](Self::region); a decoder that has no planes
    /// gives pixels all the same.
    fn takes_planes(&self, _ticket: Ticket) -> bool {
        false
    }

    /// The baseline decoder leaves the job to another one, which goes on with it; for whoever counts.
    fn fell_back(&mut self, _ticket: Ticket, _refusal: Refusal) {}

    /// The end of one job. The pixels are the decoder's scratch and must be used before this returns.
    fn done(&mut self, ticket: Ticket, result: Result<Pixels<'_>>);

    /// The end of a job for which planes were wanted, if there are planes; they are the region that was asked for.
    fn done_planes(&mut self, ticket: Ticket, planes: Planes<'_>) {
        let mut pixels = Vec::new();
        planes.to_pixels(&mut pixels);
        self.done(ticket, Pixels::packed(&pixels, planes.region, 3));
    }
}

/// Something that turns jobs into pixels, on one thread.
pub trait Decoder: Send {
    /// Works until the jobs are at their end; never panics on any bytes.
    fn run(&mut self, jobs: &mut dyn Jobs);
}
