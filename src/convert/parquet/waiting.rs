//! Readers that wait for a row further down in their row group, so that rows in order are read without beginning anew.
//!
//! It knows nothing of columns; how many wait is bounded.

/// Readers, the oldest first.
pub(super) struct Waiting<R> {
    readers: Vec<Reader<R>>,
    readers_max: usize,
}

struct Reader<R> {
    group: usize,
    /// The row that comes next, counted within the group.
    row: usize,
    reader: R,
}

impl<R> Waiting<R> {
    /// Room for so many, at least 1.
    pub(super) fn new(readers_max: usize) -> Self {
        Self { readers: Vec::new(), readers_max: readers_max.max(1) }
    }

    /// The reader that is at this row of the group or the nearest before it, and the row that it is at.
    pub(super) fn take(&mut self, group: usize, row: usize) -> Option<(usize, R)> {
        let before = self.readers.iter().enumerate().filter(|(_, waits)| waits.group == group && waits.row <= row);
        let (place, _) = before.max_by_key(|(_, waits)| waits.row)?;
        let Reader { row, reader, .. } = self.readers.remove(place);
        Some((row, reader))
    }

    /// Keeps a reader. Where there is no room the oldest goes, first of those in other groups, whose rows are read.
    pub(super) fn keep(&mut self, group: usize, row: usize, reader: R) {
        if self.readers.len() >= self.readers_max {
            let other = self.readers.iter().position(|waits| waits.group != group);
            self.readers.remove(other.unwrap_or(0));
        }
        self.readers.push(Reader { group, row, reader });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_of_groups_that_are_read_make_room_for_those_of_the_next() {
        let mut waiting = Waiting::new(2);
        waiting.keep(0, 99, "a");
        waiting.keep(0, 100, "b");
        // Two threads go on to the next group, each with a reader.
        waiting.keep(1, 1, "c");
        waiting.keep(1, 2, "d");
        assert_eq!((waiting.take(1, 3), waiting.take(1, 3)), (Some((2, "d")), Some((1, "c"))));
        assert_eq!(waiting.take(0, 100), None);
    }

    #[test]
    fn the_nearest_reader_before_a_row_is_taken_and_the_oldest_goes_first() {
        let mut waiting = Waiting::new(3);
        [(5, "a"), (9, "b"), (2, "c")].into_iter().for_each(|(row, reader)| waiting.keep(7, row, reader));
        assert_eq!((waiting.take(7, 1), waiting.take(6, 9)), (None, None));
        assert_eq!(waiting.take(7, 8), Some((5, "a")));
        waiting.keep(7, 3, "d");
        waiting.keep(7, 4, "e");
        assert_eq!(waiting.take(7, 9), Some((4, "e")), "the oldest, at row 9, has gone");
    }
}
