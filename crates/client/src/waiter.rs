//! Waiting in place of the thread: for programs in which one thread serves many callers that take turns, as greenlets do.
//!
//! A call advances without blocking and hands each wait to the [`Waiter`], which lets other callers run meanwhile and may end
//! the call early. Quiet writes are not gathered then, for their batches are handed over between threads.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::PollFlags;

/// How long a call pauses that waits for another caller: for a connection of the pool, a lookup, or a shared fetch.
pub(crate) const PAUSE: Duration = Duration::from_millis(1);

/// A socket that is waited for.
#[derive(Debug, Clone, Copy)]
pub struct AwaitedSocket<'s> {
    /// Its descriptor.
    pub fd: BorrowedFd<'s>,
    /// Whether it is to become readable.
    pub awaits_readable: bool,
    /// Whether it is to become writable.
    pub awaits_writable: bool,
}

impl<'s> AwaitedSocket<'s> {
    pub(crate) fn new((fd, flags): (BorrowedFd<'s>, PollFlags)) -> Self {
        Self {
            fd,
            awaits_readable: flags.contains(PollFlags::IN),
            awaits_writable: flags.contains(PollFlags::OUT),
        }
    }
}

/// Waits for the sockets of a call, or for time to pass.
pub trait Waiter: fmt::Debug + Send + Sync {
    /// Returns when one of the sockets may be ready or the time is over, or sooner; false: the call is to end.
    fn wait(&self, sockets: &[AwaitedSocket<'_>], timeout: Duration) -> bool;
}
