//! One request in flight: who receives its replies, which keys are uncertain without them, and how its call ends.

use crate::engine::connection::event::{Attempt, Failure, NoReplyReason, Ticket};
use crate::engine::connection::wire::{ByteRange, WireProgress};
use crate::engine::pending_writes::PendingWrites;
use crate::engine::retry::{self, FailedRequest, FailureCause};
use crate::engine::server::ServerState;
use crate::engine::uncertain::{OwnedKey, UncertainKeys, WrittenKeys};
use crate::error::{Context, Error, Phase};
use crate::near::NearWriteGuard;

/// The receiver of a reply.
#[derive(Debug)]
pub(super) enum ReplyReceiver {
    /// A call.
    Call(Ticket, Attempt),
    /// Nothing: the call is past its deadline. Its replies are still read.
    Abandoned,
    /// Quiet writes, which it acknowledges.
    Acknowledgement(Box<PendingWrites>),
}

/// Requests of one call, or an internal request of the connection.
#[derive(Debug)]
pub(super) struct InFlightRequest {
    pub(super) receiver: ReplyReceiver,
    pub(super) range: ByteRange,
    /// Replies that have not arrived.
    pub(super) replies_left: u32,
    /// None of its replies was returned to the driver yet.
    pub(super) awaits_first_reply: bool,
    pub(super) is_repeatable: bool,
    /// Quiet writes from the write buffer.
    pub(super) was_buffered: bool,
    /// The keys that are uncertain until its reply; reads have none.
    pub(super) uncertain_on_loss: Option<Box<UncertainOnLoss>>,
    /// The keys that it changes, which the process does not cache until it ends. Boxed, because each request is moved and
    /// most have none.
    #[expect(dead_code, reason = "its drop ends the write")]
    pub(super) near_write_guard: Option<Box<NearWriteGuard>>,
}

/// The keys of requests in flight that may still have an older value.
#[derive(Debug, Default)]
pub(in crate::engine::connection) struct UncertainOnLoss {
    /// Those that the call writes.
    pub(super) keys: WrittenKeys,
    /// Those of earlier calls, which are removed before it.
    pub(super) removals: Vec<OwnedKey>,
}

impl InFlightRequest {
    pub(super) fn new(receiver: ReplyReceiver, range: ByteRange) -> Self {
        Self {
            receiver,
            range,
            replies_left: 1,
            awaits_first_reply: true,
            is_repeatable: false,
            was_buffered: false,
            uncertain_on_loss: None,
            near_write_guard: None,
        }
    }

    /// The call and its attempt, unless it is abandoned or internal.
    pub(super) fn ticket_and_attempt(&self) -> Option<(Ticket, Attempt)> {
        match self.receiver {
            ReplyReceiver::Call(ticket, attempt) => Some((ticket, attempt)),
            ReplyReceiver::Abandoned | ReplyReceiver::Acknowledgement(_) => None,
        }
    }

    /// Records the keys that may still have an older value, and that its removals were not acknowledged.
    pub(super) fn record_uncertain_keys(&self, sent_bytes: u64, uncertain: &UncertainKeys) {
        let Some(uncertain_on_loss) = &self.uncertain_on_loss else {
            return;
        };
        if self.range.begin_offset < sent_bytes {
            uncertain.add(uncertain_on_loss.keys.iter());
        }
        uncertain.end_removal(uncertain_on_loss.removals.clone(), false);
    }

    /// The writes from the write buffer of which not a byte was sent.
    pub(super) fn take_unsent_buffered_writes(&mut self, sent_bytes: u64) -> Option<PendingWrites> {
        match &mut self.receiver {
            ReplyReceiver::Acknowledgement(pending_writes)
                if self.was_buffered && self.range.begin_offset >= sent_bytes =>
            {
                Some(std::mem::take(&mut **pending_writes))
            }
            _ => None,
        }
    }

    /// The error for the caller of a request without a reply, and whether it counts against the server's health.
    pub(super) fn failure_without_reply(
        &self,
        attempt: Attempt,
        no_reply_reason: NoReplyReason<'_>,
        progress: WireProgress,
        (server, is_reused): (&ServerState, bool),
    ) -> Failure {
        let is_opening = matches!(self.receiver, ReplyReceiver::Call(Ticket::OPENING, _));
        let failed_request = FailedRequest {
            // A peer that closes the connection during the login may still know meta commands.
            stage: if is_opening && !progress.awaits_login {
                retry::FailureStage::Probing
            } else {
                retry::FailureStage::RoundTrip
            },
            is_reused,
            has_no_reply_bytes: progress.has_no_reply_bytes && self.awaits_first_reply,
            was_sent: self.range.begin_offset < progress.sent_bytes && !is_opening,
            is_repeatable: self.is_repeatable,
            was_retried: attempt.is_retry,
        };
        let phase = if is_opening {
            Phase::Connect
        } else if progress.sent_bytes < self.range.end_offset {
            Phase::Write
        } else {
            Phase::Read
        };
        let context = Context {
            server: server.name.clone(),
            phase,
            retry_is_safe: failed_request.retry_is_safe(),
        };
        let (cause, error) = match no_reply_reason {
            NoReplyReason::Closed { is_orderly, reason } => (
                FailureCause::Closed { is_orderly },
                Error::Unavailable(context, reason.to_owned()),
            ),
            NoReplyReason::Deadline => {
                let time_allowed = attempt.deadline.saturating_duration_since(attempt.started);
                (FailureCause::Deadline(time_allowed), Error::Deadline(context))
            }
        };
        let decision = failed_request.decide(cause);
        Failure { error, decision }
    }
}
