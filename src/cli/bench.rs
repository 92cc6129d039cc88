//! `brimful bench`: how fast the stages of a loader are on this machine. It measures, and compares
//! what was measured; comparing with other programs is not its business.

mod spread;
mod photos;
mod crops;
mod decode;
mod ceiling;
mod loader;
mod storage;
mod compare;

use super::args::BenchCommand;
use super::failure::Outcome;
use super::output::Output;

pub(super) fn run(command: &BenchCommand, output: &mut Output) -> anyhow::Result<Outcome> {
    match command {
        BenchCommand::Decode(args) => decode::run(args, output),
        BenchCommand::Loader(args) => loader::run(args, output),
        BenchCommand::Storage(args) => storage::run(args, output),
        BenchCommand::Compare(args) => compare::run(args, output),
    }
}
