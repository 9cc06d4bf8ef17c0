//! A handle by which a replacement is given up before its last message.

use std::sync::{Arc, Mutex};

use crate::shared::control_channel::ControlChannel;
use crate::shared::lock::lock;

/// Gives up a replacement from any thread, as long as the running server can continue.
#[derive(Clone, Default)]
pub struct Cancellation(Arc<Mutex<CancellationState>>);

#[derive(Default)]
struct CancellationState {
    decision: Decision,
    /// The channel to the running server.
    channel: Option<Arc<ControlChannel>>,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Decision {
    #[default]
    Undecided,
    Cancelled,
    Committing,
}

impl Cancellation {
    /// Makes the replacement fail, so that the running server continues. False if it is too late for that: the new
    /// server may own everything, and has to be stopped when it has started.
    pub fn cancel(&self) -> bool {
        let mut state = lock(&self.0);
        if state.decision == Decision::Committing {
            return false;
        }
        state.decision = Decision::Cancelled;
        if let Some(channel) = &state.channel {
            channel.shut_down();
        }
        true
    }

    /// Shuts this channel down when the replacement is cancelled, or now if it was.
    pub(crate) fn shut_down_when_cancelled(&self, channel: &Arc<ControlChannel>) {
        let mut state = lock(&self.0);
        if state.decision == Decision::Cancelled {
            channel.shut_down();
        }
        state.channel = Some(Arc::clone(channel));
    }

    /// From now on the replacement cannot be cancelled, and the channel is not kept open for that; false if it was
    /// cancelled before.
    pub(crate) fn begin_commit(&self) -> bool {
        let mut state = lock(&self.0);
        state.channel = None;
        if state.decision == Decision::Undecided {
            state.decision = Decision::Committing;
        }
        state.decision == Decision::Committing
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        lock(&self.0).decision == Decision::Cancelled
    }
}
