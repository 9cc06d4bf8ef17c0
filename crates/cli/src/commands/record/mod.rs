//! `glasscache record`: writes the accesses to a server as a key stream, for `curve`, `inspect` and `slabs`; with
//! `--listen` what a program reads as a request log, for `simulate`.
//!
//! Works against memcached 1.6 and glasscache: both print what they look up and store to a connection that watches.

mod proxy;

use std::io::{self, BufReader, BufWriter};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use glasscache_client::Address;
use glasscache_lab::record::{Options, RecordedCounts, read_dropped_lines, record};
use glasscache_lab::text::{format_count, format_duration, wrap};
use glasscache_sim::trace::Format;
use glasscache_sim::trace::writer::Writer;
use serde_json::json;

use crate::access;
use crate::files::{AtomicFile, to_write_failure};
use crate::interrupts::new_stop_flag;
use crate::live_target::{UNAUTHENTICATED, format_not_memcached};
use crate::output::{Exit, Failure, Output};
use crate::target::{Stream, Target, failure};

const EXAMPLES: &str = "\
Examples:
  glasscache record 127.0.0.1:11211 --for 10m --out trace.parquet
  glasscache record cache1:11211 --for 1h --out trace.parquet --salt \"$SALT\" --sample 0.1
  glasscache curve trace.parquet
  glasscache record --listen 127.0.0.1:11212 --to 127.0.0.1:11211 --out requests/
  glasscache simulate requests/ --latency latency.json --search

Watching costs the server some CPU for each get while it lasts. Keys are written as 64-bit hashes; \
with --salt nobody without the salt can tell which. A lookup for delete, touch, incr or decr counts \
as a get, for the server reports it as one.

With --listen, point the program at that address: each connection is an instance of a request log, \
and a pause of --gap milliseconds ends a request. It adds one hop, whose cost is printed at the end.";

/// How long a server is watched, unless configured otherwise.
const WATCH_TIME: Duration = Duration::from_mins(10);

/// The command that begins the watch.
const WATCH_COMMAND: &str = "watch fetchers mutations";

/// Maximum wait of one read, so that Ctrl-C and the end are noticed.
const READ_TIMEOUT: Duration = Duration::from_millis(100);

/// How long the server may take to begin the watch, and to print its statistics.
const WATCH_TIMEOUT_MS: u64 = 5000;
const STATS_TIMEOUT_MS: u64 = 1000;

/// Bytes read at once: some milliseconds of lines of a busy server.
const BUFFER_BYTES: usize = 256 << 10;

/// Record what a server is asked for.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Server as host:port or path of a unix socket
    #[arg(value_name = "SERVER", required_unless_present_any = ["listen", "named_server"])]
    server: Option<String>,
    /// The same, as other commands take it
    #[arg(id = "named_server", long = "server", short = 's', value_name = "SERVER", conflicts_with_all = ["server", "listen"])]
    named_server: Option<String>,
    /// Record a program that cannot be changed: listen here, and pass everything on to --to
    #[arg(long, value_name = "ADDR", requires = "to", conflicts_with = "server")]
    listen: Option<String>,
    /// Server behind --listen, as host:port
    #[arg(long, value_name = "SERVER", requires = "listen")]
    to: Option<String>,
    /// With --listen: a pause of MS milliseconds ends a request
    #[arg(id = "gap", long = "gap", value_name = "MS", default_value_t = 50, requires = "listen", value_parser = clap::value_parser!(u64).range(1..))]
    gap_ms: u64,
    /// How long: 30s, 10m, 1h [default: 10m; with --listen until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// File to write: .parquet, .csv or .jsonl; with --listen the folder of the log
    #[arg(id = "out", long = "out", value_name = "PATH")]
    out_path: PathBuf,
    /// Hash keys together with this text
    #[arg(long, value_name = "TEXT")]
    salt: Option<String>,
    /// Keep this share of the keys, 0 to 1; with --listen of the requests
    #[arg(id = "sample", long = "sample", value_name = "SHARE", value_parser = parse_share)]
    sample_share: Option<f64>,
    #[command(flatten)]
    access: access::Args,
}

/// A time such as 30s, 10m, 1h, 500ms.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let invalid = || format!("\"{text}\" is not a time such as 30s, 10m or 1h");
    let unit_start = text.find(|letter: char| letter.is_ascii_alphabetic()).ok_or_else(invalid)?;
    let number: f64 = text[..unit_start].parse().map_err(|_| invalid())?;
    let unit_s = match &text[unit_start..] {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return Err(invalid()),
    };
    Duration::try_from_secs_f64(number * unit_s)
        .ok()
        .filter(|duration| !duration.is_zero())
        .ok_or_else(invalid)
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok();
    share
        .filter(|share: &f64| *share > 0.0 && *share <= 1.0)
        .ok_or_else(|| format!("\"{text}\" is not a share above 0 and up to 1"))
}

impl Args {
    /// Records through a proxy, or watches the server.
    pub(crate) fn run(self, out: &Output) -> Result<Exit, Failure> {
        if let (Some(listen), Some(to)) = (&self.listen, &self.to) {
            if self.access.is_given() {
                return Err(Failure::usage(
                    "--tls and --user have no effect with --listen, which passes on what the program sends",
                ));
            }
            return proxy::run(&self, (listen, to), out);
        }
        let server = self.server.clone().or(self.named_server.clone()).unwrap_or_default();
        let recording = WatchRecording {
            server,
            access: self.access,
            duration: self.duration.unwrap_or(WATCH_TIME),
            out_path: self.out_path,
            salt: self.salt,
            sample_share: self.sample_share,
        };
        recording.run(out)
    }
}

/// A server that is watched.
struct WatchRecording {
    server: String,
    access: access::Args,
    duration: Duration,
    out_path: PathBuf,
    salt: Option<String>,
    sample_share: Option<f64>,
}

impl WatchRecording {
    /// Watches the server and writes the file.
    fn run(self, out: &Output) -> Result<Exit, Failure> {
        let format = Format::of(&self.out_path.to_string_lossy())
            .map_err(|error| Failure::usage(error.to_string()))?;
        let write_failure = |error| to_write_failure(&self.out_path, &error);
        let file = AtomicFile::create(&self.out_path).map_err(write_failure)?;
        let writer = Writer::with_clock(format, BufWriter::new(file)).map_err(write_failure)?;
        let options = Options { salt: self.salt.clone(), sample: self.sample_share };
        let stop = new_stop_flag()?;
        let lines = BufReader::with_capacity(BUFFER_BYTES, self.start_watch()?);
        let dropped_before = self.read_dropped_by_threads();
        if !out.is_json() {
            eprintln!("recording {} for {} ...", self.server, format_duration(self.duration));
        }
        let is_stopped = || stop.load(Ordering::Relaxed);
        let recording =
            record(lines, writer, options, self.duration, is_stopped).map_err(write_failure)?;
        let dropped_lines = self
            .read_dropped_by_threads()
            .zip(dropped_before)
            .map_or(0, |(now, before)| now.saturating_sub(before));
        let mut recorded = recording.counts;
        recorded.skipped_lines += dropped_lines;
        if let Some(error) = &recording.watch_error
            && (self.out_path.exists() || recorded == RecordedCounts::default())
        {
            return Err(self.watch_failure(error, recorded, "the file is left as it was"));
        }
        let file =
            recording.file.into_inner().map_err(|error| write_failure(error.into_error()))?;
        file.finish().map_err(write_failure)?;
        self.report(out, recorded)?;
        match recording.watch_error {
            Some(error) => Err(self.watch_failure(&error, recorded, "they are in the file")),
            None if stop.load(Ordering::Relaxed) => Err(Failure::new(
                Exit::Interrupted,
                "stopped: what was recorded so far is in the file",
            )),
            None => Ok(Exit::Success),
        }
    }

    fn report(&self, out: &Output, recorded: RecordedCounts) -> Result<(), Failure> {
        let RecordedCounts { gets, writes, skipped_lines } = recorded;
        if out.is_json() {
            out.set_result(&json!(recorded));
            return Ok(());
        }
        let file = self.out_path.display();
        out.print_line(wrap(&format!(
            "{file}: {} gets and {} writes",
            format_count(gets),
            format_count(writes)
        )))?;
        if skipped_lines > 0 {
            let skipped = format_count(skipped_lines);
            out.print_line(wrap(&format!(
                "{skipped} lines were skipped by the server, which was too busy to print them"
            )))?;
        }
        out.print_line(format!("next: glasscache curve {file}"))
    }

    /// The failure of a watch that ended before its time.
    fn watch_failure(
        &self,
        error: &io::Error,
        recorded: RecordedCounts,
        file_state: &str,
    ) -> Failure {
        let message = format!(
            "the watch of {} ended early: {error}; {} gets and {} writes had been read, {file_state}",
            self.server,
            format_count(recorded.gets),
            format_count(recorded.writes)
        );
        Failure::new(Exit::Unreachable, message)
    }

    /// A connection to the only server.
    fn connect(&self, timeout_ms: u64) -> Result<io::Result<Box<dyn Stream>>, Failure> {
        let addresses = Address::parse_list(&self.server).map_err(|error| failure(&error))?;
        let [address] = &addresses[..] else {
            return Err(Failure::usage("record watches one server at a time; name one"));
        };
        let (server, access) = (self.server.clone(), self.access.clone());
        let target = Target { server, timeout_ms, access };
        Ok(target.connect(&address.endpoint))
    }

    /// What the server's threads had to drop since it started, if it reports that.
    fn read_dropped_by_threads(&self) -> Option<u64> {
        read_dropped_lines(self.connect(STATS_TIMEOUT_MS).ok()?.ok()?)
    }

    /// A connection with a running watch.
    fn start_watch(&self) -> Result<Box<dyn Stream>, Failure> {
        let connection = self.connect(WATCH_TIMEOUT_MS)?;
        let begin_watch = || -> io::Result<Box<dyn Stream>> {
            let mut stream = connection?;
            stream.write_all(format!("{WATCH_COMMAND}\r\n").as_bytes())?;
            let mut reply_start = [0; 2];
            stream.read_exact(&mut reply_start)?;
            if &reply_start != b"OK" {
                return Err(watch_refusal(&reply_start, &mut *stream));
            }
            stream.set_read_timeout(READ_TIMEOUT)?;
            Ok(stream)
        };
        begin_watch().map_err(|error| {
            if error.kind() == io::ErrorKind::InvalidData {
                let message = format_not_memcached(&self.server, WATCH_COMMAND, &error.to_string());
                return Failure::new(Exit::BadData, message);
            }
            Failure::new(Exit::Unreachable, format!("{}: {error}", self.server))
                .with_hint("give the address of a running server: glasscache record HOST:PORT")
        })
    }
}

/// Why a watch did not begin, by a reply that starts with `reply_start`; of the kind `InvalidData` and with the
/// beginning of the reply if that is not one of memcached's.
fn watch_refusal(reply_start: &[u8], stream: &mut dyn Stream) -> io::Error {
    let mut reply_rest = [0; 64];
    let rest_bytes = stream.read(&mut reply_rest).unwrap_or(0);
    let reply_bytes = [reply_start, reply_rest.get(..rest_bytes).unwrap_or_default()].concat();
    let reply = String::from_utf8_lossy(&reply_bytes);
    let line = reply.lines().next().unwrap_or_default();
    let is_refusal = ["ERROR", "CLIENT_ERROR", "SERVER_ERROR", "WATCH_"]
        .iter()
        .any(|refusal_start| line.starts_with(refusal_start));
    if !is_refusal || line.contains(UNAUTHENTICATED) {
        return io::Error::new(io::ErrorKind::InvalidData, line.to_owned());
    }
    io::Error::other(
        "the server refuses to be watched (no `watch` command, too many watchers, or started with -W)",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(parse_duration("10m"), Ok(Duration::from_mins(10)));
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        for invalid_text in ["10", "", "m", "-1s", "0s", "10 years", "1e300d"] {
            assert!(parse_duration(invalid_text).is_err(), "{invalid_text}");
        }
    }

    #[test]
    fn a_share_is_above_0_and_up_to_1() {
        assert_eq!(parse_share("0.1"), Ok(0.1));
        for invalid_text in ["0", "1.1", "-1", "x", "nan"] {
            assert!(parse_share(invalid_text).is_err(), "{invalid_text}");
        }
    }
}
