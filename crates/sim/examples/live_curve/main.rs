//! How far the live curve is from exact replays, and how often its interval has the exact ratio.
//!
//! `cargo run --release -p glasscache-sim --features parquet --example live_curve -- [TRACE...]`
//! Three loads that are generated here, and the given traces at a fifth of their values; eight sizes of the store and
//! twenty samples of the keys each.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "an example reads its arguments and the traces that the pure crate is handed"
)]
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "an example prints its results, and ends where it cannot"
)]

mod replay;

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;

use glasscache_sim::trace::{Batch, Columns, open};
use glasscache_store::CurveState;
use replay::{
    Load, ROWS_PER_PASS, VALUE_BYTES_DEFAULT, cluster_with_ttls, replay, with_overwrites,
    with_sizes,
};

const SAMPLES: u64 = 20;

/// Rows of a trace in a second, whose times are row numbers. A live curve is that of the last hour, and an exact replay
/// counts all rows, so a trace has to be shorter: up to seven million rows.
const RECORDED_RATE: u64 = 2000;

/// A recorded trace, by its file.
struct Recorded(PathBuf);

impl Load for Recorded {
    fn for_each(&self, visit: &mut dyn FnMut(&Batch)) {
        let columns = Columns { time: true, size: true, op: true, ttl: false };
        let file = File::open(&self.0).unwrap();
        let mut stream = open(&self.0.to_string_lossy(), file, columns).unwrap();
        let (mut batch, mut row_number) = (Batch::default(), 0);
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

impl Recorded {
    /// Bytes of all different values, as last stored.
    fn footprint_bytes(&self) -> u64 {
        let mut sizes = HashMap::new();
        self.for_each(&mut |batch| {
            for (&key, size) in batch.key.iter().zip(&batch.size) {
                sizes.insert(key, size.unwrap_or(VALUE_BYTES_DEFAULT));
            }
        });
        sizes.values().map(|&size| u64::from(size)).sum()
    }
}

/// A load with its name and the memory of its store in bytes.
type MeasuredLoad = (String, Box<dyn Load>, u64);

/// The generated loads, and the recorded ones with a store for a fifth of their values.
fn measured_loads(traces: impl Iterator<Item = PathBuf>) -> Vec<MeasuredLoad> {
    let mut loads: Vec<MeasuredLoad> = vec![
        ("ttls".to_owned(), Box::new(cluster_with_ttls()), 4 << 20),
        ("overwrites".to_owned(), Box::new(with_overwrites()), 4 << 20),
        ("sizes".to_owned(), Box::new(with_sizes()), 8 << 20),
    ];
    for trace in traces {
        let name = trace.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let load = Recorded(trace);
        let memory_bytes = (load.footprint_bytes() / 5).max(4 << 20);
        loads.push((name, Box::new(load), memory_bytes));
    }
    loads
}

fn main() {
    println!("load              | mean error | worst  | of points | interval holds | without 1 x");
    for (name, load, memory_bytes) in measured_loads(std::env::args_os().skip(1).map(PathBuf::from))
    {
        let (mut exact, mut errors, mut held) = (Vec::new(), Vec::new(), Vec::new());
        for seed in 0..SAMPLES {
            let curve =
                replay(&*load, memory_bytes, 1000 + seed, Some(ROWS_PER_PASS)).curve.unwrap();
            if curve.state != CurveState::Ok {
                println!("{name}: no curve of {memory_bytes} bytes: {:?}", curve.state);
                continue;
            }
            if exact.is_empty() {
                let sizes = curve.rows.iter().map(|row| row.memory_bytes);
                exact = sizes.map(|size| replay(&*load, size, 2, None).miss_ratio).collect();
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
