//! Reading `-l`: host names, addresses and ports in memcached's notation, how each is protected, and whether other
//! machines can reach it without protection.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::Path;

use glasscache_server::{ClientCertificate, HttpListen};

use super::Settings;

/// A TCP address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListenAddress {
    /// The address.
    pub address: SocketAddr,
    /// With TLS, whether clients have to present a certificate.
    pub tls: Option<ClientCertificate>,
    /// Whether statistics alone are served, without a login.
    pub statistics_only: bool,
}

/// What may stand before an address for statistics.
const STATISTICS_PREFIX: &str = "noauth:";

/// What may stand before an address, and the protection that it selects.
const TLS_PREFIXES: [(&str, Option<ClientCertificate>); 3] = [
    ("notls:", None),
    ("btls:", Some(ClientCertificate::NotRequested)),
    ("mtls:", Some(ClientCertificate::Required)),
];

/// The addresses to listen on over TCP; with a unix socket only those for statistics, and none with port 0 alone.
///
/// Refuses, with one sentence, a name that does not resolve, a prefix about TLS where there is none, and addresses of
/// which none serves commands.
pub(crate) fn parse_listen_addresses(settings: &Settings) -> Result<Vec<ListenAddress>, String> {
    let has_unix_socket = settings.unix_socket.is_some();
    if settings.port == 0 && !has_unix_socket {
        return Ok(Vec::new());
    }
    let port = u16::try_from(settings.port).unwrap_or(0);
    if settings.listen.is_empty() && !has_unix_socket {
        return Ok(vec![ListenAddress {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            tls: settings.client_certificate(),
            statistics_only: false,
        }]);
    }
    let mut addresses: Vec<ListenAddress> = Vec::new();
    for entry in settings.listen.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let Prefixed { address_text, tls, statistics_only } = split_prefixes(entry, settings)?;
        if has_unix_socket && !statistics_only {
            continue;
        }
        for address in resolve_address(address_text, port)? {
            // Port 0 is another free one each time.
            let is_same = |other: &&ListenAddress| {
                other.address == address
                    && (address.port() != 0 || other.statistics_only == statistics_only)
            };
            match addresses.iter().find(is_same) {
                None => addresses.push(ListenAddress { address, tls, statistics_only }),
                Some(other) if other.statistics_only != statistics_only => {
                    return Err(format!(
                        "listen (-l): {address} is given with and without \"{STATISTICS_PREFIX}\": give one of them another port"
                    ));
                }
                Some(_) => {}
            }
        }
    }
    let serves_commands =
        has_unix_socket || addresses.iter().any(|address| !address.statistics_only);
    if !serves_commands && !addresses.is_empty() {
        return Err(format!(
            "listen (-l): {}: every address is for statistics alone: add one for clients, such as 127.0.0.1",
            settings.listen
        ));
    }
    Ok(addresses)
}

/// The first address that is not this machine's own loopback and that clients use without a certificate and, where it
/// is for statistics or nobody has to log in, without a login.
pub(crate) fn find_public_address(
    addresses: &[ListenAddress],
    requires_login: bool,
) -> Option<&ListenAddress> {
    let is_public = |listen_address: &&ListenAddress| {
        !listen_address.address.ip().is_loopback()
            && listen_address.tls != Some(ClientCertificate::Required)
            && (listen_address.statistics_only || !requires_login)
    };
    addresses.iter().find(is_public)
}

/// The address of the setting `name`, a port of HTTP; `None` without one.
///
/// Refuses, with one sentence, a text without a port and a name that does not resolve.
pub(crate) fn parse_http_address(name: &str, text: &str) -> Result<Option<HttpListen>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    if let Ok(port) = text.parse::<u16>() {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        return Ok(Some(HttpListen { address, host: None }));
    }
    let (host, port_text) = text.rsplit_once(':').unwrap_or((text, ""));
    let is_bare_ipv6 = host.contains(':') && !host.starts_with('[');
    let port = port_text.parse::<u16>().ok().filter(|_| !host.is_empty() && !is_bare_ipv6);
    let Some(port) = port else {
        return Err(format!(
            "{name}: {text} is not an address and a port, such as 127.0.0.1:9090, [::1]:9090 or *:9090"
        ));
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host == "*" {
        let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        return Ok(Some(HttpListen { address, host: None }));
    }
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(Some(HttpListen { address: SocketAddr::new(ip, port), host: None }));
    }
    let mut resolved = (host, port)
        .to_socket_addrs()
        .map_err(|error| format!("{name}: {text}: cannot resolve the name: {error}"))?;
    let address =
        resolved.find(SocketAddr::is_ipv4).or_else(|| (host, port).to_socket_addrs().ok()?.next());
    let listen = |address| HttpListen { address, host: Some(host.to_owned()) };
    address.map(listen).map(Some).ok_or_else(|| format!("{name}: {text}: the name has no address"))
}

/// An address without its prefixes, and what they mean.
struct Prefixed<'p> {
    address_text: &'p str,
    tls: Option<ClientCertificate>,
    statistics_only: bool,
}

fn split_prefixes<'p>(entry: &'p str, settings: &Settings) -> Result<Prefixed<'p>, String> {
    let default_tls = settings.client_certificate();
    let mut prefixed = Prefixed { address_text: entry, tls: default_tls, statistics_only: false };
    loop {
        let text = prefixed.address_text;
        let match_prefix = |(prefix, tls)| Some((prefix, text.strip_prefix(prefix)?, tls));
        if let Some(address_text) = text.strip_prefix(STATISTICS_PREFIX) {
            prefixed = Prefixed { address_text, statistics_only: true, ..prefixed };
        } else if let Some((prefix, address_text, tls)) =
            TLS_PREFIXES.into_iter().find_map(match_prefix)
        {
            if !settings.tls {
                return Err(format!(
                    "listen (-l): {entry}: \"{prefix}\" needs TLS, add enable-ssl (-Z)"
                ));
            }
            prefixed = Prefixed { address_text, tls, ..prefixed };
        } else if text.starts_with('/') {
            return Err(format!(
                "listen (-l): {entry}: must be an address; a unix socket is -s, and statistics alone are served over TCP"
            ));
        } else {
            return Ok(prefixed);
        }
    }
}

fn resolve_address(address_text: &str, default_port: u16) -> Result<Vec<SocketAddr>, String> {
    let (host, port) = split_host_port(address_text, default_port)?;
    if host == "*" {
        return Ok(vec![SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))]);
    }
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let resolved = (host, port).to_socket_addrs();
    let resolved = resolved.map_err(|error| {
        format!("listen (-l): {address_text}: cannot resolve the name: {error}")
    })?;
    let has_ipv6 = Path::new("/proc/net/if_inet6").exists();
    Ok(resolved.filter(|address| address.is_ipv4() || has_ipv6).collect())
}

fn split_host_port(address_text: &str, default_port: u16) -> Result<(&str, u16), String> {
    let invalid_port = |text: &str| {
        format!("listen (-l): {address_text}: \"{text}\" is not a valid port, must be 0 to 65535")
    };
    if let Some(rest) = address_text.strip_prefix('[') {
        let (host, after_bracket) = rest.split_once(']').ok_or_else(|| {
            format!(
                "listen (-l): {address_text}: the bracket around the IPv6 address is not closed"
            )
        })?;
        let Some(port_text) = after_bracket.strip_prefix(':') else {
            return Ok((host, default_port));
        };
        return Ok((host, port_text.parse().map_err(|_| invalid_port(port_text))?));
    }
    match address_text.split_once(':') {
        Some((_, rest)) if rest.contains(':') => Ok((address_text, default_port)),
        Some((host, port_text)) => {
            Ok((host, port_text.parse().map_err(|_| invalid_port(port_text))?))
        }
        None => Ok((address_text, default_port)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_to_texts(listen: &str) -> Result<Vec<String>, String> {
        let settings = Settings { listen: listen.to_owned(), ..Settings::default() };
        Ok(parse_listen_addresses(&settings)?
            .iter()
            .map(|listen_address| listen_address.address.to_string())
            .collect())
    }

    #[test]
    fn addresses_take_ports_and_brackets() {
        assert_eq!(parse_to_texts("").unwrap(), ["127.0.0.1:11211"]);
        assert_eq!(
            parse_to_texts("127.0.0.1:7, 127.0.0.2").unwrap(),
            ["127.0.0.1:7", "127.0.0.2:11211"]
        );
        assert_eq!(parse_to_texts("::1,[::1]:5").unwrap(), ["[::1]:11211", "[::1]:5"]);
        assert_eq!(parse_to_texts("*").unwrap(), ["0.0.0.0:11211"]);
        assert!(parse_to_texts("127.0.0.1:99999").unwrap_err().contains("99999"));
        assert!(parse_to_texts("[::1").unwrap_err().contains("bracket"));
    }

    #[test]
    fn http_has_an_address_and_a_port() {
        let parse = |text| {
            let listen = parse_http_address("http", text)?;
            Ok::<_, String>(listen.map(|listen| (listen.address.to_string(), listen.host)))
        };
        assert_eq!(parse("").unwrap(), None);
        for (text, address) in [
            ("9090", "127.0.0.1:9090"),
            ("*:0", "0.0.0.0:0"),
            ("[::1]:9090", "[::1]:9090"),
            ("10.0.0.5:1", "10.0.0.5:1"),
        ] {
            assert_eq!(parse(text).unwrap(), Some((address.to_owned(), None)), "{text}");
        }
        let named = Some(("127.0.0.1:9090".to_owned(), Some("localhost".to_owned())));
        assert_eq!(parse("localhost:9090").unwrap(), named);
        for text in ["localhost", ":9090", "127.0.0.1:", "127.0.0.1:99999", "::1:9090", "99999"] {
            assert!(parse(text).unwrap_err().contains("is not an address and a port"), "{text}");
        }
    }

    #[test]
    fn only_loopback_is_unreachable_for_others() {
        let settings = Settings { listen: "127.0.0.1,0.0.0.0".to_owned(), ..Settings::default() };
        let addresses = parse_listen_addresses(&settings).unwrap();
        let public = find_public_address(&addresses, false).unwrap();
        assert_eq!(public.address.to_string(), "0.0.0.0:11211");
        assert!(find_public_address(&addresses[..1], false).is_none());
        assert!(find_public_address(&addresses, true).is_none());
    }

    #[test]
    fn each_address_has_tls_or_not_by_its_prefix() {
        let settings = Settings {
            listen: "notls:127.0.0.1:1,127.0.0.1:2,mtls:[::1]:3,btls:127.0.0.1:4".to_owned(),
            tls: true,
            ssl_verify_mode: 1,
            ..Settings::default()
        };
        let protections: Vec<_> = parse_listen_addresses(&settings)
            .unwrap()
            .iter()
            .map(|listen_address| (listen_address.address.port(), listen_address.tls))
            .collect();
        let expected = [
            (1, None),
            (2, Some(ClientCertificate::Optional)),
            (3, Some(ClientCertificate::Required)),
            (4, Some(ClientCertificate::NotRequested)),
        ];
        assert_eq!(protections, expected);
        let refusal = parse_to_texts("notls:127.0.0.1").unwrap_err();
        assert!(refusal.contains("add enable-ssl (-Z)"), "{refusal}");
    }

    #[test]
    fn an_address_that_requires_client_certificates_is_protected() {
        let new_settings =
            |listen: &str| Settings { listen: listen.to_owned(), tls: true, ..Settings::default() };
        let find_public = |listen| {
            let addresses = parse_listen_addresses(&new_settings(listen)).unwrap();
            find_public_address(&addresses, false).map(|public| public.address.to_string())
        };
        assert_eq!(find_public("mtls:0.0.0.0"), None);
        assert_eq!(find_public("btls:0.0.0.0").unwrap(), "0.0.0.0:11211");
        assert_eq!(find_public("mtls:0.0.0.0,notls:0.0.0.0:2").unwrap(), "0.0.0.0:2");
    }

    #[test]
    fn addresses_for_statistics_are_public_whatever_the_login() {
        let parse = |listen: &str| {
            let settings = Settings { listen: listen.to_owned(), ..Settings::default() };
            parse_listen_addresses(&settings)
        };
        let addresses = parse("127.0.0.1,noauth:0.0.0.0:2").unwrap();
        let public = find_public_address(&addresses, true).unwrap();
        assert_eq!((public.address.port(), public.statistics_only), (2, true));
        assert!(find_public_address(&parse("127.0.0.1,noauth:[::1]:2").unwrap(), true).is_none());
        for (listen, expected) in [
            ("noauth:127.0.0.1:2", "every address is for statistics"),
            ("127.0.0.1:2,noauth:127.0.0.1:2", "with and without"),
            ("127.0.0.1,noauth:/run/admin", "a unix socket is -s"),
            ("127.0.0.1,noauth:notls:127.0.0.1:2", "needs TLS"),
        ] {
            let refusal = parse(listen).unwrap_err();
            assert!(refusal.contains(expected), "{listen}: {refusal}");
        }
    }

    #[test]
    fn with_a_unix_socket_only_addresses_for_statistics_are_left() {
        let settings = Settings {
            listen: "127.0.0.1:1,noauth:127.0.0.1:2".to_owned(),
            unix_socket: Some("/run/socket".into()),
            ..Settings::default()
        };
        let addresses = parse_listen_addresses(&settings).unwrap();
        assert_eq!(addresses.iter().map(|one| one.address.port()).collect::<Vec<_>>(), [2]);
    }
}
