//! The targets of commands that measure a running server: any that speaks memcached, or one started here.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use glasscache_lab::access::{Access, Endpoint, Stream};
use glasscache_lab::proc::Meter;
use glasscache_server::RunningServer;
use indicatif::{ProgressBar, ProgressStyle};

use crate::access::Credentials;
use crate::embedded::EmbeddedServer;
use crate::output::{Exit, Failure};

/// How long a server may take to reply to `version` and `stats`.
const REPLY_TIMEOUT: Duration = Duration::from_secs(3);

/// Memory of an embedded server: more than any of these commands stores by default.
const EMBEDDED_MEMORY_BYTES: u64 = 1 << 30;

/// Longest reply that is read from a target before it is known to speak memcached.
const REPLY_BYTES_MAX: u64 = 1 << 16;

/// A server under measurement.
pub(crate) struct LiveTarget {
    /// Its address as given, or `embedded`.
    pub name: String,
    /// Where it listens, and what connections to it begin with.
    pub access: Access,
    /// The same for our client.
    pub credentials: Credentials,
    /// Its reply to `version`.
    pub version: String,
    /// Its CPU time, if its process is on this machine and can be seen.
    pub meter: Meter,
    embedded: Option<RunningServer>,
}

impl LiveTarget {
    /// The server at `address`, or an embedded one; refuses what does not speak memcached.
    pub(crate) fn open(
        address: Option<&str>,
        credentials: &Credentials,
    ) -> Result<LiveTarget, Failure> {
        let Some(address) = address else {
            return LiveTarget::start_embedded();
        };
        let access = credentials.access(address)?;
        let version = version_of(address, &access)?;
        let meter = meter_of(&access);
        Ok(LiveTarget {
            name: address.to_owned(),
            access,
            credentials: credentials.clone(),
            version,
            meter,
            embedded: None,
        })
    }

    fn start_embedded() -> Result<LiveTarget, Failure> {
        let EmbeddedServer {
            running,
            address,
            meter,
        } = EmbeddedServer::start(EMBEDDED_MEMORY_BYTES, 1)?;
        let access = Access::from(address);
        Ok(LiveTarget {
            name: "embedded".to_owned(),
            version: version_of("embedded", &access)?,
            access,
            credentials: Credentials::default(),
            meter,
            embedded: Some(running),
        })
    }

    /// The address for a client; by name if the name is verified, else the one that the lab's connections have.
    pub(crate) fn address(&self) -> String {
        if self.access.tls.is_some() {
            self.name.clone()
        } else {
            self.access.endpoint.to_string()
        }
    }

    /// Whether the server is on this machine.
    pub(crate) fn is_local(&self) -> bool {
        is_local(&self.access.endpoint)
    }

    /// A number from its general counters.
    pub(crate) fn counter(&self, name: &str) -> Option<u64> {
        let prefix = format!("STAT {name} ");
        let rows = reply_to(&self.access, "stats", "END").ok()?;
        rows.iter()
            .find_map(|row| row.strip_prefix(&prefix)?.parse().ok())
    }

    /// Name and version for a table.
    pub(crate) fn describe(&self) -> String {
        format!("{} ({})", self.name, self.version)
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

/// Sends a line and returns the reply up to a line that starts with `last_line_prefix`.
fn reply_to(access: &Access, line: &str, last_line_prefix: &str) -> std::io::Result<Vec<String>> {
    let mut stream = Stream::open(access, REPLY_TIMEOUT)?;
    stream.write_all(format!("{line}\r\n").as_bytes())?;
    let mut lines = Vec::new();
    for line in BufReader::new(stream.take(REPLY_BYTES_MAX)).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).trim_end().to_owned();
        let is_last = line.starts_with(last_line_prefix) || !line.starts_with("STAT ");
        lines.push(line);
        if is_last {
            break;
        }
    }
    Ok(lines)
}

fn version_of(name: &str, access: &Access) -> Result<String, Failure> {
    let reply = reply_to(access, "version", "VERSION ").map_err(|error| {
        let failure = Failure::new(
            Exit::Unreachable,
            format!("{name} does not respond: {error}"),
        );
        match error.kind() {
            ErrorKind::ConnectionRefused | ErrorKind::NotFound => {
                failure.hint("without a target a server is started for the measurement")
            }
            ErrorKind::InvalidInput => failure.hint(
                "--tls-ca FILE names the authority to trust, --tls-name the name in the certificate",
            ),
            _ => failure,
        }
    })?;
    let first_line = reply.first().map_or("", String::as_str);
    if let Some(version) = first_line.strip_prefix("VERSION ") {
        return Ok(version.to_owned());
    }
    if first_line.starts_with("CLIENT_ERROR unauth") {
        let message = format!("{name} wants a login before other commands");
        return Err(Failure::new(Exit::Unreachable, message).hint(
            "`bench`, `profile` and `warm` log in with --user and the password in GLASSCACHE_PASSWORD",
        ));
    }
    let reason = if first_line.is_empty() {
        "it closed the connection after `version`".to_owned()
    } else {
        let line_start: String = first_line.chars().take(60).collect();
        format!("its reply to `version` was {line_start:?}")
    };
    let failure = Failure::new(
        Exit::BadData,
        format!("{name} is not a memcached server: {reason}"),
    );
    let is_tls_alert = first_line.starts_with('\u{15}');
    let may_encrypt = access.tls.is_none() && (is_tls_alert || first_line.is_empty());
    Err(if may_encrypt {
        failure.hint("a server that encrypts needs --tls, which `bench`, `profile` and `warm` have")
    } else {
        failure
    })
}

fn is_local(endpoint: &Endpoint) -> bool {
    match endpoint {
        Endpoint::Tcp(address) => address.ip().is_loopback(),
        Endpoint::Unix(_) => true,
    }
}

/// The process of a server on this machine, found by the `pid` that it reports.
fn meter_of(access: &Access) -> Meter {
    let rows = reply_to(access, "stats", "END").unwrap_or_default();
    let stats_number = |name: &str| -> Option<u32> {
        let prefix = format!("STAT {name} ");
        rows.iter()
            .find_map(|row| row.strip_prefix(&prefix)?.parse().ok())
    };
    let Some(pid) = stats_number("pid").filter(|_| is_local(&access.endpoint)) else {
        return Meter::None;
    };
    // In another container the same number may belong to another process.
    let name = glasscache_lab::proc::thread_name(pid, pid);
    if ["memcached", "glasscache"]
        .iter()
        .any(|program| name.contains(program))
    {
        Meter::Process {
            pid,
            workers: stats_number("threads").unwrap_or(1) as usize,
        }
    } else {
        Meter::None
    }
}

/// A flag that Ctrl-C sets.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&stop))?;
    Ok(stop)
}

/// A progress bar on a terminal, nothing elsewhere.
pub(crate) fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::new(1000);
    let style = ProgressStyle::with_template("{bar:30} {percent} %  {eta}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}

/// Reads a time such as `30s`, `5m` or `1h`; seconds without a unit.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let milliseconds = text.strip_suffix("ms").map(|number| (number, 0.001));
    let number_and_factor = match text.char_indices().last() {
        Some((unit_index, 's')) => (&text[..unit_index], 1.0),
        Some((unit_index, 'm')) => (&text[..unit_index], 60.0),
        Some((unit_index, 'h')) => (&text[..unit_index], 3600.0),
        _ => (text, 1.0),
    };
    let (number, factor) = milliseconds.unwrap_or(number_and_factor);
    let seconds = number.parse::<f64>().ok().map(|number| number * factor);
    seconds
        .filter(|seconds| seconds.is_finite() && *seconds > 0.0 && *seconds <= 604_800.0)
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("{text:?}: expected a time such as 30s, 5m or 1h"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_times_with_and_without_a_unit() {
        let seconds = |text| parse_duration(text).map(|time| time.as_secs_f64());
        assert_eq!(seconds("30s"), Ok(30.0));
        assert_eq!(seconds("1.5m"), Ok(90.0));
        assert_eq!(seconds("1h"), Ok(3600.0));
        assert_eq!(seconds("7"), Ok(7.0));
        assert_eq!(seconds("250ms"), Ok(0.25));
        for wrong in ["", "s", "-1s", "0", "1d", "inf"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }
}
