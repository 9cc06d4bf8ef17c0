//! What one call costs: latency tables by value size and by number of keys.
//!
//! docs/reference/formats.md, "Latency table". Computed in nanoseconds and rounded once per call,
//! half up, so that two implementations agree to the last digit.

use serde::Deserialize;

use super::error::LatencyError;
use super::latency_sample::Quantiles;

/// The file `latency.json` as written.
#[derive(Debug, Deserialize)]
struct LatencyFile {
    unit: String,
    single_us: Vec<(f64, f64)>,
    batch_us: Vec<(f64, f64)>,
    #[serde(default)]
    single_pct: Option<std::collections::BTreeMap<String, std::collections::BTreeMap<String, f64>>>,
}

/// The cost of calls, from measured medians, with the measured distribution where there is one.
#[derive(Debug, Clone)]
pub struct CostModel {
    single: Vec<Knot>,
    batch: Vec<Knot>,
    batch_of_one_ns: f64,
    quantiles: Option<Quantiles>,
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
        Ok(Self { single, batch, batch_of_one_ns, quantiles: None })
    }

    /// The measured distribution, if the table carries one.
    pub fn quantiles(&self) -> Option<&Quantiles> {
        self.quantiles.as_ref()
    }

    /// Nanoseconds of one call for `keys` values of `bytes` in all.
    pub fn call_ns(&self, keys: u64, bytes: u64) -> u64 {
        round_half_up(self.single_ns(bytes) + self.extra_keys_ns(keys))
    }

    /// Nanoseconds that the keys beyond the first add to a call, not rounded.
    pub fn extra_keys_ns(&self, keys: u64) -> f64 {
        if keys == 1 { 0.0 } else { compute_batch_ns(&self.batch, keys) - self.batch_of_one_ns }
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
