//! `glasscache serve`: the server, with memcached's flags.
//!
//! The flags come from the tables in `settings`; here they become a `server::Config` and a running
//! server. The startup order follows from the required rights, and a failed start must leave no files
//! behind: settings, limits, sockets, the port and pid files, user, then the report to the waiting
//! process.

use std::fmt::Write;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

use glasscache_server as server;

use crate::daemon::{self, RuntimeFile};
use crate::output::{Exit, Failure, Output};
use crate::server_signals::ServerSignals;
use crate::settings::{
    ListenAddress, ServerFlags, Settings, find_public_address, format_after_help, is_debug,
    parse_listen_addresses,
};

/// memcached's environment variable for the file that lists its ports.
const PORT_FILE_VARIABLE: &str = "MEMCACHED_PORT_FILENAME";

/// memcached's environment variable for the password database of SASL.
const PASSWORD_VARIABLE: &str = "MEMCACHED_SASL_PWDB";

/// Run the server.
#[derive(clap::Args)]
#[command(after_help = format_after_help())]
pub(crate) struct Args {
    #[command(flatten)]
    flags: ServerFlags,
}

impl Args {
    /// Runs the server until a signal or a client ends it.
    pub(crate) fn run(self, _out: &Output) -> Result<Exit, Failure> {
        let resolved = self.flags.resolve()?;
        for warning in &resolved.warnings {
            eprintln!("glasscache: {warning}");
        }
        if resolved.settings.verbosity > 0 {
            for assigned in &resolved.assigned_settings {
                if let Some(reason) = assigned.setting.no_effect_reason {
                    eprintln!("glasscache: {} has no effect: {reason}", assigned.setting.name);
                }
            }
        }
        let mut settings = resolved.settings;
        let is_debug = is_debug();
        if is_debug
            && settings.udp_port != 0
            && !resolved.assigned_settings.iter().any(|assigned| assigned.setting.name == "port")
        {
            settings.port = settings.udp_port;
        }
        let addresses = parse_listen_addresses(&settings).map_err(Failure::usage)?;
        check_reachable(&settings, &addresses)?;
        daemon::check_user(settings.user.as_deref())?;
        if settings.daemon && !daemon::is_child() {
            return daemon::launch();
        }
        let config_file = self.flags.config_file();
        serve(&settings, config_file.as_deref(), &addresses, is_debug)
    }
}

fn check_reachable(settings: &Settings, addresses: &[ListenAddress]) -> Result<(), Failure> {
    if settings.public || settings.requires_login() {
        return Ok(());
    }
    let Some(address) = find_public_address(addresses) else {
        return Ok(());
    };
    let message = format!(
        "listen (-l): {address} can be reached by other machines, and clients need neither a login nor a certificate"
    );
    Err(Failure::usage(message).with_hint(
        "add -Y FILE, or -Z with mtls:, or --public if a firewall protects it, or listen on 127.0.0.1",
    ))
}

fn serve(
    settings: &Settings,
    config_file: Option<&Path>,
    addresses: &[ListenAddress],
    is_debug: bool,
) -> Result<Exit, Failure> {
    if settings.daemon {
        daemon::leave_session()?;
    }
    daemon::raise_descriptor_limit(settings.connections_max);
    if settings.core_dumps {
        daemon::allow_core_files()?;
    }
    let signals = ServerSignals::block()?;
    let reserved_sockets =
        if is_debug && !settings.replace { reserve_udp(settings, addresses)? } else { Vec::new() };
    let mut config = build_server_config(settings, addresses, find_users_file(settings)?, is_debug);
    config.display.udp =
        reserved_sockets.iter().filter_map(|socket| socket.local_addr().ok()).collect();
    let udp_addresses = config.display.udp.clone();
    let (running, pid_file) = if settings.replace {
        replace(settings, config, &signals).map_err(|failure| signals.exit_if_cancelled(failure))?
    } else {
        start(settings, config, &udp_addresses)?
    };
    let tcp_addresses = filter_tcp_addresses(&running.addresses());
    print_start_message(settings, config_file, &tcp_addresses);
    // It does not matter whether systemd receives the notification.
    if settings.replace {
        server::notify(&format!("READY=1\nMAINPID={}", std::process::id()));
    } else {
        server::notify("READY=1");
    }
    if settings.daemon {
        let report_result = daemon::report_ready(settings.verbosity > 0);
        if settings.replace {
            report_result.unwrap_or_else(warn_and_use_default);
        } else {
            report_result?;
        }
    }
    signals.set_server(running.control());
    let is_replaced = running.join();
    if let Some(file) = pid_file.filter(|_| is_replaced) {
        // It is the file of the other process, or will be.
        file.keep_file();
    }
    Ok(Exit::Success)
}

/// Binds, allocates, writes the files for other programs, and starts.
fn start(
    settings: &Settings,
    config: server::Config,
    udp_addresses: &[SocketAddr],
) -> Result<(server::RunningServer, Option<RuntimeFile>), Failure> {
    let prepared = server::prepare(config).map_err(|error| failure(&error))?;
    if settings.lock_memory {
        daemon::lock_memory(settings.user.as_deref()).unwrap_or_else(warn_and_use_default);
    }
    let tcp_addresses = filter_tcp_addresses(&prepared.addresses());
    if let Some(file) = write_port_file(&tcp_addresses, udp_addresses)? {
        file.keep_file();
    }
    let pid_file = write_pid_file(settings)?;
    if let Some(user) = &settings.user {
        daemon::become_user(user)?;
    }
    // The workers start after the user was changed, so no client is served with root rights.
    let running = prepared.start().map_err(|error| failure(&error))?;
    Ok((running, pid_file))
}

/// Takes the place of the running server. The files for other programs are written afterwards: until then they are
/// those of the other process.
fn replace(
    settings: &Settings,
    config: server::Config,
    signals: &ServerSignals,
) -> Result<(server::RunningServer, Option<RuntimeFile>), Failure> {
    let prepared = server::prepare_replacement(config).map_err(|error| failure(&error))?;
    signals.set_cancellation(prepared.cancellation());
    if settings.lock_memory {
        daemon::raise_lock_limit();
    }
    if let Some(user) = &settings.user {
        daemon::become_user(user)?;
    }
    let connected = prepared.connect().map_err(|error| failure(&error))?;
    if settings.lock_memory {
        // The memory is mapped now, and the other server still serves.
        daemon::lock_memory(settings.user.as_deref()).unwrap_or_else(warn_and_use_default);
    }
    let taken_over = connected.take_over();
    // The other server does not serve until this one does.
    let running = taken_over.and_then(server::PreparedServer::start);
    let running = running.map_err(|error| failure(&error))?;
    // The other server has ended, so that a file that cannot be written must not end this one.
    let port_file = write_port_file(&filter_tcp_addresses(&running.addresses()), &[]);
    if let Some(file) = port_file.unwrap_or_else(warn_and_use_default) {
        file.keep_file();
    }
    Ok((running, write_pid_file(settings).unwrap_or_else(warn_and_use_default)))
}

/// Prints a failure that the server survives.
fn warn_and_use_default<E: Into<Failure>, T: Default>(error: E) -> T {
    error.into().print();
    T::default()
}

fn filter_tcp_addresses(addresses: &[server::Address]) -> Vec<SocketAddr> {
    addresses.iter().filter_map(to_tcp_address).collect()
}

/// `server::Config` from the settings; settings without effect still appear in `stats settings`.
fn build_server_config(
    settings: &Settings,
    addresses: &[ListenAddress],
    users_file: Option<server::UsersFile>,
    is_debug: bool,
) -> server::Config {
    let mut listeners: Vec<server::Listen> = addresses.iter().map(to_listener).collect();
    if let Some(path) = &settings.unix_socket {
        listeners.push(server::Listen::Unix {
            path: to_absolute_path(path, settings),
            mode: settings.unix_mask,
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
        users: users_file,
        tls: build_tls_settings(settings),
        proxies: settings.proxies.clone(),
        cas_enabled: settings.cas_enabled,
        flush_enabled: settings.flush_enabled,
        evict: settings.evict,
        shutdown_enabled: settings.shutdown_enabled,
        dump_enabled: settings.dump_enabled,
        watch_enabled: settings.watch_enabled,
        slab_factor: settings.slab_factor,
        slab_chunk_min: settings.slab_min_bytes,
        backlog: settings.backlog,
        idle_timeout_s: settings.idle_timeout_s,
        prefix_delimiter: settings.prefix_delimiter.unwrap_or(b':'),
        detail_enabled: settings.prefix_delimiter.is_some(),
        verbosity: settings.verbosity,
        log: true,
        commit: option_env!("GLASSCACHE_COMMIT"),
        debug: is_debug,
        watchdog_ticks: settings.watchdog_s,
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

fn to_listener(listen_address: &ListenAddress) -> server::Listen {
    let address = listen_address.address;
    match listen_address.tls {
        None => server::Listen::Tcp(address),
        Some(client_certificate) => server::Listen::Tls { address, client_certificate },
    }
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
fn find_users_file(settings: &Settings) -> Result<Option<server::UsersFile>, Failure> {
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

fn to_tcp_address(address: &server::Address) -> Option<SocketAddr> {
    match address {
        server::Address::Tcp(address) => Some(*address),
        server::Address::Unix(_) => None,
    }
}

/// Under memcached's own tests `-U` reserves its port, which the tests check; nothing reads from it.
fn reserve_udp(
    settings: &Settings,
    addresses: &[ListenAddress],
) -> Result<Vec<UdpSocket>, Failure> {
    if settings.udp_port == 0 || settings.unix_socket.is_some() {
        return Ok(Vec::new());
    }
    let port = u16::try_from(settings.udp_port).unwrap_or(0);
    let mut ips: Vec<IpAddr> =
        addresses.iter().map(|listen_address| listen_address.address.ip()).collect();
    ips.sort_unstable();
    ips.dedup();
    if ips.is_empty() {
        ips.push(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    let bind = |ip: IpAddr| {
        UdpSocket::bind((ip, port)).map_err(|error| {
            Failure::new(
                Exit::Unreachable,
                format!("udp-port (-U): {port} cannot be reserved: {error}"),
            )
        })
    };
    ips.into_iter().map(bind).collect()
}

fn write_port_file(
    tcp_addresses: &[SocketAddr],
    udp_addresses: &[SocketAddr],
) -> Result<Option<RuntimeFile>, Failure> {
    let Some(path) = std::env::var_os(PORT_FILE_VARIABLE) else {
        return Ok(None);
    };
    let mut text = String::new();
    let ports = tcp_addresses
        .iter()
        .map(|address| ("TCP", address))
        .chain(udp_addresses.iter().map(|address| ("UDP", address)));
    for (kind, address) in ports {
        let family = if address.is_ipv4() { "INET" } else { "INET6" };
        let _ = writeln!(text, "{kind} {family}: {}", address.port());
    }
    RuntimeFile::write(PORT_FILE_VARIABLE, &PathBuf::from(path), &text).map(Some)
}

fn write_pid_file(settings: &Settings) -> Result<Option<RuntimeFile>, Failure> {
    let Some(path) = &settings.pid_file else {
        return Ok(None);
    };
    let text = format!("{}\n", std::process::id());
    RuntimeFile::write("pidfile (-P)", path, &text).map(Some)
}

/// One line on stderr with the address, for users who start a server by hand.
fn print_start_message(settings: &Settings, config_file: Option<&Path>, addresses: &[SocketAddr]) {
    let memory_mib = settings.memory_bytes >> 20;
    let address_texts: Vec<String> = match &settings.unix_socket {
        Some(path) => vec![path.display().to_string()],
        None => addresses.iter().map(ToString::to_string).collect(),
    };
    // One write: the thread of the log may write meanwhile.
    let line = format!(
        "glasscache {} listens on {} with {memory_mib} MB and {} workers{} (pid {}, Ctrl-C ends it)\n",
        env!("CARGO_PKG_VERSION"),
        if address_texts.is_empty() { "nothing".to_owned() } else { address_texts.join(", ") },
        settings.threads,
        config_file.map_or_else(String::new, |path| format!(", settings from {}", path.display())),
        std::process::id(),
    );
    eprint!("{line}");
}

fn failure(error: &server::Error) -> Failure {
    let exit = match error {
        server::Error::Setting(_) => Exit::Usage,
        _ => Exit::Unreachable,
    };
    let general_failure = Failure::new(exit, error.to_string());
    match error {
        server::Error::Bind(_, cause) => match bind_error_hint(cause.kind()) {
            Some(hint) => general_failure.with_hint(hint),
            None => general_failure,
        },
        _ => general_failure,
    }
}

/// A hint for each reason why an address cannot be used.
fn bind_error_hint(kind: ErrorKind) -> Option<&'static str> {
    Some(match kind {
        ErrorKind::AddrInUse => {
            "another program listens there: choose another port with -p (-1 takes a free one)"
        }
        ErrorKind::AddrNotAvailable => "this machine has no such address: see -l",
        ErrorKind::NotFound => "the folder of a unix socket must exist",
        ErrorKind::PermissionDenied => {
            "ports below 1024 and the folders of others need more rights: see -p and -s"
        }
        _ => return None,
    })
}
