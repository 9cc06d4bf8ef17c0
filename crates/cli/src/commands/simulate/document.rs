//! The results as JSON: docs/reference/formats.md, "Results".

use glasscache_sim::strategy::prepare::PreparedLog;
use serde_json::{Map, Value, json};

use super::Replays;
use super::choice::find_best_with_fixed_set;
use super::describe::describe;
use super::fixed_items::{FixedItems, find_unknown_sizes};
use super::load::LoadedLog;
use super::table::format_sentence;

/// The whole document.
pub(super) fn build_document(
    loaded: &LoadedLog,
    prepared: &PreparedLog<'_>,
    replays: &Replays,
    routes: &[String],
) -> Value {
    let strategies: Map<String, Value> = replays
        .strategy_reports
        .iter()
        .map(|(named, report)| {
            let mut document = report.to_document(routes);
            document["words"] = json!(describe(&named.strategy, &report.kept));
            (named.notation.clone(), document)
        })
        .collect();
    json!({
        "sentence": format_sentence(replays),
        "log": build_log_document(loaded, prepared),
        "stopped": replays.is_stopped,
        "strategies": strategies,
        "fixed_set": find_best_with_fixed_set(replays)
            .and_then(|named| FixedItems::of_strategy(named, loaded, prepared))
            .map(|fixed_items| fixed_items.to_document()),
    })
}

/// What was replayed.
pub(super) fn build_log_document(loaded: &LoadedLog, prepared: &PreparedLog<'_>) -> Value {
    json!({
        "requests": prepared.len(),
        "items": prepared.items.len(),
        "instances": prepared.instances(),
        "accesses": prepared.accesses,
        "items_of_unknown_size": find_unknown_sizes(prepared).map_or(0, |(item_count, _)| item_count),
        "cut_after_requests": loaded.log.truncated_after,
        "recorded_waits": loaded.cost_model.recorded_waits().map(|waits| json!({
            "calls": waits.calls,
            "request_us": waits.request_ns / 1e3,
            "call_us": waits.call_ns / 1e3,
            "key_us": waits.key_ns / 1e3,
            "table_share": waits.table_share,
        })),
        "left_out_parts": loaded.left_out.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
