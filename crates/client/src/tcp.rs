//! What is set on the TCP sockets of connections, whoever opens them.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt;

/// Why they are refused with a unix socket.
pub(crate) const NO_UNIX: &str = "a unix socket has no TCP keep-alive; leave keepalive= out";

/// `MAX_TCP_KEEPIDLE` and `MAX_TCP_KEEPINTVL` of Linux.
const KEEPALIVE_S_MAX: u16 = 32_767;

/// The options of a connection's TCP socket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TcpOptions {
    /// How long a connection is silent before it is probed, and from then on between two probes, in whole seconds from
    /// 1 to 32,767; `None`: as the system has it. A connection whose peer is gone ends by the probes.
    pub keepalive: Option<Duration>,
}

impl TcpOptions {
    /// Sets them on a socket.
    pub(crate) fn set_on(self, socket: impl AsFd) -> Result<(), Errno> {
        // A request is one write; holding it back for more would cost 40 ms.
        sockopt::set_tcp_nodelay(&socket, true)?;
        sockopt::set_socket_keepalive(&socket, true)?;
        let Some(interval_s) = self.keepalive_s() else { return Ok(()) };
        let interval = Duration::from_secs(interval_s.into());
        sockopt::set_tcp_keepidle(&socket, interval)?;
        sockopt::set_tcp_keepintvl(&socket, interval)
    }

    /// The interval of keep-alive within the bounds of Linux.
    fn keepalive_s(self) -> Option<u16> {
        let whole_seconds =
            |interval: Duration| interval.as_secs().clamp(1, KEEPALIVE_S_MAX.into());
        self.keepalive.map(|interval| whole_seconds(interval) as u16)
    }

    /// Them as `setsockopt` takes them, for a socket of another language's event loop: the names of the level and of
    /// the option, and the value. Such loops turn Nagle's algorithm off themselves.
    pub fn named(self) -> Vec<(&'static str, &'static str, u32)> {
        let mut named = vec![("SOL_SOCKET", "SO_KEEPALIVE", 1)];
        if let Some(interval_s) = self.keepalive_s() {
            named.push(("IPPROTO_TCP", "TCP_KEEPIDLE", interval_s.into()));
            named.push(("IPPROTO_TCP", "TCP_KEEPINTVL", interval_s.into()));
        }
        named
    }
}
