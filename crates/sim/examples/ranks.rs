//! The ranks of policies over traces: the mean ratio of the misses to S3-FIFO's, as published comparisons have it.
//!
//! `cargo run --release -p glasscache-sim --features parquet,own-policy --example ranks -- TRACE...` Objects count 1,
//! and the cache has 1 and 10 % of them. Printed in Markdown: a row for each trace and size, then the means. `own` is the
//! server's policy with its default settings, `best` the policy of these that misses least on each trace, Belady left
//! aside. The last column has by how much Belady and, in brackets, S3-FIFO miss less than FIFO.

#![expect(clippy::disallowed_methods, reason = "an example reads its arguments")]
#![allow(clippy::print_stdout, reason = "an example prints its results")]

use glasscache_sim::policy::{Goal, PolicyKind};
use glasscache_sim::replay::{PreparedTrace, Task};
use glasscache_sim::trace::intern::{InternedTrace, Mode};
use glasscache_sim::trace::{Columns, open};

const SHARES: [f64; 2] = [0.01, 0.1];

const POLICIES: [(&str, PolicyKind); 13] = [
    ("own", PolicyKind::ServerStore),
    ("tuned", PolicyKind::Tuned(Goal::Objects)),
    ("2Q", PolicyKind::TwoQ),
    ("SLRU", PolicyKind::Slru),
    ("SIEVE", PolicyKind::Sieve),
    ("LIRS", PolicyKind::Lirs),
    ("LHD", PolicyKind::Lhd),
    ("W-TinyLFU", PolicyKind::WTinyLfu),
    ("ARC", PolicyKind::Arc),
    ("LeCaR", PolicyKind::LeCar),
    ("LRU", PolicyKind::Lru),
    ("FIFO", PolicyKind::Fifo),
    ("GDSF", PolicyKind::Gdsf),
];

/// One row: the ratios to S3-FIFO, and two savings against FIFO in per cent.
struct Row {
    ratios: Vec<f64>,
    belady_percent: f64,
    s3fifo_percent: f64,
}

impl Row {
    fn measure(trace: &PreparedTrace, capacity: u64) -> Self {
        let misses = |policy: PolicyKind| {
            let result = Task { policy, capacity, seed: 1 }.run(trace, &|| true);
            result.expect("it is not stopped").misses as f64
        };
        let (s3fifo, fifo) = (misses(PolicyKind::S3Fifo), misses(PolicyKind::Fifo));
        let mut ratios: Vec<f64> =
            POLICIES.iter().map(|(_, policy)| misses(*policy) / s3fifo).collect();
        ratios.push(ratios.iter().copied().fold(1.0, f64::min));
        let saved_percent = |misses: f64| 100.0 * (1.0 - misses / fifo);
        Self {
            ratios,
            belady_percent: saved_percent(misses(PolicyKind::Belady)),
            s3fifo_percent: saved_percent(s3fifo),
        }
    }

    fn mean(rows: &[Self]) -> Self {
        let mean = |of: &dyn Fn(&Self) -> f64| rows.iter().map(of).sum::<f64>() / rows.len() as f64;
        Self {
            ratios: (0..=POLICIES.len()).map(|index| mean(&|row| row.ratios[index])).collect(),
            belady_percent: mean(&|row| row.belady_percent),
            s3fifo_percent: mean(&|row| row.s3fifo_percent),
        }
    }

    fn print(&self, name: &str) {
        let ratios: Vec<String> = self.ratios.iter().map(|ratio| format!("{ratio:.3}")).collect();
        let (belady, s3fifo) = (self.belady_percent, self.s3fifo_percent);
        println!("| {name} | {} | {belady:.1} % ({s3fifo:.1}) |", ratios.join(" | "));
    }
}

#[expect(clippy::disallowed_types, reason = "the example opens what the pure crate is handed")]
fn read_trace(path: &str) -> PreparedTrace {
    let file = std::fs::File::open(path).expect("a trace");
    let mut stream = open(path, file, Columns::KEY).expect("a key stream");
    let interned = InternedTrace::read(path, &mut *stream, Mode::Objects).expect("a key stream");
    PreparedTrace::new(interned)
}

fn main() {
    let names: Vec<&str> = POLICIES.iter().map(|(name, _)| *name).collect();
    println!("| misses over S3-FIFO's | {} | best | Belady |", names.join(" | "));
    println!("|---{}", "|---".repeat(POLICIES.len() + 2) + "|");
    let mut rows = SHARES.map(|_| Vec::new());
    for path in std::env::args().skip(1) {
        let trace = read_trace(&path);
        let name = path.rsplit('/').next().unwrap_or(&path).trim_end_matches(".parquet");
        for (share, rows) in SHARES.iter().zip(&mut rows) {
            let capacity = ((trace.distinct() as f64 * share).round() as u64).max(1);
            let row = Row::measure(&trace, capacity);
            row.print(&format!("{name}, {} %", share * 100.0));
            rows.push(row);
        }
    }
    for (share, rows) in SHARES.iter().zip(&rows).filter(|(_, rows)| !rows.is_empty()) {
        Row::mean(rows).print(&format!("mean, {} %", share * 100.0));
    }
}
