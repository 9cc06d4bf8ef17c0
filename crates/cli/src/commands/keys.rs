//! `glasscache keys`: lists what a server holds, through `lru_crawler metadump`.
//!
//! The client has no dumps, for applications should not walk a cache; so this command opens a
//! connection of its own and passes line after line on, whatever their number.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use glasscache_client::Address;
use glasscache_client::address::Place;
use serde_json::{Map, Value, json};

use super::target::{START_ONE, Target, failure};
use crate::output::{Exit, Failure, Output};

const EXAMPLES: &str = "\
Examples:
  glasscache keys
  glasscache keys --long                 with expiry, size and last access
  glasscache keys --limit 10 --json";

/// List the keys of a server.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Say all that the server tells of each key
    #[arg(long)]
    long: bool,
    /// Stop after this many keys
    #[arg(long, value_name = "NUM")]
    limit: Option<u64>,
    #[command(flatten)]
    target: Target,
}

trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

impl Args {
    /// Prints one key a line.
    pub(crate) fn run(self, out: &Output) -> Result<Exit, Failure> {
        let mut left = self.limit.unwrap_or(u64::MAX);
        for address in Address::parse_list(&self.target.server).map_err(|error| failure(&error))? {
            self.dump(&address.place, &mut left, out)?;
        }
        Ok(Exit::Done)
    }

    fn dump(&self, place: &Place, left: &mut u64, out: &Output) -> Result<(), Failure> {
        let unreachable = |error: std::io::Error| {
            Failure::new(
                Exit::Unreachable,
                format!("{}: {error}", self.target.server),
            )
            .hint(START_ONE)
        };
        let mut stream = connect(place, Duration::from_millis(self.target.timeout_ms.max(1)))
            .map_err(unreachable)?;
        stream
            .write_all(b"lru_crawler metadump all\r\n")
            .map_err(unreachable)?;
        for line in BufReader::new(stream).split(b'\n') {
            let line = line.map_err(unreachable)?;
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end();
            if line == "END" || *left == 0 {
                return Ok(());
            }
            let Some(rest) = line.strip_prefix("key=") else {
                // Older servers say OK before the first key.
                if line == "OK" {
                    continue;
                }
                return Err(Failure::new(
                    Exit::BadData,
                    format!("no list of keys came back: {line}"),
                )
                .hint("a server started with -X refuses dumps"));
            };
            *left -= 1;
            self.print(rest, out)?;
        }
        Err(Failure::new(Exit::BadData, "the list of keys ended early"))
    }

    fn print(&self, fields: &str, out: &Output) -> Result<(), Failure> {
        let mut words = fields.split(' ');
        let key = unescape(words.next().unwrap_or_default());
        if !out.is_json() {
            let rest: Vec<&str> = words.collect();
            return out.line(if self.long {
                format!("{key} {}", rest.join(" "))
            } else {
                key
            });
        }
        let mut row = Map::from_iter([("key".to_owned(), Value::String(key))]);
        for (name, value) in words.filter_map(|word| word.split_once('=')) {
            let value = value
                .parse::<i64>()
                .map_or_else(|_| json!(value), Value::from);
            row.insert(name.to_owned(), value);
        }
        out.document(&Value::Object(row))
    }
}

fn connect(place: &Place, timeout: Duration) -> std::io::Result<Box<dyn Stream>> {
    match place {
        Place::Tcp(host, port) => {
            let stream = TcpStream::connect((host.as_str(), *port))?;
            stream.set_read_timeout(Some(timeout))?;
            Ok(Box::new(stream))
        }
        Place::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(timeout))?;
            Ok(Box::new(stream))
        }
    }
}

/// The key behind a dump's `%20` and its like.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let hex = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let escaped = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        if let (b'%', Some(byte)) = (first, escaped) {
            bytes.push(byte);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::unescape;

    #[test]
    fn keys_of_a_dump_are_unescaped() {
        assert_eq!(unescape("a%20b%25"), "a b%");
        assert_eq!(unescape("100%"), "100%");
        assert_eq!(unescape("%zz%4"), "%zz%4");
    }
}
