//! The latency table that `simulate` reads (docs/reference/formats.md, section 3), from a profile.

use serde_json::{Map, Value, json};

use super::measured::{CellPercentiles, ProfileMeasurement};

/// The table of a profile as JSON; `None` without both sizes (from one byte on) and widths.
///
/// Microseconds are rounded to three decimals. All percentiles are those of the samples, even where there are too few
/// for an interval: a model must have them.
pub(super) fn build_latency_file(measured: &ProfileMeasurement) -> Option<Value> {
    // The table begins at one byte: an empty value counts as one.
    let has_bytes = |cell: &&CellPercentiles| cell.bytes > Some(0);
    let mut size_cells: Vec<&CellPercentiles> = measured.by_size.iter().filter(has_bytes).collect();
    if size_cells.is_empty() || measured.by_width.is_empty() {
        return None;
    }
    let rounded_us = |us: f64| (us * 1e3).round() / 1e3;
    let table_row = |bytes_or_keys: Option<usize>, cell: &CellPercentiles| {
        let median =
            cell.percentiles.iter().find(|percentile| (percentile.percent - 50.0).abs() < 1e-9)?;
        Some(json!([bytes_or_keys?, rounded_us(median.sample_us)]))
    };
    let by_percent = |cell: &CellPercentiles| -> Map<String, Value> {
        let entries = cell.percentiles.iter().map(|percentile| {
            (percentile.percent.to_string(), json!(rounded_us(percentile.sample_us)))
        });
        entries.collect()
    };
    size_cells.sort_by_key(|cell| cell.bytes);
    let mut width_cells: Vec<&CellPercentiles> = measured.by_width.iter().collect();
    width_cells.sort_by_key(|cell| cell.keys);
    let single: Vec<Value> =
        size_cells.iter().filter_map(|cell| table_row(cell.bytes, cell)).collect();
    let batch: Vec<Value> =
        width_cells.iter().filter_map(|cell| table_row(cell.keys, cell)).collect();
    let percentiles: Map<String, Value> = size_cells
        .iter()
        .filter_map(|cell| Some((cell.bytes?.to_string(), Value::Object(by_percent(cell)))))
        .collect();
    Some(json!({ "unit": "us", "single_us": single, "batch_us": batch, "single_pct": percentiles }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{CallBlock, Cell, ProfileMeasurement, Settings};
    use super::*;

    fn measure_example() -> ProfileMeasurement {
        let settings = Settings {
            calls: 1000,
            sizes: vec![0, 1, 1000],
            widths: vec![1, 100],
            ..Settings::default()
        };
        let mut measured = ProfileMeasurement::new(&settings);
        for (cell, us) in [
            (Cell::Bytes(0), 20),
            (Cell::Bytes(1), 20),
            (Cell::Bytes(1000), 30),
            (Cell::Keys(1), 20),
            (Cell::Keys(100), 90),
        ] {
            let latencies_ns = (0..1000).map(|ns| us * 1000 + ns).collect();
            measured.add(cell, &CallBlock { latencies_ns, wrong_values: 0 }, Duration::ZERO);
        }
        measured.finish()
    }

    #[test]
    fn simulate_reads_the_table_of_a_profile() {
        let table = build_latency_file(&measure_example()).unwrap();
        assert_eq!(table["single_us"][0][0], 1, "an empty value has no row");
        assert_eq!(table["batch_us"][1][0], 100);
        assert!(table["single_pct"]["1000"]["50"].as_f64().unwrap() > 30.0);
        assert_eq!(table["single_pct"]["1"]["99.9"], 20.998);
        glasscache_sim::strategy::cost::CostModel::parse(&table.to_string()).unwrap();
    }

    #[test]
    fn percentiles_have_intervals_or_a_lower_bound() {
        let document = serde_json::to_value(measure_example()).unwrap();
        let percentiles = &document["by_size"][0]["percentiles"];
        assert!(percentiles["50"]["low"].as_f64() <= percentiles["50"]["us"].as_f64());
        assert!(percentiles["99.9"]["us"].is_null() && percentiles["99.9"]["at_least"].is_number());
        assert_eq!(document["by_width"][1]["keys"], 100);
        assert_eq!(document["verdict"]["kind"], "flat");
    }
}
