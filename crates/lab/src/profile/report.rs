//! The report of a profile: percentiles by size and width, the parts of a get, the run over time, and what shorter runs
//! would have reported.

use std::fmt::Write;

use glasscache_sim::page::{Chart, Series};
use serde_json::{Value, json};

use super::measured::{CellPercentiles, Percentile, Second, ShorterRun};
use super::{GetTimes, Profile, Settings};
use crate::access::Protocol;
use crate::report::{Report, ReportTable};
use crate::statistics::SteadinessKind;
use crate::target::Target;
use crate::text::{format_bytes, format_count, format_decimal};

/// The percentiles of a text that is not wide.
const NARROW_PERCENTS: [f64; 4] = [5.0, 50.0, 99.0, 99.9];

/// The percentiles that are drawn, with their names.
const PERCENTILES_DRAWN: [(f64, &str); 4] =
    [(50.0, "p50"), (90.0, "p90"), (99.0, "p99"), (99.9, "p99.9")];

/// The report of a profile of these targets.
pub(super) fn build_report(settings: &Settings, targets: &[&Target], profile: &Profile) -> Report {
    let target_descriptions: Vec<String> = targets.iter().map(|target| target.describe()).collect();
    let all_measured = std::iter::once(&profile.measured).chain(&profile.other_measured);
    let cell_tables =
        target_descriptions.iter().zip(all_measured).flat_map(|(target, measured)| {
            [
                build_percentile_table(
                    &format!("Gets of {target}, us"),
                    "value",
                    &measured.by_size,
                ),
                build_percentile_table(
                    &format!("Multi-gets of {target}, us"),
                    "keys",
                    &measured.by_width,
                ),
            ]
        });
    let parts_table = profile.measured.get_times.as_ref().map(build_parts_table);
    Report {
        title: format!("Profile of {}", target_descriptions.join(" beside ")),
        sentence: format_sentence(targets, profile),
        tables: cell_tables.chain(parts_table).collect(),
        series: list_charts(profile),
        findings: list_findings(profile),
        notes: vec![
            format!("Client {}, {:.1} s.", settings.via.as_deref().unwrap_or("glasscache (Rust)"), profile.seconds),
            "us is the time of a call in the client. Intervals contain the true percentile with a probability of 95 %, \
             whatever the distribution; they are wider where neighbouring calls are correlated. >= marks percentiles \
             with too few samples for an upper bound."
                .to_owned(),
        ],
        result: to_document(settings, targets, profile),
        ..Report::default()
    }
}

fn to_document(settings: &Settings, targets: &[&Target], profile: &Profile) -> Value {
    let mut document = json!(profile);
    let target_json =
        |target: &&Target| json!({ "address": target.name, "version": target.version });
    document["target"] = targets.first().map_or(Value::Null, target_json);
    if let (Some(vs), Some(target)) = (document.get_mut("vs"), targets.get(1)) {
        vs["target"] = target_json(target);
    }
    document["via"] = json!(settings.via);
    document["loop"] = json!(if settings.rate.is_some() { "open" } else { "closed" });
    document["threads"] = json!(settings.threads);
    document["rate"] = json!(settings.rate);
    document["seed"] = json!(settings.seed);
    let access = targets.first().map(|target| &target.access);
    let has_tls = access.is_some_and(|access| access.credentials.tls.is_some());
    document["tls"] = json!(has_tls);
    // Named as in the client's setting `protocol`.
    document["protocol"] = match access.map(|access| access.protocol) {
        Some(Protocol::Binary) => json!("binary"),
        _ => json!("auto"),
    };
    document
}

fn list_findings(profile: &Profile) -> Vec<String> {
    let measured = &profile.measured;
    let refused_text = (!measured.refused.is_empty()).then(|| {
        format!(
            "The server refused to store {} of the sizes; they are left out.",
            measured.refused.len()
        )
    });
    let wrong_text = (measured.wrong_values > 0)
        .then(|| format!("{} values were absent or WRONG.", format_count(measured.wrong_values)));
    refused_text.into_iter().chain(wrong_text).collect()
}

/// The conclusion in one or two sentences.
fn format_sentence(targets: &[&Target], profile: &Profile) -> String {
    let measured = &profile.measured;
    let target_name = targets.first().map_or("", |target| target.name.as_str());
    let typical_cell = measured
        .get_times
        .and_then(|get_times| {
            measured.by_size.iter().find(|cell| cell.bytes == Some(get_times.bytes))
        })
        .or(measured.by_size.first())
        .or(measured.by_width.first());
    let Some(typical_cell) = typical_cell else {
        return format!("Nothing was measured on {target_name}.");
    };
    let format_at_percentile = |percent: f64| {
        let found_percentile = typical_cell
            .percentiles
            .iter()
            .find(|percentile| (percentile.percent - percent).abs() < 1e-9);
        found_percentile.map_or_else(|| "-".to_owned(), format_percentile)
    };
    let cell_name = match (typical_cell.bytes, typical_cell.keys) {
        (Some(size), _) => format!("A get of {}", format_bytes(size as u64)),
        (_, Some(1)) => "A multi-get of 1 key".to_owned(),
        (_, keys) => format!("A multi-get of {} keys", keys.unwrap_or(0)),
    };
    let mut sentence = format!(
        "{cell_name} from {target_name} takes {} us, at p99 {} us",
        format_at_percentile(50.0),
        format_at_percentile(99.0)
    );
    if let Some((part_name, share)) = measured.get_times.as_ref().and_then(find_largest_part) {
        let _ =
            write!(sentence, "; {:.0} % of the time is spent in the {part_name}", share * 100.0);
    }
    sentence.push('.');
    if let (Some(ratio), Some(other_target)) = (&profile.ratios, targets.get(1)) {
        let _ = write!(
            sentence,
            " Beside {}: {:.2} times its median ({:.2} to {:.2}), {:.2} times its p99 ({:.2} to {:.2}).",
            other_target.name,
            ratio.p50.value,
            ratio.p50.low,
            ratio.p50.high,
            ratio.p99.value,
            ratio.p99.low,
            ratio.p99.high
        );
    }
    let calls_before_change = format_count(measured.steadiness.after_operations.unwrap_or(0));
    let steadiness_text = match measured.steadiness.kind {
        SteadinessKind::Flat => "The run was steady.".to_owned(),
        SteadinessKind::WarmUp => format!("The first {calls_before_change} calls were a warm-up."),
        SteadinessKind::SlowDown => format!("It became slower after {calls_before_change} calls."),
        SteadinessKind::None => {
            "It never reached a steady state: repeat it on a quieter machine.".to_owned()
        }
    };
    format!("{sentence} {steadiness_text}")
}

fn find_largest_part(get_times: &GetTimes) -> Option<(&'static str, f64)> {
    let (name, us) = list_named_parts(get_times)
        .into_iter()
        .max_by(|(_, a_us), (_, b_us)| a_us.total_cmp(b_us))?;
    (get_times.total_us > 0.0).then_some((name, us / get_times.total_us))
}

/// The parts of a get, in the order of its way.
fn list_named_parts(get_times: &GetTimes) -> Vec<(&'static str, f64)> {
    let mut parts = vec![("client", get_times.client_us)];
    match get_times.server_us {
        Some(server_us) => parts.extend([("network", get_times.network_us), ("server", server_us)]),
        None => parts.push(("network and server", get_times.network_us)),
    }
    parts.extend([
        ("decompress", get_times.decompress_us),
        ("deserialise", get_times.deserialise_us),
    ]);
    parts
}

fn build_parts_table(get_times: &GetTimes) -> ReportTable {
    let rows = list_named_parts(get_times).into_iter().map(|(name, us)| {
        let share = 100.0 * us / get_times.total_us.max(1e-9);
        vec![name.to_owned(), format_decimal(us), format!("{share:.0} %")]
    });
    let total = vec!["total".to_owned(), format_decimal(get_times.total_us), String::new()];
    ReportTable::new(
        format!("Mean time of a get of {}", format_bytes(get_times.bytes as u64)),
        ["part", "us", "share"],
        rows.chain([total]),
    )
}

/// A row for each size or width; each percentile has its interval beside it.
fn build_percentile_table(
    title: &str,
    first_column: &str,
    cells: &[CellPercentiles],
) -> ReportTable {
    let is = |percentile: &Percentile, percent: f64| (percentile.percent - percent).abs() < 1e-9;
    let (mut header, mut wide_columns) = (vec![first_column.to_owned()], Vec::new());
    for percentile in cells.first().into_iter().flat_map(|cell| &cell.percentiles) {
        if !NARROW_PERCENTS.iter().any(|&percent| is(percentile, percent)) {
            wide_columns.push(header.len());
        }
        header.push(format!("p{}", percentile.percent));
        if !is(percentile, 50.0) {
            wide_columns.push(header.len());
        }
        header.push("95 %".to_owned());
    }
    header.push("calls".to_owned());
    let format_row = |cell: &CellPercentiles| {
        let size_or_width = match (cell.bytes, cell.keys) {
            (Some(bytes), _) => format_bytes(bytes as u64),
            (_, keys) => format_count(keys.unwrap_or(0) as u64),
        };
        let percentiles = cell.percentiles.iter().flat_map(|percentile| {
            let high = percentile.estimate_us.high.map_or_else(|| "?".to_owned(), format_decimal);
            let interval = format!("{}-{high}", format_decimal(percentile.estimate_us.low));
            [format_percentile(percentile), interval]
        });
        let calls = format_count(cell.samples);
        std::iter::once(size_or_width).chain(percentiles).chain([calls]).collect()
    };
    let table = ReportTable::new(title, header, cells.iter().map(format_row));
    ReportTable { wide_columns, ..table }
}

fn format_percentile(percentile: &Percentile) -> String {
    match percentile.estimate_us.value {
        Some(us) => format_decimal(us),
        None => format!(">= {}", format_decimal(percentile.estimate_us.low)),
    }
}

fn list_charts(profile: &Profile) -> Vec<Chart> {
    let measured = &profile.measured;
    let mut charts = vec![
        build_latency_chart(
            "Time of a get by size of the value",
            "bytes of the value (logarithmic)",
            &measured.by_size,
        ),
        build_latency_chart(
            "Time of a multi-get by number of keys",
            "keys (logarithmic)",
            &measured.by_width,
        ),
    ];
    if measured.series.len() > 2 {
        charts.push(build_calls_chart(profile));
    }
    if measured.shorter_runs.len() > 1 {
        charts.push(build_shorter_runs_chart(profile));
    }
    charts
}

fn build_latency_chart(title: &str, x_label: &str, cells: &[CellPercentiles]) -> Chart {
    let series = PERCENTILES_DRAWN.map(|(percent, name)| {
        let (mut points, mut band) = (Vec::new(), Vec::new());
        for cell in cells {
            let size_or_width = cell.bytes.or(cell.keys).unwrap_or(0).max(1) as f64;
            let percentile = cell
                .percentiles
                .iter()
                .find(|percentile| (percentile.percent - percent).abs() < 1e-9);
            if let Some((us, value, high)) = percentile.and_then(|percentile| {
                Some((
                    percentile.estimate_us,
                    percentile.estimate_us.value?,
                    percentile.estimate_us.high?,
                ))
            }) {
                points.push((size_or_width, value));
                band.push((size_or_width, us.low, high));
            }
        }
        Series { label: name.to_owned(), points, band, ..Series::default() }
    });
    Chart {
        title: title.to_owned(),
        x_label: x_label.to_owned(),
        y_label: "microseconds (logarithmic)".to_owned(),
        is_x_log: true,
        is_y_log: true,
        series: series.into(),
        ..Chart::default()
    }
}

fn build_calls_chart(profile: &Profile) -> Chart {
    let seconds = &profile.measured.series;
    let new_series = |label: &str, figure: fn(&Second) -> f64| Series {
        label: label.to_owned(),
        points: seconds.iter().map(|second| (second.at_s as f64, figure(second))).collect(),
        ..Series::default()
    };
    Chart {
        title: "Calls over time".to_owned(),
        x_label: "seconds since the start".to_owned(),
        y_label: "time of a call / median of its size".to_owned(),
        is_y_log: true,
        series: vec![
            new_series("p50", |second| second.relative_p50),
            new_series("p99", |second| second.relative_p99),
        ],
        ..Chart::default()
    }
}

fn build_shorter_runs_chart(profile: &Profile) -> Chart {
    let shorter_runs = &profile.measured.shorter_runs;
    let new_series = |label: &str, figure: fn(&ShorterRun) -> f64| Series {
        label: label.to_owned(),
        points: shorter_runs.iter().map(|run| (run.call_count as f64, figure(run))).collect(),
        ..Series::default()
    };
    Chart {
        title: "What a shorter run would have reported".to_owned(),
        x_label: "first operations (logarithmic)".to_owned(),
        y_label: "time of a call / median of the whole run".to_owned(),
        is_x_log: true,
        series: vec![
            new_series("p50", |run| run.relative_p50),
            new_series("p99", |run| run.relative_p99),
        ],
        ..Chart::default()
    }
}
