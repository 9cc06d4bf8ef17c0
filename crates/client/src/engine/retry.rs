//! Decides what follows a request without a reply: a retry, or a failure and its effect on the server's health.

use std::time::Duration;

use super::health::{COUNTED_TIMEOUT_MIN, HealthEffect};

/// Why a call in a child of a fork ends that began in its parent.
pub const FORK_REASON: &str = "the process was forked during the call";

/// How far a request had come when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureStage {
    /// Its connection was being made.
    Connecting,
    /// The server was probed for its command set.
    Probing,
    /// It was sent, or was about to be.
    RoundTrip,
}

/// A request that got no reply.
#[derive(Debug, Clone, Copy)]
pub struct FailedRequest {
    /// How far it had come.
    pub stage: FailureStage,
    /// Its connection had replied to others before.
    pub is_reused: bool,
    /// Not a byte of a reply has come.
    pub has_no_reply_bytes: bool,
    /// It has left, at least in part.
    pub was_sent: bool,
    /// It is idempotent.
    pub is_repeatable: bool,
    /// It already is the second try.
    pub was_retried: bool,
}

/// Why a request got no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureCause {
    /// The connection was closed, in order or not.
    Closed {
        /// By its peer, without an error.
        is_orderly: bool,
    },
    /// The call's deadline passed; it was allowed this much time.
    Deadline(Duration),
}

/// Whether a request is retried, or fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryDecision {
    /// Another try on a fresh connection, for this one had gone stale.
    Retry,
    /// Another try in classic text: a proxy that closes on meta.
    RetryClassic,
    /// The end, and what it means for the server's health.
    Fail(HealthEffect),
}

impl FailedRequest {
    /// A connection that is being made.
    pub const CONNECTING: Self = Self {
        stage: FailureStage::Connecting,
        is_reused: false,
        has_no_reply_bytes: true,
        was_sent: false,
        is_repeatable: true,
        was_retried: false,
    };

    /// Whether the call may be made again.
    pub fn retry_is_safe(&self) -> bool {
        !self.was_sent || self.is_repeatable
    }

    /// Decides whether the request is retried.
    pub fn decide(&self, cause: FailureCause) -> RetryDecision {
        let health_effect = match self.stage {
            FailureStage::Connecting => HealthEffect::Down,
            FailureStage::Probing | FailureStage::RoundTrip => HealthEffect::Bad,
        };
        match cause {
            FailureCause::Closed { is_orderly } if self.has_no_reply_bytes && !self.was_retried => {
                if self.stage == FailureStage::Probing && is_orderly {
                    RetryDecision::RetryClassic
                } else if self.is_reused && self.retry_is_safe() {
                    RetryDecision::Retry
                } else {
                    RetryDecision::Fail(health_effect)
                }
            }
            // A call that was allowed little time does not count against the server when it gives up.
            FailureCause::Deadline(time_allowed) if time_allowed < COUNTED_TIMEOUT_MIN => {
                RetryDecision::Fail(HealthEffect::None)
            }
            FailureCause::Closed { .. } | FailureCause::Deadline(_) => {
                RetryDecision::Fail(health_effect)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOSED: FailureCause = FailureCause::Closed { is_orderly: true };
    const RESET: FailureCause = FailureCause::Closed { is_orderly: false };
    const STALE: FailedRequest = FailedRequest {
        stage: FailureStage::RoundTrip,
        is_reused: true,
        has_no_reply_bytes: true,
        was_sent: true,
        is_repeatable: true,
        was_retried: false,
    };

    #[test]
    fn a_stale_connection_is_replaced_once_if_nothing_can_be_done_twice() {
        assert_eq!(STALE.decide(CLOSED), RetryDecision::Retry);
        assert_eq!(STALE.decide(RESET), RetryDecision::Retry);
        let not_retried = [
            FailedRequest { is_reused: false, ..STALE },
            FailedRequest { has_no_reply_bytes: false, ..STALE },
            FailedRequest { is_repeatable: false, ..STALE },
            FailedRequest { was_retried: true, ..STALE },
        ];
        for request in not_retried {
            assert_eq!(
                request.decide(CLOSED),
                RetryDecision::Fail(HealthEffect::Bad),
                "{request:?}"
            );
        }
        let unsent = FailedRequest { is_repeatable: false, was_sent: false, ..STALE };
        assert_eq!(unsent.decide(CLOSED), RetryDecision::Retry);
    }

    #[test]
    fn an_orderly_close_on_the_probe_is_retried_in_classic_text() {
        let probe = FailedRequest { stage: FailureStage::Probing, is_reused: false, ..STALE };
        assert_eq!(probe.decide(CLOSED), RetryDecision::RetryClassic);
        assert_eq!(probe.decide(RESET), RetryDecision::Fail(HealthEffect::Bad));
        let second_probe = FailedRequest { was_retried: true, ..probe };
        assert_eq!(second_probe.decide(CLOSED), RetryDecision::Fail(HealthEffect::Bad));
    }

    #[test]
    fn a_short_deadline_does_not_count_against_the_server() {
        let connecting = FailedRequest::CONNECTING;
        assert_eq!(connecting.decide(RESET), RetryDecision::Fail(HealthEffect::Down));
        for (time_allowed, connecting_effect, round_trip_effect) in [
            (COUNTED_TIMEOUT_MIN, HealthEffect::Down, HealthEffect::Bad),
            (COUNTED_TIMEOUT_MIN / 2, HealthEffect::None, HealthEffect::None),
        ] {
            let deadline_passed = FailureCause::Deadline(time_allowed);
            assert_eq!(connecting.decide(deadline_passed), RetryDecision::Fail(connecting_effect));
            assert_eq!(STALE.decide(deadline_passed), RetryDecision::Fail(round_trip_effect));
        }
    }
}
