//! brimful keeps a training GPU full to the brim: tar shards in, ready-to-train batches out.
//!
//! The route of one sample, which is also the order of the modules:
//! a [`shard`] is an archive, its members make a [`sample`], [`decode`] turns a region of its image into
//! pixels, [`transform`] decides which region and resamples it, [`batch`] holds many of them in one host
//! buffer, [`device`] makes the model's input of it, and [`loader`] runs all of that on threads. Beside that route,
//! [`tune`] finds how many samples a batch should have, [`convert`] makes shards of other layouts and says what is wrong
//! with shards, [`storage`] measures how fast they are delivered, and [`report`] shows numbers to people.

pub mod error;
pub mod shard;
pub mod sample;
pub mod decode;
pub mod encode;
pub mod transform;
pub mod batch;
pub mod device;
pub mod tune;
pub mod loader;
pub mod convert;
pub mod storage;
pub mod report;
#[cfg(feature = "cli")]
pub mod cli;

pub use error::{Error, ErrorKind, Result};
