//! Named ranges for NVIDIA's profilers, so that a timeline shows what each thread of a loader does. The library that
//! takes them is found at run time; without it, and without a profiler, a range costs nothing that shows.

use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use libloading::Library;

use crate::{Error, ErrorKind, Result};

/// Names of the library, of CUDA 13 and of those before.
const NAMES: [&str; 3] = ["libnvtx3interop.so.1", "libnvtx3interop.so", "libnvToolsExt.so.1"];

type Push = unsafe extern "C" fn(*const c_char) -> c_int;
type Pop = unsafe extern "C" fn() -> c_int;

/// The two functions that open and close a range of the calling thread.
///
/// Invariant: they belong to `_library`, which is never unloaded while this lives.
#[derive(Clone)]
pub struct Ranges {
    push: Push,
    pop: Pop,
    _library: Arc<Library>,
}

impl Ranges {
    /// Finds the library, in `folders` first.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] naming what was looked for.
    pub fn find(folders: &[PathBuf]) -> Result<Self> {
        let paths = folders.iter().flat_map(|folder| NAMES.map(|name| folder.join(name)));
        for path in paths.chain(NAMES.map(PathBuf::from)) {
            // SAFETY: loading runs the library's start-up code, which is NVIDIA's and made to be loaded by any program;
            // a file of another kind is refused by the loader.
            let Ok(library) = (unsafe { Library::new(&path) }) else { continue };
            // SAFETY: these are the library's documented functions with these types, the same in every version.
            let found = unsafe {
                let push = library.get::<Push>(b"nvtxRangePushA\0").map(|symbol| *symbol);
                let pop = library.get::<Pop>(b"nvtxRangePop\0").map(|symbol| *symbol);
                push.and_then(|push| Ok((push, pop?)))
            };
            if let Ok((push, pop)) = found {
                return Ok(Self { push, pop, _library: Arc::new(library) });
            }
        }
        let error = Error::new(ErrorKind::Device, format!("none of {} can be loaded", NAMES.join(", ")));
        Err(error.with_hint("pip install nvidia-nvtx, or leave nvtx out"))
    }

    /// Opens a range of the calling thread, until it is dropped there. Ranges of a thread nest.
    #[must_use]
    pub fn open(&self, name: &'static CStr) -> Range<'_> {
        self.begin(name);
        Range { ranges: self, _not_send: std::marker::PhantomData }
    }

    /// Opens a range of the calling thread, to be closed by [`end`](Self::end) there.
    pub fn begin(&self, name: &'static CStr) {
        // SAFETY: the name ends with a zero byte and lives for ever; the function may be called from any thread.
        unsafe { (self.push)(name.as_ptr()) };
    }

    /// Closes the calling thread's innermost range; nothing happens where none is open.
    pub fn end(&self) {
        // SAFETY: the function takes nothing and answers a call without an open range with a negative number.
        unsafe { (self.pop)() };
    }
}

impl fmt::Debug for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ranges").finish_non_exhaustive()
    }
}

/// An open range; it belongs to the thread that opened it.
#[derive(Debug)]
pub struct Range<'a> {
    ranges: &'a Ranges,
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Drop for Range<'_> {
    fn drop(&mut self) {
        self.ranges.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_named() {
        // Where it is installed after all, ranges open and close.
        match Ranges::find(&["/no/such/folder".into()]) {
            Ok(ranges) => drop(ranges.open(c"test")),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Device);
                assert!(error.message().contains("libnvtx3interop.so.1"), "{error}");
            }
        }
    }
}
