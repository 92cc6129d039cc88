//! Threads that take one piece of work after the other, each when it is done with the last.
//!
//! It starts no more of them than there are pieces, and keeps the order of what comes of them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// What `work` makes of each item, in order, some at a time. `progress` is told how many are done of how many.
pub(crate) fn each<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    work: impl Fn(&T) -> R + Sync,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let made = Mutex::new(Vec::with_capacity(items.len()));
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, items.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(number) else { break };
                    let result = work(item);
                    let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
                    made.push((number, result));
                    progress(made.len(), items.len());
                }
            });
        }
    });
    let mut made = made.into_inner().unwrap_or_else(PoisonError::into_inner);
    made.sort_by_key(|(number, _)| *number);
    made.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items_on_any_number_of_threads() {
        let items: Vec<usize> = (0..100).collect();
        for threads in [0, 1, 3, 200] {
            let told = AtomicUsize::new(0);
            let made = each(&items, threads, |item| item * 2, &|done, of| {
                assert!(done <= of && of == 100);
                told.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!((made, told.into_inner()), (items.iter().map(|item| item * 2).collect(), 100));
        }
        assert!(each(&[], 4, |item: &u8| *item, &|_, _| {}).is_empty());
    }
}
