//! What is in a request log: items per request, the most used items and prefixes, what never comes back, and how much
//! of the requests' time the cache takes.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;

use glasscache_lab::text::{format_count, format_count_of, format_percent};
use glasscache_record::{FolderLog, LeftOutPart};
use glasscache_sim::key_prefix::NO_PREFIX;
use glasscache_sim::page::{Table, format_short_bytes};
use glasscache_sim::strategy::cost::CostModel;
use glasscache_sim::strategy::prepare::PreparedLog;
use glasscache_sim::strategy::summary::{RequestsBySize, cache_time_share, items_histogram};
use glasscache_sim::strategy::today::Today;
use glasscache_sim::strategy::usage::{ItemUsage, LogUsage, PrefixUsage, per_day};
use glasscache_sim::trace::log::{NONE, RequestLog};
use serde_json::{Value, json};

use super::Contents;
use super::fact::Fact;
use crate::files::read_text;
use crate::output::{Exit, Failure};
use crate::traces::read_log;

/// Items and prefixes in the tables and in JSON.
const ROWS_MAX: usize = 1000;

/// Reads a request log and returns what it holds.
pub(super) fn inspect(folder: &Path) -> Result<Contents, Failure> {
    let FolderLog { log, left_out } = read_log(folder)?;
    let prepared = PreparedLog::new(&log, |_| true);
    let usage = LogUsage::new(&prepared);
    let histogram_rows = items_histogram(&log);
    let today = Today::of(&log);
    let mut facts = list_count_facts(&log);
    facts.push(new_today_fact(today.as_ref()));
    facts.push(new_cache_time_fact(folder, &log, &prepared, today.as_ref())?);
    facts.extend(list_usage_facts(&log, &usage, sum_log_file_bytes(folder)));
    facts.extend(list_range_facts(&log));
    facts.push(new_left_out_fact(&left_out));
    facts.push(Fact::in_table(
        "requests_by_items",
        histogram_rows.iter().map(build_histogram_document),
    ));
    let to_document = |item_usage: &ItemUsage| build_item_document(&log, *item_usage);
    let items = usage.by_item.iter().take(ROWS_MAX);
    facts.push(Fact::in_table("most_used_items", items.map(to_document)));
    let prefixes = usage.by_prefix.iter().take(ROWS_MAX);
    facts.push(Fact::in_table("most_used_prefixes", prefixes.map(build_prefix_document)));
    Ok(Contents {
        facts,
        tables: vec![
            build_histogram_table(&histogram_rows, log.requests.len()),
            build_items_table(&log, &usage),
            build_prefixes_table(&usage, log.requests.len()),
        ],
        sentence: format_sentence(&log, &usage, today.as_ref()),
    })
}

/// What the cache costs a request today, as a sentence before all others; nothing if calls were not recorded.
fn format_today(today: Option<&Today>) -> String {
    let Some(today) = today else { return String::new() };
    let of_request =
        today.request_ms.map_or_else(String::new, |ms| format!(" of {}", format_milliseconds(ms)));
    let decoding = if today.decode_ms > 0.0 {
        format!(", of which {} is decoding", format_milliseconds(today.decode_ms))
    } else {
        String::new()
    };
    let calls = today.calls;
    let wait = format_milliseconds(today.wait_ms);
    format!("Today: {calls:.1} calls, {wait}{of_request}{decoding}. ")
}

fn format_milliseconds(ms: f64) -> String {
    if ms < 0.1 { format!("{ms:.3} ms") } else { format!("{ms:.2} ms") }
}

fn new_today_fact(today: Option<&Today>) -> Fact {
    let document = today.map(|today| {
        json!({
            "requests": today.requests,
            "calls": today.calls,
            "writes": today.writes,
            "keys": today.keys,
            "wait_ms": today.wait_ms,
            "decode_ms": today.decode_ms,
            "request_ms": today.request_ms,
        })
    });
    let printed_text = today.map_or_else(
        || "unknown: calls were not recorded".to_owned(),
        |today| {
            format!(
                "a request makes {:.2} calls ({:.2} of them write) for {:.2} keys",
                today.calls, today.writes, today.keys
            )
        },
    );
    Fact::with_printed_text("today", document, Some(printed_text))
}

fn format_sentence(log: &RequestLog, usage: &LogUsage, today: Option<&Today>) -> String {
    let request_count = log.requests.len() as u64;
    let reads_text = format!(
        "{}{} read {}",
        format_today(today),
        format_count_of(request_count, "request", "requests"),
        format_count_of(usage.by_item.len() as u64, "item", "items")
    );
    match usage.never_repeated_reads_share() {
        Some(share) => format!(
            "{reads_text}, {:.1} a request; {} of the reads go to items that no other request reads.",
            usage.reads as f64 / request_count.max(1) as f64,
            format_percent(Some(share))
        ),
        None => format!("{reads_text}."),
    }
}

/// The counts of the log.
fn list_count_facts(log: &RequestLog) -> Vec<Fact> {
    let (items, requests) = (&log.items, &log.requests);
    let is_root = |parent: &&u32| **parent == NONE;
    let roots = items.parents.iter().filter(is_root).count();
    let instances: BTreeSet<u16> = requests.instances.iter().copied().collect();
    let item_bytes: u64 = items.sizes.iter().map(|&size| u64::from(size)).sum();
    let items_per_request = requests.items.len() as f64 / requests.len().max(1) as f64;
    vec![
        Fact::new("kind", "request log"),
        Fact::new("requests", requests.len()),
        Fact::new("items", items.len()),
        Fact::new("roots", roots),
        Fact::new("item_bytes", item_bytes),
        Fact::new("instances", instances.len()),
        Fact::new("routes", requests.route_names.len()),
        Fact::new("items_asked_for", requests.items.len()),
        Fact::new("items_per_request", items_per_request),
    ]
}

/// When the log begins and ends, and whether its end is missing.
fn list_range_facts(log: &RequestLog) -> [Fact; 3] {
    let times = &log.requests.times_us;
    [
        Fact::new("first_time_us", times.first().copied().unwrap_or(0)),
        Fact::new("last_time_us", times.last().copied().unwrap_or(0)),
        Fact::new("cut_within_a_row", log.truncated_after.is_some()),
    ]
}

/// The parts that are not in the log, each with its reason.
fn new_left_out_fact(left_out: &[LeftOutPart]) -> Fact {
    let parts: Vec<String> = left_out.iter().map(ToString::to_string).collect();
    let printed_text = match parts.as_slice() {
        [] => "none".to_owned(),
        parts => parts.join("; "),
    };
    Fact::with_printed_text("left_out_parts", parts, Some(printed_text))
}

/// What never comes back, and what a day brings.
fn list_usage_facts(log: &RequestLog, usage: &LogUsage, file_bytes: u64) -> [Fact; 4] {
    let times = &log.requests.times_us;
    let (first_us, last_us) = (times.first().copied(), times.last().copied());
    let by_day = |amount| per_day(amount, first_us.unwrap_or(0), last_us.unwrap_or(0));
    let new_bytes_fact = |name, bytes: Option<f64>| {
        Fact::with_printed_text(name, bytes, bytes.map(|bytes| format_short_bytes(bytes as u64)))
    };
    [
        new_share_fact("never_repeated_items_share", usage.never_repeated_items_share()),
        new_share_fact("never_repeated_reads_share", usage.never_repeated_reads_share()),
        new_bytes_fact("read_bytes_per_day", by_day(usage.read_bytes)),
        new_bytes_fact("log_bytes_per_day", by_day(file_bytes)),
    ]
}

fn new_share_fact(name: &'static str, share: Option<f64>) -> Fact {
    Fact::with_printed_text(name, share, share.map(|share| format_percent(Some(share))))
}

/// The bytes of the log's own files.
fn sum_log_file_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_of_log = |name: &str| name.starts_with("requests") || name.starts_with("items");
    entries
        .filter(|entry| entry.file_name().to_str().is_some_and(is_of_log))
        .filter_map(|entry| entry.metadata().ok())
        .map(|metadata| metadata.len())
        .sum()
}

/// How much of the requests' time the cache takes: as it was measured, else by the latency table of the folder.
fn new_cache_time_fact(
    folder: &Path,
    log: &RequestLog,
    prepared: &PreparedLog<'_>,
    today: Option<&Today>,
) -> Result<Fact, Failure> {
    if let Some(share) = today.and_then(Today::wait_share) {
        return Ok(new_share_fact("cache_time_share", Some(share)));
    }
    let latency_path = folder.join("latency.json");
    let unusable_failure = |reason: String| {
        Failure::new(Exit::BadData, format!("{}: {reason}", latency_path.display()))
    };
    let share = match read_text(&latency_path) {
        Ok(text) => {
            let cost_model =
                CostModel::parse(&text).map_err(|error| unusable_failure(error.to_string()))?;
            cache_time_share(prepared, &cost_model, &log.requests.base_times_us)
        }
        // Without a table it is unknown what a call takes.
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(unusable_failure(error.to_string())),
    };
    let printed_text = match share {
        Some(share) => format_percent(Some(share)),
        None if latency_path.exists() => "unknown: the log has no base_us".to_owned(),
        None => format!(
            "unknown: no latency.json; glasscache profile SERVER --latency-out {} writes it",
            latency_path.display()
        ),
    };
    Ok(Fact::with_printed_text("cache_time_share", share, Some(printed_text)))
}

fn build_histogram_document(row: &RequestsBySize) -> Value {
    json!({ "items_from": row.items_from, "items_to": row.items_to, "requests": row.requests })
}

fn build_item_document(log: &RequestLog, item_usage: ItemUsage) -> Value {
    let bytes = log.items.sizes[item_usage.item as usize];
    json!({
        "key": log.items.keys[item_usage.item as usize],
        "bytes": (bytes > 0).then_some(bytes),
        "requests": item_usage.requests,
    })
}

fn build_prefix_document(prefix_usage: &PrefixUsage) -> Value {
    json!({
        "prefix": prefix_usage.prefix,
        "items": prefix_usage.item_count,
        "bytes": prefix_usage.bytes,
        "reads": prefix_usage.reads,
        "requests": prefix_usage.requests,
    })
}

fn build_histogram_table(rows: &[RequestsBySize], request_count: usize) -> Table {
    let mut most_first: Vec<&RequestsBySize> = rows.iter().collect();
    most_first.sort_by_key(|row| std::cmp::Reverse(row.requests));
    let format_range = |row: &RequestsBySize| {
        if row.items_from == row.items_to {
            row.items_from.to_string()
        } else {
            format!("{} to {}", row.items_from, row.items_to)
        }
    };
    let format_row = |row: &RequestsBySize| {
        vec![
            format_range(row),
            format_count(row.requests),
            format_share(row.requests, request_count),
        ]
    };
    Table {
        title: "Requests by items".to_owned(),
        header: to_header(&["items", "requests", "share"]),
        rows: most_first.into_iter().map(format_row).collect(),
    }
}

fn build_items_table(log: &RequestLog, usage: &LogUsage) -> Table {
    let format_row = |item_usage: &ItemUsage| {
        let bytes = u64::from(log.items.sizes[item_usage.item as usize]);
        vec![
            log.items.keys[item_usage.item as usize].clone(),
            format_count(u64::from(item_usage.requests)),
            format_share(u64::from(item_usage.requests), log.requests.len()),
            if bytes == 0 { "unknown".to_owned() } else { format_count(bytes) },
        ]
    };
    Table {
        title: "Most used items".to_owned(),
        header: to_header(&["item", "requests", "share", "bytes"]),
        rows: usage.by_item.iter().take(ROWS_MAX).map(format_row).collect(),
    }
}

fn build_prefixes_table(usage: &LogUsage, request_count: usize) -> Table {
    let format_row = |prefix_usage: &PrefixUsage| {
        vec![
            prefix_usage.prefix.clone().unwrap_or_else(|| NO_PREFIX.to_owned()),
            format_count(prefix_usage.requests),
            format_share(prefix_usage.requests, request_count),
            format_count(prefix_usage.reads),
            format_count(prefix_usage.item_count),
            format_short_bytes(prefix_usage.bytes),
        ]
    };
    Table {
        title: "Most used prefixes".to_owned(),
        header: to_header(&["prefix", "requests", "share", "reads", "items", "bytes"]),
        rows: usage.by_prefix.iter().take(ROWS_MAX).map(format_row).collect(),
    }
}

fn to_header(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn format_share(part: u64, request_count: usize) -> String {
    format_percent((request_count > 0).then(|| part as f64 / request_count as f64))
}
