//! Policies compared with naive implementations on small random traces, and properties of all policies.

mod expiry;
mod naive;
mod s4fifo;
mod slru;
mod tuned;

use glasscache_sim::policy::PolicyKind;
use glasscache_sim::replay::{PreparedTrace, ReplayResult, Task};
use glasscache_sim::trace::Batch;
use glasscache_sim::trace::intern::{Collector, Mode};
use proptest::prelude::*;

/// Requests as (key, size).
type Requests = Vec<(u64, u32)>;

fn prepare(requests: &Requests, mode: Mode) -> PreparedTrace {
    let mut batch = Batch::default();
    for &(key, size) in requests {
        batch.key.push(key);
        batch.size.push(Some(size));
    }
    let mut collector = Collector::new(mode);
    collector.add_batch("test", &batch).unwrap();
    PreparedTrace::new(collector.finish(true))
}

fn replay(policy: PolicyKind, capacity: u64, trace: &PreparedTrace) -> ReplayResult {
    Task { policy, capacity, seed: 3 }.run(trace, &|| true).unwrap()
}

/// Keys with one size each; small keys are more frequent.
fn any_requests() -> impl Strategy<Value = Requests> {
    let key = (0..12_u64, 0..8_u64).prop_map(|(high, low)| high * low);
    let request = key.prop_map(|key| (key, (key * 7 % 10) as u32));
    prop::collection::vec(request, 0..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn policies_equal_their_naive_implementations(requests in any_requests(), capacity in 1..40_usize) {
        let trace = prepare(&requests, Mode::Objects);
        let keys: Vec<u64> = requests.iter().map(|&(key, _)| key).collect();
        for (policy, count_naive_misses) in [
            (PolicyKind::Lru, naive::lru as fn(&[u64], usize) -> u64),
            (PolicyKind::Fifo, naive::fifo),
            (PolicyKind::Clock, naive::clock),
            (PolicyKind::Sieve, naive::sieve),
            (PolicyKind::Lfu, naive::lfu),
            (PolicyKind::Belady, naive::belady),
        ] {
            let misses = replay(policy, capacity as u64, &trace).misses;
            prop_assert_eq!(misses, count_naive_misses(&keys, capacity), "{}", policy);
        }
    }

    #[test]
    fn policies_equal_their_naive_implementations_in_bytes(requests in any_requests(), capacity in 1..80_u64) {
        let trace = prepare(&requests, Mode::Bytes);
        for policy in [PolicyKind::Lru, PolicyKind::Fifo] {
            let result = replay(policy, capacity, &trace);
            let expected = naive::count_misses_and_bytes(&requests, capacity, policy == PolicyKind::Lru);
            prop_assert_eq!((result.misses, result.missed_bytes), expected, "{}", policy);
        }
    }

    #[test]
    fn no_policy_misses_less_than_belady_with_bypass(requests in any_requests(), capacity in 1..40_u64) {
        let trace = prepare(&requests, Mode::Objects);
        let misses_with_bypass = replay(PolicyKind::BeladyBypass, capacity, &trace).misses;
        let misses_with_insertion = replay(PolicyKind::Belady, capacity, &trace).misses;
        prop_assert!(misses_with_bypass <= misses_with_insertion);
        for policy in PolicyKind::ALL {
            let misses = replay(policy, capacity, &trace).misses;
            prop_assert!(misses >= misses_with_bypass, "{} misses {} times, Belady {}", policy, misses, misses_with_bypass);
        }
    }

    #[test]
    fn only_first_uses_miss_if_everything_fits(requests in any_requests(), spare_capacity in 100..200_u64) {
        for mode in [Mode::Objects, Mode::Bytes] {
            let trace = prepare(&requests, mode);
            for policy in PolicyKind::ALL {
                let misses = replay(policy, 10 * trace.footprint() + spare_capacity, &trace).misses;
                prop_assert_eq!(misses, trace.distinct() as u64, "{}", policy);
            }
        }
    }

    #[test]
    fn each_policy_misses_each_first_use_at_every_size_in_bytes(requests in any_requests(), capacity in 1..200_u64) {
        let trace = prepare(&requests, Mode::Bytes);
        for policy in PolicyKind::ALL {
            let result = replay(policy, capacity, &trace);
            prop_assert!(result.misses >= trace.distinct() as u64, "{}", policy);
            prop_assert!(result.missed_bytes <= result.bytes, "{}", policy);
        }
    }
}

#[test]
fn a_cancelled_replay_has_no_result() {
    let trace = prepare(&vec![(1, 1); 10], Mode::Objects);
    let task = Task { policy: PolicyKind::Lru, capacity: 1, seed: 0 };
    assert_eq!(task.run(&trace, &|| false), None);
}

#[test]
fn the_same_seed_gives_the_same_misses() {
    let requests: Requests = (0..5000_u64).map(|index| (index * index % 613, 1)).collect();
    let trace = prepare(&requests, Mode::Objects);
    for policy in PolicyKind::ALL.into_iter().filter(|policy| policy.is_random()) {
        assert_eq!(replay(policy, 60, &trace), replay(policy, 60, &trace));
    }
}

#[cfg(feature = "own-policy")]
#[test]
fn the_server_store_hits_what_fits_and_evicts_under_pressure() {
    let requests: Requests = (0..40_000_u64).map(|index| (index * index % 4001, 1000)).collect();
    let trace = prepare(&requests, Mode::Bytes);
    let result_with_room = replay(PolicyKind::ServerStore, 16 << 20, &trace);
    assert_eq!(result_with_room.misses, trace.distinct() as u64);
    let result_under_pressure = replay(PolicyKind::ServerStore, 1 << 20, &trace);
    assert!(
        result_under_pressure.misses > result_with_room.misses
            && result_under_pressure.misses < result_under_pressure.requests,
        "{result_under_pressure:?}"
    );
}
