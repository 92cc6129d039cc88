//! Sub-batches on their way to those who serve the JPEG engines: readers put in one item after the other, and a sub-batch
//! leaves when it is full or when its first item has waited long enough. It knows neither images nor engines.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam::channel::{self, Receiver, RecvTimeoutError, Sender};

/// How long an item may wait for others to share its sub-batch. A batch of which one row is missing waits with it.
const FILL_MAX: Duration = Duration::from_millis(3);

/// The sub-batch that is being filled.
#[derive(Debug)]
struct Filling<T> {
    items: Vec<T>,
    /// When the first of them came.
    since: Option<Instant>,
}

impl<T> Filling<T> {
    fn take(&mut self) -> Vec<T> {
        self.since = None;
        std::mem::take(&mut self.items)
    }
}

#[derive(Debug)]
struct Shared<T>(Arc<Mutex<Filling<T>>>);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Filling<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end at which sub-batches are filled; clones fill the same one.
#[derive(Debug)]
pub(crate) struct Filler<T> {
    filling: Shared<T>,
    /// An empty sub-batch says that the first item of the next has come.
    queue: Sender<Vec<T>>,
    items_max: usize,
}

/// The end at which they are served; clones share them.
#[derive(Debug)]
pub(crate) struct Outlet<T> {
    filling: Shared<T>,
    queue: Receiver<Vec<T>>,
}

/// Both ends of a way on which `waiting` sub-batches of at most `items_max` items may lie.
pub(crate) fn sub_batches<T>(waiting: usize, items_max: usize) -> (Filler<T>, Outlet<T>) {
    let (sender, receiver) = channel::bounded(waiting);
    let filling = Shared(Arc::new(Mutex::new(Filling { items: Vec::new(), since: None })));
    (Filler { filling: filling.clone(), queue: sender, items_max }, Outlet { filling, queue: receiver })
}

impl<T> Filler<T> {
    /// Puts `item` into the sub-batch, which leaves if `is_full` says so or it has as many as it may; how long that was
    /// waited for.
    ///
    /// # Errors
    /// The item, where the sub-batch would have to wait and `may_wait` forbids it: those who serve are behind.
    pub(crate) fn put(&self, item: T, may_wait: bool, is_full: impl FnOnce(&[T]) -> bool) -> Result<Duration, T> {
        let full = {
            let mut filling = self.filling.lock();
            if !may_wait && filling.items.len() + 1 >= self.items_max && self.queue.is_full() {
                return Err(item);
            }
            filling.items.push(item);
            if filling.items.len() < self.items_max && !is_full(&filling.items) {
                if filling.since.is_none() {
                    filling.since = Some(Instant::now());
                    // Whoever sleeps looks how long this one may stay. Where the queue is full nobody sleeps.
                    let _ = self.queue.try_send(Vec::new());
                }
                return Ok(Duration::ZERO);
            }
            filling.take()
        };
        let waiting = Instant::now();
        // Fails when nobody serves any more, and with that all that was put in is given up.
        let _ = self.queue.send(full);
        Ok(waiting.elapsed())
    }
}

impl<T> Clone for Filler<T> {
    fn clone(&self) -> Self {
        Self { filling: self.filling.clone(), queue: self.queue.clone(), items_max: self.items_max }
    }
}

impl<T> Outlet<T> {
    /// The next sub-batch, full or overdue; empty after `patience` or when the time of the one that is being filled must
    /// be looked at; `None` once nobody fills and nothing is left.
    pub(crate) fn next(&self, patience: Duration) -> Option<Vec<T>> {
        let wait = self.left().map_or(patience, |left| left.min(patience));
        match self.queue.recv_timeout(wait) {
            Ok(items) => Some(items),
            Err(RecvTimeoutError::Timeout) => Some(self.overdue()),
            Err(RecvTimeoutError::Disconnected) => Some(self.filling.lock().take()).filter(|last| !last.is_empty()),
        }
    }

    /// How long the first item may wait on, if there is one.
    fn left(&self) -> Option<Duration> {
        self.filling.lock().since.map(|since| FILL_MAX.saturating_sub(since.elapsed()))
    }

    fn overdue(&self) -> Vec<T> {
        let mut filling = self.filling.lock();
        match filling.since {
            Some(since) if since.elapsed() >= FILL_MAX => filling.take(),
            _ => Vec::new(),
        }
    }
}

impl<T> Clone for Outlet<T> {
    fn clone(&self) -> Self {
        Self { filling: self.filling.clone(), queue: self.queue.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    /// The next sub-batch with anything in it.
    fn next(outlet: &Outlet<u32>) -> Option<Vec<u32>> {
        loop {
            match outlet.next(LONG)? {
                items if items.is_empty() => {}
                items => return Some(items),
            }
        }
    }

    #[test]
    fn sub_batches_leave_when_they_are_full() {
        let (filler, outlet) = sub_batches(4, 3);
        for item in 0..7 {
            filler.put(item, true, |items| items.last() == Some(&4)).unwrap();
        }
        assert_eq!([next(&outlet), next(&outlet)], [Some(vec![0, 1, 2]), Some(vec![3, 4])]);
    }

    #[test]
    fn an_item_does_not_wait_long_for_others_though_whoever_serves_sleeps() {
        let (filler, outlet) = sub_batches(4, 32);
        let server = std::thread::spawn(move || (Instant::now(), next(&outlet)));
        std::thread::sleep(Duration::from_millis(20));
        filler.put(7, false, |_| false).unwrap();
        let (began, served) = server.join().unwrap();
        assert_eq!(served, Some(vec![7]));
        assert!(began.elapsed() < LONG / 2, "it slept on");
    }

    #[test]
    fn what_was_gathered_last_is_served_when_nobody_fills_any_more() {
        let (filler, outlet) = sub_batches(4, 32);
        filler.put(1, true, |_| false).unwrap();
        drop(filler);
        assert_eq!(next(&outlet), Some(vec![1]));
        assert_eq!(next(&outlet), None);
    }

    #[test]
    fn items_come_back_where_those_who_serve_are_behind() {
        let (filler, outlet) = sub_batches(1, 2);
        let mut refused = Vec::new();
        for item in 0..5 {
            refused.extend(filler.put(item, false, |_| false).err());
        }
        // The first one's notice takes the only place, so the second would fill a sub-batch that has to wait.
        assert_eq!(refused, [1, 2, 3, 4]);
        assert_eq!(next(&outlet), Some(vec![0]));
    }

    #[test]
    fn nothing_is_lost_between_many_fillers_and_servers() {
        let (filler, outlet) = sub_batches(2, 5);
        let fillers: Vec<_> = (0..3u32)
            .map(|n| {
                let filler = filler.clone();
                std::thread::spawn(move || {
                    (0..500).filter_map(|item| filler.put(n * 1000 + item, item % 2 == 0, |_| false).err()).collect()
                })
            })
            .collect();
        drop(filler);
        let servers: Vec<_> = (0..2)
            .map(|_| {
                let outlet = outlet.clone();
                std::thread::spawn(move || std::iter::from_fn(|| next(&outlet)).flatten().collect())
            })
            .collect();
        drop(outlet);
        let threads = fillers.into_iter().chain(servers);
        let mut seen: Vec<u32> = threads.flat_map(|thread| -> Vec<u32> { thread.join().unwrap() }).collect();
        seen.sort_unstable();
        let all: Vec<u32> = (0..3).flat_map(|n| n * 1000..n * 1000 + 500).collect();
        assert_eq!(seen, all);
    }
}
