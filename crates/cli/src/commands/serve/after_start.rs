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

use glasscache_server::{self as server, LogLevel};

use super::filter_tcp_addresses;
use super::runtime_files::{RuntimeFile, write_pid_file, write_port_file};
use super::start_message::format_start_message;
use crate::daemon::Detachment;
use crate::output::Failure;
use crate::server_signals::ServerSignals;
use crate::settings::{ListenAddress, Settings};

/// What the start leaves to be done.
pub(super) struct Remaining<'s> {
    pub(super) settings: &'s Settings,
    pub(super) config_file: Option<&'s Path>,
    pub(super) listen_addresses: &'s [ListenAddress],
    /// Printed before the start; a log file has them too.
    pub(super) warnings: Vec<String>,
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
    let Remaining { settings, config_file, listen_addresses, warnings, mut pid_file, detachment } =
        remaining;
    let control = running.control();
    signals.set_server(control.clone());
    let tcp_addresses = filter_tcp_addresses(&running.addresses());
    if settings.replace {
        // Until now they were those of the other process.
        let log_failure = |failure: &Failure| control.log(LogLevel::Error, failure.to_text());
        if let Ok(Some(file)) = write_port_file(&tcp_addresses, &[]).inspect_err(log_failure) {
            file.keep_file();
        }
        pid_file = write_pid_file(settings).inspect_err(log_failure).unwrap_or(None);
    }
    let start_message =
        format_start_message(settings, config_file, listen_addresses, &tcp_addresses);
    control.log(LogLevel::Info, start_message);
    if settings.log_file.is_some() {
        for warning in warnings {
            control.log(LogLevel::Warning, format!("glasscache: {warning}"));
        }
    }
    if let Some(message) = format_http_message(settings, running.http_addresses()) {
        control.log(LogLevel::Info, message);
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
        if let Err(failure) =
            detachment.report_ready(settings.verbosity > 0 && settings.log_file.is_none())
        {
            control.log(LogLevel::Error, failure.to_text());
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
