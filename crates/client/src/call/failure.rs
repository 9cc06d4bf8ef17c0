//! How a call without a reply ends: another try on a fresh connection, or an error with
//! its phase. What follows is the engine's decision.

use std::sync::Arc;

use rustix::io::Errno;

use super::{Call, CallStage};
use crate::engine::connection::{ConnectionEvent, Failure, NoReplyReason};
use crate::engine::health::HealthEffect;
use crate::engine::retry::{FORK_REASON, FailedRequest, FailureCause, RetryDecision};
use crate::error::{Context, Error, Phase};
use crate::pool::{PooledConnection, Server};
use crate::request::Request;
use crate::transport::blocking::{SocketConnection, WaitError};

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
            WaitError::Closed(None) => Some("the connection was closed".to_owned()),
            WaitError::Closed(Some(errno)) => Some(self.reason_of_close(errno)),
            _ => None,
        };
        let is_connecting = match self.stage {
            CallStage::Start => true,
            CallStage::Connecting => !self.connecting.is_opening(),
            CallStage::Sending | CallStage::Receiving | CallStage::Done => false,
        };
        let attempt = self.clock.attempt();
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
        let is_quiet = self.is_noreply && self.stage != CallStage::Connecting;
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
            None => socket_connection.state_machine.tick(self.clock.deadline()),
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

    /// Why the connection was lost: by its TLS, if that failed.
    fn reason_of_close(&self, errno: Errno) -> String {
        let connection = self.connection.as_ref();
        let socket_connection = connection.and_then(PooledConnection::socket_connection_ref);
        let tls_failure = socket_connection.and_then(SocketConnection::tls_failure);
        tls_failure.map_or_else(|| errno.to_string(), str::to_owned)
    }

    /// Ends a call that has no connection yet.
    fn fail_unconnected(&mut self, reason: Option<String>) -> Result<(), Error> {
        self.server.record_failed_connect(match &reason {
            Some(_) => FailureCause::Closed { is_orderly: false },
            None => FailureCause::Deadline(self.clock.time_allowed()),
        });
        self.connection = None;
        let context = self.server.unsent_context(Phase::Connect);
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
                self.connecting.presume_classic();
                self.retry();
                Ok(())
            }
            RetryDecision::Fail(_) => {
                self.server.probe_if_down();
                self.connection = None;
                Err(failure.error)
            }
        }
    }

    fn retry(&mut self) {
        self.clock.mark_retried();
        if let Some(connection) = &mut self.connection {
            let unsent_writes = connection.socket_connection().and_then(|socket_connection| {
                socket_connection.state_machine.take_unsent_buffered_writes()
            });
            self.leading_writes.keep_unsent(unsent_writes);
            connection.replace(None);
        }
        self.early_reply = None;
        self.stage = CallStage::Start;
    }

    /// The error of a call in a child of a fork, while the parent continues it.
    pub(super) fn fork_error(&self) -> Error {
        let context = Context {
            retry_is_safe: self.requests.iter().all(Request::is_repeatable),
            ..self.server.unsent_context(Phase::Read)
        };
        Error::Unavailable(context, FORK_REASON.to_owned())
    }
}

impl Server {
    /// Notes what a connection that could not be made means for the server's health.
    pub(super) fn record_failed_connect(self: &Arc<Self>, cause: FailureCause) {
        if let RetryDecision::Fail(effect) = FailedRequest::CONNECTING.decide(cause) {
            self.health.apply_effect(effect);
            self.probe_if_down();
        }
    }

    /// The error of a call that cannot connect; the server counts as down from now on.
    pub(super) fn mark_down(self: &Arc<Self>, reason: String) -> Error {
        self.health.apply_effect(HealthEffect::Down);
        self.probe_if_down();
        self.unavailable_unsent(Phase::Connect, reason)
    }

    /// Begins to probe the server, if it has just gone down.
    pub(super) fn probe_if_down(self: &Arc<Self>) {
        if self.health.take_needs_probe() {
            crate::probe::start(self);
        }
    }

    /// The error context of a call of which no byte was sent.
    pub(super) fn unsent_context(&self, phase: Phase) -> Context {
        Context { server: self.name.clone(), phase, retry_is_safe: true }
    }

    /// The error of a call of which no byte was sent.
    pub(super) fn unavailable_unsent(&self, phase: Phase, reason: String) -> Error {
        Error::Unavailable(self.unsent_context(phase), reason)
    }
}

impl Drop for Call<'_> {
    #[inline]
    fn drop(&mut self) {
        let holds_connection_or_batch = self.connection.is_some() || self.leading_writes.are_held();
        if holds_connection_or_batch && !self.process.is_current() {
            // The parent continues it; locks of its server may be held by threads that this child does not have.
            self.leading_writes.abandon();
            self.connection = None;
        }
    }
}
