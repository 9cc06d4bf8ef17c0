//! The names under which errors and faults are counted.

use glasscache_client::Error;

use crate::plan::{Fault, Misbehaviour};

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
pub(super) fn fault_name(fault: Fault) -> &'static str {
    match fault {
        Fault::Reset(_) => "fault: reset",
        Fault::ResetToClient(_) => "fault: reset to client",
        Fault::ResetToServer(_) => "fault: reset to server",
        Fault::Close(_) => "fault: close",
        Fault::Pause(..) => "fault: pause",
        Fault::Unreachable(..) => "fault: unreachable",
        Fault::Restart { .. } => "fault: restart",
        Fault::CleanRestart { .. } => "fault: clean restart",
        Fault::Down(..) => "fault: down",
        Fault::CutReply(..) => "fault: cut reply",
        Fault::KillInReply(..) => "fault: kill in reply",
        Fault::CutRequest(..) => "fault: cut request",
        Fault::Misbehave(_, Misbehaviour::Flood, _) => "fault: flood of refusals",
        Fault::Misbehave(..) => "fault: misbehave",
        Fault::Fill(_) => "fault: fill",
        Fault::ServerClock(..) => "fault: server clock",
        Fault::WallClock(..) => "fault: wall clock",
        Fault::Freeze(..) => "fault: freeze",
        Fault::Fork(_) => "fault: fork",
    }
}
