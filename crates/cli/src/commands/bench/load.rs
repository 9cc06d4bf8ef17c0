//! `glasscache bench TARGET`: load on any server, in a closed loop, at a rate, or at the highest rate that holds an
//! objective.

use std::path::{Path, PathBuf};
use std::time::Duration;

use glasscache_lab::access::Protocol;
use glasscache_lab::bench::live::{
    self, Comparison, EarlyEnd, KeyTrace, LoadMeasurement, Mix, Objective, Popularity,
    SearchResult, Settings, Target, Traffic, TriedRate,
};
use glasscache_lab::load::{self, Pace, Picker, Size, ValueCheck, Values};
use glasscache_lab::text::{format_count, format_decimal};
use glasscache_sim::trace::Columns;
use serde_json::{Value, json};

use super::load_report::{LoadResult, build_report};
use super::load_values::{
    MixArg, PopularityArg, SizeArg, parse_mix, parse_popularity, parse_rate, parse_size,
};
use crate::access;
use crate::files::write_atomically;
use crate::interrupts::new_stop_flag;
use crate::live_target::{LiveTarget, new_progress_bar, parse_duration};
use crate::output::{Exit, Failure, Output};
use crate::report::Detail;
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
        let traffic = self.build_traffic()?;
        let (result, early_end) = self.measure(&settings, &targets, &traffic)?;
        let target_descriptions: Vec<String> =
            targets.iter().map(|target| target.describe()).collect();
        let document = self.to_document(&targets, &traffic, &result);
        let report = build_report(&target_descriptions, &result, document);
        report.print(out, Detail::default())?;
        for warning in list_warnings(&result) {
            eprintln!("warning: {warning}");
        }
        if let Some(failure) = early_end {
            return Err(
                failure.with_hint("what was measured before is printed; no file was written")
            );
        }
        if result.is_stopped {
            return Err(Failure::stopped());
        }
        if let Some(path) = &self.hdr {
            write_atomically(path, live::format_percentile_table(&result.measured).as_bytes())?;
        }
        if let Some(path) = &self.hdr_log {
            write_atomically(
                path,
                &live::format_interval_log(result.measured.started_at, &result.measured.by_second)?,
            )?;
        }
        report.write_page(self.html.as_deref(), &self.input_files())?;
        let wrong_values: u64 = result.all_measured().map(|measured| measured.wrong_values).sum();
        Ok(if wrong_values > 0 { Exit::Finding } else { Exit::Success })
    }

    fn build_settings(&self) -> Result<Settings, Failure> {
        Ok(Settings {
            connections: self.connections as usize,
            depth: self.depth as usize,
            threads: self.threads as usize,
            pace: self.rate.map_or(Pace::Closed, Pace::Open),
            run_for: self.run_for,
            warm_up: self.warm_up,
            cpus: self.cpus.clone(),
            check: self.check.into(),
            seed: self.seed,
            stop: new_stop_flag()?,
        })
    }

    fn build_traffic(&self) -> Result<Traffic, Failure> {
        let [get, multi_get, set, delete] = self.mix.shares;
        let trace = self.read_trace()?;
        let (popularity, keys) = match (&self.popularity, &trace) {
            (_, Some(trace)) => {
                (Popularity::Trace(trace.requested_key_numbers.clone()), trace.keys)
            }
            (popularity, None) => {
                let keys = self.keys.unwrap_or(DEFAULT_KEYS);
                let exponent = match popularity {
                    PopularityArg::Zipf(exponent) => Some(*exponent),
                    _ => None,
                };
                (Popularity::Random(Picker::new(keys, exponent)), keys)
            }
        };
        Ok(Traffic {
            popularity,
            keys,
            values: Values::new(self.read_value_size(trace.as_ref())?, self.seed),
            mix: Mix { get, multi_get, keys_per_get: self.keys_per_get as usize, set, delete },
            ttl_s: self.ttl,
            fills_misses: self.fill,
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

    /// What was measured, and what ended that early.
    fn measure(
        &self,
        settings: &Settings,
        targets: &[LiveTarget],
        traffic: &Traffic,
    ) -> Result<(LoadResult, Option<Failure>), Failure> {
        let load_targets: Vec<Target> = targets
            .iter()
            .map(|target| Target { access: target.access.clone(), meter: target.meter.clone() })
            .collect();
        for (load_target, target) in load_targets.iter().zip(targets) {
            live::fill(settings, load_target, traffic)
                .map_err(|error| failure(&target.name, &error))?;
        }
        let bar = new_progress_bar();
        let progress = |done_share: f64| bar.set_position((done_share * 1000.0) as u64);
        let to_failure = |end: EarlyEnd| {
            let name = targets.get(end.target_index).map_or("", |target| &target.name);
            failure(name, &end.error)
        };
        let failure_of_first_target = |error| to_failure(EarlyEnd { target_index: 0, error });
        let (measured, other_and_ratio, objective_and_rates, mut early_end) =
            match (&load_targets[..], self.search) {
                ([first, second], _) => {
                    let Comparison { measured: [measured, other_measured], ratios, early_end } =
                        live::compare(settings, [first, second], traffic, progress)
                            .map_err(to_failure)?;
                    let other_and_ratio = Some((other_measured, ratios));
                    (Some(measured), other_and_ratio, None, early_end.map(to_failure))
                }
                ([first, ..], Some(objective)) => {
                    let SearchResult { tried_rates, best, error } =
                        live::search(settings, first, traffic, objective, progress)
                            .map_err(failure_of_first_target)?;
                    let objective_and_rates = Some((objective, tried_rates));
                    (best, None, objective_and_rates, error.map(failure_of_first_target))
                }
                ([first, ..], None) => {
                    let (measured, error) =
                        live::run(settings, first, traffic).map_err(failure_of_first_target)?;
                    (Some(measured), None, None, error.map(failure_of_first_target))
                }
                ([], _) => (None, None, None, None),
            };
        bar.finish_and_clear();
        // The keys of a server that failed cannot be removed.
        if early_end.is_none() {
            early_end = load_targets.iter().enumerate().find_map(|(target_index, load_target)| {
                let error = live::clear(settings, load_target, traffic).err()?;
                Some(to_failure(EarlyEnd { target_index, error }))
            });
        }
        let is_stopped = settings.stop.load(std::sync::atomic::Ordering::Relaxed);
        let Some(measured) = measured else {
            return Err(early_end.unwrap_or_else(|| {
                no_rate_holds_failure(objective_and_rates.as_ref(), is_stopped)
            }));
        };
        if is_stopped && measured.requests == 0 {
            let message = "stopped in the warm-up, before any request was counted";
            return Err(Failure::new(Exit::Interrupted, message));
        }
        let result = LoadResult { measured, other_and_ratio, objective_and_rates, is_stopped };
        Ok((result, early_end))
    }

    fn to_document(&self, targets: &[LiveTarget], traffic: &Traffic, result: &LoadResult) -> Value {
        let target_json =
            |target: &LiveTarget| json!({ "address": target.name, "version": target.version });
        let mut document = json!(result.measured);
        document["target"] = targets.first().map_or(Value::Null, target_json);
        if let Some((other, ratio)) = &result.other_and_ratio {
            document["vs"] = json!(other);
            document["vs"]["target"] = targets.get(1).map_or(Value::Null, target_json);
            document["ratio"] = json!(ratio);
        }
        if let Some((objective, tried_rates)) = &result.objective_and_rates {
            document["objective"] = json!(objective);
            document["tried"] = json!(tried_rates);
        }
        document["warnings"] = json!(list_warnings(result));
        document["settings"] = json!({ "connections": self.connections, "depth": self.depth, "threads": self.threads,
            "keys": traffic.keys, "seed": self.seed, "ttl_s": self.ttl, "tls": self.access.has_tls(),
            "protocol": Protocol::from(self.protocol) });
        document
    }
}

/// Warnings that the figures do not measure what was meant: a read test whose gets mostly miss measures misses.
fn list_warnings(result: &LoadResult) -> Vec<String> {
    let is_mostly_misses = |measured: &LoadMeasurement| measured.misses > measured.hits;
    if !result.all_measured().any(is_mostly_misses) {
        return Vec::new();
    }
    vec![
        "most gets missed, so these are mostly the times of misses: the server has room for too few of the keys; use \
         fewer or smaller ones (--keys, --size), or give it more memory"
            .to_owned(),
    ]
}

/// The failure of a search that has found no rate.
fn no_rate_holds_failure(
    objective_and_rates: Option<&(Objective, Vec<TriedRate>)>,
    is_stopped: bool,
) -> Failure {
    if is_stopped {
        return Failure::new(
            Exit::Interrupted,
            "stopped before a rate was found that holds the objective",
        );
    }
    let lowest_rate_text = objective_and_rates.and_then(|(objective, tried_rates)| {
        let lowest = tried_rates.last()?;
        Some(format!(
            ": at {} requests/s, the lowest that was tried, p{} is {} us",
            format_count(lowest.rate as u64),
            objective.percent,
            format_decimal(lowest.latency_us)
        ))
    });
    let lowest_rate_text = lowest_rate_text.unwrap_or_default();
    Failure::new(Exit::Finding, format!("no rate holds the objective{lowest_rate_text}"))
}

fn failure(target_name: &str, error: &load::Error) -> Failure {
    let exit = match error {
        load::Error::Io(_) | load::Error::Closed | load::Error::Silent(_) => Exit::Unreachable,
        load::Error::Unexpected(_) => Exit::BadData,
        load::Error::Stopped => Exit::Interrupted,
    };
    Failure::new(exit, format!("{target_name}: {error}"))
}
