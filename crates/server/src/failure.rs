//! Ending the process when it can no longer serve: a thread that panicked, a worker that makes no progress.
//!
//! A server that continues with three of four workers is worse than one that ends: some of its clients wait
//! forever, and nothing restarts it. So the whole process ends, with one line and an exit code that supervisors
//! check.

use std::any::Any;

use crate::stderr::print_without_waiting;

/// Ends the process with `exit_code` after one line on stderr that gives the reason.
pub(crate) fn end_process(exit_code: i32, reason: &str) -> ! {
    print_without_waiting(&format!(
        "glasscache: {reason}; the process ends with exit code {exit_code}
"
    ));
    std::process::exit(exit_code)
}

/// The message of a panic.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> &str {
    if let Some(text) = payload.downcast_ref::<&str>() {
        text
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text
    } else {
        "no message"
    }
}
