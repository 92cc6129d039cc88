//! Any bytes as an npy file: no panic, as much data as the shape says, and the same array from every layout of it.
#![no_main]

use brimful::sample::npy::parse_npy;
use brimful::sample::{Array, ArrayDtype};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(array) = parse_npy(&Bytes::copy_from_slice(bytes)) else { return };
    let len = array.shape.iter().product::<usize>() * array.dtype.size_bytes();
    assert_eq!(array.data.len(), len);
    assert!(len <= bytes.len());

    // Written plainly it is the same array.
    assert_eq!(parse_npy(&npy(&array, '<', false)).expect("a plain file"), array);

    // Columns of rows of columns are the columns again.
    let mut turned = array.clone();
    turned.shape.reverse();
    let turned = parse_npy(&npy(&turned, '<', true)).expect("a file by columns");
    let back = Array { shape: array.shape.clone(), ..turned };
    assert_eq!(parse_npy(&npy(&back, '<', true)).expect("a file by columns"), array);

    // Bytes swapped twice are the bytes again.
    let swapped = parse_npy(&npy(&array, '>', false)).expect("a file in the other byte order");
    assert_eq!(parse_npy(&npy(&swapped, '>', false)).expect("a file in the other byte order"), array);
});

/// A file of version 1 whose data are the array's bytes, whatever the header says of them.
fn npy(array: &Array, order: char, is_fortran: bool) -> Bytes {
    let kind = match array.dtype {
        ArrayDtype::Bool => 'b',
        ArrayDtype::U8 | ArrayDtype::U16 | ArrayDtype::U32 | ArrayDtype::U64 => 'u',
        ArrayDtype::I8 | ArrayDtype::I16 | ArrayDtype::I32 | ArrayDtype::I64 => 'i',
        ArrayDtype::F16 | ArrayDtype::F32 | ArrayDtype::F64 => 'f',
        ArrayDtype::BF16 => unreachable!("NumPy has no such type"),
    };
    let size = array.dtype.size_bytes();
    let is_fortran = if is_fortran { "True" } else { "False" };
    let shape: String = array.shape.iter().map(|len| format!("{len},")).collect();
    let header = format!("{{'descr':'{order}{kind}{size}','fortran_order':{is_fortran},'shape':({shape})}}");
    let len = u16::try_from(header.len()).expect("64 lengths are short").to_le_bytes();
    [b"\x93NUMPY\x01\0", &len[..], header.as_bytes(), &array.data].concat().into()
}
