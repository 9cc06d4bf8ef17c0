//! How a call without a reply ends: another try on a fresh connection, or an error with
//! its phase. What follows is the engine's decision.

use rustix::io::Errno;

use super::{Call, CallStage};
use crate::engine::connection::{ConnectionEvent, Failure, NoReplyReason};
use crate::engine::health::HealthEffect;
use crate::engine::retry::{FORK_REASON, FailedRequest, FailureCause, RetryDecision};
use crate::error::{Context, Error, Phase};
use crate::pool::PooledConnection;
use crate::request::Request;
use crate::transport::blocking::WaitError;
use crate::write_buffer::WriteBatch;

/// Why a step did not succeed.
#[derive(Debug)]
pub(super) enum StepError {
    Wait(WaitError),
    Call(Error),
}

impl From<WaitError> for StepError {
    fn from(wait_error: WaitError) -> Self {
        Self::Wait(wait_error)
    }
}

impl From<Error> for StepError {
    fn from(error: Error) -> Self {
        Self::Call(error)
    }
}

impl Call<'_> {
    /// Handles a wait that ended without bytes: the call is tried again on a fresh connection, or it ends.
    pub(super) fn handle_wait_error(&mut self, wait_error: WaitError) -> Result<(), Error> {
        if self.early_reply.is_some() {
            // The caller gets the replies that have come, and then an error for those that are missing.
            self.stage = CallStage::Receiving;
            return Ok(());
        }
        let reason = match wait_error {
            WaitError::Closed(reason) => Some(reason.map_or_else(
                || "the connection was closed".to_owned(),
                |errno: Errno| self.tls_failure().unwrap_or_else(|| errno.to_string()),
            )),
            _ => None,
        };
        let is_connecting = matches!(
            self.stage,
            CallStage::Start
                | CallStage::Resolving
                | CallStage::Connecting
                | CallStage::Handshaking
        );
        let attempt = self.attempt();
        let socket_connection =
            self.connection.as_mut().and_then(PooledConnection::socket_connection);
        let Some(socket_connection) = socket_connection.filter(|_| !is_connecting) else {
            return self.fail_unconnected(reason);
        };
        let is_orderly = wait_error == WaitError::Closed(None);
        let no_reply_reason = match &reason {
            Some(reason) => NoReplyReason::Closed { is_orderly, reason },
            None => NoReplyReason::Deadline,
        };
        let is_quiet = self.is_noreply && self.stage != CallStage::Opening;
        let mut failure = None;
        if is_quiet {
            let (requests, requests_offset) = (self.requests, self.requests_offset);
            failure = Some(socket_connection.state_machine.fail_quiet(
                requests,
                attempt,
                requests_offset,
                no_reply_reason,
            ));
        }
        match &reason {
            Some(reason) => socket_connection.state_machine.handle_disconnect(is_orderly, reason),
            None => socket_connection.state_machine.tick(self.deadline),
        }
        if failure.is_none()
            && let ConnectionEvent::Failed(_, polled_failure) =
                socket_connection.state_machine.poll()
        {
            failure = Some(*polled_failure);
        }
        match failure {
            Some(failure) => self.handle_failure(failure),
            None => self.fail_unconnected(reason),
        }
    }

    /// Why the connection's TLS failed, if it did.
    fn tls_failure(&self) -> Option<String> {
        let socket_connection = self.connection.as_ref()?.socket_connection_ref()?;
        socket_connection.tls_failure().map(str::to_owned)
    }

    /// Ends a call that has no connection yet.
    fn fail_unconnected(&mut self, reason: Option<String>) -> Result<(), Error> {
        let time_allowed = self.deadline.saturating_duration_since(self.times.started);
        let cause = match &reason {
            Some(_) => FailureCause::Closed { is_orderly: false },
            None => FailureCause::Deadline(time_allowed),
        };
        if let RetryDecision::Fail(effect) = FailedRequest::CONNECTING.decide(cause) {
            self.record_health(effect);
        }
        self.connection = None;
        let context = self.unsent_context(Phase::Connect);
        Err(match reason {
            Some(reason) => Error::Unavailable(context, reason),
            None => Error::Deadline(context),
        })
    }

    /// Continues after a failure as the engine decided.
    pub(super) fn handle_failure(&mut self, failure: Failure) -> Result<(), Error> {
        match failure.decision {
            RetryDecision::Retry => {
                self.server.pool.close_idle(); // they are as stale as this one
                self.retry();
                Ok(())
            }
            RetryDecision::RetryClassic => {
                self.presumes_classic = true; // from now on, if it then replies
                self.retry();
                Ok(())
            }
            RetryDecision::Fail(_) => {
                self.probe_if_down();
                self.connection = None;
                Err(failure.error)
            }
        }
    }

    fn retry(&mut self) {
        self.was_retried = true;
        if let Some(connection) = &mut self.connection {
            // Quiet writes of which no byte was sent are sent again; the others are lost.
            let pending = connection.socket_connection().and_then(|socket_connection| {
                socket_connection.state_machine.take_unsent_buffered_writes()
            });
            self.write_batch = match (self.write_batch.take(), pending) {
                (Some(mut write_batch), Some(pending)) => {
                    write_batch.pending = pending;
                    Some(write_batch)
                }
                _ => None,
            };
            connection.replace(None);
        }
        self.early_reply = None;
        self.stage = CallStage::Start;
    }

    /// Notes what a failure to connect means for the server's health.
    pub(super) fn record_health(&self, effect: HealthEffect) {
        self.server.health.apply_effect(effect);
        self.probe_if_down();
    }

    /// Begins to probe a server that has just gone down.
    pub(super) fn probe_if_down(&self) {
        if self.server.health.take_needs_probe() {
            crate::probe::start(&self.server);
        }
    }

    /// The error context of a call of which no byte was sent.
    pub(super) fn unsent_context(&self, phase: Phase) -> Context {
        Context { server: self.server.name.clone(), phase, retry_is_safe: true }
    }

    /// The error of a call of which no byte was sent.
    pub(super) fn unavailable_unsent(&self, phase: Phase, reason: String) -> Error {
        Error::Unavailable(self.unsent_context(phase), reason)
    }

    /// The error of a call in a child of a fork, while the parent continues it.
    pub(super) fn fork_error(&self) -> Error {
        let context = Context {
            retry_is_safe: self.requests.iter().all(Request::is_repeatable),
            ..self.unsent_context(Phase::Read)
        };
        Error::Unavailable(context, FORK_REASON.to_owned())
    }

    /// The error of a call that cannot connect; the server counts as down from now on.
    pub(super) fn mark_down(&self, reason: String) -> Error {
        self.record_health(HealthEffect::Down);
        self.unavailable_unsent(Phase::Connect, reason)
    }
}

impl Drop for Call<'_> {
    #[inline]
    fn drop(&mut self) {
        let holds_connection_or_batch = self.connection.is_some() || self.write_batch.is_some();
        if holds_connection_or_batch && !self.process.is_current() {
            // The parent continues it; locks of its server may be held by threads that this child does not have.
            self.write_batch.take().into_iter().for_each(WriteBatch::abandon);
            self.connection = None;
        }
    }
}
