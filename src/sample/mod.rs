//! What the members of a shard mean together: neighbours with one key are a sample, their extensions name its fields.
//!
//! It reads no archive and decodes no image: names, numbers and bytes come in, keys, fields and orders go out.
//!
//! [`group_by_key`] joins a stream of members into [`Sample`]s, [`SampleIndex`] holds where all samples of a data set
//! lie, [`EpochPlan`] says which of them comes when, and [`Value`] is what the bytes of a field say. All share one
//! rule for names, [`split_name`], and one for picking fields, [`FieldSelector`].
//!
//! ```
//! use brimful::sample::{EpochPlan, Shuffle, Split, split_name};
//!
//! assert_eq!(split_name(b"train/0017.left.jpg"), Some((&b"train/0017"[..], &b"left.jpg"[..])));
//!
//! let plan = EpochPlan::new(&[600, 400], Shuffle::Global, 42, 0, Split::whole())?;
//! let mut order: Vec<usize> = plan.iter().collect();
//! order.sort_unstable();
//! assert_eq!(order, (0..1000).collect::<Vec<_>>());
//! # Ok::<(), brimful::Error>(())
//! ```

mod name;
mod extension;
pub mod selector;
pub mod report;
pub mod grouping;
pub mod group;
pub mod index;
pub mod order;
mod permutation;
pub mod stream;
pub mod value;
pub mod npy;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

pub use group::{Entry, Groups, group_by_key};
pub use grouping::{Duplicates, Grouping};
pub use index::{FieldRef, SampleIndex, SampleIndexBuilder, SampleRef};
pub use name::{KeySplit, split_name};
pub(crate) use name::{is_appledouble, is_metadata};
pub use order::{EpochPlan, Remainder, Shuffle, Split};
pub use report::GroupReport;
pub use selector::{FieldSelector, JsonPath, PseudoField};
pub use stream::{ShuffleBuffer, StreamOrder, StreamSplit};
pub use value::{Array, ArrayDtype, FieldKind, Value};

/// The name that the members of one sample share: raw bytes, case-sensitive, not normalised, directories included.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Bytes);

impl Key {
    /// A key of these bytes; they are shared, not copied, when they are `Bytes` already.
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self(bytes.into())
    }

    /// The key as stored in the archive.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The same, shared and not copied.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        self.0.clone()
    }

    /// The key as text, if it is UTF-8.
    #[must_use]
    pub fn to_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

/// Bytes that are not UTF-8 come out as `\xe9` and a backslash as two, so that different keys never look the same.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A backslash of the key itself is doubled: the text stands for one key only.
        for (number, part) in self.0.split(|&byte| byte == b'\\').enumerate() {
            if number > 0 {
                f.write_str("\\\\")?;
            }
            name::write_escaped(f, part)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key(\"{}\")", self.0.escape_ascii())
    }
}

/// A sample of a stream: its key and its fields in the order of their members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample<T = Bytes> {
    /// What its members have in common.
    pub key: Key,
    /// At least one field; no extension twice.
    pub fields: Vec<Field<T>>,
}

/// One field of a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field<T = Bytes> {
    /// The extension in lower case; bytes that are not UTF-8 are written as `\xe9`. May be empty.
    pub ext: Arc<str>,
    /// What the member carried: its data, or whatever stands for it.
    pub value: T,
}

impl<T> Sample<T> {
    /// The field with this extension (lower case).
    #[must_use]
    pub fn get(&self, ext: &str) -> Option<&Field<T>> {
        self.fields.iter().find(|field| &*field.ext == ext)
    }

    /// The field that a selector means: the first of its alternatives that the sample has.
    #[must_use]
    pub fn field(&self, selector: &FieldSelector) -> Option<&Field<T>> {
        selector.pick(|ext| self.get(ext))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_escapes_what_is_not_text() {
        let key = Key::new(&b"caf\xe9/\xc3\xa9"[..]);
        assert_eq!(key.to_string(), "caf\\xe9/é");
        assert_eq!(key.to_str(), None);
        assert_eq!(Key::new("a b\\c").to_string(), "a b\\\\c");
        assert_ne!(Key::new("\\xe9").to_string(), Key::new(&b"\xe9"[..]).to_string());
    }

    #[test]
    fn the_first_alternative_that_exists_wins() {
        let field = |ext: &str| Field { ext: ext.into(), value: () };
        let sample = Sample { key: Key::new("0"), fields: vec![field("png"), field("jpg"), field("cls")] };
        let check = |selector: &str, expected: Option<&str>| {
            let selector = FieldSelector::parse(selector).unwrap();
            assert_eq!(sample.field(&selector).map(|field| &*field.ext), expected, "{selector}");
        };
        check("jpg;png", Some("jpg"));
        check("jpeg;png;jpg", Some("png"));
        check("txt", None);
    }
}
