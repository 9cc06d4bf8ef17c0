//! `glasscache curve`: how much memory a cache needs, and whether another policy would do more.
//!
//! LRU at all sizes from one pass, the other policies replayed at chosen sizes on all cores. `glasscache_sim`
//! computes; this module has the flags, the threads and the output.

mod cost;
mod decisions;
mod jobs;
mod live;
mod report;
mod server;
mod sizes;
mod summary;
mod table;

use std::path::PathBuf;

use clap::ValueEnum;
use glasscache_lab::text::format_count;
use glasscache_sim::curve::SERVER_STORE_BYTES_MIN;
use glasscache_sim::policy::{Goal, PolicyKind, S4FifoSettings};
use glasscache_sim::replay::PreparedTrace;
use glasscache_sim::trace::Columns;
use glasscache_sim::trace::intern::{InternedTrace, Mode};
use serde_json::{Value, json};

use crate::access;
use crate::output::{Exit, Failure, Output};
use crate::report::{Detail, print_report, write_report_page};
use crate::setting_lists::join_settings;
use crate::traces::{InputArgs, report_left_out};
use jobs::{CurveResults, ReplayedPoint};
use summary::Summary;

/// Sizes that are replayed if `--capacities` is not given, as shares of all objects.
const DEFAULT_SIZES: [&str; 5] = ["1%", "5%", "20%", "50%", "100%"];

/// The words of `--policies` that are not the name of a policy.
const POLICY_GROUPS: [&str; 3] = ["all", "common", "none"];

/// Bytes of a key if `--key-bytes` is not given.
const DEFAULT_KEY_BYTES: u32 = 30;

const EXAMPLES: &str = r#"Examples:
  glasscache curve requests.parquet
  glasscache curve requests.parquet --mode bytes --misses 5 --html curve.html
  glasscache curve requests.csv --policies lru,s3fifo,belady --capacities 1000,10000 --json
  glasscache curve requests.parquet --server --cost-per-gb 3600 --miss-cost-ms 20
  glasscache curve requests.parquet --policies own,tuned --capacities 1000 --decisions
  glasscache curve huge.parquet --policies none --sample 8192
  glasscache curve export.csv --key-column url --size-column bytes
  glasscache curve watched.txt --format watch
  glasscache curve cache1:11211 --live   the curve that a running glasscache measures of itself
  glasscache curve cache1 --live --gib-month 4.2
  glasscache curve access.log --regex '"GET (?P<key>\S+) [^"]*" 200 (?P<size>\d+)'"#;

/// How much memory do I need?
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Key stream: .parquet, .csv, .jsonl, or a log (see "Form of the trace"); with --live a server
    #[arg(id = "trace", value_name = "TRACE")]
    trace_path: PathBuf,
    /// How objects are counted
    #[arg(long, value_enum, default_value = "objects")]
    mode: ModeFlag,
    /// Policies to replay: names, "common", "all", "none"; "own", which both have, for the server's own, "tuned" for the same with settings that
    /// change by themselves, "tuned:bytes" for fewer missed bytes (--mode bytes); s4fifo:small=0.1,main=2 (also ghost-main, ghost, skip), or its published settings,
    /// s4fifo-paper and s4fifo-library
    #[arg(long, value_delimiter = ',', default_value = "common")]
    policies: Vec<String>,
    /// Sizes to replay, in objects or bytes (64k, 1.5G), or shares of all objects (5%)
    /// [default: 1%,5%,20%,50%,100%]
    #[arg(long, value_delimiter = ',')]
    capacities: Vec<String>,
    /// Show the misses over -m of memcached and of glasscache; sizes are then values of -m
    #[arg(long, conflicts_with_all = ["mode", "policies", "sample", "at", "time", "all", "decisions"])]
    server: bool,
    /// Bytes of a key [default: 30]
    #[arg(long, value_name = "BYTES", requires = "server", value_parser = clap::value_parser!(u32).range(1..=250))]
    key_bytes: Option<u32>,
    /// Name the cheapest size: seconds of waiting that a gigabyte must save over the time of the trace
    #[arg(long, value_name = "SECONDS", requires = "miss_cost_ms", value_parser = parse_cost)]
    cost_per_gb: Option<f64>,
    /// How long a miss takes
    #[arg(long, value_name = "MS", requires = "cost_per_gb", value_parser = parse_cost)]
    miss_cost_ms: Option<f64>,
    /// Print the size that has at most this miss ratio, in per cent
    #[arg(id = "misses", long = "misses", value_name = "PERCENT", default_value_t = 10.0)]
    misses_percent: f64,
    /// Size at which memory and policies are compared; without it, the replayed one nearest the knee
    #[arg(long, value_name = "SIZE")]
    at: Option<String>,
    /// Estimate LRU's curve from a sample of this many keys (SHARDS), with an interval over eight seeds
    #[arg(id = "sample", long = "sample", value_name = "KEYS")]
    sample_keys: Option<usize>,
    /// Print every policy, not only the six that miss least; those that --policies names are all printed
    #[arg(long)]
    all: bool,
    /// Print what the policy tuned did: its switches, what was expected, what came, what was taken back
    #[arg(long)]
    decisions: bool,
    /// Write a page with the curves
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Seed of the sample and of randomised policies
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Give the CPU seconds of each replay in the JSON results
    #[arg(long)]
    time: bool,
    /// Threads, 0 for one a core
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: usize,
    /// Print the curve of a running server: TRACE is its address
    #[arg(long, conflicts_with_all = ["mode", "policies", "capacities", "server", "key_bytes", "cost_per_gb", "miss_cost_ms",
        "misses", "at", "sample", "all", "seed", "time", "threads"])]
    live: bool,
    /// What a GiB of memory costs a month, in any currency
    #[arg(long, value_name = "PRICE", requires = "live", value_parser = parse_cost)]
    gib_month: Option<f64>,
    /// How long a call may take, in milliseconds [default: 1000]
    #[arg(long, value_name = "MS", requires = "live")]
    timeout_ms: Option<u64>,
    #[command(flatten)]
    access: access::Args,
    #[command(flatten)]
    input: InputArgs,
}

fn parse_cost(text: &str) -> Result<f64, String> {
    let number = text.parse().ok();
    number
        .filter(|number: &f64| number.is_finite() && *number >= 0.0)
        .ok_or_else(|| format!("{text:?}: expected a number of at least 0"))
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ModeFlag {
    /// Every object counts 1
    Objects,
    /// An object counts the bytes of its value
    Bytes,
}

impl ModeFlag {
    fn to_interned(self) -> Mode {
        match self {
            Self::Objects => Mode::Objects,
            Self::Bytes => Mode::Bytes,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Objects => "objects",
            Self::Bytes => "bytes",
        }
    }
}

impl Args {
    /// Computes and prints the curve.
    pub(crate) fn run(mut self, out: &Output) -> Result<Exit, Failure> {
        if self.live {
            return live::run(&self, out);
        }
        if self.server {
            self.mode = ModeFlag::Bytes;
        }
        let policies = parse_policies(&self.policies)?;
        self.check_arguments(&policies)?;
        let has_server_store =
            policies.contains(&PolicyKind::ServerStore) && self.mode == ModeFlag::Bytes;
        let goals: Vec<Goal> = policies.iter().filter_map(|policy| policy.tuning_goal()).collect();
        if self.decisions && goals.is_empty() {
            let message = "--decisions has no effect: the policy tuned is not replayed";
            return Err(Failure::usage(message).with_hint("add --policies own,tuned"));
        }
        let trace = self.read_trace()?;
        if self.server {
            return server::run(&self, out, &trace);
        }
        let default_sizes = || DEFAULT_SIZES.map(str::to_owned).to_vec();
        let size_texts =
            if self.capacities.is_empty() { default_sizes() } else { self.capacities.clone() };
        let capacities = sizes::parse_sizes(&size_texts, &trace)?;
        if has_server_store {
            self.check_server_store(&capacities)?;
        }
        let compared_size =
            self.at.as_deref().map(|text| sizes::parse_size(text, &trace)).transpose()?;
        let plan = jobs::JobPlan {
            policies: &policies,
            capacities: &capacities,
            seed: self.seed,
            sample_keys: self.sample_keys,
            threads: self.threads,
        };
        let results = plan.run(&trace)?;
        let mut summary =
            Summary::new(&results, &trace, self.misses_percent / 100.0, compared_size);
        let curve = results.curves.first();
        summary.cheapest = cost::Costs::from_args(&self)
            .zip(curve)
            .and_then(|(costs, curve)| costs.find_cheapest_size(curve, trace.requests()));
        let mut document = self.to_document(&results, &summary);
        let mut decision_table = None;
        if self.decisions {
            let replays =
                decisions::replay(&trace, (&goals, &capacities), (self.seed, self.threads))?;
            document["decisions"] = decisions::to_document(&replays);
            decision_table = Some(decisions::to_table(&replays));
        }
        let mut report = report::build_report(&self, &trace, &results, &summary, document);
        report.tables.extend(decision_table);
        print_report(
            &report,
            out,
            Detail { prints_all: self.prints_all_policies(), is_wide: false },
        )?;
        if !results.is_complete {
            return Err(Failure::stopped());
        }
        write_report_page(report, self.html.as_deref(), &[&self.trace_path])?;
        Ok(Exit::Success)
    }

    /// Refuses what has no effect or no meaning.
    fn check_arguments(&self, policies: &[PolicyKind]) -> Result<(), Failure> {
        let has_sizes = self.mode == ModeFlag::Bytes;
        if self.cost_per_gb.is_some() && !has_sizes {
            let message = "--cost-per-gb has no effect: objects are counted, not their bytes";
            return Err(Failure::usage(message).with_hint("add --mode bytes or --server"));
        }
        if !(0.0..=100.0).contains(&self.misses_percent) {
            return Err(Failure::usage(format!(
                "--misses is per cent, 0 to 100, not {}",
                self.misses_percent
            )));
        }
        if self.sample_keys == Some(0) {
            return Err(Failure::usage("a sample has at least 1 key (--sample)"));
        }
        policies
            .iter()
            .try_for_each(|policy| policy.check_sizes(has_sizes))
            .map_err(|error| Failure::usage(error.to_string()).with_hint("add --mode bytes"))
    }

    /// Whether the table has every policy: the user named them, or gave `--all`.
    fn prints_all_policies(&self) -> bool {
        self.all || self.names_policies()
    }

    fn names_policies(&self) -> bool {
        self.policies.iter().any(|name| !POLICY_GROUPS.contains(&name.as_str()))
    }

    /// Refuses sizes that are all too small for the server's own store if that is named; says if some are too small.
    fn check_server_store(&self, capacities: &[u64]) -> Result<(), Failure> {
        let is_too_small = |size: &&u64| **size < SERVER_STORE_BYTES_MIN;
        let too_small_count = capacities.iter().filter(is_too_small).count();
        if too_small_count == 0 {
            return Ok(());
        }
        let message = format!("the server's own store needs {SERVER_STORE_BYTES_MIN} bytes");
        if too_small_count == capacities.len() && self.names_policies() {
            let largest = capacities.iter().max().copied().unwrap_or(0);
            return Err(Failure::usage(format!("{message}, not {largest}"))
                .with_hint("choose sizes with --capacities, or leave out --policies own"));
        }
        eprintln!("note: {message}; it is left out of smaller sizes");
        Ok(())
    }

    fn key_bytes(&self) -> u32 {
        self.key_bytes.unwrap_or(DEFAULT_KEY_BYTES)
    }

    /// Reads and prepares the trace; reports requests that are left out.
    fn read_trace(&self) -> Result<PreparedTrace, Failure> {
        let mode = self.mode.to_interned();
        let trace_name = self.trace_path.to_string_lossy();
        let columns = Columns { size: mode == Mode::Bytes, ..Columns::ALL };
        let mut stream = self.input.open(&self.trace_path, columns)?;
        let interned = InternedTrace::read(&trace_name, &mut *stream, mode)?;
        let row_count = interned.ids.len() as u64 + interned.without_size;
        report_left_out(&trace_name, row_count, &*stream);
        if interned.without_size > 0 {
            eprintln!("note: {} requests of unknown size are left out", interned.without_size);
        }
        if interned.without_effect > 0 {
            let row_count_text = format_count(interned.without_effect);
            eprintln!("note: {row_count_text} rows that neither get, set nor delete are left out");
        }
        if interned.without_clock > 0 {
            let row_count_text = format_count(interned.without_clock);
            eprintln!(
                "note: {trace_name} has no times, so the TTLs of {row_count_text} rows are not honoured"
            );
        }
        let are_sizes_known = interned.without_size == 0;
        let has_times = interned.without_clock == 0;
        let trace = PreparedTrace::new(interned);
        if trace.requests() == 0 {
            let missing_request = if are_sizes_known { "request" } else { "request of known size" };
            return Err(Failure::new(
                Exit::BadData,
                format!("{trace_name}: has no {missing_request}"),
            ));
        }
        let timeline = trace.timeline();
        if timeline.is_none_or(|timeline| timeline.rows_with_ttl() == 0) {
            let missing = if has_times { "TTLs" } else { "times" };
            self.input.refuse_times(&format!(
                "{trace_name} has no {missing}, so the times of its rows do not matter: leave it out"
            ))?;
        }
        if !stream.facts().has_unitless_time {
            self.input.refuse_time_unit(&format!(
                "the times of {trace_name} state their own unit: leave it out"
            ))?;
        }
        if self.sample_keys.is_some() && timeline.is_some() {
            return Err(Failure::usage(
                "a sample cannot honour TTLs, writes and deletes: leave out --sample",
            ));
        }
        Ok(trace)
    }

    fn to_document(&self, results: &CurveResults, summary: &Summary) -> Value {
        let rows: Vec<Value> =
            results.points.iter().map(|point| self.point_to_json(point)).collect();
        json!({
            "results": rows,
            "answer": summary.to_document(),
            "lru": summary.curve_document(),
        })
    }

    fn point_to_json(&self, point: &ReplayedPoint) -> Value {
        let mut document = json!({
            "policy": point.policy.name(),
            "mode": self.mode.name(),
            "capacity": point.capacity,
            "requests": point.result.requests,
            "misses": point.result.misses,
            "miss_ratio": point.result.miss_ratio(),
            "byte_miss_ratio": point.result.byte_miss_ratio(),
        });
        if self.time {
            document["cpu_s"] = json!(point.cpu_s);
        }
        document
    }
}

/// Policies by their names; "all" is the published ones and the server's own, "common" these but those that differ from
/// another in a detail. One that is named twice is replayed once.
fn parse_policies(names: &[String]) -> Result<Vec<PolicyKind>, Failure> {
    let all_kinds = || PolicyKind::ALL.into_iter().chain([PolicyKind::ServerStore]);
    let is_common = |kind: &PolicyKind| *kind != PolicyKind::BeladySize;
    let mut kinds = Vec::new();
    for name in join_settings(names) {
        if let Some(grid) = S4FifoSettings::grid(&name) {
            kinds.extend(grid.into_iter().map(PolicyKind::S4Fifo));
            continue;
        }
        match name.as_str() {
            "all" => kinds.extend(all_kinds()),
            "common" => kinds.extend(all_kinds().filter(is_common)),
            "none" => {}
            name => kinds.push(name.parse().map_err(|error| Failure::usage(format!("{error}")))?),
        }
    }
    let mut seen = Vec::new();
    kinds.retain(|kind| {
        let is_new = !seen.contains(kind);
        seen.push(*kind);
        is_new
    });
    Ok(kinds)
}
