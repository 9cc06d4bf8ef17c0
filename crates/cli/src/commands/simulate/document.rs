//! The results as JSON: docs/reference/formats.md, "Results file".

use glasscache_sim::strategy::prepare::Prepared;
use serde_json::{Map, Value, json};

use super::load::LoadedLog;
use super::table::sentence;
use super::{NamedStrategy, Replays};

/// The whole document.
pub(super) fn document(
    loaded: &LoadedLog,
    prepared: &Prepared<'_>,
    replays: &Replays,
    routes: &[String],
) -> Value {
    let strategies: Map<String, Value> = replays
        .reports
        .iter()
        .map(|(NamedStrategy { notation, .. }, report)| (notation.clone(), report.document(routes)))
        .collect();
    json!({
        "sentence": sentence(replays),
        "log": log(loaded, prepared),
        "stopped": replays.is_stopped,
        "strategies": strategies,
    })
}

/// What was replayed.
pub(super) fn log(loaded: &LoadedLog, prepared: &Prepared<'_>) -> Value {
    json!({
        "requests": prepared.len(),
        "items": prepared.items.len(),
        "instances": prepared.instances(),
        "accesses": prepared.accesses,
        "cut_after_requests": loaded.log.truncated_after,
    })
}
