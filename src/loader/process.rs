//! A value that each process makes for itself: after a fork the child gets a fresh one, since threads and locks of the
//! parent did not come along. It notices a fork by comparing process ids, which needs no hook.

use std::sync::OnceLock;

/// One value of `T` per process, made by `make` where it is first needed.
///
/// The values of parent processes stay in memory, untouched: their locks may be held by threads that do not exist here.
#[derive(Debug)]
pub(crate) struct PerProcess<T> {
    first: Node<T>,
}

#[derive(Debug)]
struct Node<T> {
    pid: u32,
    value: T,
    next: OnceLock<Box<Node<T>>>,
}

impl<T> PerProcess<T> {
    /// Holds `value` for the process that calls this.
    pub(crate) fn new(value: T) -> Self {
        Self { first: Node { pid: std::process::id(), value, next: OnceLock::new() } }
    }

    /// The value of this process; `make` is called once in each process but the first.
    pub(crate) fn get(&self, make: impl Fn() -> T) -> &T {
        let pid = std::process::id();
        let mut node = &self.first;
        while node.pid != pid {
            node = node.next.get_or_init(|| Box::new(Node { pid, value: make(), next: OnceLock::new() }));
        }
        &node.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_gets_a_value_of_its_own() {
        let mut value = PerProcess::new(1);
        assert_eq!(*value.get(|| 2), 1);
        value.first.pid = 0;
        assert_eq!(*value.get(|| 2), 2);
        assert_eq!(*value.get(|| 3), 2);
    }
}
