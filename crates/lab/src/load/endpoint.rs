//! Where a server listens, and a connection to it: TCP or a unix socket.
//!
//! On TCP the kernel stamps received data, so a read can report how long the data waited for it: this is the
//! generator's share of a latency. Unix sockets have no such stamps.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use rustix::time::{ClockId, clock_gettime};

/// How long a connection may take to be accepted.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

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

/// A non-blocking connection.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    has_timestamps: bool,
}

impl Socket {
    /// Connects to `endpoint`; `wants_timestamps` asks the kernel for the arrival times of data, where it has them.
    pub(super) fn connect(endpoint: &Endpoint, wants_timestamps: bool) -> io::Result<Self> {
        match endpoint {
            Endpoint::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, CONNECT_TIMEOUT)?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                let has_timestamps = wants_timestamps
                    && setsockopt(&stream, sockopt::ReceiveTimestampns, &true).is_ok();
                Ok(Self {
                    fd: stream.into(),
                    has_timestamps,
                })
            }
            Endpoint::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_nonblocking(true)?;
                Ok(Self {
                    fd: stream.into(),
                    has_timestamps: false,
                })
            }
        }
    }

    /// The descriptor, for epoll.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Reads once.
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.fd, buffer)?)
    }

    /// Reads once; also how long the data had been readable, in nanoseconds, where the kernel reports it.
    pub(super) fn read_with_delay(&self, buffer: &mut [u8]) -> io::Result<(usize, Option<u64>)> {
        if !self.has_timestamps {
            return Ok((self.read(buffer)?, None));
        }
        let now = clock_gettime(ClockId::Realtime);
        let now_ns = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
        let mut control = nix::cmsg_space!(TimeSpec);
        let mut slices = [IoSliceMut::new(buffer)];
        let message = recvmsg::<()>(
            self.fd.as_raw_fd(),
            &mut slices,
            Some(&mut control),
            MsgFlags::empty(),
        )?;
        let arrived_ns = message.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::ScmTimestampns(arrival) => {
                Some(i128::from(arrival.tv_sec()) * 1_000_000_000 + i128::from(arrival.tv_nsec()))
            }
            _ => None,
        });
        // Data that arrived after the clock was read waited for nothing.
        let delay_ns = arrived_ns.map(|arrival| u64::try_from(now_ns - arrival).unwrap_or(0));
        Ok((message.bytes, delay_ns))
    }

    /// Writes once.
    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(&self.fd, bytes)?)
    }

    /// Writes several slices at once.
    pub(super) fn write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(rustix::io::writev(&self.fd, slices)?)
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

    #[test]
    fn reports_how_long_data_was_readable() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = Endpoint::Tcp(listener.local_addr().unwrap());
        let socket = Socket::connect(&endpoint, true).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        io::Write::write_all(&mut peer, b"hello").unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let mut buffer = [0; 16];
        let (bytes, delay_ns) = socket.read_with_delay(&mut buffer).unwrap();
        assert_eq!(&buffer[..bytes], b"hello");
        // A kernel without stamps reports nothing; one with them cannot report less than we slept.
        assert!(
            delay_ns.is_none_or(|ns| (19_000_000..60_000_000_000).contains(&ns)),
            "{delay_ns:?}"
        );
    }
}
