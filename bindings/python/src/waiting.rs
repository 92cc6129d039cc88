//! Long work of the library under Python's eyes: signals are answered while it runs, progress is told to a callable. It
//! starts no work of its own.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// How long a wait goes on before signals are looked at: a Ctrl-C is answered within this time.
pub(crate) const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// Runs `work` on a thread of its own while this one looks for signals: a Ctrl-C raises at once, and the work ends
/// unheard.
pub(crate) fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let (sender, receiver) = channel();
    // Only for the borrow: a channel's receiver cannot be shared with the closure that waits without the interpreter.
    let receiver = Mutex::new(receiver);
    std::thread::Builder::new().name("brimful-work".to_owned()).spawn(move || {
        let _ = sender.send(work());
    })?;
    loop {
        match py.detach(|| receiver.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(SIGNAL_INTERVAL)) {
            Ok(done) => return Ok(done),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("the work ended without a result"));
            }
        }
    }
}

/// Calls `progress(done, of)`; what it raises is reported as unraisable, since the work goes on.
pub(crate) fn report(progress: Option<&Py<PyAny>>, done: usize, of: usize) {
    let Some(progress) = progress else { return };
    // Not at shutdown: work that was interrupted may outlive the interpreter.
    let _ = Python::try_attach(|py| {
        if let Err(error) = progress.call1(py, (done, of)) {
            error.write_unraisable(py, None);
        }
    });
}
