//! The request simulator compared with the worked example and with a second, naive implementation.

use crate::naive::{self, NaiveStats, Table};
use glasscache_sim::strategy::cost::CostModel;
use glasscache_sim::strategy::figures::compute_figures;
use glasscache_sim::strategy::fixed::{FixedSet, choose_fixed};
use glasscache_sim::strategy::learn::LearnedItems;
use glasscache_sim::strategy::prepare::PreparedLog;
use glasscache_sim::strategy::run::{Choices, CostMode, RequestStats, run};
use glasscache_sim::trace::log::{Items, NONE, RequestLog, Requests};
use glasscache_strategy::file::Strategy;

fn add_request(requests: &mut Requests, instance: u16, base_us: u32, page: u32, items: &[u32]) {
    let number = requests.len() as u64;
    requests.numbers.push(number);
    requests.times_us.push(number);
    requests.instances.push(instance);
    requests.base_times_us.push(base_us);
    requests.pages.push(page);
    requests.routes.push(NONE);
    requests.items.extend(items);
    requests.starts.push(requests.items.len());
}

fn log_of(parents: Vec<u32>, sizes: Vec<u32>) -> RequestLog {
    let keys = (0..sizes.len()).map(|item| format!("k{item}")).collect();
    let requests = Requests { starts: vec![0], ..Requests::default() };
    RequestLog {
        items: Items { keys, parents, sizes, ..Items::default() },
        requests,
        truncated_after: None,
    }
}

fn worked_example() -> (RequestLog, Table) {
    let mut log = log_of(vec![NONE, 0, 0, 1], vec![1000, 1000, 1000, 10000]);
    add_request(&mut log.requests, 0, 10000, 0, &[0, 1, 0, 2]);
    add_request(&mut log.requests, 0, 10000, 1, &[1, 3, 1]);
    let table = Table {
        single: vec![(1000.0, 1000.0), (10000.0, 2000.0)],
        batch: vec![(1.0, 1000.0), (11.0, 2000.0)],
    };
    (log, table)
}

fn request_stats_of(
    log: &RequestLog,
    table: &Table,
    notation: &str,
    fixed: Option<&[u32]>,
) -> Vec<RequestStats> {
    let cost = CostModel::new(&table.single, &table.batch).unwrap();
    let prepared = PreparedLog::new(log, |_| true);
    let strategy: Strategy = notation.parse().unwrap();
    let fixed_set = match fixed {
        Some(items) => FixedSet::new(items.to_vec(), &log.items),
        None => choose_fixed(strategy.fixed, &prepared, &cost),
    };
    run(
        &prepared,
        &cost,
        &strategy,
        Choices { fixed: &fixed_set, learned: &LearnedItems::default() },
        CostMode::Median,
        prepared.len(),
    )
}

/// Calls, keys and added nanoseconds of both requests.
type CallsKeysNs = [(u32, u32, u64); 2];

#[test]
fn reproduces_the_worked_example() {
    let (log, table) = worked_example();
    let rows: [(&str, &[u32], CallsKeysNs); 7] = [
        ("remote", &[], [(3, 3, 3_000_000), (2, 2, 3_000_000)]),
        ("lru:2", &[], [(3, 3, 3_000_000), (1, 1, 2_000_000)]),
        ("children", &[], [(1, 3, 1_677_121), (1, 2, 2_300_000)]),
        ("subtree:1", &[], [(1, 3, 1_677_121), (1, 2, 2_300_000)]),
        ("subtree:2", &[], [(1, 4, 2_900_000), (1, 2, 2_300_000)]),
        ("children", &[0], [(2, 3, 3_300_000), (1, 2, 2_300_000)]),
        ("children-always", &[0], [(2, 3, 3_401_030), (1, 2, 2_300_000)]),
    ];
    for (notation, fixed, expected) in rows {
        let request_stats = request_stats_of(&log, &table, notation, Some(fixed));
        let calls_keys_and_ns: Vec<_> =
            request_stats.iter().map(|stats| (stats.calls, stats.keys, stats.added_ns)).collect();
        assert_eq!(calls_keys_and_ns, expected, "{notation} with {fixed:?}");
    }
}

#[test]
fn an_item_that_was_not_used_before_is_in_no_fixed_set() {
    let mut log = log_of(vec![NONE, NONE, NONE], vec![1000, 1000, 1000]);
    for items in [&[1], &[1], &[0], &[2]] {
        add_request(&mut log.requests, 0, 10000, 0, items);
    }
    let table = worked_example().1;
    let cost = CostModel::new(&table.single, &table.batch).unwrap();
    let prepared = PreparedLog::new(&log, |_| true);
    for (notation, expected) in [
        ("fixed:3", vec![1]),
        ("fixed-time:3", vec![1]),
        ("fixed-bytes:1000000", vec![1]),
        ("fixed-hindsight:3", vec![1, 0, 2]),
    ] {
        let strategy: Strategy = notation.parse().unwrap();
        assert_eq!(choose_fixed(strategy.fixed, &prepared, &cost).items, expected, "{notation}");
    }
}

#[test]
fn computes_the_figures_of_the_worked_example() {
    let (log, table) = worked_example();
    let request_stats = request_stats_of(&log, &table, "remote", None);
    let figures = compute_figures(&PreparedLog::new(&log, |_| true), &request_stats, 0..2);
    assert_eq!((figures.requests, figures.calls, figures.keys, figures.used_keys), (2, 5, 5, 5));
    assert_eq!((figures.bytes, figures.added_ns), (14_000, 6_000_000));
    assert_eq!(figures.latency_ns_pct, [13_000_000; 8]);
    assert!(figures.slowdown_pct.iter().all(|slowdown| (slowdown - 0.3).abs() < 1e-12));
    assert!((figures.share_slower[1] - 1.0).abs() < 1e-12 && figures.share_slower[2] < 1e-12);
}

/// A small generator of its own (xorshift), so that the logs never change with a library.
struct Rng(u64);

impl Rng {
    fn random_below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as u32 % bound
    }

    /// Low numbers are more frequent than high ones.
    fn random_skewed(&mut self, bound: u32) -> u32 {
        let lower_bound = 1 + self.random_below(bound);
        self.random_below(lower_bound)
    }
}

fn random_log(seed: u64, item_count: u32, request_count: u32) -> RequestLog {
    let mut rng = Rng(seed * 2 + 1);
    let parents = (0..item_count)
        .map(
            |item| {
                if item == 0 || rng.random_below(10) == 0 { NONE } else { rng.random_below(item) }
            },
        )
        .collect();
    let sizes = (0..item_count)
        .map(|_| {
            let size_max = 1 << rng.random_below(17);
            rng.random_below(size_max)
        })
        .collect();
    let mut log = log_of(parents, sizes);
    for _ in 0..request_count {
        let read_items: Vec<u32> =
            (0..rng.random_below(14)).map(|_| rng.random_skewed(item_count)).collect();
        let page = if rng.random_below(5) == 0 { NONE } else { rng.random_skewed(item_count) };
        let instance = rng.random_below(3) as u16;
        add_request(&mut log.requests, instance, rng.random_below(20_000), page, &read_items);
    }
    log
}

/// Every kind of strategy, with n of 1 % and 5 % of the items, depths 1 to 3, and six combinations.
fn notations_for(log: &RequestLog) -> Vec<String> {
    let mut notations: Vec<String> =
        ["remote", "children", "children-always", "subtree:1", "subtree:2", "subtree:3"]
            .map(String::from)
            .to_vec();
    let all_items_bytes: u64 = log.items.sizes.iter().map(|&size| u64::from(size)).sum();
    for divisor in [100, 20] {
        let item_count = log.items.len() / divisor;
        notations.extend(
            ["lru", "fixed", "fixed-time", "fixed-hindsight", "s3fifo"]
                .map(|name| format!("{name}:{item_count}")),
        );
        notations.extend(
            ["fixed-bytes", "lru-bytes"]
                .map(|name| format!("{name}:{}", all_items_bytes / divisor as u64)),
        );
    }
    let item_count = log.items.len() / 50;
    notations.extend([
        format!("fixed:{item_count}+children"),
        format!("fixed:{item_count}+lru:{item_count}"),
        format!("fixed-time:{item_count}+lru:{item_count}+children-always"),
        format!("lru:{item_count}+subtree:2+children"),
        format!("fixed-bytes:{}+s3fifo:{item_count}+children", all_items_bytes / 50),
        format!("fixed-hindsight:{item_count}+subtree:1+children-always"),
    ]);
    notations
}

fn latency_table() -> Table {
    Table {
        single: vec![(1.0, 1300.0), (1000.0, 1350.0), (10_000.0, 1500.0), (1_000_000.0, 16_000.0)],
        batch: vec![(1.0, 1300.0), (10.0, 1640.0), (100.0, 4900.0)],
    }
}

/// Compares every request of every strategy; returns how many figures were equal.
fn compare(log: &RequestLog) -> usize {
    let (table, children) = (latency_table(), naive::all_children(log));
    let mut equal_count = 0;
    for notation in notations_for(log) {
        let naive_stats = naive::simulate(log, &table, &notation, &children);
        let simulated_stats = request_stats_of(log, &table, &notation, None);
        for (request_index, (stats, expected)) in
            simulated_stats.iter().zip(&naive_stats).enumerate()
        {
            let simulated = NaiveStats {
                added_ns: stats.added_ns,
                calls: stats.calls,
                keys: stats.keys,
                bytes: stats.bytes,
                used_keys: stats.used_keys,
            };
            assert_eq!(simulated, *expected, "{notation}, request {request_index}");
            equal_count += 5;
        }
        assert_eq!(simulated_stats.len(), naive_stats.len());
    }
    equal_count
}

#[test]
fn every_strategy_equals_the_naive_implementation() {
    for seed in 0..6 {
        compare(&random_log(seed, 150, 600));
    }
}

/// Slow: `make simulate-full`.
#[test]
#[ignore = "minutes: run by `make simulate-full`"]
fn every_strategy_equals_the_naive_implementation_on_a_full_log() {
    let equal_count = compare(&random_log(99, 20_000, 200_000));
    eprintln!("{equal_count} figures equal");
}
