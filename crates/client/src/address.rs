//! Addresses of servers, in each form that a client's configuration uses.
//!
//! `host`, `host:port`, a weight as `host:port*2` or `host:port:2` (Dalli, pylibmc), `[::1]:11211`,
//! `memcached://host:port`, `unix:/run/cache.sock`, `/run/cache.sock`. Anything else is refused when the client is
//! created: a misread host would be a server that does not exist and still gets its share of the keys.

use std::fmt;
#[cfg(feature = "tokio")]
use std::net::IpAddr;
use std::net::Ipv6Addr;
use std::path::PathBuf;

use crate::error::Error;

/// The port of memcached, used when an address has none.
pub const PORT: u16 = 11211;

/// Greatest weight of a server.
const WEIGHT_MAX: u32 = 1000;

/// A server and its weight on the ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Where it listens.
    pub endpoint: Endpoint,
    /// Its share of the keys, relative to the weights of the others.
    pub weight: u32,
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A host name or address, and a port.
    Tcp(String, u16),
    /// A unix socket.
    Unix(PathBuf),
}

impl Address {
    /// Reads one address.
    pub fn parse(text: &str) -> Result<Self, Error> {
        check_without_login(text)?;
        parse(text.trim()).map_err(|reason| Error::BadSetting(format!("server {text:?}: {reason}")))
    }

    /// Reads a list of addresses with commas between.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, Error> {
        check_without_login(text)?;
        text.split(',').filter(|part| !part.trim().is_empty()).map(Self::parse).collect()
    }
}

/// Refuses an address with a user and a password, without quoting it: errors go into logs.
fn check_without_login(text: &str) -> Result<(), Error> {
    let is_path = text.trim().starts_with('/') || text.trim().starts_with("unix:");
    if text.contains('@') && !is_path {
        return Err(Error::BadSetting(
            "a server's address with \"@\": write \"host:port\", and the user and the password as user= and password=".to_owned(),
        ));
    }
    Ok(())
}

/// The forms to use instead of one that was refused.
const ADDRESS_FORMS: &str =
    "write \"host:port\", \"host:port*weight\", \"[::1]:port\" or \"/path/of.sock\"";

fn parse(text: &str) -> Result<Address, String> {
    let path_and_weight = text.strip_prefix("unix:").or(text.starts_with('/').then_some(text));
    if let Some(path_and_weight) = path_and_weight {
        let (path, weight) = split_weight(path_and_weight)?;
        if path.is_empty() {
            return Err("no path of a socket; write \"unix:/path/of.sock\"".into());
        }
        return Ok(Address { endpoint: Endpoint::Unix(path.into()), weight: weight.unwrap_or(1) });
    }
    let authority = match text.split_once("://") {
        Some(("memcached", rest)) => rest.strip_suffix('/').unwrap_or(rest),
        Some((scheme, _)) => {
            return Err(format!(
                "{scheme:?} is not a scheme of this client; write \"memcached://host:port\""
            ));
        }
        None => text,
    };
    let (host_and_port, weight_after_asterisk) = split_weight(authority)?;
    let (host, port_and_weight) = split_host(host_and_port)?;
    let (port, weight_after_colon) = parse_port_and_weight(port_and_weight)?;
    if weight_after_asterisk.is_some() && weight_after_colon.is_some() {
        return Err("two weights; write one, as \"host:port*weight\"".into());
    }
    Ok(Address {
        endpoint: Endpoint::Tcp(host.to_owned(), port),
        weight: weight_after_asterisk.or(weight_after_colon).unwrap_or(1),
    })
}

/// The text before `*`, and the weight after it if there is one.
fn split_weight(text: &str) -> Result<(&str, Option<u32>), String> {
    match text.rsplit_once('*') {
        Some((before_weight, weight)) => Ok((before_weight, Some(parse_weight(weight)?))),
        None => Ok((text, None)),
    }
}

fn parse_weight(text: &str) -> Result<u32, String> {
    parse_digits(text)
        .filter(|weight| (1..=WEIGHT_MAX).contains(weight))
        .ok_or_else(|| format!("weight {text:?}: a weight is a number from 1 to {WEIGHT_MAX}"))
}

/// A number of digits alone: `str::parse` would take a sign as well.
fn parse_digits(text: &str) -> Option<u32> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_digits)
}

/// The host without brackets, and `:port` or `:port:weight` after it.
fn split_host(text: &str) -> Result<(&str, &str), String> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, port_and_weight) = rest.split_once(']').ok_or("a \"[\" without its \"]\"")?;
        let (ip_address, zone) = host.split_once('%').unwrap_or((host, "0"));
        if ip_address.parse::<Ipv6Addr>().is_err() || !is_host_name(zone) {
            return Err(format!("{host:?} is not an IPv6 address; {ADDRESS_FORMS}"));
        }
        return Ok((host, port_and_weight));
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        return Err(format!("IPv6 goes in brackets; write \"[{text}]\" or \"[{text}]:{PORT}\""));
    }
    let (host, port_and_weight) = text.split_at(text.find(':').unwrap_or(text.len()));
    if host.is_empty() {
        return Err(format!("no host; {ADDRESS_FORMS}"));
    }
    if parse_digits(host).is_some() {
        return Err(format!("{host:?} is a port without its host; write \"127.0.0.1:{host}\""));
    }
    if !is_host_name(host) {
        return Err(format!("{host:?} is not the name of a host; {ADDRESS_FORMS}"));
    }
    Ok((host, port_and_weight))
}

/// Whether a text may be a host's name or an IPv4 address.
fn is_host_name(host: &str) -> bool {
    !host.is_empty() && host.chars().all(|c| c.is_alphanumeric() || "-._".contains(c))
}

/// The port and the weight of `""`, `:port` or `:port:weight`.
fn parse_port_and_weight(port_and_weight: &str) -> Result<(u16, Option<u32>), String> {
    let Some(port_and_weight) = port_and_weight.strip_prefix(':') else {
        return match port_and_weight {
            "" => Ok((PORT, None)),
            rest => Err(format!("{rest:?} after the host; {ADDRESS_FORMS}")),
        };
    };
    let (port, weight) = match port_and_weight.split_once(':') {
        Some((port, weight)) => (port, Some(parse_weight(weight)?)),
        None => (port_and_weight, None),
    };
    let port_number = parse_digits(port).and_then(|port| u16::try_from(port).ok());
    match port_number.filter(|&port| port > 0) {
        Some(port) => Ok((port, weight)),
        None => Err(format!("port {port:?}: a port is a number from 1 to 65535")),
    }
}

impl Endpoint {
    /// Host and port where the host is a name that must be looked up.
    #[cfg(feature = "tokio")]
    pub(crate) fn host_to_resolve(&self) -> Option<(&str, u16)> {
        match self {
            Self::Tcp(host, port) if host.parse::<IpAddr>().is_err() => Some((host, *port)),
            Self::Tcp(..) | Self::Unix(_) => None,
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint_and_weight(text: &str) -> (String, u32) {
        let address = Address::parse(text).unwrap();
        (address.endpoint.to_string(), address.weight)
    }

    #[test]
    fn an_address_with_a_login_is_refused_without_its_password() {
        for text in [
            "memcached://user:secret@host:1",
            "user:secret@host",
            " user:s,secret@host:1,other",
            "user@secret:1@host",
        ] {
            let errors = [Address::parse(text).map(drop), Address::parse_list(text).map(drop)];
            for error in errors.map(Result::unwrap_err) {
                let message = error.to_string();
                assert!(!message.contains("secret") && message.contains("password="), "{message}");
            }
        }
        assert_eq!(endpoint_and_weight("/run/a@b.sock").0, "/run/a@b.sock");
    }

    #[test]
    fn address_of_each_form_is_read() {
        assert_eq!(endpoint_and_weight("cache1"), ("cache1:11211".into(), 1));
        assert_eq!(endpoint_and_weight(" cache1:7000 "), ("cache1:7000".into(), 1));
        assert_eq!(endpoint_and_weight("cache1:7000*3"), ("cache1:7000".into(), 3));
        assert_eq!(endpoint_and_weight("cache1*3"), ("cache1:11211".into(), 3));
        assert_eq!(endpoint_and_weight("10.0.0.1:7000:3"), ("10.0.0.1:7000".into(), 3));
        assert_eq!(endpoint_and_weight("[::1]"), ("[::1]:11211".into(), 1));
        assert_eq!(endpoint_and_weight("[::1]:7000"), ("[::1]:7000".into(), 1));
        assert_eq!(endpoint_and_weight("[::1]:7000:2"), ("[::1]:7000".into(), 2));
        assert_eq!(endpoint_and_weight("[fe80::1%eth0]:1"), ("[fe80::1%eth0]:1".into(), 1));
        assert_eq!(endpoint_and_weight("memcached://cache_1"), ("cache_1:11211".into(), 1));
        assert_eq!(endpoint_and_weight("memcached://[::1]:7000/"), ("[::1]:7000".into(), 1));
        assert_eq!(endpoint_and_weight("/run/c.sock*2"), ("/run/c.sock".into(), 2));
        assert_eq!(endpoint_and_weight("unix:c.sock"), ("c.sock".into(), 1));
    }

    #[test]
    fn ipv6_without_brackets_is_refused_and_the_error_shows_the_right_form() {
        let error = Address::parse("::1").unwrap_err().to_string();
        assert!(error.contains("write \"[::1]\""), "{error}");
    }

    #[test]
    fn text_that_names_no_server_is_refused_with_an_error_message() {
        for text in [
            "",
            "a:99999",
            "a:0",
            "a:",
            "a:+1",
            "a*0",
            "a*x",
            ":1",
            "[::1",
            "[a]:1",
            "[127.0.0.1:1]:2",
            "[::1]7000",
            "11211",
            "a b",
            "(127.0.0.1",
            "a:1:2:3",
            "a:1:0",
            "a:1:2*2",
            "::1",
            "fe80::1:11211",
            "redis://a:1",
            "memcached://",
            "memcached://u:p@a:1",
            "a/b",
            "a;b",
            "unix:",
            "udp:a:1",
            "a:b:1",
        ] {
            assert!(matches!(Address::parse(text), Err(Error::BadSetting(_))), "{text}");
        }
    }
}
