//! A progress bar on standard error that shows itself only where work lasts. It measures nothing that is reported.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work that is done sooner than this shows no bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// Redraws a second.
const REDRAWS: u8 = 8;

/// A progress bar; where standard error is no terminal nothing is drawn.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    started: Instant,
}

impl Progress {
    /// A bar for `len` of something, with what is being done in front.
    pub(super) fn new(doing: &'static str, len: usize) -> Self {
        let bar = ProgressBar::with_draw_target(Some(len as u64), ProgressDrawTarget::hidden());
        // The template is a constant, and its test parses it.
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(doing);
        Self { bar, started: Instant::now() }
    }

    /// Says how much is done, of how much.
    pub(super) fn set(&self, done: usize, of: usize) {
        if self.bar.is_hidden() && self.started.elapsed() >= PATIENCE {
            self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(REDRAWS));
        }
        self.bar.set_length(of as u64);
        self.bar.set_position(done as u64);
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

const TEMPLATE: &str = "{msg} [{bar:40}] {human_pos}/{human_len} {per_sec:.0} eta {eta}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_can_be_read() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
    }

    #[test]
    fn short_work_shows_nothing() {
        let progress = Progress::new("indexing", 10);
        progress.set(5, 10);
        assert!(progress.bar.is_hidden());
    }
}
