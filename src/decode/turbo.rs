//! JPEG through libjpeg-turbo: bit-exact with Pillow, and able to decode a region alone.
//!
//! It trusts nothing that the library says about a file twice: sizes come from one header call and are checked
//! against the destination before pixels are written.

use std::ffi::CStr;
use std::ptr::NonNull;

use turbojpeg_sys as sys;

use super::jpeg::Header;
use super::pixels::room;
use super::{DecodeOptions, JpegProcess, Region, Truncated};
use crate::{Error, ErrorKind, Result};

/// How the library lays out a pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    Grey,
    Rgb,
    /// Ink as the file stores it; Adobe's files store it inverted.
    Cmyk,
}

impl Layout {
    pub(super) fn channels(self) -> u8 {
        match self {
            Self::Grey => 1,
            Self::Rgb => 3,
            Self::Cmyk => 4,
        }
    }

    fn format(self) -> libc::c_int {
        match self {
            Self::Grey => sys::TJPF_TJPF_GRAY,
            Self::Rgb => sys::TJPF_TJPF_RGB,
            Self::Cmyk => sys::TJPF_TJPF_CMYK,
        }
    }
}

/// One decompressor, made anew after each failure: handles keep failing after a fatal error.
#[derive(Debug, Default)]
pub(super) struct Turbo {
    handle: Option<Handle>,
    /// A private copy of the few files that cannot be cropped: see [`Handle::pixels`].
    copy: Vec<u8>,
}

/// A TurboJPEG instance.
///
/// Invariant: the pointer came from `tj3Init`, is destroyed by nobody but `Drop`, and is used through `&mut self`
/// only, so never by two threads at once.
#[derive(Debug)]
struct Handle(NonNull<libc::c_void>);

// SAFETY: an instance has no ties to the thread that made it, and `Handle`'s invariant rules out shared use.
unsafe impl Send for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: by the invariant the pointer is a live instance, and nothing can use it after this.
        unsafe { sys::tj3Destroy(self.0.as_ptr()) }
    }
}

impl Turbo {
    /// Decodes `region`, or more, of the JPEG with this `header` into `pixels`; returns what of the image they are.
    ///
    /// `pixels` is grown if needed and never shrunk; the result lies tightly packed at its start.
    pub(super) fn decode(
        &mut self,
        bytes: &[u8],
        header: &Header,
        region: Region,
        layout: Layout,
        options: &DecodeOptions,
        pixels: &mut Vec<u8>,
    ) -> Result<Region> {
        // Taken out, and put back only after success: a failure drops it.
        let mut handle = match self.handle.take() {
            Some(handle) => handle,
            None => Handle::new()?,
        };
        let allow_cut = options.truncated == Truncated::Allow && !header.jpeg.complete;
        handle.options(options, allow_cut)?;
        handle.header(bytes, header, allow_cut)?;
        let full = Region::full(header.width, header.height);
        let mut window = if header.unfinished { full } else { window(region, header) };
        let mut bytes = bytes;
        if !handle.crop(window)? {
            window = full;
            self.copy.clear();
            self.copy.extend_from_slice(bytes);
            bytes = &self.copy;
            handle.header(bytes, header, allow_cut)?;
        }
        let row = window.width as usize * usize::from(layout.channels());
        let size = row.checked_mul(window.height as usize).ok_or_else(|| too_large(window))?;
        handle.pixels(bytes, header, layout, row, room(pixels, size), allow_cut)?;
        self.handle = Some(handle);
        Ok(window)
    }
}

/// The region widened to what decodes exactly: columns begin at an iMCU, with one more iMCU on each side, because
/// the smooth upsampling of colours looks at neighbours that a crop would cut off. Rows need no margin: the library
/// decodes the neighbours above and below itself.
fn window(region: Region, header: &Header) -> Region {
    let mcu = 8 * u32::from(header.jpeg.sampling_max().0);
    let x = (region.x / mcu).saturating_sub(1) * mcu;
    let right = (region.x + region.width).div_ceil(mcu).saturating_add(1).saturating_mul(mcu).min(header.width);
    Region { x, width: right - x, ..region }
}

impl Handle {
    fn new() -> Result<Self> {
        // SAFETY: no preconditions; a null result is handled.
        let handle = unsafe { sys::tj3Init(sys::TJINIT_TJINIT_DECOMPRESS as libc::c_int) };
        NonNull::new(handle)
            .map(Self)
            .ok_or_else(|| Error::new(ErrorKind::Decode, "libjpeg-turbo could not make a decoder: out of memory"))
    }

    fn options(&mut self, options: &DecodeOptions, allow_cut: bool) -> Result<()> {
        let clamp = |value: u64| libc::c_int::try_from(value).unwrap_or(libc::c_int::MAX);
        self.set(sys::TJPARAM_TJPARAM_MAXPIXELS, clamp(options.pixels_max))?;
        self.set(sys::TJPARAM_TJPARAM_SCANLIMIT, clamp(u64::from(options.scans_max)))?;
        // Nobody asks for colour profiles here, and a damaged one would count as damage.
        self.set(sys::TJPARAM_TJPARAM_SAVEMARKERS, 0)?;
        // Damage ends the work at once, except where what is left of a cut file is wanted.
        self.set(sys::TJPARAM_TJPARAM_STOPONWARNING, libc::c_int::from(!allow_cut))
    }

    fn set(&mut self, parameter: sys::TJPARAM, value: libc::c_int) -> Result<()> {
        // SAFETY: the handle is live by the type's invariant; unknown parameters are refused with a status.
        match unsafe { sys::tj3Set(self.0.as_ptr(), parameter as libc::c_int, value) } {
            0 => Ok(()),
            _ => Err(self.error(ErrorKind::Decode)),
        }
    }

    fn get(&mut self, parameter: sys::TJPARAM) -> libc::c_int {
        // SAFETY: the handle is live by the type's invariant; unknown parameters return -1.
        unsafe { sys::tj3Get(self.0.as_ptr(), parameter as libc::c_int) }
    }

    /// Reads the header and makes sure that it says the same as our own walk: the destination is sized by that.
    fn header(&mut self, bytes: &[u8], header: &Header, allow_cut: bool) -> Result<()> {
        // SAFETY: the handle is live by the type's invariant; pointer and length are one slice, which the call only reads.
        let status = unsafe { sys::tj3DecompressHeader(self.0.as_ptr(), bytes.as_ptr(), bytes.len() as sys::size_t) };
        self.check(status, header, allow_cut)?;
        let size = (self.get(sys::TJPARAM_TJPARAM_JPEGWIDTH), self.get(sys::TJPARAM_TJPARAM_JPEGHEIGHT));
        if (i64::from(size.0), i64::from(size.1)) != (i64::from(header.width), i64::from(header.height)) {
            return Err(Error::new(
                ErrorKind::Decode,
                format!("the JPEG changed while it was decoded: {}x{} became {size:?}", header.width, header.height),
            ));
        }
        Ok(())
    }

    /// Asks for the window; false where the library can only decode in full (unusual sampling).
    fn crop(&mut self, window: Region) -> Result<bool> {
        let int = |value: u32| libc::c_int::try_from(value).map_err(|_| too_large(window));
        let crop =
            sys::tjregion { x: int(window.x)?, y: int(window.y)?, w: int(window.width)?, h: int(window.height)? };
        // SAFETY: the handle is live by the type's invariant and has read a header; bad regions are refused by status.
        if unsafe { sys::tj3SetCroppingRegion(self.0.as_ptr(), crop) } == 0 {
            return Ok(true);
        }
        // SAFETY: as above; the empty region means no cropping.
        match unsafe { sys::tj3SetCroppingRegion(self.0.as_ptr(), sys::tjregion { x: 0, y: 0, w: 0, h: 0 }) } {
            0 => Ok(false),
            _ => Err(self.error(ErrorKind::Decode)),
        }
    }

    /// Decodes into `pixels`, rows of `row` bytes.
    fn pixels(
        &mut self,
        bytes: &[u8],
        header: &Header,
        layout: Layout,
        row: usize,
        pixels: &mut [u8],
        allow_cut: bool,
    ) -> Result<()> {
        let pitch = libc::c_int::try_from(row)
            .map_err(|_| Error::new(ErrorKind::Limit, format!("rows of {row} bytes are too long to decode")))?;
        // SAFETY: the handle is live by the type's invariant; `bytes` is only read. The library parses the header again
        // here, so the size must not depend on it. With a cropping region, which `crop` has set, it writes that region's
        // rows and columns and refuses, by status, a file that no longer has them; `pixels` holds exactly these, `pitch`
        // bytes apart. Without one it writes as many rows as the header says: then `bytes` is our private copy, which
        // cannot have changed since `header` compared its size with the one that `pixels` was made for.
        let status = unsafe {
            sys::tj3Decompress8(
                self.0.as_ptr(),
                bytes.as_ptr(),
                bytes.len() as sys::size_t,
                pixels.as_mut_ptr(),
                pitch,
                layout.format(),
            )
        };
        self.check(status, header, allow_cut)
    }

    /// Turns a status into a result: warnings mean damaged data, with the few harmless ones let through.
    fn check(&mut self, status: libc::c_int, header: &Header, allow_cut: bool) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the handle is live by the type's invariant.
        let warning = unsafe { sys::tj3GetErrorCode(self.0.as_ptr()) } == sys::TJERR_TJERR_WARNING as libc::c_int;
        let message = self.message();
        let cut = message.contains("Premature end of JPEG file");
        if warning && ((cut && allow_cut) || harmless(&message, header)) {
            return Ok(());
        }
        let kind = match () {
            () if cut => ErrorKind::Truncated,
            () if message.contains("too large") || message.contains("scans") => ErrorKind::Limit,
            () => ErrorKind::Decode,
        };
        Err(failed(kind, &message))
    }

    fn error(&mut self, kind: ErrorKind) -> Error {
        failed(kind, &self.message())
    }

    fn message(&mut self) -> String {
        // SAFETY: the handle is live by the type's invariant; the call returns a string inside it, ended by a zero,
        // which stays as it is until the next call and is copied here.
        let message = unsafe { CStr::from_ptr(sys::tj3GetErrorStr(self.0.as_ptr())) };
        message.to_string_lossy().into_owned()
    }
}

/// Whether a warning changes no pixel: a few bytes left over after the last block of a sequential picture.
///
/// It comes after all rows have been written, so stopping there loses nothing, and nothing worse can follow. Refusing
/// it would make the outcome depend on the region, because only a decode of the last row meets it.
fn harmless(message: &str, header: &Header) -> bool {
    let sequential = matches!(header.jpeg.process, JpegProcess::Baseline | JpegProcess::Extended);
    sequential
        && header.jpeg.scans == 1
        && header.jpeg.interleaved
        && message.ends_with("extraneous bytes before marker 0xd9")
}

fn failed(kind: ErrorKind, message: &str) -> Error {
    Error::new(kind, format!("libjpeg-turbo refuses the JPEG: {message}"))
}

fn too_large(window: Region) -> Error {
    Error::new(ErrorKind::Limit, format!("the region {window} is too large to decode"))
}
