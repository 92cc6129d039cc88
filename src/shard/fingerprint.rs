//! A hash that is fixed for all time, since saved states and cache files hold it.
//!
//! It is no defence against people who want two inputs to look alike.

/// A hash that is fixed for all time: multiply and rotate over words of eight bytes, little-endian.
pub(super) struct Fingerprint(u64);

impl Default for Fingerprint {
    fn default() -> Self {
        Self(0x6272_696d_6675_6c31)
    }
}

impl Fingerprint {
    pub(super) fn word(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
    }

    pub(super) fn finish(self) -> u64 {
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^ (mixed >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_never_changes_and_sees_where_bytes_end() {
        let of = |parts: &[&[u8]]| {
            let mut hash = Fingerprint::default();
            parts.iter().for_each(|part| hash.bytes(part));
            hash.finish()
        };
        assert_eq!(of(&[b"abc", b"0123456789"]), 2_311_586_024_369_156_694);
        assert_ne!(of(&[b"ab", b"c"]), of(&[b"a", b"bc"]));
        assert_ne!(of(&[b"a\0"]), of(&[b"a"]));
        assert_ne!(of(&[b""]), of(&[]));
    }
}
