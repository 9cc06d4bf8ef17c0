//! Connections that have to log in: those whose attempt is verified by another thread, and those that take too long.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{ServeReason, Worker};
use crate::net::connection::Connection;
use crate::shared::connection_info::CloseReason;

/// How often connections that have to log in are checked.
pub(super) const LOGIN_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Connections that lost their place are closed with the regular check, or at once when there are this many of all
/// workers: a look at each connection for every one that was displaced would cost more than a silent connection.
const DISPLACED_MAX: usize = 32;

/// The connections of a worker that have to log in.
pub(super) struct PendingLogins {
    /// Those whose attempt is being verified, or has just been.
    verifying: Vec<u64>,
    /// All of them, and some that have logged in since the last check.
    unauthenticated: Vec<u64>,
    last_checked_at: Instant,
}

impl PendingLogins {
    pub(super) fn new() -> PendingLogins {
        PendingLogins {
            verifying: Vec::new(),
            unauthenticated: Vec::new(),
            last_checked_at: Instant::now(),
        }
    }

    /// Whether connections have to be checked soon.
    pub(super) fn must_check(&self) -> bool {
        !self.unauthenticated.is_empty()
    }

    /// Watches a connection that has to log in.
    pub(super) fn add_unauthenticated(
        &mut self,
        slot_key: u64,
        connection: &mut Connection,
        now: Instant,
    ) {
        if connection.login_wait.begin(now) {
            self.unauthenticated.push(slot_key);
        }
    }

    /// Adds a connection whose attempt is being verified.
    pub(super) fn add_verifying(&mut self, slot_key: u64, connection: &mut Connection) {
        if connection.login_wait.begin_verification() {
            self.verifying.push(slot_key);
        }
    }
}

impl Worker {
    /// Continues connections whose attempt has been decided.
    pub(super) fn serve_decided_logins(&mut self) {
        if self.logins.verifying.is_empty() {
            return;
        }
        let now = Instant::now();
        for slot_key in std::mem::take(&mut self.logins.verifying) {
            let Some(connection) = self.connections.get_mut(slot_key) else {
                continue;
            };
            if connection.session.is_login_pending() {
                self.logins.verifying.push(slot_key);
                continue;
            }
            connection.login_wait.end_verification(now);
            self.serve_or_queue(slot_key, ServeReason::Resume);
        }
    }

    /// Closes connections that lost their place to newer ones, if there are many.
    pub(super) fn close_displaced(&mut self) {
        if self.shared.connections.displaced_open() < DISPLACED_MAX {
            return;
        }
        let slot_keys = self.logins.unauthenticated.clone();
        for slot_key in slot_keys {
            if self.connections.get_mut(slot_key).is_some_and(|connection| is_displaced(connection))
            {
                self.close(slot_key, CloseReason::Displaced);
            }
        }
    }

    /// Closes connections that did not log in in time, or lost their place.
    pub(super) fn close_late_logins(&mut self, now: Instant) {
        if !self.logins.must_check()
            || now.duration_since(self.logins.last_checked_at) < LOGIN_CHECK_INTERVAL
        {
            return;
        }
        self.logins.last_checked_at = now;
        for slot_key in std::mem::take(&mut self.logins.unauthenticated) {
            let Some(connection) = self.connections.get_mut(slot_key) else {
                continue;
            };
            if !connection.session.awaits_login() {
                connection.login_wait.end();
                continue;
            }
            if is_displaced(connection) {
                self.close(slot_key, CloseReason::Displaced);
            } else if connection.login_wait.is_over(now) && !connection.session.is_login_pending() {
                let reason = connection.session.timeout_reason();
                if reason == CloseReason::LoginTimeout {
                    self.counters.login_timeouts.bump();
                }
                self.close(slot_key, reason);
            } else {
                self.logins.unauthenticated.push(slot_key);
            }
        }
    }
}

/// Whether it lost its place before it logged in.
fn is_displaced(connection: &Connection) -> bool {
    connection.info.is_displaced.load(Ordering::Relaxed)
}
