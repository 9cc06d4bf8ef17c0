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

use glasscache_lab::access::Credentials;
use rustls::{ClientConnection, StreamOwned};

use crate::access;
use crate::live_target::UNAUTHENTICATED;
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

impl Stream for StreamOwned<ClientConnection, TcpStream> {
    fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        TcpStream::set_read_timeout(&self.sock, Some(timeout))
    }
}

/// Longest line that [`read_line`] reads.
const LINE_BYTES_MAX: usize = 4096;

/// The next line without its end, and nothing of what follows it.
pub(crate) fn read_line(stream: &mut dyn Stream) -> io::Result<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < LINE_BYTES_MAX {
        stream.read_exact(&mut byte).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), CLOSED),
            _ => error,
        })?;
        match byte {
            [b'\n'] => break,
            [other] => line.push(other),
        }
    }
    Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
}

/// What a server that encrypts does to a connection that does not.
const CLOSED: &str = "the server closed the connection; if it encrypts, add --tls";

/// For each server what it replied, or why there is nothing: the others' replies are of use all the same.
pub(crate) type ByServer<T> = Vec<(String, Result<T, Failure>)>;

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
    #[command(flatten)]
    pub access: access::Args,
}

/// A server to measure, which may be named with and without `--server`.
#[derive(clap::Args, Debug, Clone)]
#[group(id = "target", multiple = false)]
pub(crate) struct MeasuredServer {
    /// The server: host:port or unix:PATH [default: one started here]
    #[arg(value_name = "TARGET")]
    positional_target: Option<String>,
    /// The same, as other commands take it
    #[arg(id = "target_server", long = "server", short = 's', value_name = "TARGET")]
    server: Option<String>,
}

impl MeasuredServer {
    /// The address, if a server was named.
    pub(crate) fn address(&self) -> Option<&str> {
        self.positional_target.as_deref().or(self.server.as_deref())
    }
}

impl Target {
    /// Takes the server that was named without `--server`, if one was.
    pub(crate) fn use_positional(&mut self, server: Option<String>) {
        self.server = server.unwrap_or_else(|| std::mem::take(&mut self.server));
    }

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
        let Credentials { tls, login } = self.access.read_credentials()?;
        let options = Options {
            tls,
            login,
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

    /// A connection for commands that the client does not support (dumps, watches), encrypted and logged in as the
    /// options say.
    pub(crate) fn connect(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Stream>> {
        let credentials = self.access.read_credentials();
        let Credentials { tls, login } =
            credentials.map_err(|failure| io::Error::other(failure.to_text()))?;
        let mut stream: Box<dyn Stream> = match endpoint {
            Endpoint::Unix(path) => Box::new(UnixStream::connect(path)?),
            Endpoint::Tcp(host, port) => {
                let socket = TcpStream::connect((host.as_str(), *port))?;
                match tls {
                    None => Box::new(socket),
                    Some(tls) => {
                        let session = tls.session(endpoint).map_err(io::Error::other)?;
                        Box::new(StreamOwned::new(session, socket))
                    }
                }
            }
        };
        stream.set_read_timeout(self.timeout())?;
        if let Some(login) = login {
            let mut request = Vec::new();
            login.write(&mut request).map_err(io::Error::other)?;
            stream.write_all(&request)?;
            let reply = read_line(&mut *stream)?;
            if reply != "STORED" {
                return Err(io::Error::other(format!("the login was refused: {reply}")));
            }
        }
        Ok(stream)
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms.max(1))
    }

    /// Sends the same request to every server; each has a reply or a failure.
    pub(crate) fn send_to_all(&self, request: Request<'_>) -> Result<ByServer<Reply>, Failure> {
        let replies = self.client()?.request_all(request, &self.budget());
        let replies = replies.map_err(|error| failure(&error))?.into_iter();
        Ok(replies.map(|(name, reply)| (name, reply.map_err(|error| failure(&error)))).collect())
    }
}

/// The key for the wire, or an error if it is not valid.
pub(crate) fn wire_key(key: &str) -> Result<WireKey<'_>, Failure> {
    glasscache_lab::target::wire_key(key).map_err(|error| Failure::usage(error.to_string()))
}

/// Whether a server refused a request because the connection has not logged in.
pub(crate) fn is_login_required(error: &Error) -> bool {
    // A `set` before the login is taken for one.
    let message = error.to_string();
    [UNAUTHENTICATED, "bad authentication token"].iter().any(|reply| message.contains(reply))
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
        _ if is_login_required(error) => {
            general_failure.with_hint("log in with --user, and the password in GLASSCACHE_PASSWORD")
        }
        Error::Unavailable(..) if general_failure.is_about("the connection was closed") => {
            general_failure.with_hint("if the server encrypts, add --tls")
        }
        Error::Unavailable(..) => general_failure.with_hint(hint),
        Error::Deadline(_) => general_failure.with_hint("--timeout-ms gives a call more time"),
        _ => general_failure,
    }
}
