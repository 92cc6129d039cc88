//! The controller together with the window that it is fed from: steps go in, decisions come out. Where several ranks
//! search together each makes its vector, and all decide by the least of them: alike, at the same step.

use serde::{Deserialize, Serialize};

use super::controller::{BatchSizeController, Decision, Options, Phase};
use super::probe::Reading;
use super::window::{Measurement, Step, Window};
use crate::{Error, ErrorKind, Result};

/// The layout of a saved search that this code writes and reads.
const STATE_VERSION: u32 = 1;

/// How many times as long as the others the windows of a settled search are: nothing is urgent then.
const SETTLED_LONGER: usize = 4;

/// Steps of a window at most.
const STEPS_MAX: usize = 10_000;

/// A search for the batch size of one training run.
#[derive(Debug, Clone)]
pub struct Search {
    controller: BatchSizeController,
    window: Window,
    warm_up: usize,
    steps: usize,
}

/// A search as it is saved.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    version: u32,
    controller: BatchSizeController,
}

impl Search {
    /// A search over `options` that measures `steps` steps of a size, 1 to 10,000, after `warm_up` others.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] for numbers out of range.
    pub fn new(options: Options, warm_up: usize, steps: usize) -> Result<Self> {
        if !(1..=STEPS_MAX).contains(&steps) || warm_up > STEPS_MAX {
            let message = format!("steps={steps} after warm_up={warm_up} are not up to {STEPS_MAX} each");
            return Err(Error::new(ErrorKind::InvalidOption, message).with_hint("12 steps after 3 are usual"));
        }
        let controller = BatchSizeController::new(options)?;
        let window = Window::new(controller.batch_size(), warm_up, steps);
        Ok(Self { controller, window, warm_up, steps })
    }

    /// The controller.
    #[must_use]
    pub fn controller(&self) -> &BatchSizeController {
        &self.controller
    }

    /// Steps of the present size that a decision needs, those that are not counted among them.
    #[must_use]
    pub fn steps_wanted(&self) -> usize {
        self.warm_up + self.steps_measured()
    }

    fn steps_measured(&self) -> usize {
        if self.controller.phase() == Phase::Settled { self.steps * SETTLED_LONGER } else { self.steps }
    }

    /// Takes a step.
    pub fn step(&mut self, step: Step) {
        self.window.push(step);
    }

    /// What the window holds, in the form that ranks compare: see [`Measurement::to_vector`]. Without any step it says so.
    #[must_use]
    pub fn vector(&self, reading: Option<&Reading>, memory: Option<(u64, u64)>) -> Vec<f64> {
        match self.window.measurement(reading, memory) {
            Some(made) => made.to_vector().to_vec(),
            None => vec![f64::MIN; Measurement::default().to_vector().len()],
        }
    }

    /// Decides by a vector, the least of those that all ranks made, and begins the next window.
    pub fn decide(&mut self, vector: &[f64]) -> Decision {
        // A vector that says nothing of this size leaves everything as it is, on all ranks alike.
        let made = Measurement::from_vector(vector).unwrap_or_default();
        let decision = self.controller.observe(&made);
        self.renew();
        decision
    }

    /// Takes note that a step of `size` rows ran out of memory.
    pub fn out_of_memory(&mut self, size: usize) -> Decision {
        let decision = self.controller.out_of_memory(size);
        self.renew();
        decision
    }

    /// Begins the window anew: what it holds was disturbed.
    pub fn renew(&mut self) {
        self.window = Window::new(self.controller.batch_size(), self.warm_up, self.steps_measured());
    }

    /// The search as a line of JSON; the window is not part of it.
    ///
    /// # Errors
    /// None that input could cause.
    pub fn state(&self) -> Result<String> {
        let state = State { version: STATE_VERSION, controller: self.controller.clone() };
        serde_json::to_string(&state)
            .map_err(|error| Error::new(ErrorKind::InvalidOption, "the search cannot be saved").with_source(error))
    }

    /// Goes on with a saved search.
    ///
    /// # Errors
    /// [`ErrorKind::StateMismatch`] when it is none, of another version, or over other sizes, target or headroom.
    pub fn load_state(&mut self, state: &str) -> Result<()> {
        let mismatch =
            |message: &str, hint: &str| Err(Error::new(ErrorKind::StateMismatch, message).with_hint(hint.to_owned()));
        let Ok(saved) = serde_json::from_str::<State>(state) else {
            return mismatch("this is no saved search for a batch size", "use what state_dict() gave");
        };
        if saved.version != STATE_VERSION {
            return mismatch("the search was saved by another version", "let it search anew: drop its state");
        }
        if saved.controller.options() != self.controller.options() {
            let hint = "use the same AutoBatch on the same number of ranks, or drop the state of the search";
            return mismatch("the saved search had other bounds, target, headroom or global batch", hint);
        }
        if !saved.controller.is_sound() {
            return mismatch("the saved search contradicts itself", "let it search anew: drop its state");
        }
        self.controller = saved.controller;
        self.renew();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::Sizes;

    fn search() -> Search {
        Search::new(Options::new(Sizes::multiples(8, 256, 8).unwrap()), 1, 4).unwrap()
    }

    /// Runs a window of the present size, 1 ms and 0.1 ms a row.
    fn run(search: &mut Search) -> Decision {
        let rows = search.controller().batch_size();
        for _ in 0..search.steps_wanted() {
            search.step(Step { rows, elapsed_s: 1e-3 + rows as f64 * 1e-4, waited_s: 0.0 });
        }
        let vector = search.vector(None, None);
        search.decide(&vector)
    }

    #[test]
    fn a_search_settles_and_goes_on_from_its_state() {
        let mut one = search();
        let mut other = search();
        for _ in 0..5 {
            run(&mut one);
        }
        other.load_state(&one.state().unwrap()).unwrap();
        for _ in 0..30 {
            assert_eq!(run(&mut one), run(&mut other));
        }
        assert_eq!(one.controller().phase(), Phase::Settled);
        assert!(one.steps_wanted() > search().steps_wanted());
    }

    #[test]
    fn a_rank_without_steps_holds_all_of_them_back() {
        let mut search = search();
        let rows = search.controller().batch_size();
        (0..5).for_each(|_| search.step(Step { rows, elapsed_s: 0.1, waited_s: 0.0 }));
        let full = search.vector(None, None);
        let empty = self::search().vector(None, None);
        let least: Vec<f64> = full.iter().zip(&empty).map(|(one, other)| one.min(*other)).collect();
        assert!(search.decide(&least).change.is_none());
    }

    #[test]
    fn states_of_something_else_are_refused() {
        let mut one = search();
        for (state, word) in [
            ("{}".to_owned(), "no saved search"),
            (one.state().unwrap().replace("\"version\":1", "\"version\":9"), "another version"),
            (one.state().unwrap().replace("\"target\":0.95", "\"target\":0.9"), "other bounds"),
            (one.state().unwrap().replace("\"size\":8", "\"size\":7"), "contradicts"),
        ] {
            let error = one.load_state(&state).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::StateMismatch);
            assert!(error.to_string().contains(word), "{error}");
        }
    }
}
