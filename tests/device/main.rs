//! The device path, on a real GPU. Where there is none, each test says so on stderr and passes: what can be tested
//! without one is tested beside the code.
#![expect(unsafe_code, reason = "launches, and copies whose order the tests keep by waiting")]
#![expect(clippy::print_stderr, reason = "why a test was skipped, and how far pixels differ")]

mod gpu;
// Bytes into numbers, bit for bit what the host makes of them.
mod normalize;
// Crops, resizes and mirrors, compared with the CPU's resampler.
mod crop_resize;
// Pictures that were written, and those that were not.
mod probe;
// The JPEG engines, compared with the decoders of the CPU.
mod nvjpeg;
