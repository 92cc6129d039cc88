//! The command line: parses arguments, composes the public API, prints; it holds no engine of its own.

/// Runs the command line and returns the exit code: 0 done, 1 some inputs were bad, 2 failed or wrong usage.
pub fn run(args: impl IntoIterator<Item = std::ffi::OsString>) -> u8 {
    if args.into_iter().count() > 1 { 2 } else { 0 }
}
