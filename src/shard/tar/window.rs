//! A window answers "give me these bytes of the archive": the parser's only sight of the outside.
//!
//! It is no reader of member data: windows are small, and whoever wants data asks the shard.

use bytes::Bytes;

use crate::error::Result;
use crate::shard::Shard;

/// Bytes of an archive by offset.
pub(in crate::shard) trait Window {
    /// The bytes from `offset` on, `len` of them, or fewer where the archive ends before that.
    ///
    /// Offsets never go down by more than the scanner went forward within one header: a window over a stream may
    /// forget everything before the offset that it was last asked for.
    fn bytes(&mut self, offset: u64, len: usize) -> Result<&[u8]>;

    /// The length of the archive in bytes, if it is known; a stream knows it once it has met its end.
    fn len(&self) -> Option<u64>;
}

impl Window for &[u8] {
    fn bytes(&mut self, offset: u64, len: usize) -> Result<&[u8]> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(<[u8]>::len(self));
        let end = start.saturating_add(len).min(<[u8]>::len(self));
        Ok(&self[start..end])
    }

    fn len(&self) -> Option<u64> {
        Some(<[u8]>::len(self) as u64)
    }
}

/// A window of whole pages over a shard, for walking headers without touching the data between them.
#[derive(Debug)]
pub(in crate::shard) struct PageWindow {
    shard: Shard,
    page: Bytes,
    page_start: u64,
}

/// The size of a page, in bytes: what a walk over headers reads at a time.
const PAGE: u64 = 4096;

impl PageWindow {
    pub(in crate::shard) fn new(shard: Shard) -> Self {
        Self { shard, page: Bytes::new(), page_start: 0 }
    }
}

impl Window for PageWindow {
    fn bytes(&mut self, offset: u64, len: usize) -> Result<&[u8]> {
        let end_max = self.shard.len();
        let start = offset.min(end_max);
        let end = start.saturating_add(len as u64).min(end_max);
        let have_end = self.page_start + self.page.len() as u64;
        if start < self.page_start || end > have_end {
            let pages_end = end.checked_next_multiple_of(PAGE).unwrap_or(end_max).min(end_max);
            self.page_start = start - start % PAGE;
            self.page = self.shard.read(self.page_start..pages_end)?;
        }
        // Both fit: they lie within a buffer that is in memory.
        let from = (start - self.page_start) as usize;
        let to = (end - self.page_start) as usize;
        Ok(self.page.get(from..to).unwrap_or_default())
    }

    fn len(&self) -> Option<u64> {
        Some(self.shard.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_window_shows_what_a_slice_shows() -> Result<()> {
        let bytes: Vec<u8> = (0..10_000_u32).map(|i| (i % 251) as u8).collect();
        let mut pages = PageWindow::new(Shard::from_bytes("t", bytes.clone().into()));
        let mut slice = &bytes[..];
        for (offset, len) in
            [(0, 512), (512, 512), (3900, 512), (4096, 0), (9_990, 512), (100, 9_000), (20_000, 512), (u64::MAX, 7)]
        {
            assert_eq!(pages.bytes(offset, len)?, slice.bytes(offset, len)?, "{len} at {offset}");
        }
        assert_eq!(Window::len(&pages), Window::len(&slice));
        Ok(())
    }
}
