//! NumPy's `.npy` file as a dtype, a shape and bytes, for numbers and booleans.
//!
//! It never unpickles: object arrays are refused, and so are strings, dates, complex numbers and records. The header is
//! read by a scanner of its own, without recursion, because its text comes from strangers.

use bytes::Bytes;

use super::value::{Array, ArrayDtype};
use crate::error::{Error, ErrorKind, Result};

/// The longest header text in bytes; NumPy's own limit.
const HEADER_BYTES_MAX: usize = 10_000;
/// The most dimensions; NumPy's own limit.
const DIMENSIONS_MAX: usize = 64;

/// Reads the bytes of an `.npy` file of version 1, 2 or 3.
///
/// The data comes out in row-major order and this machine's byte order. Where the file has both already, which is the
/// rule, it is a view of `bytes`; otherwise it is copied. Bytes behind the array are ignored, as NumPy ignores them.
///
/// # Errors
/// [`ErrorKind::FieldValue`] for anything that is no such file: a bad header, a dtype that is not a plain number, fewer
/// bytes than the shape needs. Never panics and never allocates more than the size of `bytes` and its header.
pub fn parse_npy(bytes: &Bytes) -> Result<Array> {
    let header_len = header_len(bytes)?;
    let header = Header::parse(&bytes[header_len.start..header_len.end])?;
    let count = header.shape.iter().try_fold(1_usize, |count, &len| count.checked_mul(len));
    let size = count.and_then(|count| count.checked_mul(header.dtype.size_bytes()));
    let available = bytes.len() - header_len.end;
    let Some(size) = size.filter(|&size| size <= available) else {
        let shape = &header.shape;
        return Err(refuse(format!(
            "an array of shape {shape:?} and type {} does not fit into the {available} bytes that follow its header",
            header.dtype
        )));
    };
    let data = bytes.slice(header_len.end..header_len.end + size);
    let data = if header.is_swapped { swap_bytes(&data, header.dtype.size_bytes()) } else { data };
    let data = if header.is_fortran { transpose(&data, &header.shape, header.dtype.size_bytes()) } else { data };
    Ok(Array { dtype: header.dtype, shape: header.shape, data })
}

/// Where the header's text lies.
fn header_len(bytes: &[u8]) -> Result<std::ops::Range<usize>> {
    let (start, len) = match bytes {
        [0x93, b'N', b'U', b'M', b'P', b'Y', 1, _, low, high, ..] => {
            (10, usize::from(u16::from_le_bytes([*low, *high])))
        }
        [0x93, b'N', b'U', b'M', b'P', b'Y', 2 | 3, _, a, b, c, d, ..] => {
            (12, u32::from_le_bytes([*a, *b, *c, *d]).try_into().unwrap_or(usize::MAX))
        }
        [0x93, b'N', b'U', b'M', b'P', b'Y', version, ..] if !matches!(version, 1..=3) => {
            return Err(refuse(format!("version {version} of the npy format is unknown")));
        }
        _ => return Err(refuse("the bytes are no npy file")),
    };
    if len > HEADER_BYTES_MAX {
        return Err(refuse(format!("the npy header of {len} bytes is over the limit of {HEADER_BYTES_MAX}")));
    }
    if len > bytes.len() - start {
        return Err(refuse("the npy header ends early"));
    }
    Ok(start..start + len)
}

fn refuse(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::FieldValue, message)
}

#[derive(Debug, PartialEq, Eq)]
struct Header {
    dtype: ArrayDtype,
    /// Whether the bytes of an element are in the other order than this machine's.
    is_swapped: bool,
    is_fortran: bool,
    shape: Vec<usize>,
}

impl Header {
    /// Reads the dictionary `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`, its keys in any order.
    fn parse(text: &[u8]) -> Result<Self> {
        let mut scanner = Scanner { text };
        Self::read(&mut scanner)?.ok_or_else(|| {
            let at = text.len() - scanner.text.len();
            refuse(format!("the npy header is not understood at its byte {at}"))
        })
    }

    /// `None` where the text is not as expected; the scanner stands there.
    fn read(scanner: &mut Scanner<'_>) -> Result<Option<Self>> {
        let (mut descr, mut is_fortran, mut shape) = (None, None, None);
        if !scanner.take(b"{") {
            return Ok(None);
        }
        while !scanner.take(b"}") {
            let Some(key) = scanner.string() else { return Ok(None) };
            if !scanner.take(b":") {
                return Ok(None);
            }
            let known = match key {
                b"descr" => {
                    if scanner.take(b"[") || scanner.take(b"(") {
                        return Err(refuse("the npy array holds records or sub-arrays, not plain numbers"));
                    }
                    descr = scanner.string();
                    descr.is_some()
                }
                b"fortran_order" => {
                    is_fortran = scanner.boolean();
                    is_fortran.is_some()
                }
                b"shape" => {
                    shape = scanner.shape();
                    shape.is_some()
                }
                _ => false,
            };
            if !known {
                return Ok(None);
            }
            if !scanner.take(b",") {
                if scanner.take(b"}") {
                    break;
                }
                return Ok(None);
            }
        }
        let (Some(descr), Some(is_fortran), Some(shape)) = (descr, is_fortran, shape) else {
            return Err(refuse("the npy header lacks one of 'descr', 'fortran_order' and 'shape'"));
        };
        scanner.skip_blanks();
        if !scanner.text.is_empty() {
            return Ok(None);
        }
        let (dtype, is_swapped) = read_dtype(descr)?;
        Ok(Some(Self { dtype, is_swapped, is_fortran, shape }))
    }
}

/// The dtype of a type string such as `<f4`, and whether its bytes must be swapped.
fn read_dtype(descr: &[u8]) -> Result<(ArrayDtype, bool)> {
    let unknown = || {
        let error = refuse(format!("an npy array of type '{}' cannot be read", descr.escape_ascii()));
        match descr {
            [_, b'O', ..] | [b'O', ..] => error.with_hint("it holds Python objects, which only unpickling could read"),
            _ => error.with_hint("integers, floats and booleans can be read"),
        }
    };
    let [order @ (b'<' | b'>' | b'|' | b'='), kind @ ..] = descr else { return Err(unknown()) };
    let dtype = match kind {
        b"b1" => ArrayDtype::Bool,
        b"u1" => ArrayDtype::U8,
        b"i1" => ArrayDtype::I8,
        b"u2" => ArrayDtype::U16,
        b"i2" => ArrayDtype::I16,
        b"u4" => ArrayDtype::U32,
        b"i4" => ArrayDtype::I32,
        b"u8" => ArrayDtype::U64,
        b"i8" => ArrayDtype::I64,
        b"f2" => ArrayDtype::F16,
        b"f4" => ArrayDtype::F32,
        b"f8" => ArrayDtype::F64,
        _ => return Err(unknown()),
    };
    if *order == b'|' && dtype.size_bytes() > 1 {
        return Err(unknown());
    }
    let other = if cfg!(target_endian = "little") { b'>' } else { b'<' };
    Ok((dtype, *order == other && dtype.size_bytes() > 1))
}

/// What is left of a header's text.
struct Scanner<'a> {
    text: &'a [u8],
}

impl<'a> Scanner<'a> {
    fn skip_blanks(&mut self) {
        self.text = self.text.trim_ascii_start();
    }

    /// Steps over a word if it comes next.
    fn take(&mut self, word: &[u8]) -> bool {
        self.skip_blanks();
        self.text.strip_prefix(word).map(|rest| self.text = rest).is_some()
    }

    /// A string in either kind of quotes; with an escape in it, it is none that a header needs.
    fn string(&mut self) -> Option<&'a [u8]> {
        self.skip_blanks();
        let (&quote @ (b'\'' | b'"'), rest) = self.text.split_first()? else { return None };
        let end = rest.iter().position(|&byte| byte == quote)?;
        if rest[..end].contains(&b'\\') {
            return None;
        }
        self.text = &rest[end + 1..];
        Some(&rest[..end])
    }

    fn boolean(&mut self) -> Option<bool> {
        if self.take(b"True") { Some(true) } else { self.take(b"False").then_some(false) }
    }

    /// A tuple of lengths: `()`, `(3,)`, `(3, 4)`.
    fn shape(&mut self) -> Option<Vec<usize>> {
        let mut shape = Vec::new();
        if !self.take(b"(") {
            return None;
        }
        while !self.take(b")") {
            if shape.len() == DIMENSIONS_MAX {
                return None;
            }
            shape.push(self.length()?);
            if !self.take(b",") {
                // Without a comma, a single number in parentheses is no tuple.
                return (shape.len() > 1 && self.take(b")")).then_some(shape);
            }
        }
        Some(shape)
    }

    /// A number that is not negative; an `L` behind it, as Python 2 wrote, is stepped over.
    fn length(&mut self) -> Option<usize> {
        self.skip_blanks();
        let end = self.text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(self.text.len());
        let (digits, rest) = self.text.split_at(end);
        let length = std::str::from_utf8(digits).ok()?.parse().ok()?;
        self.text = rest.strip_prefix(b"L").unwrap_or(rest);
        Some(length)
    }
}

/// Elements with their bytes in the opposite order.
fn swap_bytes(data: &[u8], size: usize) -> Bytes {
    let mut swapped = data.to_vec();
    swapped.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    swapped.into()
}

/// Column-major elements in row-major order. `data` is exactly as long as the shape says.
fn transpose(data: &Bytes, shape: &[usize], size: usize) -> Bytes {
    if data.is_empty() || shape.iter().filter(|&&len| len > 1).count() < 2 {
        return data.clone();
    }
    // The data is not empty, so every length is at least 1 and all products below stay within its length.
    let steps: Vec<usize> = shape.iter().scan(size, |step, len| Some(std::mem::replace(step, *step * len))).collect();
    let mut rows = Vec::with_capacity(data.len());
    let mut place = vec![0; shape.len()];
    let mut at = 0;
    while rows.len() < data.len() {
        rows.extend_from_slice(&data[at..at + size]);
        for axis in (0..shape.len()).rev() {
            place[axis] += 1;
            at += steps[axis];
            if place[axis] < shape[axis] {
                break;
            }
            at -= steps[axis] * shape[axis];
            place[axis] = 0;
        }
    }
    rows.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use npyz::WriterBuilder;
    use proptest::prelude::*;

    fn npy(header: &str, data: &[u8]) -> Bytes {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend_from_slice(&u16::try_from(header.len()).unwrap().to_le_bytes());
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(data);
        bytes.into()
    }

    fn message(bytes: &Bytes) -> String {
        let error = parse_npy(bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FieldValue);
        error.to_string()
    }

    #[test]
    fn what_another_writer_writes_is_read() {
        let numbers: Vec<f32> = (0..24).map(|number| number as f32).collect();
        let mut bytes = Vec::new();
        let writer = npyz::WriteOptions::new().default_dtype().shape(&[2, 3, 4]).writer(&mut bytes);
        let mut writer = writer.begin_nd().unwrap();
        writer.extend(numbers.iter().copied()).unwrap();
        writer.finish().unwrap();
        let array = parse_npy(&bytes.into()).unwrap();
        assert_eq!((array.dtype, &array.shape[..]), (ArrayDtype::F32, &[2, 3, 4][..]));
        let expected: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        assert_eq!(array.data, expected);
    }

    #[test]
    fn headers_of_all_sorts_are_read() {
        let check = |header: &str, dtype: ArrayDtype, shape: &[usize]| {
            let array = parse_npy(&npy(header, &[1; 96])).unwrap();
            assert_eq!((array.dtype, &array.shape[..]), (dtype, shape), "{header}");
            assert_eq!(array.data.len(), shape.iter().product::<usize>() * dtype.size_bytes());
        };
        check("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }   \n", ArrayDtype::F32, &[3, 4]);
        check("{\"shape\":(2,),\"descr\":\"|u1\",\"fortran_order\":False}", ArrayDtype::U8, &[2]);
        check("{'descr': '|b1', 'fortran_order': True, 'shape': ()}", ArrayDtype::Bool, &[]);
        check("{'descr': '>i8', 'fortran_order': False, 'shape': (3L, 2L)}", ArrayDtype::I64, &[3, 2]);
        check(
            "{'descr': '<f2', 'fortran_order': False, 'shape': (0, 99999999999)}",
            ArrayDtype::F16,
            &[0, 99_999_999_999],
        );
    }

    #[test]
    fn the_data_is_a_view_where_its_layout_allows() {
        let bytes = npy("{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2)}", &[1, 2, 3, 4, 5]);
        let array = parse_npy(&bytes).unwrap();
        assert_eq!(&array.data[..], [1, 2, 3, 4]);
        assert!(std::ptr::eq(array.data.as_ptr(), &raw const bytes[bytes.len() - 5]));
    }

    #[test]
    fn columns_become_rows_and_foreign_bytes_our_own() {
        let bytes =
            npy("{'descr': '>u2', 'fortran_order': True, 'shape': (2, 1, 3)}", &[0, 1, 0, 4, 0, 2, 0, 5, 0, 3, 0, 6]);
        let array = parse_npy(&bytes).unwrap();
        let expected: Vec<u8> = (1..=6_u16).flat_map(u16::to_ne_bytes).collect();
        assert_eq!(array.data, expected);
    }

    #[test]
    fn damaged_and_foreign_files_are_refused() {
        let check = |bytes: Bytes, part: &str| {
            let message = message(&bytes);
            assert!(message.contains(part), "{message:?} lacks {part:?}");
        };
        check(Bytes::new(), "no npy file");
        check(Bytes::from_static(b"\x93NUMPY\x01\x00\xff"), "no npy file");
        check(Bytes::from_static(b"\x93NUMPY\x09\x00\xff\xff"), "version 9");
        check(Bytes::from_static(b"\x93NUMPY\x01\x00\x05\x00{"), "ends early");
        check(Bytes::from_static(b"\x93NUMPY\x02\x00\xff\xff\xff\xff"), "over the limit");
        let header = |descr: &str, shape: &str| {
            npy(&format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}"), &[0; 8])
        };
        check(header("'|O'", "(1,)"), "'|O'");
        check(header("'<U3'", "(1,)"), "'<U3'");
        check(header("'<c8'", "(1,)"), "'<c8'");
        check(header("'|f4'", "(1,)"), "'|f4'");
        check(header("[('a', '<f4')]", "(1,)"), "records");
        check(header("'<f4'", "(3,)"), "does not fit into the 8 bytes");
        check(header("'<f4'", "(18446744073709551615, 2)"), "does not fit");
        check(header("'<f4'", "(99999999999999999999999,)"), "not understood");
        check(header("'<f4'", "(-1,)"), "not understood");
        check(header("'<f4'", "(1)"), "not understood");
        check(header("'<f4'", "[1]"), "not understood");
        check(header("'<f4'", &format!("({})", "1,".repeat(65))), "not understood");
        check(npy(&"(".repeat(9_999), &[]), "not understood at its byte 0");
        check(npy("{'descr': '<f4'}", &[]), "lacks");
        check(npy("{'descr': '<f4', 'fortran_order': False, 'shape': ()} x", &[0; 4]), "not understood");
    }

    proptest! {
        #[test]
        fn a_changed_file_never_panics(
            flips in prop::collection::vec((0_usize..90, any::<u8>()), 0..6), cut in 0_usize..100
        ) {
            let header = "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }      \n";
            let mut bytes = npy(header, &[7; 24]).to_vec();
            for (at, byte) in flips {
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            bytes.truncate(cut);
            if let Ok(array) = parse_npy(&bytes.into()) {
                prop_assert_eq!(array.data.len(), array.shape.iter().product::<usize>() * array.dtype.size_bytes());
            }
        }

        #[test]
        fn transposing_agrees_with_indexing(shape in prop::collection::vec(1_usize..5, 0..5)) {
            let count: usize = shape.iter().product();
            let data: Bytes = (0..count).flat_map(|number| (number as u16).to_le_bytes()).collect::<Vec<u8>>().into();
            let rows = transpose(&data, &shape, 2);
            for number in 0..count {
                // The indices of an element in row-major order, then its place in column-major order.
                let (mut rest, mut place, mut step) = (number, 0, count);
                let indices: Vec<usize> = shape.iter().map(|len| { step /= len; let index = rest / step; rest %= step; index }).collect();
                let mut column_step = 1;
                for (index, len) in indices.iter().zip(&shape) {
                    place += index * column_step;
                    column_step *= len;
                }
                prop_assert_eq!(&rows[2 * number..2 * number + 2], &(place as u16).to_le_bytes());
            }
        }
    }
}
