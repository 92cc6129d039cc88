//! Extended headers: what PAX records and GNU long names say about the members behind them.
//!
//! It only gathers; which of it holds for a member is the scanner's decision.

use super::header::until_nul;
use super::window::Window;
use super::{Head, Stop, damage, pax, replace};
use crate::error::ErrorKind;

/// The most bytes that a PAX header or a GNU long name may hold; larger ones are damage.
const EXTENSION_BYTES_MAX: u64 = 1 << 20;

/// What extended headers say about the member, or members, after them.
#[derive(Debug, Default)]
pub(super) struct Extension {
    /// Where the first of them stands; `None` while there is none.
    pub(super) start: Option<u64>,
    /// PAX path; an empty one counts as none, as POSIX has it.
    pub(super) path: Vec<u8>,
    /// GNU long name.
    pub(super) long_name: Vec<u8>,
    pub(super) size: Option<u64>,
    pub(super) sparse: bool,
}

impl Extension {
    /// Forgets everything but the buffers.
    pub(super) fn clear(&mut self) {
        self.start = None;
        self.path.clear();
        self.long_name.clear();
        self.size = None;
        self.sparse = false;
    }
    /// Takes in the records of a PAX header, later ones over earlier ones; returns the size of its data.
    pub(super) fn read_pax(&mut self, window: &mut impl Window, head: Head) -> Result<u64, Stop> {
        let data_offset = head.data_offset();
        let data = data(window, head)?;
        for record in pax::Records::new(data) {
            let (key, value) = record.map_err(|malformed| {
                let place = data_offset + malformed.offset as u64;
                damage(ErrorKind::BadHeader, format!("a PAX record {}", malformed.why), place, data_offset)
            })?;
            match key {
                b"path" => replace(&mut self.path, value),
                b"size" => self.size = pax_size(value, data_offset)?,
                key if key.starts_with(b"GNU.sparse.") => {
                    self.sparse = true;
                    if key == b"GNU.sparse.name" {
                        replace(&mut self.path, value);
                    }
                }
                _ => {}
            }
        }
        Ok(data.len() as u64)
    }

    /// Takes in a GNU long name; returns the size of its data.
    pub(super) fn read_long_name(&mut self, window: &mut impl Window, head: Head) -> Result<u64, Stop> {
        let data = data(window, head)?;
        replace(&mut self.long_name, until_nul(data));
        Ok(data.len() as u64)
    }
}

/// An extended header that nobody here needs; returns the size of its data.
pub(super) fn pass_over(window: &mut impl Window, head: Head) -> Result<u64, Stop> {
    data(window, head).map(|data| data.len() as u64)
}

/// The data of an extended header.
fn data(window: &mut impl Window, head: Head) -> Result<&[u8], Stop> {
    let Head { at, .. } = head;
    let data_offset = head.data_offset();
    let size = head.size.map_err(|error| {
        let message = format!("the size of an extended header {}", error.as_str());
        damage(ErrorKind::BadHeader, message, at, data_offset)
    })?;
    if size > EXTENSION_BYTES_MAX {
        let message = format!("an extended header holds {size} bytes, more than the {EXTENSION_BYTES_MAX} allowed");
        return Err(damage(ErrorKind::Limit, message, at, data_offset));
    }
    // Within the limit, so it fits.
    let data = window.bytes(data_offset, size as usize)?;
    if (data.len() as u64) < size {
        let message = format!("an extended header is cut: expected {size} bytes, {} are left", data.len());
        return Err(damage(ErrorKind::Truncated, message, at, data_offset));
    }
    Ok(data)
}

/// The value of PAX's `size`; an empty one stands for none.
fn pax_size(value: &[u8], data_offset: u64) -> Result<Option<u64>, Stop> {
    if value.is_empty() {
        return Ok(None);
    }
    pax::decimal(value).map(Some).map_err(|error| {
        damage(ErrorKind::BadHeader, format!("a size in a PAX record {}", error.as_str()), data_offset, data_offset)
    })
}
