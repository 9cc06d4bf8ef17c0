//! `curve --server`: the miss ratio over `-m`, the memory flag of memcached and of ours.
//!
//! What a memcached holds follows from its slab classes and the sizes of the values: the items that fit into `-m`, whose
//! misses are those of LRU with as many objects. Ours is replayed in its own store, which counts headers and index.
//! Both take the mix of sizes of the whole trace for that of the items they hold.

use std::fmt::Write as _;

use glasscache_sim::curve::mattson;
use glasscache_sim::page::{Chart, Page, Series, Table};
use glasscache_sim::policy::PolicyKind;
use glasscache_sim::replay::{Prepared, Task};
use glasscache_sim::slabs::classes::{PAGE_BYTES, SlabClasses, SlabConfig, head_bytes};
use glasscache_sim::slabs::demand::Demand;
use glasscache_sim::slabs::plan::{Plan, items_in_segments};
use glasscache_sim::trace::intern::Interned;
use serde_json::{Value, json};

use super::cost::{Costs, cheapest};
use super::summary::percent;
use super::table::describe_trace;
use super::{Args, SERVER_STORE_BYTES_MIN, sizes};
use crate::files::write_whole;
use crate::output::{Exit, Failure, Output};
use crate::page_table::text;
use crate::parallel::in_parallel;
use crate::table::count;
use crate::word_wrap::wrap;

/// Pages for each class in use from which the mix of sizes decides how many items a memcached holds: each class gets
/// its first page beyond -m.
const PAGES_PER_CLASS_MIN: u64 = 2;

/// Bytes of a key in a replay of the server's own store.
const REPLAYED_KEY_BYTES: u32 = 16;

/// What one `-m` gives.
#[derive(Debug, Clone, Copy, serde::Serialize)]
struct Row {
    m_bytes: u64,
    /// `None` where its classes would have a page or two each, and the mix of sizes decides nothing.
    memcached_items: Option<u64>,
    memcached_miss_ratio: Option<f64>,
    glasscache_items: u64,
    glasscache_miss_ratio: f64,
    /// The same with 10 % more memory.
    glasscache_with_more: f64,
}

/// Computes and prints the curve over `-m`.
pub(super) fn run(args: &Args, out: &Output, trace: &Prepared) -> Result<Exit, Failure> {
    let costs = Costs::of(args);
    let sizes = memory_sizes(args, trace)?;
    let demand = demand(trace, args.key_bytes());
    let plan = Plan::new(&SlabClasses::new(&SlabConfig::default()), &demand);
    let objects = Prepared::new(Interned {
        ids: trace.ids().to_vec(),
        keys: trace.keys().to_vec(),
        timeline: trace.timeline().cloned(),
        ..Interned::default()
    });
    let curve = mattson(&objects, &|| true);
    let curve = curve.ok_or_else(|| Failure::new(Exit::Interrupted, "stopped"))?;
    // The replay has keys of its own length: the same share of the memory is left for values.
    let replayed = items_in_segments(&self::demand(trace, REPLAYED_KEY_BYTES), 1 << 30);
    let scale = items_in_segments(&demand, 1 << 30) as f64 / replayed.max(1) as f64;
    let replays = sizes.len() * 2;
    let done = in_parallel(replays, args.threads, "replaying", |index| {
        let factor = if index % 2 == 0 { scale } else { scale * 1.1 };
        let capacity = (sizes[index / 2] as f64 * factor) as u64;
        let task = Task {
            policy: PolicyKind::ServerStore,
            capacity: capacity.max(SERVER_STORE_BYTES_MIN),
            seed: args.seed,
        };
        task.run(trace, &|| true)
            .map_or(1.0, |result| result.miss_ratio())
    })?;
    let rows: Vec<Row> = sizes
        .iter()
        .enumerate()
        .filter_map(|(index, &m_bytes)| {
            let has_pages =
                m_bytes >= PAGES_PER_CLASS_MIN * plan.used_classes() as u64 * u64::from(PAGE_BYTES);
            let items = has_pages.then(|| plan.items_that_fit(m_bytes));
            Some(Row {
                m_bytes,
                memcached_items: items,
                memcached_miss_ratio: items.map(|items| curve.miss_ratio(items)),
                glasscache_items: items_in_segments(&demand, m_bytes),
                glasscache_miss_ratio: *done.results.get(2 * index)?.as_ref()?,
                glasscache_with_more: *done.results.get(2 * index + 1)?.as_ref()?,
            })
        })
        .collect();
    if rows.is_empty() {
        return Err(Failure::new(
            Exit::Interrupted,
            "stopped before the first size was done",
        ));
    }
    print(args, out, trace, &rows, costs)?;
    if done.is_stopped {
        eprintln!("stopped: this is what was known by then");
        return Ok(Exit::Interrupted);
    }
    Ok(Exit::Success)
}

/// The sizes of `--capacities`, else powers of two around the memory that everything needs.
fn memory_sizes(args: &Args, trace: &Prepared) -> Result<Vec<u64>, Failure> {
    if args.capacities.is_empty() {
        let all_mib = (trace.footprint() >> 20).max(1).next_power_of_two();
        let sizes = (0..7).map(|step| (all_mib * 2) >> step);
        let mut sizes: Vec<u64> = sizes.filter(|&mib| mib >= 2).map(|mib| mib << 20).collect();
        sizes.sort_unstable();
        return Ok(sizes);
    }
    let sizes = sizes::parse_all(&args.capacities, trace)?;
    if let Some(size) = sizes.iter().find(|&&size| size < SERVER_STORE_BYTES_MIN) {
        let fault = format!("a server needs {SERVER_STORE_BYTES_MIN} bytes, not {size}");
        return Err(Failure::usage(fault).hint("--capacities 64m,128m are values of -m"));
    }
    Ok(sizes)
}

/// The chunks that one item for each object needs.
fn demand(trace: &Prepared, key_bytes: u32) -> Demand {
    let (config, head) = (SlabConfig::default(), head_bytes(key_bytes, false));
    let mut demand = Demand::default();
    for &size in trace.sizes() {
        demand.add(&config, head, size, 1);
    }
    demand
}

fn print(
    args: &Args,
    out: &Output,
    trace: &Prepared,
    rows: &[Row],
    costs: Option<Costs>,
) -> Result<(), Failure> {
    let sentence = sentence(args, trace, rows, costs);
    if let Some(path) = &args.html {
        write_whole(path, page(args, trace, rows, &sentence).as_bytes())?;
    }
    if out.is_json() {
        let cost = |row: &Row| costs.map(|costs| cost_s(row, trace, costs));
        let row = |row: &Row| {
            let mut document = json!(row);
            document["cost_s"] = json!(cost(row));
            document
        };
        let best = costs.and_then(|costs| cheapest_row(rows, trace, costs));
        let document: Value = json!({
            "sentence": sentence,
            "key_bytes": args.key_bytes(),
            "server": rows.iter().map(row).collect::<Vec<_>>(),
            "cheapest_m_bytes": best.map(|row| row.m_bytes),
        });
        out.document(&document);
        return Ok(());
    }
    out.line(wrap(&sentence))?;
    out.line("")?;
    out.line(text(&table(args, rows)).trim_end())?;
    out.line(wrap(&format!(
        "{}. Keys count {} bytes (--key-bytes); memcached has its default slab classes, - where \
         they would have less than two pages each.",
        describe_trace(args, trace),
        args.key_bytes()
    )))
}

/// The size that has the wanted miss ratio, what more memory would give, and the cheapest size.
fn sentence(args: &Args, trace: &Prepared, rows: &[Row], costs: Option<Costs>) -> String {
    let wanted = args.misses / 100.0;
    let is_enough = |row: &&Row| row.glasscache_miss_ratio <= wanted;
    let Some(row) = rows.iter().find(is_enough).or(rows.last()) else {
        return String::new();
    };
    let points = 100.0 * (row.glasscache_miss_ratio - row.glasscache_with_more).max(0.0);
    let mut sentence = format!(
        "-m {} gives {} hits, 10 % more memory {points:.1} points",
        row.m_bytes >> 20,
        percent(1.0 - row.glasscache_miss_ratio)
    );
    match row.memcached_miss_ratio {
        Some(misses) => {
            let hits = percent(1.0 - misses);
            let _ = write!(sentence, "; a memcached with the same -m has {hits} hits.");
        }
        None => sentence.push('.'),
    }
    if let Some(best) = costs.and_then(|costs| cheapest_row(rows, trace, costs)) {
        let _ = write!(sentence, " The cheapest is -m {}.", best.m_bytes >> 20);
    }
    sentence
}

fn cost_s(row: &Row, trace: &Prepared, costs: Costs) -> f64 {
    let misses = row.glasscache_miss_ratio * trace.requests() as f64;
    costs.seconds(row.m_bytes, misses)
}

fn cheapest_row(rows: &[Row], trace: &Prepared, costs: Costs) -> Option<Row> {
    cheapest(rows.iter().copied(), |row| cost_s(row, trace, costs))
}

fn table(args: &Args, rows: &[Row]) -> Table {
    let header = [
        "-m",
        "memcached items",
        "misses",
        "glasscache items",
        "misses",
    ];
    let row = |row: &Row| {
        vec![
            format!("{} MiB", count(row.m_bytes >> 20)),
            row.memcached_items.map_or_else(|| "-".to_owned(), count),
            row.memcached_miss_ratio
                .map_or_else(|| "-".to_owned(), percent),
            count(row.glasscache_items),
            percent(row.glasscache_miss_ratio),
        ]
    };
    let name = args.trace.file_name().unwrap_or_default().to_string_lossy();
    Table {
        title: format!("Misses of {name} by -m"),
        header: header.map(str::to_owned).to_vec(),
        rows: rows.iter().map(row).collect(),
    }
}

fn page(args: &Args, trace: &Prepared, rows: &[Row], sentence: &str) -> String {
    let series = |label: &str, figure: fn(&Row) -> Option<f64>| Series {
        label: label.to_owned(),
        points: rows
            .iter()
            .filter_map(|row| Some(((row.m_bytes >> 20) as f64, figure(row)?)))
            .collect(),
        ..Series::default()
    };
    Page {
        title: format!("Misses by memory of {}", describe_trace(args, trace)),
        sentence: sentence.to_owned(),
        charts: vec![Chart {
            title: "Miss ratio by -m".to_owned(),
            x_label: "-m (MiB, logarithmic)".to_owned(),
            x_log: true,
            y_label: "miss ratio (misses / requests)".to_owned(),
            series: vec![
                series("glasscache", |row| Some(row.glasscache_miss_ratio)),
                series("memcached", |row| row.memcached_miss_ratio),
            ],
            ..Chart::default()
        }],
        tables: vec![table(args, rows)],
        notes: vec![format!(
            "glasscache {}, seed {}; keys count {} bytes.",
            env!("CARGO_PKG_VERSION"),
            args.seed,
            args.key_bytes()
        )],
    }
    .to_html()
}
