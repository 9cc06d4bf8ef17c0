//! Handlers of signals that come while a call waits without the interpreter lock: they run within the call.

use std::cell::{Cell, RefCell};

use pyo3::prelude::*;

thread_local! {
    /// What was raised in a call that waits by the greenlets' scheduler: the call ends by it at once.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
    static RUNS_HANDLER: Cell<bool> = const { Cell::new(false) };
}

/// Ends the call of this thread that is interrupted next by an exception.
pub(crate) fn set_raised(error: PyErr) {
    RAISED.set(Some(error));
}

/// Runs the handlers of the signals that have come; the error is what one of them raised, or what ends a greenlet's wait.
pub(crate) fn run_handlers(py: Python<'_>) -> PyResult<()> {
    if let Some(raised) = RAISED.take() {
        return Err(raised);
    }
    let ran_before = RUNS_HANDLER.replace(true);
    let result = py.check_signals();
    RUNS_HANDLER.set(ran_before);
    result
}

/// Whether this thread is within [`run_handlers`].
pub(crate) fn runs_handler() -> bool {
    RUNS_HANDLER.get()
}
