//! The latency table of a replay: what reads of the log's own items cost, so that nothing has to be stored for it.
//!
//! A table has a row for single gets by size and one for multi-gets by number of keys (docs/reference/formats.md,
//! section 3). A multi-get of the log's items has bytes, too: what it costs beyond one get of as many bytes goes into the
//! row of its number of keys; where it has more bytes than the largest item, it is the row of its size as well. So a
//! call that resembles a measured one has the price that was measured.

use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use glasscache_client::WireKey;
use glasscache_sim::strategy::cost::CostModel;
use glasscache_sim::strategy::noise::{AddedNs, ROUNDS, RoundForecasts, added_ns};
use glasscache_sim::strategy::run::RequestStats;
use serde_json::{Map, Value, json};

use super::super::target::wire_key;
use super::process::Process;
use crate::output::{Exit, Failure};

/// Rows of single gets.
const SIZE_ROWS: usize = 7;

/// A block ends after this many calls, or this long.
const BLOCK_CALLS: usize = 100;
const BLOCK_TIME: Duration = Duration::from_millis(100);

/// The percentiles of the distribution, in thousandths: closer at the end, where one in a hundred calls may take a
/// hundred times as long as the others.
const PERCENTILES: [usize; 29] = [
    10, 50, 100, 150, 200, 250, 300, 350, 400, 450, 500, 550, 600, 650, 700, 750, 800, 850, 900,
    920, 940, 950, 960, 970, 980, 985, 990, 995, 999,
];

/// The reads that are measured.
pub(super) struct Cells<'l> {
    /// One item of each size, ascending.
    single_gets: Vec<Vec<(&'l str, u32)>>,
    /// Several items.
    multi_gets: Vec<Vec<(&'l str, u32)>>,
}

/// What was measured.
pub(super) struct LatencyTable {
    /// As `latency.json` has it.
    pub(super) document: Value,
    /// The median of each cell, in microseconds.
    medians_us: Vec<f64>,
    /// The table of each round alone.
    rounds: Vec<Value>,
}

/// The times of calls, in nanoseconds: a list for each cell.
type CellSamples = Vec<Vec<u64>>;

impl<'l> Cells<'l> {
    /// The cells for items (key, bytes), with calls of up to this many keys.
    pub(super) fn new(items: &[(&'l str, u32)], keys_max: usize) -> Result<Self, Failure> {
        let mut items_by_size = items.to_vec();
        items_by_size.sort_by_key(|&(_, bytes)| bytes);
        let item_at_share = |share: f64| {
            items_by_size
                .get((share * items_by_size.len() as f64) as usize)
                .or(items_by_size.last())
        };
        let mut single_gets: Vec<(&str, u32)> = (0..SIZE_ROWS)
            .filter_map(|n| item_at_share(n as f64 / (SIZE_ROWS - 1) as f64))
            .copied()
            .collect();
        single_gets.dedup_by_key(|&mut (_, bytes)| bytes.max(1));
        if single_gets.is_empty() {
            let message = "measuring the latency failed: no request of the log reads an item";
            return Err(Failure::new(Exit::BadData, message));
        }
        let widths = (1..).map(|power| 1_usize << power);
        let widths = widths.take_while(|&keys| keys < 2 * keys_max && keys <= items.len());
        // Evenly over the sizes, so that a call has about as many bytes as one of the replay.
        let items_over_sizes = |keys: usize| -> Vec<(&str, u32)> {
            let middle_share = |n: usize| (n as f64 + 0.5) / keys as f64;
            (0..keys)
                .filter_map(|n| item_at_share(middle_share(n)))
                .copied()
                .collect()
        };
        Ok(Self {
            single_gets: single_gets.into_iter().map(|item| vec![item]).collect(),
            multi_gets: widths.map(items_over_sizes).collect(),
        })
    }

    /// Measures every cell, with one process on each thread at the same time. Each cell is read in as many blocks as there
    /// are rounds, between those of the others: a disturbance meets all of them.
    pub(super) fn measure(&self, processes: &[Process]) -> Result<LatencyTable, Failure> {
        let cells: Vec<&Vec<_>> = self.single_gets.iter().chain(&self.multi_gets).collect();
        let mut rounds: Vec<CellSamples> = vec![vec![Vec::new(); cells.len()]; ROUNDS];
        for round in &mut rounds {
            for (cell, samples) in cells.iter().zip(round) {
                let keys: Vec<WireKey<'_>> = cell
                    .iter()
                    .map(|(key, _)| wire_key(key))
                    .collect::<Result<_, _>>()?;
                let blocks = std::thread::scope(|scope| {
                    let keys = &keys;
                    let spawn_block = |process| scope.spawn(move || read_block(process, keys));
                    let threads: Vec<_> = processes.iter().map(spawn_block).collect();
                    let thread_results = threads.into_iter().map(ScopedJoinHandle::join);
                    thread_results.collect::<Vec<_>>()
                });
                for block in blocks {
                    let panic_failure =
                        |_| Failure::new(Exit::Finding, "measuring the latency failed");
                    samples.extend(block.map_err(panic_failure)??);
                }
            }
        }
        let samples_of_all_rounds = (0..cells.len()).map(|cell| {
            let blocks = rounds.iter().filter_map(|round| round.get(cell));
            blocks.flatten().copied().collect()
        });
        let mut table = self.latency_table(samples_of_all_rounds.collect());
        table.rounds = rounds
            .into_iter()
            .map(|round| self.latency_table(round).document)
            .collect();
        Ok(table)
    }

    /// The table of these samples.
    fn latency_table(&self, mut samples_ns: CellSamples) -> LatencyTable {
        for samples in &mut samples_ns {
            samples.sort_unstable();
        }
        let medians_us: Vec<f64> = samples_ns
            .iter()
            .map(|sorted| percentile_us(sorted, 500))
            .collect();
        let bytes_of = |cell: &Vec<(&str, u32)>| -> u64 {
            cell.iter()
                .map(|&(_, bytes)| u64::from(bytes))
                .sum::<u64>()
                .max(1)
        };
        let cells = || self.single_gets.iter().chain(&self.multi_gets);
        let mut size_rows: Vec<(u64, usize)> = Vec::new();
        for (index, cell) in cells().enumerate() {
            let bytes = bytes_of(cell);
            if size_rows.last().is_none_or(|&(before, _)| bytes > before) {
                size_rows.push((bytes, index));
            }
        }
        let single_us: Vec<(f64, f64)> = size_rows
            .iter()
            .map(|&(bytes, index)| (bytes as f64, medians_us[index]))
            .collect();
        let single_cost = CostModel::new(&single_us, &[(1.0, 0.0)]).ok();
        let single_get_us = |bytes: u64| {
            single_cost
                .as_ref()
                .map_or(0.0, |model| model.call_ns(1, bytes) as f64 / 1e3)
        };
        let multi_get_medians = self
            .multi_gets
            .iter()
            .zip(&medians_us[self.single_gets.len()..]);
        let mut batch_us: Vec<(usize, f64)> = multi_get_medians
            .map(|(cell, us)| (cell.len(), us - single_get_us(bytes_of(cell))))
            .collect();
        batch_us.insert(0, (1, 0.0));
        // Only differences count, and no row may be below 0.
        let lowest = batch_us.iter().fold(0.0, |low: f64, &(_, us)| low.min(us));
        for (_, us) in &mut batch_us {
            *us -= lowest;
        }
        let by_percent = |index: usize| -> Map<String, Value> {
            let percentile_entry = |thousandths: usize| {
                let percent = (thousandths as f64 / 10.0).to_string();
                (
                    percent,
                    json!(percentile_us(&samples_ns[index], thousandths)),
                )
            };
            PERCENTILES.into_iter().map(percentile_entry).collect()
        };
        let single_pct: Map<String, Value> = size_rows
            .iter()
            .map(|&(bytes, index)| (bytes.to_string(), json!(by_percent(index))))
            .collect();
        let table = json!({
            "unit": "us", "single_us": single_us, "batch_us": batch_us, "single_pct": single_pct,
        });
        LatencyTable {
            document: table,
            medians_us,
            rounds: Vec::new(),
        }
    }
}

impl LatencyTable {
    /// The prices of calls.
    pub(super) fn cost_model(&self) -> Result<CostModel, Failure> {
        parse_table(&self.document)
    }

    /// What the requests add that `run` returns for a table: by all rounds, and by each.
    pub(super) fn round_forecasts(
        &self,
        run: impl Fn(&CostModel) -> Vec<RequestStats>,
    ) -> Result<RoundForecasts, Failure> {
        let added_by = |table: &Value| -> Result<AddedNs, Failure> {
            Ok(added_ns(&run(&parse_table(table)?)))
        };
        Ok(RoundForecasts {
            whole: added_by(&self.document)?,
            rounds: self.rounds.iter().map(added_by).collect::<Result<_, _>>()?,
        })
    }

    /// How much slower the same reads were in `after`: the median over the cells, 0.1 for 10 %.
    pub(super) fn drift(&self, after: &LatencyTable) -> f64 {
        let pairs = self.medians_us.iter().zip(&after.medians_us);
        let mut ratios: Vec<f64> = pairs.map(|(before, after)| after / before - 1.0).collect();
        ratios.sort_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied().unwrap_or(0.0)
    }
}

fn parse_table(table: &Value) -> Result<CostModel, Failure> {
    let parsed = CostModel::parse(&table.to_string());
    parsed.map_err(|error| Failure::new(Exit::BadData, error.to_string()))
}

/// The times of some reads of these keys, in nanoseconds.
fn read_block(process: &Process, keys: &[WireKey<'_>]) -> Result<Vec<u64>, Failure> {
    let started = Instant::now();
    let mut samples = Vec::with_capacity(BLOCK_CALLS);
    while samples.len() < BLOCK_CALLS && started.elapsed() < BLOCK_TIME {
        samples.push(process.read(keys, None)?.wait_time.as_nanos() as u64);
    }
    Ok(samples)
}

/// The nearest rank, in microseconds of three decimals; at least one of them, for a price is above 0.
fn percentile_us(sorted_ns: &[u64], thousandths: usize) -> f64 {
    let rank = (thousandths * sorted_ns.len()).div_ceil(1000).max(1);
    let ns = sorted_ns.get(rank - 1).copied().unwrap_or(0).max(1);
    ns as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads that take 10 us, 5 us for each further key, and 1 us for 100 bytes.
    fn table_of(items: &[(&str, u32)], keys_max: usize) -> LatencyTable {
        let cells = Cells::new(items, keys_max).unwrap();
        let cell_samples = |cell: &Vec<(&str, u32)>| {
            let bytes: u64 = cell.iter().map(|&(_, bytes)| u64::from(bytes)).sum();
            vec![10_000 + (cell.len() as u64 - 1) * 5000 + bytes * 10; 100]
        };
        let samples: CellSamples = cells
            .single_gets
            .iter()
            .chain(&cells.multi_gets)
            .map(cell_samples)
            .collect();
        cells.latency_table(samples)
    }

    #[test]
    fn a_call_like_a_measured_one_has_the_measured_price() {
        let names: Vec<String> = (0..64).map(|n| format!("k{n}")).collect();
        let items: Vec<(&str, u32)> = names.iter().map(|name| (name.as_str(), 1000)).collect();
        let cost = table_of(&items, 16).cost_model().unwrap();
        assert_eq!(cost.call_ns(1, 1000), 20_000);
        for keys in [2_u64, 4, 8, 16] {
            let expected = 10_000 + (keys - 1) * 5000 + keys * 1000 * 10;
            let found = cost.call_ns(keys, keys * 1000);
            assert!(found.abs_diff(expected) < 100, "{keys} keys: {found} ns");
        }
    }

    #[test]
    fn small_items_and_one_large_one_keep_the_price_of_a_further_key() {
        let names: Vec<String> = (0..9).map(|n| format!("k{n}")).collect();
        let mut items: Vec<(&str, u32)> = names.iter().map(|name| (name.as_str(), 10)).collect();
        items[3].1 = 100_000;
        let cost = table_of(&items, 4).cost_model().unwrap();
        assert_eq!(cost.call_ns(1, 10), 10_100);
        let found = cost.call_ns(4, 40);
        assert!(found.abs_diff(25_400) < 300, "{found} ns");
    }

    #[test]
    fn items_of_unknown_size_count_a_byte_and_one_item_is_enough() {
        let cost = table_of(&[("only", 0)], 50).cost_model().unwrap();
        assert_eq!(cost.call_ns(1, 0), 10_000);
    }

    #[test]
    fn the_drift_is_the_median_over_the_cells() {
        let table = |medians_us: &[f64]| LatencyTable {
            document: Value::Null,
            medians_us: medians_us.to_vec(),
            rounds: Vec::new(),
        };
        let drift = table(&[10.0, 10.0, 10.0]).drift(&table(&[11.0, 12.0, 30.0]));
        assert!((drift - 0.2).abs() < 1e-9);
    }
}
