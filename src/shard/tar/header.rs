//! One 512-byte block of an archive: is it a header, and what do its fields say?
//!
//! It follows no chain of headers, keeps nothing and decides nothing about damage.

use crate::shard::MemberKind;

/// The unit of a tar archive, in bytes.
pub(in crate::shard) const BLOCK: usize = 512;

/// What a block of the header chain turned out to be.
pub(super) enum Block<'a> {
    Zero,
    Header(Header<'a>),
    Garbage,
}

impl<'a> Block<'a> {
    pub(super) fn of(block: &'a [u8; BLOCK]) -> Self {
        match Header::parse(block) {
            Some(header) => Self::Header(header),
            None if block.iter().all(|&byte| byte == 0) => Self::Zero,
            None => Self::Garbage,
        }
    }
}

/// A block whose checksum is right.
#[derive(Clone, Copy)]
pub(in crate::shard) struct Header<'a>(&'a [u8; BLOCK]);

/// What a header stands for in the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// PAX records for the next member.
    Pax,
    /// PAX records for all members that follow.
    PaxGlobal,
    /// The name of the next member, in GNU's way.
    LongName,
    /// The link target of the next member, in GNU's way: of no interest here.
    LongLink,
    /// A member of GNU's sparse type.
    Sparse,
    /// Any other member.
    Member(MemberKind),
}

impl<'a> Header<'a> {
    /// The header in `block`, if its checksum is right: the sum of all bytes with the checksum field read as blanks.
    pub(in crate::shard) fn parse(block: &'a [u8; BLOCK]) -> Option<Self> {
        let stored = &block[148..156];
        // Nothing is zero in other fields; here it would make headers of random data, whose signed bytes sum up to
        // little.
        let stored = octal(stored).ok().filter(|_| stored.iter().any(u8::is_ascii_digit))?;
        let blanks = 8 * u64::from(b' ');
        let field: u64 = block[148..156].iter().map(|&byte| u64::from(byte)).sum();
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        let unsigned = u64::from(sum) - field + blanks;
        if unsigned == stored {
            return Some(Self(block));
        }
        // Old Sun writers summed signed bytes.
        let outside = block[..148].iter().chain(&block[156..]);
        let signed: i64 = outside.map(|&byte| i64::from(byte.cast_signed())).sum::<i64>() + blanks.cast_signed();
        (u64::try_from(signed) == Ok(stored)).then_some(Self(block))
    }

    pub(super) fn role(&self) -> Role {
        match self.0[156] {
            b'x' | b'X' => Role::Pax,
            b'g' => Role::PaxGlobal,
            b'L' => Role::LongName,
            b'K' => Role::LongLink,
            b'S' => Role::Sparse,
            0 | b'0' | b'7' => Role::Member(MemberKind::File),
            b'1' => Role::Member(MemberKind::HardLink),
            b'2' => Role::Member(MemberKind::Symlink),
            b'5' => Role::Member(MemberKind::Dir),
            other => Role::Member(MemberKind::Other(other)),
        }
    }

    /// Whether the type is that of files before POSIX, when a directory was a file whose name ends in a slash.
    pub(super) fn is_old_file(&self) -> bool {
        self.0[156] == 0
    }

    /// The size field, in bytes.
    pub(in crate::shard) fn size(&self) -> Result<u64, NumberError> {
        number(&self.0[124..136])
    }

    /// Whether the name fills its field, as the start of a longer one does.
    pub(in crate::shard) fn name_is_full(&self) -> bool {
        self.0[99] != 0
    }

    /// Whether blocks of GNU's sparse map follow this header of type `S`.
    pub(super) fn sparse_map_goes_on(&self) -> bool {
        self.0[482] != 0
    }

    /// Appends the name, with its prefix where the header has one.
    pub(in crate::shard) fn push_name(&self, name: &mut Vec<u8>) {
        let prefix = self.prefix();
        if !prefix.is_empty() {
            name.extend_from_slice(prefix);
            name.push(b'/');
        }
        name.extend_from_slice(until_nul(&self.0[..100]));
    }

    fn prefix(&self) -> &'a [u8] {
        let prefix = until_nul(&self.0[345..500]);
        match &self.0[257..263] {
            b"ustar\0" => prefix,
            // GNU's format has times there; but old Go programs wrote its magic and meant a prefix.
            b"ustar " if self.0[345..369].chunks(12).any(|time| number(time).is_err()) && prefix.is_ascii() => prefix,
            _ => &[],
        }
    }
}

/// Why a numeric field has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::shard) enum NumberError {
    NotOctal,
    NotDecimal,
    Negative,
    Overflow,
}

impl NumberError {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::NotOctal => "is no octal number",
            Self::NotDecimal => "is no decimal number",
            Self::Negative => "is negative",
            Self::Overflow => "is over 2^64",
        }
    }
}

/// A numeric field: octal digits, or base 256 with the top bit set.
fn number(field: &[u8]) -> Result<u64, NumberError> {
    match field.first() {
        Some(&first) if first & 0x80 != 0 => base_256(first, &field[1..]),
        _ => octal(field),
    }
}

/// Big-endian two's complement; the top bit of `first` is only the mark of the format, the next one is the sign.
fn base_256(first: u8, rest: &[u8]) -> Result<u64, NumberError> {
    if first & 0x40 != 0 {
        return Err(NumberError::Negative);
    }
    rest.iter().try_fold(u64::from(first & 0x3f), |value, &byte| {
        let shifted = value.checked_mul(256).ok_or(NumberError::Overflow)?;
        Ok(shifted | u64::from(byte))
    })
}

/// Octal digits between blanks, up to a NUL or the field's end; nothing at all is zero.
fn octal(field: &[u8]) -> Result<u64, NumberError> {
    let digits = until_nul(field).trim_ascii();
    digits.iter().try_fold(0_u64, |value, &digit| match digit {
        b'0'..=b'7' => {
            let shifted = value.checked_mul(8).ok_or(NumberError::Overflow)?;
            Ok(shifted | u64::from(digit - b'0'))
        }
        _ => Err(NumberError::NotOctal),
    })
}

/// The part of a field before its first NUL.
pub(super) fn until_nul(field: &[u8]) -> &[u8] {
    memchr::memchr(0, field).map_or(field, |end| &field[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_octal_or_base_256() {
        let check = |field: &[u8], expected: Result<u64, NumberError>| assert_eq!(number(field), expected, "{field:?}");
        check(b"00000001750\0", Ok(1000));
        check(b"       1750 ", Ok(1000));
        check(b"777777777777", Ok((1 << 36) - 1));
        check(b"1750 \0junk!!", Ok(1000));
        check(b"\0\0\0\0\0\0\0\0\0\0\0\0", Ok(0));
        check(b"           \0", Ok(0));
        check(b"0000012z45\0\0", Err(NumberError::NotOctal));
        check(b"17 50\0\0\0\0\0\0\0", Err(NumberError::NotOctal));
        check(b"-0000001750\0", Err(NumberError::NotOctal));
        check(b"\x80\0\0\0\0\0\0\x02\0\0\0\0", Ok(8 << 30));
        check(b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", Ok(u64::MAX));
        check(b"\x80\0\0\x01\0\0\0\0\0\0\0\0", Err(NumberError::Overflow));
        check(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", Err(NumberError::Negative));
        check(b"\xc0\0\0\0\0\0\0\0\0\0\0\0", Err(NumberError::Negative));
        check(&[b'7'; 24], Err(NumberError::Overflow));
    }

    #[test]
    fn a_checksum_may_be_signed_and_may_end_in_any_way() {
        let check = |signed: bool, form: fn(u64) -> String| {
            let mut block = [0_u8; BLOCK];
            block[..3].copy_from_slice(b"\xe9.x");
            block[148..156].fill(b' ');
            let sum: i64 =
                block.iter().map(|&byte| if signed { i64::from(byte.cast_signed()) } else { i64::from(byte) }).sum();
            let text = form(u64::try_from(sum).unwrap());
            block[148..148 + text.len()].copy_from_slice(text.as_bytes());
            assert!(Header::parse(&block).is_some(), "{text:?}");
            block[0] ^= 1;
            assert!(Header::parse(&block).is_none(), "{text:?}");
        };
        check(false, |sum| format!("{sum:06o}\0 "));
        check(false, |sum| format!("{sum:06o} \0"));
        check(false, |sum| format!("{sum:07o}\0"));
        check(false, |sum| format!("{sum:08o}"));
        check(false, |sum| format!("{sum:>7o}\0"));
        check(true, |sum| format!("{sum:06o}\0 "));
    }

    #[test]
    fn a_block_of_zeros_is_no_header() {
        assert!(matches!(Block::of(&[0; BLOCK]), Block::Zero));
        let mut block = [0; BLOCK];
        block[511] = 1;
        assert!(matches!(Block::of(&block), Block::Garbage));
        // A sum of 256 is that of eight blanks: right, if odd.
        block = [0; BLOCK];
        block[148..152].copy_from_slice(b"400\0");
        assert!(matches!(Block::of(&block), Block::Header(_)));
    }
}
