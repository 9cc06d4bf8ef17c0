//! `glasscache serve`: the server, with memcached's flags.
//!
//! The flags come from the tables in `settings`; here they become a `server::Config` and a running
//! server. The startup order follows from the required rights, and a failed start must leave no files
//! behind: settings, limits, ports, user, unix socket and memory file, the port and pid files, then the report to the
//! waiting process.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod after_start;
mod checked_settings;
mod config;
mod machine_memory;
mod runtime_files;
mod start_message;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::SystemTime;

use glasscache_server::{self as server, LogLevel, LogStyle};

use self::after_start::Remaining;
pub(crate) use self::checked_settings::CheckedSettings;
use self::config::choose_log_style;
use self::runtime_files::{RuntimeFile, write_pid_file, write_port_file};
use crate::daemon::{self, Detachment};
use crate::output::{Exit, Failure, Output};
use crate::server_signals::ServerSignals;
use crate::settings::{ListenAddress, ResolvedSettings, ServerFlags, Settings, format_after_help};

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
        let is_launcher = resolved.settings.daemon && !daemon::is_child();
        // The daemon prints them itself.
        if !is_launcher {
            print_warnings(&resolved.settings, &resolved.warnings);
            print_settings_without_effect(&resolved);
        }
        let checked = CheckedSettings::new(resolved)?;
        if is_launcher {
            return daemon::launch();
        }
        print_warnings(&checked.settings, &checked.warnings);
        serve(checked, self.flags.config_file().as_deref())
    }
}

fn print_warnings(settings: &Settings, warnings: &[String]) {
    for warning in warnings {
        print_early_line(settings, LogLevel::Warning, &format!("glasscache: {warning}"));
    }
}

fn print_settings_without_effect(resolved: &ResolvedSettings) {
    if resolved.settings.verbosity == 0 {
        return;
    }
    for assigned in &resolved.assigned_settings {
        if let Some(reason) = assigned.setting.no_effect_reason {
            let warning = format!("{} has no effect: {reason}", assigned.setting.name);
            print_warnings(&resolved.settings, &[warning]);
        }
    }
}

/// Prints a line of a server that is not running yet on stderr; what that does not take is lost, because nothing may
/// wait for it.
fn print_early_line(settings: &Settings, level: LogLevel, text: &str) {
    let style = choose_log_style(settings, false);
    server::print_without_waiting(&style.format(level, SystemTime::now(), text));
}

fn serve(checked: CheckedSettings, config_file: Option<&Path>) -> Result<Exit, Failure> {
    let CheckedSettings { ref settings, addresses, mut config, is_debug, mut warnings } = checked;
    if settings.daemon {
        daemon::leave_session()?;
    }
    if settings.core_dumps {
        daemon::allow_core_files()?;
    }
    report_panics_without_waiting(choose_log_style(settings, false));
    let signals = ServerSignals::handle(settings.save_on_term)?;
    let reserved_sockets =
        if is_debug && !settings.replace { reserve_udp(settings, &addresses)? } else { Vec::new() };
    config.display.udp =
        reserved_sockets.iter().filter_map(|socket| socket.local_addr().ok()).collect();
    let udp_addresses = config.display.udp.clone();
    let detachment = settings.daemon.then(Detachment::prepare).transpose()?;
    let (running, pid_file) = if settings.replace {
        let outcome = replace(settings, config, &signals, &mut warnings);
        (outcome.map_err(|failure| signals.exit_if_cancelled(failure))?, None)
    } else {
        start(settings, config, &udp_addresses, &mut warnings)?
    };
    // Nothing fails, prints or waits after this.
    let listen_addresses = &addresses;
    let remaining =
        Remaining { settings, config_file, listen_addresses, warnings, pid_file, detachment };
    after_start::run_until_stopped(running, &signals, remaining);
    Ok(Exit::Success)
}

/// A thread that panics must end the process, and not wait for a stderr that nobody reads.
fn report_panics_without_waiting(style: LogStyle) {
    std::panic::set_hook(Box::new(move |info| {
        let backtrace = Backtrace::capture();
        let text = match backtrace.status() {
            BacktraceStatus::Captured => format!("glasscache: {info}\n{backtrace}"),
            _ => format!("glasscache: {info}"),
        };
        server::print_without_waiting(&style.format(LogLevel::Error, SystemTime::now(), &text));
    }));
}

/// Binds the ports as the user who starts the server, makes files and memory as the user that it becomes, and starts.
fn start(
    settings: &Settings,
    config: server::Config,
    udp_addresses: &[SocketAddr],
    warnings: &mut Vec<String>,
) -> Result<(server::RunningServer, Option<RuntimeFile>), Failure> {
    let bound = server::bind(config).map_err(|error| failure(&error))?;
    let prepared = prepare_as_user(settings, bound)?;
    print_warnings(settings, prepared.warnings());
    warnings.extend_from_slice(prepared.warnings());
    let tcp_addresses = filter_tcp_addresses(&prepared.addresses());
    if let Some(file) = write_port_file(&tcp_addresses, udp_addresses)? {
        file.keep_file();
    }
    let pid_file = write_pid_file(settings)?;
    let running = prepared.start().map_err(|error| failure(&error))?;
    Ok((running, pid_file))
}

/// Opens the memory file and makes the unix sockets as the user as whom the server runs, which this process then is.
fn prepare_as_user(
    settings: &Settings,
    bound: server::BoundServer,
) -> Result<server::PreparedServer, Failure> {
    let user = settings.user.as_deref().unwrap_or("root");
    let bound = match &settings.unix_group {
        Some(group) => {
            let bind = || bound.bind_unix_sockets();
            daemon::run_as_user_in_group(user, group, bind)?.map_err(|error| failure(&error))?
        }
        None => bound,
    };
    if let Some(path) = &settings.memory_file {
        daemon::give_memory_file(user, path)?;
    }
    // INVARIANT: root makes no file, because a folder of that user may have links to any file. But root locks the
    // memory once it is mapped: the user may not be allowed to.
    let prepared = if settings.lock_memory && settings.memory_file.is_some() {
        let prepare_result = daemon::run_as_user(user, || bound.prepare())?;
        lock_memory(settings);
        daemon::become_user(user)?;
        prepare_result
    } else {
        if settings.lock_memory {
            lock_memory(settings);
        }
        daemon::become_user(user)?;
        bound.prepare()
    };
    prepared.map_err(|error| failure(&error))
}

/// Takes the place of the running server. The files for other programs are written afterwards: until then they are
/// those of the other process.
fn replace(
    settings: &Settings,
    config: server::Config,
    signals: &ServerSignals,
    warnings: &mut Vec<String>,
) -> Result<server::RunningServer, Failure> {
    let prepared = server::prepare_replacement(config).map_err(|error| failure(&error))?;
    signals.set_cancellation(prepared.cancellation());
    if settings.lock_memory {
        daemon::raise_lock_limit();
    }
    if let Some(user) = &settings.user {
        daemon::become_user(user)?;
    }
    print_warnings(settings, &prepared.warnings());
    warnings.extend(prepared.warnings());
    let connected = prepared.connect().map_err(|error| failure(&error))?;
    if settings.lock_memory {
        // The memory is mapped now, and the other server still serves.
        lock_memory(settings);
    }
    let taken_over = connected.take_over();
    // The other server does not serve until this one does.
    let running = taken_over.and_then(server::PreparedServer::start);
    running.map_err(|error| failure(&error))
}

/// Locks the memory that is mapped, or warns.
fn lock_memory(settings: &Settings) {
    if let Err(failure) = daemon::lock_memory(settings.user.as_deref()) {
        print_early_line(settings, LogLevel::Warning, &failure.to_text());
    }
}

fn filter_tcp_addresses(addresses: &[server::Address]) -> Vec<SocketAddr> {
    addresses.iter().filter_map(to_tcp_address).collect()
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

pub(crate) fn failure(error: &server::Error) -> Failure {
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
