//! The JSON interface: `/api/...`. Its fields are listed in docs/reference/http.md.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use glasscache_store::{HotKey, HotKeyOrder, HotKeyWindow, LiveCurve, PrefixUse};
use serde_json::{Map, Value, json};

use super::history::{History, SERIES, Series};
use super::request::{Refusal, Request, read_query};
use crate::session::stats::latency::LATENCY_FIELDS;
use crate::session::stats::live::{Field, RESIZE_FIELDS, format_fields};
use crate::session::stats::policy::{POLICY_FIELDS, SWITCH_FIELDS};
use crate::session::stats::slow::{SLOW_FIELDS, SlowRow, slow_rows};
use crate::session::stats::table::StatsContext;
use crate::session::stats::{read_rows, write_all_tables};
use crate::shared::Shared;
use crate::shared::command_times::COMMANDS;
use crate::shared::time_histogram::Times;

/// The tables of `/api/stats`, in the order of [`write_all_tables`].
const TABLES: [&str; 5] = ["stats", "settings", "items", "slabs", "glasscache"];

/// `/api/stats`: all tables of `stats`; numbers are numbers.
pub(super) fn stats(shared: &Shared, request: &Request) -> Result<Value, Refusal> {
    let [] = read_query(&request.query, [])?;
    let context = StatsContext { shared, now: shared.clock.now() };
    let tables = TABLES.into_iter().zip(write_all_tables(context));
    let to_object =
        |(name, text): (&str, Vec<u8>)| (name.to_owned(), Value::Object(rows_to_json(&text)));
    Ok(Value::Object(tables.map(to_object).collect()))
}

/// The rows of a table, by name; numbers are numbers.
fn rows_to_json(text: &[u8]) -> Map<String, Value> {
    let rows: BTreeMap<String, String> = read_rows(text).into_iter().collect();
    rows.into_iter().map(|(name, value)| (name, to_json(value))).collect()
}

fn to_json(value: String) -> Value {
    match value.parse::<u64>() {
        Ok(number) => number.into(),
        Err(_) => value.parse::<f64>().map_or(Value::String(value), Value::from),
    }
}

/// `/api/curve`: the miss ratio at other sizes of the memory.
pub(super) fn curve(shared: &Shared, request: &Request) -> Result<Value, Refusal> {
    let [] = read_query(&request.query, [])?;
    Ok(curve_to_json(&shared.live.report().curve))
}

fn curve_to_json(curve: &LiveCurve) -> Value {
    let rows = curve.rows.iter().map(|point| {
        json!({
            "memory_bytes": point.memory_bytes,
            "miss_ratio": point.miss_ratio,
            "low": point.low,
            "high": point.high,
            "lru_miss_ratio": point.lru_miss_ratio,
        })
    });
    let advice = curve.advice.iter().map(|advice| {
        json!({
            "memory_bytes": advice.memory_bytes,
            "change_percent": advice.change_percent,
            "misses_per_second": advice.misses_per_second,
            "avoided_per_second": advice.avoided_per_second,
            "low": advice.low,
            "high": advice.high,
            "avoided_backend_s": advice.avoided_backend_s,
            "sentence": advice.sentence,
        })
    });
    json!({
        "state": curve.state.name(),
        "reason": curve.state.reason(),
        "memory_bytes": curve.memory_bytes,
        "miss_ratio": curve.miss_ratio,
        "gets_per_second": curve.gets_per_second,
        "window_s": curve.window_s,
        "miss_time_s": curve.miss_time_s,
        "working_set_bytes": curve.working_set_bytes,
        "unlimited_hit_ratio": curve.unlimited_hit_ratio,
        "sampled_items": curve.sampled_items,
        "rows": rows.collect::<Vec<_>>(),
        "advice": advice.collect::<Vec<_>>(),
        "resize": curve.resize.as_ref().map(|resize| fields_to_json(RESIZE_FIELDS, resize)),
    })
}

/// The rows of `subject`; null where one is absent.
fn fields_to_json<T>(fields: &[Field<T>], subject: &T) -> Map<String, Value> {
    let mut rows = rows_to_json(&format_fields(fields, subject));
    for field in fields {
        rows.entry(field.name).or_insert(Value::Null);
    }
    rows
}

/// `/api/policy`: the settings of the eviction policy, and what was done to them.
pub(super) fn policy(shared: &Shared, request: &Request) -> Result<Value, Refusal> {
    let [] = read_query(&request.query, [])?;
    let policy = &shared.live.report().policy;
    let switches = policy.last_switches.iter().map(|switch| fields_to_json(SWITCH_FIELDS, switch));
    let mut document = fields_to_json(POLICY_FIELDS, policy);
    document.insert("last_switches".to_owned(), switches.collect());
    Ok(Value::Object(document))
}

/// `/api/hotkeys?window=1s|1m|1h&by=requests|bytes`.
pub(super) fn hot_keys(shared: &Shared, request: &Request) -> Result<Value, Refusal> {
    let [window, by] = read_query(&request.query, ["window", "by"])?;
    let window =
        read_choice("window", window, HotKeyWindow::Minute, HotKeyWindow::parse, "1s, 1m or 1h")?;
    let by = read_choice("by", by, HotKeyOrder::Requests, HotKeyOrder::parse, "requests or bytes")?;
    check_keys_allowed(shared)?;
    let report = shared.live.report();
    let rows: Vec<Value> = report.hot_keys(window, by).iter().map(hot_key_to_json).collect();
    Ok(json!({
        "window": window.name(),
        "window_s": window.seconds(),
        "by": by.name(),
        "keys_per_sample": report.costs.keys_per_sample,
        "rows": rows,
    }))
}

/// `/api/prefixes`: the prefixes with most requests.
pub(super) fn prefixes(shared: &Shared, request: &Request) -> Result<Value, Refusal> {
    let [] = read_query(&request.query, [])?;
    check_keys_allowed(shared)?;
    let rows: Vec<Value> = shared.live.report().prefixes.iter().map(prefix_to_json).collect();
    Ok(json!({ "rows": rows }))
}

/// `/api/latency`: how long commands and the misses that clients fill take.
pub(super) fn latency(shared: &Shared, request: &Request) -> Result<Value, Refusal> {
    let [] = read_query(&request.query, [])?;
    let command_times = shared.command_times();
    let by_command = COMMANDS.iter().zip(&command_times);
    let commands: Map<String, Value> =
        by_command.map(|(command, times)| ((*command).to_owned(), times_to_json(times))).collect();
    let fills = shared.fill_times.times();
    Ok(json!({
        "commands": commands,
        "leases": shared.fill_times.leases(),
        "fills": times_to_json(&fills),
    }))
}

fn times_to_json(times: &Times) -> Value {
    Value::Object(rows_to_json(&format_fields(LATENCY_FIELDS, times)))
}

/// `/api/slow`: the slowest commands of the last hour.
pub(super) fn slow(shared: &Shared, request: &Request) -> Result<Value, Refusal> {
    let [] = read_query(&request.query, [])?;
    let rows: Vec<Value> = slow_rows(shared).iter().map(slow_to_json).collect();
    Ok(json!({
        "slow_ms": shared.config.slow_ms,
        "total": shared.slow_commands.total(),
        "rows": rows,
    }))
}

fn slow_to_json(row: &SlowRow) -> Value {
    let mut fields = rows_to_json(&format_fields(SLOW_FIELDS, row));
    fields.remove("key");
    let mut object = Value::Object(fields);
    if let Some(key) = row.key() {
        insert_text(&mut object, "key", key);
    }
    object
}

/// `/api/history?step=1s|1m`: the series of the last hour or of the last day.
pub(super) fn history(
    shared: &Shared,
    history: &History,
    request: &Request,
) -> Result<Value, Refusal> {
    let [step] = read_query(&request.query, ["step"])?;
    let is_by_second = match step {
        None | Some("1m") => false,
        Some("1s") => true,
        Some(other) => return Err(bad_value("step", other, "1s or 1m")),
    };
    let values = |series: Series| {
        if is_by_second { history.seconds(series, usize::MAX) } else { history.minutes(series) }
    };
    let series = SERIES.iter().map(
        |(series, name, unit)| json!({ "name": name, "unit": unit, "values": values(*series) }),
    );
    Ok(json!({
        "step_s": if is_by_second { 1 } else { 60 },
        "until_unix": shared.clock.unix_time(shared.clock.now()),
        "series": series.collect::<Vec<_>>(),
    }))
}

fn hot_key_to_json(hot_key: &HotKey) -> Value {
    let mut row = json!({
        "requests": hot_key.requests,
        "bytes": hot_key.bytes,
        "share": hot_key.share,
        "error": hot_key.error,
    });
    insert_text(&mut row, "key", &hot_key.key);
    row
}

fn prefix_to_json(prefix: &PrefixUse) -> Value {
    let mut row = json!({
        "requests": prefix.requests,
        "hits": prefix.hits,
        "hit_ratio": prefix.hit_ratio,
        "sets": prefix.sets,
        "bytes": prefix.bytes,
        "item_bytes_mean": prefix.item_bytes_mean,
        "no_ttl_share": prefix.no_ttl_share,
        "ttl_s_median": prefix.ttl_s_median,
    });
    insert_text(&mut row, "prefix", &prefix.prefix);
    row
}

/// Adds bytes as text, or where they are no text as `<name>_base64`.
fn insert_text(row: &mut Value, name: &str, bytes: &[u8]) {
    let (name, text) = match std::str::from_utf8(bytes) {
        Ok(text) => (name.to_owned(), text.to_owned()),
        Err(_) => (format!("{name}_base64"), BASE64_STANDARD.encode(bytes)),
    };
    if let Some(row) = row.as_object_mut() {
        row.insert(name, text.into());
    }
}

/// Refuses to list keys where that is switched off.
fn check_keys_allowed(shared: &Shared) -> Result<(), Refusal> {
    if shared.config.dump_enabled {
        return Ok(());
    }
    Err(Refusal::new(403, "keys are not listed: the server runs with -X (disable-dumping)"))
}

/// A parameter with a default.
fn read_choice<T>(
    name: &str,
    value: Option<&str>,
    default: T,
    parse: fn(&[u8]) -> Option<T>,
    choices: &str,
) -> Result<T, Refusal> {
    let Some(value) = value else {
        return Ok(default);
    };
    parse(value.as_bytes()).ok_or_else(|| bad_value(name, value, choices))
}

fn bad_value(name: &str, value: &str, choices: &str) -> Refusal {
    Refusal::new(400, format!("{name} is {value:?}, it must be {choices}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_are_base64() {
        let mut row = json!({});
        insert_text(&mut row, "key", "ö\n".as_bytes());
        insert_text(&mut row, "key", b"\xff\xfe\xfd\xfc");
        assert_eq!(row, json!({ "key": "ö\n", "key_base64": "//79/A==" }));
    }

    #[test]
    fn numbers_of_statistics_are_numbers() {
        assert_eq!(to_json("12".to_owned()), json!(12));
        assert_eq!(to_json("0.25".to_owned()), json!(0.25));
        assert_eq!(to_json("yes".to_owned()), json!("yes"));
    }
}
