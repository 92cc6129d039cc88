//! The `brimful` command: arguments in, a table or a JSON document out, an exit code at the end.
//!
//! It computes nothing that the library does not: it sees the public items of the crate alone, and it is the only
//! place that reads the environment, writes to a terminal or draws a progress bar.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | finished, but some inputs were bad |
//! | 2 | failed, or wrong usage |
//!
//! Data goes to standard output; progress, warnings and errors go to standard error.

mod args;
mod output;
mod failure;
mod progress;
mod folders;
mod system;
mod machine;
mod process;
mod shards;
mod stages;
mod recipe;
mod consumer;
mod demo_data;
mod ls;
mod index;
mod cat;
mod stats;
mod convert;
mod verify;
mod bench;
mod demo;
mod doctor;

use std::ffi::OsString;

use clap::Parser;

use args::{Arguments, Command};
use failure::Outcome;
use output::Output;

pub use demo_data::make_demo_shards;

/// Runs the command with `args`, the first of which is the program's name, and returns its exit code.
///
/// Help, results and errors are printed; nothing else is left for the caller than to exit.
pub fn run(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> u8 {
    let arguments = match Arguments::try_parse_from(args) {
        Ok(arguments) => arguments,
        Err(usage) => return failure::usage(&usage),
    };
    let mut output = Output::stdout();
    let outcome = dispatch(arguments.command, &mut output);
    failure::exit_code(outcome.and_then(|outcome| output.finish(outcome)))
}

fn dispatch(command: Command, output: &mut Output) -> anyhow::Result<Outcome> {
    match command {
        Command::Demo(args) => demo::run(&args, output),
        Command::Ls(args) => ls::run(&args, output),
        Command::Index(args) => index::run(&args, output),
        Command::Cat(args) => cat::run(&args, output),
        Command::Stats(args) => stats::run(&args, output),
        Command::Verify(args) => verify::run(&args, output),
        Command::Convert(args) => convert::run(&args, output),
        Command::Bench(command) => bench::run(&command, output),
        Command::Doctor(args) => doctor::run(&args, output),
    }
}
