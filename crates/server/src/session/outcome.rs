//! What a command leads to beside its reply.

use crate::session::dump::Dump;
use crate::shared::info::Reason;
use crate::shared::watchers::WatchedKinds;

/// What a command means for its connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Answered; go on.
    Done,
    /// Send what there is and close.
    Close(Reason),
    /// The connection becomes a log.
    Watch(WatchedKinds),
    /// The connection receives a listing.
    Dump(Dump),
}
