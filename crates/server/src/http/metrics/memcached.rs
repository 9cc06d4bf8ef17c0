//! The metrics of `prometheus/memcached_exporter` 0.16.0 with its names, types and labels, so that dashboards and alerts
//! that were made for it work without it. Those of memcached's disk and proxy are left out, as the exporter does.

use std::collections::BTreeMap;

use super::StatRows;
use super::text::{Exposition, Kind};

/// The tables from which they are read.
pub(super) struct Tables {
    pub(super) general: StatRows,
    pub(super) settings: StatRows,
    pub(super) items: StatRows,
    pub(super) slabs: StatRows,
}

/// One metric: its name behind `memcached_`, its type, what it is, and the row that it is read from.
struct Metric(&'static str, Kind, &'static str, &'static str);

const COUNTER: Kind = Kind::Counter;
const GAUGE: Kind = Kind::Gauge;

#[rustfmt::skip]
const GENERAL_METRICS: &[Metric] = &[
    Metric("uptime_seconds", COUNTER, "Seconds since the start.", "uptime"),
    Metric("time_seconds", GAUGE, "Unix time of the server.", "time"),
    Metric("process_user_cpu_seconds_total", COUNTER, "CPU time in user mode.", "rusage_user"),
    Metric("process_system_cpu_seconds_total", COUNTER, "CPU time in kernel mode.", "rusage_system"),
    Metric("current_bytes", GAUGE, "Memory in use: items, their index and buffers.", "bytes"),
    Metric("limit_bytes", GAUGE, "Memory limit.", "limit_maxbytes"),
    Metric("current_items", GAUGE, "Items.", "curr_items"),
    Metric("items_total", COUNTER, "Items stored.", "total_items"),
    Metric("read_bytes_total", COUNTER, "Bytes received from clients.", "bytes_read"),
    Metric("written_bytes_total", COUNTER, "Bytes sent to clients.", "bytes_written"),
    Metric("current_connections", GAUGE, "Open connections.", "curr_connections"),
    Metric("connections_total", COUNTER, "Connections accepted.", "total_connections"),
    Metric("connections_rejected_total", COUNTER, "Connections refused because of the limit.", "rejected_connections"),
    Metric("connections_yielded_total", COUNTER, "Times that a connection yielded to others.", "conn_yields"),
    Metric("connections_listener_disabled_total", COUNTER, "Times that accepting paused because of the limit.", "listen_disabled_num"),
    Metric("items_evicted_total", COUNTER, "Items removed for room.", "evictions"),
    Metric("items_reclaimed_total", COUNTER, "Expired items whose memory was reclaimed.", "reclaimed"),
    Metric("item_too_large_total", COUNTER, "Values refused because of their size.", "store_too_large"),
    Metric("item_no_memory_total", COUNTER, "Values refused because there was no memory.", "store_no_memory"),
    Metric("lru_crawler_starts_total", COUNTER, "Always 0: this server has no LRU crawler.", "lru_crawler_starts"),
    Metric("direct_reclaims_total", COUNTER, "Always 0: this server has no slabs.", "direct_reclaims"),
    Metric("lru_crawler_items_checked_total", COUNTER, "Always 0: this server has no LRU crawler.", "crawler_items_checked"),
    Metric("lru_crawler_reclaimed_total", COUNTER, "Always 0: this server has no LRU crawler.", "crawler_reclaimed"),
    Metric("lru_crawler_moves_to_cold_total", COUNTER, "Always 0: this server has no segmented LRU.", "moves_to_cold"),
    Metric("lru_crawler_moves_to_warm_total", COUNTER, "Always 0: this server has no segmented LRU.", "moves_to_warm"),
    Metric("lru_crawler_moves_within_lru_total", COUNTER, "Always 0: this server has no segmented LRU.", "moves_within_lru"),
    Metric("accepting_connections", GAUGE, "1 while connections are accepted.", "accepting_conns"),
];

#[rustfmt::skip]
const CRAWLER_SETTINGS: &[Metric] = &[
    Metric("lru_crawler_enabled", GAUGE, "Setting lru_crawler.", "lru_crawler"),
    Metric("lru_crawler_sleep", GAUGE, "Setting lru_crawler_sleep.", "lru_crawler_sleep"),
    Metric("lru_crawler_to_crawl", GAUGE, "Setting lru_crawler_tocrawl.", "lru_crawler_tocrawl"),
    Metric("lru_crawler_maintainer_thread", GAUGE, "Setting lru_maintainer.", "lru_maintainer_thread"),
    Metric("lru_crawler_hot_percent", GAUGE, "Setting hot_lru_pct.", "hot_lru_pct"),
    Metric("lru_crawler_warm_percent", GAUGE, "Setting warm_lru_pct.", "warm_lru_pct"),
    Metric("lru_crawler_hot_max_factor", GAUGE, "Setting hot_max_factor.", "hot_max_factor"),
    Metric("lru_crawler_warm_max_factor", GAUGE, "Setting warm_max_factor.", "warm_max_factor"),
];

#[rustfmt::skip]
const ITEM_METRICS: &[Metric] = &[
    Metric("slab_current_items", GAUGE, "Items of the class.", "number"),
    Metric("slab_items_age_seconds", GAUGE, "Age of the item that is evicted next.", "age"),
    Metric("slab_items_crawler_reclaimed_total", COUNTER, "Always 0: this server has no LRU crawler.", "crawler_reclaimed"),
    Metric("slab_items_evicted_total", COUNTER, "Items removed for room.", "evicted"),
    Metric("slab_items_evicted_nonzero_total", COUNTER, "Evicted items that had a TTL.", "evicted_nonzero"),
    Metric("slab_items_evicted_time_seconds", COUNTER, "Seconds for which the last evicted item was not used.", "evicted_time"),
    Metric("slab_items_evicted_unfetched_total", COUNTER, "Evicted items that were never read.", "evicted_unfetched"),
    Metric("slab_items_expired_unfetched_total", COUNTER, "Expired items that were never read.", "expired_unfetched"),
    Metric("slab_items_outofmemory_total", COUNTER, "Values refused because there was no memory.", "outofmemory"),
    Metric("slab_items_reclaimed_total", COUNTER, "Expired items whose memory was reclaimed.", "reclaimed"),
    Metric("slab_items_tailrepairs_total", COUNTER, "Always 0: this server has no LRU tail that could need repair.", "tailrepairs"),
    Metric("slab_mem_requested_bytes", COUNTER, "Bytes of the items of the class.", "mem_requested"),
    Metric("slab_items_moves_to_cold", COUNTER, "Always 0: this server has no segmented LRU.", "moves_to_cold"),
    Metric("slab_items_moves_to_warm", COUNTER, "Always 0: this server has no segmented LRU.", "moves_to_warm"),
    Metric("slab_items_moves_within_lru", COUNTER, "Always 0: this server has no segmented LRU.", "moves_within_lru"),
    Metric("slab_hot_items", GAUGE, "Always 0: this server has no segmented LRU.", "number_hot"),
    Metric("slab_warm_items", GAUGE, "Always 0: this server has no segmented LRU.", "number_warm"),
    Metric("slab_cold_items", GAUGE, "Items of the class.", "number_cold"),
    Metric("slab_temporary_items", GAUGE, "Always 0: this server has no segmented LRU.", "number_temp"),
    Metric("slab_hot_age_seconds", GAUGE, "Always 0: this server has no segmented LRU.", "age_hot"),
    Metric("slab_warm_age_seconds", GAUGE, "Always 0: this server has no segmented LRU.", "age_warm"),
];

#[rustfmt::skip]
const SLAB_METRICS: &[Metric] = &[
    Metric("slab_chunk_size_bytes", GAUGE, "Size of a chunk of the class.", "chunk_size"),
    Metric("slab_chunks_per_page", GAUGE, "Chunks in a page of the class.", "chunks_per_page"),
    Metric("slab_current_pages", GAUGE, "Pages that the items of the class would take.", "total_pages"),
    Metric("slab_current_chunks", GAUGE, "Chunks of these pages.", "total_chunks"),
    Metric("slab_chunks_used", GAUGE, "Chunks that would have an item.", "used_chunks"),
    Metric("slab_chunks_free", GAUGE, "Chunks that would have none.", "free_chunks"),
    Metric("slab_chunks_free_end", GAUGE, "Always 0: there are no pages.", "free_chunks_end"),
];

/// Commands that hit or miss.
const COMMANDS: [&str; 6] = ["get", "delete", "incr", "decr", "cas", "touch"];

/// Appends all metrics that apply.
pub(super) fn write(tables: &Tables, out: &mut Exposition) {
    let Tables { general, settings, items, slabs } = tables;
    out.single("memcached_up", GAUGE, "Always 1: the server itself reports.", 1);
    let version = general.get("version").map_or("", String::as_str);
    out.begin("memcached_version", GAUGE, "Version of the server, as a label.");
    out.sample("memcached_version", &[("version", version)], 1);
    write_plain(GENERAL_METRICS, general, out);
    write_plain(
        &[Metric(
            "malloced_bytes",
            GAUGE,
            "Memory that the items would take in slabs.",
            "total_malloced",
        )],
        slabs,
        out,
    );
    write_plain(
        &[Metric("max_connections", GAUGE, "Limit of open connections.", "maxconns")],
        settings,
        out,
    );
    if settings.get("lru_crawler").is_some_and(|value| value == "yes") {
        write_plain(CRAWLER_SETTINGS, settings, out);
    }
    write_commands(general, out);
    let items = split_by_class(items, "items:");
    write_by_class(ITEM_METRICS, &items, out);
    write_segment_hits(&items, out);
    let slabs = split_by_class(slabs, "");
    write_by_class(SLAB_METRICS, &slabs, out);
    write_class_commands(&slabs, out);
}

/// A value in the form of a number: settings are also `yes` and `no`.
fn to_number(value: &str) -> &str {
    match value {
        "yes" => "1",
        "no" => "0",
        number => number,
    }
}

fn write_plain(metrics: &[Metric], rows: &StatRows, out: &mut Exposition) {
    for Metric(name, kind, help, row) in metrics {
        if let Some(value) = rows.get(*row) {
            out.single(&format!("memcached_{name}"), *kind, help, to_number(value));
        }
    }
}

/// Rows by their class and their name in it.
type ClassRows<'r> = BTreeMap<u32, BTreeMap<&'r str, &'r str>>;

/// The rows `<prefix><class>:<name>`.
fn split_by_class<'r>(rows: &'r StatRows, prefix: &str) -> ClassRows<'r> {
    let mut by_class = ClassRows::new();
    for (key, value) in rows {
        let split = key.strip_prefix(prefix).and_then(|rest| rest.split_once(':'));
        if let Some((class, name)) =
            split.and_then(|(class, name)| Some((class.parse().ok()?, name)))
        {
            by_class.entry(class).or_default().insert(name, value);
        }
    }
    by_class
}

fn write_by_class(metrics: &[Metric], by_class: &ClassRows<'_>, out: &mut Exposition) {
    for Metric(name, kind, help, row) in metrics {
        let name = format!("memcached_{name}");
        let mut samples =
            by_class.iter().filter_map(|(class, rows)| Some((class, *rows.get(row)?))).peekable();
        if samples.peek().is_some() {
            out.begin(&name, *kind, help);
        }
        for (class, value) in samples {
            out.sample(&name, &[("slab", &class.to_string())], value);
        }
    }
}

fn write_segment_hits(items: &ClassRows<'_>, out: &mut Exposition) {
    const NAME: &str = "memcached_slab_lru_hits_total";
    const SEGMENTS: [(&str, &str); 4] = [
        ("hits_to_hot", "hot"),
        ("hits_to_warm", "warm"),
        ("hits_to_cold", "cold"),
        ("hits_to_temp", "temporary"),
    ];
    if !items.values().any(|rows| rows.contains_key("hits_to_cold")) {
        return;
    }
    out.begin(NAME, COUNTER, "Hits. All of them are reported for the cold segment, because this server has no segmented LRU.");
    for (class, rows) in items {
        for (row, segment) in SEGMENTS {
            if let Some(value) = rows.get(row) {
                out.sample(NAME, &[("slab", &class.to_string()), ("lru", segment)], value);
            }
        }
    }
}

fn write_commands(general: &StatRows, out: &mut Exposition) {
    const NAME: &str = "memcached_commands_total";
    out.begin(NAME, COUNTER, "Commands by their outcome.");
    let count =
        |row: &str| general.get(row).and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
    let mut write = |command: &str, status: &str, value: u64| {
        out.sample(NAME, &[("command", command), ("status", status)], value);
    };
    for command in COMMANDS {
        write(command, "hit", count(&format!("{command}_hits")));
        write(command, "miss", count(&format!("{command}_misses")));
    }
    write("cas", "badval", count("cas_badval"));
    write("flush", "hit", count("cmd_flush"));
    // A cas is among the storage commands, and has its own status.
    let cas = count("cas_hits") + count("cas_misses") + count("cas_badval");
    write("set", "hit", count("cmd_set").saturating_sub(cas));
}

fn write_class_commands(slabs: &ClassRows<'_>, out: &mut Exposition) {
    const NAME: &str = "memcached_slab_commands_total";
    if slabs.is_empty() {
        return;
    }
    out.begin(NAME, COUNTER, "Commands by class and outcome.");
    for (class, rows) in slabs {
        let class = class.to_string();
        let count =
            |row: &str| rows.get(row).and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
        let mut write = |command: &str, status: &str, value: u64| {
            out.sample(NAME, &[("slab", &class), ("command", command), ("status", status)], value);
        };
        for command in COMMANDS {
            write(command, "hit", count(&format!("{command}_hits")));
        }
        write("cas", "badval", count("cas_badval"));
        write(
            "set",
            "hit",
            count("cmd_set").saturating_sub(count("cas_hits") + count("cas_badval")),
        );
    }
}
