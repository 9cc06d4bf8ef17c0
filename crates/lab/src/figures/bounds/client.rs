//! A small blocking client for checks that send one request at a time.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A blocking client that sends one request at a time.
pub(super) struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub(super) fn connect(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    pub(super) fn call(&mut self, request: &str) -> std::io::Result<String> {
        self.call_bytes(request.as_bytes())
    }

    pub(super) fn call_bytes(&mut self, request: &[u8]) -> std::io::Result<String> {
        let mut socket = self.stream.get_ref();
        socket.write_all(request)?;
        socket.write_all(b"\r\n")?;
        self.read_reply_line()
    }

    pub(super) fn read_reply_line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }

    pub(super) fn get(&mut self, key: &str) -> std::io::Result<Option<Vec<u8>>> {
        let value_line = self.call(&format!("get {key}"))?;
        let Some(value_bytes) =
            value_line.rsplit(' ').next().and_then(|bytes_text| bytes_text.parse::<usize>().ok())
        else {
            return Ok(None);
        };
        let mut value = vec![0; value_bytes + 2];
        std::io::Read::read_exact(&mut self.stream, &mut value)?;
        value.truncate(value_bytes);
        self.read_reply_line()?;
        Ok(Some(value))
    }
}
