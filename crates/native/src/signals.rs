//! Handlers of signals that come while a call waits without the interpreter lock: they run within the call.

use std::cell::Cell;

use pyo3::prelude::*;

thread_local! {
    static RUNS_HANDLER: Cell<bool> = const { Cell::new(false) };
}

/// Runs the handlers of the signals that have come; the error is what one of them raised.
pub(crate) fn run_handlers(py: Python<'_>) -> PyResult<()> {
    let ran_before = RUNS_HANDLER.replace(true);
    let result = py.check_signals();
    RUNS_HANDLER.set(ran_before);
    result
}

/// Whether this thread is within [`run_handlers`].
pub(crate) fn runs_handler() -> bool {
    RUNS_HANDLER.get()
}
