//! What the command prints: the comparison of both groups as sentences, as a table and as JSON.

use glasscache_client::near::fixed_set::REFRESHED_KEYS;
use glasscache_client::near::rollout::counts::GroupCounts;
use glasscache_client::near::rollout::decision::is_much_slower;
use glasscache_client::near::rollout::forecast_check::forecast_bound;
use glasscache_client::near::rollout::metrics::{Estimate, METRICS, Metric};
use glasscache_client::near::rollout::recommendation::Recommendation;
use glasscache_client::near::rollout::routes::{RouteDifference, RouteSums};
use glasscache_lab::text::{Table, format_count, format_count_of, format_decimal};
use serde_json::{Value, json};

use super::reports::Reports;

/// What the reports are about, in a sentence.
pub(super) fn describe_reports(reports: &Reports) -> String {
    let share_unit = match reports.share_by.as_str() {
        "process" => "of the processes",
        _ => "of the requests",
    };
    let noun = if reports.processes == 1 { "report" } else { "reports" };
    let failed_requests =
        reports.measured.strategy.failed_requests + reports.measured.control.failed_requests;
    let cut_off = match reports.cut_off_files {
        0 => String::new(),
        count => format!(" {count} of the files end within a report, which is left out."),
    };
    let checks = reports.measured.value_checks;
    let fixed_set = describe_fixed_set(reports);
    format!(
        "{} in {} % {share_unit}; {} {noun}. Left out: {} requests of processes that warmed up, {} that failed.{cut_off} \
         Of {} values that processes kept and compared with the servers', {} had been replaced, {} of them longer ago \
         than allowed.{fixed_set}",
        reports.strategy,
        format_decimal(reports.share * 100.0),
        reports.processes,
        format_count(reports.warm_up_requests),
        format_count(failed_requests),
        format_count(checks.compared),
        format_count(checks.differing),
        format_count(checks.wrong),
    )
}

/// What loading and refreshing the fixed set cost, in a sentence; empty if there is none.
fn describe_fixed_set(reports: &Reports) -> String {
    let loads = reports.measured.fixed_set_loads;
    if loads.calls == 0 {
        return String::new();
    }
    let forecast = reports.forecast.iter().find(|forecast| forecast.figure == REFRESHED_KEYS);
    let forecast_clause = forecast.map_or_else(String::new, |forecast| {
        format!(" (forecast of refreshing: {})", format_decimal(forecast.value))
    });
    format!(
        " Loading and refreshing the fixed set took {} of {}, {} keys a request{forecast_clause}.",
        format_count_of(loads.calls, "call", "calls"),
        format_count_of(loads.keys, "key", "keys"),
        format_decimal(loads.keys as f64 / reports.requests().max(1) as f64),
    )
}

/// Routes of the table, which has those that lose most.
const ROUTES_PRINTED: usize = 6;

/// What requests of each route wait, if routes were named.
pub(super) fn format_routes(reports: &Reports) -> Option<String> {
    let routes = route_differences(reports);
    let mut table =
        Table::new(&["route", "requests", "strategy ms", "control ms", "difference", ""]);
    for route in routes.iter().take(ROUTES_PRINTED) {
        table.push_row([
            route.name.clone(),
            format_count(route.sums.strategy.requests + route.sums.control.requests),
            format_decimal(route.sums.strategy.mean_ms()),
            format_decimal(route.sums.control.mean_ms()),
            format_interval(route.difference),
            if is_much_slower(route) { "slower".to_owned() } else { String::new() },
        ]);
    }
    let not_printed = routes.len().saturating_sub(ROUTES_PRINTED);
    let note = (not_printed > 0).then(|| {
        format!(
            "--json has {} that lose less.\n",
            format_count_of(not_printed as u64, "more route", "more routes")
        )
    });
    (!routes.is_empty()).then(|| format!("{table}{}", note.unwrap_or_default()))
}

fn route_differences(reports: &Reports) -> Vec<RouteDifference> {
    let measured = &reports.measured;
    measured.routes.differences(&measured.strategy, &measured.control)
}

fn build_route_document(route: &RouteDifference) -> Value {
    let to_group_document =
        |sums: &RouteSums| json!({ "requests": sums.requests, "added_ms_mean": sums.mean_ms() });
    let Estimate { value, low, high } = route.difference;
    json!({
        "route": route.name,
        "strategy": to_group_document(&route.sums.strategy),
        "control": to_group_document(&route.sums.control),
        "difference": { "value": value, "low": low, "high": high },
        "is_slower": is_much_slower(route),
    })
}

/// The metrics of both groups, their difference, and the forecast with what it allows for this many requests.
pub(super) fn format_metrics(reports: &Reports) -> String {
    let (strategy_group, control_group) = (&reports.measured.strategy, &reports.measured.control);
    let mut table = Table::new(&["", "strategy", "control", "difference", "forecast"]);
    table.push_row([
        "requests".to_owned(),
        format_count(strategy_group.sum.requests),
        format_count(control_group.sum.requests),
        String::new(),
        String::new(),
    ]);
    // Decoding has a row only if decoding time was measured.
    let is_known = |metric: &Metric| {
        *metric != Metric::DecodeMean
            || [strategy_group, control_group].iter().any(|group| metric.value(group).is_some())
    };
    for metric in METRICS.into_iter().filter(is_known) {
        let format_value =
            |group| metric.value(group).map_or_else(|| "-".to_owned(), format_decimal);
        let difference = metric.difference(strategy_group, control_group);
        let forecast_line =
            reports.forecast.iter().find(|forecast_line| forecast_line.figure == metric.name());
        table.push_row([
            metric.name().replace('_', " "),
            format_value(strategy_group),
            format_value(control_group),
            difference.map_or_else(|| "-".to_owned(), format_interval),
            forecast_line.map_or_else(
                || "-".to_owned(),
                |forecast_line| {
                    let bound = forecast_bound(forecast_line, metric, strategy_group.sum.requests);
                    format!(
                        "{} (<= {})",
                        format_decimal(forecast_line.value),
                        format_decimal(bound)
                    )
                },
            ),
        ]);
    }
    table.to_string()
}

fn format_interval(estimate: Estimate) -> String {
    let format_signed = |value: f64| {
        let sign = if value < 0.0 { "-" } else { "+" };
        format!("{sign}{}", format_decimal(value.abs()))
    };
    let Estimate { value, low, high } = estimate;
    format!("{} ({} to {})", format_signed(value), format_signed(low), format_signed(high))
}

/// The sentence with its first letter in upper case.
pub(super) fn capitalise_first_letter(sentence: &str) -> String {
    let mut chars = sentence.chars();
    let first_letter = chars.next().map(|letter| letter.to_ascii_uppercase());
    first_letter.into_iter().chain(chars).collect()
}

/// The same as JSON.
pub(super) fn build_document(reports: &Reports, recommendation: &Recommendation) -> Value {
    let measured = &reports.measured;
    let to_group_document = |counts: &GroupCounts| {
        json!({
            "requests": counts.sum.requests,
            "failed_requests": counts.failed_requests,
            "bytes": counts.bytes,
        })
    };
    let metrics = METRICS.map(|metric| build_metric_document(reports, metric));
    json!({
        "strategy": reports.strategy,
        "share": reports.share,
        "share_by": reports.share_by,
        "processes": reports.processes,
        "disabled_processes": measured.disabled_processes,
        "disabled_because": reports.disabled_because,
        "warm_up_requests": reports.warm_up_requests,
        "groups": { "strategy": to_group_document(&measured.strategy), "control": to_group_document(&measured.control) },
        "figures": metrics,
        "routes": route_differences(reports).iter().map(build_route_document).collect::<Vec<_>>(),
        "value_checks": {
            "compared": measured.value_checks.compared,
            "differing": measured.value_checks.differing,
            "wrong": measured.value_checks.wrong,
        },
        "near_fill": measured.near_fill.fraction,
        "near_growing": measured.near_fill.is_growing,
        "kept_calls": measured.fixed_set_loads.calls,
        "kept_keys": measured.fixed_set_loads.keys,
        "cut_off_reports": reports.cut_off_files,
        "recommendation": recommendation.action.name(),
        "reason": recommendation.reason,
        "forecast_statement": recommendation.forecast_check.to_string(),
    })
}

fn build_metric_document(reports: &Reports, metric: Metric) -> Value {
    let (strategy_group, control_group) = (&reports.measured.strategy, &reports.measured.control);
    let to_group_document = |counts| {
        let estimate = metric.estimate(counts);
        metric.value(counts).map(|value| {
            json!({
                "value": value,
                "low": estimate.map(|estimate| estimate.low),
                "high": estimate.and_then(|estimate| finite_or_none(estimate.high)),
            })
        })
    };
    let difference = metric.difference(strategy_group, control_group).map(|difference| {
        let Estimate { value, low, high } = difference;
        json!({ "value": value, "low": finite_or_none(low), "high": finite_or_none(high) })
    });
    let forecast_line =
        reports.forecast.iter().find(|forecast_line| forecast_line.figure == metric.name());
    let forecast = forecast_line.map(|forecast_line| {
        let bound = forecast_bound(forecast_line, metric, strategy_group.sum.requests);
        json!({ "value": forecast_line.value, "low": forecast_line.low, "high": forecast_line.high, "bound": bound })
    });
    json!({
        "figure": metric.name(),
        "strategy": to_group_document(strategy_group),
        "control": to_group_document(control_group),
        "difference": difference,
        "forecast": forecast,
    })
}

/// `None` for what JSON cannot express, infinity and NaN.
fn finite_or_none(number: f64) -> Option<f64> {
    number.is_finite().then_some(number)
}
