//! The synchronous client as Python calls it. The interpreter lock is released while a call waits.

mod bulk;
mod foreign_keywords;
mod get_recording;
mod reading;
pub(crate) mod reserving;
mod writing;

use std::ops::Deref;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

use glasscache_client::WireKey;
use glasscache_client::costs::TimeSpent;
use glasscache_client::near::as_package_call;
use glasscache_client::{Budget, Client as Core, Error, StoreMode};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::client_state::ClientState;
use crate::keys::key_bytes;
use crate::{deadline as deadlines, error, interpreter_lock, settings, signals};
use get_recording::GetRecording;

/// When a call began, and when it must end.
#[derive(Clone, Copy)]
pub(crate) struct CallTimes {
    pub(crate) start: Instant,
    pub(crate) deadline: Instant,
}

/// The native half of `glasscache.Client`.
#[pyclass(frozen, subclass, module = "glasscache._native")]
pub(crate) struct Client {
    state: Py<ClientState>,
    /// The open blocks in which calls share a deadline.
    deadline_blocks_count: AtomicIsize,
    get_recording: OnceLock<GetRecording>,
}

impl Deref for Client {
    type Target = ClientState;

    fn deref(&self) -> &ClientState {
        self.state.get()
    }
}

/// The mode of a store by the method that makes it; `unique` is that of a `cas`.
pub(crate) fn store_mode_of(method: &str, unique: Option<u64>) -> PyResult<StoreMode> {
    Ok(match method {
        "set" => StoreMode::Set,
        "add" => StoreMode::Add,
        "replace" => StoreMode::Replace,
        "append" => StoreMode::Append,
        "prepend" => StoreMode::Prepend,
        "cas" => StoreMode::Cas(
            unique.ok_or_else(|| PyTypeError::new_err("cas: an int, as `gets` returned it"))?,
        ),
        _ => return Err(PyValueError::new_err(format!("no method {method:?} stores a value"))),
    })
}

/// The bytes that `append` and `prepend` add.
pub(crate) fn appended_bytes<'a>(value: &'a Bound<'_, PyAny>) -> PyResult<&'a [u8]> {
    key_bytes(value).map_err(|_| PyTypeError::new_err("append and prepend take str or bytes"))
}

/// A number of an `incr` or `decr`, its delta or its initial number: protocol numbers have 64 bits and no sign.
pub(crate) fn parse_amount(number: &Bound<'_, PyAny>) -> PyResult<u64> {
    let py = number.py();
    number.extract().map_err(|error: PyErr| {
        if !error.is_instance_of::<PyOverflowError>(py) {
            return error;
        }
        let amount_max = u64::MAX;
        let text =
            number.str().map_or_else(|_| "a longer number".to_owned(), |text| text.to_string());
        error::bad_setting(
            py,
            format!(
                "amount out of range: {text}, 0 to {amount_max} (decr subtracts what incr adds)"
            ),
        )
    })
}

/// As [`parse_amount`], of a number that need not be given.
pub(crate) fn parse_optional_amount(number: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    (!number.is_none()).then(|| parse_amount(number)).transpose()
}

impl Drop for Client {
    /// Sends the buffered writes without the interpreter lock: a server that hangs must not stop other threads.
    fn drop(&mut self) {
        if self.core.has_buffered_writes() {
            // Without an interpreter, at its very end, the core's own drop does it.
            Python::try_attach(|py| py.detach(|| self.core.flush_before_drop()));
        }
    }
}

impl Client {
    /// The times of a call that begins now.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "a part of each call, most of which is a clock reading"
    )]
    pub(crate) fn call_times(&self, call_timeout_s: Option<f64>) -> PyResult<CallTimes> {
        let start = Instant::now();
        let timeout = call_timeout_s.map_or(Ok(self.timeout), deadlines::parse_timeout)?;
        let mut deadline = start + timeout;
        if self.deadline_blocks_count.load(Ordering::Relaxed) != 0
            && let Some(block_deadline) = deadlines::block_deadline(self.state.as_any(), start)?
        {
            deadline = deadline.min(block_deadline);
        }
        Ok(CallTimes { start, deadline })
    }

    /// Does `work` without the interpreter lock, unless it waits by a scheduler of greenlets, which needs it.
    pub(crate) fn detach<R: Send>(&self, py: Python<'_>, work: impl FnOnce() -> R + Send) -> R {
        let Some(near_binding) = &self.near_binding else {
            return self.detach_thread(py, work);
        };
        let is_package_call = near_binding.is_package_call(py);
        self.detach_thread(py, || as_package_call(is_package_call, work))
    }

    fn detach_thread<R: Send>(&self, py: Python<'_>, work: impl FnOnce() -> R + Send) -> R {
        if self.core.options().waiter.is_some() {
            return work();
        }
        interpreter_lock::run_detached(py, work)
    }

    /// Does `work` without the interpreter lock; a signal's handler may end it by raising.
    pub(crate) fn run_detached<R: Send>(
        &self,
        py: Python<'_>,
        call_times: CallTimes,
        spent: TimeSpent,
        work: impl FnOnce(&Core, &Budget<'_>) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        let exception = Mutex::new(None);
        let result = self.detach(py, || {
            let should_continue = || {
                Python::attach(|py| match signals::run_handlers(py) {
                    Ok(()) => true,
                    Err(error) => {
                        if let Ok(mut exception) = exception.lock() {
                            *exception = Some(error);
                        }
                        false
                    }
                })
            };
            let budget = Budget {
                should_continue: &should_continue,
                spent,
                ..Budget::between(call_times.start, call_times.deadline)
            };
            work(&self.core, &budget)
        });
        // Checked before the result: the signal's handler ends the call, whatever its result.
        if let Some(exception) = exception.into_inner().ok().flatten() {
            return Err(exception);
        }
        result.map_err(|error| error::from_client_error(py, &error))
    }

    /// What a failed call returns: its error, or a counted miss where that is configured.
    pub(crate) fn or_counted_miss<R>(
        &self,
        py: Python<'_>,
        result: PyResult<R>,
        miss: R,
    ) -> PyResult<R> {
        result.or_else(|error| self.misses.miss_or_raise(py, error, miss, 1))
    }

    /// As [`Self::or_counted_miss`], of a call that changes a key: where its error is a miss, an older value must not come
    /// back later.
    pub(crate) fn or_counted_miss_of_change<R>(
        &self,
        py: Python<'_>,
        result: PyResult<R>,
        miss: R,
        key: WireKey<'_>,
    ) -> PyResult<R> {
        result.or_else(|error| {
            let miss = self.misses.miss_or_raise(py, error, miss, 1)?;
            self.core.mark_uncertain(key);
            Ok(miss)
        })
    }

    /// As [`Self::with_key`], of a call that changes the key.
    pub(crate) fn change_key<R: Send>(
        &self,
        key: &Bound<'_, PyAny>,
        call_timeout_s: Option<f64>,
        miss: R,
        work: impl FnOnce(&Core, WireKey<'_>, &Budget<'_>) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        let py = key.py();
        let call_times = self.call_times(call_timeout_s)?;
        let mut scratch = Vec::new();
        let key = self.wire_key(key, &mut scratch)?;
        let call_result =
            self.run_detached(py, call_times, TimeSpent::default(), |core, budget| {
                work(core, key, budget)
            });
        self.or_counted_miss_of_change(py, call_result, miss, key)
    }

    /// Makes a call about one key without the interpreter lock; `miss` is returned for an error that counts as one.
    pub(crate) fn with_key<R: Send>(
        &self,
        key: &Bound<'_, PyAny>,
        call_timeout_s: Option<f64>,
        miss: R,
        work: impl FnOnce(&Core, WireKey<'_>, &Budget<'_>) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        let py = key.py();
        let call_times = self.call_times(call_timeout_s)?;
        let mut scratch = Vec::new();
        let key = self.wire_key(key, &mut scratch)?;
        let call_result =
            self.run_detached(py, call_times, TimeSpent::default(), |core, budget| {
                work(core, key, budget)
            });
        self.or_counted_miss(py, call_result, miss)
    }
}

#[pymethods]
impl Client {
    #[new]
    fn new(state: Py<ClientState>) -> Self {
        let deadline_blocks_count = AtomicIsize::new(0);
        Self { state, deadline_blocks_count, get_recording: OnceLock::new() }
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        settings::repr(&slf.get_type(), &slf.get().core)
    }

    /// Close the idle connections, after quiet writes have arrived.
    fn close(&self, py: Python<'_>) {
        self.detach(py, || self.core.close());
    }

    /// Send the noreply writes that are still gathered, from the last millisecond; what cannot be sent is counted.
    ///
    /// The next call does this too, and so do `close()`, the end of a `with` block and of the program. Use it
    /// before another way to leave, such as `os._exit`, or before another client reads what was written.
    #[pyo3(name = "send_gathered", signature = (*, deadline=None))]
    fn flush_quiet_writes(&self, py: Python<'_>, deadline: Option<f64>) -> PyResult<()> {
        let flush_timeout = deadline.map_or(Ok(self.timeout), deadlines::parse_timeout)?;
        self.detach(py, || self.core.flush_quiet_writes(flush_timeout));
        Ok(())
    }

    /// As `send_gathered`, at the end of an interpreter: the lock is kept, for one that ends does not give it back.
    #[pyo3(name = "_flush_at_exit")]
    fn flush_at_exit(&self) {
        self.core.flush_before_drop();
    }

    /// Count the blocks in which calls share a deadline, of all contexts.
    #[pyo3(name = "_count_deadline_blocks")]
    fn count_deadline_blocks(&self, change: isize) {
        self.deadline_blocks_count.fetch_add(change, Ordering::Relaxed);
    }

    /// Change the servers for all calls to come; a call in flight ends where it began.
    ///
    /// Connections to servers that stay are kept. `glasscache.discovery` calls this.
    #[pyo3(name = "_change_servers")]
    fn change_servers(&self, py: Python<'_>, servers: Vec<String>) -> PyResult<()> {
        settings::parse_addresses(&servers)
            .and_then(|addresses| py.detach(|| self.core.set_servers(&addresses)))
            .map_err(|error| error::from_client_error(py, &error))
    }
}
