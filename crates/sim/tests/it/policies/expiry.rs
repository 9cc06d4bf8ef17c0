//! TTLs, writes and deletes: every policy against lists that are searched from end to end.

use std::collections::HashMap;

use super::{naive, replay};
use glasscache_sim::curve::mattson;
use glasscache_sim::policy::PolicyKind;
use glasscache_sim::replay::PreparedTrace;
use glasscache_sim::trace::intern::{Collector, Mode};
use glasscache_sim::trace::{Batch, Op};
use proptest::prelude::*;

/// A row: seconds since the one before, key, operation, TTL in seconds.
type Row = (u64, u64, Option<Op>, Option<u32>);

fn prepare(rows: &[Row], mode: Mode, size_of: impl Fn(u64) -> u32) -> PreparedTrace {
    let (mut batch, mut now) = (Batch::default(), 0);
    for &(seconds_since_last, key, op, ttl) in rows {
        now += seconds_since_last;
        batch.time.push(now * 1_000_000);
        batch.key.push(key);
        batch.op.push(op);
        batch.ttl.push(ttl);
        batch.size.push(Some(size_of(key)));
    }
    let mut collector = Collector::new(mode);
    collector.add_batch("test", &batch).unwrap();
    PreparedTrace::new(collector.finish(true))
}

/// A cache of keys.
pub(crate) trait Cache {
    /// Returns whether the key was in the cache; stores it if not.
    fn request(&mut self, key: u64) -> bool;
    fn remove(&mut self, key: u64);
}

/// The misses of a cache over rows, by the definition: an item stored at t with TTL d is gone from t + d on.
fn count_misses(rows: &[Row], cache: &mut dyn Cache) -> u64 {
    let mut expiry_by_key: HashMap<u64, Option<u64>> = HashMap::new();
    let mut written_ttl_by_key: HashMap<u64, Option<u64>> = HashMap::new();
    let (mut now, mut misses) = (0, 0);
    for &(seconds_since_last, key, op, ttl) in rows {
        now += seconds_since_last;
        let mut expired: Vec<(u64, u64)> = expiry_by_key
            .iter()
            .filter_map(|(&stored_key, expiry)| Some(((*expiry)?, stored_key)))
            .filter(|(expiry, _)| *expiry <= now)
            .collect();
        expired.sort_unstable();
        for (_, expired_key) in expired {
            cache.remove(expired_key);
            expiry_by_key.remove(&expired_key);
        }
        let own_ttl = ttl.map(|ttl| (ttl > 0).then_some(u64::from(ttl)));
        let expiry_of = |ttl: Option<u64>| ttl.map(|ttl| now + ttl);
        match op {
            Some(Op::Set) => {
                cache.request(key);
                written_ttl_by_key.insert(key, own_ttl.flatten());
                expiry_by_key.insert(key, expiry_of(own_ttl.flatten()));
            }
            Some(Op::Delete) => {
                cache.remove(key);
                expiry_by_key.remove(&key);
            }
            _ => {
                if !cache.request(key) {
                    misses += 1;
                    let last_written_ttl = written_ttl_by_key.get(&key).copied().flatten();
                    expiry_by_key.insert(key, expiry_of(own_ttl.unwrap_or(last_written_ttl)));
                }
            }
        }
    }
    misses
}

fn any_rows() -> impl Strategy<Value = Vec<Row>> {
    let op = prop_oneof![
        6 => Just(None),
        3 => Just(Some(Op::Get)),
        3 => Just(Some(Op::Set)),
        1 => Just(Some(Op::Delete)),
    ];
    let ttl = prop_oneof![2 => Just(None), 1 => Just(Some(0)), 3 => (1..40_u32).prop_map(Some)];
    let key = (0..12_u64, 0..8_u64).prop_map(|(high, low)| high * low);
    prop::collection::vec((0..3_u64, key, op, ttl), 0..300)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn policies_with_expiry_equal_their_naive_implementations(rows in any_rows(), capacity in 1..30_usize) {
        let trace = prepare(&rows, Mode::Objects, |_| 1);
        for (policy, mut cache) in naive::removable_caches(capacity) {
            let expected_misses = count_misses(&rows, &mut *cache);
            prop_assert_eq!(replay(policy, capacity as u64, &trace).misses, expected_misses, "{}", policy);
        }
    }

    #[test]
    fn every_policy_equals_a_plain_replay_where_everything_fits(rows in any_rows()) {
        let expected_misses = count_misses(&rows, &mut naive::UnboundedCache::default());
        for mode in [Mode::Objects, Mode::Bytes] {
            let trace = prepare(&rows, mode, |key| (key % 5 + 1) as u32);
            for policy in PolicyKind::ALL {
                let result = replay(policy, 10_000, &trace);
                prop_assert_eq!(result.misses, expected_misses, "{}", policy);
            }
        }
    }

    #[test]
    fn every_policy_misses_at_most_every_request_at_every_size(rows in any_rows(), capacity in 1..60_u64) {
        let trace = prepare(&rows, Mode::Bytes, |key| (key % 9 + 1) as u32);
        for policy in PolicyKind::ALL {
            let result = replay(policy, capacity, &trace);
            prop_assert!(result.misses <= result.requests, "{}", policy);
            prop_assert_eq!(result.requests, trace.requests() as u64);
        }
    }

    #[test]
    fn the_curve_with_expiry_equals_a_replay_at_every_size(rows in any_rows()) {
        let trace = prepare(&rows, Mode::Objects, |_| 1);
        let curve = mattson(&trace, &|| true).unwrap();
        for capacity in 1..=trace.footprint() + 2 {
            let ratio = replay(PolicyKind::Lru, capacity, &trace).miss_ratio();
            prop_assert!((curve.miss_ratio(capacity) - ratio).abs() < 1e-9, "at {}", capacity);
        }
    }
}

#[test]
fn an_item_is_a_miss_once_its_ttl_has_passed_and_a_hit_does_not_renew_it() {
    let get = |seconds_since_last, ttl| (seconds_since_last, 1, Some(Op::Get), ttl);
    let rows = [
        (0, 1, Some(Op::Set), Some(10)),
        get(9, None),
        get(0, None),
        get(1, None),
        get(9, None),
        get(1, None),
    ];
    let trace = prepare(&rows, Mode::Objects, |_| 1);
    for policy in PolicyKind::ALL.into_iter().filter(|&policy| policy != PolicyKind::Slru) {
        let result = replay(policy, 1, &trace);
        assert_eq!((result.requests, result.misses), (5, 2), "{policy}");
    }
}

#[test]
fn an_expired_item_frees_its_space_at_that_moment() {
    // 1 expires before 3 comes, so 2 stays, though it was used before 1.
    let rows = [(0, 2, None, None), (0, 1, None, Some(5)), (5, 3, None, None), (0, 2, None, None)];
    let trace = prepare(&rows, Mode::Objects, |_| 1);
    for policy in [PolicyKind::Lru, PolicyKind::Fifo, PolicyKind::Clock] {
        assert_eq!(replay(policy, 2, &trace).misses, 3, "{policy}");
    }
}

#[test]
fn a_get_without_a_size_has_that_of_the_write_that_follows() {
    let batch = Batch {
        time: vec![0, 0, 1, 2, 2],
        key: vec![7, 7, 7, 7, 7],
        op: vec![Some(Op::Get), Some(Op::Set), Some(Op::Get), Some(Op::Set), Some(Op::Get)],
        size: vec![None, Some(100), None, Some(300), Some(300)],
        ttl: vec![None; 5],
    };
    let mut collector = Collector::new(Mode::Bytes);
    collector.add_batch("test", &batch).unwrap();
    let trace = PreparedTrace::new(collector.finish(true));
    assert_eq!(trace.sizes(), [100, 300]);
    let result = replay(PolicyKind::Lru, 350, &trace);
    assert_eq!((result.requests, result.misses, result.bytes), (3, 1, 500));
}
