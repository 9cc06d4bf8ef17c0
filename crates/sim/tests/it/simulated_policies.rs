//! Policies of traces as the local cache of a process: the same hits as in a replay of the trace, and what differs there.

use std::time::Duration;

use glasscache_sim::policy::{Goal, PolicyKind};
use glasscache_sim::replay::{PreparedTrace, Task};
use glasscache_sim::strategy::cost::CostModel;
use glasscache_sim::strategy::fixed::choose_fixed;
use glasscache_sim::strategy::learn::LearnedItems;
use glasscache_sim::strategy::prepare::PreparedLog;
use glasscache_sim::strategy::run::{Choices, CostMode, RequestStats, run};
use glasscache_sim::trace::Batch;
use glasscache_sim::trace::intern::{Collector, Mode};
use glasscache_sim::trace::log::{Items, NONE, RequestLog, Requests};
use proptest::prelude::*;

/// A log in which each request reads one item, a second after the one before. `instances` processes share the requests.
fn log_of(items_read: &[u32], instances: u16) -> RequestLog {
    let item_count = items_read.iter().max().map_or(0, |&item| item + 1);
    let count = items_read.len();
    let requests = Requests {
        numbers: (0..count as u64).collect(),
        times_us: (0..count as u64).map(|second| second * 1_000_000).collect(),
        instances: (0..count).map(|request| request as u16 % instances).collect(),
        base_times_us: vec![1000; count],
        pages: vec![NONE; count],
        routes: vec![NONE; count],
        starts: (0..=count).collect(),
        items: items_read.to_vec(),
        ..Requests::default()
    };
    let parent_of = |item: u32| if item == 0 { NONE } else { item / 2 };
    let items = Items {
        keys: (0..item_count).map(|item| format!("k{item}")).collect(),
        parents: (0..item_count).map(parent_of).collect(),
        sizes: vec![100; item_count as usize],
        ..Items::default()
    };
    RequestLog { items, requests, truncated_after: None }
}

fn replay(log: &RequestLog, notation: &str, near_ttl: Option<Duration>) -> Vec<RequestStats> {
    let cost = CostModel::new(&[(1.0, 100.0)], &[(1.0, 100.0), (10.0, 190.0)]).unwrap();
    let prepared = PreparedLog::new(log, |_| true).with_near_ttl(near_ttl);
    let strategy = notation.parse().unwrap();
    let fixed = &choose_fixed(None, &prepared, &cost);
    let choices = Choices { fixed, learned: &LearnedItems::default() };
    run(&prepared, &cost, &strategy, choices, CostMode::Median, prepared.len())
}

fn calls(log: &RequestLog, notation: &str) -> u64 {
    replay(log, notation, None).iter().map(|stats| u64::from(stats.calls)).sum()
}

/// Misses of the trace with these keys.
fn misses(keys: &[u32], policy: PolicyKind, capacity: u64) -> u64 {
    let mut batch = Batch::default();
    batch.key.extend(keys.iter().map(|&key| u64::from(key)));
    let mut collector = Collector::new(Mode::Objects);
    collector.add_batch("test", &batch).unwrap();
    let trace = PreparedTrace::new(collector.finish(true));
    Task { policy, capacity, seed: 1 }.run(&trace, &|| true).unwrap().misses
}

/// Pairs of uses, and loops over 1.2 times the cache: settings that do best in one are bad in the other.
fn changing_load(phase: u32) -> Vec<u32> {
    let pairs = (0..phase).map(|index| index / 20 * 10 + index % 10);
    let first_of_loop = phase;
    let loops = (0..phase).map(|index| first_of_loop + index % 720);
    pairs.chain(loops).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_process_that_reads_one_item_a_request_hits_as_a_replay_of_the_trace(
        keys in prop::collection::vec((0..12_u32, 0..8_u32).prop_map(|(high, low)| high * low), 1..400),
        capacity in 1..40_u64,
        settings in prop::sample::select(vec!["small=0.1", "small=0.05,main=1,skip=0.5", "small=0.5,main=3,ghost=0", "ghost-main=1,ghost=3"]),
    ) {
        let log = log_of(&keys, 1);
        let policy: PolicyKind = format!("s4fifo:{settings}").parse().unwrap();
        let notation = format!("s4fifo:{capacity}:{settings}");
        prop_assert_eq!(calls(&log, &notation), misses(&keys, policy, capacity), "{}", notation);
    }

    #[test]
    fn prefetch_and_near_ttl_need_no_more_calls_than_nothing_kept(
        keys in prop::collection::vec(0..40_u32, 1..200),
        term in prop::sample::select(vec!["s4fifo:0", "s4fifo:1", "s4fifo:9:skip=0.5", "tuned:0", "tuned:9", "tuned:600", "lru:1", "lru:9", "lru-bytes:900", "s3fifo:1", "s3fifo:9"]),
        ttl_s in prop::sample::select(vec![None, Some(1), Some(30)]),
    ) {
        let log = log_of(&keys, 2);
        let near_ttl = ttl_s.map(Duration::from_secs);
        for rules in ["", "+children", "+children-always"] {
            let stats = replay(&log, &format!("{term}{rules}"), near_ttl);
            prop_assert!(stats.iter().all(|stats| stats.calls <= 1));
            if term.ends_with(":0") || ttl_s == Some(1) {
                prop_assert!(stats.iter().all(|stats| stats.calls == 1), "{}{} keeps nothing", term, rules);
            }
        }
    }
}

#[test]
fn tuned_changes_its_settings_as_in_a_replay_of_the_trace() {
    let keys = changing_load(40_000);
    // Items are numbered in the order of the trace, so both sample the same groups.
    let mut numbers = std::collections::HashMap::new();
    let items: Vec<u32> = keys
        .iter()
        .map(|&key| {
            let next = numbers.len() as u32;
            *numbers.entry(key).or_insert(next)
        })
        .collect();
    let log = log_of(&items, 1);
    let tuned_calls = calls(&log, "tuned:600");
    // A change of the settings comes between the miss that ends a window and what it stores, and in a replay after both.
    assert!(
        tuned_calls.abs_diff(misses(&keys, PolicyKind::Tuned(Goal::Objects), 600)) <= 4,
        "{tuned_calls}"
    );
    let untuned: PolicyKind = "s4fifo".parse().unwrap();
    assert!(tuned_calls < misses(&keys, untuned, 600) * 9 / 10, "{tuned_calls}");
}

#[test]
fn each_process_begins_with_an_empty_cache_and_the_default_settings() {
    let keys = changing_load(20_000);
    let twice: Vec<u32> = keys.iter().flat_map(|&key| [key, key]).collect();
    for notation in ["tuned:600", "s4fifo:600"] {
        let two_processes = calls(&log_of(&twice, 2), notation);
        assert_eq!(two_processes, 2 * calls(&log_of(&keys, 1), notation), "{notation}");
    }
}
