//! What `simulate --save` writes: the children that the rules need, and the forecast of the second half.

use glasscache_sim::strategy::build_file::build_strategy_file;
use glasscache_sim::strategy::cost::CostModel;
use glasscache_sim::strategy::prepare::PreparedLog;
use glasscache_sim::strategy::report::{ReportOptions, report};
use glasscache_sim::strategy::{Strategy, StrategyFile};
use glasscache_sim::trace::generate::topic_tree::{LATENCY_JSON, TopicTreeConfig, topic_tree};

const OPTIONS: ReportOptions<'static> =
    ReportOptions { draw_seed: Some(1), route_of: &[], route_count: 0 };

#[test]
fn a_strategy_file_has_the_forecast_of_the_second_half_and_the_children_that_its_rules_need() {
    let log =
        topic_tree(&TopicTreeConfig { items: 1000, requests: 3000, ..TopicTreeConfig::default() });
    let cost = CostModel::parse(LATENCY_JSON).unwrap();
    let prepared = PreparedLog::new(&log, |_| true);
    for (notation, needs_children) in
        [("fixed:50", false), ("lru:50+children", true), ("subtree:2", true)]
    {
        let strategy: Strategy = notation.parse().unwrap();
        let text = build_strategy_file(&prepared, &cost, &strategy).to_string();
        let file: StrategyFile = text.parse().unwrap();
        assert_eq!(!file.children.is_empty(), needs_children, "{notation}");
        let figures: Vec<&str> = file.forecast.iter().map(|forecast| &*forecast.figure).collect();
        assert_eq!(figures, ["calls", "keys", "added_ms_p50", "added_ms_p95"]);

        let report = report(&prepared, &cost, &strategy, OPTIONS);
        let drawn = report.drawn.unwrap();
        let per_request = |count: u64| count as f64 / drawn.requests as f64;
        let reads = (prepared.second_half_start()..prepared.len())
            .map(|request| prepared.items_of(request).len())
            .sum::<usize>();
        // Compared with the servers' in a roll-out, along with a call, which all of these strategies need often enough.
        let compared_keys = 0.01 * per_request(reads as u64 - drawn.used_keys);
        let expected = [
            (per_request(drawn.calls), 0.0),
            (per_request(drawn.keys) + compared_keys, 0.02 * compared_keys),
            (drawn.added_ns_pct[2] as f64 / 1e6, 0.05),
            (drawn.added_ns_pct[5] as f64 / 1e6, 0.05),
        ];
        for (forecast, (expected, tolerance)) in file.forecast.iter().zip(expected) {
            let figure = &forecast.figure;
            let error = (forecast.value - expected).abs();
            assert!(error < tolerance + 1e-5, "{notation}, {figure}: {error} of {expected}");
            assert!(forecast.low < expected && expected < forecast.high, "{figure}");
            assert!(forecast.high < 2.0 * expected, "{figure} is bounded: {forecast:?}");
        }
    }
}
