//! The time limit of a connection for logging in, or for sending a proxy header.

use std::time::{Duration, Instant};

/// How long a connection may take to log in, from its start or its last attempt; time in which an attempt is
/// verified does not count. Without this bound clients that cannot log in could hold all connections.
const LOGIN_TIME_MAX: Duration = Duration::from_secs(1);

/// The wait for the login of a connection.
#[derive(Debug, Default)]
pub(crate) struct LoginWait {
    /// When it was accepted, or when its last attempt to log in was accepted or refused.
    since: Option<Instant>,
    /// It is in the worker's list of connections whose attempt to log in is being verified.
    is_in_verifying_list: bool,
}

impl LoginWait {
    /// Begins the wait; returns false if it had begun before.
    pub(crate) fn begin(&mut self, now: Instant) -> bool {
        let begins = self.since.is_none();
        if begins {
            self.since = Some(now);
        }
        begins
    }

    /// It has logged in.
    pub(crate) fn end(&mut self) {
        self.since = None;
    }

    /// Whether it has taken too long.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        !self.is_in_verifying_list
            && self.since.is_some_and(|since| now.duration_since(since) >= LOGIN_TIME_MAX)
    }

    /// Records that its attempt is being verified; returns false if one already was.
    pub(crate) fn begin_verification(&mut self) -> bool {
        !std::mem::replace(&mut self.is_in_verifying_list, true)
    }

    /// Its attempt was accepted or refused: the time for the next one begins, unless it needs none.
    pub(crate) fn end_verification(&mut self, now: Instant) {
        self.is_in_verifying_list = false;
        if self.since.is_some() {
            self.since = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_an_attempt_is_verified_does_not_count() {
        let accepted_at = Instant::now();
        let at = |ms| accepted_at + Duration::from_millis(ms);
        let mut wait = LoginWait::default();
        assert!(wait.begin(accepted_at));
        assert!(!wait.begin(at(900)), "it has begun");
        assert!(!wait.is_over(at(999)) && wait.is_over(at(1000)));
        assert!(wait.begin_verification());
        assert!(!wait.begin_verification(), "it is in the list");
        assert!(!wait.is_over(at(5000)));
        wait.end_verification(at(5000));
        assert!(!wait.is_over(at(5999)) && wait.is_over(at(6000)));
    }

    #[test]
    fn one_that_has_logged_in_is_never_too_late() {
        let accepted_at = Instant::now();
        let mut wait = LoginWait::default();
        wait.begin(accepted_at);
        wait.begin_verification();
        wait.end();
        wait.end_verification(accepted_at);
        assert!(!wait.is_over(accepted_at + Duration::from_secs(9)));
    }
}
