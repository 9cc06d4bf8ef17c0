//! The server option of the small commands, and the exit codes for its errors.
//!
//! They use the client crate with one connection and one deadline per call, and work with any memcached.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use glasscache_client::address::Endpoint;
use glasscache_client::pipeline::Reply;
use glasscache_client::request::Request;
use glasscache_client::{Address, Budget, Client, Error, Options, Placement, WireKey};

use crate::output::{Exit, Failure};

/// Largest value that the commands read or write: memcached's maximum `-I`.
const VALUE_BYTES_MAX: u64 = 1 << 30;

/// The hint if no server responds at the address in `server_text`, which may be an error message that names it.
pub(crate) fn start_server_hint(server_text: &str) -> &'static str {
    if server_text.contains(DEFAULT_SERVER) {
        "glasscache serve starts a server on 127.0.0.1:11211"
    } else {
        "--server (-s) or GLASSCACHE_SERVER sets the address of the server"
    }
}

/// The default server.
const DEFAULT_SERVER: &str = "127.0.0.1:11211";

/// A connection of either family.
pub(crate) trait Stream: Read + Write {
    /// How long a read may wait.
    fn set_read_timeout(&self, timeout: Duration) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        TcpStream::set_read_timeout(self, Some(timeout))
    }
}

impl Stream for UnixStream {
    fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        UnixStream::set_read_timeout(self, Some(timeout))
    }
}

/// The server, and how long a call may take.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct Target {
    /// Server as host:port or path of a unix socket; several by comma share the keys (ketama)
    #[arg(
        long,
        short = 's',
        value_name = "ADDR",
        env = "GLASSCACHE_SERVER",
        hide_env_values = true,
        default_value = DEFAULT_SERVER
    )]
    pub server: String,
    /// How long a call may take, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    pub timeout_ms: u64,
}

impl Target {
    /// A client of the named servers; connects to none yet.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        self.client_of(&self.addresses()?)
    }

    /// The addresses of the named servers, one at least.
    pub(crate) fn addresses(&self) -> Result<Vec<Address>, Failure> {
        let addresses = Address::parse_list(&self.server).map_err(|error| failure(&error))?;
        if addresses.is_empty() {
            return Err(Failure::usage("--server: no address given"));
        }
        Ok(addresses)
    }

    /// A client of some of the servers; connects to none yet.
    pub(crate) fn client_of(&self, addresses: &[Address]) -> Result<Client, Failure> {
        let options = Options {
            timeout: self.timeout(),
            value_bytes_max: VALUE_BYTES_MAX,
            costs: false,
            ..Options::default()
        };
        Client::new(addresses, Placement::Ketama, options).map_err(|error| failure(&error))
    }

    /// A deadline for one call that begins now.
    pub(crate) fn budget(&self) -> Budget<'static> {
        Budget::new(self.timeout())
    }

    /// A plain connection, for commands that the client does not support (dumps, watches).
    pub(crate) fn connect(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Stream>> {
        let stream: Box<dyn Stream> = match endpoint {
            Endpoint::Tcp(host, port) => Box::new(TcpStream::connect((host.as_str(), *port))?),
            Endpoint::Unix(path) => Box::new(UnixStream::connect(path)?),
        };
        stream.set_read_timeout(self.timeout())?;
        Ok(stream)
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms.max(1))
    }

    /// Sends the same request to every server; fails at the first error.
    pub(crate) fn send_to_all(
        &self,
        request: Request<'_>,
    ) -> Result<Vec<(String, Reply)>, Failure> {
        send_to_servers_of(&self.client()?, request, &self.budget())
    }
}

/// Sends the same request to every server of a client; fails at the first error.
pub(crate) fn send_to_servers_of(
    client: &Client,
    request: Request<'_>,
    budget: &Budget<'_>,
) -> Result<Vec<(String, Reply)>, Failure> {
    let replies = client.request_all(request, budget);
    let replies = replies.map_err(|error| failure(&error))?;
    let reply_or_failure = |(name, reply): (String, Result<Reply, Error>)| match reply {
        Ok(reply) => Ok((name, reply)),
        Err(error) => Err(failure(&error)),
    };
    replies.into_iter().map(reply_or_failure).collect()
}

/// The key for the wire, or an error if it is not valid.
pub(crate) fn wire_key(key: &str) -> Result<WireKey<'_>, Failure> {
    glasscache_lab::target::wire_key(key).map_err(|error| Failure::usage(error.to_string()))
}

/// Maps an error of the client to an exit code.
pub(crate) fn failure(error: &Error) -> Failure {
    let exit = match error {
        Error::Unavailable(..) | Error::Deadline(_) | Error::Closed | Error::Interrupted => {
            Exit::Unreachable
        }
        Error::Protocol { .. } => Exit::BadData,
        Error::BadKey { .. } | Error::BadSetting(_) => Exit::Usage,
        _ => Exit::Finding,
    };
    let message = error.to_string();
    let hint = start_server_hint(&message);
    let general_failure = Failure::new(exit, message);
    match error {
        Error::Unavailable(..) => general_failure.with_hint(hint),
        Error::Deadline(_) => general_failure.with_hint("--timeout-ms gives a call more time"),
        _ => general_failure,
    }
}
