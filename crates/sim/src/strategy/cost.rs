//! What one call costs: latency tables by value size and by number of keys.
//!
//! docs/reference/formats.md, "Latency table". Computed in nanoseconds and rounded once per call,
//! half up, so that two implementations agree to the last digit.

use serde::Deserialize;

use super::error::LatencyError;
use super::latency_sample::{Dependence, Quantiles};
use super::recorded_waits::{RecordedRequest, RecordedWaits};
use crate::trace::log::RequestLog;

/// The file `latency.json` as written.
#[derive(Debug, Deserialize)]
struct LatencyFile {
    unit: String,
    single_us: Vec<(f64, f64)>,
    batch_us: Vec<(f64, f64)>,
    #[serde(default)]
    single_pct: Option<std::collections::BTreeMap<String, std::collections::BTreeMap<String, f64>>>,
}

/// The cost of calls, from measured medians, with the measured distribution where there is one, and with what recorded
/// calls took beyond these.
#[derive(Debug, Clone)]
pub struct CostModel {
    single: Vec<Knot>,
    batch: Vec<Knot>,
    batch_of_one_ns: f64,
    quantiles: Option<Quantiles>,
    recorded_waits: Option<RecordedWaits>,
}

/// A row of a table: size or count, its logarithm, nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Knot {
    size_or_count: f64,
    log10: f64,
    ns: f64,
}

impl CostModel {
    /// Reads the text of a latency table.
    pub fn parse(text: &str) -> Result<Self, LatencyError> {
        let file: LatencyFile =
            serde_json::from_str(text).map_err(|error| LatencyError::Shape(error.to_string()))?;
        if file.unit != "us" {
            return Err(LatencyError::Unit(file.unit));
        }
        let mut model = Self::new(&file.single_us, &file.batch_us)?;
        model.quantiles = file.single_pct.as_ref().map(Quantiles::new).transpose()?;
        Ok(model)
    }

    /// Makes a model from rows of (value size in bytes, microseconds) and (keys, microseconds).
    pub fn new(single_us: &[(f64, f64)], batch_us: &[(f64, f64)]) -> Result<Self, LatencyError> {
        let single = parse_knots("single_us", single_us)?;
        let batch = parse_knots("batch_us", batch_us)?;
        let batch_of_one_ns = compute_batch_ns(&batch, 1);
        Ok(Self { single, batch, batch_of_one_ns, quantiles: None, recorded_waits: None })
    }

    /// Calls that cost nothing: the base where a log has waits and no table.
    fn free() -> Self {
        let row = vec![Knot { size_or_count: 1.0, log10: 0.0, ns: 0.0 }];
        Self {
            single: row.clone(),
            batch: row,
            batch_of_one_ns: 0.0,
            quantiles: None,
            recorded_waits: None,
        }
    }

    /// Why [`Self::of_log`] has no model.
    pub const NEITHER_TABLE_NOR_WAITS: &str =
        "there is no latency table, and the log has no recorded waits";

    /// What calls cost by the table that is in a log's folder, if there is one, and by how long the log's requests waited;
    /// `None` if neither is known.
    ///
    /// # Errors
    /// The text is not a latency table.
    pub fn of_log(log: &RequestLog, own_table: Option<&str>) -> Result<Option<Self>, LatencyError> {
        let table = own_table.map(Self::parse).transpose()?;
        let has_table = table.is_some();
        let cost = table.unwrap_or_else(Self::free).with_recorded_waits(log);
        Ok(Some(cost).filter(|cost| has_table || cost.recorded_waits.is_some()))
    }

    /// The same model with what the calls of a log took beyond it, if the log has the waits of enough calls.
    #[must_use]
    pub fn with_recorded_waits(self, log: &RequestLog) -> Self {
        let requests = &log.requests;
        // A recording proxy sees neither how long a request takes nor how long it waits.
        let has_waits = requests.base_times_us.iter().any(|&base_us| base_us > 0);
        let recorded: Vec<RecordedRequest> = (0..requests.len())
            .filter(|_| has_waits)
            .filter_map(|index| self.price_recorded_request(log, index))
            .collect();
        Self { recorded_waits: RecordedWaits::fit(&recorded), ..self }
    }

    /// A request of a log, if its calls are known and there are some.
    fn price_recorded_request(&self, log: &RequestLog, index: usize) -> Option<RecordedRequest> {
        let (keys_of_calls, times) = log.requests.calls.of(index)?;
        let calls = keys_of_calls.len() as f64 + f64::from(times.writes);
        let size_of = |&item: &u32| u64::from(log.items.sizes[item as usize]);
        let reads = log.requests.calls_of(index);
        let read_ns: u64 = reads
            .map(|items| self.call_ns(items.len() as u64, items.iter().map(size_of).sum()))
            .sum();
        let write_ns = u64::from(times.writes) * self.call_ns(1, 0);
        let further_keys = keys_of_calls.iter().map(|&keys| f64::from(keys.saturating_sub(1)));
        (calls > 0.0).then(|| RecordedRequest {
            calls,
            further_keys: further_keys.sum(),
            table_ns: (read_ns + write_ns) as f64,
            wait_ns: f64::from(times.wait_us.saturating_sub(times.decode_us)) * 1e3,
        })
    }

    /// What recorded calls took beyond the table, if it is in the prices.
    pub fn recorded_waits(&self) -> Option<&RecordedWaits> {
        self.recorded_waits.as_ref()
    }

    /// Whether there is no table, so that all costs are those of recorded waits.
    pub fn is_of_log_alone(&self) -> bool {
        self.recorded_waits.is_some() && self.single.iter().all(|row| row.ns == 0.0)
    }

    /// Whether costs can be drawn from a measured distribution, and how the draws of a request's calls then depend on each
    /// other if nothing else is wanted.
    pub fn dependence_of_draws(&self) -> Option<Dependence> {
        if self.recorded_waits.is_some() {
            return Some(RecordedWaits::DEPENDENCE);
        }
        self.quantiles.as_ref().map(|_| Dependence::Independent)
    }

    /// Nanoseconds of one call for `keys` values of `bytes` in all.
    pub fn call_ns(&self, keys: u64, bytes: u64) -> u64 {
        let beyond_table_ns = self.recorded_waits.as_ref().map_or(0.0, |waits| waits.call_ns);
        round_half_up(
            self.scale(self.single_ns(bytes)) + self.extra_keys_ns(keys) + beyond_table_ns,
        )
    }

    /// Nanoseconds of such a call, which may be the first of its request, at a quantile (0 to 1, 0 is the fastest) of the
    /// measured distribution, not rounded; `None` without one.
    pub fn drawn_call_ns(
        &self,
        (keys, bytes): (u64, u64),
        is_first: bool,
        quantile: f64,
    ) -> Option<f64> {
        let Some(waits) = &self.recorded_waits else {
            let single_ns = self.quantiles.as_ref()?.single_ns(bytes, quantile);
            return Some(single_ns + self.extra_keys_ns(keys));
        };
        let ratio = waits.ratio_at(quantile);
        let table_ns = self.single_ns(bytes) + self.table_extra_keys_ns(keys);
        if waits.table_share < 1.0 {
            return Some(table_ns * waits.table_share * ratio);
        }
        let request_ns = if is_first { waits.request_ns } else { 0.0 };
        let further_keys_ns = waits.key_ns * keys.saturating_sub(1) as f64;
        Some(table_ns + ratio * (request_ns + waits.call_ns + further_keys_ns))
    }

    /// Nanoseconds that the first call of a request takes beyond [`Self::call_ns`].
    pub fn first_call_ns(&self) -> u64 {
        self.recorded_waits.as_ref().map_or(0, |waits| round_half_up(waits.request_ns))
    }

    /// Nanoseconds that the keys beyond the first add to a call, not rounded.
    pub fn extra_keys_ns(&self, keys: u64) -> f64 {
        let key_ns = self.recorded_waits.as_ref().map_or(0.0, |waits| waits.key_ns);
        self.scale(self.table_extra_keys_ns(keys)) + key_ns * keys.saturating_sub(1) as f64
    }

    fn table_extra_keys_ns(&self, keys: u64) -> f64 {
        if keys == 1 { 0.0 } else { compute_batch_ns(&self.batch, keys) - self.batch_of_one_ns }
    }

    /// The part of a cost of the table that recorded calls took.
    fn scale(&self, table_ns: f64) -> f64 {
        self.recorded_waits.as_ref().map_or(table_ns, |waits| table_ns * waits.table_share)
    }

    fn single_ns(&self, bytes: u64) -> f64 {
        let size = bytes.max(1) as f64;
        let (first, last) = (self.single[0], self.single[self.single.len() - 1]);
        if size <= first.size_or_count {
            return first.ns;
        }
        if size >= last.size_or_count {
            return last.ns * size / last.size_or_count;
        }
        let upper_index = self.single.partition_point(|knot| knot.size_or_count <= size);
        let (low, high) = (self.single[upper_index - 1], self.single[upper_index]);
        low.ns + (high.ns - low.ns) * (size.log10() - low.log10) / (high.log10 - low.log10)
    }
}

/// Rounds to whole nanoseconds, half up; a cost is never negative.
pub fn round_half_up(ns: f64) -> u64 {
    (ns + 0.5).floor().max(0.0) as u64
}

fn compute_batch_ns(batch: &[Knot], keys: u64) -> f64 {
    let count = keys as f64;
    let first = batch[0];
    if count <= first.size_or_count || batch.len() == 1 {
        return first.ns;
    }
    // Beyond the last knot the line through the last two is extended.
    let upper_index =
        batch.partition_point(|knot| knot.size_or_count <= count).min(batch.len() - 1);
    let (low, high) = (batch[upper_index - 1], batch[upper_index]);
    low.ns
        + (high.ns - low.ns) * (count - low.size_or_count)
            / (high.size_or_count - low.size_or_count)
}

fn parse_knots(table: &'static str, rows: &[(f64, f64)]) -> Result<Vec<Knot>, LatencyError> {
    let row_error =
        |row_index: usize, problem| Err(LatencyError::Row { table, row: row_index + 1, problem });
    let mut knots: Vec<Knot> = Vec::with_capacity(rows.len());
    for (row_index, &(size_or_count, us)) in rows.iter().enumerate() {
        if !(size_or_count.is_finite() && size_or_count >= 1.0) {
            return row_error(row_index, "the size or count must be at least 1");
        }
        if !(us.is_finite() && us >= 0.0) {
            return row_error(row_index, "the latency must be a number of at least 0");
        }
        if knots.last().is_some_and(|previous| previous.size_or_count >= size_or_count) {
            return row_error(row_index, "sizes or counts must rise from row to row");
        }
        knots.push(Knot { size_or_count, log10: size_or_count.log10(), ns: us * 1000.0 });
    }
    if knots.is_empty() { Err(LatencyError::Empty(table)) } else { Ok(knots) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> CostModel {
        CostModel::new(&[(1000.0, 1000.0), (10000.0, 2000.0)], &[(1.0, 1000.0), (11.0, 2000.0)])
            .unwrap()
    }

    #[test]
    fn computes_the_costs_of_the_worked_example() {
        let cost = example();
        let single_call_ns = |bytes| cost.call_ns(1, bytes);
        assert_eq!(
            [single_call_ns(2000), single_call_ns(3000), single_call_ns(4000)],
            [1_301_030, 1_477_121, 1_602_060]
        );
        assert_eq!([single_call_ns(11000), single_call_ns(13000)], [2_200_000, 2_600_000]);
        assert_eq!(cost.call_ns(3, 3000), 1_677_121);
    }

    #[test]
    fn extrapolates_beyond_the_tables_as_defined() {
        let cost = example();
        assert_eq!(cost.call_ns(1, 0), 1_000_000);
        assert_eq!(cost.call_ns(21, 1), 1_000_000 + 2_000_000);
        let one_row = CostModel::new(&[(1.0, 5.0)], &[(1.0, 7.0)]).unwrap();
        assert_eq!(one_row.call_ns(9, 3), 15_000);
    }

    #[test]
    fn rounds_half_up() {
        let cost = CostModel::new(&[(1.0, 0.0005)], &[(1.0, 0.0)]).unwrap();
        assert_eq!(cost.call_ns(1, 1), 1);
        assert_eq!(cost.call_ns(1, 3), 2);
    }

    #[test]
    fn rejects_invalid_tables_and_names_the_row() {
        let message = |text: &str| CostModel::parse(text).unwrap_err().to_string();
        assert!(message("{").starts_with("not a latency table: "));
        let table = r#"{"unit":"us","single_us":[[10,1],[10,2]],"batch_us":[[1,1]]}"#;
        assert_eq!(
            message(table),
            "table `single_us` row 2: sizes or counts must rise from row to row"
        );
        let table = r#"{"unit":"ms","single_us":[[10,1]],"batch_us":[[1,1]]}"#;
        assert_eq!(message(table), "unit `ms` is not known, must be `us`");
        let table = r#"{"unit":"us","single_us":[],"batch_us":[[1,1]]}"#;
        assert_eq!(message(table), "table `single_us` has no row");
    }
}
