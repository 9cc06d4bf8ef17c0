//! What a load test measured of one target.

use std::time::SystemTime;

use serde::Serialize;

use super::settings::Settings;
use crate::load::{LatenciesBySecond, Pace, Report, SecondHistogram, Tally};
use crate::proc::Meter;
use crate::statistics::{Estimate, Percentiles, Steadiness};

/// From this share of a core on a thread counts as busy all the time.
const BUSY_CORE_SHARE: f64 = 0.93;

/// From this share of the median latency on the generator is what limits the figures.
const GENERATOR_SHARE_MAX: f64 = 0.5;

/// What limits the throughput.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Bottleneck {
    /// The server's workers are busy all the time.
    Server,
    /// The generator's threads are, or replies wait for them longer than for the server.
    Generator,
    /// Neither: the rate, the network or the number of connections.
    None,
}

/// Percentiles in microseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Latencies {
    /// The median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th.
    pub p99: f64,
    /// 99.9th.
    pub p99_9: f64,
    /// 99.99th.
    pub p99_99: f64,
    /// The longest.
    pub max: f64,
}

/// Latencies by the time from which they are measured.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct LatenciesFrom {
    /// From the time at which a request was due; in a closed loop that is when it was sent.
    pub intended: Latencies,
    /// From the time at which it was sent.
    pub sent: Latencies,
}

/// The generator's share of a latency by percentile, 0 to 1; `None` where it is not known.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct GeneratorShares {
    /// Of the median.
    pub p50: Option<f64>,
    /// Of the 99th percentile.
    pub p99: Option<f64>,
    /// Of the 99.9th.
    pub p99_9: Option<f64>,
}

/// Confidence intervals of the latency from the intended time, in microseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct ConfidenceIntervals {
    /// Of the median.
    pub p50: Estimate,
    /// Of the 99th percentile.
    pub p99: Estimate,
    /// Of the 99.9th.
    pub p99_9: Estimate,
}

/// The requests of one second.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Second {
    /// Second of the run.
    pub at_s: u64,
    /// Completed requests.
    pub requests: u64,
    /// Median of the latency from the intended time, in microseconds.
    pub p50_us: f64,
    /// Its 99th percentile.
    pub p99_us: f64,
    /// Its 99.9th percentile.
    pub p99_9_us: f64,
    /// The longest.
    pub max_us: f64,
}

impl Second {
    fn of(second: &SecondHistogram) -> Self {
        let percentile_us = |percent| second.histogram.value_at_percentile(percent) as f64 / 1e3;
        Self {
            at_s: second.at_s,
            requests: second.histogram.len(),
            p50_us: percentile_us(50.0),
            p99_us: percentile_us(99.0),
            p99_9_us: percentile_us(99.9),
            max_us: percentile_us(100.0),
        }
    }
}

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub(super) struct LoadMeasurement {
    /// Completed requests per second.
    pub requests_per_second: f64,
    /// Requests per second that were asked for; `None` in a closed loop.
    pub offered_per_second: Option<f64>,
    /// Latencies in microseconds.
    pub latency_us: LatenciesFrom,
    /// Confidence intervals (95 %) of the latency from the intended time.
    #[serde(rename = "interval_us")]
    pub(crate) confidence_interval_us: ConfidenceIntervals,
    /// The generator's share of the latency from the send time.
    pub generator_share: GeneratorShares,
    /// CPU of the generator per request; in an open loop it spins while it waits.
    pub generator_cpu_us: f64,
    /// CPU of the server per request; `None` where its process cannot be seen.
    pub server_cpu_us: Option<f64>,
    /// Gets per CPU second of the generator.
    pub(crate) gets_per_generator_cpu_s: f64,
    /// What limits the throughput.
    #[serde(rename = "bound")]
    pub bottleneck: Bottleneck,
    /// Whether the run was steady.
    #[serde(rename = "verdict")]
    pub steadiness: Steadiness,
    /// Completed requests.
    pub requests: u64,
    /// Keys found with the right value.
    pub hits: u64,
    /// Keys not found.
    pub misses: u64,
    /// Writes that took effect.
    pub stored: u64,
    /// Writes that did not.
    pub refused: u64,
    /// Bytes of the values that came back.
    pub value_bytes: u64,
    /// Those of them that were compared with what was stored.
    pub compared_bytes: u64,
    /// Values that differ from those stored.
    pub wrong_values: u64,
    /// The first wrong value, described.
    #[serde(rename = "first_wrong")]
    pub first_wrong_value: Option<String>,
    /// Length of the measurement.
    pub seconds: f64,
    /// Cores used by other processes meanwhile.
    pub other_cores: f64,
    /// By second.
    pub series: Vec<Second>,
    /// When the measurement began, its warm-up included.
    #[serde(skip)]
    pub started_at: SystemTime,
    /// The histograms of the series.
    #[serde(skip)]
    pub by_second: Vec<SecondHistogram>,
    /// All counts and histograms.
    #[serde(skip)]
    pub tally: Tally,
}

impl LoadMeasurement {
    /// Sums up the rounds of one target.
    pub(super) fn of(reports: &[Report], settings: &Settings, meter: &Meter) -> Self {
        let mut tally = Tally::new(settings.pace != Pace::Closed);
        let [mut seconds, mut server_cpu_s, mut generator_cpu_s, mut other_cpu_s] = [0.0; 4];
        let mut is_generator_bound = false;
        let mut latencies_by_second = LatenciesBySecond::default();
        for report in reports {
            tally.add(&report.tally);
            if let Some(latencies_of_round) = &report.tally.by_second {
                latencies_by_second.add(latencies_of_round, seconds as u64);
            }
            seconds += report.seconds;
            server_cpu_s += report.server_cpu.cpu_s();
            generator_cpu_s += report.generator_cores * report.seconds;
            other_cpu_s += report.other_cores * report.seconds;
            is_generator_bound |= report.is_generator_bound;
        }
        let us_per_request = 1e6 / tally.requests.max(1) as f64;
        let is_busy =
            |cpu_s: f64, threads: usize| cpu_s > BUSY_CORE_SHARE * threads as f64 * seconds;
        let is_generator_late = is_generator_bound
            // An open loop spins, so only its share of the latency shows that it is late.
            || (settings.pace == Pace::Closed && is_busy(generator_cpu_s, settings.threads))
            || tally.generator_share(50.0).is_some_and(|share| share > GENERATOR_SHARE_MAX);
        let is_server_busy = meter.workers() > 0 && is_busy(server_cpu_s, meter.workers());
        let bottleneck = match (is_server_busy, is_generator_late) {
            (true, _) => Bottleneck::Server,
            (false, true) => Bottleneck::Generator,
            (false, false) => Bottleneck::None,
        };
        let latencies_in_order: Vec<f64> =
            tally.samples.elements().iter().map(|sample| sample.latency_ns as f64 / 1e3).collect();
        let steadiness = Steadiness::of(&latencies_in_order, tally.samples.stride());
        let started_at = reports.first().map_or(SystemTime::UNIX_EPOCH, |report| report.started_at);
        let by_second = latencies_by_second.seconds();
        let percentiles = Percentiles::new(latencies_in_order);
        Self {
            requests_per_second: tally.requests as f64 / seconds.max(1e-9),
            offered_per_second: settings.pace.offered_per_second(),
            latency_us: LatenciesFrom::of(&tally),
            confidence_interval_us: ConfidenceIntervals {
                p50: percentiles.estimate(50.0),
                p99: percentiles.estimate(99.0),
                p99_9: percentiles.estimate(99.9),
            },
            generator_share: GeneratorShares::of(&tally),
            generator_cpu_us: generator_cpu_s * us_per_request,
            server_cpu_us: (meter.workers() > 0).then_some(server_cpu_s * us_per_request),
            gets_per_generator_cpu_s: (tally.hits + tally.misses) as f64
                / generator_cpu_s.max(1e-9),
            bottleneck,
            steadiness,
            requests: tally.requests,
            hits: tally.hits,
            misses: tally.misses,
            stored: tally.stored,
            refused: tally.refused,
            value_bytes: tally.value_bytes,
            compared_bytes: tally.compared_bytes,
            wrong_values: tally.wrong,
            first_wrong_value: tally.first_difference.clone(),
            started_at,
            seconds,
            other_cores: other_cpu_s / seconds.max(1e-9),
            series: by_second.iter().map(Second::of).collect(),
            by_second,
            tally,
        }
    }
}

impl LatenciesFrom {
    fn of(tally: &Tally) -> Self {
        Self {
            intended: collect_latencies(&|percent| tally.latency_us(percent)),
            sent: collect_latencies(&|percent| tally.latency_from_send_us(percent)),
        }
    }
}

impl GeneratorShares {
    fn of(tally: &Tally) -> Self {
        let [p50, p99, p99_9] = [50.0, 99.0, 99.9].map(|percent| tally.generator_share(percent));
        Self { p50, p99, p99_9 }
    }
}

fn collect_latencies(value_at: &dyn Fn(f64) -> f64) -> Latencies {
    Latencies {
        p50: value_at(50.0),
        p90: value_at(90.0),
        p99: value_at(99.0),
        p99_9: value_at(99.9),
        p99_99: value_at(99.99),
        max: value_at(100.0),
    }
}
