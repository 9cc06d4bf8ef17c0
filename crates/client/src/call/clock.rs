//! The time of a call: when it began and must end, and what it takes for the present.

use std::time::{Duration, Instant};

use super::times::CallTimes;
use crate::engine::connection::Attempt;
use crate::pool::Server;

/// The times of a call and its deadline.
#[derive(Debug)]
pub(super) struct CallClock {
    times: CallTimes,
    deadline: Instant,
    /// It is tried again, on a fresh connection.
    was_retried: bool,
    /// It may have waited since it had its connection, so that `connected_at` no longer serves as the present.
    may_have_waited: bool,
}

impl CallClock {
    /// That of a call whose time began to run at `started`.
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

    /// All the time that the call has.
    pub(super) fn time_allowed(&self) -> Duration {
        self.deadline.saturating_duration_since(self.times.started)
    }

    /// Until when a step may block the thread: with a waiter not at all.
    pub(super) fn blocking_deadline(&self, server: &Server) -> Instant {
        match server.waiter() {
            Some(_) => Instant::now().min(self.deadline),
            None => self.deadline,
        }
    }

    /// The present try of the call.
    pub(super) fn attempt(&self) -> Attempt {
        Attempt { started: self.times.started, deadline: self.deadline, is_retry: self.was_retried }
    }

    /// Whether it is tried again.
    pub(super) fn was_retried(&self) -> bool {
        self.was_retried
    }

    /// Notes that it is tried again.
    pub(super) fn mark_retried(&mut self) {
        self.was_retried = true;
    }

    /// Notes that the call has had a connection since `connected_at`, for its requests.
    pub(super) fn begin_round_trips(&mut self, connected_at: Instant) {
        self.times.connected_at = connected_at;
        self.may_have_waited = false;
    }

    /// Notes that the call waits.
    pub(super) fn mark_waited(&mut self) {
        self.may_have_waited = true;
    }

    /// The present, when the first reply is waited for. It needs no clock reading if the call has only just got its
    /// connection.
    pub(super) fn begin_first_receive(&mut self) -> Instant {
        let now = if self.may_have_waited { Instant::now() } else { self.times.connected_at };
        self.may_have_waited = true;
        now
    }

    /// Notes that the reply is here.
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
