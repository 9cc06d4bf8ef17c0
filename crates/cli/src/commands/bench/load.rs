//! `glasscache bench TARGET`: load on any server, in a closed loop, at a rate, or at the highest rate that holds an
//! objective.

use std::path::PathBuf;
use std::time::Duration;

use glasscache_lab::bench::live::{self, Measured, Mix, Objective, Settings, Target, Traffic};
use glasscache_lab::load::{self, Dialect, Pace, Picker, Size, Values};
use serde_json::{Value, json};

use super::load_page;
use super::load_table::{self, Found};
use crate::files::write_whole;
use crate::live_target::{LiveTarget, parse_duration, progress_bar, stop_flag};
use crate::output::{Exit, Failure, Output};

/// Options of a load test.
#[derive(clap::Args, Debug)]
#[group(skip)]
#[command(next_help_heading = "Load on any server",
    group = clap::ArgGroup::new("load").multiple(true).args(["target", "rate", "closed", "search"]))]
pub(crate) struct Args {
    /// The server: host:port or unix:PATH [default with --rate, --closed or --search: one started here]
    #[arg(conflicts_with_all = ["scenario", "rounds", "scenarios", "list", "memcached", "glasscache", "keep"])]
    target: Option<String>,
    /// Compare with this server, in interleaved rounds
    #[arg(
        long,
        value_name = "TARGET",
        requires = "target",
        conflicts_with = "search"
    )]
    vs: Option<String>,
    /// Open loop: so many requests a second, whatever the replies take
    #[arg(long, value_name = "N", conflicts_with_all = ["closed", "search", "scenario", "rounds", "scenarios", "list", "memcached", "glasscache", "keep"], value_parser = parse_rate)]
    rate: Option<f64>,
    /// Closed loop: as fast as replies come (the default)
    #[arg(long, conflicts_with_all = ["search", "scenario", "rounds", "scenarios", "list", "memcached", "glasscache", "keep"])]
    closed: bool,
    /// Find the highest rate that holds an objective, such as 'p99.9<1ms'
    #[arg(long, value_name = "OBJECTIVE", conflicts_with_all = ["scenario", "rounds", "scenarios", "list", "memcached", "glasscache", "keep"], value_parser = str::parse::<Objective>)]
    search: Option<Objective>,
    /// Length of the measurement
    #[arg(requires = "load", long = "for", value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    run_for: Duration,
    /// Sent before it, not counted
    #[arg(requires = "load", long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    warm_up: Duration,
    /// Connections
    #[arg(requires = "load", long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    connections: u64,
    /// Requests in flight on each connection
    #[arg(requires = "load", long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    depth: u64,
    /// Threads of the generator
    #[arg(requires = "load", long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    threads: u64,
    /// CPUs for these threads, such as 0,1
    #[arg(requires = "load", long, value_name = "CPUS", value_delimiter = ',')]
    cpus: Vec<usize>,
    /// Number of keys
    #[arg(requires = "load", long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    keys: u64,
    /// How keys are drawn: uniform, or zipf:EXPONENT
    #[arg(requires = "load", long, value_name = "LAW", default_value = "uniform", value_parser = parse_popularity)]
    popularity: Popularity,
    /// Bytes of a value, or lognormal:MEDIAN:SIGMA
    #[arg(requires = "load", long, value_name = "BYTES", default_value = "100", value_parser = parse_size)]
    size: SizeArg,
    /// Shares of the requests
    #[arg(requires = "load", long, value_name = "SHARES", default_value = "get=1", value_parser = parse_mix)]
    mix: MixArg,
    /// Keys of a multi-get
    #[arg(requires = "load", long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    keys_per_get: u64,
    /// TTL of what is set while measuring, in seconds
    #[arg(requires = "load", long, value_name = "SECONDS", default_value_t = 0)]
    ttl: u32,
    /// Store a key that was missed, as a look-aside application does
    #[arg(requires = "load", long)]
    fill: bool,
    /// Send meta commands
    #[arg(requires = "load", long)]
    meta: bool,
    /// Seed of keys, values and schedule
    #[arg(requires = "load", long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the histogram of the latency as an `HdrHistogram` table
    #[arg(requires = "load", long, value_name = "FILE")]
    hdr: Option<PathBuf>,
    /// Write a page with charts
    #[arg(requires = "load", long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// How keys are drawn.
#[derive(Debug, Clone, Copy)]
struct Popularity(Option<f64>);

/// Sizes of values.
#[derive(Debug, Clone, Copy)]
struct SizeArg(Size);

/// Shares of get, multi-get, set and delete.
#[derive(Debug, Clone, Copy)]
struct MixArg([f64; 4]);

/// The kinds of requests, in the order of [`MixArg`].
const KINDS: [&str; 4] = ["get", "multi-get", "set", "delete"];

fn positive(text: &str) -> Option<f64> {
    text.parse()
        .ok()
        .filter(|number: &f64| number.is_finite() && *number > 0.0)
}

fn parse_rate(text: &str) -> Result<f64, String> {
    positive(text).ok_or_else(|| format!("{text:?}: expected a number above 0"))
}

fn parse_popularity(text: &str) -> Result<Popularity, String> {
    match text.split_once(':') {
        None if text == "uniform" => Ok(Popularity(None)),
        None if text == "zipf" => Ok(Popularity(Some(0.99))),
        Some(("zipf", exponent)) if positive(exponent).is_some() => {
            Ok(Popularity(positive(exponent)))
        }
        _ => Err(format!("{text:?}: expected uniform, zipf or zipf:EXPONENT")),
    }
}

fn parse_size(text: &str) -> Result<SizeArg, String> {
    let expected = || format!("{text:?}: expected bytes, such as 100, or lognormal:MEDIAN:SIGMA");
    if let Some(rest) = text.strip_prefix("lognormal:") {
        let (median, sigma) = rest.split_once(':').ok_or_else(expected)?;
        let (median, sigma) = positive(median).zip(positive(sigma)).ok_or_else(expected)?;
        return Ok(SizeArg(Size::LogNormal {
            median,
            sigma,
            max: 1_000_000,
        }));
    }
    let bytes: u32 = text.parse().map_err(|_| expected())?;
    let is_valid = bytes <= 1 << 30;
    is_valid
        .then_some(SizeArg(Size::Fixed(bytes)))
        .ok_or_else(expected)
}

fn parse_mix(text: &str) -> Result<MixArg, String> {
    let expected = || {
        format!(
            "{text:?}: expected shares such as get=9,set=1; kinds are {}",
            KINDS.join(", ")
        )
    };
    let mut shares = [0.0; 4];
    for part in text.split(',') {
        let (kind, share) = part.split_once('=').ok_or_else(expected)?;
        let at = KINDS
            .iter()
            .position(|known| *known == kind)
            .ok_or_else(expected)?;
        shares[at] = positive(share).ok_or_else(expected)?;
    }
    Ok(MixArg(shares))
}

impl Args {
    /// Whether the command line asks for a load test.
    pub(super) fn is_requested(&self) -> bool {
        self.target.is_some() || self.rate.is_some() || self.closed || self.search.is_some()
    }

    /// Measures, prints and writes the files.
    pub(super) fn run(self, out: &Output) -> Result<Exit, Failure> {
        if self.threads > self.connections {
            return Err(Failure::usage(
                "--threads: each thread needs a connection (--connections)",
            ));
        }
        let mut targets = vec![LiveTarget::open(self.target.as_deref())?];
        if let Some(vs) = &self.vs {
            targets.push(LiveTarget::open(Some(vs))?);
        }
        let settings = self.settings()?;
        let traffic = self.traffic();
        let found = self.measure(&settings, &targets, &traffic)?;
        let names: Vec<String> = targets.iter().map(LiveTarget::describe).collect();
        if out.is_json() {
            out.document(&self.document(&targets, &found));
        } else {
            out.line(load_table::text(&names, &found).trim_end())?;
        }
        for warning in warnings(&found) {
            eprintln!("warning: {warning}");
        }
        if found.is_stopped {
            return Err(Failure::new(
                Exit::Interrupted,
                "stopped: these are the results so far; no file was written",
            ));
        }
        if let Some(path) = &self.hdr {
            write_whole(path, histogram_log(&found.measured)?.as_bytes())?;
        }
        if let Some(path) = &self.html {
            write_whole(path, load_page::page(&names, &found).as_bytes())?;
            eprintln!("page written to {}", path.display());
        }
        let wrong =
            found.measured.wrong_values + found.vs.as_ref().map_or(0, |(vs, _)| vs.wrong_values);
        Ok(if wrong > 0 {
            Exit::Finding
        } else {
            Exit::Success
        })
    }

    fn settings(&self) -> Result<Settings, Failure> {
        Ok(Settings {
            connections: self.connections as usize,
            depth: self.depth as usize,
            threads: self.threads as usize,
            pace: self.rate.map_or(Pace::Closed, Pace::Open),
            run_for: self.run_for,
            warm_up: self.warm_up,
            cpus: self.cpus.clone(),
            seed: self.seed,
            stop: stop_flag()?,
        })
    }

    fn traffic(&self) -> Traffic {
        let [get, multi_get, set, delete] = self.mix.0;
        Traffic {
            picker: Picker::new(self.keys, self.popularity.0),
            keys: self.keys,
            values: Values::new(self.size.0, self.seed),
            mix: Mix {
                get,
                multi_get,
                keys_per_get: self.keys_per_get as usize,
                set,
                delete,
            },
            ttl_s: self.ttl,
            fills_misses: self.fill,
            dialect: if self.meta {
                Dialect::Meta
            } else {
                Dialect::Text
            },
        }
    }

    fn measure(
        &self,
        settings: &Settings,
        targets: &[LiveTarget],
        traffic: &Traffic,
    ) -> Result<Found, Failure> {
        let servers: Vec<Target> = targets
            .iter()
            .map(|target| Target {
                endpoint: target.endpoint.clone(),
                meter: target.meter.clone(),
            })
            .collect();
        for (server, target) in servers.iter().zip(targets) {
            live::fill(settings, server, traffic).map_err(|error| failure(&target.name, &error))?;
        }
        let bar = progress_bar();
        let progress = |done: f64| bar.set_position((done * 1000.0) as u64);
        let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
        let failed = |error: load::Error| failure(&names.join(" or "), &error);
        let (measured, vs, objective) = match (&servers[..], self.search) {
            ([first, second], _) => {
                let ([measured, other], ratio) =
                    live::compare(settings, [first, second], traffic, progress).map_err(failed)?;
                (Some(measured), Some((other, ratio)), None)
            }
            ([first], Some(objective)) => {
                let (tried, best) =
                    live::search(settings, first, traffic, objective, progress).map_err(failed)?;
                (best, None, Some((objective, tried)))
            }
            ([first, ..], None) => (
                Some(live::run(settings, first, traffic).map_err(failed)?),
                None,
                None,
            ),
            _ => (None, None, None),
        };
        bar.finish_and_clear();
        for (server, target) in servers.iter().zip(targets) {
            live::clear(settings, server, traffic)
                .map_err(|error| failure(&target.name, &error))?;
        }
        let is_stopped = settings.stop.load(std::sync::atomic::Ordering::Relaxed);
        let measured = measured.ok_or_else(|| {
            Failure::new(
                Exit::Finding,
                format!("no rate on {} holds the objective", names.join(" or ")),
            )
        })?;
        Ok(Found {
            measured,
            vs,
            objective,
            is_stopped,
        })
    }

    fn document(&self, targets: &[LiveTarget], found: &Found) -> Value {
        let name =
            |target: &LiveTarget| json!({ "address": target.name, "version": target.version });
        let mut document = json!(found.measured);
        let names: Vec<String> = targets.iter().map(LiveTarget::describe).collect();
        document["sentence"] = json!(load_table::sentence(&names, found));
        document["target"] = targets.first().map_or(Value::Null, name);
        if let Some((vs, ratio)) = &found.vs {
            document["vs"] = json!(vs);
            document["vs"]["target"] = targets.get(1).map_or(Value::Null, name);
            document["ratio"] = json!(ratio);
        }
        if let Some((objective, tried)) = &found.objective {
            document["objective"] = json!(objective);
            document["tried"] = json!(tried);
        }
        document["warnings"] = json!(warnings(found));
        document["settings"] = json!({ "connections": self.connections, "depth": self.depth, "threads": self.threads,
            "keys": self.keys, "seed": self.seed, "ttl_s": self.ttl });
        document
    }
}

/// What makes the figures something else than they seem: a read test whose gets mostly miss measures misses.
fn warnings(found: &Found) -> Vec<String> {
    let all = std::iter::once(&found.measured).chain(found.vs.as_ref().map(|(vs, _)| vs));
    let is_of_misses = |measured: &Measured| measured.misses > measured.hits;
    if !all.into_iter().any(is_of_misses) {
        return Vec::new();
    }
    vec![
        "most gets missed, so these are mostly the times of misses: the server has room for too few of the keys; use \
         fewer or smaller ones (--keys, --size), or give it more memory"
            .to_owned(),
    ]
}

/// The histogram of the latency from the intended time in the form of an `HdrHistogram` log: one line a percentile,
/// as its plotters read it.
fn histogram_log(measured: &Measured) -> Result<String, Failure> {
    use std::fmt::Write;
    let tally = &measured.tally;
    let histogram = tally.from_intended.as_ref().unwrap_or(&tally.from_send);
    let mut text = String::from("       Value     Percentile TotalCount 1/(1-Percentile)\n\n");
    let mut count = 0;
    for step in histogram.iter_quantiles(5) {
        count += step.count_since_last_iteration();
        let quantile = step.quantile_iterated_to();
        let us = step.value_iterated_to() as f64 / 1e3;
        let written = if quantile < 1.0 {
            writeln!(
                text,
                "{us:12.3} {quantile:14.12} {count:10} {:14.2}",
                1.0 / (1.0 - quantile)
            )
        } else {
            writeln!(text, "{us:12.3} {quantile:14.12} {count:10}")
        };
        written.map_err(|error| Failure::new(Exit::Unreachable, error.to_string()))?;
    }
    let (mean, deviation) = (histogram.mean() / 1e3, histogram.stdev() / 1e3);
    let max = histogram.max() as f64 / 1e3;
    let _ = writeln!(
        text,
        "#[Mean    = {mean:12.3}, StdDeviation   = {deviation:12.3}]"
    );
    let _ = writeln!(
        text,
        "#[Max     = {max:12.3}, Total count    = {:12}]",
        histogram.len()
    );
    Ok(text)
}

fn failure(target: &str, error: &load::Error) -> Failure {
    let exit = match error {
        load::Error::Io(_) | load::Error::Closed => Exit::Unreachable,
        load::Error::Unexpected(_) => Exit::BadData,
        load::Error::Stopped => Exit::Interrupted,
    };
    Failure::new(exit, format!("{target}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_shares_sizes_and_popularity() {
        assert!(
            parse_mix("get=9,set=1")
                .is_ok_and(|mix| mix.0.map(|share| share as u32) == [9, 0, 1, 0])
        );
        assert!(parse_mix("get=9,put=1").is_err_and(|error| error.contains("multi-get")));
        assert!(parse_size("lognormal:230:1.5").is_ok_and(|size| size.0 == Size::MIX));
        assert!(parse_size("1k").is_err() && parse_size("lognormal:1").is_err());
        assert!(parse_popularity("zipf:0.9").is_ok_and(|law| law.0 == Some(0.9)));
        assert!(parse_popularity("zipf:0").is_err() && parse_popularity("normal").is_err());
    }
}
