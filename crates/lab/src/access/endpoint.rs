//! Where a server listens: a TCP address or the path of a unix socket.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A TCP address.
    Tcp(SocketAddr),
    /// The path of a unix socket.
    Unix(PathBuf),
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

impl Endpoint {
    /// The server at `host:port`, `unix:PATH` or a path with a slash.
    ///
    /// Of a name with several addresses this is the first, in their order, that accepts a connection within `timeout`,
    /// so that all connections of a measurement reach the same server; if none does, the first of all.
    ///
    /// # Errors
    /// The text has no port, or the name is not known.
    pub(crate) fn find(text: &str, timeout: Duration) -> io::Result<Self> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(path.into()));
        }
        if text.contains('/') {
            return Ok(Self::Unix(text.into()));
        }
        let addresses: Vec<SocketAddr> = text.to_socket_addrs()?.collect();
        let address = find_reachable(&addresses, timeout).ok_or(io::ErrorKind::NotFound)?;
        Ok(Self::Tcp(address))
    }
}

fn find_reachable(addresses: &[SocketAddr], timeout: Duration) -> Option<SocketAddr> {
    if let [only] = addresses {
        return Some(*only);
    }
    let accepts = |address: &&SocketAddr| TcpStream::connect_timeout(address, timeout).is_ok();
    let reachable = addresses.iter().find(accepts);
    reachable.or_else(|| addresses.first()).copied()
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    #[test]
    fn of_several_addresses_the_first_that_accepts_a_connection_is_taken() {
        // A port that is taken and not listened on, so that no other process can.
        let closed = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&closed, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let closed_address = SocketAddr::try_from(getsockname(&closed).unwrap()).unwrap();
        let listeners = [(), ()].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [second, third] = listeners.each_ref().map(|l| l.local_addr().unwrap());
        let reachable = find_reachable(&[closed_address, second, third], TIMEOUT);
        assert_eq!(reachable, Some(second));
        let unreachable = [closed_address, closed_address];
        assert_eq!(find_reachable(&unreachable, TIMEOUT), Some(closed_address));
        assert_eq!(find_reachable(&[], TIMEOUT), None);
    }

    #[test]
    fn reads_addresses_and_paths() {
        let tcp = Endpoint::find("127.0.0.1:11211", TIMEOUT).unwrap();
        assert_eq!(tcp, Endpoint::Tcp(([127, 0, 0, 1], 11211).into()));
        for path in ["unix:/tmp/a.sock", "/tmp/a.sock"] {
            let unix = Endpoint::find(path, TIMEOUT).unwrap();
            assert_eq!(unix, Endpoint::Unix("/tmp/a.sock".into()));
            assert_eq!(unix.to_string(), "/tmp/a.sock");
        }
        assert!(Endpoint::find("no-port", TIMEOUT).is_err());
    }
}
