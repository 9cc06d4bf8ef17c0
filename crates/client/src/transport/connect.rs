//! Connects without waiting: the socket is polled for writing until it is connected.

use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::net::{connect, socket_with, sockopt};

use super::resolver::Resolver;
use crate::address::Endpoint;
use crate::tcp::TcpOptions;
use crate::tls::Tls;

/// The server to connect to.
#[derive(Clone, Copy)]
pub(crate) struct ConnectTarget<'s> {
    pub(crate) endpoint: &'s Endpoint,
    pub(crate) resolver: &'s Resolver,
    pub(crate) tls: Option<&'s Tls>,
    pub(crate) tcp: TcpOptions,
}

impl ConnectTarget<'_> {
    /// These addresses of it, beginning with the one that took the last connection.
    pub(crate) fn candidates(&self, addresses: Vec<SocketAddr>) -> CandidateAddresses {
        CandidateAddresses {
            addresses_left: self.resolver.last_connected_first(addresses).into_iter(),
            tcp: self.tcp,
            ..CandidateAddresses::default()
        }
    }
}

/// Why no connection was begun.
pub(crate) enum ConnectError {
    /// The resolver took until the deadline.
    Deadline,
    /// It failed, for this reason.
    Failed(String),
}

/// Begins to connect. The socket does not block; it is connected when it can be written to and
/// [`finish_connect`] confirms it. If that fails, or takes too long, the candidates are tried next.
pub(crate) fn begin_connect(
    target: ConnectTarget<'_>,
    (deadline, lookup_deadline): (Instant, Instant),
) -> Result<(OwnedFd, CandidateAddresses), ConnectError> {
    match target.endpoint {
        Endpoint::Tcp(host, port) => {
            let addresses =
                target.resolver.find(host, *port, lookup_deadline).ok_or(ConnectError::Deadline)?;
            let addresses = addresses.map_err(ConnectError::Failed)?;
            let mut candidates = target.candidates(addresses);
            let fd = candidates.begin_first(deadline)?;
            Ok((fd, candidates))
        }
        Endpoint::Unix(path) => {
            let connect_error = |error: Errno| ConnectError::Failed(error.to_string());
            let address = SocketAddrUnix::new(path.as_path()).map_err(connect_error)?;
            let fd = new_socket(AddressFamily::UNIX).map_err(connect_error)?;
            match connect(&fd, &address) {
                Ok(()) | Err(Errno::INPROGRESS) => Ok((fd, CandidateAddresses::default())),
                Err(error) => Err(connect_error(error)),
            }
        }
    }
}

/// The addresses of a name, tried one after the other until one takes the connection.
///
/// One that fails is followed by the next at once, one that is silent after its share of the time that is left.
#[derive(Debug, Default)]
pub(crate) struct CandidateAddresses {
    addresses_left: std::vec::IntoIter<SocketAddr>,
    current: Option<SocketAddr>,
    tcp: TcpOptions,
    /// When the share of the current one is over; none if it is the last.
    attempt_ends_at: Option<Instant>,
}

impl CandidateAddresses {
    /// The address that is being tried.
    pub(crate) fn current(&self) -> Option<SocketAddr> {
        self.current
    }

    /// Begins with the first address.
    pub(crate) fn begin_first(&mut self, deadline: Instant) -> Result<OwnedFd, ConnectError> {
        self.begin_next(deadline, "the name has no address".into()).map_err(ConnectError::Failed)
    }

    /// Begins with the next address whose connection does not fail at once; if there is none, returns why the last
    /// one failed, which is `previous_failure` if none is left.
    pub(crate) fn begin_next(
        &mut self,
        deadline: Instant,
        previous_failure: String,
    ) -> Result<OwnedFd, String> {
        let mut last_failure = previous_failure;
        while let Some(address) = self.addresses_left.next() {
            match begin_tcp(&address, self.tcp) {
                Ok(fd) => {
                    self.current = Some(address);
                    self.attempt_ends_at =
                        attempt_end(self.addresses_left.len(), Instant::now(), deadline);
                    return Ok(fd);
                }
                Err(error) => last_failure = error.to_string(),
            }
        }
        Err(last_failure)
    }

    /// Until when the current address may be waited for.
    pub(crate) fn wait_deadline(&self, deadline: Instant) -> Instant {
        self.attempt_ends_at.map_or(deadline, |attempt_end| attempt_end.min(deadline))
    }

    /// Whether the current address has had its share of time and another one is left.
    pub(crate) fn is_next_due(&self, now: Instant) -> bool {
        self.attempt_ends_at.is_some_and(|attempt_end| attempt_end <= now)
    }
}

/// When the attempt at an address ends that `addresses_left` others follow: each gets an equal share of the time.
fn attempt_end(addresses_left: usize, now: Instant, deadline: Instant) -> Option<Instant> {
    let attempts_left = u32::try_from(addresses_left).ok()?.checked_add(1)?;
    let time_left = deadline.saturating_duration_since(now);
    (attempts_left > 1).then(|| now + time_left / attempts_left)
}

fn begin_tcp(address: &SocketAddr, tcp: TcpOptions) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = new_socket(family)?;
    tcp.set_on(&fd)?;
    match connect(&fd, address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(fd),
        Err(error) => Err(error),
    }
}

fn new_socket(family: AddressFamily) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(family, SocketType::STREAM, flags, None)
}

/// Whether a socket that became writable is connected; if so it blocks from now on.
pub(crate) fn finish_connect(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    sockopt::socket_error(fd)??;
    rustix::io::ioctl_fionbio(fd, false)
}
