//! One connection of a scripted peer. Its methods return an error once the client has closed, which ends the script.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;

/// A connection, or an encrypted stream over one.
pub struct Connection<S = TcpStream> {
    reader: BufReader<S>,
}

impl<S: Read + Write> Connection<S> {
    /// A connection from which nothing has been read.
    pub fn new(stream: S) -> Connection<S> {
        Connection { reader: BufReader::new(stream) }
    }

    /// The next line without its end.
    pub fn read_line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        if self.reader.read_until(b'\n', &mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }

    /// Exactly this many bytes.
    pub fn read_exactly(&mut self, byte_count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; byte_count];
        self.reader.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// What has arrived, at least one byte.
    pub fn read_chunk(&mut self) -> io::Result<Vec<u8>> {
        let chunk = self.reader.fill_buf()?.to_vec();
        self.reader.consume(chunk.len());
        if chunk.is_empty() { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(chunk) }
    }

    /// Sends all bytes.
    pub fn write(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.reader.get_mut().write_all(bytes.as_ref())?;
        self.reader.get_mut().flush()
    }

    /// Sends a reply to each line until the client closes.
    pub fn reply_to_lines<R: AsRef<[u8]>>(
        &mut self,
        mut reply_to: impl FnMut(&str) -> R,
    ) -> io::Result<()> {
        loop {
            let line = self.read_line()?;
            self.write(reply_to(&line))?;
        }
    }

    /// Reads until the client closes, and sends nothing.
    pub fn wait_for_end(&mut self) -> io::Result<()> {
        io::copy(&mut self.reader, &mut io::sink()).map(drop)
    }

    /// The stream, of which nothing may have been read.
    pub fn into_stream(self) -> S {
        self.reader.into_inner()
    }
}
