//! The results of a replay as a sentence, tables and two curves.

use glasscache_sim::page::{Chart, Series};
use glasscache_sim::strategy::comparison::Comparison;
use glasscache_sim::strategy::figures::{Figures, P50_INDEX, P95_INDEX, PERCENTILES, SLOWDOWNS};
use glasscache_sim::strategy::noise::Interval;

use super::results::{Conclusion, Results};
use crate::report::{Report, ReportTable};
use crate::text::format_count;

/// Points of a curve.
const CURVE_POINTS: usize = 300;

pub(super) fn build_report(results: &Results) -> Report {
    Report {
        title: format!("Forecast and replay: {}", results.setup.log_name),
        sentence: format_sentence(results),
        tables: vec![
            build_table("Second half of the requests", &results.second_half),
            build_table("All requests", &results.all_requests),
        ],
        series: vec![build_chart(results)],
        notes: list_notes(results),
        result: results.to_document(),
        ..Report::default()
    }
}

fn format_sentence(results: &Results) -> String {
    let second_half = &results.second_half;
    let measured = &second_half.measured;
    let counts_text = if second_half.counts_are_within(0.0) {
        "calls, keys, bytes and used keys are those of the forecast"
    } else if results.counts_agree() {
        "calls, keys, bytes and used keys are within 1 % of the forecast"
    } else {
        "calls, keys, bytes or used keys differ from the forecast"
    };
    let format_added = |percentile_index: usize| {
        let measured_ns = measured.added_ns_pct.get(percentile_index).copied();
        format!(
            "{} ms ({})",
            format_milliseconds(measured_ns),
            format_signed_percent(second_half.added_error(percentile_index))
        )
    };
    let noise_text = if results.is_too_noisy() {
        let format_range = |error: &Interval| {
            format!(
                "{} to {}",
                format_signed_percent(Some(error.low)),
                format_signed_percent(Some(error.high))
            )
        };
        let [median, p95] = results.added_errors.each_ref().map(format_range);
        format!(
            " This machine is too noisy to tell whether that is chance: the error is {median} at the median and {p95} at p95."
        )
    } else {
        String::new()
    };
    let disturbances = results.disturbances();
    let noise_text = if results.is_forecast_within() || disturbances.is_empty() {
        noise_text
    } else {
        format!("{noise_text} Meanwhile {}.", disturbances.join(", and "))
    };
    format!(
        "{} within {:.0} % on the second half under `{}`: {counts_text}; the calls add {} at the median and {} at p95.{noise_text}",
        match results.conclusion() {
            Conclusion::Held => "The forecast held",
            Conclusion::Missed => "The forecast did not hold",
            Conclusion::Undecided => "Cannot tell whether the forecast held",
        },
        100.0 * results.tolerance,
        results.setup.strategy,
        format_added(P50_INDEX),
        format_added(P95_INDEX),
    )
}

fn list_notes(results: &Results) -> Vec<String> {
    let (setup, replay_outcome) = (&results.setup, &results.replay_outcome);
    let mut notes = vec![
        format!("The forecast is in {}.", setup.forecast_path.display()),
        format!(
            "{} processes of the log, {} threads, server {}. Loading fixed sets took {} calls for {} keys, not counted above.",
            setup.instances,
            setup.clients,
            setup.target,
            format_count(replay_outcome.fixed_set_calls),
            format_count(replay_outcome.fixed_set_keys),
        ),
        format!(
            "The same reads took {} after the replay, compared with before.",
            format_signed_percent(Some(results.drift()))
        ),
    ];
    if results.left_out_reads() > 0 {
        let (absent_reads, all_reads) = setup.absent_keys.reads();
        notes.push(format!(
            "The server does not have {} keys of the log: {} of {} reads are left out of the forecast and of the replay.",
            format_count(setup.absent_keys.len() as u64),
            format_count(absent_reads),
            format_count(all_reads),
        ));
    }
    if replay_outcome.absent_reads > 0 {
        notes.push(format!(
            "{} reads found no value: the server lacks keys of the log, so calls and bytes differ from the forecast. \
             --fill stores random values.",
            format_count(replay_outcome.absent_reads)
        ));
    }
    notes.extend(setup.left_out_parts.iter().map(|part| format!("{part}.")));
    notes.push(format!("glasscache {}.", env!("CARGO_PKG_VERSION")));
    notes
}

fn build_table(title: &str, comparison: &Comparison) -> ReportTable {
    let (forecast, measured) = (&comparison.forecast, &comparison.measured);
    let mut rows = Vec::new();
    let mut push_count_row = |name: &str, count_of: fn(&Figures) -> u64| {
        let per_request = |side_figures: &Figures| {
            count_of(side_figures) as f64 / side_figures.requests.max(1) as f64
        };
        let (forecast_mean, measured_mean) = (per_request(forecast), per_request(measured));
        let error = (forecast_mean > 0.0).then(|| measured_mean / forecast_mean - 1.0);
        let error = error.or((measured_mean == 0.0).then_some(0.0));
        rows.push([
            name.to_owned(),
            format!("{forecast_mean:.3}"),
            format!("{measured_mean:.3}"),
            format_signed_percent(error),
        ]);
    };
    push_count_row("calls a request", |side_figures| side_figures.calls);
    push_count_row("keys a request", |side_figures| side_figures.keys);
    push_count_row("bytes a request", |side_figures| side_figures.bytes);
    push_count_row("used keys a request", |side_figures| side_figures.used_keys);
    for (percentile_index, (name, _)) in PERCENTILES.iter().enumerate() {
        if ["50", "95", "99"].contains(name) {
            rows.push([
                format!("added ms, p{name}"),
                format_milliseconds(forecast.added_ns_pct.get(percentile_index).copied()),
                format_milliseconds(measured.added_ns_pct.get(percentile_index).copied()),
                format_signed_percent(comparison.added_error(percentile_index)),
            ]);
        }
    }
    let slower_shares = forecast.share_slower.iter().zip(&measured.share_slower).zip(SLOWDOWNS);
    for ((forecast_share, measured_share), (_, hundredths)) in slower_shares {
        rows.push([
            format!("slower by >={hundredths} %"),
            format!("{:.2} %", 100.0 * forecast_share),
            format!("{:.2} %", 100.0 * measured_share),
            format!("{:+.2} points", 100.0 * (measured_share - forecast_share)),
        ]);
    }
    let title = format!("{title}: {}", format_count(measured.requests));
    let header = ["", "forecast", "measured", "error"];
    ReportTable::new(title, header, rows.into_iter().map(|row| row.to_vec()))
}

fn build_chart(results: &Results) -> Chart {
    let (forecast, measured) = &results.added_ns;
    // Beyond there is only a tail, which would press everything else to the left.
    let p99_of = |sorted: &[u64]| sorted.get(sorted.len() * 99 / 100).copied();
    let end_ns = p99_of(forecast).max(p99_of(measured)).unwrap_or(0).max(1);
    let new_curve = |label: &str, sorted: &[u64]| {
        let point_at = |point_index: usize| {
            let threshold_ns = end_ns as f64 * point_index as f64 / CURVE_POINTS as f64;
            let below_count = sorted.partition_point(|&ns| (ns as f64) < threshold_ns);
            let share = (sorted.len() - below_count) as f64 / sorted.len().max(1) as f64;
            (threshold_ns / 1e6, 100.0 * share)
        };
        Series {
            label: label.to_owned(),
            points: (0..=CURVE_POINTS).map(point_at).collect(),
            ..Series::default()
        }
    };
    Chart {
        title: "How long requests wait for the cache (second half)".to_owned(),
        x_label: "added time of at least (ms)".to_owned(),
        y_label: "share of requests (%)".to_owned(),
        series: vec![new_curve("forecast", forecast), new_curve("measured", measured)],
        ..Chart::default()
    }
}

fn format_milliseconds(ns: Option<u64>) -> String {
    ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.3}", ns as f64 / 1e6))
}

fn format_signed_percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:+.1} %", 100.0 * share))
}
