//! The head of an HTTP request, and what is refused before anything is served. No sockets.

use std::fs;
use std::net::IpAddr;

/// The maximum length of a head in bytes.
pub(crate) const HEAD_BYTES_MAX: usize = 8 << 10;
/// The maximum number of fields in a head.
const FIELDS_MAX: usize = 64;

/// A parsed head.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// `HEAD`: only the head of the response is sent.
    pub(crate) is_head: bool,
    /// The path without the query.
    pub(crate) path: String,
    /// What follows the question mark.
    pub(crate) query: String,
    /// The field `Host`.
    pub(crate) host: Option<String>,
    /// The field `Origin`.
    pub(crate) origin: Option<String>,
    /// The token of `Authorization: Bearer`.
    pub(crate) token: Option<String>,
    /// Whether the body may be compressed by gzip.
    pub(crate) accepts_gzip: bool,
    /// Whether the client is a browser that navigates.
    pub(crate) wants_html: bool,
}

/// A request that is refused: the status, and one sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) sentence: String,
}

impl Refusal {
    pub(crate) fn new(status: u16, sentence: impl Into<String>) -> Refusal {
        Refusal { status, sentence: sentence.into() }
    }
}

/// Parses the head at the start of `input`; `None` if more of it has to be received.
///
/// # Errors
/// The head is malformed or too long, the method is not supported, or the target is not a path.
pub(crate) fn parse_head(input: &[u8]) -> Result<Option<Request>, Refusal> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut head = httparse::Request::new(&mut fields);
    match head.parse(input) {
        Ok(httparse::Status::Complete(head_bytes)) if head_bytes <= HEAD_BYTES_MAX => {}
        Ok(httparse::Status::Partial) if input.len() < HEAD_BYTES_MAX => return Ok(None),
        Ok(_) => {
            return Err(Refusal::new(431, format!("the head exceeds {HEAD_BYTES_MAX} bytes")));
        }
        Err(httparse::Error::TooManyHeaders) => {
            return Err(Refusal::new(431, format!("the head has more than {FIELDS_MAX} fields")));
        }
        Err(error) => return Err(Refusal::new(400, format!("the request is malformed: {error}"))),
    }
    read_head(&head).map(Some)
}

fn read_head(head: &httparse::Request<'_, '_>) -> Result<Request, Refusal> {
    let is_head = match head.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(Refusal::new(405, "only GET and HEAD are served")),
    };
    let target = head.path.unwrap_or_default();
    if !target.starts_with('/') {
        return Err(Refusal::new(400, "the target of the request must begin with a slash"));
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut request =
        Request { is_head, path: path.to_owned(), query: query.to_owned(), ..Request::default() };
    for field in &*head.headers {
        let value = String::from_utf8_lossy(field.value);
        let value = value.trim();
        match field.name.to_ascii_lowercase().as_str() {
            "host" if request.host.is_some() => {
                return Err(Refusal::new(400, "the field Host is repeated"));
            }
            "host" => request.host = Some(value.to_owned()),
            "origin" => request.origin = Some(value.to_owned()),
            "authorization" => request.token = read_bearer(value),
            "accept-encoding" => request.accepts_gzip = accepts_gzip(value),
            "accept" => request.wants_html = value.contains("text/html"),
            _ => {}
        }
    }
    if head.version == Some(1) && request.host.is_none() {
        return Err(Refusal::new(400, "the field Host is missing"));
    }
    Ok(request)
}

/// The token of `Bearer TOKEN`; the scheme in any case.
fn read_bearer(value: &str) -> Option<String> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
}

/// Whether `Accept-Encoding` allows gzip.
fn accepts_gzip(value: &str) -> bool {
    value.split(',').any(|coding| {
        let mut parameters = coding.split(';').map(str::trim);
        let is_gzip = parameters.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let is_refused = parameters.any(|parameter| {
            let weight = parameter.strip_prefix("q=").and_then(|weight| weight.parse().ok());
            weight == Some(0.0)
        });
        is_gzip && !is_refused
    })
}

/// The host names of one port, by which a page of another site that has a name for this address is recognised: its
/// requests have that name (DNS rebinding).
#[derive(Debug, Clone, Default)]
pub(crate) struct HostNames(Vec<String>);

impl HostNames {
    /// The names of this machine, and the one that was configured, if it is a name.
    pub(crate) fn new(configured: Option<&str>) -> HostNames {
        let machine = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let names = ["localhost", machine.trim()].into_iter().chain(configured);
        let names = names.filter(|name| !name.is_empty());
        HostNames(names.map(str::to_ascii_lowercase).collect())
    }

    /// Refuses a request that names another host, or that a page of another origin sends.
    ///
    /// # Errors
    /// Such a request.
    pub(crate) fn check(&self, request: &Request) -> Result<(), Refusal> {
        let Some(host) = &request.host else {
            return Ok(());
        };
        if !self.contains(host) {
            return Err(Refusal::new(
                403,
                "the field Host names another host; use an IP address, localhost, or the name in --http or --metrics",
            ));
        }
        let own_origin = format!("http://{host}");
        match &request.origin {
            Some(origin) if !origin.eq_ignore_ascii_case(&own_origin) => {
                Err(Refusal::new(403, "the field Origin names another site"))
            }
            _ => Ok(()),
        }
    }

    /// Whether `host`, with or without a port, is an IP address or one of the names.
    fn contains(&self, host: &str) -> bool {
        let Some(name) = strip_port(host) else {
            return false;
        };
        let address = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Some(address) = address {
            return address.parse::<std::net::Ipv6Addr>().is_ok();
        }
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        name.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv4()) || self.0.contains(&name)
    }
}

/// `host` without its port; `None` if the port is not a number.
fn strip_port(host: &str) -> Option<&str> {
    let name_end = if host.starts_with('[') {
        host.find(']')? + 1
    } else {
        host.find(':').unwrap_or(host.len())
    };
    let (name, port) = host.split_at_checked(name_end)?;
    match port.strip_prefix(':') {
        Some(digits) => digits.parse::<u16>().is_ok().then_some(name),
        None => port.is_empty().then_some(name),
    }
}

/// The parameters of a query, each of which is known and given once.
///
/// # Errors
/// One that is not among `names`, or is repeated.
pub(crate) fn read_query<'q, const N: usize>(
    query: &'q str,
    names: [&str; N],
) -> Result<[Option<&'q str>; N], Refusal> {
    let mut values = [None; N];
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let known = names.iter().position(|known| *known == name);
        let slot = known.and_then(|index| values.get_mut(index)).ok_or_else(|| {
            let expected = if N == 0 { "no parameters".to_owned() } else { names.join(" and ") };
            Refusal::new(400, format!("{name:?} is not a parameter; this has {expected}"))
        })?;
        if slot.replace(value).is_some() {
            return Err(Refusal::new(400, format!("{name} is given twice; give it once")));
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Option<Request>, u16> {
        parse_head(text.as_bytes()).map_err(|refusal| refusal.status)
    }

    #[test]
    fn a_head_is_parsed_when_it_is_complete() {
        let text = "GET /api/hotkeys?window=1m HTTP/1.1\r\nHost: [::1]:80\r\nAUTHORIZATION: bearer  abc\r\nAccept-Encoding: br, gzip;q=0.5\r\n\r\n";
        for end in 0..text.len() {
            assert_eq!(parse(&text[..end]), Ok(None), "{end}");
        }
        let request = parse(text).unwrap().unwrap();
        assert_eq!((request.path.as_str(), request.query.as_str()), ("/api/hotkeys", "window=1m"));
        assert_eq!(request.token.as_deref(), Some("abc"));
        assert!(request.accepts_gzip && !request.is_head);
    }

    #[test]
    fn what_is_not_a_request_for_a_path_is_refused() {
        for (text, status) in [
            ("POST / HTTP/1.1\r\nHost: a\r\n\r\n", 405),
            ("GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
            ("GET / HTTP/9\r\n\r\n", 400),
            ("\0\0\0\r\n\r\n", 400),
        ] {
            assert_eq!(parse(text), Err(status), "{text:?}");
        }
        assert!(parse("GET / HTTP/1.0\r\n\r\n").unwrap().is_some(), "1.0 has no Host");
        let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(HEAD_BYTES_MAX));
        assert_eq!(parse(&long), Err(431));
        assert_eq!(parse(&format!("{long}\r\n\r\n")), Err(431));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "X: 1\r\n".repeat(FIELDS_MAX + 1));
        assert_eq!(parse(&many), Err(431));
    }

    #[test]
    fn gzip_is_used_only_if_it_is_accepted() {
        for (value, is_accepted) in [
            ("gzip", true),
            ("deflate, GZIP", true),
            ("gzip;q=0", false),
            ("gzip; q=0.0", false),
            ("br", false),
            ("", false),
        ] {
            assert_eq!(accepts_gzip(value), is_accepted, "{value}");
        }
    }

    #[test]
    fn only_addresses_and_own_names_are_hosts() {
        let names = HostNames::new(Some("Cache.example"));
        let check = |host: &str, origin: Option<&str>| {
            let request = Request {
                host: Some(host.to_owned()),
                origin: origin.map(str::to_owned),
                ..Request::default()
            };
            names.check(&request).is_ok()
        };
        for host in [
            "127.0.0.1",
            "127.0.0.1:9090",
            "[::1]:1",
            "[fe80::1]",
            "localhost:1",
            "LOCALHOST.",
            "cache.example:9",
        ] {
            assert!(check(host, None), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "",
            "::1",
            "[evil]",
            "localhost:",
            "localhost:x",
            "127.0.0.1:99999",
            "[::1",
        ] {
            assert!(!check(host, None), "{host}");
        }
        assert!(check("localhost:1", Some("http://localhost:1")));
        for origin in ["http://localhost:2", "https://localhost:1", "null", "http://evil.example"] {
            assert!(!check("localhost:1", Some(origin)), "{origin}");
        }
        assert!(names.check(&Request::default()).is_ok(), "HTTP/1.0 without Host");
    }

    #[test]
    fn unknown_and_repeated_parameters_are_refused() {
        let read = |query| read_query(query, ["window", "by"]);
        assert_eq!(read(""), Ok([None, None]));
        assert_eq!(read("by=bytes&window=1m"), Ok([Some("1m"), Some("bytes")]));
        assert_eq!(read("by=1&by=2").unwrap_err().status, 400);
        let refusal = read("top=3").unwrap_err();
        assert_eq!(refusal.sentence, "\"top\" is not a parameter; this has window and by");
    }
}
