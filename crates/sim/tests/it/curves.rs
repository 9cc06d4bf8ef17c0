//! Curves: Mattson equals a replay at every size, never rises, and SHARDS stays near it.

use glasscache_sim::curve::{
    SampleOptions, compare_memory_and_policies, mattson, miss_ratio_range, shards,
};
use glasscache_sim::policy::PolicyKind;
use glasscache_sim::replay::{PreparedTrace, Task};
use glasscache_sim::trace::Batch;
use glasscache_sim::trace::intern::{Collector, Mode};
use proptest::prelude::*;

fn prepare(requests: &[(u64, u32)], mode: Mode) -> PreparedTrace {
    let batch = Batch {
        key: requests.iter().map(|&(key, _)| key).collect(),
        size: requests.iter().map(|&(_, size)| Some(size)).collect(),
        ..Batch::default()
    };
    let mut collector = Collector::new(mode);
    collector.add_batch("test", &batch).unwrap();
    PreparedTrace::new(collector.finish(true))
}

/// Keys by the square of a uniform number: low keys are most frequent.
fn skewed_requests(request_count: u64, key_count: u64) -> Vec<(u64, u32)> {
    let mut state = 9_u64;
    let mut next_fraction = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / f64::from(1_u32 << 31)
    };
    (0..request_count).map(|_| ((key_count as f64 * next_fraction().powi(2)) as u64, 1)).collect()
}

proptest! {
    #[test]
    fn mattson_equals_replay_at_every_size(
        requests in prop::collection::vec((0..60_u64, 1..9_u32), 0..600),
    ) {
        for mode in [Mode::Objects, Mode::Bytes] {
            let trace = prepare(&requests, mode);
            let curve = mattson(&trace, &|| true).unwrap();
            let largest_object = if mode == Mode::Objects { 1 } else { 9 };
            let mut previous_ratio = 1.0;
            for capacity in largest_object..=trace.footprint() + 2 {
                let task = Task { policy: PolicyKind::Lru, capacity, seed: 0 };
                let result = task.run(&trace, &|| true).unwrap();
                let ratio = curve.miss_ratio(capacity);
                prop_assert!((ratio - result.miss_ratio()).abs() < 1e-12, "at {}", capacity);
                prop_assert!(ratio <= previous_ratio, "rises at {}", capacity);
                previous_ratio = ratio;
            }
        }
    }
}

#[test]
fn shards_is_close_to_the_exact_curve() {
    let trace = prepare(&skewed_requests(400_000, 50_000), Mode::Objects);
    let exact_curve = mattson(&trace, &|| true).unwrap();
    let sampled_curves: Vec<_> =
        (0..8).map(|seed| shards(&trace, SampleOptions { keys_max: 8192, seed })).collect();
    for step in 1..20 {
        let size = trace.footprint() * step / 20;
        let (sampled_range, exact_ratio) =
            (miss_ratio_range(&sampled_curves, size).unwrap(), exact_curve.miss_ratio(size));
        assert!(
            (sampled_range.mean - exact_ratio).abs() < 0.01,
            "{sampled_range:?} for {exact_ratio} at {size}"
        );
        assert!(
            sampled_range.low - 0.005 <= exact_ratio && exact_ratio <= sampled_range.high + 0.005,
            "{sampled_range:?} for {exact_ratio}"
        );
    }
}

#[test]
fn a_sample_of_all_keys_is_exact() {
    let trace = prepare(&skewed_requests(20_000, 1000), Mode::Objects);
    let exact_curve = mattson(&trace, &|| true).unwrap();
    let sampled_curve = shards(&trace, SampleOptions { keys_max: 2000, seed: 5 });
    for size in 0..=trace.footprint() {
        assert!((exact_curve.miss_ratio(size) - sampled_curve.miss_ratio(size)).abs() < 1e-9);
    }
}

#[test]
fn the_knee_of_a_loop_with_noise_is_the_loop() {
    // 100 keys in a loop, and a key seen once after each: LRU needs the loop and what passes meanwhile.
    let requests: Vec<(u64, u32)> =
        (0..20_000_u64).flat_map(|index| [(index % 100, 1), (1_000_000 + index, 1)]).collect();
    let trace = prepare(&requests, Mode::Objects);
    let curve = mattson(&trace, &|| true).unwrap();
    let knee = curve.knee().unwrap();
    assert_eq!((knee.size, curve.size_for(0.51)), (200, Some(200)));
    assert_eq!(curve.size_for(0.1), None);
    let trade_off = compare_memory_and_policies(&curve, 190, &[("a", 0.9), ("b", 0.6)]);
    assert!((trade_off.miss_ratio - 1.0).abs() < 1e-9);
    assert!((trade_off.miss_ratio_with_more_memory - curve.miss_ratio(209)).abs() < 1e-12);
    assert_eq!(trade_off.best, Some(("b", 0.6)));
}

#[test]
fn an_empty_trace_has_a_curve() {
    let curve = mattson(&prepare(&[], Mode::Objects), &|| true).unwrap();
    assert_eq!((curve.miss_ratio(5), curve.knee()), (0.0, None));
}
