//! What the requests of a client should need under a strategy, with the interval in which they stay if nothing changes.
//!
//! A client compares its own requests, some thousands of one process, with these lines of the strategy file. So an
//! interval says how much the figure of that many requests varies. It comes from the log: requests are cut into blocks
//! of neighbours, so that similar requests in succession count as what they are, once over all processes and once within
//! each; the deviations of the blocks are scaled from their length to the compared number, and the larger ones count.

use std::ops::Range;

use glasscache_strategy::file::Forecast;
use glasscache_strategy::rollout::forecast_check::REQUESTS_OF_FORECAST;

use super::figures::{P50_INDEX, P95_INDEX, compute_percentiles};
use super::prepare::PreparedLog;
use super::run::RequestStats;

/// Blocks into which the requests are cut.
const BLOCKS: usize = 15;
/// Requests of the smallest block; with fewer in each there is no forecast.
const BLOCK_REQUESTS_MIN: usize = 20;

/// Standard deviations on either side: by chance one of 280 figures is outside (Student's t, 14 degrees of freedom).
const MARGIN_DEVIATIONS: f64 = 3.5;

/// The figures by name: calls and keys of a request, percentiles of the time that its calls add.
type FigureValues = [(&'static str, f64); 4];

/// The forecast from these requests and what each needed; empty if they are too few for an interval.
pub fn compute_forecasts(
    prepared: &PreparedLog<'_>,
    request_stats: &[RequestStats],
    requests: Range<usize>,
) -> Vec<Forecast> {
    let all_requests: Vec<u32> = requests.clone().map(|request| request as u32).collect();
    if all_requests.len() < BLOCKS * BLOCK_REQUESTS_MIN {
        return Vec::new();
    }
    let expected = compute_figure_values(&all_requests, request_stats);
    let variance_of = |blocks: Vec<&[u32]>| compute_variances(&blocks, expected, request_stats);
    let variances_by_time =
        variance_of(split_into_blocks(&all_requests, all_requests.len()).collect());
    let requests_by_process = prepared.requests_by_instance.iter().map(|process_requests| {
        let position =
            |end: usize| process_requests.partition_point(|&request| (request as usize) < end);
        &process_requests[position(requests.start)..position(requests.end)]
    });
    let variances_by_process = variance_of(
        requests_by_process
            .flat_map(|process_requests| split_into_blocks(process_requests, all_requests.len()))
            .collect(),
    );
    let sampling_factor = 1.0 + REQUESTS_OF_FORECAST as f64 / all_requests.len() as f64;
    let figure_forecast = |index: usize| {
        let (figure, value) = expected[index];
        let variance = variances_by_time[index].max(variances_by_process[index]) * sampling_factor;
        let margin = MARGIN_DEVIATIONS * variance.sqrt();
        Forecast {
            figure: figure.to_owned(),
            value: round_to_nanos(value),
            low: round_to_nanos((value - margin).max(0.0)),
            high: round_to_nanos(value + margin),
        }
    };
    (0..expected.len()).map(figure_forecast).collect()
}

/// Requests that follow one another, in as many of the [`BLOCKS`] blocks as their share of all requests, at least one.
fn split_into_blocks(requests: &[u32], all_request_count: usize) -> impl Iterator<Item = &[u32]> {
    let block_count = (requests.len() * BLOCKS / all_request_count).max(1);
    requests.chunks_exact((requests.len() / block_count).max(BLOCK_REQUESTS_MIN))
}

/// The variance of each figure over the compared number of requests, from its deviations in blocks.
fn compute_variances(
    blocks: &[&[u32]],
    expected: FigureValues,
    request_stats: &[RequestStats],
) -> [f64; 4] {
    let mut variances = [0.0; 4];
    for block in blocks {
        let scale =
            block.len() as f64 / REQUESTS_OF_FORECAST as f64 / (blocks.len().max(2) - 1) as f64;
        let block_values = compute_figure_values(block, request_stats);
        for (index, variance) in variances.iter_mut().enumerate() {
            let ((_, block_value), (_, expected_value)) = (block_values[index], expected[index]);
            *variance += (block_value - expected_value).powi(2) * scale;
        }
    }
    variances
}

fn compute_figure_values(requests: &[u32], request_stats: &[RequestStats]) -> FigureValues {
    let stats_of_each = requests.iter().map(|&request| &request_stats[request as usize]);
    let mean = |count: fn(&RequestStats) -> u32| {
        let sum: u64 = stats_of_each.clone().map(|stats| u64::from(count(stats))).sum();
        sum as f64 / requests.len().max(1) as f64
    };
    let mut added_ns: Vec<u64> = stats_of_each.clone().map(|stats| stats.added_ns).collect();
    let added_ns_percentiles = compute_percentiles(&mut added_ns);
    let added_ms = |percentile_index: usize| {
        added_ns_percentiles.get(percentile_index).map_or(0.0, |&ns| ns as f64 / 1e6)
    };
    [
        ("calls", mean(|stats| stats.calls)),
        ("keys", mean(|stats| stats.keys)),
        ("added_ms_p50", added_ms(P50_INDEX)),
        ("added_ms_p95", added_ms(P95_INDEX)),
    ]
}

/// Six decimals: nanoseconds of a time in milliseconds.
fn round_to_nanos(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::trace::log::{Items, NONE, RequestLog, Requests};

    /// A log of requests without items, which two processes serve alternately.
    fn log_of_requests(request_count: usize) -> RequestLog {
        let request_numbers = 0..request_count as u64;
        RequestLog {
            items: Items::default(),
            requests: Requests {
                numbers: request_numbers.clone().collect(),
                times_us: request_numbers.collect(),
                instances: (0..request_count).map(|number| (number % 2) as u16).collect(),
                base_times_us: vec![1000; request_count],
                pages: vec![NONE; request_count],
                routes: vec![NONE; request_count],
                route_names: Vec::new(),
                starts: vec![0; request_count + 1],
                ..Requests::default()
            },
            truncated_after: None,
        }
    }

    /// Requests of two processes that alternate: 50 in succession need few calls, or many.
    fn draw_request_stats(
        request_count: usize,
        calls_max: u32,
        random: &mut Random,
    ) -> Vec<RequestStats> {
        let mut calls_bound = 1;
        let draw_stats = |request: usize| {
            if request.is_multiple_of(50) {
                calls_bound = 1 + random.below(calls_max);
            }
            let calls = 1 + random.below(calls_bound + 1);
            RequestStats {
                added_ns: u64::from(calls * (900_000 + random.below(200_000))),
                bytes: 0,
                calls,
                keys: 2 * calls,
                used_keys: calls,
            }
        };
        (0..request_count).map(draw_stats).collect()
    }

    /// The next requests of one of the two processes.
    fn draw_stats_of_one_process(calls_max: u32, random: &mut Random) -> Vec<RequestStats> {
        let stats_of_both =
            draw_request_stats(2 * REQUESTS_OF_FORECAST as usize, calls_max, random);
        stats_of_both.into_iter().step_by(2).collect()
    }

    fn forecasts_of(stats: &[RequestStats]) -> Vec<Forecast> {
        let log = log_of_requests(stats.len());
        compute_forecasts(&PreparedLog::new(&log, |_| true), stats, 0..stats.len())
    }

    fn is_within(forecasts: &[Forecast], stats: &[RequestStats]) -> bool {
        let all_requests: Vec<u32> = (0..stats.len() as u32).collect();
        let measured = compute_figure_values(&all_requests, stats);
        forecasts
            .iter()
            .zip(measured)
            .all(|(forecast, (_, value))| forecast.low <= value && value <= forecast.high)
    }

    #[test]
    fn two_thousand_requests_of_the_same_kind_are_within_the_interval_in_95_of_100_logs() {
        let mut random = Random::new(7);
        let logs_within = (0..100).filter(|_| {
            let forecasts = forecasts_of(&draw_request_stats(10_000, 6, &mut random));
            is_within(&forecasts, &draw_stats_of_one_process(6, &mut random))
        });
        let log_count = logs_within.count();
        assert!(log_count >= 95, "{log_count}");
    }

    #[test]
    fn requests_that_need_many_more_calls_than_forecast_are_outside() {
        let mut random = Random::new(8);
        for _ in 0..20 {
            let forecasts = forecasts_of(&draw_request_stats(10_000, 6, &mut random));
            let more_calls = draw_stats_of_one_process(10, &mut random);
            assert!(!is_within(&forecasts, &more_calls));
        }
    }

    #[test]
    fn a_figure_that_never_varies_has_an_interval_of_its_value() {
        let stats =
            RequestStats { added_ns: 1_500_000, calls: 3, keys: 4, ..RequestStats::default() };
        let forecasts = forecasts_of(&vec![stats; 1000]);
        let values = forecasts
            .iter()
            .map(|forecast| (&*forecast.figure, forecast.value, forecast.low, forecast.high));
        let expected = [
            ("calls", 3.0, 3.0, 3.0),
            ("keys", 4.0, 4.0, 4.0),
            ("added_ms_p50", 1.5, 1.5, 1.5),
            ("added_ms_p95", 1.5, 1.5, 1.5),
        ];
        assert!(values.eq(expected));
    }

    #[test]
    fn too_few_requests_have_no_forecast() {
        assert!(forecasts_of(&[RequestStats::default(); 299]).is_empty());
        assert_eq!(forecasts_of(&[RequestStats::default(); 300]).len(), 4);
    }
}
