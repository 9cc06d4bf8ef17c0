//! Latency tables from calls that were timed: rows of single gets by size, and of multi-gets by number of keys.
//!
//! docs/reference/formats.md, "Latency table". What a multi-get costs beyond one get of as many bytes belongs to its
//! number of keys; beyond the largest single gets, each further byte costs what it does between the smallest and the
//! largest.

use serde_json::{Map, Value, json};

use super::cost::CostModel;
use super::error::LatencyError;
use super::noise::{RoundForecasts, compute_median_and_p95};
use super::run::RequestStats;

/// A call, its keys, their bytes, and how long it took.
#[derive(Debug, Clone, Copy)]
pub struct TimedCall {
    /// How many keys it read.
    pub keys: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// Nanoseconds.
    pub ns: u64,
}

/// Rows of measured single gets, at most.
const SIZE_ROWS_MAX: usize = 7;

/// The quantiles of the distribution of a row, in thousandths: closer together at the end, where one call in a hundred
/// may take a hundred times as long as the others.
const QUANTILES_PER_MILLE: [usize; 29] = [
    10, 50, 100, 150, 200, 250, 300, 350, 400, 450, 500, 550, 600, 650, 700, 750, 800, 850, 900,
    920, 940, 950, 960, 970, 980, 985, 990, 995, 999,
];

/// Calls per row, at least; the last row may have fewer.
const CALLS_PER_ROW_MIN: usize = 20;

/// Rows of multi-gets, at most.
const KEY_ROWS_MAX: usize = 24;

/// Single gets that a round needs: enough for all rows of single gets.
pub const SINGLE_GETS_MIN: usize = SIZE_ROWS_MAX * CALLS_PER_ROW_MIN;

/// The table of all calls, and one table for each round of them.
pub struct LatencyTable {
    /// The table as it is written to `latency.json`.
    pub document: Value,
    cost: CostModel,
    /// Keys and bytes of a call like those of each row.
    typical_calls: Vec<(u64, u64)>,
    /// The costs of calls by the table of each round alone.
    round_costs: Vec<CostModel>,
}

impl LatencyTable {
    /// The table of the calls of some rounds, of which each has at least [`SINGLE_GETS_MIN`] single gets.
    pub fn of_rounds(rounds: Vec<Vec<TimedCall>>) -> Result<Self, LatencyError> {
        let mut table = build_latency_table(rounds.concat())?;
        table.round_costs = rounds
            .into_iter()
            .map(|calls| Ok(build_latency_table(calls)?.cost))
            .collect::<Result<_, LatencyError>>()?;
        Ok(table)
    }

    /// The costs of calls.
    pub fn cost_model(&self) -> &CostModel {
        &self.cost
    }

    /// The latency that requests add, forecast with the table of all rounds and with that of each round; `simulate`
    /// computes what the requests need with the costs of a table.
    pub fn round_forecasts(
        &self,
        simulate: impl Fn(&CostModel) -> Vec<RequestStats>,
    ) -> RoundForecasts {
        let median_and_p95_by = |cost: &CostModel| compute_median_and_p95(&simulate(cost));
        RoundForecasts {
            whole: median_and_p95_by(&self.cost),
            rounds: self.round_costs.iter().map(median_and_p95_by).collect(),
        }
    }

    /// How much slower calls like those of the rows were in `after`: the median over them, 0.1 for 10 %.
    pub fn drift(&self, after: &LatencyTable) -> f64 {
        let cost_ns =
            |cost: &CostModel, (keys, bytes): (u64, u64)| cost.call_ns(keys, bytes) as f64;
        let ratio = |&call| cost_ns(&after.cost, call) / cost_ns(&self.cost, call) - 1.0;
        let mut ratios: Vec<f64> = self.typical_calls.iter().map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied().unwrap_or(0.0)
    }
}

/// The table of these calls, of which some are single gets.
fn build_latency_table(mut calls: Vec<TimedCall>) -> Result<LatencyTable, LatencyError> {
    for call in &mut calls {
        call.bytes = call.bytes.max(1);
    }
    calls.sort_unstable_by_key(|call| (call.keys, call.bytes));
    let (single_gets, multi_gets) = calls.split_at(calls.partition_point(|call| call.keys == 1));
    let mut size_rows: Vec<SizeRow> =
        split_into_rows(single_gets, SIZE_ROWS_MAX, |call| call.bytes).map(SizeRow::new).collect();
    let mut typical_calls: Vec<(u64, u64)> = size_rows.iter().map(|row| (1, row.bytes)).collect();
    let measured_row_count = size_rows.len();
    let most_bytes = calls.iter().map(|call| call.bytes).max();
    size_rows.extend(extrapolate_rows(&size_rows, most_bytes.unwrap_or(0)));
    let single_us: Vec<(f64, f64)> =
        size_rows.iter().map(|row| (row.bytes as f64, row.median_us)).collect();
    let single_cost = CostModel::new(&single_us, &[(1.0, 0.0)])?;

    let extra_us =
        |call: &TimedCall| (call.ns as f64 - single_cost.call_ns(1, call.bytes) as f64) / 1e3;
    let mut extra_us_by_keys = vec![(1.0, 0.0)];
    for row_calls in split_into_rows(multi_gets, KEY_ROWS_MAX, |call| call.keys) {
        let mean_keys = compute_mean(row_calls, |call| call.keys);
        let mut extra_times_us: Vec<f64> = row_calls.iter().map(extra_us).collect();
        extra_times_us.sort_unstable_by(f64::total_cmp);
        extra_us_by_keys.push((mean_keys, nearest_rank_quantile(&extra_times_us, 500)));
        let mean_bytes = compute_mean(row_calls, |call| call.bytes);
        typical_calls.push((mean_keys.round() as u64, mean_bytes.round() as u64));
    }
    // Only differences count, and no row may be below 0.
    let lowest_us = extra_us_by_keys.iter().fold(0.0, |lowest_us: f64, &(_, us)| lowest_us.min(us));
    for (_, us) in &mut extra_us_by_keys {
        *us = round_to_ns(*us - lowest_us);
    }
    let cost = CostModel::new(&single_us, &extra_us_by_keys)?;
    set_extrapolated_percentiles(&mut size_rows, measured_row_count, multi_gets, &cost);
    let single_pct: Map<String, Value> =
        size_rows.iter().map(|row| (row.bytes.to_string(), row.percentiles_json())).collect();
    let document = json!({
        "unit": "us", "single_us": single_us, "batch_us": extra_us_by_keys, "single_pct": single_pct,
    });
    Ok(LatencyTable {
        cost: CostModel::parse(&document.to_string())?,
        document,
        typical_calls,
        round_costs: Vec::new(),
    })
}

/// A row of the table of single gets.
struct SizeRow {
    bytes: u64,
    median_us: f64,
    percentiles_us: [f64; QUANTILES_PER_MILLE.len()],
}

impl SizeRow {
    fn new(single_gets: &[TimedCall]) -> Self {
        let mut times_us: Vec<f64> = single_gets.iter().map(|call| call.ns as f64 / 1e3).collect();
        times_us.sort_unstable_by(f64::total_cmp);
        Self {
            bytes: compute_mean(single_gets, |call| call.bytes).round() as u64,
            // A cost is above 0.
            median_us: nearest_rank_quantile(&times_us, 500).max(0.001),
            percentiles_us: QUANTILES_PER_MILLE
                .map(|per_mille| nearest_rank_quantile(&times_us, per_mille).max(0.001)),
        }
    }

    fn percentiles_json(&self) -> Value {
        let entries = QUANTILES_PER_MILLE.iter().zip(self.percentiles_us);
        entries
            .map(|(&per_mille, us)| ((per_mille as f64 / 10.0).to_string(), json!(us)))
            .collect::<Map<String, Value>>()
            .into()
    }
}

/// Rows beyond the largest of `measured_rows`, up to this many bytes, each half as large again as the one before.
fn extrapolate_rows(measured_rows: &[SizeRow], most_bytes: u64) -> Vec<SizeRow> {
    let (Some(smallest), Some(largest)) = (measured_rows.first(), measured_rows.last()) else {
        return Vec::new();
    };
    let us_per_byte =
        (largest.median_us - smallest.median_us) / (largest.bytes - smallest.bytes).max(1) as f64;
    let sizes = std::iter::successors(Some(largest.bytes), |&bytes| {
        (bytes < most_bytes).then(|| bytes.saturating_add(bytes.div_ceil(2)))
    });
    let extrapolate_row = |bytes: u64| {
        let further_us = us_per_byte.max(0.0) * (bytes - largest.bytes) as f64;
        SizeRow {
            bytes,
            median_us: round_to_ns(largest.median_us + further_us),
            percentiles_us: largest.percentiles_us.map(|us| round_to_ns(us + further_us)),
        }
    };
    sizes.skip(1).map(extrapolate_row).collect()
}

/// Sets the percentiles of the rows from `first_extrapolated_index` on, for which there are no single gets: by how much the
/// multi-gets of about as many bytes took longer or shorter than their cost, added to the median of the row. About as
/// many are those between the bytes of the row before and of the row after.
fn set_extrapolated_percentiles(
    rows: &mut [SizeRow],
    first_extrapolated_index: usize,
    multi_gets: &[TimedCall],
    cost: &CostModel,
) {
    for index in first_extrapolated_index..rows.len() {
        let next_row_bytes = rows.get(index + 1).map_or(u64::MAX, |row| row.bytes);
        let byte_range = rows[index - 1].bytes..=next_row_bytes;
        let similar_calls = multi_gets.iter().filter(|call| byte_range.contains(&call.bytes));
        let mut above_cost_us: Vec<f64> = similar_calls
            .map(|call| (call.ns as f64 - cost.call_ns(call.keys, call.bytes) as f64) / 1e3)
            .collect();
        if above_cost_us.len() < CALLS_PER_ROW_MIN {
            continue;
        }
        above_cost_us.sort_unstable_by(f64::total_cmp);
        let row = &mut rows[index];
        row.percentiles_us = QUANTILES_PER_MILLE.map(|per_mille| {
            let us = row.median_us + nearest_rank_quantile(&above_cost_us, per_mille);
            round_to_ns(us.max(0.001))
        });
    }
}

/// Splits calls, which are sorted by `sort_number`, into at most `rows_max` rows; calls with the same number stay in
/// one row.
fn split_into_rows(
    calls: &[TimedCall],
    rows_max: usize,
    sort_number: impl Fn(&TimedCall) -> u64,
) -> impl Iterator<Item = &[TimedCall]> {
    let calls_per_row = calls.len().div_ceil(rows_max).max(CALLS_PER_ROW_MIN);
    let mut remaining_calls = calls;
    std::iter::from_fn(move || {
        let last_call = remaining_calls.get(..calls_per_row).unwrap_or(remaining_calls).last()?;
        let row;
        let row_end =
            remaining_calls.partition_point(|call| sort_number(call) <= sort_number(last_call));
        (row, remaining_calls) = remaining_calls.split_at(row_end);
        Some(row)
    })
}

fn compute_mean(calls: &[TimedCall], quantity: impl Fn(&TimedCall) -> u64) -> f64 {
    calls.iter().map(|call| quantity(call) as f64).sum::<f64>() / calls.len().max(1) as f64
}

/// A quantile by the nearest-rank method; 0 without values.
fn nearest_rank_quantile(sorted: &[f64], per_mille: usize) -> f64 {
    let rank = (per_mille * sorted.len()).div_ceil(1000).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

/// Rounds microseconds to three decimals.
fn round_to_ns(us: f64) -> f64 {
    (us * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads that take 10 us, 5 us for each further key, and 1 us for 100 bytes.
    fn call_ns(keys: u64, bytes: u64) -> u64 {
        10_000 + (keys - 1) * 5000 + bytes * 10
    }

    /// The table of 100 gets of each of these sizes, and of 100 calls of each of these numbers of keys and bytes.
    fn table_of(sizes: &[u64], multi_gets: &[(u64, u64)]) -> LatencyTable {
        let single_gets = sizes.iter().map(|&bytes| (1, bytes));
        let all_calls = single_gets.chain(multi_gets.iter().copied());
        let timed_calls = all_calls.flat_map(|(keys, bytes)| {
            let ns = call_ns(keys, bytes);
            std::iter::repeat_n(TimedCall { keys, bytes, ns }, 100)
        });
        build_latency_table(timed_calls.collect()).unwrap()
    }

    fn assert_near(found: u64, expected: u64, relative_error_max: f64) {
        let relative_error = (found as f64 / expected as f64 - 1.0).abs();
        assert!(relative_error <= relative_error_max, "{found} ns, expected {expected} ns");
    }

    #[test]
    fn a_multi_get_like_a_measured_one_has_the_measured_cost() {
        let calls: Vec<(u64, u64)> = [2, 4, 8, 16, 100].map(|keys| (keys, keys * 1000)).into();
        let table = table_of(&[1000], &calls);
        assert_eq!(table.cost_model().call_ns(1, 1000), 20_000);
        for (keys, bytes) in calls {
            assert_near(table.cost.call_ns(keys, bytes), call_ns(keys, bytes), 0.001);
        }
    }

    #[test]
    fn keys_and_bytes_have_costs_of_their_own() {
        // Sizes from 100 bytes to 10 kB: the same number of keys has few bytes or many.
        let sizes: Vec<u64> = (0..100).map(|number| 100 + number * 100).collect();
        let calls: Vec<(u64, u64)> = [2, 8, 32, 128]
            .into_iter()
            .flat_map(|keys| [500, 3000].map(|bytes| (keys, keys * bytes)))
            .collect();
        let table = table_of(&sizes, &calls);
        for (keys, bytes) in calls {
            assert_near(table.cost.call_ns(keys, bytes), call_ns(keys, bytes), 0.06);
        }
    }

    #[test]
    fn small_items_and_one_large_one_keep_the_cost_of_a_further_key() {
        let table = table_of(&[10, 100_000], &[(4, 40)]);
        assert_eq!(table.cost.call_ns(1, 10), 10_100);
        assert_near(table.cost.call_ns(4, 40), 25_400, 0.01);
    }

    #[test]
    fn beyond_the_largest_item_the_spread_is_that_of_multi_gets() {
        let single_get = TimedCall { keys: 1, bytes: 1000, ns: 20_000 };
        let multi_get =
            |number: u64| TimedCall { keys: 50, bytes: 50_000, ns: 100_000 + number * 100 };
        let mut timed_calls = vec![single_get; 100];
        timed_calls.extend((0..1000).map(multi_get));
        let table = build_latency_table(timed_calls).unwrap();
        let call_ns_at = |quantile| table.cost.drawn_call_ns((50, 50_000), true, quantile).unwrap();
        for (quantile, ns) in [(0.4, 140_000.0), (0.5, 150_000.0), (0.95, 195_000.0)] {
            assert!((call_ns_at(quantile) - ns).abs() < 2000.0, "{}", call_ns_at(quantile));
        }
    }

    #[test]
    fn items_of_unknown_size_count_a_byte_and_one_size_is_enough() {
        let table = table_of(&[0], &[]);
        assert_eq!(table.cost.call_ns(1, 0), 10_000);
        assert_eq!(table.document["batch_us"], json!([[1.0, 0.0]]));
    }

    #[test]
    fn the_drift_is_the_median_over_the_rows() {
        let table_with = |us: [f64; 3]| {
            let single_us = [(1.0, us[0]), (10.0, us[1]), (100.0, us[2])];
            LatencyTable {
                document: Value::Null,
                cost: CostModel::new(&single_us, &[(1.0, 0.0)]).unwrap(),
                typical_calls: vec![(1, 1), (1, 10), (1, 100)],
                round_costs: Vec::new(),
            }
        };
        let drift = table_with([10.0; 3]).drift(&table_with([11.0, 12.0, 30.0]));
        assert!((drift - 0.2).abs() < 1e-9);
    }
}
