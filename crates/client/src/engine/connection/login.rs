//! The login of a connection, before its first request.

use super::{Attempt, Connection, ConnectionEvent, ConnectionStage, Failure, Ticket};
use crate::engine::health::HealthEffect;
use crate::engine::retry::RetryDecision;
use crate::error::{Context, Error, Phase};
use crate::pipeline::Refusal;

#[cfg(test)]
mod tests;

impl Connection {
    /// Takes the reply to a login; `None`: the probe follows, or the connection is closing.
    pub(super) fn finish_login(
        &mut self,
        refusal: Option<Refusal>,
        attempt: Attempt,
    ) -> Option<ConnectionEvent> {
        if let Some(refusal) = refusal {
            // The server is well, but no call to it can succeed: the probe finds out when one can.
            self.server.health.apply_effect(HealthEffect::Bad);
            let error = Error::LoginRefused { server: self.server.name.clone(), refusal };
            return Some(self.fail_opening(error, HealthEffect::Bad));
        }
        if self.stage != ConnectionStage::LoggingIn {
            return None;
        }
        self.probe_or_become_ready(attempt);
        std::mem::take(&mut self.must_report_ready).then_some(ConnectionEvent::Ready)
    }

    /// Ends the opening because the password could not be obtained.
    pub(super) fn fail_login(&mut self, reason: String) {
        let context = Context {
            server: self.server.name.clone(),
            phase: Phase::Connect,
            retry_is_safe: true,
        };
        let failed = self.fail_opening(Error::Unavailable(context, reason), HealthEffect::None);
        if let ConnectionEvent::Failed(ticket, failure) = failed {
            self.failed_calls.push_back((ticket, failure));
        }
    }

    /// Ends the connection before its first request.
    fn fail_opening(&mut self, error: Error, health_effect: HealthEffect) -> ConnectionEvent {
        self.stage = ConnectionStage::Closed;
        self.in_flight.clear();
        let decision = RetryDecision::Fail(health_effect);
        ConnectionEvent::Failed(Ticket::OPENING, Box::new(Failure { error, decision }))
    }
}
