//! What a server reports about itself before it is measured: its version and its counters.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::time::Duration;

use glasscache_protocol::binary::{OpcodeAndOpaque, Status, opcode, request as binary};
use glasscache_protocol::text::reply::{self as text, Line};

use super::stream::{TLS_ALERT, is_tls_alert};
use super::{Access, Protocol, Stream};

/// How long a server may take for each reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(3);

/// Longest reply that is read from a server before it is known to speak memcached.
const REPLY_BYTES_MAX: u64 = 1 << 16;

/// Why the version of a server is not known.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// It cannot be reached, trusted or logged in to.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It wants a login before other commands.
    #[error("it wants a login before other commands")]
    LoginRequired,
    /// It replied with a TLS alert, so it expects TLS.
    #[error("its reply was a TLS alert")]
    TlsAlert,
    /// It replied in another protocol: with this line, or with nothing.
    #[error("its reply to `version` was {0:?}")]
    NotMemcached(String),
}

/// The version of a server that takes commands from this connection.
///
/// # Errors
/// It cannot be reached, does not speak the protocol, or wants a login.
pub(crate) fn request_version(access: &Access) -> Result<String, ProbeError> {
    let mut stream = Stream::open(access, REPLY_TIMEOUT).map_err(|error| {
        if is_tls_alert(&error) { ProbeError::TlsAlert } else { ProbeError::Io(error) }
    })?;
    if access.protocol == Protocol::Binary {
        return request_binary_version(&mut stream);
    }
    stream.write_all(b"version\r\n")?;
    let mut line = Vec::new();
    BufReader::new(stream.take(REPLY_BYTES_MAX)).read_until(b'\n', &mut line)?;
    let line = line.trim_ascii_end();
    match text::parse(line) {
        Ok(Line::Version(version)) => Ok(String::from_utf8_lossy(version).into_owned()),
        _ if line.starts_with(b"CLIENT_ERROR unauth") => Err(ProbeError::LoginRequired),
        _ if line.first() == Some(&TLS_ALERT) => Err(ProbeError::TlsAlert),
        _ => Err(ProbeError::NotMemcached(String::from_utf8_lossy(line).into_owned())),
    }
}

/// A server reports its version also before a login; a noop finds out whether it requires one.
fn request_binary_version(stream: &mut Stream) -> Result<String, ProbeError> {
    let mut requests = Vec::new();
    for request_opcode in [opcode::VERSION, opcode::NOOP] {
        let request_id = OpcodeAndOpaque { opcode: request_opcode, opaque: 0 };
        binary::header_only(&mut requests, request_id);
    }
    stream.write_all(&requests)?;
    let mut read_next_response = || {
        let response = stream.read_response(REPLY_BYTES_MAX as usize);
        response.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData if is_tls_alert(&error) => ProbeError::TlsAlert,
            io::ErrorKind::InvalidData => ProbeError::NotMemcached(error.to_string()),
            io::ErrorKind::UnexpectedEof => ProbeError::NotMemcached(String::new()),
            _ => ProbeError::Io(error),
        })
    };
    let version = read_next_response()?;
    match read_next_response()?.status {
        Status::AuthFailure => Err(ProbeError::LoginRequired),
        _ => Ok(String::from_utf8_lossy(&version.value).into_owned()),
    }
}

/// Names and values of a reply to `stats`.
pub(crate) type StatisticsRows = Vec<(String, String)>;

/// The rows of `stats`, or of one group of it, each a name and a value.
///
/// # Errors
/// The server cannot be reached or its reply does not end.
pub(crate) fn request_statistics(access: &Access, group: &str) -> io::Result<StatisticsRows> {
    let mut stream = Stream::open(access, REPLY_TIMEOUT)?;
    if access.protocol == Protocol::Binary {
        let mut request = Vec::new();
        binary::stat(&mut request, 0, group.as_bytes());
        stream.write_all(&request)?;
        let (mut rows, mut remaining_bytes) = (Vec::new(), REPLY_BYTES_MAX as usize);
        loop {
            let row = stream.read_response(remaining_bytes)?;
            if row.status != Status::Success || row.key.is_empty() {
                return Ok(rows);
            }
            remaining_bytes = remaining_bytes.saturating_sub(row.key.len() + row.value.len());
            rows.push(to_text_row(&row.key, &row.value));
        }
    }
    request_text_statistics(stream, group)
}

/// The rows of `stats` on a connection in text: those in the first [`REPLY_BYTES_MAX`] bytes of the reply.
pub(crate) fn request_text_statistics(
    mut connection: impl Read + Write,
    group: &str,
) -> io::Result<StatisticsRows> {
    let mut rows = Vec::new();
    connection.write_all(format!("stats {group}\r\n").as_bytes())?;
    for line in BufReader::new(connection.take(REPLY_BYTES_MAX)).split(b'\n') {
        match text::parse(line?.trim_ascii_end()) {
            Ok(Line::Stat(name, value)) => rows.push(to_text_row(name, value)),
            _ => break,
        }
    }
    Ok(rows)
}

fn to_text_row(name: &[u8], value: &[u8]) -> (String, String) {
    let to_string = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (to_string(name), to_string(value))
}
