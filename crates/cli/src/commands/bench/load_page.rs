//! The page of a load test: the distribution of the latency, and the run over time.

use glasscache_lab::bench::live::{LoadMeasurement, Second};
use glasscache_lab::text::{format_count, format_decimal};
use glasscache_sim::page::{Chart, Page, Series, Table};

use super::load_table::{LoadResult, format_sentence};

/// Percentiles of the chart.
const CHART_PERCENTS: [f64; 12] =
    [1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

/// Builds the page.
pub(super) fn build_page(target_descriptions: &[String], result: &LoadResult) -> Page {
    let described_measurements: Vec<(&String, &LoadMeasurement)> = target_descriptions
        .iter()
        .zip(
            std::iter::once(&result.measured)
                .chain(result.other_and_ratio.as_ref().map(|(other, _)| other)),
        )
        .collect();
    let mut charts = vec![build_percentile_chart(&described_measurements)];
    if result.measured.series.len() > 2 {
        charts.push(build_latency_chart(&result.measured));
        charts.push(build_rate_chart(&result.measured));
    }
    Page {
        title: format!("Load on {}", target_descriptions.join(" beside ")),
        sentence: format_sentence(target_descriptions, result),
        charts,
        tables: vec![build_figures_table(&described_measurements)],
        ..Page::default()
    }
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

fn build_figures_table(described_measurements: &[(&String, &LoadMeasurement)]) -> Table {
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
    let row = |(target_description, measured): &(&String, &LoadMeasurement)| {
        let latency = measured.latency_us.intended;
        vec![
            (*target_description).clone(),
            format_count(measured.requests_per_second as u64),
            format_decimal(latency.p50),
            format_decimal(latency.p99),
            format_decimal(latency.p99_9),
            measured.server_cpu_us.map_or_else(|| "-".to_owned(), format_decimal),
            format_decimal(measured.generator_cpu_us),
            format_count(measured.wrong_values),
        ]
    };
    Table {
        title: "Figures".to_owned(),
        header: header.map(str::to_owned).to_vec(),
        rows: described_measurements.iter().map(row).collect(),
    }
}
