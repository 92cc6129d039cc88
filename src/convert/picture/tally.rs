//! What was done to pictures, added up shard by shard.
//!
//! It counts; what it means, who prints it says.

use serde::{Deserialize, Serialize};

/// What was done to pictures, in numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PictureTally {
    /// Pictures that are other bytes than in the source.
    pub changed: u64,
    /// Of these, those whose pixels were encoded anew.
    pub encoded: u64,
    /// Pictures that were turned upright without loss.
    pub turned_lossless: u64,
    /// JPEG files that got restart markers.
    pub marked: u64,
    /// JPEG files that could not get any, such as progressive ones: they stay as they are.
    pub unmarked: u64,
    /// Pictures encoded anew whose new file lacks metadata of the old one, though they were not to be taken out: comments,
    /// EXIF data in another format than JPEG, a profile of other colours.
    #[serde(default)]
    pub bared: u64,
    /// Pictures in other fields than those that are changed.
    #[serde(default)]
    pub left_alone: u64,
    /// Bytes of all pictures in the source.
    pub bytes_before: u64,
    /// Bytes of all pictures in the shards.
    pub bytes_after: u64,
}

impl PictureTally {
    pub(in crate::convert) fn add(&mut self, other: &Self) {
        let Self { changed, encoded, turned_lossless, marked, unmarked, bared, left_alone, bytes_before, bytes_after } =
            other;
        self.changed += changed;
        self.encoded += encoded;
        self.turned_lossless += turned_lossless;
        self.marked += marked;
        self.unmarked += unmarked;
        self.bared += bared;
        self.left_alone += left_alone;
        self.bytes_before += bytes_before;
        self.bytes_after += bytes_after;
    }
}
