//! Ending the process when it can no longer serve: a thread that panicked, a worker that makes no progress.
//!
//! A server that continues with three of four workers is worse than one that ends: some of its clients wait
//! forever, and nothing restarts it. So the whole process ends, with one line and an exit code that supervisors
//! check.

use std::any::Any;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long a full pipe on stderr may delay the end of the process.
const STDERR_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Ends the process with `exit_code` after one line on stderr that gives the reason.
pub(crate) fn end_process(exit_code: i32, reason: &str) -> ! {
    let line = format!("glasscache: {reason}; the process ends with exit code {exit_code}\n");
    // Not `eprintln`: a thread that hangs may hold the lock of stderr, and a full pipe would block the write.
    let stderr = rustix::stdio::stderr();
    let mut poll_fds = [PollFd::new(&stderr, PollFlags::OUT)];
    if poll(&mut poll_fds, Some(&STDERR_WAIT)).is_ok_and(|count| count > 0) {
        let _ = rustix::io::write(stderr, line.as_bytes());
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
