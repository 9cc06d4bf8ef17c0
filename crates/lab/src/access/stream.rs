//! A blocking connection on which the TLS handshake and the login are done.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustls::ClientConnection;

use super::{Access, Endpoint};

/// Longest reply to a login that is read.
const LOGIN_REPLY_BYTES_MAX: usize = 256;

/// A connection to a server.
#[derive(Debug)]
pub struct Stream {
    socket: OwnedFd,
    session: Option<Box<ClientConnection>>,
}

impl Stream {
    /// Connects, encrypts and logs in as `access` requires. `timeout` bounds each wait for the server, also later.
    ///
    /// # Errors
    /// The server cannot be reached, cannot be trusted, or refuses the login.
    pub fn open(access: &Access, timeout: Duration) -> io::Result<Self> {
        let socket = match &access.endpoint {
            Endpoint::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, timeout)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                OwnedFd::from(stream)
            }
            Endpoint::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                OwnedFd::from(stream)
            }
        };
        let session = match &access.tls {
            None => None,
            Some(new_session) => {
                let mut session = new_session().map_err(io::Error::other)?;
                complete_handshake(&mut session, socket.as_fd())?;
                Some(Box::new(session))
            }
        };
        let mut stream = Self { socket, session };
        if let Some(request) = &access.login_request {
            stream.log_in(request)?;
        }
        Ok(stream)
    }

    /// The socket, and the session if it is encrypted.
    pub fn into_parts(self) -> (OwnedFd, Option<Box<ClientConnection>>) {
        (self.socket, self.session)
    }

    fn log_in(&mut self, request: &[u8]) -> io::Result<()> {
        let failed = |error: io::Error| with_reason("the login failed", &error);
        self.write_all(request).map_err(failed)?;
        let mut reply = Vec::new();
        while !reply.ends_with(b"\n") && reply.len() < LOGIN_REPLY_BYTES_MAX {
            // The server sends nothing but this line, so nothing is lost in a buffer.
            let mut byte = [0];
            self.read_exact(&mut byte).map_err(failed)?;
            reply.extend(byte);
        }
        let reply = String::from_utf8_lossy(&reply);
        match reply.trim_end() {
            "STORED" => Ok(()),
            reply => {
                let message = format!("the login was refused: {reply}");
                Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
            }
        }
    }
}

fn complete_handshake(session: &mut ClientConnection, socket: BorrowedFd<'_>) -> io::Result<()> {
    while session.is_handshaking() {
        match session.complete_io(&mut SocketIo(socket)) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(with_reason("the TLS handshake failed", &error)),
        }
    }
    Ok(())
}

/// An error of a step of connecting. Its kind is `InvalidInput` for a certificate that is not trusted.
fn with_reason(failed_step: &str, error: &io::Error) -> io::Error {
    let tls_error = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let (kind, reason) = match (error.kind(), tls_error) {
        (_, Some(rustls::Error::InvalidCertificate(_))) => {
            (io::ErrorKind::InvalidInput, error.to_string())
        }
        (_, Some(rustls::Error::InvalidMessage(_))) => (
            io::ErrorKind::InvalidData,
            "the server does not encrypt".to_owned(),
        ),
        (io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut, _) => {
            (io::ErrorKind::TimedOut, "no reply".to_owned())
        }
        (kind @ io::ErrorKind::UnexpectedEof, _) => (kind, "the connection was closed".to_owned()),
        (kind, _) => (kind, error.to_string()),
    };
    io::Error::new(kind, format!("{failed_step}: {reason}"))
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut socket = SocketIo(self.socket.as_fd());
        match &mut self.session {
            None => socket.read(buffer),
            Some(session) => rustls::Stream::new(&mut **session, &mut socket).read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut socket = SocketIo(self.socket.as_fd());
        match &mut self.session {
            None => socket.write(bytes),
            Some(session) => rustls::Stream::new(&mut **session, &mut socket).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut socket = SocketIo(self.socket.as_fd());
        match &mut self.session {
            None => Ok(()),
            Some(session) => rustls::Stream::new(&mut **session, &mut socket).flush(),
        }
    }
}

/// The socket as rustls reads and writes it.
pub(crate) struct SocketIo<'s>(pub(crate) BorrowedFd<'s>);

impl Read for SocketIo<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(self.0, buffer)?)
    }
}

impl Write for SocketIo<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(self.0, bytes)?)
    }

    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        Ok(rustix::io::writev(self.0, slices)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
