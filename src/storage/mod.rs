//! How fast a storage delivers shards: methods of reading, patterns, the state of the cache, statistics, and how many
//! GPUs that feeds.
//!
//! It knows files and where samples lie in them, not what samples mean; and it prints nothing: the command line makes
//! tables and pages of its numbers.

pub mod histogram;
pub mod statistics;
pub mod layout;
mod pattern;
mod method;
mod feed;
mod source;
#[cfg_attr(
    all(feature = "io-uring", target_os = "linux"),
    expect(unsafe_code, reason = "gives the kernel memory to write to while requests are under way")
)]
mod uring;
#[expect(unsafe_code, reason = "asks the kernel which pages of a mapped file are resident")]
pub mod residency;
mod counters;
mod run;
mod measurement;
mod demand;
mod make;
mod recommendation;
mod profile;

pub use demand::{Demand, Fed, demands};
pub use histogram::Histogram;
pub use layout::{Extent, FILES_MAX, Layout};
pub use make::{MadeShards, Sizes, parse_bytes};
pub use measurement::{Doubt, Measurement};
pub use method::Method;
pub use pattern::{Pattern, SAMPLE_REQUEST_BYTES};
pub use profile::{ChosenIo, Io, Profile, choose_io};
pub use recommendation::{Recommendation, recommend};
pub use run::{Cache, Case, Limits, Run, THREADS_MAX, cost_of_a_request, drop_all_caches, resident, run, run_source};
pub use source::Source;
pub use uring::{DEPTH_MAX, open_store};
