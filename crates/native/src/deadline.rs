//! Deadlines of Python calls: the call's own, the block's (`with client.deadline(...)`), the default.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::error;

thread_local! {
    /// Open blocks of this thread: the client's number and when its time is over.
    static BLOCKS: RefCell<Vec<(u64, Instant)>> = const { RefCell::new(Vec::new()) };
}

/// Longest time-out that is taken as such; longer ones, and infinity, wait this long.
const FOREVER: Duration = Duration::from_hours(365 * 24);

/// Seconds as Python gives them, as a duration; refuses NaN and anything up to 0.
pub(crate) fn seconds(seconds: f64) -> PyResult<Duration> {
    if seconds.is_nan() || seconds <= 0.0 {
        let sentence = format!("a time-out of {seconds} s: it must be above 0");
        return Err(Python::attach(|py| error::bad_setting(py, sentence)));
    }
    Ok(Duration::try_from_secs_f64(seconds).map_or(FOREVER, |time| time.min(FOREVER)))
}

/// When a call that begins `now` must end.
pub(crate) fn of_call(
    client: u64,
    own: Option<f64>,
    timeout: Duration,
    now: Instant,
) -> PyResult<Instant> {
    let own = match own {
        None => now + timeout,
        Some(own) => now + seconds(own)?,
    };
    let block = BLOCKS.with_borrow(|blocks| {
        let of_client = blocks.iter().filter(|(number, _)| *number == client);
        of_client.map(|(_, end)| *end).min()
    });
    Ok(block.map_or(own, |block| own.min(block)))
}

/// Opens a block of this many seconds.
pub(crate) fn open(client: u64, length: f64) -> PyResult<()> {
    let end = Instant::now() + seconds(length)?;
    BLOCKS.with_borrow_mut(|blocks| blocks.push((client, end)));
    Ok(())
}

/// Closes the block of this client that was opened last.
pub(crate) fn close(client: u64) {
    BLOCKS.with_borrow_mut(|blocks| {
        if let Some(at) = blocks.iter().rposition(|(number, _)| *number == client) {
            blocks.remove(at);
        }
    });
}
