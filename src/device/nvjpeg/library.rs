//! Finds nvJPEG on this machine and loads it. It reads no environment: the system's loader is asked, then the folders
//! that the caller names, then the places where the CUDA toolkit is installed.

use std::ffi::{c_char, c_int};
use std::fmt;
use std::path::{Path, PathBuf};

use cudarc::driver::sys;

use super::abi::{Functions, PROPERTY_MAJOR, PROPERTY_MINOR, PROPERTY_PATCH, SUCCESS};
use crate::{Error, ErrorKind, Result};

/// The versions of nvJPEG that this library knows, newest first.
pub const LIBRARY_VERSIONS: [u32; 2] = [13, 12];

/// Where toolkits are installed.
const TOOLKITS: &str = "/usr/local";

/// Failed attempts that a message lists.
const ATTEMPTS_SHOWN: usize = 6;

/// nvJPEG, loaded; it stays loaded until the process ends.
#[derive(Clone)]
pub struct Library {
    pub(super) functions: Functions,
    path: PathBuf,
    version: (u32, u32, u32),
}

impl Library {
    /// Finds nvJPEG and loads it.
    ///
    /// Of each folder itself and `nvidia/*/lib` below it are looked at: Python's site-packages can be named as they
    /// are. A version newer than the driver's CUDA is not tried, since it could not start.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] naming what was tried, when none can be loaded.
    pub fn find(folders: &[PathBuf]) -> Result<Self> {
        let driver = driver_major();
        let usable: Vec<u32> =
            LIBRARY_VERSIONS.into_iter().filter(|&version| driver.is_none_or(|d| version <= d)).collect();
        let mut attempts = Vec::new();
        for &version in &usable {
            for path in candidates(folders, version) {
                match load(&path) {
                    Ok(library) => return Ok(library),
                    Err(reason) => attempts.push(format!("{}: {reason}", path.display())),
                }
            }
        }
        Err(not_found(&usable, driver, attempts))
    }

    /// The file that was loaded, as it was asked for.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its version, as it says itself.
    #[must_use]
    pub fn version(&self) -> (u32, u32, u32) {
        self.version
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library").field("path", &self.path).field("version", &self.version).finish_non_exhaustive()
    }
}

/// Files to try for one version, in order; those with a folder exist.
fn candidates(folders: &[PathBuf], version: u32) -> Vec<PathBuf> {
    let name = format!("libnvjpeg.so.{version}");
    let mut places = Vec::new();
    for folder in folders {
        places.push(folder.clone());
        places.extend(subfolders(&folder.join("nvidia"), "").into_iter().map(|package| package.join("lib")));
    }
    let mut toolkits = subfolders(Path::new(TOOLKITS), "cuda");
    // The newest last by name, but the plain name is the one that the administrator chose.
    toolkits.sort_by_key(|toolkit| (toolkit != &Path::new(TOOLKITS).join("cuda"), std::cmp::Reverse(toolkit.clone())));
    places.extend(toolkits.into_iter().map(|toolkit| toolkit.join("lib64")));
    let mut paths = vec![PathBuf::from(&name)];
    for path in places.into_iter().map(|place| place.join(&name)) {
        if path.exists() && !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

/// Folders in `parent` whose names begin with `prefix`, in order.
fn subfolders(parent: &Path, prefix: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(parent) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok())
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect();
    found.sort();
    found
}

fn load(path: &Path) -> Result<Library, String> {
    // SAFETY: loading runs the library's start-up code, which is NVIDIA's and what every user of nvJPEG runs.
    let library = unsafe { libloading::Library::new(path) }.map_err(|error| error.to_string())?;
    // SAFETY: the types are those of versions 12 and 13, which the file's name promises.
    let functions = unsafe { functions(&library) }.map_err(|error| error.to_string())?;
    // Its own CUDA runtime hooks into the driver and into the end of the process: it cannot be unloaded safely, and the
    // functions must stay.
    std::mem::forget(library);
    let part = |property: c_int| {
        let mut value: c_int = 0;
        // SAFETY: it writes one number to the place that it is given.
        let status = unsafe { (functions.get_property)(property, &raw mut value) };
        if status == SUCCESS { u32::try_from(value).unwrap_or(0) } else { 0 }
    };
    let version = (part(PROPERTY_MAJOR), part(PROPERTY_MINOR), part(PROPERTY_PATCH));
    if !LIBRARY_VERSIONS.contains(&version.0) {
        return Err(format!("it says that it is version {}.{}.{}", version.0, version.1, version.2));
    }
    Ok(Library { functions, path: path.to_owned(), version })
}

/// # Safety
/// `library` must be nvJPEG of a version in [`LIBRARY_VERSIONS`].
unsafe fn functions(library: &libloading::Library) -> Result<Functions, libloading::Error> {
    macro_rules! function {
        ($name:literal) => {
            // SAFETY: the type is that of the field, which by the caller's promise is the library's.
            *unsafe { library.get($name) }?
        };
    }
    Ok(Functions {
        get_property: function!(b"nvjpegGetProperty\0"),
        create: function!(b"nvjpegCreateEx\0"),
        destroy: function!(b"nvjpegDestroy\0"),
        // SAFETY: as above; an older library lacks it.
        hardware_info: unsafe { library.get(b"nvjpegGetHardwareDecoderInfo\0") }.ok().map(|function| *function),
        state_create: function!(b"nvjpegJpegStateCreate\0"),
        state_destroy: function!(b"nvjpegJpegStateDestroy\0"),
        batch_initialize: function!(b"nvjpegDecodeBatchedInitialize\0"),
        batch_decode: function!(b"nvjpegDecodeBatched\0"),
        stream_create: function!(b"nvjpegJpegStreamCreate\0"),
        stream_destroy: function!(b"nvjpegJpegStreamDestroy\0"),
        stream_parse_header: function!(b"nvjpegJpegStreamParseHeader\0"),
        stream_size: function!(b"nvjpegJpegStreamGetFrameDimensions\0"),
        params_create: function!(b"nvjpegDecodeParamsCreate\0"),
        params_destroy: function!(b"nvjpegDecodeParamsDestroy\0"),
        params_set_output: function!(b"nvjpegDecodeParamsSetOutputFormat\0"),
        batch_supported: function!(b"nvjpegDecodeBatchedSupportedEx\0"),
    })
}

/// The CUDA version that the driver knows, its first number.
fn driver_major() -> Option<u32> {
    // SAFETY: it tries to load the driver's library and has no other effect.
    if !unsafe { sys::is_culib_present() } {
        return None;
    }
    let mut version: c_int = 0;
    // SAFETY: it writes one number to the place that it is given, and may be called before anything else.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }.result().ok()?;
    u32::try_from(version / 1000).ok().filter(|&major| major > 0)
}

/// Whether the driver's video library, through which nvJPEG reaches the engines, can be loaded.
pub(super) fn has_video_library() -> bool {
    // SAFETY: the driver's own library; opening it runs its start-up code, as nvJPEG does itself.
    let Ok(library) = (unsafe { libloading::Library::new("libnvcuvid.so.1") }) else { return false };
    // SAFETY: the symbol is only looked for, never used.
    let found = unsafe { library.get::<*const c_char>(b"cuvidGetDecoderCaps\0") }.is_ok();
    std::mem::forget(library);
    found
}

fn not_found(usable: &[u32], driver: Option<u32>, attempts: Vec<String>) -> Error {
    let newest = usable.first().copied().unwrap_or(12);
    let mut message = match (usable.is_empty(), driver) {
        (true, Some(driver)) => {
            format!("nvJPEG needs a driver for CUDA 12 or newer, and this one is for CUDA {driver}")
        }
        _ => "nvJPEG, the library of the GPU's JPEG engines, cannot be loaded".to_owned(),
    };
    let hidden = attempts.len().saturating_sub(ATTEMPTS_SHOWN);
    for (n, attempt) in attempts.into_iter().take(ATTEMPTS_SHOWN).enumerate() {
        message.push_str(if n == 0 { "; tried " } else { ", " });
        message.push_str(&attempt);
    }
    if hidden > 0 {
        message.push_str(&format!(", and {hidden} more"));
    }
    let hint = format!("pip install brimful[cuda{newest}] brings it; decoder=\"cpu\" does without");
    Error::new(ErrorKind::Device, message).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_searched_as_site_packages_are_laid_out() {
        let folder = tempfile::tempdir().unwrap();
        let site = folder.path().join("site-packages");
        for (package, version) in [("nvidia/nvjpeg/lib", 12), ("nvidia/cu13/lib", 13), ("nvidia/cublas/lib", 99)] {
            std::fs::create_dir_all(site.join(package)).unwrap();
            std::fs::write(site.join(package).join(format!("libnvjpeg.so.{version}")), b"").unwrap();
        }
        let flat = folder.path().join("flat");
        std::fs::create_dir_all(&flat).unwrap();
        std::fs::write(flat.join("libnvjpeg.so.13"), b"").unwrap();
        let missing = folder.path().join("missing");
        let found = candidates(&[missing, site.clone(), flat.clone()], 13);
        assert_eq!(found[0], Path::new("libnvjpeg.so.13"), "the system's own comes first");
        assert_eq!(found[1..3], [site.join("nvidia/cu13/lib/libnvjpeg.so.13"), flat.join("libnvjpeg.so.13")]);
        let found = candidates(std::slice::from_ref(&site), 12);
        assert_eq!(found[1], site.join("nvidia/nvjpeg/lib/libnvjpeg.so.12"));
    }

    #[test]
    fn a_file_that_is_no_library_is_told_with_its_path() {
        let folder = tempfile::tempdir().unwrap();
        for version in LIBRARY_VERSIONS {
            std::fs::write(folder.path().join(format!("libnvjpeg.so.{version}")), b"no library").unwrap();
        }
        // A machine that has the real one loads that first.
        let Err(error) = Library::find(&[folder.path().to_owned()]) else { return };
        assert_eq!(error.kind(), ErrorKind::Device);
        let path = folder.path().join("libnvjpeg.so.12");
        assert!(error.message().contains(&path.display().to_string()), "{error}");
        assert!(error.hint().unwrap().contains("brimful[cuda1"), "{error:?}");
    }

    #[test]
    fn many_attempts_are_cut_short() {
        let attempts = (0..9).map(|n| format!("{n}: no")).collect();
        let error = not_found(&[12], Some(12), attempts);
        assert!(error.message().ends_with("5: no, and 3 more"), "{error}");
        assert!(not_found(&[], Some(11), Vec::new()).message().contains("CUDA 11"));
    }
}
