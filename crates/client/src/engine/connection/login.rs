//! The login of a connection, before its first request.

use super::{Attempt, Connection, Failure, Progress, Stage, Ticket};
use crate::engine::health::HealthMark;
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
    ) -> Option<Progress> {
        if let Some(refusal) = refusal {
            // Not the server's own trouble, but no call on it can succeed: the probe finds out when one can.
            self.server.health.note(HealthMark::Bad);
            let error = Error::LoginRefused {
                server: self.server.name.clone(),
                refusal,
            };
            return Some(self.fail_opening(error, HealthMark::Bad));
        }
        if self.stage != Stage::LoggingIn {
            return None;
        }
        self.probe_or_become_ready(attempt);
        std::mem::take(&mut self.must_report_ready).then_some(Progress::Ready)
    }

    /// The password of a login could not be had.
    pub(super) fn fail_login(&mut self, reason: String) {
        let context = Context {
            server: self.server.name.clone(),
            phase: Phase::Connect,
            retry_is_safe: true,
        };
        let failed = self.fail_opening(Error::Unavailable(context, reason), HealthMark::None);
        if let Progress::Failed(ticket, failure) = failed {
            self.failed_calls.push_back((ticket, failure));
        }
    }

    /// Ends the connection before its first request.
    fn fail_opening(&mut self, error: Error, health_mark: HealthMark) -> Progress {
        self.stage = Stage::Closed;
        self.in_flight.clear();
        let decision = RetryDecision::End(health_mark);
        Progress::Failed(Ticket::OPENING, Box::new(Failure { error, decision }))
    }
}
