//! The results of a replay as tables, a sentence and two curves, for the terminal and for the page.

use glasscache_sim::page::{Chart, Page, Series, Table};
use glasscache_sim::strategy::comparison::Comparison;
use glasscache_sim::strategy::figures::{Figures, P50, P95, PERCENTILES, SLOWDOWNS};

use super::results::Results;
use crate::table::count;

/// Points of a curve.
const POINTS: usize = 300;

/// Everything; the terminal shows it without charts.
pub(super) fn page(results: &Results) -> Page {
    Page {
        title: format!("Forecast and replay: {}", results.source.log_name),
        sentence: sentence(results),
        tables: vec![
            table("Second half of the requests", &results.second_half),
            table("All requests", &results.all),
        ],
        charts: vec![chart(results)],
        notes: notes(results),
        ..Page::default()
    }
}

fn sentence(results: &Results) -> String {
    let half = &results.second_half;
    let (forecast, measured) = (&half.forecast, &half.measured);
    let counts = |of: &Figures| [of.calls, of.keys, of.bytes, of.used_keys];
    let are_equal = if counts(forecast) == counts(measured) {
        "calls, keys, bytes and used keys are those of the forecast"
    } else {
        "calls, keys, bytes or used keys differ from the forecast"
    };
    let added = |at: usize| {
        let measured = measured.added_ns_pct.get(at).copied();
        format!(
            "{} ms ({})",
            milliseconds(measured),
            signed_percent(half.added_error(at))
        )
    };
    format!(
        "The forecast {} within {:.0} % on the second half under `{}`: {are_equal}; the calls add {} at the median and {} at p95.",
        if results.forecast_holds() {
            "held"
        } else {
            "did not hold"
        },
        100.0 * results.within,
        results.source.strategy,
        added(P50),
        added(P95),
    )
}

fn notes(results: &Results) -> Vec<String> {
    let (source, replayed) = (&results.source, &results.replayed);
    let mut notes = vec![
        format!("The forecast is in {}.", source.forecast_path.display()),
        format!(
            "{} processes of the log, {} threads, server {}. Loading fixed sets took {} calls for {} keys, not counted above.",
            source.instances,
            source.clients,
            source.target,
            count(replayed.kept_calls),
            count(replayed.kept_keys),
        ),
        format!(
            "The same reads took {} after the replay, compared with before.",
            signed_percent(Some(results.drift()))
        ),
    ];
    if replayed.absent > 0 {
        notes.push(format!(
            "{} reads found no value: the server lacks keys of the log, so calls and bytes differ from the forecast. \
             --fill stores random values.",
            count(replayed.absent)
        ));
    }
    notes.push(format!("glasscache {}.", env!("CARGO_PKG_VERSION")));
    notes
}

fn table(title: &str, comparison: &Comparison) -> Table {
    let (forecast, measured) = (&comparison.forecast, &comparison.measured);
    let mut rows = Vec::new();
    let mut counted = |name: &str, value: fn(&Figures) -> u64| {
        let a_request = |of: &Figures| value(of) as f64 / of.requests.max(1) as f64;
        let (forecast, measured) = (a_request(forecast), a_request(measured));
        let error = (forecast > 0.0).then(|| measured / forecast - 1.0);
        let error = error.or((measured == 0.0).then_some(0.0));
        rows.push([
            name.to_owned(),
            format!("{forecast:.3}"),
            format!("{measured:.3}"),
            signed_percent(error),
        ]);
    };
    counted("calls a request", |it| it.calls);
    counted("keys a request", |it| it.keys);
    counted("bytes a request", |it| it.bytes);
    counted("used keys a request", |it| it.used_keys);
    for (at, (name, _)) in PERCENTILES.iter().enumerate() {
        if ["50", "95", "99"].contains(name) {
            rows.push([
                format!("added ms, p{name}"),
                milliseconds(forecast.added_ns_pct.get(at).copied()),
                milliseconds(measured.added_ns_pct.get(at).copied()),
                signed_percent(comparison.added_error(at)),
            ]);
        }
    }
    let slower = forecast
        .share_slower
        .iter()
        .zip(&measured.share_slower)
        .zip(SLOWDOWNS);
    for ((forecast, measured), (_, hundredths)) in slower {
        rows.push([
            format!("slower by >={hundredths} %"),
            format!("{:.2} %", 100.0 * forecast),
            format!("{:.2} %", 100.0 * measured),
            format!("{:+.2} points", 100.0 * (measured - forecast)),
        ]);
    }
    Table {
        title: format!("{title}: {}", count(measured.requests)),
        header: ["", "forecast", "measured", "error"]
            .map(str::to_owned)
            .to_vec(),
        rows: rows.into_iter().map(|row| row.to_vec()).collect(),
    }
}

fn chart(results: &Results) -> Chart {
    let (forecast, measured) = &results.added_ns;
    // Beyond there is only a tail, which would press everything else to the left.
    let at_99 = |sorted: &[u64]| sorted.get(sorted.len() * 99 / 100).copied();
    let end_ns = at_99(forecast).max(at_99(measured)).unwrap_or(0).max(1);
    let curve = |label: &str, sorted: &[u64]| {
        let share = |n: usize| {
            let at_least = end_ns as f64 * n as f64 / POINTS as f64;
            let below = sorted.partition_point(|&ns| (ns as f64) < at_least);
            let share = (sorted.len() - below) as f64 / sorted.len().max(1) as f64;
            (at_least / 1e6, 100.0 * share)
        };
        Series {
            label: label.to_owned(),
            points: (0..=POINTS).map(share).collect(),
            ..Series::default()
        }
    };
    Chart {
        title: "How long requests wait for the cache (second half)".to_owned(),
        x_label: "added time of at least (ms)".to_owned(),
        y_label: "share of requests (%)".to_owned(),
        series: vec![curve("forecast", forecast), curve("measured", measured)],
        ..Chart::default()
    }
}

fn milliseconds(ns: Option<u64>) -> String {
    ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.3}", ns as f64 / 1e6))
}

fn signed_percent(share: Option<f64>) -> String {
    share.map_or_else(
        || "-".to_owned(),
        |share| format!("{:+.1} %", 100.0 * share),
    )
}
