//! The live curve against exact replays of the store at each size, on generated loads with TTLs, overwrites and sizes.

#[path = "../../examples/live_curve/replay.rs"]
mod replay;

use glasscache_sim::trace::generate::keys::KeyWorkload;
use glasscache_store::CurveState;
use replay::{ROWS_PER_PASS, cluster_with_ttls, replay, with_overwrites, with_sizes};

/// Checks that the curve of a sampled replay is near the replays of stores of all its sizes.
fn check(name: &str, workload: &KeyWorkload, memory_bytes: u64) {
    let live = replay(workload, memory_bytes, 1, Some(ROWS_PER_PASS));
    let curve = live.curve.unwrap();
    assert_eq!(curve.state, CurveState::Ok, "{name}");
    assert_eq!(curve.rows.len(), 8, "{name}");
    let mut errors = Vec::new();
    for row in &curve.rows {
        let exact = replay(workload, row.memory_bytes, 2, None).miss_ratio;
        errors.push((row.miss_ratio - exact).abs());
        assert!(row.low <= row.miss_ratio && row.miss_ratio <= row.high, "{name}: {row:?}");
    }
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    let worst = errors.iter().copied().fold(0.0, f64::max);
    assert!(mean <= 0.01 && worst <= 0.03, "{name}: mean {mean}, worst {worst}: {errors:?}");
    assert!(curve.advice.len() == 4, "{name}: {:?}", curve.advice);
}

#[test]
fn it_is_near_exact_replays_where_items_expire() {
    let workload = cluster_with_ttls();
    assert!(!workload.ttls.is_empty());
    check("ttls", &workload, 4 << 20);
}

#[test]
fn it_is_near_exact_replays_where_most_rows_overwrite() {
    check("overwrites", &with_overwrites(), 4 << 20);
}

#[test]
fn it_is_near_exact_replays_where_sizes_differ() {
    check("sizes", &with_sizes(), 8 << 20);
}

#[test]
fn a_store_that_has_just_started_has_no_curve() {
    let workload =
        KeyWorkload { requests: 3_000, size_mean: 300.0, rate: 500.0, ..KeyWorkload::default() };
    let curve = replay(&workload, 64 << 20, 1, Some(ROWS_PER_PASS)).curve.unwrap();
    assert_eq!((curve.state, curve.rows.len(), curve.advice.len()), (CurveState::Warming, 0, 0));
}

#[test]
fn a_model_that_lost_many_events_has_no_curve() {
    let curve = replay(&with_sizes(), 8 << 20, 1, Some(30_000)).curve.unwrap();
    assert_eq!((curve.state, curve.rows.len()), (CurveState::EventsLost, 0));
}
