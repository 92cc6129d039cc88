//! A sample on its way: the bytes of its fields, then the same with the headers that stand before them in a shard. Buffers are
//! used again from sample to sample.

use std::io::IoSlice;

use crate::error::Result;
use crate::shard::writer::{check_sample, member_head};

/// The fields of one sample.
#[derive(Debug, Default)]
pub(super) struct Fields {
    fields: Vec<Field>,
    /// Buffers of fields that are gone, their bytes, and how many these may be.
    spare: Vec<Vec<u8>>,
    spare_bytes: u64,
    spare_bytes_max: u64,
}

/// One field.
#[derive(Debug)]
pub(super) struct Field {
    /// In lower case, without the dot.
    pub(super) ext: String,
    pub(super) bytes: Vec<u8>,
}

/// Buffers that are kept for later samples.
const SPARE_MAX: usize = 16;

impl Fields {
    /// No fields, and room to keep buffers of `spare_bytes_max` together.
    pub(super) fn new(spare_bytes_max: u64) -> Self {
        Self { spare_bytes_max, ..Self::default() }
    }

    /// An empty buffer for the bytes of a field.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        let buffer = self.spare.pop().unwrap_or_default();
        self.spare_bytes -= buffer.capacity() as u64;
        buffer
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter()
    }

    pub(super) fn push(&mut self, ext: &str, bytes: Vec<u8>) {
        self.fields.push(Field { ext: ext.to_owned(), bytes });
    }

    /// Gives a buffer back.
    pub(super) fn recycle(&mut self, mut buffer: Vec<u8>) {
        let bytes = self.spare_bytes + buffer.capacity() as u64;
        if self.spare.len() < SPARE_MAX && bytes <= self.spare_bytes_max {
            buffer.clear();
            self.spare_bytes = bytes;
            self.spare.push(buffer);
        }
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Field> {
        self.fields.iter_mut()
    }

    /// Lets go of all fields.
    pub(super) fn clear(&mut self) {
        while let Some(field) = self.fields.pop() {
            self.recycle(field.bytes);
        }
    }

    /// The sample as it stands in a shard, its fields sorted by extension.
    ///
    /// # Errors
    /// That of a sample that would not read back as the same.
    pub(super) fn pack(&mut self, key: &str) -> Result<Packed> {
        self.fields.sort_by(|a, b| a.ext.cmp(&b.ext));
        let parts: Vec<(&str, &[u8])> =
            self.fields.iter().map(|field| (field.ext.as_str(), field.bytes.as_slice())).collect();
        check_sample(key, &parts)?;
        let members = self.fields.drain(..).map(|Field { ext, bytes }| {
            let head = member_head(&format!("{key}.{ext}"), bytes.len() as u64, 0);
            PackedMember { head, bytes }
        });
        Ok(Packed { members: members.collect() })
    }
}

/// A sample as it stands in a shard.
#[derive(Debug)]
pub(super) struct Packed {
    members: Vec<PackedMember>,
}

#[derive(Debug)]
struct PackedMember {
    head: Vec<u8>,
    bytes: Vec<u8>,
}

/// The unit of an archive.
const BLOCK_BYTES: usize = 512;
const ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

impl Packed {
    /// All bytes in a shard, headers and padding included.
    pub(super) fn len_bytes(&self) -> u64 {
        self.members
            .iter()
            .map(|member| (member.head.len() + member.bytes.len().next_multiple_of(BLOCK_BYTES)) as u64)
            .sum()
    }

    /// The bytes in order.
    pub(super) fn slices<'a>(&'a self, into: &mut Vec<IoSlice<'a>>) {
        for PackedMember { head, bytes } in &self.members {
            into.push(IoSlice::new(head));
            into.push(IoSlice::new(bytes));
            let padding = bytes.len().next_multiple_of(BLOCK_BYTES) - bytes.len();
            into.push(IoSlice::new(&ZEROS[..padding]));
        }
    }

    /// Its buffers, for use by later samples.
    pub(super) fn into_buffers(self) -> impl Iterator<Item = Vec<u8>> {
        self.members.into_iter().map(|member| member.bytes)
    }
}

/// What a field of `size` bytes takes in a shard.
pub(super) fn member_bytes(key: &str, ext: &str, size: u64) -> u64 {
    /// Longer names may need more than one block.
    const NAME_SURE_BYTES: usize = 100;
    const SIZE_SURE_BYTES: u64 = 1 << 33;
    let head = if key.len() + 1 + ext.len() <= NAME_SURE_BYTES && size < SIZE_SURE_BYTES {
        BLOCK_BYTES as u64
    } else {
        member_head(&format!("{key}.{ext}"), size, 0).len() as u64
    };
    head.saturating_add(size.checked_next_multiple_of(BLOCK_BYTES as u64).unwrap_or(u64::MAX))
}
