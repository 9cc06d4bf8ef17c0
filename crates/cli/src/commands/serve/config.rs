//! The settings of a server, as the crate of the server wants them.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use glasscache_server as server;

use super::failure;
use crate::output::Failure;
use crate::settings::{ListenAddress, Settings, parse_http_address};

/// memcached's environment variable for the password database of SASL.
const PASSWORD_VARIABLE: &str = "MEMCACHED_SASL_PWDB";

/// What the settings name and only this machine knows.
pub(super) struct FoundOnMachine {
    pub(super) users_file: Option<server::UsersFile>,
    /// The number of the group of the unix socket.
    pub(super) unix_group: Option<u32>,
}

/// `server::Config` from the settings; settings without effect still appear in `stats settings`.
pub(super) fn build_server_config(
    settings: &Settings,
    addresses: &[ListenAddress],
    found: FoundOnMachine,
    is_debug: bool,
) -> server::Config {
    let mut listeners: Vec<server::Listen> = addresses.iter().map(to_listener).collect();
    if let Some(path) = &settings.unix_socket {
        listeners.push(server::Listen::Unix {
            path: to_absolute_path(path, settings),
            mode: settings.unix_mask,
            group: found.unix_group,
        });
    }
    server::Config {
        listeners,
        memory_bytes: settings.memory_bytes,
        item_bytes_max: settings.item_bytes_max() as u32,
        connections_max: settings.connections_max,
        workers: settings.threads,
        requests_per_event: settings.requests_per_event,
        protocol: match settings.protocol() {
            "ascii" => server::Protocols::Text,
            "binary" => server::Protocols::Binary,
            _ => server::Protocols::Any,
        },
        users: found.users_file,
        tls: build_tls_settings(settings),
        proxies: settings.proxies.clone(),
        cas_enabled: settings.cas_enabled,
        flush_enabled: settings.flush_enabled,
        evict: settings.evict,
        tuning_goal: settings.tuning_goal(),
        shutdown_enabled: settings.shutdown_enabled,
        dump_enabled: settings.dump_enabled,
        watch_enabled: settings.watch_enabled,
        slab_factor: settings.slab_factor,
        slab_chunk_min: settings.slab_min_bytes,
        backlog: settings.backlog,
        idle_timeout_s: settings.idle_timeout_s,
        slow_ms: settings.slow_ms,
        prefix_delimiter: settings.prefix_delimiter.unwrap_or(b':'),
        detail_enabled: settings.prefix_delimiter.is_some(),
        verbosity: settings.verbosity,
        log: true,
        log_style: choose_log_style(settings, settings.log_file.is_some()),
        log_file: settings.log_file.as_ref().map(|path| to_absolute_path(path, settings)),
        commit: option_env!("GLASSCACHE_COMMIT"),
        debug: is_debug,
        watchdog_ticks: settings.watchdog_s(),
        failure_exit_code: i32::from(settings.failure_exit),
        lru_crawler: settings.lru_crawler,
        lru_maintainer: settings.lru_maintainer,
        maxconns_fast: settings.maxconns_fast,
        watcher_bytes: settings.watcher_log_bytes as usize,
        cluster_file: settings.cluster_file.as_ref().map(|path| to_absolute_path(path, settings)),
        memory_file: settings.memory_file.as_ref().map(|path| to_absolute_path(path, settings)),
        drain_s: settings.drain_s,
        slab_chunk_max: settings.slab_chunk_bytes_max.map(|bytes| bytes as u32),
        display: build_displayed_settings(settings),
        ..server::Config::default()
    }
}

/// The form of lines on stderr or in a file: short for people at a terminal, with levels for systemd's journal, else
/// with time and level.
pub(super) fn choose_log_style(settings: &Settings, is_file: bool) -> server::LogStyle {
    if settings.log_format == "json" {
        server::LogStyle::Json
    } else if is_file {
        server::LogStyle::Timed
    } else if is_journal(std::env::var("JOURNAL_STREAM").ok().as_deref()) {
        server::LogStyle::Journal
    } else if io::stderr().is_terminal() {
        server::LogStyle::Plain
    } else {
        server::LogStyle::Timed
    }
}

/// Whether stderr is the connection to systemd's journal that this value of `JOURNAL_STREAM` names by device and inode
/// (systemd.exec(5)): a process that was started from a unit inherits the variable whatever its stderr is.
fn is_journal(journal_stream: Option<&str>) -> bool {
    let Ok(status) = rustix::fs::fstat(rustix::stdio::stderr()) else {
        return false;
    };
    journal_stream == Some(&format!("{}:{}", status.st_dev, status.st_ino))
}

fn to_listener(listen_address: &ListenAddress) -> server::Listen {
    let address = listen_address.address;
    let listener = match listen_address.tls {
        None => server::Listen::Tcp(address),
        Some(client_certificate) => server::Listen::Tls { address, client_certificate },
    };
    if listen_address.statistics_only {
        server::Listen::Statistics(Box::new(listener))
    } else {
        listener
    }
}

/// What is served over HTTP.
pub(super) fn build_http_settings(settings: &Settings) -> Result<server::HttpSettings, Failure> {
    let parse = |name, text| parse_http_address(name, text).map_err(Failure::usage);
    let token_file = settings.http_token_file.as_ref();
    let http = server::HttpSettings {
        main: parse("http", &settings.http)?,
        token_file: token_file.map(|path| to_absolute_path(path, settings)),
        metrics: parse("metrics", &settings.metrics)?,
    };
    http.check().map_err(|error| failure(&error))?;
    Ok(http)
}

/// The certificate, if there is TLS.
fn build_tls_settings(settings: &Settings) -> Option<server::TlsSettings> {
    let chain_file = settings.ssl_chain_cert.as_ref().filter(|_| settings.tls)?;
    let key_file = settings.ssl_key.as_ref().unwrap_or(chain_file);
    let client_ca_file = settings.ssl_ca_cert.as_ref();
    Some(server::TlsSettings {
        chain_file: to_absolute_path(chain_file, settings),
        key_file: to_absolute_path(key_file, settings),
        client_ca_file: client_ca_file.map(|path| to_absolute_path(path, settings)),
        only_tls13: settings.ssl_min_version >= 3,
        session_tickets: settings.ssl_session_cache,
        write_buffer_bytes: settings.ssl_write_bytes as usize,
    })
}

/// The file of users: `-Y`, or for SASL alone memcached's own password database. Without either `-S` is refused.
pub(super) fn find_users_file(settings: &Settings) -> Result<Option<server::UsersFile>, Failure> {
    let (path, format) = if let Some(path) = &settings.auth_file {
        (path.clone(), server::UsersFileFormat::AuthFile)
    } else if !settings.sasl {
        return Ok(None);
    } else if let Some(path) = std::env::var_os(PASSWORD_VARIABLE).filter(|path| !path.is_empty()) {
        (PathBuf::from(path), server::UsersFileFormat::SaslDatabase)
    } else {
        let message =
            format!("enable-sasl (-S): there are no users to log in: no {PASSWORD_VARIABLE}");
        return Err(
            Failure::usage(message).with_hint("add -Y FILE with a line user:password for each")
        );
    };
    Ok(Some(server::UsersFile { path: to_absolute_path(&path, settings), format }))
}

/// An absolute path, because the daemon changes its working directory.
fn to_absolute_path(path: &Path, settings: &Settings) -> PathBuf {
    if settings.daemon {
        std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
    } else {
        path.to_owned()
    }
}

fn build_displayed_settings(settings: &Settings) -> server::DisplayedSettings {
    let active_rows = [
        ("umask", format!("{:o}", settings.unix_mask)),
        ("udpport", settings.udp_port.to_string()),
        ("binding_protocol", settings.protocol().to_owned()),
        ("slab_chunk_max", settings.slab_chunk_bytes().to_string()),
        ("watcher_logbuf_size", settings.watcher_log_bytes.to_string()),
        ("worker_logbuf_size", settings.worker_log_bytes.to_string()),
    ];
    let inert_rows =
        settings.without_effect.iter().filter(|(name, _)| !name.starts_with("no_")).cloned();
    // As memcached prints it: the flags of OpenSSL that a mode stands for.
    let verify_flags = match settings.ssl_verify_mode {
        mode @ (0 | 1) => mode,
        2 => 3,
        _ => 7,
    };
    let tls_rows = settings.tls.then(|| ("ssl_verify_mode", verify_flags.to_string()));
    server::DisplayedSettings {
        inter: (!settings.listen.is_empty()).then(|| settings.listen.clone()),
        tcp_port: u16::try_from(settings.port).unwrap_or(0),
        udp: Vec::new(),
        settings: active_rows
            .into_iter()
            .chain(inert_rows)
            .chain(tls_rows)
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    }
}
