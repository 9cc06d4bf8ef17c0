//! Processes whose requests are drawn by chance: which strategies they disable, and when.

use super::super::rollout_share::ShareBy;
use super::super::simulated::{Random, Traffic};
use super::*;

/// How often the tests run each case.
const RUNS: u64 = 100;

/// A strategy whose forecast no requests meet, by which nothing is decided.
fn new_process_rollout(fraction: f64) -> ProcessRollout {
    let share = RolloutShare { fraction, by: ShareBy::Request };
    let forecast = Forecast { figure: "calls".into(), value: 0.01, low: 0.0, high: 0.02 };
    ProcessRollout::new(vec![forecast], Some(share), 1)
}

/// The number of the request after which the strategy was disabled.
fn disabled_after(
    process_rollout: &mut ProcessRollout,
    requests_max: u64,
    (mut strategy, mut control): (Traffic, Traffic),
    random: &mut Random,
) -> Option<u64> {
    (1..=requests_max).find(|_| {
        let group = process_rollout.begin_request();
        let cost = match group {
            Group::Strategy => strategy.draw_request(random),
            Group::Control => control.draw_request(random),
        };
        process_rollout.end_request(group, None, &cost, NearContent::COMPLETE).is_some()
    })
}

/// In how many runs a strategy whose requests are this traffic is disabled, beside a control group of the usual traffic.
fn count_disabled_runs(fraction: f64, strategy: Traffic) -> usize {
    let initial_rollout = new_process_rollout(fraction);
    let is_disabled = |&seed: &u64| {
        let random = &mut Random(seed * 7919 + 1);
        let traffic = (strategy, Traffic::typical());
        disabled_after(&mut initial_rollout.clone(), 2000, traffic, random).is_some()
    };
    (0..RUNS).filter(is_disabled).count()
}

#[test]
fn a_strategy_with_1_8_times_the_calls_of_its_control_group_is_disabled_in_95_of_100_runs() {
    for fraction in [0.1, 0.5, 0.9] {
        let more_calls = count_disabled_runs(fraction, Traffic::typical().with_calls(1.8));
        assert!(more_calls >= 95, "share {fraction}: {more_calls}");
    }
    let slow_calls = count_disabled_runs(0.5, Traffic::typical().with_time(2.0));
    assert!(slow_calls >= 95, "{slow_calls}");
}

#[test]
fn a_strategy_that_is_not_worse_is_kept_in_95_of_100_runs_whatever_was_forecast() {
    for fraction in [0.1, 0.5, 0.9] {
        for calls_factor in [1.0, 0.5] {
            let traffic = Traffic::typical().with_calls(calls_factor);
            let disabled = count_disabled_runs(fraction, traffic);
            assert!(disabled <= 5, "share {fraction}, {calls_factor} times the calls: {disabled}");
        }
    }
}

#[test]
fn a_good_strategy_is_kept_over_a_hundred_windows_and_a_change_is_noticed() {
    let mut process_rollout = new_process_rollout(0.2);
    let (control, random) = (Traffic::typical(), &mut Random(21));
    let fewer_calls = (Traffic::typical().with_calls(0.5), control);
    assert_eq!(disabled_after(&mut process_rollout, 200_000, fewer_calls, random), None);
    let more_calls = (Traffic::typical().with_calls(1.8), control);
    let requests_until_disabled =
        disabled_after(&mut process_rollout, 20_000, more_calls, random).unwrap();
    assert_eq!(requests_until_disabled, 6000, "three windows");
}

#[test]
fn without_a_control_group_nothing_is_decided_by_what_requests_need() {
    assert_eq!(count_disabled_runs(1.0, Traffic::typical().with_calls(9.0)), 0);
    assert_eq!(count_disabled_runs(0.9995, Traffic::typical().with_calls(9.0)), 0, "too few");
}

#[test]
fn one_wrong_value_disables_a_strategy_however_much_it_saves() {
    let mut process_rollout = new_process_rollout(1.0);
    let checks = ValueChecks { compared: 500, differing: 4, wrong: 0, bound_ms: 0 };
    process_rollout.count_value_checks(&checks);
    let traffic = (Traffic::typical().with_calls(0.1), Traffic::typical());
    let random = &mut Random(1);
    assert_eq!(disabled_after(&mut process_rollout, 2000, traffic, random), None);
    process_rollout.count_value_checks(&ValueChecks { wrong: 1, bound_ms: 50, ..checks });
    assert_eq!(disabled_after(&mut process_rollout, 2000, traffic, random), Some(1));
    let reason = process_rollout.disable_reason().unwrap().to_string();
    let expected = "it served 1 value that had been replaced longer than 50 ms ago, of 1000";
    assert!(reason.starts_with(expected), "{reason}");
    let by_share = ProcessRollout::new(Vec::new(), None, 1);
    assert!(!by_share.may_disable_itself(), "a strategy in all requests has no control group");
}

#[test]
fn a_disabled_strategy_runs_in_no_request_and_reports_once() {
    let mut process_rollout = new_process_rollout(0.5);
    let costly = (Traffic::typical().with_calls(3.0), Traffic::typical());
    let random = &mut Random(1);
    assert_eq!(disabled_after(&mut process_rollout, 2000, costly, random), Some(500));
    assert!(process_rollout.disable_reason().is_some() && process_rollout.is_control_process());
    let strategy_requests = process_rollout.groups().strategy.sum.requests;
    assert_eq!(disabled_after(&mut process_rollout, 5000, costly, random), None);
    let groups = process_rollout.groups();
    assert_eq!(groups.strategy.sum.requests, strategy_requests);
    assert_eq!(groups.control.sum.requests, 5500 - strategy_requests);
}

#[test]
fn a_strategy_that_is_not_rolled_out_stays_enabled_whatever_its_requests_need() {
    let mut process_rollout = ProcessRollout::new(Vec::new(), None, 1);
    let costly_traffic = Traffic::typical().with_calls(3.0);
    let random = &mut Random(1);
    assert_eq!(
        disabled_after(&mut process_rollout, 10_000, (costly_traffic, costly_traffic), random),
        None
    );
    assert_eq!(process_rollout.groups().strategy.sum.requests, 10_000);
}

#[test]
fn requests_of_a_cold_process_are_left_out_up_to_half_a_window() {
    let mut process_rollout = new_process_rollout(0.5);
    let mut costly = Traffic::typical().with_calls(3.0);
    let (mut control, mut random) = (Traffic::typical(), Random(2));
    let requests_until_disabled = (1..=2000).find(|number| {
        let group = process_rollout.begin_request();
        let cost = match group {
            Group::Strategy => costly.draw_request(&mut random),
            Group::Control => control.draw_request(&mut random),
        };
        let growing = NearContent { items: *number, is_full: false, is_fixed_set_loaded: true };
        process_rollout.end_request(group, Some("r"), &cost, growing).is_some()
    });
    let decided = (requests_until_disabled, process_rollout.warm_up_requests());
    assert_eq!(decided, (Some(1500), 1000));
    let route = process_rollout.routes().iter().next().map(|(_, sums)| *sums).unwrap();
    assert_eq!(route.strategy.requests + route.control.requests, 500);
}

#[test]
fn a_window_whose_values_were_cleared_begins_its_counts_anew() {
    let mut process_rollout = new_process_rollout(0.5);
    let costly = (Traffic::typical().with_calls(3.0), Traffic::typical());
    let mut random = Random(2);
    assert_eq!(disabled_after(&mut process_rollout, 499, costly, &mut random), None);
    process_rollout.reset_window();
    let equal = (Traffic::typical(), Traffic::typical());
    assert_eq!(disabled_after(&mut process_rollout, 1501, equal, &mut random), None);
}

#[test]
fn a_small_share_decides_when_it_has_enough_requests() {
    let mut process_rollout = new_process_rollout(0.02);
    let costly = (Traffic::typical().with_calls(3.0), Traffic::typical());
    let requests_until_disabled =
        disabled_after(&mut process_rollout, 20_000, costly, &mut Random(3)).unwrap();
    assert!(requests_until_disabled <= 7500, "{requests_until_disabled}");
}
