//! The search for the next valid header behind damage.
//!
//! It is only a search: what to do with what it finds is the scanner's business.

use memchr::memmem;

use super::header::{BLOCK, Header};
use super::pax;
use super::window::Window;
use crate::error::Result;

/// How many bytes are searched at a time, beyond the one header that overlaps.
const CHUNK: usize = 64 << 10;

/// Where ustar, PAX and GNU headers hold their magic.
const MAGIC_OFFSET: usize = 257;

/// What a search found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Search {
    /// The first valid header.
    pub(super) header: Option<u64>,
    /// Whether PAX records stand right before it: records whose own header is lost.
    pub(super) behind_pax: bool,
    /// Where the last bytes that are not zero end, in whole blocks; the search's start if all are zero.
    /// Meant for searches that found nothing.
    pub(super) content_end: u64,
    /// Where the archive ends, for searches that found nothing.
    pub(super) end: u64,
}

/// Finds the first valid header at or behind `from`: on `from`'s block grid by its checksum alone, anywhere else by
/// magic and checksum, so that lost bytes that are no whole blocks are got over too.
pub(super) fn find_header(window: &mut impl Window, from: u64) -> Result<Search> {
    let magic = memmem::Finder::new(b"ustar");
    let mut search = Search { header: None, behind_pax: false, content_end: from, end: from };
    let mut at = from;
    let mut after_pax = false;
    loop {
        let bytes = window.bytes(at, CHUNK + BLOCK)?;
        let blocks = bytes.chunks_exact(BLOCK).take(CHUNK / BLOCK);
        let mut on_grid = None;
        for (i, block) in blocks.enumerate() {
            if is_header(block) {
                on_grid = Some((i * BLOCK, after_pax));
                break;
            }
            after_pax = holds_pax_records(block);
        }
        // A magic behind the header on the grid is of no interest, and one byte before it may be.
        let searched = on_grid.map_or(bytes.len(), |(start, _)| start + MAGIC_OFFSET);
        let off_grid = magic
            .find_iter(&bytes[..searched])
            .filter_map(|hit| hit.checked_sub(MAGIC_OFFSET))
            .find(|&start| bytes.get(start..start + BLOCK).is_some_and(is_header))
            .map(|start| (start, start.checked_sub(BLOCK).is_some_and(|p| holds_pax_records(&bytes[p..start]))));
        if let Some((start, behind_pax)) = off_grid.or(on_grid) {
            return Ok(Search { header: Some(at + start as u64), behind_pax, ..search });
        }
        if let Some(last) = bytes.iter().rposition(|&byte| byte != 0) {
            let whole_blocks = (last / BLOCK + 1) * BLOCK;
            search.content_end = at + whole_blocks.min(bytes.len()) as u64;
        }
        if bytes.len() < CHUNK + BLOCK {
            // The search may have begun behind the end, where the padding of the last member should be.
            let end = at + bytes.len() as u64;
            search.end = window.len().map_or(end, |len| len.min(end));
            search.content_end = search.content_end.min(search.end);
            return Ok(search);
        }
        at += CHUNK as u64;
    }
}

fn is_header(block: &[u8]) -> bool {
    block.try_into().is_ok_and(|block| Header::parse(block).is_some())
}

fn holds_pax_records(block: &[u8]) -> bool {
    matches!(pax::Records::new(block).next(), Some(Ok(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Vec<u8> {
        let mut header = tar::Header::new_ustar();
        header.set_size(0);
        header.set_cksum();
        header.as_bytes().to_vec()
    }

    fn check(before: usize, then: &[u8], from: u64, expected: Option<u64>) {
        let mut bytes = vec![7; before];
        bytes.extend_from_slice(then);
        bytes.extend([7; 2000]);
        let search = find_header(&mut &bytes[..], from).unwrap();
        assert_eq!(search.header, expected, "{before} bytes before, from {from}");
        if expected.is_none() {
            assert_eq!((search.end, search.content_end), (bytes.len() as u64, bytes.len() as u64));
        }
    }

    #[test]
    fn a_header_is_found_on_the_grid_and_off_it() {
        let header = header();
        check(0, &header, 0, Some(0));
        check(512, &header, 0, Some(512));
        check(512, &header, 513, None);
        check(700, &header, 0, Some(700));
        check(700, &header, 188, Some(700));
        for before in [CHUNK - 512, CHUNK - 1, CHUNK, CHUNK + 1, CHUNK + 511, CHUNK + 512, 2 * CHUNK + 77] {
            check(before, &header, 0, Some(before as u64));
        }
        check(3 * CHUNK, b"ustar", 0, None);
    }

    #[test]
    fn a_header_without_magic_is_found_on_the_grid_only() {
        let mut old = tar::Header::new_old();
        old.set_size(0);
        old.set_cksum();
        check(1024, old.as_bytes(), 0, Some(1024));
        check(1024, old.as_bytes(), 512, Some(1024));
        check(1000, old.as_bytes(), 0, None);
    }

    #[test]
    fn zeros_at_the_end_are_no_content() {
        let mut bytes = vec![7; 1300];
        // Miri would take minutes over more.
        let end = if cfg!(miri) { 5_000 } else { 200_000 };
        bytes.resize(end, 0);
        let search = find_header(&mut &bytes[..], 512).unwrap();
        assert_eq!(search, Search { header: None, behind_pax: false, content_end: 1536, end: end as u64 });
    }

    #[test]
    fn records_whose_header_is_lost_are_noticed() {
        let mut records = b"19 path=longer.name\n".to_vec();
        records.resize(512, 0);
        let check = |before: usize, records: &[u8], expected: bool| {
            let bytes = [&vec![7; before][..], records, &header()].concat();
            assert_eq!(find_header(&mut &bytes[..], 0).unwrap().behind_pax, expected);
        };
        check(512, &records, false);
        records[..3].copy_from_slice(b"20 ");
        check(512, &records, true);
        check(517, &records, true);
        check(CHUNK - 512, &records, true);
        check(512, &[7; 512], false);
    }
}
