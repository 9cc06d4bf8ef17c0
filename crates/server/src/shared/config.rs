//! The server's settings: everything that memcached's flags set, checked and typed.
//!
//! The caller that starts a server fills this in (the command line does, and so do tests); names of flags and
//! origins of values are the caller's business.

use std::net::SocketAddr;
use std::path::PathBuf;

use glasscache_store::tuning::Goal;
use ipnet::IpNet;

use crate::shared::error::Error;
use crate::shared::log_output::LogStyle;

/// Settings of one server, fixed at start unless a command changes them.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where to listen (`-l`, `-p`, `-s`); port 0 is any free port.
    pub listeners: Vec<Listen>,
    /// `-m` in bytes: items, index and buffers together.
    pub memory_bytes: u64,
    /// `-I` in bytes: the largest item.
    pub item_bytes_max: u32,
    /// `-c`: connections served at once.
    pub connections_max: u32,
    /// `-t`: worker threads.
    pub workers: usize,
    /// `-R`: commands that one connection may run before others are served.
    pub requests_per_event: u32,
    /// `-B`: the protocols that are served; a connection that speaks another is closed at its first byte.
    pub protocol: Protocols,
    /// `-Y`, `-S`: the users that may log in. With users every connection has to log in before anything else, by a
    /// `set` in text and by SASL in binary.
    pub users: Option<UsersFile>,
    /// The certificate for [`Listen::Tls`].
    pub tls: Option<TlsSettings>,
    /// The addresses of proxies: their connections begin with a header of the PROXY protocol.
    pub proxies: Vec<IpNet>,
    /// False under `-C`: no CAS uniques in replies.
    pub cas_enabled: bool,
    /// False under `-F`: `flush_all` and `flush_prefix` are refused.
    pub flush_enabled: bool,
    /// False under `-M`: a write is refused when memory is full.
    pub evict: bool,
    /// `-o policy=tuned`: what the settings of the eviction policy, which follow the load, minimise (`-o
    /// policy_goal`); `None`: they are fixed.
    pub tuning_goal: Option<Goal>,
    /// True under `-A`: the `shutdown` command works.
    pub shutdown_enabled: bool,
    /// False under `-X`: no `stats cachedump`, no `lru_crawler metadump`.
    pub dump_enabled: bool,
    /// False under `-W`: no `watch`.
    pub watch_enabled: bool,
    /// `-f`: growth factor of memcached's slab classes, for `stats slabs` and `stats items`.
    pub slab_factor: f64,
    /// `-n`: smallest chunk of memcached's slab classes without its header.
    pub slab_chunk_min: u32,
    /// `-o slab_chunk_max` in bytes: the largest chunk; `None` is half a page, or half of `-I`.
    pub slab_chunk_max: Option<u32>,
    /// `-b`: length of the kernel's queue of connections not yet accepted.
    pub backlog: u32,
    /// `-o idle_timeout`: seconds after which an idle connection is closed; 0 is never.
    pub idle_timeout_s: u32,
    /// `-o slow_ms`: milliseconds from which on a command is recorded as slow; 0 records none.
    pub slow_ms: u32,
    /// `-D`: the byte that ends a key's prefix in `stats detail`.
    pub prefix_delimiter: u8,
    /// True when `-D` was given: prefixes are counted from the start.
    pub detail_enabled: bool,
    /// `-v`, `-vv`, `-vvv`: how much is logged, if `log` is on.
    pub verbosity: u8,
    /// Lines on stderr about refusals and, depending on `verbosity`, about connections, commands and replies. Off
    /// if the server is part of another program.
    pub log: bool,
    /// The form of these lines.
    pub log_style: LogStyle,
    /// The file in which they are kept; `None` is stderr.
    pub log_file: Option<PathBuf>,
    /// The commit that the program was built from, for `stats glasscache`.
    pub commit: Option<&'static str>,
    /// Each worker is pinned to one processor.
    pub pin_workers: bool,
    /// `debugtime` and `misbehave` work (memcached's own tests need them).
    pub debug: bool,
    /// Seconds without progress, as counted by the watchdog, after which a worker that has work ends the process; 0
    /// switches the watchdog off.
    pub watchdog_ticks: u32,
    /// The exit code of a process that ends because a worker panicked or is stuck.
    pub failure_exit_code: i32,
    /// False under `-o no_lru_crawler`: its rows are missing in `stats`, its commands are refused.
    pub lru_crawler: bool,
    /// False under `-o no_lru_maintainer`: its rows are missing in `stats`.
    pub lru_maintainer: bool,
    /// False under `-o no_maxconns_fast`: connections beyond `-c` wait instead of being refused.
    pub maxconns_fast: bool,
    /// `-o watcher_logbuf_size` in bytes: the maximum of pending lines of a watcher that does not read.
    pub watcher_bytes: usize,
    /// The file with the nodes that `config get cluster` reports; without one the command is unknown.
    pub cluster_file: Option<PathBuf>,
    /// `-e`: the file that is the memory, so that items outlive a clean stop.
    pub memory_file: Option<PathBuf>,
    /// `--drain`: seconds for the pending output of connections that the server before cannot hand over.
    pub drain_s: u32,
    /// `--http`, `--http-token-file`, `--metrics`: what is served over HTTP.
    pub http: HttpSettings,
    /// Seed of the key hash; `None` takes a random one. With a memory file the one with which that was filled counts.
    pub hash_seed: Option<u64>,
    /// Settings that are only displayed by `stats settings`.
    pub display: DisplayedSettings,
}

/// The certificate of a TLS server, and what it accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// PEM file with the server's certificate and those between it and its authority.
    pub chain_file: PathBuf,
    /// PEM file with the private key; may be the same file.
    pub key_file: PathBuf,
    /// PEM file with the authorities of client certificates.
    pub client_ca_file: Option<PathBuf>,
    /// TLS 1.2 is refused.
    pub only_tls13: bool,
    /// Clients may resume their sessions by tickets.
    pub session_tickets: bool,
    /// Output in bytes that is encrypted at a time, and so the most that one connection keeps encrypted.
    pub write_buffer_bytes: usize,
}

/// Whether a TLS listener requests a certificate of its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClientCertificate {
    /// It does not.
    NotRequested,
    /// One that is presented has to be valid.
    Optional,
    /// A valid one is required.
    Required,
}

/// Which protocols a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocols {
    /// Each, distinguished by the first byte of a connection.
    #[default]
    Any,
    /// Classic text and meta alone.
    Text,
    /// The binary protocol alone.
    Binary,
}

/// A file with the users that may log in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsersFile {
    /// The file; read again when it changes.
    pub path: PathBuf,
    /// How its lines are read.
    pub format: UsersFileFormat,
}

/// How the lines of a file of users are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsersFileFormat {
    /// `user:password`, as memcached's `-Y`.
    AuthFile,
    /// `user:password`, and further fields after another colon, as memcached's `MEMCACHED_SASL_PWDB`.
    SaslDatabase,
}

/// Values that `stats settings` displays although the server does not need them.
#[derive(Debug, Clone, Default)]
pub struct DisplayedSettings {
    /// `-l` as given.
    pub inter: Option<String>,
    /// `-p` as given.
    pub tcp_port: u16,
    /// UDP sockets that the caller keeps open; they only get a row in `stats conns`.
    pub udp: Vec<SocketAddr>,
    /// Additional rows of `stats settings`, or other values for its rows.
    pub settings: Vec<(String, String)>,
}

/// What is served over HTTP, on a thread of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpSettings {
    /// `--http`: the page, the JSON interface, metrics and health.
    pub main: Option<HttpListen>,
    /// `--http-token-file`: a file whose first line is the token that requests to `main` present, except those about
    /// health.
    pub token_file: Option<PathBuf>,
    /// `--metrics`: metrics alone, without a token.
    pub metrics: Option<HttpListen>,
}

/// A port of HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpListen {
    /// The address; port 0 is any free port.
    pub address: SocketAddr,
    /// The host as it was configured: a name by which requests may call this server.
    pub host: Option<String>,
}

impl HttpSettings {
    /// Checks that nothing is exposed without protection, and that nothing is without effect.
    ///
    /// # Errors
    /// An address that other machines can reach without a token; a token without anything that it protects; one
    /// address for both ports.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |sentence: String| Err(Error::Setting(sentence));
        match (&self.main, &self.token_file, &self.metrics) {
            (None, Some(_), _) => refuse(
                "http-token-file: has no effect without http: add --http ADDRESS, or leave it out"
                    .to_owned(),
            ),
            (Some(main), None, _) if !main.address.ip().is_loopback() => refuse(format!(
                "http: {} can be reached by other machines, and the page shows keys: add --http-token-file FILE, or \
                 listen on 127.0.0.1",
                main.address
            )),
            (Some(main), _, Some(metrics))
                if main.address == metrics.address && main.address.port() != 0 =>
            {
                refuse(format!(
                    "metrics: {} is the address of http, which has /metrics as well: choose another port",
                    metrics.address
                ))
            }
            _ => Ok(()),
        }
    }
}

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// A TCP address; port 0 is any free port.
    Tcp(SocketAddr),
    /// The same with TLS, which needs [`Config::tls`].
    Tls {
        /// The TCP address.
        address: SocketAddr,
        /// Whether clients have to present a certificate.
        client_certificate: ClientCertificate,
    },
    /// A unix socket.
    Unix {
        /// The path of the socket; a dead one is replaced.
        path: PathBuf,
        /// `-a`: permission bits of the socket.
        mode: u32,
        /// The number of the group of the socket; `None` is the group of the process.
        group: Option<u32>,
    },
    /// The same, where connections need no login and are served statistics alone.
    Statistics(Box<Listen>),
}

impl Listen {
    /// The address with its transport, whatever is served there.
    pub(crate) fn transport(&self) -> &Listen {
        match self {
            Listen::Statistics(listen) => listen.transport(),
            listen => listen,
        }
    }

    /// Whether connections are served statistics alone.
    pub(crate) fn serves_statistics_only(&self) -> bool {
        matches!(self, Listen::Statistics(_))
    }
}

impl Config {
    /// Checks that no setting of the eviction policy is without effect.
    ///
    /// # Errors
    /// A policy that is tuned where nothing is evicted.
    pub fn check_policy(&self) -> Result<(), Error> {
        if self.tuning_goal.is_some() && !self.evict {
            return Err(Error::Setting(
                "policy (-o): tuned has no effect with disable-evictions (-M), nothing is evicted: leave one of them out"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// Whether the policy needs to know how long clients take to fill misses.
    pub(crate) fn weighs_fill_times(&self) -> bool {
        self.tuning_goal == Some(Goal::Time)
    }
}

impl Default for Config {
    /// memcached's defaults, except that it listens to this machine only.
    fn default() -> Config {
        Config {
            listeners: vec![Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 11211)))],
            memory_bytes: 64 << 20,
            item_bytes_max: 1 << 20,
            connections_max: 1024,
            workers: 4,
            requests_per_event: 64,
            protocol: Protocols::Any,
            users: None,
            tls: None,
            proxies: Vec::new(),
            cas_enabled: true,
            flush_enabled: true,
            evict: true,
            tuning_goal: None,
            shutdown_enabled: false,
            dump_enabled: true,
            watch_enabled: true,
            slab_factor: 1.25,
            slab_chunk_min: 48,
            slab_chunk_max: None,
            backlog: 1024,
            idle_timeout_s: 0,
            slow_ms: 100,
            prefix_delimiter: b':',
            detail_enabled: false,
            verbosity: 0,
            log: false,
            log_style: LogStyle::Plain,
            log_file: None,
            commit: None,
            pin_workers: false,
            debug: false,
            watchdog_ticks: 5,
            failure_exit_code: 70,
            lru_crawler: true,
            lru_maintainer: true,
            maxconns_fast: true,
            watcher_bytes: 256 << 10,
            cluster_file: None,
            memory_file: None,
            drain_s: 5,
            http: HttpSettings::default(),
            hash_seed: None,
            display: DisplayedSettings::default(),
        }
    }
}

impl std::fmt::Display for Listen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Listen::Tcp(address) | Listen::Tls { address, .. } => write!(f, "{address}"),
            Listen::Unix { path, .. } => write!(f, "{}", path.display()),
            Listen::Statistics(listen) => listen.fmt(f),
        }
    }
}

/// A seed that no client can hint: the hash of a random value of the standard library.
pub(crate) fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}
