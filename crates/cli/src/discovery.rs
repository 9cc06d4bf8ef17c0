//! `--discover`: servers that are found instead of named: the addresses of a name, the nodes of a cluster, the lines of a
//! file.

use std::io::Read;
use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use glasscache_client::Address;
use glasscache_client::address::Endpoint;

use crate::output::{Exit, Failure};
use crate::target::{Target, read_line};

/// The port where none is given.
const DEFAULT_PORT: u16 = 11211;
/// Bound of a file, and of the reply of a cluster; a node takes about a hundred bytes.
const DESCRIPTION_BYTES_MAX: u64 = 1 << 20;
/// Time between two looks at a source.
const PERIOD: Duration = Duration::from_secs(5);

const FORMS: &str = "dns:HOST:PORT, elasticache:HOST:PORT or file:PATH";

/// Where servers are found.
#[derive(clap::Args, Debug, Clone)]
#[group(skip)]
pub(crate) struct Args {
    #[arg(
        help = "Find the servers instead: dns:HOST:PORT (every address of a name), elasticache:HOST:PORT (config get cluster) or file:PATH (addresses, or a --cluster-file)",
        long = "discover",
        value_name = "SOURCE",
        value_parser = parse_source,
        conflicts_with = "positional_servers"
    )]
    source: Option<Source>,
}

/// A source of servers.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    Dns(String, u16),
    Cluster(String, u16),
    File(PathBuf),
}

fn parse_source(text: &str) -> Result<Source, String> {
    let bad = |reason: &str| format!("{reason}; write {FORMS}");
    let (kind, rest) = text.split_once(':').ok_or_else(|| bad("no kind of source"))?;
    if rest.is_empty() {
        return Err(bad(&format!("nothing after \"{kind}:\"")));
    }
    if kind == "file" {
        return Ok(Source::File(rest.into()));
    }
    let to_source = match kind {
        "dns" => Source::Dns,
        "elasticache" => Source::Cluster,
        _ => return Err(bad(&format!("{kind:?} is not a kind of source"))),
    };
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && !host.ends_with(':') => {
            let port = port.parse().map_err(|_| bad(&format!("{port:?} is not a port")))?;
            (host, port)
        }
        _ => (rest, DEFAULT_PORT),
    };
    Ok(to_source(host.trim_matches(['[', ']']).to_owned(), port))
}

impl Args {
    /// Makes the target the servers that are found now, if there is a source.
    pub(crate) fn apply_to(&self, target: &mut Target) -> Result<(), Failure> {
        if let Some(source) = &self.source {
            let found = source.find(target).map_err(|reason| {
                Failure::new(Exit::Unreachable, format!("--discover: {reason}"))
            })?;
            target.server = found.join(",");
        }
        Ok(())
    }

    /// Goes on looking, on a thread of its own that ends with the process: a source may need long.
    pub(crate) fn keep_looking(&self, target: &Target) -> Result<Option<Found>, Failure> {
        let Some(source) = self.source.clone() else {
            return Ok(None);
        };
        let found = Found { target: target.clone(), latest: Arc::default() };
        let (target, latest) = (target.clone(), Arc::clone(&found.latest));
        std::thread::Builder::new().name("discovery".to_owned()).spawn(move || {
            loop {
                std::thread::sleep(PERIOD);
                let outcome = source.find(&target);
                *latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
            }
        })?;
        Ok(Some(found))
    }
}

/// What was found, or why nothing was.
type Outcome = Result<Vec<String>, String>;

/// What a source has at present.
pub(crate) struct Found {
    target: Target,
    latest: Arc<Mutex<Option<Outcome>>>,
}

impl Found {
    /// What was found since the last call: the target of these servers, or the reason why there are none. The servers
    /// found before stay in use then.
    pub(crate) fn take(&self) -> Option<Result<Target, String>> {
        let outcome = self.latest.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some(outcome.map(|servers| Target { server: servers.join(","), ..self.target.clone() }))
    }
}

impl Source {
    /// The present servers, sorted; at least one.
    fn find(&self, target: &Target) -> Outcome {
        let mut servers = match self {
            Source::Dns(host, port) => {
                let addresses = (host.as_str(), *port).to_socket_addrs();
                let addresses = addresses.map_err(|error| format!("{host}: {error}"))?;
                addresses.map(|address| address.to_string()).collect()
            }
            Source::Cluster(host, port) => request_nodes(host, *port, target)
                .map_err(|reason| format!("{host}:{port}: {reason}"))?,
            Source::File(path) => {
                let text = read_bounded(path).map_err(|error| error.to_string());
                let servers = text.and_then(|text| parse_file(&text));
                servers.map_err(|reason| format!("{}: {reason}", path.display()))?
            }
        };
        servers.sort();
        servers.dedup();
        if servers.is_empty() {
            return Err("no server found".to_owned());
        }
        Ok(servers)
    }
}

fn read_bounded(path: &std::path::Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(DESCRIPTION_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// A description of a cluster, or addresses with commas, blanks or line ends between them; `#` begins a comment.
fn parse_file(text: &str) -> Outcome {
    if text.lines().next().is_some_and(|line| line.trim().parse::<u64>().is_ok()) {
        return parse_cluster(text, false);
    }
    let without_comments = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let servers = without_comments.flat_map(|line| line.split([',', ' ', '\t']));
    let servers = servers.filter(|server| !server.is_empty());
    let check = |server: &str| match Address::parse(server) {
        Ok(_) => Ok(server.to_owned()),
        Err(error) => Err(error.to_string()),
    };
    servers.map(check).collect()
}

/// The nodes of a description: a line with a version, then `name|address|port` with blanks between. Over TLS nodes have
/// their names, for which their certificates are issued.
fn parse_cluster(text: &str, prefers_names: bool) -> Outcome {
    let (version, nodes) = text.split_once('\n').unwrap_or((text, ""));
    if version.trim().parse::<u64>().is_err() {
        return Err(format!("a description of a cluster begins with its version, not {version:?}"));
    }
    let to_server = |node: &str| {
        let [name, address, port] = node.split('|').collect::<Vec<_>>()[..] else {
            return Err(format!("{node:?} must be name|address|port"));
        };
        let host = if prefers_names || address.is_empty() { name } else { address };
        let port: u16 = port.parse().map_err(|_| format!("{node:?}: {port:?} is not a port"))?;
        Ok(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
    };
    nodes.split_whitespace().map(to_server).collect()
}

/// Sends `config get cluster` to a configuration endpoint.
fn request_nodes(host: &str, port: u16, target: &Target) -> Outcome {
    let to_reason = |error: std::io::Error| error.to_string();
    let mut stream = target.connect(&Endpoint::Tcp(host.to_owned(), port)).map_err(to_reason)?;
    stream.write_all(b"config get cluster\r\n").map_err(to_reason)?;
    let header = read_line(&mut *stream).map_err(to_reason)?;
    let text_bytes = header.strip_prefix("CONFIG cluster 0 ").and_then(|text| text.parse().ok());
    let text_bytes = text_bytes.filter(|bytes: &u64| *bytes <= DESCRIPTION_BYTES_MAX);
    let Some(text_bytes) = text_bytes else {
        return Err(format!("not a configuration endpoint: it sent {header:?}"));
    };
    let mut text = String::new();
    stream.take(text_bytes).read_to_string(&mut text).map_err(to_reason)?;
    parse_cluster(&text, target.access.has_tls())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_has_a_kind_and_a_port_or_the_usual_one() {
        let cases = [
            ("dns:cache.example", Source::Dns("cache.example".into(), 11211)),
            ("dns:cache.example:11212", Source::Dns("cache.example".into(), 11212)),
            ("dns:[::1]:7", Source::Dns("::1".into(), 7)),
            ("elasticache:c.example:1", Source::Cluster("c.example".into(), 1)),
            ("file:/etc/servers", Source::File("/etc/servers".into())),
        ];
        for (text, source) in cases {
            assert_eq!(parse_source(text), Ok(source));
        }
        for (text, reason) in [
            ("cache.example", "no kind of source"),
            ("srv:x", "\"srv\" is not a kind"),
            ("dns:", "nothing after"),
            ("dns:a:b", "\"b\" is not a port"),
        ] {
            let error = parse_source(text).unwrap_err();
            assert!(error.starts_with(reason) && error.ends_with(FORMS), "{error}");
        }
    }

    #[test]
    fn a_file_has_addresses_or_a_description_of_a_cluster() {
        let list = "a:1, b:2 # spare\n\n# none\n/run/c.sock\n";
        assert_eq!(parse_file(list).unwrap(), ["a:1", "b:2", "/run/c.sock"]);
        let cluster = "12\na.example|10.0.0.1|11211 b.example||11212\nc|::1|3\n";
        assert_eq!(parse_file(cluster).unwrap(), ["10.0.0.1:11211", "b.example:11212", "[::1]:3"]);
        assert_eq!(parse_cluster(cluster, true).unwrap()[0], "a.example:11211");
        for bad in ["1\na:11211", "1\na|b|c", "user:pass@a:1"] {
            assert!(parse_file(bad).is_err(), "{bad}");
        }
        assert!(parse_cluster("a|b|1", false).is_err());
    }
}
