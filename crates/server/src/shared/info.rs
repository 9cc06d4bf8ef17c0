//! What others may know of a connection: its name, its peer, what it is doing, why it ends.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crate::shared::held_memory::HeldMemory;

/// What names a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectionId {
    /// Its file descriptor, as memcached shows it; used again after a close.
    pub(crate) descriptor: i32,
    /// Its number since the start, never used again.
    pub(crate) serial: u64,
}

/// Who is at the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Peer {
    Tcp(SocketAddr),
    Unix,
}

/// What others may know of a connection (`stats conns`, `watch connevents`).
#[derive(Debug)]
pub(crate) struct Info {
    pub(crate) id: ConnectionId,
    pub(crate) peer: Peer,
    /// The listening address it came through, as an index into the server's list.
    pub(crate) listener: usize,
    /// The second of its last command.
    pub(crate) last_command: AtomicU32,
    /// What it holds of the memory that all share.
    pub(crate) held_memory: HeldMemory,
    state: AtomicU8,
}

/// What a connection is doing, in memcached's words.
const STATES: [&str; 3] = ["conn_read", "conn_nread", "conn_watch"];
/// States of [`Info::set_state`].
pub(crate) const READING: u8 = 0;
pub(crate) const READING_VALUE: u8 = 1;
pub(crate) const WATCHING: u8 = 2;

impl Info {
    pub(crate) fn new(id: ConnectionId, peer: Peer, listener: usize, now: u32) -> Info {
        Info {
            id,
            peer,
            listener,
            last_command: AtomicU32::new(now),
            held_memory: HeldMemory::default(),
            state: AtomicU8::new(0),
        }
    }

    /// What the connection is doing.
    pub(crate) fn state(&self) -> &'static str {
        let state = usize::from(self.state.load(Ordering::Relaxed));
        STATES.get(state).copied().unwrap_or("conn_read")
    }

    pub(crate) fn set_state(&self, state: u8) {
        self.state.store(state, Ordering::Relaxed);
    }
}

/// Why a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The client wanted it.
    Normal,
    /// The socket failed.
    Error,
    /// What came cannot be followed any more.
    Protocol,
    /// What came is the binary protocol.
    Binary,
    /// It kept memory that others needed and made no progress.
    Stalled,
    IdleTimeout,
    Shutdown,
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Peer::Tcp(address) => write!(f, "{address}"),
            Peer::Unix => f.write_str("a unix socket"),
        }
    }
}

impl Reason {
    /// The word of `watch connevents`, which are memcached's.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Reason::Normal => "normal",
            Reason::Error | Reason::Protocol | Reason::Binary | Reason::Stalled => "error",
            Reason::IdleTimeout => "idle_timeout",
            Reason::Shutdown => "shutdown",
        }
    }

    /// Why the connection was closed, for the log; `None` where the client wanted it or the server ends.
    pub(crate) fn sentence(self) -> Option<&'static str> {
        Some(match self {
            Reason::Normal | Reason::Shutdown => return None,
            Reason::Error => "the socket failed",
            Reason::Protocol => "a request cannot be followed (too long, or not the protocol)",
            Reason::Binary => {
                "it speaks the binary protocol, which is not supported; set the client to the text protocol"
            }
            Reason::Stalled => "it made no progress and kept memory that others needed",
            Reason::IdleTimeout => "it was silent for longer than -o idle_timeout",
        })
    }
}
