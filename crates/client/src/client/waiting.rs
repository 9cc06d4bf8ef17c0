//! Blocking waits for what another read of the same request is fetching.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use super::{Budget, Client};
use crate::error::{Context, Error, Phase};
use crate::near::NearRead;
use crate::waiter::PAUSE;

/// How late a signal is handled: unlike a wait for a socket, this one does not end by it.
const SIGNAL_DELAY_MAX: Duration = Duration::from_millis(50);

/// Wakes a thread.
#[derive(Debug, Default)]
struct ThreadWaker {
    is_woken: Mutex<bool>,
    woken: Condvar,
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        *self.is_woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.woken.notify_one();
    }
}

impl ThreadWaker {
    /// Waits until the thread is woken, for `timeout` at most.
    fn wait(&self, timeout: Duration) {
        let is_woken = self.is_woken.lock().unwrap_or_else(PoisonError::into_inner);
        let wait_result = self.woken.wait_timeout_while(is_woken, timeout, |is_woken| !*is_woken);
        let (mut is_woken, _) = wait_result.unwrap_or_else(PoisonError::into_inner);
        *is_woken = false;
    }
}

impl Client {
    /// Waits until the fetch that a read needs has ended, or the read's time is over, which it takes note of.
    pub(crate) fn wait_for_other_read(
        &self,
        read: &mut NearRead,
        budget: &Budget<'_>,
    ) -> Result<(), Error> {
        let thread_waker = Arc::new(ThreadWaker::default());
        let waker = Waker::from(thread_waker.clone());
        while read.poll_wait(&waker).is_pending() {
            let time_left = budget.deadline.saturating_duration_since(Instant::now());
            if time_left.is_zero() {
                self.time_out_near(read);
                return Ok(());
            }
            let was_interrupted = if let Some(waiter) = &self.options().waiter {
                !waiter.wait(&[], time_left.min(PAUSE))
            } else {
                thread_waker.wait(time_left.min(SIGNAL_DELAY_MAX));
                true // signals are handled here only
            };
            if was_interrupted && !(budget.should_continue)() {
                return Err(Error::Interrupted);
            }
        }
        Ok(())
    }

    /// Ends a read that waits for what another read is fetching, as if it had sent its own request and got no reply.
    pub fn time_out_near(&self, read: &mut NearRead) {
        read.time_out(|key| match self.server_of(key.bytes) {
            Ok(server) => Error::Deadline(Context {
                server: server.name.clone(),
                phase: Phase::Read,
                retry_is_safe: true,
            }),
            Err(error) => error,
        });
    }
}
