//! How a connection continues after a command whose reply is written.

use crate::session::dump::Dump;
use crate::shared::connection_info::CloseReason;
use crate::shared::watchers::WatchFilter;

/// What the connection does after a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ConnectionEffect {
    /// The connection takes further commands.
    Continue,
    /// Send the pending output and close.
    Close(CloseReason),
    /// From now on the connection is a log of events.
    Watch(WatchFilter),
    /// The connection receives a dump.
    Dump(Dump),
}
