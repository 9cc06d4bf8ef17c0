//! The settings of the server: one struct, filled from defaults, a file, the environment and flags.
//!
//! `table`, `extended` and `inert` list every setting once: name, letter, help, bound, parser and
//! formatter. The parser, `--help`, `config show` and the reference walk these lists. `layers`
//! decides which source wins; `address` reads `-l`. Nothing here opens a socket or a store.

mod address;
mod arguments;
mod extended;
mod inert;
mod layers;
mod table;
mod unsupported;
mod value;

use std::path::PathBuf;

use glasscache_server::{ClientCertificate, IpNet, TuningGoal};

pub(crate) use address::{
    ListenAddress, find_public_address, parse_http_address, parse_listen_addresses,
};
pub(crate) use arguments::{ServerFlags, format_after_help, is_debug};
pub(crate) use extended::extended_options;
pub(crate) use layers::{ResolvedSettings, Sources, resolve};
pub(crate) use table::FLAGS;

/// Every setting with the value it has after all sources were read. Defaults are memcached's.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// TCP port; 0 is none, -1 a free one.
    pub port: i64,
    /// UDP port as given; there is no UDP support, only memcached's own tests use it.
    pub udp_port: i64,
    /// Addresses to listen on, comma separated as with memcached; empty means 127.0.0.1.
    pub listen: String,
    /// Path of the unix socket; replaces TCP.
    pub unix_socket: Option<PathBuf>,
    /// Permissions of the unix socket.
    pub unix_mask: u32,
    /// Group of the unix socket, by name or number.
    pub unix_group: Option<String>,
    /// Allows listening beyond this machine.
    pub public: bool,
    /// Memory for everything the server holds.
    pub memory_bytes: u64,
    /// False: a full store refuses instead of evicting.
    pub evict: bool,
    /// `fixed` or `tuned`: whether the settings of the eviction policy follow the load.
    pub policy: &'static str,
    /// What a tuned policy minimises.
    pub policy_goal: TuningGoal,
    /// Largest item; `None` for the default, which depends on the memory.
    pub item_bytes_max: Option<u64>,
    /// Simultaneous connections.
    pub connections_max: u32,
    /// Worker threads.
    pub threads: usize,
    /// Length of the kernel's queue of unaccepted connections.
    pub backlog: u32,
    /// Commands of one connection before other connections are served.
    pub requests_per_event: u32,
    /// Whether items have CAS uniques.
    pub cas_enabled: bool,
    /// Whether `flush_all` works.
    pub flush_enabled: bool,
    /// Whether dumps of keys work.
    pub dump_enabled: bool,
    /// Whether `watch` works.
    pub watch_enabled: bool,
    /// Whether `shutdown` works.
    pub shutdown_enabled: bool,
    /// Growth factor of the slab classes in `stats items` and `stats slabs`.
    pub slab_factor: f64,
    /// Smallest value space of these classes.
    pub slab_min_bytes: u32,
    /// Largest chunk of these classes; `None` is half a page.
    pub slab_chunk_bytes_max: Option<u64>,
    /// Whether to request huge pages.
    pub large_pages: bool,
    /// Log level on stderr: 0 to 3.
    pub verbosity: u8,
    /// The delimiter of prefixes in `stats detail`; if given, detail is on from the start.
    pub prefix_delimiter: Option<u8>,
    /// The protocols served, by the name in `stats settings`; `None` serves all that the login covers.
    pub binding_protocol: Option<&'static str>,
    /// The file that is the memory.
    pub memory_file: Option<PathBuf>,
    /// Whether SIGTERM and SIGINT save the items of that file.
    pub save_on_term: bool,
    /// Whether it takes the place of the running server with this file.
    pub replace: bool,
    /// Seconds for the pending output of connections that cannot be handed over.
    pub drain_s: u32,
    /// File with the users that may log in.
    pub auth_file: Option<PathBuf>,
    /// Whether clients of the binary protocol log in by SASL.
    pub sasl: bool,
    /// Whether clients connect by TLS.
    pub tls: bool,
    /// PEM file with the server's certificate.
    pub ssl_chain_cert: Option<PathBuf>,
    /// PEM file with the private key; `None` if it is in the same file.
    pub ssl_key: Option<PathBuf>,
    /// PEM file with the authorities of client certificates.
    pub ssl_ca_cert: Option<PathBuf>,
    /// memcached's number of what is asked of clients: 0 no certificate, 1 one if they have it, 2 and 3 a valid one.
    pub ssl_verify_mode: u8,
    /// memcached's number of the oldest version: 2 for TLS 1.2, 3 for TLS 1.3.
    pub ssl_min_version: u8,
    /// Whether TLS sessions can be resumed.
    pub ssl_session_cache: bool,
    /// Output of one connection that is encrypted at a time.
    pub ssl_write_bytes: u64,
    /// Networks of proxies that send a header of the PROXY protocol.
    pub proxies: Vec<IpNet>,
    /// Seconds after which an idle connection is closed; 0 never.
    pub idle_timeout_s: u32,
    /// Milliseconds from which on a command is recorded as slow; 0 none.
    pub slow_ms: u32,
    /// Buffer of one watcher.
    pub watcher_log_bytes: u64,
    /// Buffer of one worker's log.
    pub worker_log_bytes: u64,
    /// Refuse connections above the limit at once instead of leaving them in the queue.
    pub maxconns_fast: bool,
    /// Whether `stats` has the crawler's rows.
    pub lru_crawler: bool,
    /// Whether `stats` has the maintainer's rows.
    pub lru_maintainer: bool,
    /// File with the nodes for `config get cluster`.
    pub cluster_file: Option<PathBuf>,
    /// Address of HTTP: the page, metrics and health; empty for none.
    pub http: String,
    /// File with the token that requests over HTTP present.
    pub http_token_file: Option<PathBuf>,
    /// Address of a port for metrics alone; empty for none.
    pub metrics: String,
    /// Seconds without progress after which a worker that has work ends the process; 0 never. See
    /// [`Settings::watchdog_s`].
    pub watchdog_s: Option<u32>,
    /// The exit code of a process that ends because a worker panicked or is stuck.
    pub failure_exit: u8,
    /// File of the log; `None` is stderr.
    pub log_file: Option<PathBuf>,
    /// Form of the lines of the log: `text` or `json`.
    pub log_format: &'static str,
    /// Leave the terminal.
    pub daemon: bool,
    /// File for the process id.
    pub pid_file: Option<PathBuf>,
    /// User to switch to when started as root.
    pub user: Option<String>,
    /// Keep all memory resident.
    pub lock_memory: bool,
    /// Raise the limit on core files.
    pub core_dumps: bool,
    /// `stats settings` rows of options that have no effect here, in the order of their table.
    pub without_effect: Vec<(&'static str, String)>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            port: 11211,
            udp_port: 0,
            listen: String::new(),
            unix_socket: None,
            unix_mask: 0o700,
            unix_group: None,
            public: false,
            memory_bytes: 64 << 20,
            evict: true,
            policy: "fixed",
            policy_goal: TuningGoal::Objects,
            item_bytes_max: None,
            connections_max: 1024,
            threads: 4,
            backlog: 1024,
            requests_per_event: 64,
            cas_enabled: true,
            flush_enabled: true,
            dump_enabled: true,
            watch_enabled: true,
            shutdown_enabled: false,
            slab_factor: 1.25,
            slab_min_bytes: 48,
            slab_chunk_bytes_max: None,
            large_pages: false,
            verbosity: 0,
            prefix_delimiter: None,
            binding_protocol: None,
            memory_file: None,
            save_on_term: false,
            replace: false,
            drain_s: 5,
            auth_file: None,
            sasl: false,
            tls: false,
            ssl_chain_cert: None,
            ssl_key: None,
            ssl_ca_cert: None,
            ssl_verify_mode: 0,
            ssl_min_version: 2,
            ssl_session_cache: false,
            ssl_write_bytes: 16 << 10,
            proxies: Vec::new(),
            idle_timeout_s: 0,
            slow_ms: 100,
            watcher_log_bytes: 256 << 10,
            worker_log_bytes: 64 << 10,
            maxconns_fast: true,
            lru_crawler: true,
            lru_maintainer: true,
            cluster_file: None,
            http: String::new(),
            http_token_file: None,
            metrics: String::new(),
            watchdog_s: None,
            failure_exit: 70,
            log_file: None,
            log_format: "text",
            daemon: false,
            pid_file: None,
            user: None,
            lock_memory: false,
            core_dumps: false,
            without_effect: Vec::new(),
        }
    }
}

/// [`Settings::watchdog_s`] without a memory file.
const WATCHDOG_IN_MEMORY_S: u32 = 5;
/// And with one, whose pages the kernel writes back.
const WATCHDOG_IN_FILE_S: u32 = 60;

impl Settings {
    /// Checks the relations between settings.
    pub(crate) fn check(&self) -> Result<(), String> {
        let half_memory = self.memory_bytes / 2;
        let item_bytes_max = self.item_bytes_max();
        if item_bytes_max > half_memory {
            return Err(format!(
                "max-item-size (-I): {} is too large, it must be at most half of memory-limit (-m), here {}",
                value::format_size(item_bytes_max),
                value::format_size(half_memory)
            ));
        }
        if let Some(chunk_bytes) = self.slab_chunk_bytes_max
            && (chunk_bytes > item_bytes_max || !item_bytes_max.is_multiple_of(chunk_bytes))
        {
            return Err(format!(
                "slab_chunk_max (-o): {} does not fit, it must divide max-item-size (-I), here {}",
                value::format_size(chunk_bytes),
                value::format_size(item_bytes_max)
            ));
        }
        self.check_effects()?;
        self.check_login()?;
        self.check_tls()
    }

    /// Refuses settings that would have no effect with the others.
    fn check_effects(&self) -> Result<(), String> {
        if self.save_on_term && self.memory_file.is_none() {
            return Err(
                "save_on_term (-o): has no effect without memory-file (-e): nothing could be saved"
                    .to_owned(),
            );
        }
        if self.policy_goal != TuningGoal::Objects && !self.tunes_policy() {
            return Err(format!(
                "policy_goal (-o): {} has no effect without policy=tuned: the settings of the policy are fixed",
                self.policy_goal.name()
            ));
        }
        if self.unix_group.is_some() && self.unix_socket.is_none() {
            return Err(
                "unix-group: has no effect without unix-socket (-s): no file could belong to it"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Whether the settings of the eviction policy follow the load.
    fn tunes_policy(&self) -> bool {
        self.policy == "tuned"
    }

    /// What they minimise; `None` if they are fixed.
    pub(crate) fn tuning_goal(&self) -> Option<TuningGoal> {
        self.tunes_policy().then_some(self.policy_goal)
    }

    /// Checks that TLS has what it needs, and that nobody who configures it serves without it.
    fn check_tls(&self) -> Result<(), String> {
        if !self.tls {
            let tls_options = [
                ("ssl_chain_cert", self.ssl_chain_cert.is_some()),
                ("ssl_key", self.ssl_key.is_some()),
                ("ssl_ca_cert", self.ssl_ca_cert.is_some()),
                ("ssl_verify_mode", self.ssl_verify_mode > 0),
            ];
            let configured_option = tls_options.iter().find(|(_, is_given)| *is_given);
            return match configured_option {
                Some((name, _)) => Err(format!(
                    "{name} (-o): is refused because nothing is encrypted without enable-ssl (-Z)"
                )),
                None => Ok(()),
            };
        }
        if self.unix_socket.is_some() {
            return Err("enable-ssl (-Z): a unix socket (-s) has no TLS; use TCP".to_owned());
        }
        if self.ssl_chain_cert.is_none() {
            return Err(
                "enable-ssl (-Z): needs a certificate: add -o ssl_chain_cert=FILE,ssl_key=FILE"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// A warning where client certificates are asked for and none can be valid.
    fn tls_warning(&self) -> Option<String> {
        let is_mutual = |part: &str| part.trim().starts_with("mtls:");
        let verifies_clients = self.ssl_verify_mode > 0 || self.listen.split(',').any(is_mutual);
        (self.tls && verifies_clients && self.ssl_ca_cert.is_none()).then(|| {
            "no client certificate will be accepted: its authority is missing (-o ssl_ca_cert=FILE)"
                .to_owned()
        })
    }

    /// What TLS asks of the clients of a listener without a prefix; `None` without TLS.
    pub(crate) fn client_certificate(&self) -> Option<ClientCertificate> {
        self.tls.then_some(match self.ssl_verify_mode {
            0 => ClientCertificate::NotRequested,
            1 => ClientCertificate::Optional,
            _ => ClientCertificate::Required,
        })
    }

    /// Checks that no protocol is served without the login that was asked for.
    fn check_login(&self) -> Result<(), String> {
        let protocol = self.binding_protocol.unwrap_or_else(|| self.protocol());
        let reason = match (self.auth_file.is_some(), self.sasl) {
            (_, true) if protocol == "ascii" => {
                "SASL (-S) is a part of the binary protocol: use binary, or -Y without -S"
            }
            (false, true) if protocol != "binary" => {
                "text clients cannot log in by SASL (-S): add -Y FILE for them, or use binary"
            }
            (true, false) if protocol != "ascii" => {
                "auth-file (-Y) covers text and meta alone: add -S for binary clients, or use ascii"
            }
            _ => return Ok(()),
        };
        Err(format!("protocol (-B): \"{protocol}\" is refused: {reason}"))
    }

    /// The protocols served, by the name in `stats settings`: as in memcached, a login restricts them by default.
    pub(crate) fn protocol(&self) -> &'static str {
        self.binding_protocol.unwrap_or(match (self.auth_file.is_some(), self.sasl) {
            (true, false) => "ascii",
            (false, true) => "binary",
            _ => "auto-negotiate",
        })
    }

    /// Whether clients have to log in.
    pub(crate) fn requires_login(&self) -> bool {
        self.auth_file.is_some() || self.sasl
    }

    /// Whether what is logged after the start is lost.
    pub(crate) fn loses_log(&self) -> bool {
        self.daemon && self.verbosity == 0 && self.log_file.is_none()
    }

    /// Seconds without progress after which a worker that has work ends the process. A worker that writes to a file
    /// waits in the kernel while the disk is slow, and must not end the server.
    pub(crate) fn watchdog_s(&self) -> u32 {
        let default_s =
            if self.memory_file.is_some() { WATCHDOG_IN_FILE_S } else { WATCHDOG_IN_MEMORY_S };
        self.watchdog_s.unwrap_or(default_s)
    }

    /// The largest item with its key: given, or one mebibyte and with little memory half of it.
    pub(crate) fn item_bytes_max(&self) -> u64 {
        self.item_bytes_max.unwrap_or((1 << 20).min(self.memory_bytes / 2))
    }

    /// The largest chunk of the slab classes, given or memcached's default for this item size.
    pub(crate) fn slab_chunk_bytes(&self) -> u64 {
        self.slab_chunk_bytes_max.unwrap_or((1 << 19).min(self.item_bytes_max()))
    }
}

/// What a setting takes on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArgumentKind {
    /// No value: its presence means yes.
    Nothing,
    /// No value; given twice it means 2.
    Count,
    /// A value, with this name in the help.
    Value(&'static str),
}

/// One line of a table of settings.
pub(crate) struct Setting {
    /// Long name on the command line, key in the file, and after `GLASSCACHE_` in the environment.
    pub name: &'static str,
    /// memcached's letter, if it has one.
    pub letter: Option<char>,
    /// What it takes.
    pub argument_kind: ArgumentKind,
    /// One sentence for people.
    pub help: &'static str,
    /// Why it has no effect here, for those that are accepted only because scripts pass them.
    pub no_effect_reason: Option<&'static str>,
    /// Parses a value into the settings, or returns the violated bound.
    pub parse_into: fn(&mut Settings, &str) -> Result<(), String>,
    /// The present value as text.
    pub show: fn(&Settings) -> String,
}

impl Setting {
    /// Whether its value is a number.
    fn takes_number(&self) -> bool {
        matches!(
            self.argument_kind,
            ArgumentKind::Value("NUM" | "MB" | "BYTES" | "SECONDS" | "CODE" | "FACTOR")
        )
    }

    /// The help sentence, with the reason if the setting has no effect.
    pub(crate) fn help_text(&self) -> String {
        match self.no_effect_reason {
            None => self.help.to_owned(),
            Some(reason) => format!("{} (accepted, no effect: {reason})", self.help),
        }
    }
}
