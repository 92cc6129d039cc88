//! A ring with a fixed number of slots, each with a buffer of its own and at most one request under way; and one thread's
//! reading through it.

use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::time::Instant;

use io_uring::{IoUring, opcode, types};

use super::super::feed::Feed;
use super::super::pattern::Request;
use crate::error::{Error, ErrorKind, Result};
use crate::shard::direct::{AlignedBuffer, DirectFile};

/// A ring and the buffers that its requests write to.
///
/// Invariant: while a slot is under way the kernel may write to its buffer, so the buffer is neither touched nor moved
/// nor freed before the slot's completion was taken from the ring. `drop` waits for all of them.
pub(super) struct Ring {
    ring: IoUring,
    slots: Vec<Slot>,
    under_way: usize,
    registered: bool,
}

#[derive(Debug, Default)]
struct Slot {
    buffer: AlignedBuffer,
    /// The file range that is being read.
    reading: Option<Range<u64>>,
}

/// A request that is over: its slot, and the bytes read or why not.
pub(super) type Completion = (usize, io::Result<usize>);

impl Ring {
    /// A ring of `depth` slots with buffers of `buffer_bytes` at multiples of `alignment`, which the kernel knows
    /// beforehand if `registered`.
    pub(super) fn new(depth: usize, buffer_bytes: u64, alignment: u64, registered: bool) -> Result<Self> {
        let entries = u32::try_from(depth.next_power_of_two())
            .map_err(|_| Error::new(ErrorKind::Limit, format!("queue depth {depth} is too large")))?;
        let ring = IoUring::new(entries).map_err(forbidden)?;
        let mut slots = Vec::with_capacity(depth);
        for _ in 0..depth {
            let mut slot = Slot::default();
            // Written to, so that the system gives the memory now and not while something is timed.
            slot.buffer.room(buffer_bytes, alignment)?.fill(1);
            slots.push(slot);
        }
        if registered {
            let mut vectors = Vec::with_capacity(depth);
            for slot in &mut slots {
                let memory = slot.buffer.room(buffer_bytes, alignment)?;
                vectors.push(libc::iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: memory.len() });
            }
            // SAFETY: the buffers live in `slots`, which is not changed in length afterwards; `start`
            // refuses requests for which `room` would take other memory. They are freed after the ring is closed,
            // because `ring` stands before `slots` in the struct, and closing unregisters them.
            unsafe { ring.submitter().register_buffers(&vectors) }.map_err(|error| {
                Error::new(ErrorKind::Unsupported, "io_uring cannot register buffers")
                    .with_source(error)
                    .with_hint("raise the limit of locked memory (ulimit -l), or use uring without registered buffers")
            })?;
        }
        Ok(Self { ring, slots, under_way: 0, registered })
    }

    /// Begins to read the aligned range around `range` into slot `slot`, which is free.
    pub(super) fn start(&mut self, slot: usize, file: &DirectFile, range: &Range<u64>) -> Result<()> {
        let around = file.around(range);
        let bytes = around.end - around.start;
        let too_large =
            || Error::new(ErrorKind::Limit, format!("a request of {bytes} bytes is too large for io_uring"));
        let len = u32::try_from(bytes).map_err(|_| too_large())?;
        let found = self.slots.get_mut(slot).filter(|found| found.reading.is_none());
        let Some(found) = found else {
            return Err(Error::new(ErrorKind::InvalidOption, format!("slot {slot} of the ring is not free")));
        };
        if self.registered && !found.buffer.has_room(bytes, file.alignment()) {
            return Err(too_large());
        }
        let memory = found.buffer.room(bytes, file.alignment())?.as_mut_ptr();
        let descriptor = types::Fd(file.file().as_raw_fd());
        let entry = match self.registered {
            true => opcode::ReadFixed::new(descriptor, memory, len, slot as u16).offset(around.start).build(),
            false => opcode::Read::new(descriptor, memory, len).offset(around.start).build(),
        };
        let entry = entry.user_data(slot as u64);
        // SAFETY: `memory` has `len` bytes and belongs to the slot, which is marked as under way here; by the
        // invariant of `Ring` nobody touches, moves or frees it before the completion. The descriptor is open now, and
        // the kernel takes its own hold of the file when the entry is submitted, in this very function.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.map_err(|_| Error::new(ErrorKind::Io, "the ring of io_uring is full"))?;
        self.slots[slot].reading = Some(around);
        self.under_way += 1;
        self.enter(0)
    }

    /// Submits what is queued and waits until `wanted` completions are there.
    fn enter(&self, wanted: usize) -> Result<()> {
        loop {
            match self.ring.submit_and_wait(wanted) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io("io_uring does not answer", error)),
            }
        }
    }

    /// A request that is over; waits for one if `wait` and any is under way.
    pub(super) fn take(&mut self, wait: bool) -> Result<Option<Completion>> {
        loop {
            if let Some(entry) = self.ring.completion().next() {
                let slot = entry.user_data() as usize;
                let result = match entry.result() {
                    bytes if bytes >= 0 => Ok(bytes as usize),
                    error => Err(io::Error::from_raw_os_error(-error)),
                };
                if let Some(found) = self.slots.get_mut(slot) {
                    found.reading = None;
                }
                self.under_way -= 1;
                return Ok(Some((slot, result)));
            }
            if !wait || self.under_way == 0 {
                return Ok(None);
            }
            self.enter(1)?;
        }
    }

    /// The buffer of a slot that is free; the slot gets an empty one. Not for rings with registered buffers.
    pub(super) fn buffer_of(&mut self, slot: usize) -> AlignedBuffer {
        match self.slots.get_mut(slot) {
            Some(found) if found.reading.is_none() && !self.registered => std::mem::take(&mut found.buffer),
            _ => AlignedBuffer::default(),
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.under_way > 0 {
            if !matches!(self.take(true), Ok(Some(_))) {
                // The kernel may still write to the buffers: they must outlive everybody.
                std::mem::forget(std::mem::take(&mut self.slots));
                return;
            }
        }
    }
}

fn forbidden(error: io::Error) -> Error {
    let why = match error.raw_os_error() {
        Some(libc::ENOSYS) => "this kernel has no io_uring",
        Some(libc::EPERM | libc::EACCES) => "io_uring is forbidden here, as in most containers",
        _ => "io_uring cannot be set up",
    };
    Error::new(ErrorKind::Unsupported, why)
        .with_source(error)
        .with_hint("see /proc/sys/kernel/io_uring_disabled and the container's seccomp profile, or use another method")
}

/// Makes sure that the kernel lets this process use io_uring.
pub(in crate::storage) fn check(registered: bool) -> Result<()> {
    Ring::new(1, 4096, 4096, registered).map(drop)
}

/// One thread's reading with several requests under way.
#[derive(Debug)]
pub(in crate::storage) struct Queue {
    ring: Ring,
    depth: usize,
}

impl Queue {
    /// A queue of `depth` requests whose ranges, aligned to `alignment`, have up to `buffer_bytes`, in memory that was
    /// written to.
    pub(in crate::storage) fn new(depth: usize, buffer_bytes: u64, alignment: u64, registered: bool) -> Result<Self> {
        Ok(Self { ring: Ring::new(depth, buffer_bytes, alignment, registered)?, depth })
    }

    /// Reads what the feed gives. An error comes with the number of its file.
    pub(in crate::storage) fn run(
        &mut self,
        files: &[DirectFile],
        feed: &mut Feed<'_>,
    ) -> Result<(), (Error, Option<usize>)> {
        let mut requests: Vec<Option<(Request, Instant)>> = vec![None; self.depth];
        let mut free: Vec<usize> = (0..self.depth).rev().collect();
        let mut now = feed.start();
        loop {
            while let Some(&slot) = free.last() {
                let Some(request) = feed.next(now) else { break };
                let range = request.offset..request.offset + request.len as u64;
                now = Instant::now();
                let started = self.ring.start(slot, &files[request.file], &range);
                started.map_err(|error| (error, Some(request.file)))?;
                requests[slot] = Some((request, now));
                free.pop();
            }
            let Some((slot, result)) = self.ring.take(true).map_err(|error| (error, None))? else { return Ok(()) };
            let Some((request, started)) = requests.get_mut(slot).and_then(Option::take) else { continue };
            let file = &files[request.file];
            let range = request.offset..request.offset + request.len as u64;
            let wanted = (range.end - file.around(&range).start) as usize;
            match result {
                Ok(bytes) if bytes >= wanted => {}
                // Less than was asked for is no fault by itself: a second read delivers, or says what is wrong.
                Ok(_) => {
                    let again = file.read(&range, &mut AlignedBuffer::default());
                    again.map_err(|error| (error, Some(request.file)))?;
                }
                Err(error) => {
                    let error = Error::io("cannot read the shard by io_uring", error).at_offset(request.offset);
                    return Err((error, Some(request.file)));
                }
            }
            now = feed.done(&request, started);
            free.push(slot);
        }
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("slots", &self.slots.len()).field("under_way", &self.under_way).finish()
    }
}
