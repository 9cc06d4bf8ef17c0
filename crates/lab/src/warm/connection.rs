//! A blocking connection to one of the two servers: requests out, reply lines and values in.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::time::Duration;

use glasscache_protocol::text::reply::REPLY_LINE_BYTES_MAX;

use crate::access::{Access, Stream};

/// How long a server may take to accept a connection, and to send the next bytes of a reply.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes read and written at once.
const BUFFER_BYTES: usize = 64 << 10;

/// A connection with buffers for both directions.
pub(super) struct Connection {
    reader: BufReader<Stream>,
    output: Vec<u8>,
    line: Vec<u8>,
}

impl Connection {
    /// Connects to a server.
    pub(super) fn open(access: &Access) -> io::Result<Self> {
        let stream = Stream::open(access, TIMEOUT).map_err(with_reason)?;
        Ok(Self {
            reader: BufReader::with_capacity(BUFFER_BYTES, stream),
            output: Vec::with_capacity(BUFFER_BYTES),
            line: Vec::new(),
        })
    }

    /// Writes bytes, which stay in the buffer until [`Connection::flush`] or until it is full.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.output.extend_from_slice(bytes);
        if self.output.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Sends what was written.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let stream = self.reader.get_mut();
        stream.write_all(&self.output).and_then(|()| stream.flush()).map_err(with_reason)?;
        self.output.clear();
        Ok(())
    }

    /// Reads a line, without its end.
    pub(super) fn read_line(&mut self) -> io::Result<&[u8]> {
        self.line.clear();
        let mut bounded_reader = (&mut self.reader).take(REPLY_LINE_BYTES_MAX as u64);
        bounded_reader.read_until(b'\n', &mut self.line).map_err(with_reason)?;
        let Some(line) = self.line.strip_suffix(b"\n") else {
            return Err(if self.line.len() >= REPLY_LINE_BYTES_MAX {
                io::Error::new(io::ErrorKind::InvalidData, "a reply line is too long")
            } else {
                with_reason(io::ErrorKind::UnexpectedEof.into())
            });
        };
        Ok(line.strip_suffix(b"\r").unwrap_or(line))
    }

    /// Reads a value and its line end, and appends the value to `values`.
    pub(super) fn read_value(
        &mut self,
        value_bytes: usize,
        values: &mut Vec<u8>,
    ) -> io::Result<()> {
        let value_end = values.len() + value_bytes;
        let framed_bytes = value_bytes as u64 + 2;
        let read_result = (&mut self.reader).take(framed_bytes).read_to_end(values);
        if read_result.map_err(with_reason)? as u64 != framed_bytes {
            return Err(with_reason(io::ErrorKind::UnexpectedEof.into()));
        }
        if values.get(value_end..) != Some(b"\r\n") {
            let message = "a value is longer than its reply says";
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        values.truncate(value_end);
        Ok(())
    }
}

/// The reasons of the system that a reader would not understand, in words.
fn with_reason(error: io::Error) -> io::Error {
    let reason = match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no reply for 10 seconds",
        io::ErrorKind::UnexpectedEof => "the connection was closed",
        _ => return error,
    };
    io::Error::new(error.kind(), reason)
}
