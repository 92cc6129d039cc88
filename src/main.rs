//! The `brimful` command: parses, runs, returns an exit code.

fn main() -> std::process::ExitCode {
    std::process::ExitCode::from(brimful::cli::run(std::env::args_os()))
}
