//! Deadlines of Python calls: the call's own, the block's (`with client.deadline(...)`), the default.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::error;

thread_local! {
    /// Open blocks of this thread: the client's number and when its time is over.
    static DEADLINE_BLOCKS: RefCell<Vec<(u64, Instant)>> = const { RefCell::new(Vec::new()) };
}

/// Longest time-out that is taken as such; longer ones, and infinity, wait this long.
const TIMEOUT_MAX: Duration = Duration::from_hours(365 * 24);

/// Seconds as Python gives them, as a duration; refuses NaN and anything up to 0.
pub(crate) fn parse_timeout(seconds: f64) -> PyResult<Duration> {
    if seconds.is_nan() || seconds <= 0.0 {
        let message = format!("a time-out of {seconds} s: it must be above 0");
        return Err(Python::attach(|py| error::bad_setting(py, message)));
    }
    Ok(Duration::try_from_secs_f64(seconds).map_or(TIMEOUT_MAX, |time| time.min(TIMEOUT_MAX)))
}

/// When a call that begins `now` must end.
pub(crate) fn call_deadline(
    client_id: u64,
    call_timeout_s: Option<f64>,
    timeout: Duration,
    now: Instant,
) -> PyResult<Instant> {
    let timeout_deadline = match call_timeout_s {
        None => now + timeout,
        Some(call_timeout_s) => now + parse_timeout(call_timeout_s)?,
    };
    let block_deadline = DEADLINE_BLOCKS.with_borrow(|blocks| {
        let client_blocks =
            blocks.iter().filter(|(block_client_id, _)| *block_client_id == client_id);
        client_blocks.map(|(_, deadline)| *deadline).min()
    });
    Ok(block_deadline
        .map_or(timeout_deadline, |block_deadline| timeout_deadline.min(block_deadline)))
}

/// Opens a block of this many seconds.
pub(crate) fn open(client_id: u64, block_seconds: f64) -> PyResult<()> {
    let deadline = Instant::now() + parse_timeout(block_seconds)?;
    DEADLINE_BLOCKS.with_borrow_mut(|blocks| blocks.push((client_id, deadline)));
    Ok(())
}

/// Closes the block of this client that was opened last.
pub(crate) fn close(client_id: u64) {
    DEADLINE_BLOCKS.with_borrow_mut(|blocks| {
        if let Some(index) =
            blocks.iter().rposition(|(block_client_id, _)| *block_client_id == client_id)
        {
            blocks.remove(index);
        }
    });
}
