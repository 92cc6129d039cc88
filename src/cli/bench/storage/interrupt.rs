//! Ctrl-C, or a terminal that goes away, while something is measured: the first one ends the measuring in order, so that
//! what was found is told and what was made is removed; the second one ends the process.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::cli::system::System;

/// The exit code of a process that Ctrl-C ended.
const EXIT_INTERRUPTED: i32 = 130;

/// Watches for Ctrl-C while it lives.
#[derive(Debug)]
pub(super) struct Interrupt {
    flag: Arc<AtomicBool>,
    actions: Vec<SigId>,
}

impl Interrupt {
    pub(super) fn watch() -> anyhow::Result<Self> {
        let mut watching = Self { flag: Arc::default(), actions: Vec::new() };
        let hang_up = (!ignores(SIGHUP)).then_some(SIGHUP);
        for signal in [SIGINT, SIGTERM].into_iter().chain(hang_up) {
            // In this order: the second signal finds the flag that the first one sets.
            let ends =
                signal_hook::flag::register_conditional_shutdown(signal, EXIT_INTERRUPTED, Arc::clone(&watching.flag));
            watching.actions.push(ends.context("cannot watch for Ctrl-C")?);
            let sets = signal_hook::flag::register(signal, Arc::clone(&watching.flag));
            watching.actions.push(sets.context("cannot watch for Ctrl-C")?);
        }
        Ok(watching)
    }

    /// Set once Ctrl-C was pressed.
    pub(super) fn flag(&self) -> &AtomicBool {
        &self.flag
    }
}

/// Whether whoever started this process chose that the signal does nothing, as `nohup` does.
fn ignores(signal: c_int) -> bool {
    let mask = System::here().value("/proc/self/status", "SigIgn");
    let mask = mask.and_then(|mask| u64::from_str_radix(&mask, 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        for action in self.actions.drain(..) {
            signal_hook::low_level::unregister(action);
        }
    }
}
