//! Making a connection without waiting: a socket that is on its way, to be polled for writing.

use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::net::{connect, socket_with, sockopt};

use crate::address::{Place, resolve};

/// Why no connection was begun.
pub(crate) enum ConnectError {
    /// The resolver took until the deadline.
    Deadline,
    /// It failed, for this reason.
    Failed(String),
}

/// Begins to connect. The socket does not block; it is connected when it can be written to and
/// [`finish`] says so.
pub(crate) fn begin(place: &Place, deadline: Instant) -> Result<OwnedFd, ConnectError> {
    match place {
        Place::Tcp(host, port) => {
            let addresses = resolve(host, *port, deadline)
                .ok_or(ConnectError::Deadline)?
                .map_err(|error| ConnectError::Failed(format!("cannot resolve {host}: {error}")))?;
            begin_first(&addresses)
        }
        Place::Unix(path) => {
            let failed = |error: Errno| ConnectError::Failed(error.to_string());
            let address = SocketAddrUnix::new(path.as_path()).map_err(failed)?;
            let fd = new_socket(AddressFamily::UNIX).map_err(failed)?;
            match connect(&fd, &address) {
                Ok(()) | Err(Errno::INPROGRESS) => Ok(fd),
                Err(error) => Err(failed(error)),
            }
        }
    }
}

/// The first address whose connection is not refused on the spot.
pub(crate) fn begin_first(addresses: &[SocketAddr]) -> Result<OwnedFd, ConnectError> {
    let mut last = String::from("the name has no address");
    for address in addresses {
        match begin_tcp(address) {
            Ok(fd) => return Ok(fd),
            Err(error) => last = error.to_string(),
        }
    }
    Err(ConnectError::Failed(last))
}

fn begin_tcp(address: &SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let fd = new_socket(family)?;
    // A request is one write; holding it back for more would cost 40 ms.
    sockopt::set_tcp_nodelay(&fd, true)?;
    sockopt::set_socket_keepalive(&fd, true)?;
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
pub(crate) fn finish(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    sockopt::socket_error(fd)??;
    rustix::io::ioctl_fionbio(fd, false)
}
