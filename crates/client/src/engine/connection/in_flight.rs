//! The requests in flight on a connection: who receives their replies, and which keys are uncertain if none comes.

use super::{Attempt, Ticket};
use crate::engine::pending_writes::PendingWrites;
use crate::engine::uncertain::{OwnedKey, WrittenKeys};
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
    /// The range of bytes of all output that it takes.
    pub(super) begin_offset: u64,
    pub(super) end_offset: u64,
    /// Replies that have not come.
    pub(super) replies_left: u32,
    /// No reply of it was returned to the driver yet.
    pub(super) awaits_first_reply: bool,
    pub(super) is_repeatable: bool,
    /// Quiet writes from the write buffer.
    pub(super) was_buffered: bool,
    /// What is uncertain until its reply; reads have none.
    pub(super) uncertain_on_loss: Option<Box<UncertainOnLoss>>,
    /// The keys that it changes, which are not kept in the process until it ends. Boxed, because each request is moved
    /// and most have none.
    #[expect(dead_code, reason = "its drop ends the write")]
    pub(super) near_write_guard: Option<Box<NearWriteGuard>>,
}

/// The keys of requests in flight that may be left with an older value.
#[derive(Debug, Default)]
pub(super) struct UncertainOnLoss {
    /// Those that the call writes.
    pub(super) keys: WrittenKeys,
    /// Those of earlier calls, which are removed before it.
    pub(super) removals: Vec<OwnedKey>,
}

impl InFlightRequest {
    pub(super) fn new(receiver: ReplyReceiver, begin_offset: u64) -> Self {
        Self {
            receiver,
            begin_offset,
            end_offset: begin_offset,
            replies_left: 1,
            awaits_first_reply: true,
            is_repeatable: false,
            was_buffered: false,
            uncertain_on_loss: None,
            near_write_guard: None,
        }
    }

    pub(super) fn into_repeatable(mut self) -> Self {
        self.is_repeatable = true;
        self
    }

    /// The call and its attempt, unless it is abandoned or internal.
    pub(super) fn ticket_and_attempt(&self) -> Option<(Ticket, Attempt)> {
        match self.receiver {
            ReplyReceiver::Call(ticket, attempt) => Some((ticket, attempt)),
            ReplyReceiver::Abandoned | ReplyReceiver::Acknowledgement(_) => None,
        }
    }
}
