//! The report of `codec`: the recommended setting first, then forms, calls, prefixes and the storage table, and the
//! network speed at which each form is fastest.

use std::fmt::Write;

use glasscache_sim::key_prefix::NO_PREFIX;
use glasscache_sim::page::{Chart, Series};
use serde_json::{Value, json};

use super::call::CallParts;
use super::calls::Comparison;
use super::choice::{Candidate, Choice};
use super::result::CodecResult;
use crate::report::{Report, ReportTable};
use crate::text::{format_bytes, format_count, format_decimal};

/// Characters of the longest bar.
const BAR_WIDTH: f64 = 36.0;

/// Share of a measured time by which a forecast may be wrong without a remark.
const FORECAST_ERROR_MAX: f64 = 0.1;

/// Rivals that are named.
const RIVALS_MAX: usize = 4;

/// Forms that are drawn over the speed of the network.
const CHART_FORMS_MAX: usize = 5;

/// A part of a call: its name, its letter in the bar, its time.
type NamedPart = (&'static str, char, fn(&CallParts) -> f64);

/// The parts of a call in order.
const CALL_PARTS: [NamedPart; 7] = [
    ("serialise", 's', |parts| parts.serialise_us),
    ("compress", 'c', |parts| parts.compress_us),
    ("send", '>', |parts| parts.send_us),
    ("server", '#', |parts| parts.server_us),
    ("receive", '<', |parts| parts.receive_us),
    ("decompress", 'd', |parts| parts.decompress_us),
    ("deserialise", 'D', |parts| parts.deserialise_us),
];

/// The report of what was measured with this seed.
pub(super) fn build_report(result: &CodecResult, seed: u64) -> Report {
    let other = result.comparison.as_ref().map(|comparison| &comparison.other);
    let calls = result.in_use.as_ref().zip(other);
    Report {
        title: format!("Forms of {} values", format_count(result.value_count as u64)),
        sentence: format_sentence(result),
        tables: [build_candidates_table(result)]
            .into_iter()
            .chain(calls.map(|(in_use, other)| build_call_parts_table(in_use, other)))
            .chain([build_prefixes_table(result), build_storage_table(result)])
            .collect(),
        series: vec![build_network_chart(result)],
        findings: list_findings(result),
        notes: list_notes(result),
        result: to_document(result, seed),
        ..Report::default()
    }
}

fn to_document(result: &CodecResult, seed: u64) -> Value {
    let recommended = result.recommended.as_ref().map(|choice| {
        let mut document = choice_to_document(choice);
        document["measured"] = json!(result.measured_calls);
        document
    });
    let before = result.in_use.as_ref().map(|choice| {
        let mut document = choice_to_document(choice);
        document["codec"] = json!(result.expression_in_use);
        document
    });
    let comparison = result.comparison.as_ref().map(|comparison| {
        let mut document = json!(comparison);
        document["codec"] = json!(comparison.other.codec_expression());
        document
    });
    let rivals: Vec<Value> = result.rivals.iter().map(choice_to_document).collect();
    json!({
        "values": result.value_count,
        "bytes": result.total_bytes,
        "skipped": result.skipped_values,
        "measured_values": result.measured_values,
        "server": result.server_name,
        "client": result.client_name,
        "network_mbit": result.network_mbit,
        "reads_per_write": result.reads_per_write,
        "candidates": result.candidates,
        "recommended": recommended,
        "before": before,
        "is_change": result.comparison.as_ref().is_some_and(|comparison| comparison.is_better),
        "comparison": comparison,
        "rivals": rivals,
        "rows": result.storage_rows,
        "by_prefix": result.prefix_rows,
        "wire": result.call_times,
        "wrong_values": result.wrong_values(),
        "left_out": result.left_out,
        "seed": seed,
    })
}

fn choice_to_document(choice: &Choice) -> Value {
    let mut document = json!(choice);
    document["codec"] = json!(choice.codec_expression());
    document["arguments"] = json!(choice.codec_arguments());
    document
}

/// The recommendation in some sentences: the codec to use, what it brings, what real calls took.
fn format_sentence(result: &CodecResult) -> String {
    let Some(recommended) = &result.recommended else {
        return "Nothing was measured to the end.".to_owned();
    };
    let in_use = &result.expression_in_use;
    let network_text = result.network_mbit.map_or_else(
        || "on the network as measured".to_owned(),
        |mbit| format!("at {} Mbit/s", format_count(mbit as u64)),
    );
    let conditions = format!(
        "{network_text}, with {} gets for each set",
        format_decimal(result.reads_per_write)
    );
    let mut sentence = match &result.comparison {
        None => format!("Keep {in_use}: no other form is better {conditions}."),
        Some(comparison) => {
            let shares = format_shares(comparison);
            let other = comparison.other.codec_expression();
            if comparison.is_better {
                format!("{other}: {shares}, compared with {in_use}, {conditions}.")
            } else {
                format!(
                    "No difference that pays: keep {in_use}. The best other form, {other}, has {shares} {conditions}."
                )
            }
        }
    };
    if let Some(measured) = result.measured_calls {
        let _ = write!(
            sentence,
            " {}'s median get took {} us against {} ({}), its set {} us ({}).",
            result.client_name.trim_start_matches("the "),
            format_decimal(measured.get_us),
            result.server_name,
            format_forecast(recommended.get_us_p50, measured.get_us),
            format_decimal(measured.set_us),
            format_forecast(recommended.set_us_p50, measured.set_us)
        );
    }
    sentence
}

/// What another form has of the bytes and of the time of the codec in use.
fn format_shares(comparison: &Comparison) -> String {
    let [low, time, high] =
        [comparison.low, comparison.time_share, comparison.high].map(|share| 100.0 * share);
    format!(
        "{:.0} % of the bytes and {time:.0} % of the time of a call ({low:.0} to {high:.0})",
        100.0 * comparison.bytes_share
    )
}

/// The forecast of a time, and how wrong it was if by more than a tenth.
fn format_forecast(forecast_us: f64, measured_us: f64) -> String {
    let error = forecast_us / measured_us.max(f64::MIN_POSITIVE) - 1.0;
    let direction = if error < 0.0 { "low" } else { "high" };
    let error_text = if error.abs() > FORECAST_ERROR_MAX {
        format!(", {:.0} % too {direction}", 100.0 * error.abs())
    } else {
        String::new()
    };
    format!("forecast: {} us{error_text}", format_decimal(forecast_us))
}

fn build_candidates_table(result: &CodecResult) -> ReportTable {
    let format_break_even = |mbit: Option<f64>| mbit.map_or_else(|| "-".to_owned(), format_decimal);
    let format_row = |candidate: &Candidate| {
        vec![
            format!("{}{}", candidate.codec, if candidate.is_in_client { "" } else { " *" }),
            format_bytes(candidate.bytes),
            format!("{:.3}", candidate.ratio),
            format_decimal(candidate.write_us),
            format_decimal(candidate.read_us),
            format_decimal(candidate.call_us),
            format_break_even(candidate.write_break_even_mbit),
            format_break_even(candidate.read_break_even_mbit),
        ]
    };
    let title = format!(
        "Forms of {} values, best first, those that the client lacks (*) last; times of a value in us",
        format_count(result.measured_values as u64)
    );
    let header = [
        "form",
        "bytes",
        "ratio",
        "write",
        "read",
        "call",
        "a set pays below Mbit/s",
        "pays below Mbit/s",
    ];
    let table = ReportTable::new(title, header, result.candidates.iter().map(format_row));
    ReportTable { is_best_first: true, wide_columns: vec![1, 6], ..table }
}

/// The parts of a call with the codec in use and with the best other form, in the text with bars.
fn build_call_parts_table(in_use: &Choice, other: &Choice) -> ReportTable {
    let calls = [
        ("set now", &in_use.set),
        ("set other", &other.set),
        ("get now", &in_use.get),
        ("get other", &other.get),
    ];
    let longest_us = calls.iter().map(|(_, parts)| parts.total_us()).fold(0.0, f64::max);
    let mut bars = String::new();
    for (name, parts) in calls {
        let mut bar = String::new();
        for (_, letter, time_of_part) in CALL_PARTS {
            let width = (time_of_part(parts) / longest_us.max(1e-9) * BAR_WIDTH).round() as usize;
            bar.extend(std::iter::repeat_n(letter, width));
        }
        let _ = writeln!(bars, "{name:<10}  {:>6}  {bar}", format_decimal(parts.total_us()));
    }
    let format_row = |name: String, time_of: &dyn Fn(&CallParts) -> f64| {
        let times = calls.map(|(_, parts)| match time_of(parts) {
            0.0 => "-".to_owned(),
            us => format_decimal(us),
        });
        std::iter::once(name).chain(times).collect()
    };
    let rows = CALL_PARTS
        .iter()
        .map(|(name, letter, time_of_part)| format_row(format!("{letter} {name}"), time_of_part))
        .chain([format_row("sum".to_owned(), &CallParts::total_us)]);
    let header = std::iter::once("part").chain(calls.map(|(name, _)| name));
    ReportTable { drawing: bars, ..ReportTable::new("A call costs, in us:", header, rows) }
}

fn build_prefixes_table(result: &CodecResult) -> ReportTable {
    let rows = result.prefix_rows.iter().map(|row| {
        let prefix = if row.prefix.is_empty() { NO_PREFIX } else { &row.prefix };
        vec![
            prefix.to_owned(),
            format_count(row.values as u64),
            format_bytes(row.bytes),
            format!("{:.3}", row.ratio),
        ]
    });
    let title = "With the recommended setting, by key prefix";
    let table = ReportTable::new(title, ["key prefix", "values", "bytes", "ratio"], rows);
    ReportTable { is_best_first: true, ..table }
}

fn build_storage_table(result: &CodecResult) -> ReportTable {
    let rows = result.storage_rows.iter().map(|row| {
        let read_times = row.read_s.iter().map(|seconds| format_decimal(*seconds));
        let cells = [
            row.codec.clone(),
            format_bytes(row.bytes),
            format!("{:.3}", row.ratio),
            format_decimal(row.write_s),
        ];
        cells.into_iter().chain(read_times).collect()
    });
    let title = format!(
        "All values in blocks of 512 KiB, stored in {} and read three times in random order",
        result.server_name
    );
    let header = ["codec", "bytes", "ratio", "write s", "read s", "read s", "read s"];
    ReportTable::new(title, header, rows)
}

/// The time of a call over the speed of the network, for the best forms.
fn build_network_chart(result: &CodecResult) -> Chart {
    let ns_per_byte = result.network_mbit.map_or(0.0, |mbit| 8e3 / mbit);
    let new_series = |candidate: &Candidate| {
        let mean_bytes = candidate.bytes as f64 / candidate.values.max(1) as f64;
        let points = (0..=40).map(|step| {
            let mbit = 10_f64.powf(1.0 + f64::from(step) / 10.0);
            (mbit, candidate.call_us + mean_bytes * (8e3 / mbit - ns_per_byte) / 1e3)
        });
        Series { label: candidate.codec.clone(), points: points.collect(), ..Series::default() }
    };
    Chart {
        title: "Time of a call by speed of the network".to_owned(),
        x_label: "Mbit/s (logarithmic)".to_owned(),
        y_label: "microseconds (logarithmic)".to_owned(),
        is_x_log: true,
        is_y_log: true,
        series: result.candidates.iter().take(CHART_FORMS_MAX).map(new_series).collect(),
        ..Chart::default()
    }
}

fn list_findings(result: &CodecResult) -> Vec<String> {
    let wrong_values = result.wrong_values();
    let wrong_text = (wrong_values > 0)
        .then(|| format!("{} values were absent or WRONG when read.", format_count(wrong_values)));
    wrong_text.into_iter().collect()
}

fn list_notes(result: &CodecResult) -> Vec<String> {
    let mut notes = vec![
        "ratio: bytes over those given. call: the mean time of a call with this form. Compressing makes a get faster on \
         networks below the last column."
            .to_owned(),
        format!(
            "{}, server {}, {} of {} values measured.",
            result.client_name,
            result.server_name,
            format_count(result.measured_values as u64),
            format_count(result.value_count as u64)
        ),
    ];
    if !result.rivals.is_empty() {
        let rivals: Vec<String> =
            result.rivals.iter().take(RIVALS_MAX).map(Choice::codec_expression).collect();
        notes.push(format!("As fast as the best within 5 %: {}.", rivals.join("; ")));
    }
    if result.skipped_values > 0 {
        let skipped_text = format_count(result.skipped_values);
        notes.push(format!(
            "{skipped_text} values were left out: empty, above 1,000,000 bytes, or unreadable."
        ));
    }
    if result.is_truncated {
        notes.push("More values are there than were read.".to_owned());
    }
    if !result.left_out.is_empty() {
        notes.push(format!("Left out: {}.", result.left_out.join("; ")));
    }
    notes
}
