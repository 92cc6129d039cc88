//! Conversions through the public API: what is in the shards, that runs repeat byte by byte, and what becomes of bad input.
//!
//! Pictures are arbitrary bytes wherever nothing decodes them.

mod made;
mod archive;
mod folder;
mod order;
mod names;
mod resume;
mod verify;
mod reshard;
mod zips;
mod lists;
mod parquet_files;
mod pictures;
