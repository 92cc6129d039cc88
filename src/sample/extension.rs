//! The extensions of a data set, each kept once and counted.
//!
//! It is not the list of formats that can be read: any bytes may be an extension here.

use std::collections::HashMap;
use std::sync::Arc;

use super::name::fold_extension;
use crate::error::{Error, ErrorKind, Result};

/// Extensions that are compared one by one before any is looked up.
const COMMON: usize = 4;

/// Extensions by number, in the order in which they first came.
///
/// Invariant: `names` and `counts` are equally long, and every value of `numbers` is below that length.
#[derive(Debug, Default)]
pub(super) struct Extensions {
    names: Vec<Arc<str>>,
    counts: Vec<u64>,
    /// Every spelling met, so that a common member costs one look-up and no folding.
    numbers: HashMap<Box<[u8]>, u32>,
}

impl Extensions {
    /// The number of an extension as a member spells it; a new one is kept.
    pub(super) fn number(&mut self, spelling: &[u8]) -> Result<u32> {
        // Nearly all members have one of few extensions, and comparing those costs less than a hash of one.
        let common = self.names.iter().take(COMMON).position(|name| name.as_bytes() == spelling);
        if let Some(number) = common {
            return Ok(number as u32);
        }
        if let Some(&number) = self.numbers.get(spelling) {
            return Ok(number);
        }
        let name = fold_extension(spelling);
        let number = match self.numbers.get(name.as_bytes()) {
            Some(&number) => number,
            None => {
                let number = u32::try_from(self.names.len())
                    .map_err(|_| Error::new(ErrorKind::Limit, "the data set has over 4,294,967,295 extensions"))?;
                self.names.push(name.as_ref().into());
                self.counts.push(0);
                self.numbers.insert(name.as_bytes().into(), number);
                number
            }
        };
        if name.as_bytes() != spelling {
            self.numbers.insert(spelling.into(), number);
        }
        Ok(number)
    }

    /// Counts one more field with this extension.
    pub(super) fn count(&mut self, number: u32) {
        self.counts[number as usize] += 1;
    }

    /// The extension in lower case.
    pub(super) fn name(&self, number: u32) -> &Arc<str> {
        &self.names[number as usize]
    }

    /// All extensions with the number of their fields, in the order in which they first came.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, u64)> {
        self.names.iter().zip(self.counts.iter().copied())
    }

    /// The names alone, for an index that is complete.
    pub(super) fn into_names(self) -> Vec<Arc<str>> {
        self.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_extension_share_a_number() {
        let mut extensions = Extensions::default();
        for spelling in [&b"jpg"[..], b"JPG", b"cls", b"Jpg", b"\xff", b"JPG"] {
            let number = extensions.number(spelling).unwrap();
            extensions.count(number);
        }
        let counted: Vec<_> = extensions.iter().map(|(name, count)| (name.to_string(), count)).collect();
        assert_eq!(counted, [("jpg".to_owned(), 4), ("cls".to_owned(), 1), ("\\xff".to_owned(), 1)]);
        assert_eq!(extensions.number(b"CLS").unwrap(), 1);
        assert_eq!(&**extensions.name(1), "cls");
    }
}
