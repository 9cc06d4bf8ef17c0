//! A blocking connection on which the TLS handshake and the login are done.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use glasscache_protocol::binary::reply::parse_head;
use glasscache_protocol::binary::{HEADER_BYTES, Header, MAGIC_RESPONSE, Status};
use rustls::ClientConnection;

use super::{Access, Endpoint, Protocol};

/// Longest reply to a login that is read.
const LOGIN_REPLY_BYTES_MAX: usize = 256;

/// A response in binary.
pub(super) struct BinaryResponse {
    pub(super) status: Status,
    pub(super) key: Vec<u8>,
    /// The value or the text of an error.
    pub(super) value: Vec<u8>,
}

/// The first byte of a TLS record with an alert: the type of the record.
pub(super) const TLS_ALERT: u8 = 0x15;

/// What arrived instead of a reply: the server expects TLS.
#[derive(Debug, thiserror::Error)]
#[error("its reply was a TLS alert")]
struct TlsAlert;

fn new_tls_alert_error() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, TlsAlert)
}

/// Whether a server replied with a TLS alert.
pub(super) fn is_tls_alert(error: &io::Error) -> bool {
    error.get_ref().and_then(|inner| inner.downcast_ref::<TlsAlert>()).is_some()
}

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct Stream {
    socket: OwnedFd,
    tls_session: Option<Box<ClientConnection>>,
}

impl Stream {
    /// Connects, encrypts and logs in as `access` requires. `timeout` bounds each wait for the server, also later.
    ///
    /// # Errors
    /// The server cannot be reached, cannot be trusted, or refuses the login.
    pub(crate) fn open(access: &Access, timeout: Duration) -> io::Result<Self> {
        let socket = match &access.endpoint {
            Endpoint::Tcp(address) => {
                let tcp_stream = TcpStream::connect_timeout(address, timeout)?;
                tcp_stream.set_nodelay(true)?;
                tcp_stream.set_read_timeout(Some(timeout))?;
                tcp_stream.set_write_timeout(Some(timeout))?;
                OwnedFd::from(tcp_stream)
            }
            Endpoint::Unix(path) => {
                let unix_stream = UnixStream::connect(path)?;
                unix_stream.set_read_timeout(Some(timeout))?;
                unix_stream.set_write_timeout(Some(timeout))?;
                OwnedFd::from(unix_stream)
            }
        };
        let mut tls_session = access.new_tls_session()?.map(Box::new);
        if let Some(tls_session) = &mut tls_session {
            complete_handshake(tls_session, socket.as_fd())?;
        }
        let mut stream = Self { socket, tls_session };
        if let Some(request) = access.login_request()? {
            stream.log_in(&request, access.protocol)?;
        }
        Ok(stream)
    }

    /// The socket, and the TLS session if it is encrypted.
    pub(crate) fn into_parts(self) -> (OwnedFd, Option<Box<ClientConnection>>) {
        (self.socket, self.tls_session)
    }

    fn log_in(&mut self, request: &[u8], protocol: Protocol) -> io::Result<()> {
        let login_error = |error: io::Error| {
            if is_tls_alert(&error) {
                error // the caller needs to know
            } else {
                step_error("the login failed", &error)
            }
        };
        self.write_all(request).map_err(login_error)?;
        let (is_accepted, reply) = if protocol == Protocol::Binary {
            let response = self.read_response(LOGIN_REPLY_BYTES_MAX).map_err(login_error)?;
            (response.status == Status::Success, response.value)
        } else {
            let line = self.read_login_line().map_err(login_error)?;
            (line.trim_ascii_end() == b"STORED", line)
        };
        if is_accepted {
            return Ok(());
        }
        let reply = String::from_utf8_lossy(&reply);
        let message = format!("the login was refused: {}", reply.trim_end());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
    }

    /// Reads the reply to a login in text.
    fn read_login_line(&mut self) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        while !line.ends_with(b"\n") && line.len() < LOGIN_REPLY_BYTES_MAX {
            // The server sends nothing but this line, so nothing is lost in a buffer.
            let mut byte = [0];
            self.read_exact(&mut byte)?;
            if line.is_empty() && byte == [TLS_ALERT] {
                return Err(new_tls_alert_error());
            }
            line.extend(byte);
        }
        Ok(line)
    }

    /// Reads one response in binary and nothing after it.
    ///
    /// # Errors
    /// What arrives is not a response, or it has over `body_bytes_max` bytes after its header: the kind `InvalidData`.
    pub(super) fn read_response(&mut self, body_bytes_max: usize) -> io::Result<BinaryResponse> {
        let invalid_reply_error =
            |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
        let mut packet = vec![0; HEADER_BYTES];
        let (magic, rest_of_header) = packet.split_at_mut(1);
        // A peer that sends another protocol may not send as much as a header.
        self.read_exact(magic)?;
        if magic == [TLS_ALERT] {
            return Err(new_tls_alert_error());
        }
        if magic != [MAGIC_RESPONSE] {
            return Err(invalid_reply_error("its reply is not binary".to_owned()));
        }
        self.read_exact(rest_of_header)?;
        let body_bytes = Header::read(&packet).map_or(0, |header| header.body_bytes as usize);
        if body_bytes > body_bytes_max {
            return Err(invalid_reply_error(format!("a reply of {body_bytes} bytes")));
        }
        packet.resize(HEADER_BYTES + body_bytes, 0);
        self.read_exact(packet.get_mut(HEADER_BYTES..).unwrap_or_default())?;
        match parse_head(&packet) {
            Ok(Some((head, head_bytes))) => Ok(BinaryResponse {
                status: head.status,
                key: head.key.to_vec(),
                value: packet.get(head_bytes..).unwrap_or_default().to_vec(),
            }),
            Ok(None) => {
                Err(invalid_reply_error("a reply whose lengths contradict each other".to_owned()))
            }
            Err(error) => Err(invalid_reply_error(error.to_string())),
        }
    }
}

fn complete_handshake(
    tls_session: &mut ClientConnection,
    socket: BorrowedFd<'_>,
) -> io::Result<()> {
    while tls_session.is_handshaking() {
        match tls_session.complete_io(&mut SocketIo(socket)) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(step_error("the TLS handshake failed", &error)),
        }
    }
    Ok(())
}

/// An error of a step of connecting. Its kind is `InvalidInput` for a certificate that is not trusted.
fn step_error(failed_step: &str, error: &io::Error) -> io::Error {
    let tls_error = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let (kind, reason) = match (error.kind(), tls_error) {
        (_, Some(rustls::Error::InvalidCertificate(_))) => {
            (io::ErrorKind::InvalidInput, error.to_string())
        }
        (_, Some(rustls::Error::InvalidMessage(_))) => {
            (io::ErrorKind::InvalidData, "the server does not encrypt".to_owned())
        }
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
        match &mut self.tls_session {
            None => socket.read(buffer),
            Some(tls_session) => rustls::Stream::new(&mut **tls_session, &mut socket).read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut socket = SocketIo(self.socket.as_fd());
        match &mut self.tls_session {
            None => socket.write(bytes),
            Some(tls_session) => rustls::Stream::new(&mut **tls_session, &mut socket).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut socket = SocketIo(self.socket.as_fd());
        match &mut self.tls_session {
            None => Ok(()),
            Some(tls_session) => rustls::Stream::new(&mut **tls_session, &mut socket).flush(),
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
