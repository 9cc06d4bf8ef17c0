//! Ending the process when it can no longer serve: a thread that panicked, a worker that makes no progress.
//!
//! A server that continues with three of four workers is worse than one that ends: some of its clients wait
//! forever, and nothing restarts it. So the whole process ends, with one line and an exit code that supervisors
//! check.

use std::any::Any;
use std::time::SystemTime;

use crate::shared::Shared;
use crate::shared::log_output::LogLevel;
use crate::stderr::print_without_waiting;

/// Ends the process after one line in the log that gives the reason.
pub(crate) fn end_process(shared: &Shared, reason: &str) -> ! {
    let config = &shared.config;
    let exit_code = config.failure_exit_code;
    let line = format!("glasscache: {reason}; the process ends with exit code {exit_code}");
    if config.log_file.is_some() {
        shared.log.queue_line(LogLevel::Error, line);
        shared.log.flush();
    } else {
        // Not by the log: its queue may be full.
        print_without_waiting(&config.log_style.format(LogLevel::Error, SystemTime::now(), &line));
    }
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
