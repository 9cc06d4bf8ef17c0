//! The tuned policy on generated loads in which self-tuning caches have failed, and on bad input.

use glasscache_sim::policy::{Goal, PolicyKind, SwitchRecord};
use glasscache_sim::replay::{PreparedTrace, Task, TunedReplay, replay_tuned};
use glasscache_sim::trace::intern::{Collector, Mode};
use glasscache_sim::trace::{Batch, Op};

use super::{prepare, replay};

const CAPACITY: u64 = 1000;

/// A source of numbers that look random (`SplitMix64`).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((u128::from(mixed ^ (mixed >> 31)) * u128::from(limit)) >> 64) as u64
    }

    /// Skewed requests: the logarithm of the key is uniform.
    fn skewed(&mut self, keys: u64, count: usize) -> Vec<u64> {
        let draw = |numbers: &mut Self| {
            let uniform = numbers.below(1 << 53) as f64 / (1_u64 << 53) as f64;
            (keys as f64).powf(uniform) as u64
        };
        (0..count).map(|_| draw(self)).collect()
    }
}

/// Each key twice, ten requests apart.
fn pairs(first_key: u64, count: usize) -> Vec<u64> {
    let key_of = |index: u64| first_key + index / 20 * 10 + index % 10;
    (0..count as u64).map(key_of).collect()
}

fn loops(first_key: u64, length: u64, count: usize) -> Vec<u64> {
    (0..count as u64).map(|index| first_key + index % length).collect()
}

fn prepare_keys(keys: &[u64]) -> PreparedTrace {
    prepare(&keys.iter().map(|&key| (key, 1)).collect(), Mode::Objects)
}

fn tune(trace: &PreparedTrace) -> TunedReplay {
    replay_tuned(trace, CAPACITY, (Goal::Objects, 3), &|| true).unwrap()
}

/// Misses per request of the tuned policy between two positions.
fn tuned_ratio(keys: &[u64], from: usize, to: usize) -> f64 {
    let misses = |end: usize| tune(&prepare_keys(&keys[..end])).result.misses;
    (misses(to) - misses(from)) as f64 / (to - from) as f64
}

#[test]
fn a_change_of_regime_is_followed_and_the_switch_was_forecast() {
    let phase = 60_000;
    let keys = [pairs(1 << 20, phase), loops(0, 1200, phase), pairs(1 << 30, phase)].concat();
    let half_of = |phase_index: usize| {
        tuned_ratio(&keys, phase_index * phase + phase / 2, (phase_index + 1) * phase)
    };
    // Half of the pairs hit at best, and a cache of 1,000 hits at most 1,000 of 1,200 keys of a loop.
    assert!(half_of(0) <= 0.52 && half_of(2) <= 0.52, "{} {}", half_of(0), half_of(2));
    assert!(half_of(1) <= 0.31, "{}", half_of(1));
    let replayed = tune(&prepare_keys(&keys));
    let met: Vec<bool> =
        replayed.switches.iter().filter_map(SwitchRecord::is_forecast_met).collect();
    assert!(!met.is_empty() && met.iter().all(|&is_met| is_met), "{:?}", replayed.switches);
}

#[test]
fn a_flat_optimum_is_left_alone() {
    let trace = prepare_keys(&pairs(0, 300_000));
    let (tuned, own) = (tune(&trace), replay(PolicyKind::Tuned(Goal::Objects), CAPACITY, &trace));
    assert_eq!((tuned.switches.len(), tuned.result), (0, own));
    assert_eq!(own.misses, 150_000);
}

#[test]
fn a_rider_and_swings_of_the_load_are_not_credited_to_settings() {
    let mut numbers = Numbers(1);
    let skewed = numbers.skewed(20_000, 300_000);
    let mut with_rider = skewed.clone();
    for (index, key) in with_rider.iter_mut().step_by(5000).enumerate() {
        *key = 1_000_000 + index as u64 % 40;
    }
    let ratio = |keys: &[u64]| tune(&prepare_keys(keys)).result.miss_ratio();
    assert!((ratio(&with_rider) - ratio(&skewed)).abs() <= 0.01);
    // A hot set that always hits, and pairs of which half hit, by turns.
    let swing = |index: usize| match index % 2 {
        0 => pairs((index as u64 + 1) << 20, 7_000),
        _ => loops(0, 100, 9_000),
    };
    let swings: Vec<u64> = (0..40).flat_map(swing).collect();
    assert_eq!(tune(&prepare_keys(&swings)).switches.len(), 0);
}

#[cfg(feature = "own-policy")]
#[test]
fn skewed_loads_miss_no_more_than_with_the_default() {
    for seed in 1..=3 {
        let trace = prepare_keys(&Numbers(seed).skewed(20_000, 200_000));
        let default = replay(PolicyKind::ServerStore, CAPACITY, &trace);
        assert!(tune(&trace).result.misses as f64 <= 1.01 * default.misses as f64);
    }
}

/// A load for which two goals want other settings: small items in a loop over more than the cache, which a small queue of
/// most of the cache would evict, and large ones whose two uses are so far apart that they need such a queue.
fn loop_of_small_and_pairs_of_large(count: u64) -> Vec<(u64, u32)> {
    let pair = |index: u64| (1 << 40) + index / 800 * 400 + index % 400;
    let request = |index: u64| match index % 3 {
        0 => (pair(index / 3), 30),
        _ => ((index - index / 3 - 1) % 1100, 10),
    };
    (0..count).map(request).collect()
}

#[test]
fn a_goal_of_bytes_avoids_missed_bytes_where_that_costs_misses() {
    let trace = prepare(&loop_of_small_and_pairs_of_large(200_000), Mode::Bytes);
    let capacity = 17_000;
    let [objects, bytes] = [Goal::Objects, Goal::Bytes]
        .map(|goal| replay_tuned(&trace, capacity, (goal, 3), &|| true).unwrap());
    let untuned = bytes.untuned;
    assert_eq!(objects.untuned, untuned);
    assert!(bytes.result.missed_bytes * 10 < untuned.missed_bytes * 9, "{bytes:?}");
    assert!(bytes.result.misses > untuned.misses, "{bytes:?}");
    assert!(objects.result.misses <= untuned.misses, "{objects:?}");
    let task = Task { policy: PolicyKind::Tuned(Goal::Bytes), capacity, seed: 3 };
    let replayed = task.run(&trace, &|| true).unwrap();
    assert_eq!(
        (replayed.misses, replayed.missed_bytes),
        (bytes.result.misses, bytes.result.missed_bytes)
    );
}

#[test]
fn goals_of_items_of_one_size_decide_alike() {
    let keys = [pairs(1 << 20, 60_000), loops(0, 1200, 60_000)].concat();
    let of_size = |bytes: u32| keys.iter().map(|&key| (key, bytes)).collect();
    let trace = prepare(&of_size(1000), Mode::Bytes);
    let [objects, bytes] = [Goal::Objects, Goal::Bytes]
        .map(|goal| replay_tuned(&trace, 1000 * CAPACITY, (goal, 3), &|| true).unwrap());
    assert!(!objects.switches.is_empty());
    assert_eq!(objects, bytes);
}

/// Rows of one operation, a second apart unless `time_of` says otherwise, which expire after a second if `expires`.
fn rows(keys: &[u64], op: Op, expires: bool, time_of: impl Fn(u64) -> u64) -> PreparedTrace {
    let mut batch = Batch::default();
    for (row, &key) in keys.iter().enumerate() {
        batch.key.push(key);
        batch.time.push(time_of(row as u64) * 1_000_000);
        batch.op.push(Some(op));
        batch.ttl.push(Some(if expires { 1 } else { 1_000_000 }));
        batch.size.push(Some(1));
    }
    let mut collector = Collector::new(Mode::Objects);
    collector.add_batch("test", &batch).unwrap();
    PreparedTrace::new(collector.finish(true))
}

#[test]
fn bad_input_brings_no_switch() {
    let count = 100_000;
    let skewed = Numbers(1).skewed(5_000, count);
    let jumping = |row: u64| if row % 1000 < 500 { row } else { row * 1_000_000 };
    for (name, trace) in [
        ("one key", prepare_keys(&vec![7; count])),
        ("only misses", prepare_keys(&loops(0, u64::MAX, count))),
        ("only sets", rows(&skewed, Op::Set, false, |row| row)),
        ("all expired", rows(&skewed, Op::Get, true, |row| 10 * row)),
        ("a clock that jumps", rows(&pairs(0, count), Op::Get, false, jumping)),
    ] {
        let replayed = tune(&trace);
        assert_eq!(replayed.switches.len(), 0, "{name}: {:?}", replayed.switches);
    }
    let tiny = replay_tuned(&prepare_keys(&skewed), 100, (Goal::Objects, 3), &|| true).unwrap();
    assert_eq!(tiny.wait_reason, "there are too few items for a decision");
}
