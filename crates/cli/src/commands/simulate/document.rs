//! The results as JSON: docs/reference/formats.md, "Results file".

use glasscache_sim::strategy::figures::{Figures, PERCENTILES, SLOWER};
use glasscache_sim::strategy::prepare::Prepared;
use glasscache_sim::strategy::report::Report;
use serde_json::{Map, Value, json};

use super::load::Loaded;
use super::{Findings, Named};

/// Version of the document; it changes when a field changes its meaning or goes.
pub(super) const VERSION: u32 = 1;

/// The whole document.
pub(super) fn document(
    loaded: &Loaded,
    prepared: &Prepared<'_>,
    findings: &Findings,
    routes: &[String],
) -> Value {
    let strategies: Map<String, Value> = findings
        .reports
        .iter()
        .map(|(Named { words, .. }, report)| (words.clone(), strategy(report, routes)))
        .collect();
    json!({
        "version": VERSION,
        "log": log(loaded, prepared),
        "stopped": findings.is_stopped,
        "strategies": strategies,
    })
}

/// What was replayed.
pub(super) fn log(loaded: &Loaded, prepared: &Prepared<'_>) -> Value {
    json!({
        "requests": prepared.len(),
        "items": prepared.items.len(),
        "instances": prepared.instances(),
        "accesses": prepared.accesses,
        "cut_after_requests": loaded.log.cut,
    })
}

fn strategy(report: &Report, routes: &[String]) -> Value {
    let mut value = json!({
        "all": figures(&report.all),
        "second_half": figures(&report.second_half),
        "kept": {
            "fixed_items": report.kept.fixed_items,
            "fixed_bytes": report.kept.fixed_bytes,
            "local_bytes": report.kept.local_bytes,
        },
    });
    if let (Some(drawn), Some(comonotone)) = (&report.drawn, &report.comonotone) {
        value["drawn"] = json!({ "second_half": figures(drawn) });
        value["drawn_comonotone"] = json!({ "second_half": figures(comonotone) });
    }
    if !routes.is_empty() {
        let route = |(name, (all, second_half)): (&String, &(Figures, Figures))| {
            (
                name.clone(),
                json!({ "all": figures(all), "second_half": figures(second_half) }),
            )
        };
        value["routes"] = Value::Object(routes.iter().zip(&report.routes).map(route).collect());
    }
    value
}

/// The figures of some requests, with the names of the format document.
pub(super) fn figures(figures: &Figures) -> Value {
    let by_percentile = |values: Vec<Value>| -> Map<String, Value> {
        PERCENTILES
            .iter()
            .zip(values)
            .map(|((name, _), value)| ((*name).to_owned(), value))
            .collect()
    };
    let slower: Map<String, Value> = SLOWER
        .iter()
        .zip(figures.share_slower)
        .map(|((name, _), share)| ((*name).to_owned(), json!(share)))
        .collect();
    json!({
        "requests": figures.requests,
        "calls": figures.calls,
        "keys": figures.keys,
        "bytes": figures.bytes,
        "used_keys": figures.used_keys,
        "added_ns": figures.added_ns,
        "slowdown_pct": by_percentile(figures.slowdown_pct.iter().map(|v| json!(v)).collect()),
        "latency_ns_pct": by_percentile(figures.latency_ns_pct.iter().map(|v| json!(v)).collect()),
        "share_slower": slower,
    })
}
