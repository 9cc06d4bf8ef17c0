//! The clock of a call: its start, its deadline, and the readings that its steps share.

use std::time::{Duration, Instant};

use super::times::CallTimes;
use crate::engine::connection::Attempt;
use crate::pool::Server;

/// The times of a call and its deadline.
#[derive(Debug)]
pub(super) struct CallClock {
    times: CallTimes,
    deadline: Instant,
    /// This is a retry on a new connection.
    was_retried: bool,
    /// It may have blocked since it got its connection, so `connected_at` is too old to be used as the current time.
    may_have_waited: bool,
}

impl CallClock {
    /// The clock of a call that started at `started`.
    pub(super) fn new(started: Instant, deadline: Instant) -> Self {
        Self {
            times: CallTimes::new(started),
            deadline,
            was_retried: false,
            may_have_waited: false,
        }
    }

    pub(super) fn times(&self) -> &CallTimes {
        &self.times
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The timeout of the call.
    pub(super) fn time_allowed(&self) -> Duration {
        self.deadline.saturating_duration_since(self.times.started)
    }

    /// Until when a step may block the thread; a waiter never blocks it.
    pub(super) fn blocking_deadline(&self, server: &Server) -> Instant {
        match server.waiter() {
            Some(_) => Instant::now().min(self.deadline),
            None => self.deadline,
        }
    }

    /// The current attempt.
    pub(super) fn attempt(&self) -> Attempt {
        Attempt { started: self.times.started, deadline: self.deadline, is_retry: self.was_retried }
    }

    /// Whether this is a retry.
    pub(super) fn was_retried(&self) -> bool {
        self.was_retried
    }

    /// Notes that the call is retried.
    pub(super) fn mark_retried(&mut self) {
        self.was_retried = true;
    }

    /// Notes that the call has had a connection since `connected_at`, for its requests.
    pub(super) fn begin_round_trips(&mut self, connected_at: Instant) {
        self.times.connected_at = connected_at;
        self.may_have_waited = false;
    }

    /// Notes that the call blocks.
    pub(super) fn mark_waited(&mut self) {
        self.may_have_waited = true;
    }

    /// The time at which the wait for the first reply begins. The clock is not read if the call has only just got its
    /// connection.
    pub(super) fn begin_first_receive(&mut self) -> Instant {
        let now = if self.may_have_waited { Instant::now() } else { self.times.connected_at };
        self.may_have_waited = true;
        now
    }

    /// Notes that the reply has arrived.
    pub(super) fn mark_reply_received(&mut self) {
        self.times.reply_received_at = Some(Instant::now());
    }

    /// Notes the end of the call, and returns it.
    pub(super) fn finish(&mut self) -> Instant {
        self.times.finished_at = Instant::now();
        self.times.finished_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_receive_after_a_connection_takes_its_time_for_the_present() {
        let long_ago = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        let mut clock = CallClock::new(long_ago, long_ago);
        clock.begin_round_trips(long_ago);
        assert_eq!(clock.begin_first_receive(), long_ago);
        assert!(clock.begin_first_receive() > long_ago);
        clock.begin_round_trips(long_ago);
        clock.mark_waited();
        assert!(clock.begin_first_receive() > long_ago);
    }
}
