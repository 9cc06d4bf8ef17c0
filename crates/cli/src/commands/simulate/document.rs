//! The results as JSON: docs/reference/formats.md, "Results file".

use glasscache_sim::strategy::prepare::Prepared;
use serde_json::{Map, Value, json};

use super::load::Loaded;
use super::{Findings, Named};

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
        .map(|(Named { words, .. }, report)| (words.clone(), report.document(routes)))
        .collect();
    json!({
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
