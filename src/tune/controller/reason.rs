//! What the controller says: what it does, what holds the run back, and why a size changes, in words.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What the controller is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Trying ever larger sizes.
    Growing,
    /// Looking for the knee between sizes that were run.
    Refining,
    /// Measuring the chosen size once more.
    Confirming,
    /// Staying, and watching.
    Settled,
    /// Not even the smallest size fits in memory.
    Failed,
}

/// What holds the run back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Not known yet.
    Unknown,
    /// The device: it is busy.
    Compute,
    /// The data path: steps wait for batches, and a larger batch would not help.
    Data,
    /// The program that launches kernels: steps take the same time at any size, and the device waits.
    Launch,
    /// Device memory.
    Memory,
    /// The largest size allowed: a larger one would gain.
    Bounds,
}

/// Why a size changes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Reason {
    /// The last doubling gained this much, if there was one.
    Growing {
        /// 0.1 is 10 % more samples a second.
        gain: Option<f64>,
    },
    /// A doubling gains nothing more.
    Plateau {
        /// What it gained.
        gain: f64,
    },
    /// Steps wait for batches.
    DataBound {
        /// Share of the time.
        wait_share: f64,
    },
    /// A larger batch would not fit in memory with the headroom asked for.
    MemoryFull,
    /// This size used more memory than the headroom leaves.
    MemoryLimit {
        /// The size.
        size: usize,
    },
    /// This size ran out of memory.
    OutOfMemory {
        /// The size.
        size: usize,
    },
    /// The largest size allowed was run.
    LargestSize,
    /// The smallest size that is fast enough lies here.
    Knee {
        /// Share of the best rate that is enough.
        target: f64,
    },
    /// Something had slowed this size down when it was measured.
    Disturbed {
        /// The size.
        size: usize,
    },
    /// The rate of this size is too uncertain to choose by.
    Uncertain {
        /// The size.
        size: usize,
    },
    /// The device became faster or slower while sizes were compared.
    Drift {
        /// By how much.
        drift: f64,
    },
    /// The rate changed for good after the size was found.
    LastingChange {
        /// By how much.
        change: f64,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Growing { gain: None } => write!(f, "growing: the first size was measured"),
            Self::Growing { gain: Some(gain) } => write!(f, "growing: the last doubling gained {}", percent(*gain)),
            Self::Plateau { gain } => write!(f, "the plateau is reached: the last doubling gained {}", percent(*gain)),
            Self::DataBound { wait_share } => {
                write!(f, "steps wait for data {} of the time: a larger batch would not help", percent(*wait_share))
            }
            Self::MemoryFull => f.write_str("a larger batch would not leave the headroom free"),
            Self::MemoryLimit { size } => write!(f, "batches of {size} use more memory than the headroom leaves"),
            Self::OutOfMemory { size } => write!(f, "a batch of {size} ran out of memory"),
            Self::LargestSize => f.write_str("the largest size allowed was run"),
            Self::Knee { target } => {
                write!(f, "looking for the smallest size with {} of the best rate", percent(*target))
            }
            Self::Disturbed { size } => write!(f, "measuring batches of {size} again: something had slowed them down"),
            Self::Uncertain { size } => write!(f, "measuring batches of {size} again, to be certain of their rate"),
            Self::Drift { drift } => write!(f, "the device changed by {} while sizes were compared", percent(*drift)),
            Self::LastingChange { change } => write!(f, "the rate has changed by {} for good", percent(*change)),
        }
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// One change of the size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The size before.
    pub from: usize,
    /// The size from now on.
    pub to: usize,
    /// Why.
    pub reason: Reason,
}

/// What the controller wants after a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The size from now on.
    pub batch_size: usize,
    /// What it is doing now.
    pub phase: Phase,
    /// What holds the run back, as far as it is known.
    pub limit: Limit,
    /// The change, if there is one.
    pub change: Option<Change>,
}
