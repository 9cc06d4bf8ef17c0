//! The report of a load test: latencies, costs, the rates that a search tried, the distribution of the latency, and the
//! run over time.

use std::fmt::Write;

use glasscache_sim::page::{Chart, Series};
use serde_json::{Value, json};

use super::objective::Objective;
use super::result::{Bottleneck, Latencies, LoadMeasurement, Second};
use super::rounds::TargetRatios;
use super::search::TriedRate;
use super::settings::Settings;
use crate::report::{Report, ReportTable};
use crate::statistics::SteadinessKind;
use crate::target::Target;
use crate::text::{format_bytes, format_count, format_decimal};

/// Percentiles of the chart.
const CHART_PERCENTS: [f64; 12] =
    [1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

/// What was measured of one or two targets.
pub(super) struct LoadFigures {
    pub(super) measured: LoadMeasurement,
    /// What was measured of the other target, and the ratio to it.
    pub(super) other_and_ratio: Option<(LoadMeasurement, TargetRatios)>,
    /// The objective of a search, and the rates that it tried.
    pub(super) objective_and_rates: Option<(Objective, Vec<TriedRate>)>,
}

impl LoadFigures {
    /// What was measured of each target.
    pub(super) fn all_measured(&self) -> impl Iterator<Item = &LoadMeasurement> {
        std::iter::once(&self.measured).chain(self.other_and_ratio.as_ref().map(|(other, _)| other))
    }
}

/// The report of a load on these targets.
pub(super) fn build_report(
    settings: &Settings,
    targets: &[&Target],
    result: &LoadFigures,
) -> Report {
    let target_descriptions: Vec<String> = targets.iter().map(|target| target.describe()).collect();
    let described_measurements: Vec<(&String, &LoadMeasurement)> =
        target_descriptions.iter().zip(result.all_measured()).collect();
    let latency_tables = described_measurements
        .iter()
        .map(|(target_description, measured)| build_latency_table(target_description, measured));
    let tried_rates =
        result.objective_and_rates.as_ref().map(|(_, rates)| build_rates_table(rates));
    let mut series = vec![build_percentile_chart(&described_measurements)];
    if result.measured.series.len() > 2 {
        series.push(build_latency_chart(&result.measured));
        series.push(build_rate_chart(&result.measured));
    }
    Report {
        title: format!("Load on {}", target_descriptions.join(" beside ")),
        sentence: format_sentence(&target_descriptions, result),
        tables: latency_tables
            .chain([build_figures_table(&described_measurements)])
            .chain(tried_rates)
            .collect(),
        series,
        findings: list_findings(&result.measured),
        notes: list_notes(&result.measured),
        result: to_document(settings, targets, result),
        ..Report::default()
    }
}

fn to_document(settings: &Settings, targets: &[&Target], result: &LoadFigures) -> Value {
    let target_json =
        |target: &&Target| json!({ "address": target.name, "version": target.version });
    let mut document = json!(result.measured);
    document["target"] = targets.first().map_or(Value::Null, target_json);
    if let Some((other, ratio)) = &result.other_and_ratio {
        document["vs"] = json!(other);
        document["vs"]["target"] = targets.get(1).map_or(Value::Null, target_json);
        document["ratio"] = json!(ratio);
    }
    if let Some((objective, tried_rates)) = &result.objective_and_rates {
        document["objective"] = json!(objective);
        document["tried"] = json!(tried_rates);
    }
    document["warnings"] = json!(list_warnings(result));
    let access = targets.first().map(|target| &target.access);
    document["settings"] = json!({ "connections": settings.connections, "depth": settings.depth,
        "threads": settings.threads, "keys": settings.keys.count(), "seed": settings.seed, "ttl_s": settings.ttl_s,
        "tls": access.is_some_and(|access| access.credentials.tls.is_some()),
        "protocol": access.map(|access| access.protocol) });
    document
}

/// Warnings that the figures do not measure what was meant: a read test whose gets mostly miss measures misses.
pub(super) fn list_warnings(result: &LoadFigures) -> Vec<String> {
    let is_mostly_misses = |measured: &LoadMeasurement| measured.misses > measured.hits;
    if !result.all_measured().any(is_mostly_misses) {
        return Vec::new();
    }
    vec![
        "most gets missed, so these are mostly the times of misses: the server has room for too few of the keys; use \
         fewer or smaller ones (--keys, --size), or give it more memory"
            .to_owned(),
    ]
}

/// The conclusion in some sentences.
fn format_sentence(target_descriptions: &[String], result: &LoadFigures) -> String {
    let measured = &result.measured;
    let description = target_descriptions.first().map_or("", String::as_str);
    let rate = format_count(measured.requests_per_second.round() as u64);
    let latency_us = &measured.latency_us.intended;
    let (p50, p99) = (format_decimal(latency_us.p50), format_decimal(latency_us.p99));
    let mut sentence = match &result.objective_and_rates {
        Some((objective, _)) => format!(
            "{description} serves {rate} requests/s with p{} below {} us (p50 {p50} us, p99 {p99} us).",
            objective.percent,
            format_decimal(objective.latency_us)
        ),
        None => format!("{description} served {rate} requests/s: p50 {p50} us, p99 {p99} us."),
    };
    if let (Some((_, ratio)), Some(other_description)) =
        (&result.other_and_ratio, target_descriptions.get(1))
    {
        let _ = write!(
            sentence,
            " Beside {other_description}: {:.2} times its p50 ({:.2} to {:.2}), {:.2} times its p99 ({:.2} to {:.2}), {:.2} times \
             its rate.",
            ratio.p50.value,
            ratio.p50.low,
            ratio.p50.high,
            ratio.p99.value,
            ratio.p99.low,
            ratio.p99.high,
            ratio.requests_per_second.value
        );
    }
    sentence.push_str(match measured.bottleneck {
        Bottleneck::Server => " The server was the limit.",
        Bottleneck::Generator => {
            " Generator-bound: the generator was the limit, so these figures say little about the server."
        }
        Bottleneck::None => "",
    });
    let operations_before_change = format_count(measured.steadiness.after_operations.unwrap_or(0));
    let steadiness_text = match measured.steadiness.kind {
        SteadinessKind::Flat => String::new(),
        SteadinessKind::WarmUp => {
            format!(" The first {operations_before_change} requests were a warm-up.")
        }
        SteadinessKind::SlowDown => {
            format!(" It became slower after {operations_before_change} requests.")
        }
        SteadinessKind::None => " It never reached a steady state.".to_owned(),
    };
    sentence + &steadiness_text
}

fn build_latency_table(target_description: &str, measured: &LoadMeasurement) -> ReportTable {
    let format_row = |name: &str, percentiles: &Latencies| {
        let cells = [
            percentiles.p50,
            percentiles.p90,
            percentiles.p99,
            percentiles.p99_9,
            percentiles.p99_99,
            percentiles.max,
        ];
        std::iter::once(name.to_owned()).chain(cells.map(format_decimal)).collect()
    };
    let format_share = |share: Option<f64>| {
        share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0))
    };
    let shares = measured.generator_share;
    let generator_row = vec![
        "generator's share".to_owned(),
        format_share(shares.p50),
        String::new(),
        format_share(shares.p99),
        format_share(shares.p99_9),
        String::new(),
        String::new(),
    ];
    ReportTable::new(
        target_description,
        ["latency, us", "p50", "p90", "p99", "p99.9", "p99.99", "max"],
        [
            format_row("from the intended time", &measured.latency_us.intended),
            format_row("from the send time", &measured.latency_us.sent),
            generator_row,
        ],
    )
}

fn build_figures_table(described_measurements: &[(&String, &LoadMeasurement)]) -> ReportTable {
    let format_row = |(target_description, measured): &(&String, &LoadMeasurement)| {
        vec![
            (*target_description).clone(),
            format_count(measured.requests_per_second as u64),
            measured.server_cpu_us.map_or_else(|| "-".to_owned(), format_decimal),
            format_decimal(measured.generator_cpu_us),
            format_count(measured.wrong_values),
        ]
    };
    ReportTable::new(
        "Requests, and us of CPU for each",
        ["target", "requests/s", "server", "generator", "wrong"],
        described_measurements.iter().map(format_row),
    )
}

fn build_rates_table(tried_rates: &[TriedRate]) -> ReportTable {
    let format_row = |tried_rate: &TriedRate| {
        let outcome_text = if tried_rate.meets_objective { "holds" } else { "does not hold" };
        vec![
            format_count(tried_rate.rate as u64),
            format_decimal(tried_rate.latency_us),
            outcome_text.to_owned(),
        ]
    };
    let header = ["requests/s", "us", ""];
    ReportTable::new("Rates that were tried", header, tried_rates.iter().map(format_row))
}

fn build_percentile_chart(described_measurements: &[(&String, &LoadMeasurement)]) -> Chart {
    let new_series = |label: &str, value_at: &dyn Fn(f64) -> f64| Series {
        label: label.to_owned(),
        points: CHART_PERCENTS
            .map(|percent| (100.0 / (100.0 - percent), value_at(percent)))
            .to_vec(),
        ..Series::default()
    };
    let mut series = Vec::new();
    for (target_description, measured) in described_measurements {
        let tally = &measured.tally;
        // With one target its description is in the title.
        let series_label = |time: &str| match described_measurements.len() {
            1 => format!("from the {time} time"),
            _ => format!("{target_description}, from the {time} time"),
        };
        series.push(new_series(&series_label("intended"), &|percent| tally.latency_us(percent)));
        if tally.from_intended.is_some() {
            series.push(new_series(&series_label("send"), &|percent| {
                tally.latency_from_send_us(percent)
            }));
        }
    }
    Chart {
        title: "Latency: one request in N takes longer".to_owned(),
        x_label: "one request in (logarithmic): 2 is the median, 100 is p99, 1000 is p99.9"
            .to_owned(),
        y_label: "microseconds (logarithmic)".to_owned(),
        is_x_log: true,
        is_y_log: true,
        series,
        ..Chart::default()
    }
}

/// A figure of each second, counted from the first.
fn list_points(measured: &LoadMeasurement, figure: fn(&Second) -> f64) -> Vec<(f64, f64)> {
    let first_s = measured.series.first().map_or(0, |second| second.at_s);
    // The replies that an open loop waits for at its end would look like a second of hardly any load.
    let duration_s = measured.seconds.ceil() as u64;
    measured
        .series
        .iter()
        .take_while(|second| second.at_s - first_s < duration_s)
        .map(|second| ((second.at_s - first_s) as f64, figure(second)))
        .collect()
}

fn build_rate_chart(measured: &LoadMeasurement) -> Chart {
    Chart {
        title: "Completed requests over time".to_owned(),
        x_label: "seconds".to_owned(),
        y_label: "requests in a second".to_owned(),
        series: vec![Series {
            label: "requests".to_owned(),
            points: list_points(measured, |second| second.requests as f64),
            ..Series::default()
        }],
        ..Chart::default()
    }
}

fn build_latency_chart(measured: &LoadMeasurement) -> Chart {
    let new_series = |label: &str, figure: fn(&Second) -> f64| Series {
        label: label.to_owned(),
        points: list_points(measured, figure),
        ..Series::default()
    };
    Chart {
        title: "Latency over time".to_owned(),
        x_label: "seconds".to_owned(),
        y_label: "microseconds (logarithmic)".to_owned(),
        is_y_log: true,
        series: vec![
            new_series("p50", |second| second.p50_us),
            new_series("p99", |second| second.p99_us),
            new_series("p99.9", |second| second.p99_9_us),
            new_series("longest", |second| second.max_us),
        ],
        ..Chart::default()
    }
}

fn list_findings(measured: &LoadMeasurement) -> Vec<String> {
    let mut findings = Vec::new();
    if measured.wrong_values > 0 {
        let first_wrong_value = measured.first_wrong_value.as_deref().unwrap_or("no description");
        findings.push(format!(
            "{} values were WRONG; the first: {first_wrong_value}.",
            format_count(measured.wrong_values)
        ));
    }
    if measured.misses > 0 {
        let share = measured.misses as f64 / (measured.hits + measured.misses) as f64;
        findings.push(format!("{:.1} % of the keys were missed.", share * 100.0));
    }
    if measured.refused > 0 {
        findings.push(format!("{} writes had no effect.", format_count(measured.refused)));
    }
    findings
}

fn list_notes(measured: &LoadMeasurement) -> Vec<String> {
    let mut notes = Vec::new();
    if measured.compared_bytes < measured.value_bytes {
        notes.push(format!(
            "Of {} of values, {} were compared with what was stored (--check all compares every byte).",
            format_bytes(measured.value_bytes),
            format_bytes(measured.compared_bytes)
        ));
    }
    if measured.other_cores > 0.2 {
        notes.push(format!("Other processes used {:.1} cores meanwhile.", measured.other_cores));
    }
    notes.push(
        "The generator's share is the time in which a reply was readable but not yet read. The intended time is when \
         a request was due by the schedule, whether or not earlier replies had arrived."
            .to_owned(),
    );
    notes
}
