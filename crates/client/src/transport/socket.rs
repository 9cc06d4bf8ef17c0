//! A connection's socket: plain, or watched by the runtime in which it was made.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A connection's socket.
#[derive(Debug)]
pub(crate) enum Socket {
    /// A thread waits for it, by a blocking call or by `poll`.
    Blocking(OwnedFd),
    /// A runtime waits for it.
    #[cfg(feature = "tokio")]
    Async(AsyncSocket),
}

impl Socket {
    /// Gives the socket up in a child after a fork, without sending anything to the peer.
    pub(crate) fn abandon(self) {
        match self {
            Self::Blocking(fd) => drop(fd),
            // Dropping it would take it out of the epoll instance that the child shares with its parent, and the
            // parent would not see it ready again. The descriptor stays open until the child ends or executes.
            #[cfg(feature = "tokio")]
            Self::Async(async_socket) => std::mem::forget(async_socket),
        }
    }
}

impl From<OwnedFd> for Socket {
    fn from(fd: OwnedFd) -> Self {
        Self::Blocking(fd)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Blocking(fd) => fd.as_fd(),
            #[cfg(feature = "tokio")]
            Self::Async(AsyncSocket::Tcp(stream)) => stream.as_fd(),
            #[cfg(feature = "tokio")]
            Self::Async(AsyncSocket::Unix(stream)) => stream.as_fd(),
        }
    }
}

#[cfg(feature = "tokio")]
pub(crate) use async_socket::AsyncSocket;

#[cfg(feature = "tokio")]
mod async_socket {
    use std::io::{Error, ErrorKind};
    use std::os::fd::OwnedFd;
    use std::sync::Arc;

    use tokio::io::Interest;
    use tokio::net::{TcpStream, UnixStream};

    /// A socket that a runtime watches. Shared, so that a wait can outlast the connection.
    #[derive(Debug, Clone)]
    pub(crate) enum AsyncSocket {
        Tcp(Arc<TcpStream>),
        Unix(Arc<UnixStream>),
    }

    impl AsyncSocket {
        /// Has the running runtime watch a socket that does not block.
        pub(crate) fn new(fd: OwnedFd, is_unix: bool) -> Result<Self, Error> {
            Ok(if is_unix {
                Self::Unix(Arc::new(UnixStream::from_std(fd.into())?))
            } else {
                Self::Tcp(Arc::new(TcpStream::from_std(fd.into())?))
            })
        }

        /// Waits until the socket may be ready, then makes one try, which returns whether it found something.
        ///
        /// Readiness seen before a try that found nothing is stale and forgotten; what comes after the
        /// try is new.
        pub(crate) async fn try_when_ready(
            &self,
            interest: Interest,
            mut try_once: impl FnMut() -> bool,
        ) -> Result<(), Error> {
            let mut try_once = || {
                if try_once() { Ok(()) } else { Err(Error::from(ErrorKind::WouldBlock)) }
            };
            let try_result = match self {
                Self::Tcp(stream) => {
                    stream.ready(interest).await?;
                    stream.try_io(interest, &mut try_once)
                }
                Self::Unix(stream) => {
                    stream.ready(interest).await?;
                    stream.try_io(interest, &mut try_once)
                }
            };
            match try_result {
                Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
                _ => Ok(()),
            }
        }
    }
}

#[cfg(feature = "tokio")]
impl Socket {
    /// The socket as its runtime watches it.
    pub(crate) fn async_socket(&self) -> Option<AsyncSocket> {
        match self {
            Self::Blocking(_) => None,
            Self::Async(async_socket) => Some(async_socket.clone()),
        }
    }
}
