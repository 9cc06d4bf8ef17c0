//! The targets of commands that measure a running server: any that speaks memcached, or one started here.

use std::io::ErrorKind;
use std::ops::Deref;
use std::time::Duration;

use glasscache_lab::access::{Access, Credentials, ProbeError, Protocol};
use glasscache_lab::target::{CallError, Target};
use glasscache_server::RunningServer;
use indicatif::{ProgressBar, ProgressStyle};

use crate::access::find_access;
use crate::embedded::EmbeddedServer;
use crate::output::{Exit, Failure};

/// Memory of an embedded server: more than any of these commands stores by default.
const EMBEDDED_MEMORY_BYTES: u64 = 1 << 30;

const NEEDS_TLS: &str = "a server that encrypts needs --tls";

/// A server under measurement, which is stopped afterwards if it was started here.
pub(crate) struct LiveTarget {
    target: Target,
    embedded: Option<RunningServer>,
}

impl Deref for LiveTarget {
    type Target = Target;

    fn deref(&self) -> &Target {
        &self.target
    }
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
        let access = find_access(address, protocol, credentials)?;
        let target = Target::open(address, access.clone());
        let target = target.map_err(|error| probe_failure(address, &access, &error))?;
        Ok(LiveTarget { target, embedded: None })
    }

    fn start_embedded(protocol: Protocol) -> Result<LiveTarget, Failure> {
        let EmbeddedServer { running, address, meter } =
            EmbeddedServer::start(EMBEDDED_MEMORY_BYTES, 1)?;
        let target = Target::open_embedded(address, meter, protocol);
        let target = target.map_err(|error| {
            probe_failure("embedded", &Access { protocol, ..Access::from(address) }, &error)
        })?;
        Ok(LiveTarget { target, embedded: Some(running) })
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

/// The failure of a server whose version is not known.
fn probe_failure(name: &str, access: &Access, error: &ProbeError) -> Failure {
    match error {
        ProbeError::Io(error) => unreachable_failure(name, access, error),
        ProbeError::LoginRequired => {
            let message = format!("{name} wants a login before other commands");
            Failure::new(Exit::Unreachable, message)
                .with_hint("log in with --user, and the password in GLASSCACHE_PASSWORD")
        }
        ProbeError::TlsAlert => {
            let message = format!("{name} expects TLS: its reply was a TLS alert");
            Failure::new(Exit::BadData, message).with_hint(NEEDS_TLS)
        }
        ProbeError::NotMemcached(reply) => not_memcached_failure(name, access, reply),
    }
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
            if access.credentials.tls.is_none() && access.credentials.login.is_some() =>
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
    let may_encrypt = access.credentials.tls.is_none() && reply.is_empty();
    match (may_encrypt, is_binary) {
        (true, true) => failure.with_hint(NEEDS_TLS),
        (true, false) => failure.with_hint(format!(
            "{NEEDS_TLS}; one that speaks only binary needs --protocol binary, which `bench` and `profile` have"
        )),
        (false, _) => failure,
    }
}

/// What servers reply before a login.
pub(crate) const UNAUTHENTICATED: &str = "unauthenticated";
/// The beginning of an alert of TLS, the reply of a server that encrypts to one that does not.
const TLS_ALERT: &str = "\u{15}\u{3}";

/// The message about a server whose reply to a command is not one of memcached's; empty is none.
pub(crate) fn format_not_memcached(name: &str, command: &str, reply: &str) -> String {
    if reply.starts_with(TLS_ALERT) {
        return format!("{name} encrypts: add --tls");
    }
    if reply.contains(UNAUTHENTICATED) {
        return format!(
            "{name} wants a login: add --user, and set the password in GLASSCACHE_PASSWORD"
        );
    }
    if reply.is_empty() {
        return format!(
            "{name} is not a memcached server: it closed the connection after `{command}`"
        );
    }
    let line_start: String = reply.chars().take(60).collect();
    format!("{name} is not a memcached server: its reply to `{command}` was {line_start:?}")
}

/// The failure of a call to a server that is measured.
pub(crate) fn call_failure(error: &CallError) -> Failure {
    let exit = match error {
        CallError::Unreachable(_) => Exit::Unreachable,
        CallError::BadData(_) => Exit::BadData,
    };
    Failure::new(exit, error.to_string())
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
