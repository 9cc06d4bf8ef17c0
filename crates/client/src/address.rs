//! Where a server is: `host:port`, `host:port*2` with a weight, `[::1]:11211`, `/run/cache.sock`.
//!
//! Names are resolved when a connection is made, on a thread of their own if need be, so that a
//! resolver that hangs costs a call its deadline and no more.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Instant;

use crate::error::Error;

/// The port of memcached, taken when none is named.
pub const PORT: u16 = 11211;

/// Greatest weight of a server; a ring has 160 points for each server and unit of weight.
const WEIGHT_MAX: u32 = 1000;

/// A server and its weight on the ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Where it listens.
    pub place: Place,
    /// Its share of the keys in relation to the others'.
    pub weight: u32,
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A host name or address, and a port.
    Tcp(String, u16),
    /// A unix socket.
    Unix(PathBuf),
}

impl Address {
    /// Reads one address.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let bad = |why: &str| Error::BadSetting(format!("server {text:?}: {why}"));
        let text = text.trim();
        let (place, weight) = match text.rsplit_once('*') {
            Some((place, weight)) => (place, weight.parse().ok()),
            None => (text, Some(1)),
        };
        let weight = weight
            .filter(|weight| (1..=WEIGHT_MAX).contains(weight))
            .ok_or_else(|| bad("the weight is a number from 1 to 1000"))?;
        let path = place
            .strip_prefix("unix:")
            .or(place.starts_with('/').then_some(place));
        if let Some(path) = path {
            return Ok(Self {
                place: Place::Unix(path.into()),
                weight,
            });
        }
        let (host, port) = split_port(place).ok_or_else(|| bad("the port is a number to 65535"))?;
        if host.is_empty() || host.contains(char::is_whitespace) {
            return Err(bad("no host"));
        }
        Ok(Self {
            place: Place::Tcp(host.to_owned(), port),
            weight,
        })
    }

    /// Reads a list, parted by commas.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, Error> {
        text.split(',')
            .filter(|part| !part.trim().is_empty())
            .map(Self::parse)
            .collect()
    }
}

fn split_port(place: &str) -> Option<(&str, u16)> {
    if let Some(rest) = place.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        let port = if port.is_empty() {
            PORT
        } else {
            port.strip_prefix(':')?.parse().ok()?
        };
        return Some((host, port));
    }
    if place.parse::<IpAddr>().is_ok() {
        return Some((place, PORT));
    }
    match place.rsplit_once(':') {
        Some((host, port)) => Some((host, port.parse().ok()?)),
        None => Some((place, PORT)),
    }
}

impl Place {
    /// Host and port where the host is a name that must be looked up.
    #[cfg(feature = "tokio")]
    pub(crate) fn name(&self) -> Option<(&str, u16)> {
        match self {
            Self::Tcp(host, port) if host.parse::<IpAddr>().is_err() => Some((host, *port)),
            Self::Tcp(..) | Self::Unix(_) => None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Finds the addresses of a host; `None` if that took until the deadline.
pub(crate) fn resolve(
    host: &str,
    port: u16,
    deadline: Instant,
) -> Option<std::io::Result<Vec<SocketAddr>>> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Some(Ok(vec![SocketAddr::new(ip, port)]));
    }
    let (answer, answers) = mpsc::sync_channel(1);
    let target = (host.to_owned(), port);
    let ask = move || {
        let found = target.to_socket_addrs().map(Iterator::collect);
        let _ = answer.send(found); // nobody waits any more once the deadline has passed
    };
    if let Err(error) = std::thread::Builder::new()
        .name("glasscache-dns".into())
        .spawn(ask)
    {
        return Some(Err(error));
    }
    answers
        .recv_timeout(deadline.saturating_duration_since(Instant::now()))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (String, u32) {
        let address = Address::parse(text).unwrap();
        (address.place.to_string(), address.weight)
    }

    #[test]
    fn addresses_of_every_kind_are_read() {
        assert_eq!(read("cache1"), ("cache1:11211".into(), 1));
        assert_eq!(read("cache1:7000*3"), ("cache1:7000".into(), 3));
        assert_eq!(read("[::1]:7000"), ("[::1]:7000".into(), 1));
        assert_eq!(read("::1"), ("[::1]:11211".into(), 1));
        assert_eq!(read("/run/c.sock*2"), ("/run/c.sock".into(), 2));
        assert_eq!(read("unix:c.sock"), ("c.sock".into(), 1));
    }

    #[test]
    fn nonsense_is_refused_with_a_sentence() {
        for text in ["", "a:99999", "a*0", "a*x", ":1", "[::1"] {
            assert!(
                matches!(Address::parse(text), Err(Error::BadSetting(_))),
                "{text}"
            );
        }
    }
}
