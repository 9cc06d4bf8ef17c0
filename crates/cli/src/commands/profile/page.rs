//! The page of a profile: percentiles over size, the run over time, and what shorter runs would have reported.

use glasscache_lab::profile::{ByCell, Profile};
use glasscache_sim::page::{Chart, Page, Series, Table, short_bytes};

use super::table::{named_parts, sentence};
use crate::live_target::LiveTarget;
use crate::table::{count, decimal};

/// The percentiles that are drawn, with their names.
const DRAWN: [(f64, &str); 4] = [(50.0, "p50"), (90.0, "p90"), (99.0, "p99"), (99.9, "p99.9")];

/// Writes the page.
pub(super) fn page(targets: &[LiveTarget], profile: &Profile, via: Option<&str>) -> String {
    let measured = &profile.measured;
    let names: Vec<String> = targets.iter().map(LiveTarget::describe).collect();
    let mut charts = vec![
        by(
            "Time of a get by size of the value",
            "bytes of the value (logarithmic)",
            &measured.by_size,
        ),
        by(
            "Time of a multi-get by number of keys",
            "keys (logarithmic)",
            &measured.by_width,
        ),
    ];
    if measured.series.len() > 2 {
        charts.push(over_time(profile));
    }
    if measured.reported.len() > 1 {
        charts.push(reported(profile));
    }
    let charts = charts
        .into_iter()
        .filter(|chart| chart.series.iter().any(|series| !series.points.is_empty()));
    Page {
        title: format!("Profile of {}", names.join(" beside ")),
        sentence: sentence(targets, profile),
        charts: charts.collect(),
        tables: vec![
            table("Gets, us", "bytes", &measured.by_size),
            table("Multi-gets, us", "keys", &measured.by_width),
            parts(profile),
        ],
        notes: vec![
            format!(
                "glasscache {}, client {}, {:.1} s.",
                env!("CARGO_PKG_VERSION"),
                via.unwrap_or("glasscache (Rust)"),
                profile.seconds
            ),
            "Intervals contain the true percentile with a probability of 95 %, whatever the distribution; they are \
             wider where neighbouring calls are correlated."
                .to_owned(),
        ],
    }
    .to_html()
}

fn by(title: &str, x_label: &str, cells: &[ByCell]) -> Chart {
    let series = DRAWN.map(|(percent, name)| {
        let (mut points, mut band) = (Vec::new(), Vec::new());
        for cell in cells {
            let at = cell.bytes.or(cell.keys).unwrap_or(0).max(1) as f64;
            let one = cell
                .percentiles
                .iter()
                .find(|one| (one.percent - percent).abs() < 1e-9);
            if let Some((us, value, high)) =
                one.and_then(|one| Some((one.us, one.us.value?, one.us.high?)))
            {
                points.push((at, value));
                band.push((at, us.low, high));
            }
        }
        Series {
            label: name.to_owned(),
            points,
            band,
            ..Series::default()
        }
    });
    Chart {
        title: title.to_owned(),
        x_label: x_label.to_owned(),
        y_label: "microseconds (logarithmic)".to_owned(),
        x_log: true,
        y_log: true,
        series: series.into(),
        ..Chart::default()
    }
}

fn over_time(profile: &Profile) -> Chart {
    let seconds = &profile.measured.series;
    let series = |label: &str, figure: fn(&glasscache_lab::profile::Second) -> f64| Series {
        label: label.to_owned(),
        points: seconds
            .iter()
            .map(|second| (second.at_s as f64, figure(second)))
            .collect(),
        ..Series::default()
    };
    Chart {
        title: "Calls over time".to_owned(),
        x_label: "seconds since the start".to_owned(),
        y_label: "time of a call / median of its size".to_owned(),
        y_log: true,
        series: vec![
            series("p50", |s| s.relative_p50),
            series("p99", |s| s.relative_p99),
        ],
        ..Chart::default()
    }
}

fn reported(profile: &Profile) -> Chart {
    let rows = &profile.measured.reported;
    let series = |label: &str, figure: fn(&glasscache_lab::profile::Reported) -> f64| Series {
        label: label.to_owned(),
        points: rows
            .iter()
            .map(|row| (row.operations as f64, figure(row)))
            .collect(),
        ..Series::default()
    };
    Chart {
        title: "What a shorter run would have reported".to_owned(),
        x_label: "first operations (logarithmic)".to_owned(),
        y_label: "time of a call / median of the whole run".to_owned(),
        x_log: true,
        series: vec![
            series("p50", |row| row.relative_p50),
            series("p99", |row| row.relative_p99),
        ],
        ..Chart::default()
    }
}

fn table(title: &str, first: &str, cells: &[ByCell]) -> Table {
    let mut header = vec![first.to_owned(), "calls".to_owned()];
    for one in cells.first().into_iter().flat_map(|cell| &cell.percentiles) {
        header.push(format!("p{}", one.percent));
    }
    let row = |cell: &ByCell| {
        let at = match (cell.bytes, cell.keys) {
            (Some(bytes), _) => short_bytes(bytes as u64),
            (_, keys) => count(keys.unwrap_or(0) as u64),
        };
        let percentiles = cell
            .percentiles
            .iter()
            .map(|one| match (one.us.value, one.us.high) {
                (Some(us), Some(high)) => format!(
                    "{} ({}-{})",
                    decimal(us),
                    decimal(one.us.low),
                    decimal(high)
                ),
                _ => format!(">= {}", decimal(one.us.low)),
            });
        [at, count(cell.samples)]
            .into_iter()
            .chain(percentiles)
            .collect()
    };
    Table {
        title: title.to_owned(),
        header,
        rows: cells.iter().map(row).collect(),
    }
}

fn parts(profile: &Profile) -> Table {
    let rows = profile.measured.split.as_ref().map(|split| {
        named_parts(split)
            .into_iter()
            .map(|(name, us)| vec![name.to_owned(), decimal(us)])
            .collect()
    });
    Table {
        title: "Mean time of a get by part".to_owned(),
        header: vec!["part".to_owned(), "us".to_owned()],
        rows: rows.unwrap_or_default(),
    }
}
