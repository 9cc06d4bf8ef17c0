//! What runs from the moment in which the server serves.
//!
//! Nothing here may fail, panic, print or wait: a server that has replaced another would lose the service and the cache
//! of both, and one that waits for its stderr would not respond to signals. So signals are handled first, messages go
//! to the log, whose thread alone may wait, and what cannot be done is logged.
#![deny(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::net::SocketAddr;
use std::path::Path;

use glasscache_server as server;

use super::filter_tcp_addresses;
use super::runtime_files::{RuntimeFile, write_pid_file, write_port_file};
use crate::daemon::Detachment;
use crate::output::Failure;
use crate::server_signals::ServerSignals;
use crate::settings::Settings;

/// What the start leaves to be done.
pub(super) struct Remaining<'s> {
    pub(super) settings: &'s Settings,
    pub(super) config_file: Option<&'s Path>,
    /// Written before the start, unless the server replaces another one.
    pub(super) pid_file: Option<RuntimeFile>,
    /// Of a daemon.
    pub(super) detachment: Option<Detachment>,
}

/// Reports that the server serves, and returns when it has ended.
pub(super) fn run_until_stopped(
    running: server::RunningServer,
    signals: &ServerSignals,
    remaining: Remaining<'_>,
) {
    let Remaining { settings, config_file, mut pid_file, detachment } = remaining;
    let control = running.control();
    signals.set_server(control.clone());
    let tcp_addresses = filter_tcp_addresses(&running.addresses());
    if settings.replace {
        // Until now they were those of the other process.
        let log_failure = |failure: &Failure| control.log(failure.to_text());
        if let Ok(Some(file)) = write_port_file(&tcp_addresses, &[]).inspect_err(log_failure) {
            file.keep_file();
        }
        pid_file = write_pid_file(settings).inspect_err(log_failure).unwrap_or(None);
    }
    control.log(format_start_message(settings, config_file, &tcp_addresses));
    if let Some(message) = format_http_message(settings, running.http_addresses()) {
        control.log(message);
    }
    // It does not matter whether systemd receives the notification.
    if settings.replace {
        server::notify(&format!("READY=1\nMAINPID={}", std::process::id()));
    } else {
        server::notify("READY=1");
    }
    if let Some(detachment) = detachment {
        // The terminal that started the daemon shows the lines up to here.
        control.flush_log();
        if let Err(failure) = detachment.report_ready(settings.verbosity > 0) {
            control.log(failure.to_text());
        }
    }
    let is_replaced = running.join();
    if let Some(file) = pid_file.filter(|_| is_replaced) {
        // It is the file of the other process, or will be.
        file.keep_file();
    }
}

/// One line with the addresses of HTTP, if there are any; the port of metrics follows the main one.
fn format_http_message(settings: &Settings, addresses: &[SocketAddr]) -> Option<String> {
    let has_page = !settings.http.is_empty();
    let page = addresses.first().filter(|_| has_page).map(|address| format!("http://{address}/"));
    let metrics = addresses.get(usize::from(has_page));
    let metrics = metrics.map(|address| format!("http://{address}/metrics"));
    let urls: Vec<String> = page.into_iter().chain(metrics).collect();
    (!urls.is_empty()).then(|| format!("glasscache serves HTTP on {}", urls.join(" and ")))
}

/// One line with the address, for users who start a server by hand.
fn format_start_message(
    settings: &Settings,
    config_file: Option<&Path>,
    addresses: &[SocketAddr],
) -> String {
    let memory_mib = settings.memory_bytes >> 20;
    let address_texts: Vec<String> = match &settings.unix_socket {
        Some(path) => vec![path.display().to_string()],
        None => addresses.iter().map(ToString::to_string).collect(),
    };
    // Whoever replaces a memcached by this expects that other machines can connect.
    let is_local = settings.unix_socket.is_none()
        && !addresses.is_empty()
        && addresses.iter().all(|address| address.ip().is_loopback());
    format!(
        "glasscache {} listens on {}{} with {memory_mib} MB and {} workers{} (pid {}, Ctrl-C ends it)",
        env!("CARGO_PKG_VERSION"),
        if address_texts.is_empty() { "nothing".to_owned() } else { address_texts.join(", ") },
        if is_local { " (this machine only)" } else { "" },
        settings.threads,
        config_file.map_or_else(String::new, |path| format!(", settings from {}", path.display())),
        std::process::id(),
    )
}
