//! The metrics that only this server has: each row of `stats glasscache` under a name that follows from its own.
//!
//! Counters end in `_total` and units are seconds and bytes, so that the names stay the same under `OpenMetrics`.

use glasscache_store::{CurvePoint, LiveCurve, PolicyReport};

use super::StatRows;
use super::text::{Exposition, Kind};
use crate::session::stats::glasscache::GLASSCACHE_ROWS;
use crate::session::stats::live::{Field, format_fields};
use crate::session::stats::policy::{POLICY_FIELDS, SWITCH_FIELDS};
use crate::session::stats::read_rows;
use crate::session::stats::table::Row;
use crate::shared::Shared;
use crate::shared::command_times::COMMANDS;
use crate::shared::time_histogram::Times;

/// Rows that are one metric with labels, as text has no value.
const INFO_ROWS: [&str; 2] = ["version", "commit"];

/// Appends all metrics.
pub(super) fn write(shared: &Shared, rows: &StatRows, out: &mut Exposition) {
    let text = |name: &str| rows.get(name).map_or("", String::as_str);
    let labels = INFO_ROWS.map(|name| (name, text(name)));
    out.begin("glasscache_build_info", Kind::Gauge, "Always 1: version and commit of the program.");
    out.sample("glasscache_build_info", &labels, 1);
    for row in GLASSCACHE_ROWS.iter().filter(|row| !INFO_ROWS.contains(&row.name)) {
        let Some(value) = rows.get(row.name) else { continue };
        let kind = if row.is_counter { Kind::Counter } else { Kind::Gauge };
        out.single(&metric_name(row), kind, &sentence(row.meaning), to_base_unit(row, value));
    }
    write_iterations(shared, out);
    write_commands(shared, out);
    write_fills(shared, out);
    let report = shared.live.report();
    write_curve(&report.curve, out);
    write_policy(&report.policy, out);
}

/// Rows of `stats policy` that only grow.
const POLICY_COUNTERS: [&str; 3] = ["windows", "switches", "undos"];

/// The settings of the policy and what was done to them: each row that is a number, those of the last change too.
fn write_policy(policy: &PolicyReport, out: &mut Exposition) {
    const INFO: &str = "glasscache_policy_info";
    let settings = policy.settings.to_string();
    let mode = if policy.is_tuned() { "tuned" } else { "fixed" };
    out.begin(INFO, Kind::Gauge, "Always 1: mode and settings of the eviction policy.");
    out.sample(INFO, &[("mode", mode), ("settings", &settings)], 1);
    write_numbers("glasscache_policy", POLICY_FIELDS, policy, out);
    if let Some(switch) = policy.last_switches.first() {
        write_numbers("glasscache_policy_last_switch", SWITCH_FIELDS, switch, out);
    }
}

/// A metric for each row of `subject` that is a number.
fn write_numbers<T>(prefix: &str, fields: &[Field<T>], subject: &T, out: &mut Exposition) {
    let rows = read_rows(&format_fields(fields, subject));
    for field in fields {
        let Some(value) = rows.get(field.name).filter(|value| value.parse::<f64>().is_ok()) else {
            continue;
        };
        let (kind, ending) = match field.name {
            name if POLICY_COUNTERS.contains(&name) => (Kind::Counter, "_total"),
            _ => (Kind::Gauge, ""),
        };
        let name = match field.name.strip_suffix("_s") {
            Some(name) => format!("{name}_seconds"),
            None => field.name.to_owned(),
        };
        out.single(&format!("{prefix}_{name}{ending}"), kind, &sentence(field.meaning), value);
    }
}

/// The name of the metric of a row.
fn metric_name(row: &Row) -> String {
    let name = match row.unit {
        "us" => format!("{}_seconds", row.name.replace("_us", "")),
        "s" => match row.name.strip_suffix("_unix") {
            Some(name) => format!("{name}_timestamp_seconds"),
            None => format!("{}_seconds", row.name.strip_suffix("_s").unwrap_or(row.name)),
        },
        _ => row.name.to_owned(),
    };
    let name = name.strip_suffix("_total").unwrap_or(&name);
    format!("glasscache_{name}{}", if row.is_counter { "_total" } else { "" })
}

fn to_base_unit(row: &Row, value: &str) -> String {
    match value.parse::<f64>() {
        Ok(microseconds) if row.unit == "us" => (microseconds / 1e6).to_string(),
        _ => value.to_owned(),
    }
}

/// The meaning of a row as a sentence without the marks of a document.
fn sentence(meaning: &str) -> String {
    let plain = meaning.replace('`', "");
    let mut characters = plain.chars();
    let first = characters.next().map(char::to_uppercase).into_iter().flatten();
    first.chain(characters).chain(['.']).collect()
}

/// The buckets of the histogram of iterations: every fourth power of two of microseconds up to a quarter of a second,
/// as each is a series in every scraper.
const BUCKET_STRIDE: usize = 2;

fn write_iterations(shared: &Shared, out: &mut Exposition) {
    const NAME: &str = "glasscache_loop_iteration_duration_seconds";
    out.begin(NAME, Kind::Histogram, "Time of the iterations of the event loops.");
    let mut count_so_far = 0;
    let times = shared.iteration_times();
    for (index, (bound_us, count)) in times.iter().enumerate() {
        count_so_far += count;
        let is_last = index + 1 == times.len();
        if index % BUCKET_STRIDE == 0 && !is_last {
            let bound = *bound_us as f64 / 1e6;
            out.sample(&format!("{NAME}_bucket"), &[("le", &bound.to_string())], count_so_far);
        }
    }
    out.sample(&format!("{NAME}_bucket"), &[("le", "+Inf")], count_so_far);
    out.sample(&format!("{NAME}_sum"), &[], shared.lifetime_totals().iteration_us as f64 / 1e6);
    out.sample(&format!("{NAME}_count"), &[], count_so_far);
}

/// The buckets of the histograms of commands: below 8 microseconds to below half a second, by factors of four.
const COMMAND_EXPONENTS: [u32; 9] = [3, 5, 7, 9, 11, 13, 15, 17, 19];

fn write_commands(shared: &Shared, out: &mut Exposition) {
    const NAME: &str = "glasscache_command_duration_seconds";
    let help = "Time of commands inside the server; a sample of them.";
    out.begin(NAME, Kind::Histogram, help);
    for (command, times) in COMMANDS.iter().zip(&shared.command_times()) {
        write_buckets(NAME, &[("command", command)], &COMMAND_EXPONENTS, times, out);
    }
}

/// The buckets of the histogram of fills: below 1 millisecond to below 34 seconds, by factors of two.
const FILL_EXPONENTS: [u32; 16] = [10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25];

fn write_fills(shared: &Shared, out: &mut Exposition) {
    const NAME: &str = "glasscache_fill_duration_seconds";
    let help = "Time from the reply that gives a client a lease to the value that it stores.";
    out.begin(NAME, Kind::Histogram, help);
    write_buckets(NAME, &[], &FILL_EXPONENTS, &shared.fill_times.times(), out);
    let leases = shared.fill_times.leases();
    out.single("glasscache_leases_total", Kind::Counter, "Leases that were given.", leases);
}

/// The live curve, and its forecast of the last change of the limit with what was measured; nothing while there is no
/// curve.
fn write_curve(curve: &LiveCurve, out: &mut Exposition) {
    type Read = fn(&CurvePoint) -> f64;
    let metrics: [(&str, &str, Read); 3] = [
        (
            "glasscache_curve_miss_ratio",
            "Misses per get that are expected at another limit.",
            |p| p.miss_ratio,
        ),
        ("glasscache_curve_miss_ratio_low", "The lower end of its 95 % interval.", |p| p.low),
        ("glasscache_curve_miss_ratio_high", "The upper end of its 95 % interval.", |p| p.high),
    ];
    for (name, help, read_value) in metrics.into_iter().filter(|_| !curve.rows.is_empty()) {
        out.begin(name, Kind::Gauge, help);
        for point in &curve.rows {
            // The sizes are fixed parts of the present limit, so that the series stay the same when it changes.
            let size = point.memory_bytes as f64 / curve.memory_bytes.max(1) as f64;
            out.sample(name, &[("size", &format!("{size:.2}"))], read_value(point));
        }
    }
    let is_broken = curve.resize.and_then(|resize| resize.is_inside()) == Some(false);
    let help = "Whether the miss ratio since the last change of the memory limit lies outside of what was expected.";
    out.single("glasscache_forecast_broken", Kind::Gauge, help, u8::from(is_broken));
}

/// The samples of one histogram, whose bounds are powers of two of a microsecond.
fn write_buckets(
    name: &str,
    labels: &[(&str, &str)],
    exponents: &[u32],
    times: &Times,
    out: &mut Exposition,
) {
    let bucket = format!("{name}_bucket");
    let mut write_bucket = |bound: &str, count: u64| {
        out.sample(&bucket, &[labels, &[("le", bound)]].concat(), count);
    };
    for exponent in exponents {
        let bound_s = f64::from(1_u32 << exponent) / 1e6;
        write_bucket(&bound_s.to_string(), times.count_below(*exponent));
    }
    write_bucket("+Inf", times.count());
    out.sample(&format!("{name}_sum"), labels, times.sum_s());
    out.sample(&format!("{name}_count"), labels, times.count());
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_row_has_a_name_of_its_own_with_the_suffixes_of_the_format() {
        let metrics: Vec<(String, bool)> = GLASSCACHE_ROWS
            .iter()
            .filter(|row| !INFO_ROWS.contains(&row.name))
            .map(|row| (metric_name(row), row.is_counter))
            .collect();
        let names: BTreeSet<&String> = metrics.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), metrics.len());
        for (name, is_counter) in &metrics {
            assert_eq!(name.ends_with("_total"), *is_counter, "{name}");
            let has_abbreviation =
                name.contains("_us_") || name.ends_with("_us") || name.ends_with("_s");
            assert!(!has_abbreviation, "{name}");
        }
        assert!(names.contains(&"glasscache_iteration_max_seconds".to_owned()));
        assert!(names.contains(&"glasscache_started_timestamp_seconds".to_owned()));
        assert!(names.contains(&"glasscache_eviction_age_seconds".to_owned()));
    }
}
