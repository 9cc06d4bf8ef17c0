//! What a command requires of its connection, besides sending the reply.

use crate::session::dump::Dump;
use crate::shared::connection_info::CloseReason;
use crate::shared::watchers::WatchFilter;

/// How the connection continues after a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ConnectionEffect {
    /// It was executed; the connection continues.
    Done,
    /// Send the pending output and close.
    Close(CloseReason),
    /// From now on the connection is a log of events.
    Watch(WatchFilter),
    /// The connection receives a dump.
    Dump(Dump),
}
