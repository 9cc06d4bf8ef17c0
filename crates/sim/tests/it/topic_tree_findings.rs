//! The two findings that started this project, on the generated site: remote items slow whole
//! requests down, and a fixed set chosen on the past keeps more of them fast than an LRU of as many
//! items.

#![expect(clippy::disallowed_methods, reason = "CPU time comes from the kernel")]

use glasscache_sim::search::{BestSoFar, Evaluation, LearnedByShare, evaluate, list_candidates};
use glasscache_sim::strategy::cost::CostModel;
use glasscache_sim::strategy::figures::{Figures, compute_figures};
use glasscache_sim::strategy::fixed::choose_fixed;
use glasscache_sim::strategy::learn::LearnedItems;
use glasscache_sim::strategy::prepare::PreparedLog;
use glasscache_sim::strategy::run::{Choices, CostMode, RequestStats, run};
use glasscache_sim::trace::generate::topic_tree::{LATENCY_JSON, TopicTreeConfig, topic_tree};
use glasscache_strategy::file::Strategy;

fn replay(prepared: &PreparedLog<'_>, cost: &CostModel, notation: &str) -> Vec<RequestStats> {
    let strategy: Strategy = notation.parse().unwrap();
    let fixed = choose_fixed(strategy.fixed, prepared, cost);
    run(
        prepared,
        cost,
        &strategy,
        Choices { fixed: &fixed, learned: &LearnedItems::default() },
        CostMode::Median,
        prepared.len(),
    )
}

fn second_half_figures(prepared: &PreparedLog<'_>, cost: &CostModel, notation: &str) -> Figures {
    let request_stats = replay(prepared, cost, notation);
    compute_figures(prepared, &request_stats, prepared.second_half_start()..prepared.len())
}

#[test]
fn reproduces_both_initial_findings() {
    let log = topic_tree(&TopicTreeConfig::default());
    let cost = CostModel::parse(LATENCY_JSON).unwrap();
    let prepared = PreparedLog::new(&log, |_| true);
    let remote = second_half_figures(&prepared, &cost, "remote");
    assert!(remote.share_slower[2] > 0.10, "{}", remote.share_slower[2]);
    for item_count in [200, 1000] {
        let lru = second_half_figures(&prepared, &cost, &format!("lru:{item_count}"));
        let fixed = second_half_figures(&prepared, &cost, &format!("fixed:{item_count}"));
        assert!(fixed.added_ns < lru.added_ns, "time with {item_count} items");
        assert!(
            fixed.share_slower[2] < lru.share_slower[2],
            "slow requests with {item_count} items"
        );
    }
}

/// CPU time of this thread in nanoseconds; unlike wall-clock time it is meaningful on a busy machine.
fn thread_cpu_ns() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse().unwrap()
}

/// Speed on one core, in CPU time; meaningful only in a release build.
#[test]
#[ignore = "a measurement: run by `make bench-simulate`"]
fn speed_of_the_replay() {
    let log = topic_tree(&TopicTreeConfig::default());
    let cost = CostModel::parse(LATENCY_JSON).unwrap();
    let prepared = PreparedLog::new(&log, |_| true);
    let notations = [
        "remote",
        "fixed:200",
        "fixed:1000",
        "lru:200",
        "lru:1000",
        "lru:4000",
        "s3fifo:1000",
        "lru-bytes:4M",
    ];
    for notation in notations.into_iter().chain(["fixed:200+children", "children", "subtree:2"]) {
        let cpu_ns_before = thread_cpu_ns();
        let request_stats = replay(&prepared, &cost, notation);
        let million_accesses_per_s =
            prepared.accesses as f64 / (thread_cpu_ns() - cpu_ns_before) * 1e3;
        eprintln!(
            "{notation:20} {million_accesses_per_s:6.1} M accesses/s ({} requests)",
            request_stats.len()
        );
    }
}

/// CPU time of a whole search: every combination on the past and in hindsight.
#[test]
#[ignore = "a measurement: run by `make bench-simulate`"]
fn speed_of_a_search() {
    let log = topic_tree(&TopicTreeConfig::default());
    let cost = CostModel::parse(LATENCY_JSON).unwrap();
    let prepared = PreparedLog::new(&log, |_| true);
    let cpu_ns_before = thread_cpu_ns();
    let learned_by_share = LearnedByShare::learn(&prepared, Evaluation::OutOfSample);
    let candidates = list_candidates(&prepared, 16 << 20, &learned_by_share);
    let mut added_ns_sums = [0; 2];
    for (added_ns_sum, evaluation) in
        added_ns_sums.iter_mut().zip([Evaluation::OutOfSample, Evaluation::Hindsight])
    {
        let mut best_so_far = BestSoFar::default();
        let learned_by_share = LearnedByShare::learn(&prepared, evaluation);
        for candidate in &candidates {
            let memory_bytes = candidate.memory_bytes;
            let limit_ns = best_so_far.least_added_ns_within(memory_bytes);
            let candidate_added_ns =
                evaluate(&prepared, &cost, candidate, evaluation, &learned_by_share, limit_ns);
            best_so_far.record(memory_bytes, candidate_added_ns);
        }
        *added_ns_sum = best_so_far.least_added_ns_within(16 << 20).unwrap();
    }
    let seconds = (thread_cpu_ns() - cpu_ns_before) / 1e9;
    eprintln!(
        "{} combinations: {seconds:.1} s of one core (best {added_ns_sums:?} ns)",
        candidates.len()
    );
}
