//! `curve --server`: the miss ratio over `-m`, the memory flag of memcached and of ours.
//!
//! `glasscache_sim::curve::ServerMemory` forecasts both servers; this module chooses the sizes and prints.

use std::fmt::Write as _;

use glasscache_lab::report::{Report, ReportTable};
use glasscache_lab::text::format_count;
use glasscache_sim::curve::{SERVER_STORE_BYTES_MIN, ServerMemory};
use glasscache_sim::page::{Chart, Mark, Series};
use glasscache_sim::replay::PreparedTrace;
use serde_json::{Value, json};

use super::cost::{Costs, find_cheapest};
use super::summary::format_percent;
use super::table::describe_trace;
use super::{Args, sizes};
use crate::output::{Exit, Failure, Output};
use crate::parallel::run_in_parallel;
use crate::report::{Detail, print_report, write_report_page};

/// Ours, ours with 10 % more memory, memcached.
const REPLAYS_PER_SIZE: usize = 3;

/// What one `-m` gives.
#[derive(Debug, Clone, Copy, serde::Serialize)]
struct MemorySizeRow {
    m_bytes: u64,
    /// `None` where its classes would have a page or two each, and the mix of sizes decides nothing.
    memcached_items: Option<u64>,
    memcached_miss_ratio: f64,
    glasscache_items: u64,
    glasscache_miss_ratio: f64,
    /// The miss ratio of glasscache with 10 % more memory.
    #[serde(rename = "glasscache_with_more")]
    glasscache_miss_ratio_with_more_memory: f64,
}

/// Computes and prints the curve over `-m`.
pub(super) fn run(args: &Args, out: &Output, trace: &PreparedTrace) -> Result<Exit, Failure> {
    let costs = Costs::from_args(args);
    let memory_sizes = choose_memory_sizes(args, trace)?;
    let server_memory = ServerMemory::new(trace, args.key_bytes());
    let replay_count = memory_sizes.len() * REPLAYS_PER_SIZE;
    let replay_outcome =
        run_in_parallel(replay_count, args.threads, "replaying", |replay_index| {
            let m_bytes = memory_sizes[replay_index / REPLAYS_PER_SIZE];
            match replay_index % REPLAYS_PER_SIZE {
                0 => server_memory.glasscache_miss_ratio(m_bytes, args.seed),
                1 => server_memory.glasscache_miss_ratio(m_bytes + m_bytes / 10, args.seed),
                _ => server_memory.memcached_miss_ratio(m_bytes),
            }
        })?;
    let rows: Vec<MemorySizeRow> = memory_sizes
        .iter()
        .enumerate()
        .filter_map(|(size_index, &m_bytes)| {
            let first_replay_index = size_index * REPLAYS_PER_SIZE;
            let miss_ratio = |replay_offset: usize| {
                *replay_outcome.results.get(first_replay_index + replay_offset)?
            };
            Some(MemorySizeRow {
                m_bytes,
                memcached_items: server_memory.memcached_items(m_bytes),
                memcached_miss_ratio: miss_ratio(2)?,
                glasscache_items: server_memory.glasscache_items(m_bytes),
                glasscache_miss_ratio: miss_ratio(0)?,
                glasscache_miss_ratio_with_more_memory: miss_ratio(1)?,
            })
        })
        .collect();
    if rows.is_empty() {
        return Err(Failure::new(Exit::Interrupted, "stopped before the first size was done"));
    }
    let report = build_report(args, trace, &rows, costs);
    print_report(&report, out, Detail::default())?;
    if replay_outcome.is_stopped {
        return Err(Failure::stopped());
    }
    write_report_page(report, args.html.as_deref(), &[&args.trace_path])?;
    Ok(Exit::Success)
}

/// The sizes of `--capacities`, else powers of two around the memory that everything needs.
fn choose_memory_sizes(args: &Args, trace: &PreparedTrace) -> Result<Vec<u64>, Failure> {
    if args.capacities.is_empty() {
        let footprint_mib = (trace.footprint() >> 20).max(1).next_power_of_two();
        let sizes_mib = (0..7).map(|halvings| (footprint_mib * 2) >> halvings);
        let mut memory_sizes: Vec<u64> =
            sizes_mib.filter(|&mib| mib >= 2).map(|mib| mib << 20).collect();
        memory_sizes.sort_unstable();
        return Ok(memory_sizes);
    }
    let memory_sizes = sizes::parse_sizes(&args.capacities, trace)?;
    if let Some(size) = memory_sizes.iter().find(|&&size| size < SERVER_STORE_BYTES_MIN) {
        let message = format!("a server needs {SERVER_STORE_BYTES_MIN} bytes, not {size}");
        return Err(Failure::usage(message).with_hint("--capacities 64m,128m are values of -m"));
    }
    Ok(memory_sizes)
}

fn to_document(
    args: &Args,
    trace: &PreparedTrace,
    rows: &[MemorySizeRow],
    costs: Option<Costs>,
) -> Value {
    let to_row_document = |row: &MemorySizeRow| {
        let mut document = json!(row);
        document["cost_s"] = json!(costs.map(|costs| cost_s(row, trace, costs)));
        document
    };
    let cheapest_row = costs.and_then(|costs| find_cheapest_row(rows, trace, costs));
    json!({
        "key_bytes": args.key_bytes(),
        "server": rows.iter().map(to_row_document).collect::<Vec<_>>(),
        "cheapest_m_bytes": cheapest_row.map(|row| row.m_bytes),
    })
}

/// The size that has the wanted miss ratio, what more memory would give, and the cheapest size.
fn format_sentence(
    args: &Args,
    trace: &PreparedTrace,
    rows: &[MemorySizeRow],
    costs: Option<Costs>,
) -> String {
    let miss_ratio_wanted = args.misses_percent / 100.0;
    let is_enough = |row: &&MemorySizeRow| row.glasscache_miss_ratio <= miss_ratio_wanted;
    let Some(row) = rows.iter().find(is_enough).or(rows.last()) else {
        return String::new();
    };
    let percentage_points_gained =
        100.0 * (row.glasscache_miss_ratio - row.glasscache_miss_ratio_with_more_memory).max(0.0);
    let mut sentence = format!(
        "-m {} gives {} hits, 10 % more memory {percentage_points_gained:.1} points; \
         a memcached with the same -m has {} hits.",
        row.m_bytes >> 20,
        format_percent(1.0 - row.glasscache_miss_ratio),
        format_percent(1.0 - row.memcached_miss_ratio)
    );
    if let Some(cheapest_row) = costs.and_then(|costs| find_cheapest_row(rows, trace, costs)) {
        let _ = write!(sentence, " The cheapest is -m {}.", cheapest_row.m_bytes >> 20);
    }
    sentence
}

fn cost_s(row: &MemorySizeRow, trace: &PreparedTrace, costs: Costs) -> f64 {
    let misses = row.glasscache_miss_ratio * trace.requests() as f64;
    costs.total_seconds(row.m_bytes, misses)
}

fn find_cheapest_row(
    rows: &[MemorySizeRow],
    trace: &PreparedTrace,
    costs: Costs,
) -> Option<MemorySizeRow> {
    find_cheapest(rows.iter().copied(), |row| cost_s(row, trace, costs))
}

fn build_table(args: &Args, rows: &[MemorySizeRow]) -> ReportTable {
    let header = ["-m", "memcached items", "misses", "glasscache items", "misses"];
    let format_row = |row: &MemorySizeRow| {
        vec![
            format!("{} MiB", format_count(row.m_bytes >> 20)),
            row.memcached_items.map_or_else(|| "-".to_owned(), format_count),
            format_percent(row.memcached_miss_ratio),
            format_count(row.glasscache_items),
            format_percent(row.glasscache_miss_ratio),
        ]
    };
    let name = args.trace_path.file_name().unwrap_or_default().to_string_lossy();
    ReportTable::new(format!("Misses of {name} by -m"), header, rows.iter().map(format_row))
}

fn build_report(
    args: &Args,
    trace: &PreparedTrace,
    rows: &[MemorySizeRow],
    costs: Option<Costs>,
) -> Report {
    Report {
        title: format!("Misses by memory of {}", describe_trace(args, trace)),
        sentence: format_sentence(args, trace, rows, costs),
        tables: vec![build_table(args, rows)],
        series: vec![build_chart(args, rows)],
        notes: vec![format!(
            "{}. Keys count {} bytes (--key-bytes); memcached has its default slab classes; how many items it holds is \
             not known where they have less than two pages each. Seed {}.",
            describe_trace(args, trace),
            args.key_bytes(),
            args.seed
        )],
        result: to_document(args, trace, rows, costs),
        ..Report::default()
    }
}

fn build_chart(args: &Args, rows: &[MemorySizeRow]) -> Chart {
    let miss_ratio_wanted = args.misses_percent / 100.0;
    let new_series = |label: &str, figure: fn(&MemorySizeRow) -> f64| Series {
        label: label.to_owned(),
        points: rows.iter().map(|row| ((row.m_bytes >> 20) as f64, figure(row))).collect(),
        ..Series::default()
    };
    let is_enough = |row: &&MemorySizeRow| row.glasscache_miss_ratio <= miss_ratio_wanted;
    let mark = rows.iter().find(is_enough).map(|row| Mark {
        x: (row.m_bytes >> 20) as f64,
        label: format!(
            "-m {}: {} misses or fewer",
            row.m_bytes >> 20,
            format_percent(miss_ratio_wanted)
        ),
    });
    Chart {
        title: "Miss ratio by -m".to_owned(),
        x_label: "-m (MiB, logarithmic)".to_owned(),
        is_x_log: true,
        y_label: "miss ratio (misses / requests)".to_owned(),
        series: vec![
            new_series("glasscache", |row| row.glasscache_miss_ratio),
            new_series("memcached", |row| row.memcached_miss_ratio),
        ],
        marks: mark.into_iter().collect(),
        ..Chart::default()
    }
}
