//! Roll-outs whose requests are drawn by chance: what is recommended, and in how many of twenty.

use super::super::process_rollout::ProcessRollout;
use super::super::rollout_share::{Group, RolloutShare, ShareBy};
use super::super::simulated::{Random, Traffic};
use super::super::warm_up::NearContent;
use super::*;

/// How often each roll-out is made.
const RUNS: u64 = 20;
/// Processes of one, and the requests of each.
const PROCESSES: u64 = 20;
const REQUESTS: u64 = 3000;

/// What the strategy does in a roll-out.
#[derive(Clone, Copy)]
struct Case {
    /// Time of its requests, as a multiple of the control group's.
    time_factor: f64,
    /// The same in two routes of twenty.
    time_factor_of_slow_routes: f64,
    /// Values that it serves beyond their bound, of 10,000 that are compared.
    wrong_values: u64,
}

const BETTER: Case = Case { time_factor: 0.9, time_factor_of_slow_routes: 0.9, wrong_values: 0 };

/// Runs one process; its measurements are added.
fn run_process(case: Case, random: &mut Random, measured: &mut RolloutMeasurements) {
    let share = RolloutShare { fraction: 0.5, by: ShareBy::Request };
    let seed = (random.draw_fraction() * 1e9) as u64;
    let mut process_rollout = ProcessRollout::new(Vec::new(), Some(share), seed);
    let mut control = Traffic::typical();
    let mut strategy = Traffic::typical().with_time(case.time_factor);
    let mut slow = Traffic::typical().with_time(case.time_factor_of_slow_routes);
    for _ in 0..REQUESTS {
        let route_number = (random.draw_fraction() * 20.0) as u32;
        let group = process_rollout.begin_request();
        let cost = match group {
            Group::Control => control.draw_request(random),
            Group::Strategy if route_number < 2 => slow.draw_request(random),
            Group::Strategy => strategy.draw_request(random),
        };
        let checks = ValueChecks {
            compared: 1,
            wrong: u64::from(case.wrong_values > 0),
            ..Default::default()
        };
        if random.draw_fraction() < case.wrong_values as f64 / 10_000.0 {
            process_rollout.count_value_checks(&ValueChecks { bound_ms: 10_000, ..checks });
        }
        let route = format!("/{route_number}");
        process_rollout.end_request(group, Some(&route), &cost, NearContent::COMPLETE);
    }
    measured.processes += 1;
    measured.disabled_processes += usize::from(process_rollout.disable_reason().is_some());
    measured.strategy.merge(&process_rollout.groups().strategy);
    measured.control.merge(&process_rollout.groups().control);
    measured.value_checks.add(&process_rollout.value_checks());
    for (route, sums) in process_rollout.routes().iter() {
        measured.routes.add_sums(route, sums);
    }
}

fn recommendations(case: Case) -> Vec<Recommendation> {
    let run = |seed: u64| {
        let (mut random, mut measured) =
            (Random(seed * 104_729 + 7), RolloutMeasurements::default());
        for _ in 0..PROCESSES {
            run_process(case, &mut random, &mut measured);
        }
        recommend(&[], &measured)
    };
    (0..RUNS).map(run).collect()
}

fn assert_recommended(case: Case, expected: &[Action]) -> Vec<Recommendation> {
    let recommendations = recommendations(case);
    let is_expected = |made: &&Recommendation| expected.contains(&made.action);
    let count = recommendations.iter().filter(is_expected).count();
    assert!(count >= 18, "{count} of {RUNS}: {recommendations:#?}");
    recommendations
}

#[test]
fn a_strategy_that_is_a_tenth_better_continues_and_its_report_has_both_figures() {
    let recommendations = assert_recommended(BETTER, &[Action::Continue]);
    let reason = &recommendations[0].reason;
    assert!(reason.starts_with("Calls ") && reason.contains("ms that a request waits"), "{reason}");
}

#[test]
fn a_strategy_that_changes_nothing_continues_or_waits() {
    let case = Case { time_factor: 1.0, time_factor_of_slow_routes: 1.0, ..BETTER };
    assert_recommended(case, &[Action::Continue, Action::Wait]);
}

#[test]
fn a_strategy_that_is_a_tenth_worse_rolls_back() {
    let case = Case { time_factor: 1.1, time_factor_of_slow_routes: 1.1, ..BETTER };
    assert_recommended(case, &[Action::RollBack]);
}

#[test]
fn a_strategy_that_is_better_and_doubles_the_wait_of_two_routes_rolls_back_and_names_them() {
    // 0.9 x 0.78 + 0.1 x 2 is a tenth better on the whole.
    let case = Case { time_factor: 0.78, time_factor_of_slow_routes: 2.0, ..BETTER };
    for recommendation in assert_recommended(case, &[Action::RollBack]) {
        let reason = recommendation.reason;
        assert!(reason.contains("/0 (") && reason.contains("/1 ("), "{reason}");
        assert!(!reason.contains("/2 ("), "{reason}");
    }
}

#[test]
fn a_strategy_that_serves_wrong_values_rolls_back_whatever_it_saves() {
    let case = Case { wrong_values: 10, ..BETTER };
    for recommendation in assert_recommended(case, &[Action::RollBack]) {
        assert!(recommendation.reason.contains("replaced longer than 10000 ms ago"));
    }
}

fn measurements_of(strategy: GroupCounts, control: GroupCounts) -> RolloutMeasurements {
    RolloutMeasurements { processes: 1, strategy, control, ..RolloutMeasurements::default() }
}

#[test]
fn three_requests_of_a_control_group_are_too_few_for_any_conclusion() {
    let mut random = Random(8);
    for calls_factor in [0.1, 1.0, 9.0] {
        let strategy = Traffic::typical().with_calls(calls_factor).draw_group(5000, &mut random);
        let control = Traffic::typical().draw_group(3, &mut random);
        let recommendation = recommend(&[], &measurements_of(strategy.clone(), control));
        assert_eq!(recommendation.action, Action::Wait);
        assert!(recommendation.reason.starts_with("too few"), "{}", recommendation.reason);
        let without = recommend(&[], &measurements_of(strategy, GroupCounts::default()));
        assert_eq!(without.action, Action::Wait);
        assert!(without.reason.contains("no control group"), "{}", without.reason);
    }
}

#[test]
fn a_missed_forecast_is_reported_and_decides_nothing() {
    let mut random = Random(7);
    let strategy = Traffic::typical().with_calls(0.1).draw_group(460, &mut random);
    let control = Traffic::typical().draw_group(460, &mut random);
    let mut measurements = measurements_of(strategy, control);
    measurements.near_fill = NearFill { fraction: Some(0.71), is_growing: true };
    let forecast = Forecast { figure: "calls".into(), value: 0.034, low: 0.0, high: 0.035 };
    let recommendation = recommend(&[forecast], &measurements);
    assert_eq!(recommendation.action, Action::Continue);
    let statement = recommendation.forecast_check.to_string();
    assert_eq!(
        statement,
        "The forecast was 0.034 (calls): near caches are 71 % full and still growing"
    );
}

#[test]
fn one_disabled_process_of_many_is_chance_and_several_are_not() {
    let mut random = Random(9);
    let strategy = Traffic::typical().with_calls(0.5).draw_group(3000, &mut random);
    let control = Traffic::typical().draw_group(3000, &mut random);
    let action = |processes, disabled_processes| {
        let measurements = RolloutMeasurements {
            processes,
            disabled_processes,
            ..measurements_of(strategy.clone(), control.clone())
        };
        recommend(&[], &measurements).action
    };
    assert_eq!(action(1, 1), Action::RollBack);
    assert_eq!(action(10, 1), Action::Continue);
    assert_eq!(action(40, 3), Action::RollBack);
    assert_eq!(action(100, 3), Action::Continue);
}
