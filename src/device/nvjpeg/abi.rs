//! The part of nvJPEG's C interface that is used here: numbers, one structure, and the addresses of its functions. It
//! calls nothing.

use std::ffi::{c_int, c_uchar, c_uint, c_void};

use cudarc::driver::sys::CUstream;

/// What a function returns.
pub(super) type Status = c_int;

pub(super) const SUCCESS: Status = 0;
pub(super) const BAD_JPEG: Status = 3;
pub(super) const JPEG_NOT_SUPPORTED: Status = 4;
pub(super) const ARCH_MISMATCH: Status = 7;

/// The decoder that uses the JPEG engines alone.
pub(super) const BACKEND_HARDWARE: c_int = 3;

/// Red, green and blue of a pixel side by side, in the first channel of an [`Image`].
pub(super) const OUTPUT_RGB_INTERLEAVED: c_int = 5;

pub(super) const FLAGS_NONE: c_uint = 0;

/// Chroma between samples is interpolated, as libjpeg's is, rather than repeated.
pub(super) const FLAG_INTERPOLATE_CHROMA: c_uint = 1 << 5;

/// Parts of the version that `get_property` tells.
pub(super) const PROPERTY_MAJOR: c_int = 0;
pub(super) const PROPERTY_MINOR: c_int = 1;
pub(super) const PROPERTY_PATCH: c_int = 2;

/// Where an image is written: address and bytes a row of each plane.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Image {
    pub(super) channel: [*mut c_uchar; 4],
    pub(super) pitch: [usize; 4],
}

/// Objects of the library, by address.
pub(super) type RawHandle = *mut c_void;
pub(super) type RawState = *mut c_void;
pub(super) type RawStream = *mut c_void;
pub(super) type RawParams = *mut c_void;

/// The library's functions.
///
/// Invariant: each has the type that the library of versions 12 and 13 gives it, and stays loaded for ever.
#[derive(Debug, Clone, Copy)]
pub(super) struct Functions {
    pub(super) get_property: unsafe extern "C" fn(c_int, *mut c_int) -> Status,
    pub(super) create: unsafe extern "C" fn(c_int, *mut c_void, *mut c_void, c_uint, *mut RawHandle) -> Status,
    pub(super) destroy: unsafe extern "C" fn(RawHandle) -> Status,
    /// Absent before 12.1.
    pub(super) hardware_info: Option<unsafe extern "C" fn(RawHandle, *mut c_uint, *mut c_uint) -> Status>,
    pub(super) state_create: unsafe extern "C" fn(RawHandle, *mut RawState) -> Status,
    pub(super) state_destroy: unsafe extern "C" fn(RawState) -> Status,
    pub(super) batch_initialize: unsafe extern "C" fn(RawHandle, RawState, c_int, c_int, c_int) -> Status,
    pub(super) batch_decode:
        unsafe extern "C" fn(RawHandle, RawState, *const *const c_uchar, *const usize, *mut Image, CUstream) -> Status,
    pub(super) stream_create: unsafe extern "C" fn(RawHandle, *mut RawStream) -> Status,
    pub(super) stream_destroy: unsafe extern "C" fn(RawStream) -> Status,
    pub(super) stream_parse_header: unsafe extern "C" fn(RawHandle, *const c_uchar, usize, RawStream) -> Status,
    pub(super) stream_size: unsafe extern "C" fn(RawStream, *mut c_uint, *mut c_uint) -> Status,
    pub(super) params_create: unsafe extern "C" fn(RawHandle, *mut RawParams) -> Status,
    pub(super) params_destroy: unsafe extern "C" fn(RawParams) -> Status,
    pub(super) params_set_output: unsafe extern "C" fn(RawParams, c_int) -> Status,
    /// Writes 0 for an image that a batch may hold.
    pub(super) batch_supported: unsafe extern "C" fn(RawHandle, RawStream, RawParams, *mut c_int) -> Status,
}

/// The name of a status, for messages.
pub(super) fn status_name(status: Status) -> String {
    let name = match status {
        0 => "success",
        1 => "not initialized",
        2 => "invalid parameter",
        BAD_JPEG => "bad JPEG",
        JPEG_NOT_SUPPORTED => "JPEG not supported",
        5 => "allocator failure",
        6 => "execution failed",
        ARCH_MISMATCH => "architecture mismatch",
        8 => "internal error",
        9 => "implementation not supported",
        10 => "incomplete bitstream",
        _ => return format!("nvJPEG status {status}"),
    };
    format!("nvJPEG status {status}, {name}")
}
