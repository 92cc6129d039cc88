//! Names and sizes of very many files, a few bytes each: what a catalogue of ten million pictures has to fit into.
//!
//! It knows no folders and opens nothing.

/// Files by number, in the order in which they were added.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// All names, one after the other.
    names: Vec<u8>,
    /// The length of each name.
    lengths: Vec<u16>,
    /// Where every `STEP`th name begins.
    starts: Vec<u64>,
    /// The size of each file in bytes; [`u32::MAX`] stands for this size and all above.
    sizes: Vec<u32>,
}

/// Names from one known beginning to the next: so many lengths are added up at most.
const STEP: usize = 32;

impl Files {
    /// Adds a file. Of a name beyond 65,535 bytes, which no file system has, the rest is cut.
    pub(super) fn push(&mut self, name: &[u8], size: u64) {
        let name = &name[..name.len().min(usize::from(u16::MAX))];
        if self.lengths.len().is_multiple_of(STEP) {
            self.starts.push(self.names.len() as u64);
        }
        self.names.extend_from_slice(name);
        self.lengths.push(name.len() as u16);
        self.sizes.push(u32::try_from(size).unwrap_or(u32::MAX));
    }

    /// Adds all files of another list.
    pub(super) fn append(&mut self, other: &Self) {
        (0..other.len()).for_each(|file| self.push(other.name(file), other.size(file)));
    }

    pub(super) fn len(&self) -> usize {
        self.lengths.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    pub(super) fn name(&self, file: usize) -> &[u8] {
        let first = file / STEP * STEP;
        let before: usize = self.lengths[first..file].iter().map(|&length| usize::from(length)).sum();
        let start = self.starts[file / STEP] as usize + before;
        &self.names[start..start + usize::from(self.lengths[file])]
    }

    /// The size in bytes; of 4 GiB and above only that it is so large.
    pub(super) fn size(&self, file: usize) -> u64 {
        self.sizes[file].into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sizes_come_back_as_they_were_put_in() {
        let name = |number: usize| "x".repeat(number * 7 % 23).into_bytes();
        let mut files = Files::default();
        let mut more = Files::default();
        (0..50).for_each(|number| files.push(&name(number), number as u64 * 1000));
        (50..200).for_each(|number| more.push(&name(number), number as u64 * 1000));
        files.append(&more);
        assert!(files.len() == 200 && !files.is_empty());
        assert!((0..200).all(|number| files.name(number) == name(number)));
        assert!((0..200).all(|number| files.size(number) == number as u64 * 1000));
        files.push(b"large", 5 << 32);
        assert_eq!((files.name(200), files.size(200)), (&b"large"[..], u32::MAX.into()));
    }
}
