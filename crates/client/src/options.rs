//! The settings of a client, with the defaults that a careful user would choose.

use std::sync::Arc;
use std::time::Duration;

use crate::address::{Address, Endpoint};
use crate::error::Error;
pub use crate::key::KeyEncoding;
use crate::key::{KEY_BYTES_MAX, is_text_safe};
use crate::login::Login;
use crate::near::StrategyOptions;
use crate::observe::Observer;
use crate::pipeline::VALUE_BYTES_MAX;
use crate::request::CommandSet;
use crate::tcp::{self, TcpOptions};
use crate::tls::{self, Tls};
use crate::waiter::Waiter;

/// A store of this many bytes waits for its outcome even with `noreply`: its time is that of the wire, and
/// a value that is too large for the server must not be dropped silently.
pub const QUIET_BYTES_MAX: usize = 64 << 10;

/// Which protocol a client uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// Meta and text; text alone where a proxy knows no meta, which the first connection finds out.
    #[default]
    Detected,
    /// Binary, for servers that understand nothing else, such as those behind SASL: without TTLs and leases of the
    /// server.
    Binary,
}

impl Protocol {
    /// The command set of all servers, if it is fixed.
    pub fn command_set(self) -> Option<CommandSet> {
        match self {
            Self::Detected => None,
            Self::Binary => Some(CommandSet::Binary),
        }
    }
}

/// Settings of a client.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long a call may take, connecting and retries included.
    pub timeout: Duration,
    /// Longest value that is sent or received, in bytes.
    pub value_bytes_max: u64,
    /// Most connections to one server; a call beyond waits for one until its deadline.
    pub connections_max: usize,
    /// The prefix of each key on the wire.
    pub namespace: Vec<u8>,
    /// What is done with keys that need base64.
    pub keys: KeyEncoding,
    /// The user and the password with which each new connection logs in; `None` does not.
    pub login: Option<Login>,
    /// Which protocol the servers understand.
    pub protocol: Protocol,
    /// How each connection is encrypted; `None`: not at all.
    pub tls: Option<Tls>,
    /// What is set on its TCP sockets.
    pub tcp: TcpOptions,
    /// Whether the cost of each call is counted.
    pub costs: bool,
    /// Receives each finished call, in addition to the costs.
    pub observer: Option<Arc<dyn Observer>>,
    /// What is kept in the process and fetched together.
    pub strategy: Option<StrategyOptions>,
    /// Waits in place of the thread; `None`: calls block it.
    pub waiter: Option<Arc<dyn Waiter>>,
}

impl Options {
    /// Refuses settings with which no call could succeed, or that would change the meaning of requests.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let bad_setting = |message: &str| Err(Error::BadSetting(message.to_owned()));
        if self.connections_max == 0 {
            return bad_setting("connections_max=0: a call needs one");
        }
        if self.namespace.len() >= KEY_BYTES_MAX {
            return bad_setting("a namespace of 250 bytes leaves no room for keys");
        }
        if self.keys == KeyEncoding::Refuse && !is_text_safe(&self.namespace) {
            return bad_setting(
                "a namespace with spaces or control characters (keys=\"base64\" sends it)",
            );
        }
        let is_coherent = self.strategy.as_ref().is_some_and(|strategy| strategy.is_coherent);
        if is_coherent && self.protocol == Protocol::Binary {
            return bad_setting(
                "coherent: the binary protocol has no watch; leave protocol=\"binary\" out",
            );
        }
        self.tcp.check()?;
        self.login.as_ref().map_or(Ok(()), Login::check)
    }

    /// Refuses servers to which the settings cannot apply.
    pub(crate) fn check_servers(&self, addresses: &[Address]) -> Result<(), Error> {
        let is_unix = |address: &&Address| matches!(address.endpoint, Endpoint::Unix(_));
        let reason = match () {
            () if self.tls.is_some() => tls::NO_UNIX,
            () if self.tcp != TcpOptions::default() => tcp::NO_UNIX,
            () => return Ok(()),
        };
        addresses.iter().find(is_unix).map_or(Ok(()), |address| {
            Err(Error::BadSetting(format!("server {}: {reason}", address.endpoint)))
        })
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            // A cache that takes longer than a quarter of a second is useless: fail, and let the caller compute.
            timeout: Duration::from_millis(250),
            value_bytes_max: VALUE_BYTES_MAX,
            // A thread needs one connection at a time, and 32 threads at once in a call are rare.
            connections_max: 32,
            namespace: Vec::new(),
            keys: KeyEncoding::default(),
            login: None,
            protocol: Protocol::Detected,
            tls: None,
            tcp: TcpOptions::default(),
            costs: true,
            observer: None,
            strategy: None,
            waiter: None,
        }
    }
}
