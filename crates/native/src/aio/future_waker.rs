//! A waker that resolves a future of an event loop, in the thread of the loop.

use std::sync::Arc;
use std::task::Wake;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyCFunction;

use super::{running_loop, set_result};

/// Resolves a future with None.
pub(super) struct FutureWaker {
    event_loop: Py<PyAny>,
    future: Py<PyAny>,
}

impl FutureWaker {
    /// A waker for a new future of the running loop, which is returned with it.
    pub(super) fn new(py: Python<'_>) -> PyResult<(Arc<Self>, Bound<'_, PyAny>)> {
        let event_loop = running_loop(py)?;
        let future = event_loop.call_method0(intern!(py, "create_future"))?;
        let waker = Self { event_loop: event_loop.unbind(), future: future.clone().unbind() };
        Ok((Arc::new(waker), future))
    }

    fn resolve(self: Arc<Self>, py: Python<'_>) -> PyResult<()> {
        let is_on_loop = running_loop(py).is_ok_and(|running| running.is(&self.event_loop));
        if is_on_loop {
            return set_result(py, &self.future, py.None().into_bound(py));
        }
        let event_loop = self.event_loop.clone_ref(py);
        let resolve = PyCFunction::new_closure(py, None, None, move |arguments, _| {
            let py = arguments.py();
            set_result(py, &self.future, py.None().into_bound(py))
        })?;
        let event_loop = event_loop.bind(py);
        event_loop.call_method1(intern!(py, "call_soon_threadsafe"), (resolve,))?;
        Ok(())
    }
}

impl Wake for FutureWaker {
    fn wake(self: Arc<Self>) {
        // At the interpreter's end nothing waits.
        Python::try_attach(|py| {
            // It may be woken by the drop of a read, while an exception is raised.
            let raised = PyErr::take(py);
            let event_loop = self.event_loop.clone_ref(py);
            if let Err(error) = self.resolve(py) {
                // Nothing waits on a loop that is closed.
                error.write_unraisable(py, Some(event_loop.bind(py)));
            }
            if let Some(raised) = raised {
                raised.restore(py);
            }
        });
    }
}
