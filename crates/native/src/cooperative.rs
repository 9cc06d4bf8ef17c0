//! Calls in greenlets: where gevent or eventlet has patched Python's sockets, a call waits by their `select`, so that other
//! greenlets run meanwhile, and ends when an exception is raised in it, such as a `gevent.Timeout`.
//!
//! The interpreter lock is kept during such a call: greenlets are switched within one thread.

use std::os::fd::AsRawFd;
use std::time::Duration;

use glasscache_client::waiter::{AwaitedSocket, Waiter};
use pyo3::prelude::*;

use crate::signals;

/// The functions of the library that schedules the greenlets.
#[derive(Debug)]
pub(crate) struct GreenletWaiter {
    /// `select.select` and `time.sleep` as it replaces them.
    pub(crate) select: Py<PyAny>,
    pub(crate) sleep: Py<PyAny>,
}

impl GreenletWaiter {
    fn wait_in_python(
        &self,
        py: Python<'_>,
        sockets: &[AwaitedSocket<'_>],
        timeout: Duration,
    ) -> PyResult<()> {
        let seconds = timeout.as_secs_f64();
        if sockets.is_empty() {
            return self.sleep.call1(py, (seconds,)).map(drop);
        }
        let descriptors = |is_awaited: fn(&AwaitedSocket<'_>) -> bool| -> Vec<i32> {
            let awaited = sockets.iter().filter(|socket| is_awaited(socket));
            awaited.map(|socket| socket.fd.as_raw_fd()).collect()
        };
        let readable = descriptors(|socket| socket.awaits_readable);
        let writable = descriptors(|socket| socket.awaits_writable);
        self.select.call1(py, (readable, writable, Vec::<i32>::new(), seconds)).map(drop)
    }
}

impl Waiter for GreenletWaiter {
    fn wait(&self, sockets: &[AwaitedSocket<'_>], timeout: Duration) -> bool {
        Python::attach(|py| match self.wait_in_python(py, sockets, timeout) {
            Ok(()) => true,
            Err(error) => {
                signals::set_raised(error);
                false
            }
        })
    }
}
