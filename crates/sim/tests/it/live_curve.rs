//! The live curve against exact replays of the store at each size, on generated loads with TTLs, overwrites and sizes, and
//! on recorded traces.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a measurement opens the recorded traces that the pure crate is handed"
)]

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use glasscache_sim::trace::generate::keys::KeyWorkload;
use glasscache_sim::trace::generate::twitter::twitter_cluster;
use glasscache_sim::trace::{Batch, Columns, Effect, open};
use glasscache_store::{
    Config, CurveState, Expiry, LiveCurve, LiveInput, LiveModel, Seconds, SetOptions, Store,
};

/// The second at which a replay starts.
const START_S: u32 = 2;

/// Rows between two passes of the worker, and steps of a model that loses no event.
const ROWS_PER_PASS: u64 = 64;

/// Requests a second of a trace whose times are row numbers.
const RECORDED_RATE: u64 = 1000;

/// The size of a value that the trace does not state.
const VALUE_BYTES_DEFAULT: u32 = 100;

/// Where the rows come from.
enum Load {
    Generated(KeyWorkload),
    Recorded(PathBuf),
}

impl Load {
    /// Calls `visit` with the batches of rows, their times in microseconds.
    fn for_each(&self, mut visit: impl FnMut(&Batch)) {
        let mut batch = Batch::default();
        match self {
            Self::Generated(workload) => {
                let mut generator = workload.clone().start();
                while generator.read(&mut batch) > 0 {
                    visit(&batch);
                }
            }
            Self::Recorded(path) => {
                let columns = Columns { time: true, size: true, op: true, ttl: false };
                let file = File::open(path).unwrap();
                let mut stream = open(&path.to_string_lossy(), file, columns).unwrap();
                let mut row_number = 0;
                while stream.read(&mut batch).unwrap() > 0 {
                    // The clocks of the sources differ, and some have none.
                    for time in &mut batch.time {
                        *time = row_number * 1_000_000 / RECORDED_RATE;
                        row_number += 1;
                    }
                    visit(&batch);
                }
            }
        }
    }

    /// Bytes of all different values, as last stored.
    fn footprint_bytes(&self) -> u64 {
        let mut sizes = HashMap::new();
        self.for_each(|batch| {
            for (&key, size) in batch.key.iter().zip(&batch.size) {
                sizes.insert(key, size.unwrap_or(VALUE_BYTES_DEFAULT));
            }
        });
        sizes.values().map(|&size| u64::from(size)).sum()
    }
}

/// What a replay showed.
struct Outcome {
    miss_ratio: f64,
    curve: Option<LiveCurve>,
}

/// Replays a look-aside load: what is missed is stored. With `rows_per_step` the store is sampled, and its model takes
/// the events after so many rows.
fn replay(load: &Load, memory_bytes: u64, hash_seed: u64, rows_per_step: Option<u64>) -> Outcome {
    let samples = rows_per_step.is_some();
    let config = Config { memory_bytes, workers: 1, hash_seed, samples, ..Config::default() };
    let store = Store::new(config).unwrap();
    let mut worker = store.worker();
    worker.go_online();
    let mut input = LiveInput { now: Seconds(START_S), ..LiveInput::default() };
    let mut model = samples.then(|| LiveModel::new(&store, b':', None, input));
    let (mut row_number, mut curve) = (0, None);
    let value = vec![b'v'; 1 << 20];
    load.for_each(|batch| {
        for row in 0..batch.len() {
            let now = Seconds(START_S + (batch.time[row] / 1_000_000) as u32);
            if row_number % ROWS_PER_PASS == 0 {
                worker.pass();
                worker.maintain(now);
            }
            if rows_per_step.is_some_and(|rows| row_number % rows == 0) {
                input = LiveInput { now, elapsed_ms: batch.time[row] / 1000, ..input };
                let report = model.as_mut().and_then(|model| model.step(input).1);
                curve = report.map(|report| report.curve).or(curve.take());
            }
            row_number += 1;
            let key = batch.key[row].to_be_bytes();
            let hash = store.hash(&key);
            let op = batch.op.get(row).copied().flatten();
            if op.is_none_or(|op| op.effect() == Effect::Request) {
                input.gets += 1;
                if worker.get(&key, hash, now).is_some() {
                    continue;
                }
                input.misses += 1;
            }
            let expiry = match batch.ttl.get(row).copied().flatten() {
                Some(ttl_s @ 1..) => Expiry::At(Seconds(now.0 + ttl_s)),
                _ => Expiry::Never,
            };
            let value_bytes = batch.size[row].unwrap_or(VALUE_BYTES_DEFAULT) as usize;
            let options = SetOptions { expiry, ..SetOptions::default() };
            worker.set(&key, hash, &value[..value_bytes.min(value.len() / 2)], &options, now);
        }
    });
    Outcome { miss_ratio: input.misses as f64 / input.gets as f64, curve }
}

/// Checks that the curve of a sampled replay is near the replays of stores of all its sizes.
fn check(name: &str, workload: KeyWorkload, memory_bytes: u64) {
    let load = Load::Generated(workload);
    let live = replay(&load, memory_bytes, 1, Some(ROWS_PER_PASS));
    let curve = live.curve.unwrap();
    assert_eq!(curve.state, CurveState::Ok, "{name}");
    assert_eq!(curve.rows.len(), 8, "{name}");
    let mut errors = Vec::new();
    for row in &curve.rows {
        let exact = replay(&load, row.memory_bytes, 2, None).miss_ratio;
        errors.push((row.miss_ratio - exact).abs());
        assert!(row.low <= row.miss_ratio && row.miss_ratio <= row.high, "{name}: {row:?}");
    }
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    let worst = errors.iter().copied().fold(0.0, f64::max);
    assert!(mean <= 0.01 && worst <= 0.03, "{name}: mean {mean}, worst {worst}: {errors:?}");
    assert!(curve.advice.len() == 4, "{name}: {:?}", curve.advice);
}

fn cluster_with_ttls() -> KeyWorkload {
    let workload = twitter_cluster(4, 250_000, 1).unwrap();
    KeyWorkload { rate: 500.0, size_mean: 300.0, keys: 40_000, ..workload }
}

fn with_overwrites() -> KeyWorkload {
    KeyWorkload {
        requests: 250_000,
        keys: 40_000,
        skew: 0.9,
        size_mean: 300.0,
        read_share: 0.45,
        rate: 500.0,
        ..KeyWorkload::default()
    }
}

fn with_sizes() -> KeyWorkload {
    KeyWorkload {
        requests: 250_000,
        keys: 40_000,
        skew: 0.9,
        one_hit_share: 0.1,
        size_mean: 600.0,
        rate: 500.0,
        ..KeyWorkload::default()
    }
}

#[test]
fn it_is_near_exact_replays_where_items_expire() {
    let workload = cluster_with_ttls();
    assert!(!workload.ttls.is_empty());
    check("ttls", workload, 4 << 20);
}

#[test]
fn it_is_near_exact_replays_where_most_rows_overwrite() {
    check("overwrites", with_overwrites(), 4 << 20);
}

#[test]
fn it_is_near_exact_replays_where_sizes_differ() {
    check("sizes", with_sizes(), 8 << 20);
}

/// The generated loads with a size of the store, and those of the folder `GLASSCACHE_TEST_TRACES` at a fifth of
/// their values.
fn measured_loads() -> Vec<(String, Load, u64)> {
    let mut loads = vec![
        ("ttls".to_owned(), Load::Generated(cluster_with_ttls()), 4 << 20),
        ("overwrites".to_owned(), Load::Generated(with_overwrites()), 4 << 20),
        ("sizes".to_owned(), Load::Generated(with_sizes()), 8 << 20),
    ];
    let Some(folder) = std::env::var_os("GLASSCACHE_TEST_TRACES") else {
        return loads;
    };
    for trace in ["adaptsize-request", "cache2k-orm-busy", "cloudphysics-w106"] {
        let load = Load::Recorded(Path::new(&folder).join(trace).with_extension("parquet"));
        let memory_bytes = (load.footprint_bytes() / 5).max(4 << 20);
        loads.push((trace.to_owned(), load, memory_bytes));
    }
    loads
}

/// Prints the errors over twenty samples of the keys, and how often the interval has the exact ratio.
#[test]
#[ignore = "a measurement, printed: run by `make live-curve`"]
#[expect(clippy::print_stdout, reason = "a measurement prints its results")]
fn errors_and_intervals_over_twenty_samples() {
    const SAMPLES: u64 = 20;
    println!("load              | mean error | worst  | of points | interval holds | without 1 x");
    for (name, load, memory_bytes) in measured_loads() {
        let (mut exact, mut errors, mut held) = (Vec::new(), Vec::new(), Vec::new());
        for seed in 0..SAMPLES {
            let curve =
                replay(&load, memory_bytes, 1000 + seed, Some(ROWS_PER_PASS)).curve.unwrap();
            if curve.state != CurveState::Ok {
                println!("{name}: no curve of {memory_bytes} bytes: {:?}", curve.state);
                continue;
            }
            if exact.is_empty() {
                let sizes = curve.rows.iter().map(|row| row.memory_bytes);
                exact = sizes.map(|size| replay(&load, size, 2, None).miss_ratio).collect();
            }
            for (row, exact) in curve.rows.iter().zip(&exact) {
                errors.push((row.miss_ratio - exact).abs());
                let is_inside = (row.low..=row.high).contains(exact);
                held.push((is_inside, row.memory_bytes == memory_bytes));
            }
        }
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        let worst = errors.iter().copied().fold(0.0, f64::max);
        let share = |held: &[bool]| {
            100.0 * held.iter().filter(|is_inside| **is_inside).count() as f64 / held.len() as f64
        };
        let all: Vec<bool> = held.iter().map(|(is_inside, _)| *is_inside).collect();
        let others = held.iter().filter(|(_, is_present)| !is_present);
        let others: Vec<bool> = others.map(|(is_inside, _)| *is_inside).collect();
        println!(
            "{name:<17} | {mean:10.4} | {worst:.4} | {:>9} | {:>12.1} % | {:.1} %",
            errors.len(),
            share(&all),
            share(&others)
        );
    }
}

#[test]
fn a_store_that_has_just_started_has_no_curve() {
    let workload =
        KeyWorkload { requests: 3_000, size_mean: 300.0, rate: 500.0, ..KeyWorkload::default() };
    let curve = replay(&Load::Generated(workload), 64 << 20, 1, Some(ROWS_PER_PASS)).curve.unwrap();
    assert_eq!((curve.state, curve.rows.len(), curve.advice.len()), (CurveState::Warming, 0, 0));
}

#[test]
fn a_model_that_lost_many_events_has_no_curve() {
    let load = Load::Generated(with_sizes());
    let curve = replay(&load, 8 << 20, 1, Some(30_000)).curve.unwrap();
    assert_eq!((curve.state, curve.rows.len()), (CurveState::EventsLost, 0));
}
