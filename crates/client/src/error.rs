//! What can go wrong for a caller: one variant per thing that a caller can act on.

use std::fmt;

use crate::pipeline::{Fault, Refusal};

/// How far a call had come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Waiting for a free connection.
    Wait,
    /// Finding the host or connecting.
    Connect,
    /// Sending the request.
    Write,
    /// Waiting for the reply.
    Read,
}

impl Phase {
    /// The name of the phase.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Connect => "connect",
            Self::Write => "write",
            Self::Read => "read",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where and when a call ended early, and whether the server may have acted on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    /// The server, as it was named.
    pub server: String,
    /// How far the call had come.
    pub phase: Phase,
    /// Whether the call may be made again: it was not sent, or it is idempotent.
    pub retry_is_safe: bool,
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let retry_text =
            if self.retry_is_safe { "a retry is safe" } else { "it may have been done" };
        write!(f, "{} (phase {}; {retry_text})", self.server, self.phase)
    }
}

/// A refusal as the server wrote it; for an unknown command that is only `ERROR`.
fn refusal_text(refusal: &Refusal) -> &str {
    match refusal.message.as_str() {
        "" => "ERROR (it does not know the command)",
        message => message,
    }
}

/// What a bulk call did not do: the index of the key in the call, and why.
pub type Failures = Vec<(usize, Error)>;

/// Errors of the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The server cannot be reached, or closed the connection.
    #[error("server unavailable: {0}: {1}")]
    Unavailable(Context, String),
    /// The call's time was over.
    #[error("deadline exceeded: {0}")]
    Deadline(Context),
    /// The reply does not fit the request; the connection was closed.
    #[error("protocol broken by {server}: {fault}; the connection was closed")]
    Protocol {
        /// The server, as it was named.
        server: String,
        /// What did not fit.
        fault: Fault,
    },
    /// The server refused the request.
    #[error("refused by {server}: {}", refusal_text(.refusal))]
    Refused {
        /// The server, as it was named.
        server: String,
        /// Its message.
        refusal: Refusal,
    },
    /// The server did not accept the user and the password.
    #[error("login failed at {server}: {}; check user and password", refusal_text(.refusal))]
    LoginRefused {
        /// The server, as it was named.
        server: String,
        /// Its message.
        refusal: Refusal,
    },
    /// The value is larger than the server takes.
    #[error("value too large: {bytes} bytes under {key:?}, {}", limit_text(*.limit))]
    TooLarge {
        /// The key.
        key: String,
        /// Length of the value as it was to be stored.
        bytes: usize,
        /// The bound that is known, 0 if only the server knows it.
        limit: u64,
    },
    /// The key cannot go on the wire.
    #[error("bad key {key:?}: {reason}")]
    BadKey {
        /// The key, cut to what can be printed.
        key: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A write of a bulk call was not done, for its condition did not hold.
    #[error("not stored by {server}: {outcome:?}")]
    NotStored {
        /// The server, as it was named.
        server: String,
        /// Which condition.
        outcome: crate::write_outcome::WriteOutcome,
    },
    /// The server, or the proxy before it, has no command for this.
    #[error("{server} has no meta commands: {what} needs them")]
    Unsupported {
        /// The server, as it was named.
        server: String,
        /// The operation.
        what: &'static str,
    },
    /// Bytes were to be joined to a value of another form, which is left as it is.
    #[error(
        "append and prepend join plain text or bytes: the value under {key:?} is compressed, or of another type (flags {flags:#x}); read it, and set it with what is to be added"
    )]
    NotExtendable {
        /// The key on the wire.
        key: String,
        /// The client flags of the value.
        flags: u32,
    },
    /// A setting of the client is invalid.
    #[error("{0}")]
    BadSetting(String),
    /// A signal came and its handler ended the call.
    #[error("interrupted")]
    Interrupted,
    /// The client was closed.
    #[error("the client is closed")]
    Closed,
}

fn limit_text(limit: u64) -> String {
    match limit {
        0 => "more than the server takes (its -I)".to_owned(),
        limit => format!("limit {limit}"),
    }
}
