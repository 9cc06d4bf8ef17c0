//! Where a server listens: a TCP address or the path of a unix socket.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

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

impl FromStr for Endpoint {
    type Err = io::Error;

    /// `host:port`, or `unix:PATH`, or a path with a slash; resolves names.
    fn from_str(text: &str) -> io::Result<Self> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(path.into()));
        }
        if text.contains('/') {
            return Ok(Self::Unix(text.into()));
        }
        let mut addresses = text.to_socket_addrs()?;
        let address = addresses.next().ok_or(io::ErrorKind::NotFound)?;
        Ok(Self::Tcp(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_addresses_and_paths() {
        let tcp = "127.0.0.1:11211".parse::<Endpoint>().unwrap();
        assert_eq!(tcp, Endpoint::Tcp(([127, 0, 0, 1], 11211).into()));
        for path in ["unix:/tmp/a.sock", "/tmp/a.sock"] {
            let unix = path.parse::<Endpoint>().unwrap();
            assert_eq!(unix, Endpoint::Unix("/tmp/a.sock".into()));
            assert_eq!(unix.to_string(), "/tmp/a.sock");
        }
        assert!("no-port".parse::<Endpoint>().is_err());
    }
}
