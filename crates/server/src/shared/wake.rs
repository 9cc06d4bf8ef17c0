//! A bell between threads: rings through epoll, and many rings before an answer are one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// A bell to wake one thread; clones ring the same bell.
#[derive(Debug, Clone)]
pub(crate) struct Waker(Arc<Bell>);

#[derive(Debug)]
struct Bell {
    event: OwnedFd,
    is_rung: AtomicBool,
}

impl Waker {
    pub(crate) fn new() -> rustix::io::Result<Waker> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Waker(Arc::new(Bell {
            event,
            is_rung: AtomicBool::new(false),
        })))
    }

    /// Wakes the thread, once for all calls until it answers.
    pub(crate) fn wake(&self) {
        // AcqRel pairs with `answer`: what was done before the ring is seen after the answer.
        if !self.0.is_rung.swap(true, Ordering::AcqRel) {
            // The count cannot overflow, for it is read before the next ring.
            let _ = rustix::io::write(&self.0.event, &1u64.to_ne_bytes());
        }
    }

    /// The woken thread says that it is up.
    pub(crate) fn answer(&self) {
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&self.0.event, &mut count);
        self.0.is_rung.store(false, Ordering::SeqCst);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }
}
