//! The two findings that this project began with, on the made-up site: remote items slow whole requests
//! down, and a fixed set chosen on the past keeps more of them fast than an LRU of as many items.

#![expect(
    clippy::disallowed_methods,
    reason = "CPU time is what the kernel says"
)]

use glasscache_sim::search::{Least, View, added_ns, candidates};
use glasscache_sim::strategy::cost::CostModel;
use glasscache_sim::strategy::figures::{Figures, figures};
use glasscache_sim::strategy::fixed::choose;
use glasscache_sim::strategy::prepare::Prepared;
use glasscache_sim::strategy::run::{Deed, Pricing, run};
use glasscache_sim::trace::generate::topic_tree::{LATENCY_JSON, TopicTree, topic_tree};
use glasscache_strategy::file::Strategy;

fn replay(prepared: &Prepared<'_>, cost: &CostModel, words: &str) -> Vec<Deed> {
    let strategy: Strategy = words.parse().unwrap();
    let fixed = choose(strategy.fixed, prepared, cost);
    run(
        prepared,
        cost,
        &strategy,
        &fixed,
        Pricing::Median,
        prepared.len(),
    )
}

fn second_half(prepared: &Prepared<'_>, cost: &CostModel, words: &str) -> Figures {
    let deeds = replay(prepared, cost, words);
    figures(prepared, &deeds, prepared.half()..prepared.len())
}

#[test]
fn both_founding_findings_come_out() {
    let log = topic_tree(&TopicTree::default());
    let cost = CostModel::parse(LATENCY_JSON).unwrap();
    let prepared = Prepared::new(&log, |_| true);
    let remote = second_half(&prepared, &cost, "remote");
    assert!(remote.share_slower[2] > 0.10, "{}", remote.share_slower[2]);
    for n in [200, 1000] {
        let lru = second_half(&prepared, &cost, &format!("lru:{n}"));
        let fixed = second_half(&prepared, &cost, &format!("fixed:{n}"));
        assert!(fixed.added_ns < lru.added_ns, "time with {n} items");
        assert!(
            fixed.share_slower[2] < lru.share_slower[2],
            "slow requests with {n} items"
        );
    }
}

/// Nanoseconds that this thread has computed: unlike the clock on the wall, true on a busy machine.
fn computed_ns() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse().unwrap()
}

/// Speed on one core, in CPU time; means something only in a release build.
#[test]
#[ignore = "a measurement: run by `make bench-simulate`"]
fn speed_of_the_replay() {
    let log = topic_tree(&TopicTree::default());
    let cost = CostModel::parse(LATENCY_JSON).unwrap();
    let prepared = Prepared::new(&log, |_| true);
    let words = [
        "remote",
        "fixed:200",
        "fixed:1000",
        "lru:200",
        "lru:1000",
        "lru:4000",
        "s3fifo:1000",
        "lru-bytes:4M",
    ];
    for words in words
        .into_iter()
        .chain(["fixed:200+children", "children", "subtree:2"])
    {
        let begin = computed_ns();
        let deeds = replay(&prepared, &cost, words);
        let rate = prepared.accesses as f64 / (computed_ns() - begin) * 1e3;
        eprintln!(
            "{words:20} {rate:6.1} M accesses/s ({} requests)",
            deeds.len()
        );
    }
}

/// CPU time of a whole search: every combination on the past and in hindsight.
#[test]
#[ignore = "a measurement: run by `make bench-simulate`"]
fn speed_of_a_search() {
    let log = topic_tree(&TopicTree::default());
    let cost = CostModel::parse(LATENCY_JSON).unwrap();
    let prepared = Prepared::new(&log, |_| true);
    let begin = computed_ns();
    let candidates = candidates(&prepared, 16 << 20);
    let mut sums = [0; 2];
    for (sum, view) in sums.iter_mut().zip([View::Past, View::Hindsight]) {
        let mut least = Least::default();
        for candidate in &candidates {
            let memory = candidate.memory_bytes;
            let limit = least.within(memory);
            let ns = added_ns(&prepared, &cost, candidate, view, limit);
            least.note(memory, ns);
        }
        *sum = least.within(16 << 20).unwrap();
    }
    let seconds = (computed_ns() - begin) / 1e9;
    eprintln!(
        "{} combinations: {seconds:.1} s of one core (best {sums:?} ns)",
        candidates.len()
    );
}
