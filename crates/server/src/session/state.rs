//! The position of a session in its stream, and how a run of it can end.

use glasscache_protocol::binary::{MAGIC_REQUEST, OpcodeAndOpaque};
use glasscache_protocol::command::GetHead;
use glasscache_store::Reservation;

use crate::session::connection_effect::ConnectionEffect;
use crate::session::dump::Dump;
use crate::session::execute::store::PendingWrite;
use crate::session::execute::{StopReason, StoppedLookup};
use crate::session::output::OutputPosition;
use crate::shared::attempt_queue::Queued;
use crate::shared::config::Protocols;
use crate::shared::connection_info::{CloseReason, ConnectionInfo};
use crate::shared::logins::{Attempt, Logins};
use crate::shared::peer_memory::Charge;
use crate::shared::watchers::WatchFilter;

/// Bytes kept for an upload in addition to its parsed line and its value, rounded up: its state here and in the
/// store.
pub(super) const UPLOAD_STATE_BYTES: usize = 512;

/// The position of one connection in its stream.
#[derive(Default)]
pub(crate) struct Session {
    pub(super) state: State,
    pub(super) protocol: Protocol,
}

/// The protocol of a connection, which the first byte of its client decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Protocol {
    /// Nothing has been received yet.
    #[default]
    Unknown,
    /// Classic text and meta.
    Text,
    /// The binary protocol.
    Binary,
}

impl Protocol {
    /// The protocol of a stream with this first byte.
    pub(super) fn from_first_byte(first_byte: u8) -> Protocol {
        if first_byte == MAGIC_REQUEST { Protocol::Binary } else { Protocol::Text }
    }

    /// Why the connection is closed, if the settings do not allow the protocol.
    pub(super) fn refusal_reason(self, allowed: Protocols) -> Option<CloseReason> {
        match (self, allowed) {
            (Protocol::Binary, Protocols::Text) => Some(CloseReason::BinaryProtocol),
            (Protocol::Text, Protocols::Binary) => Some(CloseReason::MalformedInput),
            _ => None,
        }
    }
}

#[derive(Default)]
pub(super) enum State {
    /// At the start of a line or packet.
    #[default]
    Command,
    /// After the head of a get.
    PendingGet(PendingGet),
    /// This many bytes of a refused value are still to be skipped.
    SkipRefusedValue(u64),
    /// A large value is being received into the store.
    Upload(Box<Upload>),
    /// Before the header of a proxy.
    ProxyHeader,
    /// Before the login.
    Login(Box<LoginState>),
    /// At the start of a line or packet of a connection that may only read statistics.
    Statistics,
    /// After an invalid value length: the next bytes may be the value, so nothing is executed.
    Desynchronised,
    /// Nothing more is served.
    Closed,
}

/// What a connection may do from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Everything.
    All,
    /// Nothing but a login, and then everything.
    Login,
    /// Nothing but to read statistics.
    Statistics,
}

impl Access {
    /// That of a connection.
    pub(crate) fn of(connection: &ConnectionInfo, logins: &Logins) -> Access {
        if connection.serves_statistics_only {
            Access::Statistics
        } else if logins.are_required() {
            Access::Login
        } else {
            Access::All
        }
    }
}

impl State {
    /// The state in which a connection begins.
    pub(super) fn initial(access: Access) -> State {
        match access {
            Access::All => State::Command,
            Access::Login => State::Login(Box::default()),
            Access::Statistics => State::Statistics,
        }
    }
}

/// How a run ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RunEnd {
    /// The rest of the input, if any, is an incomplete command.
    NeedsInput,
    /// The rest of the input is an incomplete command of this many bytes.
    NeedsBytes(usize),
    /// The next command needs this many bytes of memory that are not available: call again when there are.
    WaitForMemory(usize),
    /// Send the output, then call again.
    Flush,
    /// The connection has used its quota: serve others first, then call again.
    Yield,
    /// A login is being verified: call again when it is decided, receive nothing meanwhile.
    WaitForLogin,
    /// Other uploads hold all the upload memory: call again soon, receive nothing meanwhile.
    WaitForUpload,
    /// The next command writes, and there is no free segment for it yet: call again when other workers have passed,
    /// receive nothing meanwhile.
    WaitForSegment,
    /// Send the output and close.
    Close(CloseReason),
    /// From now on the connection is a log of events.
    Watch(WatchFilter),
    /// Send a dump, then continue.
    Dump(Dump),
}

/// How much input one run consumed and how it ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) used_bytes: usize,
    pub(crate) run_end: RunEnd,
}

/// A get that is being served.
#[derive(Clone, Copy)]
pub(super) struct PendingGet {
    pub(super) head: GetHead,
    /// Key bytes so far, bounded by [`GET_KEYS_BYTES_MAX`].
    pub(super) key_bytes: usize,
    /// Where its reply begins in the output; `None` before its first key and after a slice was sent.
    pub(super) reply_start: Option<OutputPosition>,
    /// Whether a key has been looked up.
    pub(super) has_started: bool,
}

/// A connection that has to log in.
#[derive(Default)]
pub(super) struct LoginState {
    /// The attempt that is being verified.
    pub(super) attempt: Option<Queued<Attempt>>,
    /// The binary request whose response reports the outcome.
    pub(super) request: OpcodeAndOpaque,
    /// Whether PLAIN was named without its message, which the next request brings.
    pub(super) expects_step: bool,
    /// Failed attempts since the connection was last logged in.
    pub(super) failures: u32,
}

/// A large value that is received into the store.
pub(crate) struct Upload {
    /// Its parsed line.
    pub(super) pending_write: PendingWrite,
    pub(super) reservation: Reservation,
    /// The charge for what is kept besides its bytes.
    pub(super) _charge: Charge,
}

impl RunEnd {
    /// How a run ends if its lookups were stopped.
    pub(super) fn from_stopped(stopped: &StoppedLookup<'_>) -> RunEnd {
        match stopped.reason {
            StopReason::SliceFull => RunEnd::Flush,
            StopReason::Memory(bytes) => RunEnd::WaitForMemory(bytes),
            StopReason::Segment => RunEnd::WaitForSegment,
        }
    }

    /// How a run ends after a command; `None` if it continues.
    pub(super) fn after_command(effect: ConnectionEffect) -> Option<RunEnd> {
        match effect {
            ConnectionEffect::Continue => None,
            ConnectionEffect::Close(reason) => Some(RunEnd::Close(reason)),
            ConnectionEffect::Watch(filter) => Some(RunEnd::Watch(filter)),
            ConnectionEffect::Dump(dump) => Some(RunEnd::Dump(dump)),
        }
    }
}
