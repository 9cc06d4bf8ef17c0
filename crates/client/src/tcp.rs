//! What is set on the TCP sockets of connections, whoever opens them.

use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::sockopt;

/// Why they are refused with a unix socket.
pub(crate) const NO_UNIX: &str = "a unix socket has no options of TCP";

/// The options of a connection's TCP socket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TcpOptions {}

impl TcpOptions {
    /// Sets them on a socket.
    pub(crate) fn set_on(self, socket: impl AsFd) -> Result<(), Errno> {
        // A request is one write; holding it back for more would cost 40 ms.
        sockopt::set_tcp_nodelay(&socket, true)?;
        sockopt::set_socket_keepalive(&socket, true)
    }

    /// Them as `setsockopt` takes them, for a socket of another language's event loop: the names of the level and of
    /// the option, and the value. Such loops turn Nagle's algorithm off themselves.
    pub fn named(self) -> Vec<(&'static str, &'static str, u32)> {
        vec![("SOL_SOCKET", "SO_KEEPALIVE", 1)]
    }
}
