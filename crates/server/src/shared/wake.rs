//! Waking a thread that sleeps in epoll; many calls before it has woken are one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// Wakes one thread; clones wake the same.
#[derive(Debug, Clone)]
pub(crate) struct Waker(Arc<WakeEvent>);

#[derive(Debug)]
struct WakeEvent {
    event: OwnedFd,
    is_signalled: AtomicBool,
}

impl Waker {
    pub(crate) fn new() -> rustix::io::Result<Waker> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Waker(Arc::new(WakeEvent { event, is_signalled: AtomicBool::new(false) })))
    }

    /// Wakes the thread, once for all calls until it clears the event.
    pub(crate) fn wake(&self) {
        // AcqRel pairs with `clear`: writes before the call are visible after it.
        if !self.0.is_signalled.swap(true, Ordering::AcqRel) {
            // The count cannot overflow, because it is read before the next call writes.
            let _ = rustix::io::write(&self.0.event, &1u64.to_ne_bytes());
        }
    }

    /// Called by the woken thread: the next call wakes it again.
    pub(crate) fn clear(&self) {
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&self.0.event, &mut count);
        self.0.is_signalled.store(false, Ordering::SeqCst);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }
}
