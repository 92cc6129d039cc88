//! The GPU's JPEG engines through NVIDIA's nvJPEG, found at run time: compressed images become final rows in device
//! memory, many at once. It chooses no image, falls back to nothing and never waits unless asked to; what the engines
//! do not take, or fail at, comes back with the reason.
//!
//! What was learnt about the library, and holds the design together:
//!
//! - One return code speaks for a whole batch, and engines have been seen to skip an image and report success. So
//!   every image's output is filled with a pattern first, and looked at afterwards.
//! - The engines write *when the decode is called*, whatever the stream has still to do before. So everything that
//!   touches the output must be over on the host's side by then: a state decodes only when its last work has been
//!   collected, and its pattern has been waited for.
//! - What follows on the stream does wait for the engines.
//! - A batch's size is set by an initialisation that waits for the state's last batch. By the rule above there is none,
//!   so a short batch initialises anew instead of decoding images twice.
//! - The engines take single-scan baseline files only. Headers say which those are, the library is asked as well.

mod abi;
mod library;
mod handle;
mod refusal;
mod rules;
mod rows;
mod slot;
mod engine;

pub use engine::{EngineOptions, EngineReport, EngineStats, JpegEngine};
pub use library::{LIBRARY_VERSIONS, Library};
pub use refusal::Refusal;
pub use rows::EngineRow;
pub use rules::EngineRules;
pub use slot::{EncodedImage, Outcome};
