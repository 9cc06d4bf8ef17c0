//! Reports of clients as files: what each process measured, added up.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use glasscache_client::near::fixed_set::FixedSetLoads;
use glasscache_client::near::rollout::counts::{Block, GroupCounts};
use glasscache_client::near::rollout::recommendation::RolloutMeasurements;
use glasscache_client::near::rollout::routes::{RouteOfGroups, RouteSums};
use glasscache_client::near::rollout::value_checks::ValueChecks;
use glasscache_sim::strategy::Forecast;
use serde::Deserialize;

use crate::output::{Exit, Failure};

/// What a file needs, to be one of ours.
const HINT: &str = "a client with strategy= and share= writes it: report(json=True)";

/// The reports of all processes.
pub(super) struct Reports {
    /// The strategy that all of them run.
    pub(super) strategy: String,
    /// The share of requests, or of processes, that runs the strategy, 0 to 1.
    pub(super) share: f64,
    pub(super) share_by: String,
    pub(super) processes: usize,
    pub(super) forecast: Vec<Forecast>,
    /// Why the strategy disabled itself, each reason once.
    pub(super) disabled_because: BTreeSet<String>,
    pub(super) warm_up_requests: u64,
    /// Files that end within a report, as of a process that was killed while it wrote.
    pub(super) cut_off_files: usize,
    /// How full the near cache of each process that has one is.
    near_fills: Vec<f64>,
    pub(super) measured: RolloutMeasurements,
}

/// One report (docs/reference/json.md), as far as it is about the roll-out.
#[derive(Deserialize)]
struct Report {
    schema: u64,
    rollout: Option<Rollout>,
}

#[derive(Deserialize)]
struct Rollout {
    process: String,
    strategy: String,
    share: f64,
    share_by: String,
    #[serde(rename = "disabled")]
    disabled_because: Option<String>,
    warm_up_requests: u64,
    forecast: Vec<ForecastLine>,
    groups: Groups,
    // What follows is not in reports of earlier versions.
    #[serde(default)]
    routes: Vec<Route>,
    #[serde(default)]
    value_checks: Checks,
    near_fill: Option<f64>,
    #[serde(default)]
    near_growing: bool,
    #[serde(default)]
    kept_calls: u64,
    #[serde(default)]
    kept_keys: u64,
}

/// Sums of a route: requests, added nanoseconds, and the squares of added milliseconds.
type RouteNumbers = (u64, u64, f64);

#[derive(Deserialize)]
struct Route {
    #[serde(rename = "route")]
    name: String,
    strategy: RouteNumbers,
    control: RouteNumbers,
}

#[derive(Deserialize, Default)]
struct Checks {
    compared: u64,
    differing: u64,
    wrong: u64,
    bound_ms: u64,
}

#[derive(Deserialize, Clone, PartialEq)]
struct ForecastLine {
    figure: String,
    value: f64,
    low: f64,
    high: f64,
}

#[derive(Deserialize)]
struct Groups {
    strategy: Group,
    control: Group,
}

#[derive(Deserialize)]
struct Group {
    requests: u64,
    failed_requests: u64,
    calls: u64,
    keys: u64,
    bytes: u64,
    added_ns: u64,
    /// Added nanoseconds, and how many requests had them.
    added_ns_counts: Vec<(u64, u64)>,
    /// Requests, calls, keys and added nanoseconds of each block.
    blocks: Vec<(u64, u64, u64, u64)>,
    // What follows is not in reports of earlier versions.
    #[serde(default)]
    decode_ns: u64,
    /// Nanoseconds in which values were decoded, of each block.
    #[serde(default)]
    decode_ns_of_blocks: Vec<u64>,
}

impl Group {
    fn to_counts(&self) -> GroupCounts {
        let new_block = |((requests, calls, keys, added_ns), decode_ns)| Block {
            requests,
            calls,
            keys,
            added_ns,
            decode_ns,
        };
        let sum =
            new_block(((self.requests, self.calls, self.keys, self.added_ns), self.decode_ns));
        let decode_ns_of_blocks = self.decode_ns_of_blocks.iter().copied();
        let blocks = self.blocks.iter().copied();
        let blocks = blocks.zip(decode_ns_of_blocks.chain(std::iter::repeat(0)));
        GroupCounts::from_parts(
            (sum, self.bytes, self.failed_requests),
            self.added_ns_counts.iter().copied(),
            blocks.map(new_block).collect(),
        )
    }
}

impl Rollout {
    fn total_requests(&self) -> u64 {
        self.warm_up_requests + self.groups.strategy.requests + self.groups.control.requests
    }
}

impl Reports {
    /// Reads files, each with one report or several; of a process the one with most requests counts.
    pub(super) fn read(paths: &[PathBuf]) -> Result<Self, Failure> {
        let mut by_process: BTreeMap<String, (&Path, Rollout)> = BTreeMap::new();
        let mut cut_off_files = 0;
        for path in paths {
            let (rollouts, is_cut_off) = read_file(path)?;
            cut_off_files += usize::from(is_cut_off);
            if rollouts.is_empty() && !is_cut_off {
                let message = format!("{}: no report is in it", path.display());
                return Err(Failure::new(Exit::BadData, message).with_hint(HINT));
            }
            for rollout in rollouts {
                let known_rollout = by_process.get(&rollout.process);
                if known_rollout.is_none_or(|(_, known_rollout)| {
                    known_rollout.total_requests() <= rollout.total_requests()
                }) {
                    by_process.insert(rollout.process.clone(), (path, rollout));
                }
            }
        }
        let mut rollouts = by_process.into_values();
        let (first_path, first_rollout) = rollouts.next().ok_or_else(|| {
            let message = if cut_off_files > 0 {
                "not a report: each of these files ends within its first one"
            } else {
                "no report is in these files"
            };
            Failure::new(Exit::BadData, message).with_hint(HINT)
        })?;
        let mut reports = Self::from_rollout(&first_rollout);
        reports.cut_off_files = cut_off_files;
        for (path, rollout) in rollouts {
            if rollout.strategy != first_rollout.strategy
                || rollout.forecast != first_rollout.forecast
            {
                let message = format!(
                    "{} and {} are about different strategies: {} and {}, or other forecasts",
                    first_path.display(),
                    path.display(),
                    first_rollout.strategy,
                    rollout.strategy
                );
                return Err(Failure::new(Exit::BadData, message)
                    .with_hint("compare the reports of one strategy file at a time"));
            }
            reports.add(&rollout);
        }
        Ok(reports)
    }

    fn from_rollout(rollout: &Rollout) -> Self {
        let forecast = rollout.forecast.iter().map(|line| Forecast {
            figure: line.figure.clone(),
            value: line.value,
            low: line.low,
            high: line.high,
        });
        let mut reports = Self {
            strategy: rollout.strategy.clone(),
            share: rollout.share,
            share_by: rollout.share_by.clone(),
            processes: 0,
            forecast: forecast.collect(),
            disabled_because: BTreeSet::new(),
            warm_up_requests: 0,
            cut_off_files: 0,
            near_fills: Vec::new(),
            measured: RolloutMeasurements::default(),
        };
        reports.add(rollout);
        reports
    }

    /// All requests of the processes.
    pub(super) fn requests(&self) -> u64 {
        self.warm_up_requests
            + self.measured.strategy.sum.requests
            + self.measured.control.sum.requests
    }

    fn add(&mut self, rollout: &Rollout) {
        let measured = &mut self.measured;
        self.processes += 1;
        measured.processes += usize::from(rollout.groups.strategy.requests > 0);
        measured.disabled_processes += usize::from(rollout.disabled_because.is_some());
        measured.strategy.merge(&rollout.groups.strategy.to_counts());
        measured.control.merge(&rollout.groups.control.to_counts());
        for route in &rollout.routes {
            let to_sums = |(requests, added_ns, added_ms_squares)| RouteSums {
                requests,
                added_ns,
                added_ms_squares,
            };
            let (strategy, control) = (to_sums(route.strategy), to_sums(route.control));
            measured.routes.add_sums(&route.name, &RouteOfGroups { strategy, control });
        }
        let Checks { compared, differing, wrong, bound_ms } = rollout.value_checks;
        measured.value_checks.add(&ValueChecks { compared, differing, wrong, bound_ms });
        self.near_fills.extend(rollout.near_fill);
        let fills = &self.near_fills;
        let mean_fill = fills.iter().sum::<f64>() / fills.len().max(1) as f64;
        measured.near_fill.fraction = (!fills.is_empty()).then_some(mean_fill);
        measured.near_fill.is_growing |= rollout.near_growing;
        let Rollout { kept_calls, kept_keys, .. } = *rollout;
        measured.fixed_set_loads.add(FixedSetLoads { calls: kept_calls, keys: kept_keys });
        self.warm_up_requests += rollout.warm_up_requests;
        self.disabled_because.extend(rollout.disabled_because.clone());
    }
}

/// The reports of a file, and whether it ends within one.
fn read_file(path: &Path) -> Result<(Vec<Rollout>, bool), Failure> {
    let path_text = path.display();
    let bytes = std::fs::read(path).map_err(|error| {
        Failure::new(Exit::Unreachable, format!("cannot open {path_text}: {error}")).with_hint(HINT)
    })?;
    let bad_data_failure = |reason: String| {
        Failure::new(Exit::BadData, format!("{path_text}: {reason}")).with_hint(HINT)
    };
    let reports = serde_json::Deserializer::from_slice(&bytes).into_iter::<Report>();
    let mut is_cut_off = false;
    let whole_reports = reports.take_while(|report| {
        is_cut_off = report.as_ref().is_err_and(serde_json::Error::is_eof);
        !is_cut_off
    });
    let parse_rollout = |report: Result<Report, serde_json::Error>| {
        let report = report.map_err(|error| bad_data_failure(format!("not a report: {error}")))?;
        if report.schema != 1 {
            return Err(bad_data_failure(format!("a report of version {}", report.schema)));
        }
        let no_strategy_failure = || bad_data_failure("its client runs no strategy".to_owned());
        report.rollout.ok_or_else(no_strategy_failure)
    };
    let rollouts = whole_reports.map(parse_rollout).collect::<Result<_, _>>()?;
    Ok((rollouts, is_cut_off))
}
