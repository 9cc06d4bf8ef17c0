//! What the tuned policy did: its switches, what each was expected to bring, what came, and what was taken back.

use glasscache_lab::text::format_count;
use glasscache_sim::policy::{PolicySettings, SwitchRecord};
use glasscache_sim::replay::{PreparedTrace, TunedReplay, replay_tuned};
use serde_json::{Value, json};

use super::summary::format_percent;
use crate::output::Failure;
use crate::parallel::run_in_parallel;
use crate::report::ReportTable;

/// The replay of one size.
pub(super) struct SizeReplay {
    capacity: u64,
    replay: TunedReplay,
}

/// Replays the tuned policy at each size.
pub(super) fn replay(
    trace: &PreparedTrace,
    capacities: &[u64],
    threads: usize,
) -> Result<Vec<SizeReplay>, Failure> {
    let run = |index: usize| {
        let capacity = capacities[index];
        let replay = replay_tuned(trace, capacity, &|| true)?;
        Some(SizeReplay { capacity, replay })
    };
    let outcome = run_in_parallel(capacities.len(), threads, "replaying", run)?;
    Ok(outcome.results.into_iter().flatten().flatten().collect())
}

/// The switches in JSON, the size with each.
pub(super) fn to_document(replays: &[SizeReplay]) -> Value {
    let size_document = |SizeReplay { capacity, replay }: &SizeReplay| {
        json!({
            "capacity": capacity,
            "misses": replay.result.misses,
            "settings": replay.settings.to_string(),
            "why_unchanged": replay.wait_reason,
            "switches": replay.switches.iter().map(switch_document).collect::<Vec<_>>(),
        })
    };
    replays.iter().map(size_document).collect()
}

fn switch_document(switch: &SwitchRecord) -> Value {
    let forecast = switch.forecast();
    json!({
        "requests": switch.requests,
        "time_s": switch.now_s,
        "from": settings_of(switch.from).to_string(),
        "to": settings_of(switch.to).to_string(),
        "reason": switch.reason.name(),
        "expected": forecast.map(|(expected, _)| expected),
        "low": forecast.map(|(expected, error)| expected - error),
        "high": forecast.map(|(expected, error)| expected + error),
        "came": switch.came_gain(),
        "is_forecast_met": switch.is_forecast_met(),
        "undone": switch.is_undone,
    })
}

/// The switches as a table.
pub(super) fn to_table(replays: &[SizeReplay]) -> ReportTable {
    let rows = replays.iter().flat_map(|SizeReplay { capacity, replay }| {
        let size = format_count(*capacity);
        let last_row = vec![
            size.clone(),
            "end".to_owned(),
            String::new(),
            replay.settings.to_string(),
            replay.wait_reason.clone(),
            String::new(),
            String::new(),
            String::new(),
        ];
        let rows: Vec<Vec<String>> =
            replay.switches.iter().map(|switch| format_row(&size, switch)).collect();
        rows.into_iter().chain([last_row])
    });
    let header = ["size", "at request", "from", "to", "why", "expected", "came", "taken back"];
    ReportTable::new("What tuned did, in fewer misses than without the switch", header, rows)
}

fn format_row(size: &str, switch: &SwitchRecord) -> Vec<String> {
    let expected = switch.forecast().map(|(expected, error)| {
        format!("{} +- {}", format_percent(expected), format_percent(error))
    });
    vec![
        size.to_owned(),
        format_count(switch.requests),
        settings_of(switch.from).to_string(),
        settings_of(switch.to).to_string(),
        switch.reason.to_string(),
        expected.unwrap_or_default(),
        switch.came_gain().map(format_percent).unwrap_or_default(),
        if switch.is_undone { "yes" } else { "no" }.to_owned(),
    ]
}

/// The settings of a candidate.
fn settings_of(candidate: usize) -> PolicySettings {
    PolicySettings::CANDIDATES.get(candidate).copied().unwrap_or(PolicySettings::DEFAULT)
}
