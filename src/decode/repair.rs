//! Small repairs of a JPEG: what decoders stumble over although no pixel depends on it.
//!
//! It does not find them, the walk over the markers does; and it mends no damage.

use std::ops::Range;

use crate::{Error, ErrorKind, Result};

/// Most repairs before a file counts as damaged; real files need one or two.
const REPAIRS_MAX: usize = 256;

/// Parts of a file and what to read instead of them, by place; they do not overlap.
#[derive(Debug, Default)]
pub(super) struct Repairs(Vec<Repair>);

#[derive(Debug)]
struct Repair {
    place: Range<usize>,
    with: &'static [u8],
}

impl Repairs {
    /// Forgets all repairs and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether the file can be read as it is.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Has `with` read instead of `place`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Decode`] for one repair too many.
    pub(super) fn add(&mut self, place: Range<usize>, with: &'static [u8]) -> Result<()> {
        if self.0.len() >= REPAIRS_MAX {
            let message = format!("the JPEG is damaged: it has over {REPAIRS_MAX} oddities up to byte {}", place.start);
            return Err(Error::new(ErrorKind::Decode, message));
        }
        let index = self.0.partition_point(|repair| repair.place.start < place.start);
        self.0.insert(index, Repair { place, with });
        Ok(())
    }

    /// The file as it is to be read; `copy` holds it if anything had to be mended.
    pub(super) fn mended<'a>(&self, bytes: &'a [u8], copy: &'a mut Vec<u8>) -> &'a [u8] {
        if self.is_empty() {
            return bytes;
        }
        self.apply(bytes, copy);
        copy
    }

    /// Writes the repaired `bytes` into `copy`.
    pub(super) fn apply(&self, bytes: &[u8], copy: &mut Vec<u8>) {
        copy.clear();
        let mut from = 0;
        for Repair { place, with } in &self.0 {
            copy.extend_from_slice(bytes.get(from..place.start).unwrap_or(&[]));
            copy.extend_from_slice(with);
            from = place.end;
        }
        copy.extend_from_slice(bytes.get(from..).unwrap_or(&[]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repairs_are_applied_by_place_whatever_their_order() {
        let mut repairs = Repairs::default();
        repairs.add(6..7, &[9, 9]).unwrap();
        repairs.add(1..3, &[]).unwrap();
        let mut copy = vec![1, 2, 3];
        repairs.apply(&[0, 1, 2, 3, 4, 5, 6, 7], &mut copy);
        assert_eq!(copy, [0, 3, 4, 5, 9, 9, 7]);
        repairs.clear();
        assert!(repairs.is_empty());
    }

    #[test]
    fn too_many_repairs_are_an_error() {
        let mut repairs = Repairs::default();
        let refused = (0..=REPAIRS_MAX).find(|&place| repairs.add(place..place, &[]).is_err());
        assert_eq!(refused, Some(REPAIRS_MAX));
    }
}
