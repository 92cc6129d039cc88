//! The router of one run and what it is told: counters are read at each batch, differences become observations. Who
//! decodes is decided in [`route`](super::route), and done elsewhere.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::route::{Lane, Observation, RouteMode, Router};
use super::stats::{Counters, Totals};

/// A router that several threads ask.
#[derive(Debug)]
pub(crate) struct Lanes {
    state: Mutex<State>,
    mode: RouteMode,
}

#[derive(Debug)]
struct State {
    router: Router,
    last: Totals,
    at: Instant,
}

impl Lanes {
    /// `run` is the images that go to the engines in a row.
    pub(crate) fn new(mode: RouteMode, cpu_threads: usize, run: usize) -> Self {
        let router = Router::new(mode, cpu_threads).in_runs_of(run);
        Self { state: Mutex::new(State { router, last: Totals::default(), at: Instant::now() }), mode }
    }

    /// Who decides.
    pub(crate) fn mode(&self) -> RouteMode {
        self.mode
    }

    /// The lane of the next image, which `is_supported` by the engines: asked only where that matters. `is_cpu_full`
    /// says that the threads have no room for it at the moment.
    pub(crate) fn route(&self, is_cpu_full: bool, is_supported: impl FnOnce() -> bool) -> Lane {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.router.share() <= 0.0 || !is_supported() {
            return Lane::Cpu;
        }
        match state.router.route() {
            Lane::Cpu if is_cpu_full && state.router.overflows() => Lane::Engine,
            lane => lane,
        }
    }

    /// Sends everything to the threads from now on: there are no engines after all.
    pub(crate) fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).router = Router::new(RouteMode::Cpu, 1);
    }

    /// The share of all images that goes to the engines, 0 to 1.
    pub(crate) fn share(&self) -> f64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).router.share()
    }

    /// Takes what happened since the batch before; called with each batch that is delivered.
    pub(crate) fn observe(&self, counters: &Counters) {
        let (now, totals) = (Instant::now(), counters.totals());
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { last, at, .. } = *state;
        let time = |part: fn(&Totals) -> u64| Duration::from_nanos(part(&totals).saturating_sub(part(&last)));
        let count = |part: fn(&Totals) -> u64| part(&totals).saturating_sub(part(&last));
        state.router.observe(Observation {
            elapsed: now - at,
            waited: time(|totals| totals.waited_ns),
            cpu_images: count(|totals| totals.cpu_images),
            cpu_busy: time(|totals| totals.cpu_busy_ns),
            engine_images: count(|totals| totals.engine_images),
            engine_refused: count(|totals| totals.engine_refused),
            engine_busy: time(|totals| totals.engine_busy_ns),
            unsupported: count(|totals| totals.unsupported),
        });
        (state.last, state.at) = (totals, now);
    }
}
