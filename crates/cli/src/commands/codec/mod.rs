//! `glasscache codec`: what serialising and compressing values costs, and which codec a client should use.

mod sampling;

use std::fs::Metadata;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use glasscache_lab::access::Protocol;
use glasscache_lab::codec::{
    self, CodecInUse, SampleError, Samples, Settings, VALUE_BYTES_MAX, holds_lines,
};
use glasscache_lab::target::Target;
use glasscache_lab::text::format_count;
use glasscache_sim::strategy::parse_bytes;

use crate::access;
use crate::interrupts::new_stop_flag;
use crate::live_target::{LiveTarget, call_failure, new_progress_bar};
use crate::output::{Exit, Failure, Output};
use crate::report::{Detail, print_outcome, write_report_page};

const EXAMPLES: &str = "\
Examples:
  glasscache codec values.jsonl                  each line of JSON is a value
  glasscache codec pages/ --network 100mbit      each file is a value
  glasscache codec dump.xml --pieces 512k        pieces of large files, as split -b cuts them
  glasscache codec values.jsonl --codec 'Codec(level=3)'   should I change what I use?
  glasscache codec --from cache1:11211           values drawn from a server
  glasscache codec values.jsonl --server cache1:11211 --html codec.html";

/// Characters at which the prefix of a key ends, unless configured otherwise.
const PREFIX_ENDS: &str = ":/";

/// Measure forms of values, and recommend a codec.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Files or folders: each file is a value, and each line of *.jsonl and *.ndjson
    #[arg(
        id = "samples",
        value_name = "SAMPLES",
        required_unless_present = "from",
        conflicts_with = "from"
    )]
    sample_paths: Vec<PathBuf>,
    /// Draw the values from this server: host:port or unix:PATH
    #[arg(long, value_name = "SERVER")]
    from: Option<String>,
    /// The codec in use, as Python prints it, with which every form is compared [default: that of a client without settings]
    #[arg(long, value_name = "CODEC", value_parser = str::parse::<CodecInUse>)]
    codec: Option<CodecInUse>,
    /// How many values are drawn [default: 1000]
    #[arg(id = "values", long = "values", value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    drawn_values: Option<u64>,
    /// Cut files into pieces of this many bytes, such as 512k, as `split -b` does
    #[arg(long, value_name = "BYTES", conflicts_with = "from", value_parser = parse_piece_bytes)]
    pieces: Option<usize>,
    /// Where values are stored and read: host:port or unix:PATH [default: one started here]
    #[arg(long, value_name = "ADDR")]
    server: Option<String>,
    /// Speed of the network, such as 100mbit, 10gbit, or as-measured [default: 1gbit for a server on this machine, else
    /// as-measured]
    #[arg(long, value_name = "SPEED", value_parser = parse_network)]
    network: Option<Network>,
    /// Gets for each set
    #[arg(long, value_name = "N", default_value_t = 10.0, value_parser = parse_reads)]
    reads: f64,
    /// A prefix ends at the first of these characters in a key [default: :/]
    #[arg(long, value_name = "CHARS")]
    prefix_of: Option<String>,
    /// Print every form and prefix, not only the six best
    #[arg(long)]
    all: bool,
    /// Write a page with charts
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Seed of the draw and of the order of reading
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    access: access::Args,
}

/// Speed of the network between client and server.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Network {
    /// What was measured against the server.
    AsMeasured,
    /// Mbit/s on top of it.
    Mbit(f64),
}

fn parse_network(text: &str) -> Result<Network, String> {
    let units = [("mbit", 1.0), ("gbit", 1000.0)];
    let parse_positive =
        |text: &str| text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    let lower_case = text.to_ascii_lowercase();
    let speed_with_unit = units.into_iter().find_map(|(unit, factor)| {
        let number = parse_positive(lower_case.strip_suffix(unit)?)?;
        Some(Network::Mbit(number * factor))
    });
    if lower_case == "as-measured" {
        return Ok(Network::AsMeasured);
    }
    speed_with_unit.ok_or_else(|| {
        format!("{text:?}: expected a speed such as 100mbit or 1gbit, or as-measured")
    })
}

fn parse_piece_bytes(text: &str) -> Result<usize, String> {
    let bytes = parse_bytes(text).and_then(|bytes| usize::try_from(bytes).ok());
    bytes.filter(|bytes| (1..=VALUE_BYTES_MAX).contains(bytes)).ok_or_else(|| {
        format!("{text:?}: expected a number of bytes from 1 to {VALUE_BYTES_MAX}, such as 512k")
    })
}

fn parse_reads(text: &str) -> Result<f64, String> {
    let number = text.parse().ok();
    number
        .filter(|number: &f64| number.is_finite() && *number >= 0.0)
        .ok_or_else(|| format!("{text:?}: expected a number of at least 0"))
}

impl Args {
    /// Measures, prints and writes the page.
    pub(crate) fn run(self, out: &Output) -> Result<Exit, Failure> {
        // clap does not require what conflicts with another argument that is given.
        if self.drawn_values.is_some() && self.from.is_none() {
            return Err(Failure::usage("--values: how many are drawn from a server needs --from"));
        }
        let cuts_nothing = self.sample_paths.iter().all(|path| holds_lines(path));
        if self.pieces.is_some() && cuts_nothing {
            return Err(Failure::usage(
                "--pieces has no effect: each line of a *.jsonl or *.ndjson file is a value; leave it out",
            ));
        }
        if self.server.is_none() && self.from.is_none() && self.access.is_given() {
            return Err(access::missing_target_failure());
        }
        let credentials = self.access.read_credentials()?;
        let stop = new_stop_flag()?;
        let samples = self.read_samples()?;
        if samples.is_empty() {
            return Err(self.no_values_failure(cuts_nothing));
        }
        if self.prefix_of.is_some() && !samples.has_keys() {
            return Err(Failure::usage(
                "--prefix-of has no effect: lines of a file have no keys; leave it out",
            ));
        }
        let target = LiveTarget::open(self.server.as_deref(), &credentials, Protocol::Text)?;
        let settings = self.new_settings(&target, stop);
        let bar = new_progress_bar();
        let outcome = codec::run(&samples, &target, &settings, |done| {
            bar.set_position(done as u64);
        });
        bar.finish_and_clear();
        let outcome = outcome.map_err(|error| call_failure(&error))?;
        let detail = Detail { prints_all: self.all, is_wide: false };
        let exit = print_outcome(&outcome, out, detail, call_failure)?;
        let inputs: Vec<_> = self.sample_paths.iter().map(PathBuf::as_path).collect();
        write_report_page(outcome.report, self.html.as_deref(), &inputs)?;
        Ok(exit)
    }

    fn no_values_failure(&self, has_only_lines: bool) -> Failure {
        let long_file = self.sample_paths.iter().find_map(|path| {
            let bytes = path.metadata().ok().filter(Metadata::is_file)?.len();
            (bytes > VALUE_BYTES_MAX as u64 && !holds_lines(path)).then_some((path, bytes))
        });
        let reason = match long_file {
            Some((path, bytes)) => {
                format!("{} has {} bytes", path.display(), format_count(bytes))
            }
            None => "every one is empty or too long".to_owned(),
        };
        let value_bytes_max = format_count(VALUE_BYTES_MAX as u64);
        let message = format!(
            "no values to measure: {reason}, and servers refuse values of more than {value_bytes_max} by default"
        );
        let failure = Failure::new(Exit::BadData, message);
        if has_only_lines {
            return failure;
        }
        failure.with_hint("--pieces 512k cuts files into pieces of that size, as split -b does")
    }

    fn read_samples(&self) -> Result<Samples, Failure> {
        if let Some(server) = &self.from {
            let count = self.drawn_values.unwrap_or(1000) as usize;
            return sampling::draw(server, &self.access, count, self.seed);
        }
        Samples::read(&self.sample_paths, self.pieces).map_err(|error| {
            let exit = match &error {
                SampleError::Open { .. } => Exit::Unreachable,
                SampleError::Line { .. } => Exit::BadData,
            };
            Failure::new(exit, error.to_string())
        })
    }

    fn new_settings(&self, target: &Target, stop: Arc<AtomicBool>) -> Settings {
        let default_network =
            if target.is_local() { Network::Mbit(1000.0) } else { Network::AsMeasured };
        Settings {
            network_mbit: match self.network.unwrap_or(default_network) {
                Network::AsMeasured => None,
                Network::Mbit(mbit) => Some(mbit),
            },
            reads_per_write: self.reads,
            codec_in_use: self.codec.clone().unwrap_or_default(),
            prefix_ends: self.prefix_of.as_deref().unwrap_or(PREFIX_ENDS).into(),
            seed: self.seed,
            stop,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_have_the_bytes_that_a_server_takes() {
        assert_eq!(parse_piece_bytes("512k"), Ok(512 << 10));
        assert_eq!(parse_piece_bytes("1000000"), Ok(1_000_000));
        for invalid_text in ["", "0", "1m", "x", "-1"] {
            assert!(parse_piece_bytes(invalid_text).is_err(), "{invalid_text}");
        }
    }

    #[test]
    fn reads_speeds_of_networks() {
        assert_eq!(parse_network("100mbit"), Ok(Network::Mbit(100.0)));
        assert_eq!(parse_network("2.5Gbit"), Ok(Network::Mbit(2500.0)));
        assert_eq!(parse_network("as-measured"), Ok(Network::AsMeasured));
        for invalid_text in ["", "100", "0gbit", "-1mbit", "gbit", "infgbit"] {
            assert!(parse_network(invalid_text).is_err(), "{invalid_text}");
        }
    }
}
