//! What a replay found: forecast and measured figures of all requests and of the second half, and their errors.

use std::path::PathBuf;

use glasscache_sim::strategy::comparison::Comparison;
use glasscache_sim::strategy::figures::compute_figures;
use glasscache_sim::strategy::latency_table::LatencyTable;
use glasscache_sim::strategy::noise::{Interval, may_be_within};
use glasscache_sim::strategy::prepare::PreparedLog;
use glasscache_sim::strategy::run::RequestStats;
use serde_json::{Value, json};

use super::absent::{ABSENT_SHARE_MAX, AbsentKeys};
use super::run::ReplayOutcome;

/// What was replayed where.
pub(super) struct ReplaySetup {
    pub(super) log_name: String,
    /// The parts of the log that could not be read, each with the reason.
    pub(super) left_out_parts: Vec<String>,
    pub(super) target: String,
    /// The strategy in its notation.
    pub(super) strategy: String,
    /// Processes of the log.
    pub(super) instances: usize,
    /// Threads that make the requests (`--clients`).
    pub(super) clients: usize,
    pub(super) forecast_path: PathBuf,
    /// Keys of the log that the servers did not have before the replay.
    pub(super) absent_keys: AbsentKeys,
}

/// What a replay says about a forecast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Conclusion {
    Held,
    Missed,
    /// Only times are off, and by what this machine did meanwhile.
    Undecided,
}

impl Conclusion {
    /// Its name in JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Missed => "missed",
            Self::Undecided => "cannot tell",
        }
    }
}

/// The results.
pub(super) struct Results {
    pub(super) setup: ReplaySetup,
    pub(super) all_requests: Comparison,
    pub(super) second_half: Comparison,
    /// Added nanoseconds of the requests of the second half, sorted: forecast and measured.
    pub(super) added_ns: (Vec<u64>, Vec<u64>),
    pub(super) replay_outcome: ReplayOutcome,
    latency_before: LatencyTable,
    latency_after: LatencyTable,
    /// Where the errors of the added time are, at the median and at the 95th percentile of the second half.
    pub(super) added_errors: [Interval; 2],
    /// How close the times must be, as a share.
    pub(super) tolerance: f64,
}

/// The forecast before the replay, as its file has it.
pub(super) fn build_forecast_document(
    setup: &ReplaySetup,
    prepared: &PreparedLog<'_>,
    forecast: &[RequestStats],
    latency_table: &LatencyTable,
) -> Value {
    json!({
        "log": setup.log_name,
        "target": setup.target,
        "strategy": setup.strategy,
        "latency": latency_table.document,
        "forecast": {
            "all": compute_figures(prepared, forecast, 0..prepared.len()).to_document(),
            "second_half": compute_figures(prepared, forecast, prepared.second_half_start()..prepared.len()).to_document(),
        },
    })
}

impl Results {
    pub(super) fn new(
        setup: ReplaySetup,
        prepared: &PreparedLog<'_>,
        (forecast, replay_outcome): (&[RequestStats], ReplayOutcome),
        (latency_before, latency_after): (LatencyTable, LatencyTable),
        (added_errors, tolerance): ([Interval; 2], f64),
    ) -> Self {
        let compare = |from: usize| Comparison {
            forecast: compute_figures(prepared, forecast, from..prepared.len()),
            measured: compute_figures(
                prepared,
                &replay_outcome.request_stats,
                from..prepared.len(),
            ),
        };
        let sorted_added_ns = |stats: &[RequestStats]| {
            let mut added_ns: Vec<u64> =
                stats.iter().map(|request_stats| request_stats.added_ns).collect();
            added_ns.sort_unstable();
            added_ns
        };
        let half_start = prepared.second_half_start();
        Self {
            all_requests: compare(0),
            second_half: compare(half_start),
            added_ns: (
                sorted_added_ns(&forecast[half_start..]),
                sorted_added_ns(&replay_outcome.request_stats[half_start..]),
            ),
            setup,
            replay_outcome,
            latency_before,
            latency_after,
            added_errors,
            tolerance,
        }
    }

    /// Whether the forecast held on the second half, which no choice has used.
    pub(super) fn is_forecast_within(&self) -> bool {
        self.second_half.times_are_within(self.tolerance) && self.counts_agree()
    }

    /// Whether the counts are those of the forecast: exactly, unless keys were absent from the servers.
    pub(super) fn counts_agree(&self) -> bool {
        let absent_reads = self.replay_outcome.absent_reads;
        let (_, all_reads) = self.setup.absent_keys.reads();
        let are_few_absent = absent_reads as f64 <= all_reads as f64 * ABSENT_SHARE_MAX;
        let has_absent = absent_reads > 0 || self.setup.absent_keys.can_be_left_out();
        let tolerance = if has_absent && are_few_absent { ABSENT_SHARE_MAX } else { 0.0 };
        self.second_half.counts_are_within(tolerance)
    }

    /// Whether the forecast held, or whether this machine allows to tell.
    pub(super) fn conclusion(&self) -> Conclusion {
        if self.is_forecast_within() {
            Conclusion::Held
        } else if self.is_too_noisy() || self.counts_agree() && !self.disturbances().is_empty() {
            Conclusion::Undecided
        } else {
            Conclusion::Missed
        }
    }

    /// The evidence that something else disturbed the times.
    pub(super) fn disturbances(&self) -> Vec<String> {
        let mut evidence = self.replay_outcome.machine_load.evidence();
        let drift = self.drift();
        if drift.abs() > self.tolerance {
            let change = if drift > 0.0 { "longer" } else { "less" };
            evidence.push(format!(
                "the same reads took {:.0} % {change} afterwards",
                100.0 * drift.abs()
            ));
        }
        evidence
    }

    /// Whether the forecast did not hold in times alone, and by no more than may be chance.
    pub(super) fn is_too_noisy(&self) -> bool {
        !self.is_forecast_within()
            && self.counts_agree()
            && may_be_within(&self.added_errors, self.tolerance)
    }

    /// How much slower the same reads were after the replay than before.
    pub(super) fn drift(&self) -> f64 {
        self.latency_before.drift(&self.latency_after)
    }

    /// Reads that both sides leave out, because the servers do not have their keys.
    pub(super) fn left_out_reads(&self) -> u64 {
        let absent_keys = &self.setup.absent_keys;
        if absent_keys.can_be_left_out() { absent_keys.reads().0 } else { 0 }
    }

    pub(super) fn to_document(&self) -> Value {
        let both_ranges = |document_of: fn(&Comparison) -> Value| json!({ "all": document_of(&self.all_requests), "second_half": document_of(&self.second_half) });
        json!({
            "log": self.setup.log_name,
            "left_out_parts": self.setup.left_out_parts,
            "target": self.setup.target,
            "strategy": self.setup.strategy,
            "instances": self.setup.instances,
            "clients": self.setup.clients,
            "forecast_file": self.setup.forecast_path.display().to_string(),
            "forecast": both_ranges(|comparison| comparison.forecast.to_document()),
            "measured": both_ranges(|comparison| comparison.measured.to_document()),
            "error": both_ranges(Comparison::error_document),
            "held": self.is_forecast_within(),
            "too_noisy": self.is_too_noisy(),
            "verdict": self.conclusion().name(),
            "disturbances": self.disturbances(),
            "added_error_pct": {
                "50": [self.added_errors[0].low, self.added_errors[0].high],
                "95": [self.added_errors[1].low, self.added_errors[1].high],
            },
            "within": self.tolerance,
            "kept_calls": self.replay_outcome.fixed_set_calls,
            "kept_keys": self.replay_outcome.fixed_set_keys,
            "absent_reads": self.replay_outcome.absent_reads,
            "absent_keys": self.setup.absent_keys.len(),
            "left_out_reads": self.left_out_reads(),
            "latency": { "before": self.latency_before.document, "after": self.latency_after.document, "drift": self.drift() },
        })
    }
}
