//! What the tuned policy did: its switches, what each was expected to bring, what came, and what was taken back.

use glasscache_lab::report::ReportTable;
use glasscache_lab::text::format_count;
use glasscache_sim::policy::{Goal, PolicySettings, SwitchRecord};
use glasscache_sim::replay::{PreparedTrace, TunedReplay, replay_tuned};
use serde_json::{Value, json};

use super::summary::format_percent;
use crate::output::Failure;
use crate::parallel::run_in_parallel;

/// The replay of one size.
pub(super) struct SizeReplay {
    goal: Goal,
    capacity: u64,
    replay: TunedReplay,
}

/// Replays the tuned policy with each goal at each size.
pub(super) fn replay(
    trace: &PreparedTrace,
    (goals, capacities): (&[Goal], &[u64]),
    (seed, threads): (u64, usize),
) -> Result<Vec<SizeReplay>, Failure> {
    let sizes_of = |&goal: &Goal| capacities.iter().map(move |&capacity| (goal, capacity));
    let tasks: Vec<(Goal, u64)> = goals.iter().flat_map(sizes_of).collect();
    let run = |index: usize| {
        let (goal, capacity) = tasks[index];
        let replay = replay_tuned(trace, capacity, (goal, seed), &|| true)?;
        Some(SizeReplay { goal, capacity, replay })
    };
    let outcome = run_in_parallel(tasks.len(), threads, "replaying", run)?;
    Ok(outcome.results.into_iter().flatten().flatten().collect())
}

/// The switches in JSON, the size with each.
pub(super) fn to_document(replays: &[SizeReplay]) -> Value {
    let size_document = |SizeReplay { goal, capacity, replay }: &SizeReplay| {
        json!({
            "goal": goal.name(),
            "capacity": capacity,
            "misses": replay.result.misses,
            "byte_miss_ratio": replay.result.byte_miss_ratio(),
            "untuned_misses": replay.untuned.misses,
            "untuned_byte_miss_ratio": replay.untuned.byte_miss_ratio(),
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
    let rows = replays.iter().flat_map(|SizeReplay { goal, capacity, replay }| {
        let size = match goal {
            Goal::Objects => format_count(*capacity),
            goal => format!("{} for {}", format_count(*capacity), goal.name()),
        };
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
