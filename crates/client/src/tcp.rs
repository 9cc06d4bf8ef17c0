//! What is set on the TCP sockets of connections, whoever opens them.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt;

use crate::error::Error;

/// Why the options are refused with a unix socket.
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
    /// Refuses what the system would not take.
    pub(crate) fn check(self) -> Result<(), Error> {
        let is_possible = self.keepalive.is_none_or(|interval| {
            interval.subsec_nanos() == 0
                && (1..=u64::from(KEEPALIVE_S_MAX)).contains(&interval.as_secs())
        });
        if is_possible {
            return Ok(());
        }
        let sentence = format!("keepalive: must be 1 to {KEEPALIVE_S_MAX} whole seconds");
        Err(Error::BadSetting(sentence))
    }

    /// Sets the options on a socket.
    pub(crate) fn set_on(self, socket: impl AsFd) -> Result<(), Errno> {
        // A request is one write; holding it back for more would cost 40 ms.
        sockopt::set_tcp_nodelay(&socket, true)?;
        sockopt::set_socket_keepalive(&socket, true)?;
        let Some(interval_s) = self.keepalive_s() else { return Ok(()) };
        let interval = Duration::from_secs(interval_s.into());
        sockopt::set_tcp_keepidle(&socket, interval)?;
        sockopt::set_tcp_keepintvl(&socket, interval)
    }

    fn keepalive_s(self) -> Option<u16> {
        self.keepalive.map(|interval| interval.as_secs() as u16)
    }

    /// The arguments of `setsockopt`, for sockets that a Python event loop opens: the name of the level, the name of
    /// the option, and the value. Event loops disable Nagle's algorithm themselves.
    pub fn named(self) -> Vec<(&'static str, &'static str, u32)> {
        let mut named = vec![("SOL_SOCKET", "SO_KEEPALIVE", 1)];
        if let Some(interval_s) = self.keepalive_s() {
            named.push(("IPPROTO_TCP", "TCP_KEEPIDLE", interval_s.into()));
            named.push(("IPPROTO_TCP", "TCP_KEEPINTVL", interval_s.into()));
        }
        named
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_that_the_system_does_not_take_is_refused() {
        let check = |keepalive| TcpOptions { keepalive }.check().is_ok();
        for seconds in [1, 60, 32_767] {
            assert!(check(Some(Duration::from_secs(seconds))));
        }
        for interval in [Duration::ZERO, Duration::from_millis(1500), Duration::from_secs(32_768)] {
            assert!(!check(Some(interval)), "{interval:?}");
        }
        assert!(check(None));
    }
}
