//! What the requests of a client should need under a strategy, with the interval in which they stay if nothing changes.
//!
//! A client compares its own requests, some thousands of one process, with these lines of the strategy file. So an
//! interval says how much the figure of that many requests varies. It comes from the log: requests are cut into blocks
//! of neighbours, so that similar requests in succession count as what they are, once over all processes and once within
//! each; the deviations of the blocks are scaled from their length to the compared number, and the larger ones count.

use std::ops::Range;
use std::time::Duration;

use glasscache_strategy::file::Forecast;
use glasscache_strategy::fixed_set::{
    FixedSetLoads, REFRESHED_KEYS, refresh_interval, shortest_refresh_interval,
};
use glasscache_strategy::rollout::forecast_check::REQUESTS_OF_FORECAST;
use glasscache_strategy::rollout::metrics::Metric;
use glasscache_strategy::rollout::value_checks::{NEAR_CHECK_DEFAULT, WAITING_KEYS_MAX};

use super::cost::{CostModel, round_half_up};
use super::figures::{P50_INDEX, P95_INDEX, compute_percentiles};
use super::fixed::FixedSet;
use super::prepare::PreparedLog;
use super::run::RequestStats;

/// Blocks into which the requests are cut.
const BLOCKS: usize = 15;
/// Requests of the smallest block; with fewer in each there is no forecast.
const BLOCK_REQUESTS_MIN: usize = 20;

/// Standard deviations on either side: by chance one of 280 figures is outside (Student's t, 14 degrees of freedom).
const MARGIN_DEVIATIONS: f64 = 3.5;

/// The figures by name: calls and keys of a request, percentiles of the time that its calls add, and the mean time of
/// decoding where the log has it.
type FigureValues = Vec<(&'static str, f64)>;

/// The forecast of the keys that refreshing the fixed set costs a request of these; empty if nothing is refreshed.
pub fn compute_refresh_forecast(
    prepared: &PreparedLog<'_>,
    fixed_items: &[u32],
    requests: Range<usize>,
) -> Option<Forecast> {
    let keys = count_refreshes(prepared, fixed_items, requests.clone())?.keys;
    let value = round_to_nanos(keys as f64 / requests.len().max(1) as f64);
    Some(Forecast { figure: REFRESHED_KEYS.to_owned(), value, low: value, high: value })
}

/// The calls and keys with which these requests refresh a fixed set; `None` if its values never expire.
///
/// A process refreshes it when a request finds that it is due, in a call apart from those of the request: what has no TTL
/// when it is as old as `near_ttl` allows, what has one after it was stored anew.
fn count_refreshes(
    prepared: &PreparedLog<'_>,
    fixed_items: &[u32],
    requests: Range<usize>,
) -> Option<FixedSetLoads> {
    let unbounded_item_count = prepared.lifetimes.count_unbounded(fixed_items);
    let is_bounded = prepared.near_ttl_us.is_some() || unbounded_item_count < fixed_items.len();
    if fixed_items.is_empty() || !is_bounded {
        return None;
    }
    let interval_us = prepared.near_ttl_us.map_or(u64::MAX, |near_ttl_us| {
        refresh_interval(Duration::from_micros(near_ttl_us)).as_micros() as u64
    });
    let shortest_interval_us = shortest_refresh_interval(None).as_micros() as u64;
    let mut all_processes = FixedSetLoads::default();
    for process_requests in &prepared.requests_by_instance {
        let measured =
            process_requests.iter().filter(|&&request| requests.contains(&(request as usize)));
        let time_of = |&request: &u32| prepared.times_us[request as usize];
        let first_us = measured.clone().next().map_or(0, time_of);
        let span_us = measured.clone().next_back().map_or(0, time_of).saturating_sub(first_us);
        let uses = measured.map(|request| (time_of(request), prepared.items_of(*request as usize)));
        let with_ttls =
            prepared.lifetimes.count_refreshed_keys(fixed_items, uses, prepared.near_ttl_us);
        let mut refreshes = 0;
        let mut loaded_at_us = None;
        for &request in process_requests {
            let now_us = prepared.times_us[request as usize];
            let is_due = loaded_at_us
                .is_some_and(|loaded_at_us| now_us >= interval_us.saturating_add(loaded_at_us));
            refreshes += u64::from(is_due && requests.contains(&(request as usize)));
            if is_due || loaded_at_us.is_none() {
                loaded_at_us = Some(now_us);
            }
        }
        all_processes.add(FixedSetLoads {
            calls: if prepared.near_ttl_us.is_some() {
                refreshes
            } else {
                with_ttls.min(span_us / shortest_interval_us)
            },
            keys: refreshes * unbounded_item_count as u64 + with_ttls,
        });
    }
    Some(all_processes)
}

/// How long these requests wait for refreshes of a fixed set, in nanoseconds.
pub fn compute_refresh_ns(
    prepared: &PreparedLog<'_>,
    cost: &CostModel,
    fixed: &FixedSet,
    requests: Range<usize>,
) -> u64 {
    let Some(FixedSetLoads { calls, keys }) = count_refreshes(prepared, &fixed.items, requests)
    else {
        return 0;
    };
    let calls = calls.max(u64::from(keys > 0));
    let Some(keys_per_call) = keys.checked_div(calls) else { return 0 };
    let value_bytes =
        fixed.items.iter().map(|&item| u64::from(prepared.items.sizes[item as usize]));
    let bytes_per_call = value_bytes.sum::<u64>() * keys_per_call / fixed.items.len().max(1) as u64;
    calls * cost.call_ns(keys_per_call.max(1), bytes_per_call)
}

/// Adds what a client compares with the servers during a roll-out: of the reads that its processes serve themselves one in
/// a hundred, whose keys are read along with the next call, or by a call of their own when enough wait.
pub fn add_comparisons(
    prepared: &PreparedLog<'_>,
    cost: &CostModel,
    request_stats: &mut [RequestStats],
) {
    let waiting_keys_max = WAITING_KEYS_MAX as f64;
    for process_requests in &prepared.requests_by_instance {
        let mut waiting_keys = 0.0_f64;
        for &request in process_requests {
            let Some(stats) = request_stats.get_mut(request as usize) else { continue };
            let reads = prepared.items_of(request as usize).len() as u32;
            let served_reads = reads.saturating_sub(stats.used_keys);
            if stats.calls > 0 || waiting_keys >= waiting_keys_max {
                let keys = waiting_keys as u32;
                waiting_keys -= f64::from(keys);
                stats.added_ns += match stats.calls {
                    0 => cost.first_call_ns() + cost.call_ns(u64::from(keys), 0),
                    _ => round_half_up(cost.extra_keys_ns(u64::from(keys) + 1)),
                };
                stats.keys += keys;
                stats.calls = stats.calls.max(1);
            }
            waiting_keys += f64::from(served_reads) * NEAR_CHECK_DEFAULT;
            waiting_keys = waiting_keys.min(waiting_keys_max);
        }
    }
}

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
    let figures_of = |requests: &[u32]| compute_figure_values(prepared, requests, request_stats);
    let expected = figures_of(&all_requests);
    let variance_of = |blocks: Vec<&[u32]>| compute_variances(&blocks, &expected, figures_of);
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
    // No forecast of decoding for values that need none.
    let has_forecast =
        |(figure, value): (&str, f64)| figure != Metric::DecodeMean.name() || value > 0.0;
    (0..expected.len())
        .filter(|&index| has_forecast(expected[index]))
        .map(figure_forecast)
        .collect()
}

/// Requests that follow one another, in as many of the [`BLOCKS`] blocks as their share of all requests, at least one.
fn split_into_blocks(requests: &[u32], all_request_count: usize) -> impl Iterator<Item = &[u32]> {
    let block_count = (requests.len() * BLOCKS / all_request_count).max(1);
    requests.chunks_exact((requests.len() / block_count).max(BLOCK_REQUESTS_MIN))
}

/// The variance of each figure over the compared number of requests, from its deviations in blocks.
fn compute_variances(
    blocks: &[&[u32]],
    expected: &[(&str, f64)],
    figures_of: impl Fn(&[u32]) -> FigureValues,
) -> Vec<f64> {
    let mut variances = vec![0.0; expected.len()];
    for block in blocks {
        let scale =
            block.len() as f64 / REQUESTS_OF_FORECAST as f64 / (blocks.len().max(2) - 1) as f64;
        let block_and_expected = figures_of(block).into_iter().zip(expected);
        for (variance, ((_, value), (_, expected_value))) in
            variances.iter_mut().zip(block_and_expected)
        {
            *variance += (value - expected_value).powi(2) * scale;
        }
    }
    variances
}

fn compute_figure_values(
    prepared: &PreparedLog<'_>,
    requests: &[u32],
    request_stats: &[RequestStats],
) -> FigureValues {
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
    let decode_ns = prepared.decode_ns(requests.iter().map(|&request| request as usize));
    let decode_ms = decode_ns.map(|ns| ns as f64 / requests.len().max(1) as f64 / 1e6);
    let mut values = vec![
        ("calls", mean(|stats| stats.calls)),
        ("keys", mean(|stats| stats.keys)),
        ("added_ms_p50", added_ms(P50_INDEX)),
        ("added_ms_p95", added_ms(P95_INDEX)),
    ];
    values.extend(decode_ms.map(|decode_ms| (Metric::DecodeMean.name(), decode_ms)));
    values
}

/// Six decimals: nanoseconds of a time in milliseconds.
fn round_to_nanos(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::trace::log::{CallTimes, Items, NONE, RequestLog, Requests};

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
        let log = log_of_requests(0);
        let prepared = PreparedLog::new(&log, |_| true);
        let measured = compute_figure_values(&prepared, &all_requests, stats);
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
    fn a_log_that_has_it_gives_a_forecast_of_decoding() {
        let mut log = log_of_requests(1000);
        for request in 0..1000 {
            let decode_us = if request < 500 { 7 } else { 560 };
            let times = CallTimes { wait_us: 660, decode_us, writes: 0 };
            log.requests.calls.push(request, Some((&[], times)));
        }
        let prepared = PreparedLog::new(&log, |_| true);
        let forecasts =
            compute_forecasts(&prepared, &vec![RequestStats::default(); 1000], 500..1000);
        let decoding = forecasts.last().unwrap();
        assert_eq!((&*decoding.figure, decoding.value), ("decode_ms_mean", 0.56));
        assert_eq!((decoding.low, decoding.high), (0.56, 0.56));
    }

    #[test]
    fn one_in_a_hundred_served_reads_is_compared_along_with_a_call_or_by_one_for_32() {
        let cost = CostModel::new(&[(1.0, 100.0)], &[(1.0, 100.0), (10.0, 190.0)]).unwrap();
        let mut log = log_of_requests(20_000);
        // 50 reads each, by two processes.
        log.items = Items {
            keys: (0..50).map(|item| item.to_string()).collect(),
            parents: vec![NONE; 50],
            sizes: vec![100; 50],
            ..Items::default()
        };
        log.requests.items = (0..20_000).flat_map(|_| 0..50).collect();
        log.requests.starts = (0..=20_000).map(|request| request * 50).collect();
        let prepared = PreparedLog::new(&log, |_| true);
        let sums = |stats: RequestStats| {
            let mut all = vec![stats; 20_000];
            add_comparisons(&prepared, &cost, &mut all);
            let added = all.iter().map(|after| after.added_ns - stats.added_ns).sum::<u64>();
            let calls = all.iter().map(|stats| u64::from(stats.calls)).sum::<u64>();
            (calls, all.iter().map(|stats| u64::from(stats.keys)).sum::<u64>(), added)
        };
        // All reads are served: 10,000 keys in calls of 32, of which the last ones still wait.
        let (calls, keys, added) = sums(RequestStats::default());
        assert!((300..=312).contains(&calls) && keys == 32 * calls, "{calls} calls, {keys} keys");
        assert!(added >= calls * 410_000, "{added} ns");
        // One of them needs a call: the compared keys are read along with it.
        let with_call = RequestStats { calls: 1, keys: 1, used_keys: 1, ..RequestStats::default() };
        let (calls, keys, added) = sums(with_call);
        assert_eq!(calls, 20_000);
        assert!((29_700..=29_800).contains(&keys), "{keys} keys");
        assert!((97_000_000..=98_000_000).contains(&added), "10 us a key: {added} ns");
    }

    #[test]
    fn each_process_refreshes_its_fixed_set_a_little_before_near_ttl_is_over() {
        let mut log = log_of_requests(4000);
        // A request a second, served by two processes alternately.
        log.requests.times_us = (0..4000).map(|second| second * 1_000_000).collect();
        let near_ttl = |seconds| Some(Duration::from_secs(seconds));
        let forecast = |near_ttl, items| {
            let prepared = PreparedLog::new(&log, |_| true).with_near_ttl(near_ttl);
            let items: Vec<u32> = (0..items).collect();
            compute_refresh_forecast(&prepared, &items, 2000..4000)
        };
        // After 90 s of 100, by both: 22 or 23 times in 2,000 s.
        let refreshed = forecast(near_ttl(100), 50).unwrap();
        assert_eq!((&*refreshed.figure, refreshed.value), ("refreshed_keys", 44.0 * 50.0 / 2000.0));
        assert!(forecast(near_ttl(10_000), 50).unwrap().value.abs() < f64::EPSILON);
        assert_eq!((forecast(None, 50), forecast(near_ttl(100), 0)), (None, None));
    }

    #[test]
    fn too_few_requests_have_no_forecast() {
        assert!(forecasts_of(&[RequestStats::default(); 299]).is_empty());
        assert_eq!(forecasts_of(&[RequestStats::default(); 300]).len(), 4);
    }
}
