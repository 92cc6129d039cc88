//! The records of a PAX extended header: `LENGTH KEY=VALUE\n`, one after the other.
//!
//! It hands out bytes as they stand, interprets no character set, and knows no key but by name.

use super::header::NumberError;

/// A PAX record that breaks the rules; the offset is relative to the records' start, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed {
    pub(super) offset: usize,
    pub(super) why: &'static str,
}

/// The key and the value of each record.
pub(super) struct Records<'a> {
    data: &'a [u8],
    offset: usize,
}

impl<'a> Records<'a> {
    pub(super) fn new(data: &'a [u8]) -> Self {
        Self { data, offset: 0 }
    }

    fn record(&self) -> Result<(&'a [u8], &'a [u8], usize), &'static str> {
        let rest = &self.data[self.offset..];
        let blank = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
        if rest.get(blank) != Some(&b' ') {
            return Err("does not begin with its length");
        }
        let length = decimal(&rest[..blank]).ok().and_then(|length| usize::try_from(length).ok());
        let Some(record) = length.and_then(|length| rest.get(..length)) else {
            return Err("is longer than its header");
        };
        let Some(body) = record.get(blank + 1..).and_then(|body| body.strip_suffix(b"\n")) else {
            return Err("does not end in a newline");
        };
        let Some(equals) = memchr::memchr(b'=', body) else {
            return Err("has no '='");
        };
        Ok((&body[..equals], &body[equals + 1..], record.len()))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<(&'a [u8], &'a [u8]), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        // Some writers fill the rest of the block with NULs and count them in.
        if self.data.get(self.offset).is_none_or(|&byte| byte == 0) {
            return None;
        }
        match self.record() {
            Ok((key, value, length)) => {
                self.offset += length;
                Some(Ok((key, value)))
            }
            Err(why) => {
                let offset = std::mem::replace(&mut self.offset, self.data.len());
                Some(Err(Malformed { offset, why }))
            }
        }
    }
}

/// A decimal number of PAX: digits only.
pub(super) fn decimal(digits: &[u8]) -> Result<u64, NumberError> {
    match digits {
        [] => Err(NumberError::NotDecimal),
        [b'-', rest @ ..] if decimal(rest).is_ok() => Err(NumberError::Negative),
        _ => digits.iter().try_fold(0_u64, |value, &digit| {
            if !digit.is_ascii_digit() {
                return Err(NumberError::NotDecimal);
            }
            let shifted = value.checked_mul(10).ok_or(NumberError::Overflow)?;
            shifted.checked_add(u64::from(digit - b'0')).ok_or(NumberError::Overflow)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Pair<'a> = (&'a [u8], &'a [u8]);

    #[test]
    fn records_are_split_by_their_length() {
        let check = |data: &[u8], expected: Result<&[Pair<'_>], (usize, &str)>| {
            let records: Result<Vec<_>, _> = Records::new(data).collect();
            let records = records.as_deref().map_err(|malformed| (malformed.offset, malformed.why));
            assert_eq!(records, expected, "{}", data.escape_ascii());
        };
        check(b"", Ok(&[]));
        check(b"\0\0\0", Ok(&[]));
        check(b"9 path=a\n", Ok(&[(b"path", b"a")]));
        check(b"9 path=a\n20 comment=a=b\nc\xff d\n\0\0", Ok(&[(b"path", b"a"), (b"comment", b"a=b\nc\xff d")]));
        check(b"8 path=\n", Ok(&[(b"path", b"")]));
        check(b"path=a\n", Err((0, "does not begin with its length")));
        check(b"9", Err((0, "does not begin with its length")));
        check(b"9 path=a\n99 path=b\n", Err((9, "is longer than its header")));
        check(b"99999999999999999999999 path=b\n", Err((0, "is longer than its header")));
        check(b"8 path=a\n", Err((0, "does not end in a newline")));
        check(b"1 path=a\n", Err((0, "does not end in a newline")));
        check(b"0 path=a\n", Err((0, "does not end in a newline")));
        check(b"7 path\n\n", Err((0, "has no '='")));
    }

    #[test]
    fn a_decimal_number_has_nothing_but_digits() {
        let check = |digits: &[u8], expected: Result<u64, NumberError>| assert_eq!(decimal(digits), expected);
        check(b"0012", Ok(12));
        check(b"18446744073709551615", Ok(u64::MAX));
        check(b"18446744073709551616", Err(NumberError::Overflow));
        check(b"-1", Err(NumberError::Negative));
        check(b"", Err(NumberError::NotDecimal));
        check(b"1.5", Err(NumberError::NotDecimal));
        check(b" 1", Err(NumberError::NotDecimal));
    }
}
