//! The targets of commands that measure a running server: any that speaks memcached, or one started here.

use std::io::ErrorKind;
use std::str::FromStr;
use std::time::Duration;

use glasscache_lab::access::{self, Access, Endpoint, ProbeError, Protocol};
use glasscache_lab::proc::Meter;
use glasscache_server::RunningServer;
use indicatif::{ProgressBar, ProgressStyle};

use crate::access::Credentials;
use crate::embedded::EmbeddedServer;
use crate::output::{Exit, Failure};

/// Memory of an embedded server: more than any of these commands stores by default.
const EMBEDDED_MEMORY_BYTES: u64 = 1 << 30;

const NEEDS_TLS: &str =
    "a server that encrypts needs --tls, which `bench`, `profile` and `warm` have";

/// A server under measurement.
pub(crate) struct LiveTarget {
    /// Its address as given, or `embedded`.
    pub name: String,
    /// How the lab's connections reach it: endpoint, protocol, encryption and login.
    pub access: Access,
    /// The encryption and the login of our client.
    pub credentials: Credentials,
    /// Its reply to `version`.
    pub version: String,
    /// Its CPU time, if its process is on this machine and can be seen.
    pub meter: Meter,
    embedded: Option<RunningServer>,
}

impl LiveTarget {
    /// The server at `address`, or an embedded one; refuses what does not speak this protocol of memcached.
    pub(crate) fn open(
        address: Option<&str>,
        credentials: &Credentials,
        protocol: Protocol,
    ) -> Result<LiveTarget, Failure> {
        let Some(address) = address else {
            return LiveTarget::start_embedded(protocol);
        };
        let access = credentials.access_to(address, protocol)?;
        let version = read_version(address, &access)?;
        let meter = find_meter(&access);
        Ok(LiveTarget {
            name: address.to_owned(),
            access,
            credentials: credentials.clone(),
            version,
            meter,
            embedded: None,
        })
    }

    fn start_embedded(protocol: Protocol) -> Result<LiveTarget, Failure> {
        let EmbeddedServer { running, address, meter } =
            EmbeddedServer::start(EMBEDDED_MEMORY_BYTES, 1)?;
        let access = Access { protocol, ..Access::from(address) };
        Ok(LiveTarget {
            name: "embedded".to_owned(),
            version: read_version("embedded", &access)?,
            access,
            credentials: Credentials::default(),
            meter,
            embedded: Some(running),
        })
    }

    /// The address for a client; by name if the name is verified, else the one that the lab's connections have.
    pub(crate) fn address(&self) -> String {
        if self.access.tls.is_some() { self.name.clone() } else { self.access.endpoint.to_string() }
    }

    /// Whether the server is on this machine.
    pub(crate) fn is_local(&self) -> bool {
        is_local(&self.access.endpoint)
    }

    /// A number from its general counters.
    pub(crate) fn counter(&self, name: &str) -> Option<u64> {
        let rows = access::request_general_statistics(&self.access).ok()?;
        find_number(&rows, name)
    }

    /// Name and version for a table.
    pub(crate) fn describe(&self) -> String {
        let protocol = match self.access.protocol {
            Protocol::Text | Protocol::Meta => "",
            Protocol::Binary => ", binary",
        };
        format!("{} ({}{protocol})", self.name, self.version)
    }
}

impl Drop for LiveTarget {
    fn drop(&mut self) {
        if let Some(running) = self.embedded.take() {
            running.stop();
            running.join();
        }
    }
}

fn read_version(name: &str, access: &Access) -> Result<String, Failure> {
    access::request_version(access).map_err(|error| match error {
        ProbeError::Io(error) => unreachable_failure(name, access, &error),
        ProbeError::LoginRequired => {
            let message = format!("{name} wants a login before other commands");
            Failure::new(Exit::Unreachable, message).with_hint(
                "`bench`, `profile` and `warm` log in with --user and the password in GLASSCACHE_PASSWORD",
            )
        }
        ProbeError::TlsAlert => {
            let message = format!("{name} expects TLS: its reply was a TLS alert");
            Failure::new(Exit::BadData, message).with_hint(NEEDS_TLS)
        }
        ProbeError::NotMemcached(reply) => not_memcached_failure(name, access, &reply),
    })
}

fn unreachable_failure(name: &str, access: &Access, error: &std::io::Error) -> Failure {
    let failure = Failure::new(Exit::Unreachable, format!("{name} does not respond: {error}"));
    match error.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::NotFound => {
            failure.with_hint("without a target a server is started for the measurement")
        }
        ErrorKind::InvalidInput => failure.with_hint(
            "--tls-ca FILE names the authority to trust, --tls-name the name in the certificate",
        ),
        // Some servers that encrypt close on a login in plain text without an alert.
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset
            if access.tls.is_none() && access.login_request.is_some() =>
        {
            failure.with_hint(NEEDS_TLS)
        }
        _ => failure,
    }
}

/// The failure of a server that replied to `version` in another protocol, or with nothing.
fn not_memcached_failure(name: &str, access: &Access, reply: &str) -> Failure {
    let is_binary = access.protocol == Protocol::Binary;
    let message = if is_binary {
        let reason = match reply {
            "" => "it closed the connection after `version`",
            reply => reply,
        };
        format!("{name} is not a memcached server that speaks binary: {reason}")
    } else {
        format_not_memcached(name, "version", reply)
    };
    let failure = Failure::new(Exit::BadData, message);
    let may_encrypt = access.tls.is_none() && reply.is_empty();
    match (may_encrypt, is_binary) {
        (true, true) => failure.with_hint(NEEDS_TLS),
        (true, false) => failure.with_hint(format!(
            "{NEEDS_TLS}; one that speaks only binary needs --protocol binary, which `bench` and `profile` have"
        )),
        (false, _) => failure,
    }
}

/// The message about a server whose reply to a command is not one of memcached's; empty is none.
pub(crate) fn format_not_memcached(name: &str, command: &str, reply: &str) -> String {
    if reply.is_empty() {
        return format!(
            "{name} is not a memcached server: it closed the connection after `{command}`"
        );
    }
    let line_start: String = reply.chars().take(60).collect();
    format!("{name} is not a memcached server: its reply to `{command}` was {line_start:?}")
}

fn is_local(endpoint: &Endpoint) -> bool {
    match endpoint {
        Endpoint::Tcp(address) => address.ip().is_loopback(),
        Endpoint::Unix(_) => true,
    }
}

/// The number of this name among the rows of `stats`.
fn find_number<N: FromStr>(rows: &[(String, String)], wanted: &str) -> Option<N> {
    let (_, value) = rows.iter().find(|(name, _)| name == wanted)?;
    value.parse().ok()
}

/// What reads the CPU time of a server on this machine, whose process is found by the `pid` that it reports.
fn find_meter(access: &Access) -> Meter {
    let rows = access::request_general_statistics(access).unwrap_or_default();
    let Some(pid) = find_number(&rows, "pid").filter(|_| is_local(&access.endpoint)) else {
        return Meter::None;
    };
    // In another container the same number may belong to another process.
    let thread_name = glasscache_lab::proc::read_thread_name(pid, pid);
    if ["memcached", "glasscache"].iter().any(|program| thread_name.contains(program)) {
        Meter::Process { pid, workers: find_number(&rows, "threads").unwrap_or(1) }
    } else {
        Meter::None
    }
}

/// A progress bar on a terminal, nothing elsewhere.
pub(crate) fn new_progress_bar() -> ProgressBar {
    let bar = ProgressBar::new(1000);
    let style = ProgressStyle::with_template("{bar:30} {percent} %  {eta}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}

/// Reads a time such as `30s`, `5m` or `1h`; seconds without a unit.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let milliseconds_and_factor = text.strip_suffix("ms").map(|number| (number, 0.001));
    let number_and_factor = match text.char_indices().last() {
        Some((unit_index, 's')) => (&text[..unit_index], 1.0),
        Some((unit_index, 'm')) => (&text[..unit_index], 60.0),
        Some((unit_index, 'h')) => (&text[..unit_index], 3600.0),
        _ => (text, 1.0),
    };
    let (number_text, factor) = milliseconds_and_factor.unwrap_or(number_and_factor);
    let seconds = number_text.parse::<f64>().ok().map(|number| number * factor);
    seconds
        .filter(|seconds| seconds.is_finite() && *seconds > 0.0 && *seconds <= 604_800.0)
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("{text:?}: expected a time such as 30s, 5m or 1h"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_and_without_a_unit() {
        let parse_seconds = |text| parse_duration(text).map(|time| time.as_secs_f64());
        assert_eq!(parse_seconds("30s"), Ok(30.0));
        assert_eq!(parse_seconds("1.5m"), Ok(90.0));
        assert_eq!(parse_seconds("1h"), Ok(3600.0));
        assert_eq!(parse_seconds("7"), Ok(7.0));
        assert_eq!(parse_seconds("250ms"), Ok(0.25));
        for invalid_text in ["", "s", "-1s", "0", "1d", "inf"] {
            assert!(parse_duration(invalid_text).is_err(), "{invalid_text}");
        }
    }
}
