//! What a replay found: forecast and measured figures of all requests and of the second half, and their errors.

use std::path::PathBuf;

use glasscache_sim::strategy::comparison::Comparison;
use glasscache_sim::strategy::figures::figures;
use glasscache_sim::strategy::prepare::PreparedLog;
use glasscache_sim::strategy::run::RequestStats;
use serde_json::{Value, json};

use super::latency::LatencyTable;
use super::run::Replayed;

/// What was replayed where.
pub(super) struct Source {
    pub(super) log_name: String,
    pub(super) target: String,
    /// The strategy in its notation.
    pub(super) strategy: String,
    /// Processes of the log.
    pub(super) instances: usize,
    /// Threads.
    pub(super) clients: usize,
    pub(super) forecast_path: PathBuf,
}

/// The results.
pub(super) struct Results {
    pub(super) source: Source,
    pub(super) all: Comparison,
    pub(super) second_half: Comparison,
    /// Added nanoseconds of the requests of the second half, sorted: forecast and measured.
    pub(super) added_ns: (Vec<u64>, Vec<u64>),
    pub(super) replayed: Replayed,
    before: LatencyTable,
    after: LatencyTable,
    /// How close the times must be, as a share.
    pub(super) within: f64,
}

/// The forecast before the replay, as its file has it.
pub(super) fn forecast_document(
    source: &Source,
    prepared: &PreparedLog<'_>,
    forecast: &[RequestStats],
    latency: &LatencyTable,
) -> Value {
    json!({
        "log": source.log_name,
        "target": source.target,
        "strategy": source.strategy,
        "latency": latency.table,
        "forecast": {
            "all": figures(prepared, forecast, 0..prepared.len()).document(),
            "second_half": figures(prepared, forecast, prepared.second_half_start()..prepared.len()).document(),
        },
    })
}

impl Results {
    pub(super) fn new(
        source: Source,
        prepared: &PreparedLog<'_>,
        (forecast, replayed): (&[RequestStats], Replayed),
        (before, after): (LatencyTable, LatencyTable),
        within: f64,
    ) -> Self {
        let compare = |from: usize| Comparison {
            forecast: figures(prepared, forecast, from..prepared.len()),
            measured: figures(prepared, &replayed.request_stats, from..prepared.len()),
        };
        let sorted = |stats: &[RequestStats]| {
            let mut added_ns: Vec<u64> = stats.iter().map(|stats| stats.added_ns).collect();
            added_ns.sort_unstable();
            added_ns
        };
        let half = prepared.second_half_start();
        Self {
            all: compare(0),
            second_half: compare(half),
            added_ns: (
                sorted(&forecast[half..]),
                sorted(&replayed.request_stats[half..]),
            ),
            source,
            replayed,
            before,
            after,
            within,
        }
    }

    /// Whether the forecast held on the second half, which no choice has used.
    pub(super) fn forecast_holds(&self) -> bool {
        self.second_half.forecast_holds(self.within)
    }

    /// How much slower the same reads were after the replay than before.
    pub(super) fn drift(&self) -> f64 {
        self.before.drift(&self.after)
    }

    pub(super) fn document(&self, sentence: &str) -> Value {
        let both = |part: fn(&Comparison) -> Value| json!({ "all": part(&self.all), "second_half": part(&self.second_half) });
        json!({
            "sentence": sentence,
            "log": self.source.log_name,
            "target": self.source.target,
            "strategy": self.source.strategy,
            "instances": self.source.instances,
            "clients": self.source.clients,
            "forecast_file": self.source.forecast_path.display().to_string(),
            "forecast": both(|it| it.forecast.document()),
            "measured": both(|it| it.measured.document()),
            "error": both(Comparison::error_document),
            "held": self.forecast_holds(),
            "within": self.within,
            "kept_calls": self.replayed.kept_calls,
            "kept_keys": self.replayed.kept_keys,
            "absent_reads": self.replayed.absent,
            "latency": { "before": self.before.table, "after": self.after.table, "drift": self.drift() },
        })
    }
}
