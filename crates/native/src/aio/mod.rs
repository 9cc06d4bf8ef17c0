//! The asyncio client's native half: an `asyncio.Protocol` over the client's pipeline.
//!
//! It has no thread and no runtime: the loop passes in bytes, the engine matches them with calls, and the futures of
//! these calls are resolved. A lone request is sent at once, those of a burst by one write at the end of the loop
//! iteration. A future that was cancelled stays in the pipeline, so its reply is read and dropped; a connection on which
//! a call passed its deadline takes no new requests.
//!
//! - `client` is the class that Python uses, with `calls` (its methods for one key), `bulk_calls` (for many keys) and
//!   `near` (for reads with a strategy).
//! - They start `pending_call` (a call with one request in flight, and its future), `bulk_call` and `pending_near_read` (several requests with
//!   one outcome, whose keys and values are in `bulk_state`) and `delayed_call` (a call that waits for a connection).
//! - `connection` is one connection, `protocol` its `asyncio.Protocol`; `connecting` creates and replaces connections,
//!   `future_waker` resolves a future from elsewhere, and `reply_values` turns replies into values.

mod bulk_call;
mod bulk_calls;
mod bulk_state;
mod calls;
mod client;
mod connecting;
mod connection;
mod delayed_call;
mod future_waker;
mod near;
mod pending_call;
mod pending_near_read;
mod protocol;
mod reply_values;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

pub(crate) use bulk_call::BulkCall;
pub(crate) use client::AsyncClient;
pub(crate) use connection::Connection;
pub(crate) use delayed_call::DelayedCall;
pub(crate) use pending_near_read::PendingNearRead;

/// Whether a future has its result, or was cancelled.
fn is_done(py: Python<'_>, future: &Py<PyAny>) -> PyResult<bool> {
    future.call_method0(py, intern!(py, "done"))?.is_truthy(py)
}

fn set_result(py: Python<'_>, future: &Py<PyAny>, value: Bound<'_, PyAny>) -> PyResult<()> {
    if !is_done(py, future)? {
        future.call_method1(py, intern!(py, "set_result"), (value,))?;
    }
    Ok(())
}

fn set_exception(py: Python<'_>, future: &Py<PyAny>, error: PyErr) -> PyResult<()> {
    if !is_done(py, future)? {
        future.call_method1(py, intern!(py, "set_exception"), (error.into_value(py),))?;
    }
    Ok(())
}

static RUNNING_LOOP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

fn running_loop(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    RUNNING_LOOP.import(py, "asyncio", "get_running_loop")?.call0()
}
