//! The page of a load test: the distribution of the latency, and the run over time.

use glasscache_lab::bench::live::Measured;
use glasscache_sim::page::{Chart, Page, Series, Table};

use super::load_table::{Found, sentence};
use crate::table::{count, decimal};

/// Percentiles of the chart.
const PERCENTS: [f64; 12] = [
    1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99,
];

/// Writes the page.
pub(super) fn page(names: &[String], found: &Found) -> String {
    let sides: Vec<(&String, &Measured)> = names
        .iter()
        .zip(std::iter::once(&found.measured).chain(found.vs.as_ref().map(|(vs, _)| vs)))
        .collect();
    let mut charts = vec![distribution(&sides)];
    if found.measured.series.len() > 2 {
        charts.push(over_time(&found.measured));
    }
    Page {
        title: format!("Load on {}", names.join(" beside ")),
        sentence: sentence(names, found),
        charts,
        tables: vec![figures(&sides)],
        notes: vec![format!("glasscache {}.", env!("CARGO_PKG_VERSION"))],
    }
    .to_html()
}

fn distribution(sides: &[(&String, &Measured)]) -> Chart {
    let series = |name: &str, at: &dyn Fn(f64) -> f64| Series {
        label: name.to_owned(),
        points: PERCENTS
            .map(|percent| (100.0 / (100.0 - percent), at(percent)))
            .to_vec(),
        ..Series::default()
    };
    let mut all = Vec::new();
    for (name, measured) in sides {
        let tally = &measured.tally;
        all.push(series(
            &format!("{name}, from the intended time"),
            &|percent| tally.latency_us(percent),
        ));
        if tally.from_intended.is_some() {
            all.push(series(&format!("{name}, from the send time"), &|percent| {
                tally.latency_from_send_us(percent)
            }));
        }
    }
    Chart {
        title: "Latency: one request in so many takes longer".to_owned(),
        x_label: "one request in (logarithmic): 2 is the median, 100 is p99, 1000 is p99.9"
            .to_owned(),
        y_label: "microseconds (logarithmic)".to_owned(),
        x_log: true,
        y_log: true,
        series: all,
        ..Chart::default()
    }
}

fn over_time(measured: &Measured) -> Chart {
    let first = measured.series.first().map_or(0, |second| second.at_s);
    let points = |figure: fn(&glasscache_lab::bench::live::Second) -> f64| {
        measured
            .series
            .iter()
            .map(|second| ((second.at_s - first) as f64, figure(second)))
            .collect()
    };
    Chart {
        title: "Latency over time".to_owned(),
        x_label: "seconds".to_owned(),
        y_label: "microseconds (logarithmic)".to_owned(),
        y_log: true,
        series: vec![
            Series {
                label: "p50".to_owned(),
                points: points(|s| s.p50_us),
                ..Series::default()
            },
            Series {
                label: "p99".to_owned(),
                points: points(|s| s.p99_us),
                ..Series::default()
            },
        ],
        ..Chart::default()
    }
}

fn figures(sides: &[(&String, &Measured)]) -> Table {
    let header = [
        "",
        "requests/s",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "server CPU us",
        "generator CPU us",
        "wrong",
    ];
    let row = |(name, m): &(&String, &Measured)| {
        let latency = m.latency_us.intended;
        vec![
            (*name).clone(),
            count(m.requests_per_second as u64),
            decimal(latency.p50),
            decimal(latency.p99),
            decimal(latency.p99_9),
            m.server_cpu_us.map_or_else(|| "-".to_owned(), decimal),
            decimal(m.generator_cpu_us),
            count(m.wrong_values),
        ]
    };
    Table {
        title: "Figures".to_owned(),
        header: header.map(str::to_owned).to_vec(),
        rows: sides.iter().map(row).collect(),
    }
}
