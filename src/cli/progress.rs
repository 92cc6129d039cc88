//! Progress on standard error, only where work lasts: a bar on a terminal, a line now and then elsewhere. It measures
//! nothing that is reported.

use std::io::{self, IsTerminal};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::failure::note;
use super::output::{count_text, rate_text};

/// Work that is done sooner than this shows no bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// Redraws a second.
const REDRAWS: u8 = 8;

/// Time between two lines where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// A progress bar, or lines where standard error is no terminal.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    started: Instant,
    doing: &'static str,
    /// When the last line was due; `None` on a terminal.
    line: Option<Mutex<Instant>>,
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
        let started = Instant::now();
        let line = (!io::stderr().is_terminal()).then(|| Mutex::new(started));
        Self { bar, started, doing, line }
    }

    /// Says how much is done, of how much.
    pub(super) fn set(&self, done: usize, of: usize) {
        if let Some(line) = &self.line {
            let mut last = line.lock().unwrap_or_else(PoisonError::into_inner);
            if last.elapsed() >= LINE_INTERVAL {
                *last = Instant::now();
                note(&line_of(self.doing, done, of, self.started.elapsed()));
            }
            return;
        }
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

/// How far it is, at which rate, and the time that is left at that rate.
fn line_of(doing: &str, done: usize, of: usize, elapsed: Duration) -> String {
    let rate = done as f64 / elapsed.as_secs_f64().max(1e-9);
    let left = of.saturating_sub(done) as f64 / rate.max(1e-9);
    let (done, of) = (count_text(done as u64), count_text(of as u64));
    format!("{doing}: {done} of {of}, {}/s, {left:.0} s left", rate_text(rate))
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
    fn a_line_tells_rate_and_time_left() {
        let line = line_of("converting", 2_000, 10_000, Duration::from_secs(10));
        assert_eq!(line, "converting: 2,000 of 10,000, 200/s, 40 s left");
    }

    #[test]
    fn short_work_shows_nothing() {
        let progress = Progress::new("indexing", 10);
        progress.set(5, 10);
        assert!(progress.bar.is_hidden());
    }
}
