//! What other threads and clients can see of a connection: its number, its peer, its state, the reason for its close.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use crate::shared::held_memory::HeldMemory;

/// Identifies a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectionId {
    /// Its file descriptor, as memcached reports it; reused after a close.
    pub(crate) descriptor: i32,
    /// Its number since the start, never reused.
    pub(crate) serial: u64,
}

/// The peer of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Peer {
    Tcp(SocketAddr),
    Unix,
}

/// The visible data of a connection (`stats conns`, `watch connevents`).
#[derive(Debug)]
pub(crate) struct ConnectionInfo {
    pub(crate) id: ConnectionId,
    /// The other end of the socket.
    socket_peer: Peer,
    /// The client's address, as a proxy named it.
    proxied_client: OnceLock<SocketAddr>,
    /// Whether it is a known proxy's, and begins with a header of the PROXY protocol.
    pub(crate) has_proxy_header: bool,
    /// Whether its listener serves statistics alone, to clients without a login.
    pub(crate) serves_statistics_only: bool,
    /// The listening address that accepted it, as an index into the server's list.
    pub(crate) listener_index: usize,
    /// The second of its last command.
    pub(crate) last_command_s: AtomicU32,
    /// What it holds of the memory that all connections share.
    pub(crate) held_memory: HeldMemory,
    /// Whether it has to log in before anything else; see [`super::connections::Connections::set_awaits_login`].
    pub(crate) awaits_login: AtomicBool,
    /// Whether it lost its place to newer connections before it logged in; see
    /// [`super::connections::Connections::displace_unauthenticated`].
    pub(crate) is_displaced: AtomicBool,
    /// Whether it has TLS and has not sent a request; see [`super::connections::Connections::add_unproven`].
    pub(crate) is_unproven: AtomicBool,
    state: AtomicU8,
}

/// memcached's names of the states of a connection.
const STATE_NAMES: [&str; 3] = ["conn_read", "conn_nread", "conn_watch"];
/// States of [`ConnectionInfo::set_state`].
pub(crate) const STATE_READING: u8 = 0;
pub(crate) const STATE_READING_VALUE: u8 = 1;
pub(crate) const STATE_WATCHING: u8 = 2;

impl ConnectionInfo {
    pub(crate) fn new(
        id: ConnectionId,
        socket_peer: Peer,
        listener_index: usize,
        now_s: u32,
    ) -> ConnectionInfo {
        ConnectionInfo {
            id,
            socket_peer,
            proxied_client: OnceLock::new(),
            has_proxy_header: false,
            serves_statistics_only: false,
            listener_index,
            last_command_s: AtomicU32::new(now_s),
            held_memory: HeldMemory::default(),
            awaits_login: AtomicBool::new(false),
            is_displaced: AtomicBool::new(false),
            is_unproven: AtomicBool::new(false),
            state: AtomicU8::new(0),
        }
    }

    /// The client: the other end of the socket, or the address that the proxy there sent.
    pub(crate) fn client(&self) -> Peer {
        match self.proxied_client.get() {
            Some(address) => Peer::Tcp(*address),
            None => self.socket_peer.clone(),
        }
    }

    /// The client that a proxy named.
    pub(crate) fn proxied_client(&self) -> Option<SocketAddr> {
        self.proxied_client.get().copied()
    }

    /// Records the client that a proxy named.
    pub(crate) fn set_proxied_client(&self, client: SocketAddr) {
        // A connection has one header.
        let _ = self.proxied_client.set(client);
    }

    /// memcached's name of its state.
    pub(crate) fn state_name(&self) -> &'static str {
        let state_index = usize::from(self.state.load(Ordering::Relaxed));
        STATE_NAMES.get(state_index).copied().unwrap_or("conn_read")
    }

    pub(crate) fn set_state(&self, state: u8) {
        self.state.store(state, Ordering::Relaxed);
    }
}

/// Why a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// The client closed it.
    Normal,
    /// The socket failed.
    Error,
    /// The input cannot be parsed any more.
    MalformedInput,
    /// The input is the binary protocol, which `-B ascii` excludes.
    BinaryProtocol,
    /// It is a proxy's and began without a header of the PROXY protocol, or did not send it in time.
    NoProxyHeader,
    /// It sent what cannot be a login, or too much.
    InputBeforeLogin,
    /// It sent a value to an address that serves statistics alone.
    NotStatistics,
    /// It did not log in in time.
    LoginTimeout,
    /// It had not logged in when newer connections needed its place.
    Displaced,
    /// Too many of its logins failed.
    LoginFailed,
    /// A record of TLS was malformed, or its contents had been changed on the way.
    MalformedTlsRecord,
    /// Its TLS handshake failed or took too long; the thread of the handshakes logs why.
    FailedTlsHandshake,
    /// It held memory that others needed and made no progress.
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

impl CloseReason {
    /// The name in `watch connevents`, which is memcached's.
    pub(crate) fn name(self) -> &'static str {
        match self {
            CloseReason::Normal => "normal",
            CloseReason::Error
            | CloseReason::MalformedInput
            | CloseReason::BinaryProtocol
            | CloseReason::NoProxyHeader
            | CloseReason::InputBeforeLogin
            | CloseReason::NotStatistics
            | CloseReason::LoginTimeout
            | CloseReason::Displaced
            | CloseReason::LoginFailed
            | CloseReason::MalformedTlsRecord
            | CloseReason::FailedTlsHandshake
            | CloseReason::Stalled => "error",
            CloseReason::IdleTimeout => "idle_timeout",
            CloseReason::Shutdown => "shutdown",
        }
    }

    /// Why the connection was closed, for the log; `None` if the client closed it or the server stops.
    pub(crate) fn log_message(self) -> Option<&'static str> {
        Some(match self {
            CloseReason::Normal | CloseReason::Shutdown => return None,
            CloseReason::Error => "the socket failed",
            CloseReason::MalformedInput => {
                "a request cannot be followed (too long, or not the protocol)"
            }
            CloseReason::BinaryProtocol => {
                "it speaks the binary protocol, which protocol (-B) excludes; use -B auto (with -Y: add -S), or set the client to text"
            }
            CloseReason::NoProxyHeader => {
                "it did not begin with a header of the PROXY protocol, which proxies (--proxy-addresses) have to send"
            }
            CloseReason::InputBeforeLogin => {
                "it sent something else than a login, or more than 512 bytes, before it logged in"
            }
            CloseReason::NotStatistics => {
                "it sent a value to an address that serves statistics alone (noauth:)"
            }
            CloseReason::LoginTimeout => "it did not log in within a second",
            CloseReason::Displaced => {
                "it had not logged in, and newer connections that have to log in needed its place"
            }
            CloseReason::LoginFailed => "its login failed too often",
            CloseReason::MalformedTlsRecord => "a TLS record could not be decrypted",
            CloseReason::FailedTlsHandshake => "its TLS handshake failed",
            CloseReason::Stalled => "it made no progress and kept memory that others needed",
            CloseReason::IdleTimeout => "it was silent for longer than -o idle_timeout",
        })
    }
}
