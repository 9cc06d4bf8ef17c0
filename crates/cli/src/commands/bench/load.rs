//! `glasscache bench TARGET`: load on any server, in a closed loop, at a rate, or at the highest rate that holds an
//! objective.

use std::path::{Path, PathBuf};
use std::time::Duration;

use glasscache_lab::access::Protocol;
use glasscache_lab::bench::live::{self, KeyTrace, Keys, LoadError, Mix, Objective, Settings};
use glasscache_lab::load::{self, Pace, Size, ValueCheck};
use glasscache_lab::target::Target;
use glasscache_sim::trace::Columns;

use super::load_values::{
    MixArg, PopularityArg, SizeArg, parse_mix, parse_popularity, parse_rate, parse_size,
};
use crate::access;
use crate::files::write_atomically;
use crate::interrupts::new_stop_flag;
use crate::live_target::{LiveTarget, new_progress_bar, parse_duration};
use crate::output::{Exit, Failure, Output};
use crate::report::{Detail, print_outcome, write_report_page};
use crate::target::MeasuredServer;
use crate::traces::{InputArgs, report_left_out};
use crate::value_sizes::VALUE_BYTES_MAX;

/// Number of keys where neither `--keys` nor a trace sets it.
const DEFAULT_KEYS: u64 = 100_000;

/// Options of a load test.
#[derive(clap::Args, Debug)]
#[group(skip)]
#[command(next_help_heading = "Load on any server",
    group = clap::ArgGroup::new("load").required(true).multiple(true).args(["positional_target", "target_server", "rate", "closed", "search"]))]
pub(crate) struct Args {
    #[command(flatten)]
    target: MeasuredServer,
    /// Compare with this server, in interleaved rounds
    #[arg(long, value_name = "TARGET", requires = "target", conflicts_with = "search")]
    vs: Option<String>,
    /// Open loop: N requests a second, however long the replies take
    #[arg(long, value_name = "N", conflicts_with_all = ["closed", "search"], value_parser = parse_rate)]
    rate: Option<f64>,
    /// Closed loop: as fast as replies come (the default)
    #[arg(long, conflicts_with = "search")]
    closed: bool,
    /// Find the highest rate that holds an objective, such as 'p99.9<1ms'
    #[arg(long, value_name = "OBJECTIVE", value_parser = str::parse::<Objective>)]
    search: Option<Objective>,
    /// Length of the measurement
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    run_for: Duration,
    /// Sent before it, not counted
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    warm_up: Duration,
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    connections: u64,
    /// Requests in flight on each connection
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    depth: u64,
    /// Threads of the generator
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    threads: u64,
    /// CPUs for these threads, such as 0,1
    #[arg(long, value_name = "CPUS", value_delimiter = ',')]
    cpus: Vec<usize>,
    /// Number of keys [default: 100000, or those of the trace]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    keys: Option<u64>,
    /// How keys are chosen: uniform, zipf:EXPONENT, or trace:FILE (in its order, over and over)
    #[arg(long, value_name = "LAW", default_value = "uniform", value_parser = parse_popularity)]
    popularity: PopularityArg,
    /// Bytes of a value, lognormal:MEDIAN:SIGMA, stats:SERVER (those that it holds), histogram:FILE (CSV `size,count`),
    /// clusters:FILE (CSV with `value_size_mean`), or trace (those of --popularity trace:FILE)
    #[arg(long, value_name = "BYTES", default_value = "100", value_parser = parse_size)]
    size: SizeArg,
    /// Shares of the requests
    #[arg(long, value_name = "SHARES", default_value = "get=1", value_parser = parse_mix)]
    mix: MixArg,
    /// Keys of a multi-get
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    keys_per_get: u64,
    /// TTL of what is set while measuring, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    ttl: u32,
    /// Store a key that was missed, as a look-aside application does
    #[arg(long)]
    fill: bool,
    /// The protocol of all requests and logins
    #[arg(long, value_enum, default_value = "text")]
    protocol: ProtocolArg,
    /// How much of each value is compared with what was stored
    #[arg(long, value_enum, default_value = "up-to-64k")]
    check: CheckArg,
    /// Seed of keys, values and schedule
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the percentiles of the latency as an `HdrHistogram` table
    #[arg(long, value_name = "FILE")]
    hdr: Option<PathBuf>,
    /// Write the histogram of each second as an `HdrHistogram` log (V2)
    #[arg(long, value_name = "FILE")]
    hdr_log: Option<PathBuf>,
    /// Write a page with charts
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    access: access::Args,
    #[command(flatten)]
    trace_input: InputArgs,
}

/// The values of `--protocol`.
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
enum ProtocolArg {
    /// Classic text
    Text,
    /// Meta commands, without multi-gets
    Meta,
    /// Binary; multi-gets are quiet gets and a noop, logins are SASL PLAIN
    Binary,
}

impl From<ProtocolArg> for Protocol {
    fn from(protocol: ProtocolArg) -> Self {
        match protocol {
            ProtocolArg::Text => Self::Text,
            ProtocolArg::Meta => Self::Meta,
            ProtocolArg::Binary => Self::Binary,
        }
    }
}

/// The values of `--check`.
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
enum CheckArg {
    /// Every byte of values of up to 64 KiB, the ends of longer ones
    #[value(name = "up-to-64k")]
    UpTo64KiB,
    /// Every byte
    All,
    /// The length and 16 bytes at both ends
    Ends,
}

impl From<CheckArg> for ValueCheck {
    fn from(check: CheckArg) -> Self {
        match check {
            CheckArg::UpTo64KiB => Self::UpTo64KiB,
            CheckArg::All => Self::Full,
            CheckArg::Ends => Self::Ends,
        }
    }
}

impl Args {
    /// Measures, prints and writes the files.
    pub(super) fn run(self, out: &Output) -> Result<Exit, Failure> {
        if self.threads > self.connections {
            return Err(Failure::usage(
                "--threads: each thread needs a connection (--connections)",
            ));
        }
        if self.target.address().is_none() && self.access.is_given() {
            return Err(access::missing_target_failure());
        }
        let credentials = self.access.read_credentials()?;
        let open = |address| LiveTarget::open(address, &credentials, self.protocol.into());
        let mut targets = vec![open(self.target.address())?];
        if let Some(vs_address) = &self.vs {
            targets.push(open(Some(vs_address))?);
        }
        let settings = self.build_settings()?;
        let measured_targets: Vec<&Target> = targets.iter().map(|target| &**target).collect();
        let bar = new_progress_bar();
        let result = live::run(&settings, &measured_targets, |done_share| {
            bar.set_position((done_share * 1000.0) as u64);
        });
        bar.finish_and_clear();
        let result = result.map_err(|error| failure(&error))?;
        let exit = print_outcome(&result.outcome, out, Detail::default(), |error| {
            failure(error).with_hint("what was measured before is printed; no file was written")
        });
        for warning in &result.warnings {
            eprintln!("warning: {warning}");
        }
        let exit = exit?;
        if let Some(path) = &self.hdr {
            write_atomically(path, result.percentile_table().as_bytes())?;
        }
        if let Some(path) = &self.hdr_log {
            write_atomically(path, &result.interval_log()?)?;
        }
        write_report_page(result.outcome.report, self.html.as_deref(), &self.input_files())?;
        Ok(exit)
    }

    fn build_settings(&self) -> Result<Settings, Failure> {
        let [get, multi_get, set, delete] = self.mix.shares;
        let trace = self.read_trace()?;
        Ok(Settings {
            size: self.read_value_size(trace.as_ref())?,
            keys: match (&self.popularity, trace) {
                (_, Some(trace)) => Keys::Trace(trace),
                (popularity, None) => Keys::Random {
                    count: self.keys.unwrap_or(DEFAULT_KEYS),
                    zipf_exponent: match popularity {
                        PopularityArg::Zipf(exponent) => Some(*exponent),
                        _ => None,
                    },
                },
            },
            mix: Mix { get, multi_get, keys_per_get: self.keys_per_get as usize, set, delete },
            ttl_s: self.ttl,
            fills_misses: self.fill,
            connections: self.connections as usize,
            depth: self.depth as usize,
            threads: self.threads as usize,
            pace: self.rate.map_or(Pace::Closed, Pace::Open),
            objective: self.search,
            run_for: self.run_for,
            warm_up: self.warm_up,
            cpus: self.cpus.clone(),
            check: self.check.into(),
            seed: self.seed,
            stop: new_stop_flag()?,
        })
    }

    /// The files that the keys and sizes come from.
    fn input_files(&self) -> Vec<&Path> {
        let trace_file = match &self.popularity {
            PopularityArg::Trace(path) => Some(path.as_path()),
            _ => None,
        };
        let sizes_file = match &self.size {
            SizeArg::FromSource(source) => source.file(),
            _ => None,
        };
        trace_file.into_iter().chain(sizes_file).collect()
    }

    /// The trace that gives the keys, if one does.
    fn read_trace(&self) -> Result<Option<KeyTrace>, Failure> {
        let PopularityArg::Trace(path) = &self.popularity else {
            if self.trace_input.is_given() {
                return Err(Failure::usage(
                    "--key-column, --regex and the like: they say how to read --popularity trace:FILE, which is not given",
                ));
            }
            return Ok(None);
        };
        if self.keys.is_some() {
            return Err(Failure::usage(
                "--keys: a trace has its own number of keys, so leave one of the two out",
            ));
        }
        let columns = Columns { size: self.size == SizeArg::Trace, ..Columns::KEY };
        let mut stream = self.trace_input.open(path, columns)?;
        let trace = KeyTrace::read(&mut *stream, VALUE_BYTES_MAX)?;
        let path_text = path.display().to_string();
        report_left_out(&path_text, trace.requested_key_numbers.len() as u64, &*stream);
        if trace.requested_key_numbers.is_empty() {
            let message = format!("{path_text}: the trace has no requests");
            return Err(Failure::new(Exit::BadData, message));
        }
        Ok(Some(trace))
    }

    fn read_value_size(&self, trace: Option<&KeyTrace>) -> Result<Size, Failure> {
        match (&self.size, trace) {
            (SizeArg::Distribution(size), _) => Ok(size.clone()),
            (SizeArg::FromSource(source), _) => source.read(&self.access),
            (SizeArg::Trace, Some(trace)) => trace.size().ok_or_else(|| {
                Failure::new(Exit::BadData, "the trace has no value sizes (--size trace)")
                    .with_hint("--size takes bytes or lognormal:MEDIAN:SIGMA as well")
            }),
            (SizeArg::Trace, None) => Err(Failure::usage(
                "--size trace: the sizes are those of --popularity trace:FILE, which is not given",
            )),
        }
    }
}

fn failure(error: &LoadError) -> Failure {
    let exit = match error {
        LoadError::Target { error, .. } => match error {
            load::Error::Io(_) | load::Error::Closed | load::Error::Silent(_) => Exit::Unreachable,
            load::Error::Unexpected(_) => Exit::BadData,
            load::Error::Stopped => Exit::Interrupted,
        },
        LoadError::NoRate(_) => Exit::Finding,
        LoadError::Stopped(_) => Exit::Interrupted,
    };
    Failure::new(exit, error.to_string())
}
