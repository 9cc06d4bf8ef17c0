//! Reading `-l`: host names, addresses and ports in memcached's notation, and whether other machines can reach them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::Path;

use super::Settings;

/// The addresses to listen on over TCP; empty with a unix socket or with port 0.
///
/// Refuses, with one sentence, a name that does not resolve, and an address that other machines can
/// reach unless `public` was set.
pub(crate) fn listen_addresses(settings: &Settings) -> Result<Vec<SocketAddr>, String> {
    if settings.unix_socket.is_some() || settings.port == 0 {
        return Ok(Vec::new());
    }
    let port = u16::try_from(settings.port).unwrap_or(0);
    if settings.listen.is_empty() {
        return Ok(vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))]);
    }
    let mut addresses = Vec::new();
    for part in settings
        .listen
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        for address in one(part, port)? {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
    }
    Ok(addresses)
}

/// The first address that is not this machine's own loopback.
pub(crate) fn reachable(addresses: &[SocketAddr]) -> Option<&SocketAddr> {
    addresses.iter().find(|address| !address.ip().is_loopback())
}

fn one(part: &str, default_port: u16) -> Result<Vec<SocketAddr>, String> {
    let (host, port) = split(part, default_port)?;
    if host == "*" {
        return Ok(vec![SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))]);
    }
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let resolved = (host, port).to_socket_addrs();
    let resolved = resolved
        .map_err(|error| format!("listen (-l): {part}: cannot resolve the name: {error}"))?;
    let has_ipv6 = Path::new("/proc/net/if_inet6").exists();
    Ok(resolved
        .filter(|address| address.is_ipv4() || has_ipv6)
        .collect())
}

fn split(part: &str, default_port: u16) -> Result<(&str, u16), String> {
    let bad = |text: &str| {
        format!("listen (-l): {part}: \"{text}\" is not a valid port, must be 0 to 65535")
    };
    if let Some(rest) = part.strip_prefix('[') {
        let (host, tail) = rest.split_once(']').ok_or_else(|| {
            format!("listen (-l): {part}: the bracket around the IPv6 address is not closed")
        })?;
        let Some(port) = tail.strip_prefix(':') else {
            return Ok((host, default_port));
        };
        return Ok((host, port.parse().map_err(|_| bad(port))?));
    }
    match part.split_once(':') {
        Some((_, rest)) if rest.contains(':') => Ok((part, default_port)),
        Some((host, port)) => Ok((host, port.parse().map_err(|_| bad(port))?)),
        None => Ok((part, default_port)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(listen: &str) -> Result<Vec<String>, String> {
        let settings = Settings {
            listen: listen.to_owned(),
            ..Settings::default()
        };
        Ok(listen_addresses(&settings)?
            .iter()
            .map(ToString::to_string)
            .collect())
    }

    #[test]
    fn addresses_take_ports_and_brackets() {
        assert_eq!(addresses("").unwrap(), ["127.0.0.1:11211"]);
        assert_eq!(
            addresses("127.0.0.1:7, 127.0.0.2").unwrap(),
            ["127.0.0.1:7", "127.0.0.2:11211"]
        );
        assert_eq!(
            addresses("::1,[::1]:5").unwrap(),
            ["[::1]:11211", "[::1]:5"]
        );
        assert_eq!(addresses("*").unwrap(), ["0.0.0.0:11211"]);
        assert!(addresses("127.0.0.1:99999").unwrap_err().contains("99999"));
        assert!(addresses("[::1").unwrap_err().contains("bracket"));
    }

    #[test]
    fn only_loopback_is_unreachable_for_others() {
        let settings = Settings {
            listen: "127.0.0.1,0.0.0.0".to_owned(),
            ..Settings::default()
        };
        let addresses = listen_addresses(&settings).unwrap();
        assert_eq!(reachable(&addresses).unwrap().to_string(), "0.0.0.0:11211");
        assert!(reachable(&addresses[..1]).is_none());
    }
}
