//! The page of a profile: percentiles over size, the run over time, and what shorter runs would have reported.

use glasscache_lab::profile::{CellPercentiles, Profile};
use glasscache_lab::text::{format_count, format_decimal};
use glasscache_sim::page::{Chart, Page, Series, Table, format_short_bytes};

use super::table::{format_sentence, list_named_parts};
use crate::live_target::LiveTarget;

/// The percentiles that are drawn, with their names.
const PERCENTILES_DRAWN: [(f64, &str); 4] =
    [(50.0, "p50"), (90.0, "p90"), (99.0, "p99"), (99.9, "p99.9")];

/// Builds the page.
pub(super) fn build_page(targets: &[LiveTarget], profile: &Profile, via: Option<&str>) -> Page {
    let measured = &profile.measured;
    let target_descriptions: Vec<String> = targets.iter().map(|target| target.describe()).collect();
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
    let charts = charts
        .into_iter()
        .filter(|chart| chart.series.iter().any(|series| !series.points.is_empty()));
    Page {
        title: format!("Profile of {}", target_descriptions.join(" beside ")),
        sentence: format_sentence(targets, profile),
        charts: charts.collect(),
        tables: vec![
            build_percentile_table("Gets, us", "bytes", &measured.by_size),
            build_percentile_table("Multi-gets, us", "keys", &measured.by_width),
            build_parts_table(profile),
        ],
        notes: vec![
            format!(
                "Client {}, {:.1} s.",
                via.unwrap_or("glasscache (Rust)"),
                profile.seconds
            ),
            "Intervals contain the true percentile with a probability of 95 %, whatever the distribution; they are \
             wider where neighbouring calls are correlated."
                .to_owned(),
        ],
        ..Page::default()
    }
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
    let new_series = |label: &str, figure: fn(&glasscache_lab::profile::Second) -> f64| Series {
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
    let new_series =
        |label: &str, figure: fn(&glasscache_lab::profile::ShorterRun) -> f64| Series {
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

fn build_percentile_table(title: &str, first_column: &str, cells: &[CellPercentiles]) -> Table {
    let mut header = vec![first_column.to_owned(), "calls".to_owned()];
    for percentile in cells.first().into_iter().flat_map(|cell| &cell.percentiles) {
        header.push(format!("p{}", percentile.percent));
    }
    let format_row = |cell: &CellPercentiles| {
        let size_or_width = match (cell.bytes, cell.keys) {
            (Some(bytes), _) => format_short_bytes(bytes as u64),
            (_, keys) => format_count(keys.unwrap_or(0) as u64),
        };
        let percentiles = cell.percentiles.iter().map(|percentile| {
            match (percentile.estimate_us.value, percentile.estimate_us.high) {
                (Some(us), Some(high)) => format!(
                    "{} ({}-{})",
                    format_decimal(us),
                    format_decimal(percentile.estimate_us.low),
                    format_decimal(high)
                ),
                _ => format!(">= {}", format_decimal(percentile.estimate_us.low)),
            }
        });
        [size_or_width, format_count(cell.samples)].into_iter().chain(percentiles).collect()
    };
    Table { title: title.to_owned(), header, rows: cells.iter().map(format_row).collect() }
}

fn build_parts_table(profile: &Profile) -> Table {
    let rows = profile.measured.get_times.as_ref().map(|get_times| {
        list_named_parts(get_times)
            .into_iter()
            .map(|(name, us)| vec![name.to_owned(), format_decimal(us)])
            .collect()
    });
    Table {
        title: "Mean time of a get by part".to_owned(),
        header: vec!["part".to_owned(), "us".to_owned()],
        rows: rows.unwrap_or_default(),
    }
}
