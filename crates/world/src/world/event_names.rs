//! The names under which errors and faults are counted.

use glasscache_client::Error;

use crate::plan::{InjectedFault, Misbehaviour};

/// The name of an error.
pub(super) fn error_name(error: &Error) -> &'static str {
    match error {
        Error::Unavailable(..) => "unavailable",
        Error::Deadline(_) => "deadline",
        Error::Protocol { .. } => "protocol",
        Error::Refused { .. } => "refused",
        Error::LoginRefused { .. } => "login refused",
        Error::TooLarge { .. } => "too large",
        Error::Unsupported { .. } => "unsupported",
        Error::Closed => "closed",
        _ => "other error",
    }
}

/// The name of a fault.
pub(super) fn fault_name(fault: InjectedFault) -> &'static str {
    match fault {
        InjectedFault::Reset(_) => "fault: reset",
        InjectedFault::ResetToClient(_) => "fault: reset to client",
        InjectedFault::ResetToServer(_) => "fault: reset to server",
        InjectedFault::Close(_) => "fault: close",
        InjectedFault::Pause(..) => "fault: pause",
        InjectedFault::Unreachable(..) => "fault: unreachable",
        InjectedFault::Restart { .. } => "fault: restart",
        InjectedFault::CleanRestart { .. } => "fault: clean restart",
        InjectedFault::Down(..) => "fault: down",
        InjectedFault::CutReply(..) => "fault: cut reply",
        InjectedFault::KillInReply(..) => "fault: kill in reply",
        InjectedFault::CutRequest(..) => "fault: cut request",
        InjectedFault::Misbehave { misbehaviour: Misbehaviour::Flood, .. } => {
            "fault: flood of refusals"
        }
        InjectedFault::Misbehave { .. } => "fault: misbehave",
        InjectedFault::Fill(_) => "fault: fill",
        InjectedFault::ServerClock(..) => "fault: server clock",
        InjectedFault::WallClock(..) => "fault: wall clock",
        InjectedFault::Freeze { .. } => "fault: freeze",
        InjectedFault::Fork { .. } => "fault: fork",
    }
}
