//! The built `brimful` command from the outside: what it prints, where, and with which exit code.
//!
//! The library's own rules have their tests elsewhere; here only the command's promises are checked.

mod program;
mod archive;
mod ls;
mod index;
mod stats;
mod cat;
mod convert;
mod convert_memory;
mod doctor;
mod bench_decode;
mod bench_loader;
mod bench_storage;
mod demo;
mod usage;
mod verify;
